//! Parsers for values on the command line. Each error names the accepted form.

use std::{str::FromStr, time::Duration};

use domain::{
    ContextKey, Timestamp, Tokens, Usd,
    id::{LabelKey, LabelValue},
    limits::MAX_TIMEOUT_MS,
    time,
    wire::{ContextStatus, Text},
};
use host::clock::Clock;
use serde_json::Value;

/// The smallest size of a stream. One message may have 8 MiB, so a smaller stream would hold hardly
/// any.
const MIN_STREAM_BYTES: i64 = 16 << 20;

pub(crate) fn usd(text: &str) -> Result<Usd, String> {
    text.strip_prefix('$').unwrap_or(text).parse().map_err(|error: domain::money::Error| error.to_string())
}

/// A cost ceiling. Zero is rejected, because nothing could run under it.
pub(crate) fn ceiling(text: &str) -> Result<Usd, String> {
    let above_zero = |usd: &Usd| *usd > Usd::ZERO;
    usd(text).and_then(|usd| Some(usd).filter(above_zero).ok_or("a ceiling must be more than zero".into()))
}

pub(crate) fn tokens(text: &str) -> Result<Tokens, String> {
    let number: u64 = text.replace('_', "").parse().map_err(|_| "write a whole number, such as 20000")?;
    serde_json::from_value(number.into()).map_err(|error| error.to_string())
}

pub(crate) fn text(text: &str) -> Result<Text, String> {
    Text::new(text)
}

/// `250ms`, `30s`, `10m`, `2h`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let each: u64 = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "" => return Err("write a number and a unit, such as 500ms, 30s or 7d".into()),
        unit => return Err(format!("`{unit}` is not a unit of time: use ms, s, m, h or d, as in 30s")),
    };
    let number: u64 = digits.parse().map_err(|_| "write a number and a unit, such as 500ms, 30s or 7d")?;
    let millis = number.checked_mul(each).filter(|millis| *millis <= MAX_TIMEOUT_MS);
    millis.map(Duration::from_millis).ok_or_else(|| "the longest time is a year".into())
}

/// `512MiB`, `2GiB`; a bare number is bytes.
pub(crate) fn bytes(text: &str) -> Result<i64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let each: i64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        unit => return Err(format!("`{unit}` is not a size: use KiB, MiB or GiB, as in 512MiB")),
    };
    let number: i64 = digits.parse().map_err(|_| "write a number and a size, such as 512MiB or 2GiB")?;
    number
        .checked_mul(each)
        .filter(|bytes| *bytes >= MIN_STREAM_BYTES)
        .ok_or_else(|| "the size of a stream must be at least 16MiB, and less than 8EiB".into())
}

/// Parses a time before now (`2h`), a day (`2026-11-01`) or a time of day (`2026-11-01T08:00Z`), in
/// UTC.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Some(at) = Timestamp::parse(text) {
        return Ok(at);
    }
    let ago = duration(text).map_err(
        |_| "write a time before now, such as 2h, or a date in UTC, such as 2026-11-01 or 2026-11-01T08:00Z",
    )?;
    Ok(Clock::Machine.now().minus_millis(time::millis(ago)))
}

/// `key=value`: a label of a run.
pub(crate) fn label(text: &str) -> Result<(LabelKey, LabelValue), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value, such as env=prod")?;
    let told = |error: domain::id::Error| error.to_string();
    Ok((key.parse().map_err(told)?, value.parse().map_err(told)?))
}

pub(crate) fn status(text: &str) -> Result<ContextStatus, String> {
    serde_json::from_value(Value::from(text)).map_err(|_| {
        "use submitted, working, input_required, paused, completed, failed, cancelled, timed_out or aborted".into()
    })
}

/// `key=json`: an input of a task.
pub(crate) fn input(text: &str) -> Result<(ContextKey, Value), String> {
    key_json(text, "write it as key=json, such as topic='\"ants\"'")
}

/// Parses a name and a JSON value. `usage` is the error if there is no `=`.
pub(crate) fn key_json<K: FromStr<Err = domain::id::Error>>(
    text: &str,
    usage: &str,
) -> Result<(K, Value), String> {
    let (key, json) = text.split_once('=').ok_or(usage)?;
    let name = key.parse().map_err(|error: domain::id::Error| error.to_string())?;
    let value = serde_json::from_str(json).map_err(|error| {
        format!("{json:?} is not JSON: {error}\n\nhint: write a text in quotes, as in '{key}=\"{json}\"'")
    })?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_a_stream_has_room_and_a_ceiling_is_more_than_zero() {
        assert_eq!(duration("7d").unwrap(), Duration::from_secs(7 * 86_400));
        for wrong in ["7", "", "d", "-1s", "7w", "367d"] {
            duration(wrong).unwrap_err();
        }
        assert_eq!(bytes("16MiB").unwrap(), 16 << 20);
        for wrong in ["0", "2KiB", "16777215", "9999999999GiB"] {
            bytes(wrong).unwrap_err();
        }
        assert_eq!(ceiling("$0.01").unwrap(), usd("0.01").unwrap());
        for wrong in ["0", "$0", "-1"] {
            ceiling(wrong).unwrap_err();
        }
    }

    #[test]
    fn g17_a_moment_is_a_date_or_a_time_before_now() {
        assert_eq!(moment("2026-01-31T08:15:00Z").unwrap().to_string(), "2026-01-31T08:15:00Z");
        assert_eq!(moment("2026-11-01").unwrap().to_string(), "2026-11-01T00:00:00Z");
        assert!(moment("2h").unwrap() < moment("1h").unwrap());
        for wrong in ["", "yesterday", "2026-13-01", "2026-02-29", "1969-12-31", "7"] {
            moment(wrong).unwrap_err();
        }
        label("env=prod").unwrap();
        for wrong in ["env", "env=", "=prod", "e v=x", "env=a b"] {
            label(wrong).unwrap_err();
        }
        status("timed_out").unwrap();
        status("done").unwrap_err();
    }
}
