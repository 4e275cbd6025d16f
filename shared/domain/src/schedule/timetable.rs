//! The ticks of a cron expression in a time zone.
//!
//! Where the clocks are changed: an expression that names hours is about the time of day. A time of day that is left out
//! runs once, at the first instant behind the gap; one that comes twice runs the first time. An expression for every hour is
//! about distances: it runs whenever the minute fits, in both hours of the same name, and in none that is left out.

use std::sync::LazyLock;

use jiff::{
    civil::Date,
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};

use super::cron::{Cron, Fields};
use crate::time::Timestamp;

/// The rules of all zones, as of this program: those of the system may be others on each machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
const MINUTE_MS: u64 = 60_000;
/// The most local times that are looked at for one tick: those of a night in which the clocks are set back.
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

    /// The first tick behind this time.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.cron {
            Cron::Every { ms } => (after.millis() / ms + 1).checked_mul(*ms).map(Timestamp::from_millis),
            Cron::Fields(fields) if fields.every_hour() => self.next_minute(fields, after),
            Cron::Fields(fields) => self.next_time_of_day(fields, after),
        }
    }

    /// The next ticks, at most so many.
    pub fn upcoming(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next(after), |tick| self.next(*tick)).take(count).collect()
    }

    /// The local date, as `2026-11-16`.
    pub fn day(&self, at: Timestamp) -> String {
        instant(at).map_or_else(String::new, |at| at.to_zoned(self.zone.clone()).date().to_string())
    }

    /// The local time with its distance to UTC, as `2026-11-16T08:00:00+01:00`.
    pub fn local(&self, at: Timestamp) -> String {
        let Some(at) = instant(at) else { return at.to_string() };
        at.to_zoned(self.zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }

    /// Whole minutes, one after another, as they pass.
    fn next_minute(&self, fields: &Fields, after: Timestamp) -> Option<Timestamp> {
        let mut at = Timestamp::from_millis((after.millis() / MINUTE_MS + 1).checked_mul(MINUTE_MS)?);
        for _ in 0..MAX_LOOKED_AT {
            let local = instant(at)?.to_zoned(self.zone.clone()).datetime();
            if !fields.date_fits(local.date()) {
                let begins = self.begins(fields.next_date(local.date())?)?;
                // A day begins at a whole minute, wherever clocks are changed today.
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

    /// Local times, one after another, each at its first instant.
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
                    // As far behind the gap's end as the local time is behind its beginning.
                    let behind = found.later().ok()?.timestamp();
                    let transitions = self.zone.preceding(behind + jiff::SignedDuration::from_millis(1));
                    transitions.into_iter().next()?.timestamp()
                }
            };
            // In the second of two hours of the same name, the first is over.
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
