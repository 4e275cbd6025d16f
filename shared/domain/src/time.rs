//! A point in time, in milliseconds since the Unix epoch. This module reads no clock: the time
//! comes in with each command, and Redis TIME is the clock of record.

use std::{fmt, time::Duration};

use jiff::{
    civil::{Date, Time},
    tz::Offset,
};
use serde::{Deserialize, Serialize};

#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const fn from_millis(millis: u64) -> Self {
        Timestamp(millis)
    }

    /// Parses a day in UTC, or a time of a day to the minute or the second: `2026-01-31`,
    /// `2026-01-31T08:15Z`, `2026-01-31T08:15:00Z`. The earliest day is 1970-01-01.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str, most: u64| {
            let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|number: &u64| whole && *number <= most)
        };
        let (date, time) = text.split_once('T').map_or((text, None), |(date, time)| (date, Some(time)));
        let [year, month, day] = <[&str; 3]>::try_from(date.split('-').collect::<Vec<_>>()).ok()?;
        let (year, month, day) = (number(year, 9999)?, number(month, 12)?, number(day, 31)?);
        let mut of_day = 0;
        if let Some(time) = time {
            let parts: Vec<&str> = time.strip_suffix('Z')?.split(':').collect();
            let (hours, minutes) = (number(parts.first()?, 23)?, number(parts.get(1)?, 59)?);
            let seconds = parts.get(2).map_or(Some(0), |seconds| number(seconds, 59))?;
            of_day = hours * 3600 + minutes * 60 + seconds;
            (parts.len() <= 3).then_some(())?;
        }
        let date = Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?);
        let midnight = Offset::UTC.to_timestamp(date.ok()?.to_datetime(Time::midnight())).ok()?;
        let seconds = u64::try_from(midnight.as_second()).ok()? + of_day;
        Some(Timestamp(seconds * 1000))
    }

    pub const fn millis(self) -> u64 {
        self.0
    }

    pub const fn plus_millis(self, millis: u64) -> Self {
        Timestamp(self.0.saturating_add(millis))
    }

    pub const fn minus_millis(self, millis: u64) -> Self {
        Timestamp(self.0.saturating_sub(millis))
    }

    /// Milliseconds since `earlier`; zero if `earlier` is later than this time.
    pub const fn millis_since(self, earlier: Timestamp) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// RFC 3339 in UTC: `2026-01-31T08:15:00Z`. A time after the year 9999 is shown as the last second
/// of that year.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at =
            i64::try_from(self.0 / 1000).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
        write!(f, "{:.0}", at.unwrap_or(jiff::Timestamp::MAX))
    }
}

/// Converts a duration to whole milliseconds; `u64::MAX` if it is longer.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_as_people_write_it() {
        for (seconds, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp::from_millis(seconds * 1000).to_string(), shown);
            assert_eq!(Timestamp::parse(shown), Some(Timestamp::from_millis(seconds * 1000)));
        }
        for wrong in [
            "2026-02-30",
            "2026-00-01",
            "2026-1",
            "1969-12-31",
            "2026-01-01T25:00Z",
            "2026-01-01T1:1",
            "+1-01-01",
        ] {
            assert_eq!(Timestamp::parse(wrong), None, "{wrong}");
        }
    }
}
