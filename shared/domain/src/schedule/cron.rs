//! Parses cron expressions and matches them against local dates and times. All mistakes are
//! reported at once, each with the name of its field. This module does not know time zones.

use jiff::civil::{Date, DateTime};

/// The days that are searched for the next date. The longest gap is eight years: it spans a century
/// without a leap day.
const SEARCHED_DAYS: u32 = 9 * 366;
/// The shortest and the longest `@every`.
const EVERY_MS: std::ops::RangeInclusive<u64> = 1_000..=366 * 86_400_000;

/// The times at which a schedule is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cron {
    /// At fixed intervals since 1970-01-01 UTC, in any time zone.
    Every {
        ms: u64,
    },
    Fields(Fields),
}

/// The values that match, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// 0 is Sunday.
    weekdays: u64,
}

/// The name and range of one of the five fields.
struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    /// The names of the values, beginning with the least value.
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field { name: "minute", least: 0, most: 59, names: &[] },
    Field { name: "hour", least: 0, most: 23, names: &[] },
    Field { name: "day of the month", least: 1, most: 31, names: &[] },
    Field { name: "month", least: 1, most: 12, names: &MONTHS },
    // 0 and 7 both mean Sunday.
    Field { name: "day of the week", least: 0, most: 7, names: &WEEKDAYS },
];

const SHORT: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A mistake in an expression: a message and a hint.
pub(super) type Mistake = (String, Option<String>);

impl Cron {
    pub(super) fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let text = text.trim();
        let one = |message: String, hint: &str| Err(vec![(message, Some(hint.to_owned()))]);
        if text.starts_with('@') {
            if let Some(every) = text.strip_prefix("@every") {
                return every_ms(every.trim()).map(|ms| Cron::Every { ms }).map_err(|why| {
                    vec![(why, Some("write a number and a unit, such as `@every 90s`, 15m or 6h".into()))]
                });
            }
            return match SHORT.iter().find(|(name, _)| *name == text.to_lowercase()) {
                Some((_, long)) => Self::parse(long),
                None => one(
                    format!("`{}` is not known", short(text)),
                    "use @hourly, @daily, @weekly, @monthly, @yearly, or `@every 90s`",
                ),
            };
        }
        let parts: Vec<&str> = text.split_whitespace().collect();
        let Ok(parts) = <[&str; 5]>::try_from(parts.as_slice()) else {
            let hint = match parts.len() {
                6 => "there is no field for seconds; for intervals in seconds, use `@every 30s`",
                _ => {
                    "write minute, hour, day of the month, month and day of the week, as in `30 7 * * mon-fri`"
                }
            };
            return one(format!("it has {} fields, and a cron expression has 5", parts.len()), hint);
        };
        let mut mistakes = Vec::new();
        let mut bits = [0; 5];
        for ((field, part), bits) in FIELDS.iter().zip(parts).zip(&mut bits) {
            *bits = field.parse(part, &mut mistakes);
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let [minutes, hours, days, months, weekdays] = bits;
        let weekdays = (weekdays | weekdays >> 7) & 0x7f;
        let fields = Fields { minutes, hours, days, months, weekdays };
        if fields.is_never() {
            return one("it is never due: no such month has that day".into(), "February has 29 days at most");
        }
        Ok(Cron::Fields(fields))
    }
}

impl Field {
    /// Returns the values that a field names, and adds its mistakes to `mistakes`.
    fn parse(&self, text: &str, mistakes: &mut Vec<Mistake>) -> u64 {
        text.split(',').fold(0, |bits, item| match self.item(item) {
            Ok(found) => bits | found,
            Err((why, hint)) => {
                mistakes.push((format!("{}: {why}", self.name), hint));
                bits
            }
        })
    }

