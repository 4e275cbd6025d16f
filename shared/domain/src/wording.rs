//! Text for people: shortens it, formats sizes and counts, and writes an error together with its
//! causes.

use std::error::Error;

/// Formats a number of bytes for people: `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let (mut whole, mut rest, mut unit) = (bytes, 0, 0);
    while whole >= 1024 && unit + 1 < UNITS.len() {
        (whole, rest, unit) = (whole / 1024, whole % 1024, unit + 1);
    }
    match rest * 10 / 1024 {
        0 => format!("{whole} {}", UNITS[unit]),
        tenths => format!("{whole}.{tenths} {}", UNITS[unit]),
    }
}

/// Shortens `text` to at most `max_bytes`, at a character boundary. A shortened text ends in `…`,
/// whose bytes are not included in `max_bytes`.
pub fn cut(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push('…');
    }
    text
}

/// Formats a number of things: `1 tick`, `2 ticks`. The plural adds an `s`.
pub fn count(number: impl TryInto<u64>, word: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {word}{plural}")
}

/// Writes an error and its causes on one line, separated by `: `. A cause is left out if the text
/// before it already ends with that cause.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(cut("short".into(), 5), "short");
        assert_eq!(cut("longer".into(), 4), "long…");
        assert_eq!(cut("äöü".into(), 3), "ä…");
    }

    #[test]
    fn one_is_written_in_the_singular() {
        assert_eq!([0u32, 1, 2].map(|ticks| count(ticks, "tick")), ["0 ticks", "1 tick", "2 ticks"]);
    }

    #[test]
    fn each_cause_is_written_once() {
        let root = Layer("connection refused", None);
        let middle = Layer("request failed: connection refused", Some(Box::new(root)));
        let top = Layer("can't reach the store", Some(Box::new(middle)));
        assert_eq!(with_causes(&top), "can't reach the store: request failed: connection refused");
    }
}
