//! The ticks of a cron expression in a time zone.
//!
//! Two rules apply where clocks are changed. An expression that names hours is about the time of
//! day. A time of day in the gap runs once, at the first instant after the gap; a time of day that
//! occurs twice runs the first time. An expression for every hour is about intervals. It runs at
//! every minute that matches, so it runs in both of two hours with the same name, and not in an
//! hour that is left out.

use std::sync::LazyLock;

use jiff::{
    civil::Date,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};

use super::cron::{Cron, Fields};
use crate::time::Timestamp;

/// The rules of all time zones, bundled with this program. The system's rules may differ between
/// machines.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
const MINUTE_MS: u64 = 60_000;
/// The most local times that are examined for one tick. Several may be over already in a night in
/// which the clocks are set back.
const MAX_LOOKED_AT: usize = 10_000;

#[derive(Debug, Clone)]
pub struct Timetable {
    cron: Cron,
    zone: TimeZone,
}

impl Timetable {
    pub(super) fn new(cron: Cron, zone: TimeZone) -> Self {
        Timetable { cron, zone }
    }

    /// Returns the first tick after this time.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.cron {
            Cron::Every { ms } => (after.millis() / ms + 1).checked_mul(*ms).map(Timestamp::from_millis),
            Cron::Fields(fields) if fields.every_hour() => self.next_minute(fields, after),
            Cron::Fields(fields) => self.next_time_of_day(fields, after),
        }
    }

    /// Returns the next ticks, at most `count`.
    pub fn upcoming(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next(after), |tick| self.next(*tick)).take(count).collect()
    }

    /// Returns the local date, as `2026-11-16`.
    pub fn day(&self, at: Timestamp) -> String {
        instant(at).map_or_else(String::new, |at| at.to_zoned(self.zone.clone()).date().to_string())
    }

    /// Returns the local time with its offset from UTC, as `2026-11-16T08:00:00+01:00`.
    pub fn local(&self, at: Timestamp) -> String {
        let Some(at) = instant(at) else { return at.to_string() };
        at.to_zoned(self.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    /// Searches minute by minute in real time.
    fn next_minute(&self, fields: &Fields, after: Timestamp) -> Option<Timestamp> {
        let mut at = Timestamp::from_millis((after.millis() / MINUTE_MS + 1).checked_mul(MINUTE_MS)?);
        for _ in 0..MAX_LOOKED_AT {
            let local = instant(at)?.to_zoned(self.zone.clone()).datetime();
            if !fields.date_fits(local.date()) {
                let begins = self.begins(fields.next_date(local.date())?)?;
                // A day begins at a whole minute, even on a day on which clocks are changed.
                at = begins.max(at.plus_millis(MINUTE_MS));
            } else if fields.minute_fits(local) {
                return Some(at);
            } else {
                at = at.plus_millis(MINUTE_MS);
            }
        }
        None
    }

    fn begins(&self, date: Date) -> Option<Timestamp> {
        millis(date.to_zoned(self.zone.clone()).ok()?.timestamp())
    }

    /// Searches local times in order, each at its first instant.
    fn next_time_of_day(&self, fields: &Fields, after: Timestamp) -> Option<Timestamp> {
        let mut local = instant(after)?.to_zoned(self.zone.clone()).datetime();
        for _ in 0..MAX_LOOKED_AT {
            local = fields.next_local(local)?;
            let found = self.zone.to_ambiguous_zoned(local);
            let at = match found.offset() {
                AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
                    found.earlier().ok()?.timestamp()
                }
                AmbiguousOffset::Gap { .. } => {
                    // `found.later()` is as far after the gap's end as the local time is after the
                    // gap's beginning. The transition before it is the gap's end.
                    let behind = found.later().ok()?.timestamp();
                    let transitions = self.zone.preceding(behind + jiff::SignedDuration::from_millis(1));
                    transitions.into_iter().next()?.timestamp()
                }
            };
            // A local time in the second of two hours with the same name resolves to the first
            // hour, which is over.
            if let Some(at) = millis(at).filter(|at| *at > after) {
                return Some(at);
            }
        }
        None
    }
}

pub(super) fn zone(name: &str) -> Option<TimeZone> {
    ZONES.get(name).ok()
}

pub(super) fn zones() -> Vec<String> {
    ZONES.available().map(|name| name.as_str().to_owned()).collect()
}

fn instant(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(i64::try_from(at.millis()).ok()?).ok()
}

fn millis(at: jiff::Timestamp) -> Option<Timestamp> {
    u64::try_from(at.as_millisecond()).ok().map(Timestamp::from_millis)
}