    /// Parses `*`, `5`, `mon` or `1-5`, with an optional step as in `*/15` and `9-17/2`.
    fn item(&self, item: &str) -> Result<u64, Mistake> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        let (from, to) = if range == "*" {
            // The weekdays without the second Sunday, 7.
            (self.least, if self.most == 7 { 6 } else { self.most })
        } else if let Some((from, to)) = range.split_once('-') {
            let (from, to) = (self.value(from)?, self.value(to)?);
            // A week may end with Sunday.
            let to = if self.most == 7 && to == 0 && from > 0 { 7 } else { to };
            if from > to {
                let last = if self.most == 7 { 6 } else { self.most };
                let hint = format!("write it as two: {from}-{last},{}-{to}", self.least);
                return Err((format!("`{}` ends before it begins", short(range)), Some(hint)));
            }
            (from, to)
        } else {
            let value = self.value(range)?;
            if step.is_some() {
                let hint = format!("write `{}-{}/{}`", short(range), self.most, step.unwrap_or_default());
                return Err((format!("`{}` has a step and no range", short(item)), Some(short(&hint))));
            }
            (value, value)
        };
        let step = match step {
            None => 1,
            Some(step) => {
                let span = to - from;
                step.parse::<u32>().ok().filter(|step| (1..=span.max(1)).contains(step)).ok_or_else(|| {
                    let hint = format!("a step is a number from 1 to {}", span.max(1));
                    (format!("`{}` is not a step of {}", short(step), short(range)), Some(hint))
                })?
            }
        };
        Ok((from..=to).step_by(step as usize).fold(0, |bits, value| bits | 1 << value))
    }

    fn value(&self, text: &str) -> Result<u32, Mistake> {
        let named = self.names.iter().position(|name| *name == text.to_lowercase());
        let named = named.and_then(|place| u32::try_from(place).ok()).map(|place| place + self.least);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && (self.least..=self.most).contains(number));
        named.or(number).ok_or_else(|| {
            let names = match self.names {
                [first, .., last] => format!(", or {first} to {last}"),
                _ => String::new(),
            };
            let hint = match text.chars().any(|c| "LW#?".contains(c)) {
                true => "L, W, # and ? are not known; `*` stands for every value".to_owned(),
                false => format!(
                    "use {} to {}{names}, `*`, ranges as 1-5, steps as */2, and lists",
                    self.least, self.most
                ),
            };
            (format!("`{}` is not a valid {}", short(text), self.name), Some(hint))
        })
    }
}

/// Cuts a part of an expression for a message.
fn short(text: &str) -> String {
    crate::wording::cut(text.to_owned(), 40)
}

fn every_ms(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let each = match &text[digits.len()..] {
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("`{}` is not a length of time", short(text))),
    };
    let ms = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(each));
    ms.filter(|ms| EVERY_MS.contains(ms))
        .ok_or_else(|| format!("`{}` is not a length of time from a second to a year", short(text)))
}

impl Fields {
    /// Returns true if every hour matches. Then each minute that matches is a tick, even where
    /// clocks are changed.
    pub(super) fn every_hour(&self) -> bool {
        self.hours == (1 << 24) - 1
    }

    pub(super) fn minute_fits(&self, at: DateTime) -> bool {
        self.minutes >> at.minute() & 1 == 1
    }

    /// If both kinds of days are restricted, a match of one is enough, as in every cron.
    pub(super) fn date_fits(&self, date: Date) -> bool {
        let day = self.days >> date.day() & 1 == 1;
        let weekday = self.weekdays >> date.weekday().to_sunday_zero_offset() & 1 == 1;
        let month = self.months >> date.month() & 1 == 1;
        month && if self.all_days() || self.all_weekdays() { day && weekday } else { day || weekday }
    }

    fn all_days(&self) -> bool {
        self.days == u64::from(u32::MAX - 1)
    }

    fn all_weekdays(&self) -> bool {
        self.weekdays == 0x7f
    }

    /// Returns the first matching date after this one.
    pub(super) fn next_date(&self, date: Date) -> Option<Date> {
        let mut date = date;
        for _ in 0..SEARCHED_DAYS {
            date = date.tomorrow().ok()?;
            if self.date_fits(date) {
                return Some(date);
            }
        }
        None
    }

    /// Returns the first matching local time after the minute of this one.
    pub(super) fn next_local(&self, after: DateTime) -> Option<DateTime> {
        let found = if self.date_fits(after.date()) {
            let (hour, minute) = (after.hour(), after.minute());
            let same_hour = first(self.minutes, minute + 1).filter(|_| self.hours >> hour & 1 == 1);
            same_hour.map(|minute| (hour, minute)).or_else(|| self.first_from(hour + 1))
        } else {
            None
        };
        let (date, (hour, minute)) = match found {
            Some(found) => (after.date(), found),
            None => (self.next_date(after.date())?, self.first_from(0)?),
        };
        Some(date.at(hour, minute, 0, 0))
    }

    fn first_from(&self, hour: i8) -> Option<(i8, i8)> {
        Some((first(self.hours, hour)?, first(self.minutes, 0)?))
    }

    /// Returns true if none of the months has any of the days.
    fn is_never(&self) -> bool {
        const LONGEST: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let has = |(month, days): (usize, &u32)| {
            self.months >> (month + 1) & 1 == 1 && self.days.trailing_zeros() <= *days
        };
        self.all_weekdays() && !LONGEST.iter().enumerate().any(has)
    }
}

/// Returns the first set bit at or after a place.
fn first(bits: u64, from: i8) -> Option<i8> {
    let left = bits.checked_shr(u32::from(from.unsigned_abs()))?;
    (left != 0).then(|| from + i8::try_from(left.trailing_zeros()).expect("below 64"))
}
