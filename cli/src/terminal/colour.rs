//! Colours, if stdout is a terminal and `NO_COLOR` is not set. A coloured text carries a mark with
//! a random part, and printing turns marks into colours. An agent can't guess the mark, so its
//! output can't colour the screen.

use std::{fmt, io::IsTerminal, sync::LazyLock};

use uuid::Uuid;

use crate::terminal::display;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    Red,
    Green,
    Yellow,
    Cyan,
}

/// The mark at the end of a coloured text.
const PLAIN: char = '0';

impl Colour {
    const ALL: [Colour; 4] = [Colour::Red, Colour::Green, Colour::Yellow, Colour::Cyan];

    fn letter(self) -> char {
        match self {
            Colour::Red => 'r',
            Colour::Green => 'g',
            Colour::Yellow => 'y',
            Colour::Cyan => 'c',
        }
    }

    fn number(self) -> u8 {
        match self {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Cyan => 36,
        }
    }

    /// The colour of a status. A status that needs a user's action has the strongest colour.
    fn of(status: &str) -> Option<Self> {
        match status {
            "completed" => Some(Colour::Green),
            "failed" | "aborted" | "timed_out" | "rejected" => Some(Colour::Red),
            "input_required" | "paused" | "partial" | "cancelled" | "skipped" => Some(Colour::Yellow),
            "working" | "undoing" => Some(Colour::Cyan),
            _ => None,
        }
    }
}

/// The beginning of every mark, random in each process.
static MARK: LazyLock<String> = LazyLock::new(|| format!("\u{1b}{}", Uuid::new_v4().simple()));

static IS_ON: LazyLock<bool> = LazyLock::new(|| {
    let unset = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    unset && std::env::var_os("TERM").is_none_or(|term| term != "dumb") && std::io::stdout().is_terminal()
});

/// Colours the first word of a text by the status that it names. Blanks or words may follow.
pub(crate) fn status(shown: &str) -> String {
    let word = shown.split(' ').next().unwrap_or_default();
    match Colour::of(word).filter(|_| *IS_ON) {
        Some(colour) => painted(colour, word, &shown[word.len()..]),
        None => shown.to_owned(),
    }
}

fn painted(colour: Colour, word: &str, rest: impl fmt::Display) -> String {
    let mark = MARK.as_str();
    format!("{mark}{}{word}{mark}{PLAIN}{rest}", colour.letter())
}

/// Makes a text safe to print: only the control characters of our own colours remain.
pub(crate) fn printable(text: &str) -> String {
    let mut parts = text.split(MARK.as_str());
    let mut shown = display::printable(parts.next().unwrap_or_default());
    for part in parts {
        let mut rest = part.chars();
        let letter = rest.next();
        if letter == Some(PLAIN) {
            shown.push_str("\u{1b}[0m");
        } else if let Some(colour) = Colour::ALL.into_iter().find(|colour| Some(colour.letter()) == letter) {
            shown.push_str(&format!("\u{1b}[{}m", colour.number()));
        }
        shown.push_str(&display::printable(rest.as_str()));
    }
    shown
}

/// The same text without colour marks, to measure its width.
pub(crate) fn without(text: &str) -> String {
    let mut parts = text.split(MARK.as_str());
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + part.get(1..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s8_only_our_own_marks_become_colours() {
        let text = format!("{} \u{1b}[31mred\u{1b}[0m", painted(Colour::Green, "completed", "  "));
        assert_eq!(
            printable(&text),
            "\u{1b}[32mcompleted\u{1b}[0m   \u{fffd}[31mred\u{fffd}[0m",
            "the text of an agent loses only its escapes"
        );
    }
}
