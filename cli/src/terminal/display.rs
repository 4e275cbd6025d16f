//! Text made safe and short for a terminal. Much of it was written by agents, tools and models.

use domain::{Json, Usd};
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The fewest columns for the free text at the end of a row.
const LEAST_SAID: usize = 18;

/// The JSON name of a status or kind.
pub(crate) fn plain(word: serde_json::Result<Value>) -> String {
    word.ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The text on one line, without control characters.
pub(crate) fn flat(text: &str) -> String {
    printable(text).replace('\r', "").replace(['\n', '\t'], " ")
}

/// The text without control characters, so that it can't move the cursor, colour the screen or
/// reverse the reading direction.
pub(crate) fn printable(text: &str) -> String {
    let is_control = |character: char| match character {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    };
    let mut characters = text.chars().peekable();
    let mut out = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        // CRLF, the line ending of CSV, is left in.
        let ends_line = character == '\r' && characters.peek() == Some(&'\n');
        out.push(if is_control(character) && !ends_line { '\u{fffd}' } else { character });
    }
    out
}

/// A result in full: a text unchanged, any other value as indented JSON. It ends with a newline.
pub(crate) fn of_result(result: &Json) -> String {
    let mut text = match result.value() {
        Value::String(text) => text.clone(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            format!("{other:#}")
        }
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The number of terminal columns that a line takes.
pub(crate) fn width(line: &str) -> usize {
    line.width()
}

/// Shortens a line to the given columns, with `…` in place of the rest.
pub(crate) fn fit(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let mut kept = String::new();
    let mut taken = 0;
    for character in line.chars() {
        taken += character.width().unwrap_or(0);
        if taken >= columns {
            break;
        }
        kept.push(character);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

/// A row whose last cell is free text. If the terminal is too narrow for the laid out row, its
/// cells follow one another and the free text is below them.
pub(crate) fn row(laid_out: &str, cells: &[&str], said: &str, room: Option<usize>) -> String {
    let line = format!("{laid_out}  {said}");
    let Some(room) = room.filter(|room| width(laid_out) + LEAST_SAID > *room) else {
        let line = room.map_or(line.clone(), |room| fit(&line, room));
        return format!("{}\n", line.trim_end());
    };
    let mut lines: Vec<String> = Vec::new();
    for cell in cells.iter().filter(|cell| !cell.is_empty()) {
        match lines.last_mut() {
            Some(last) if width(last) + 2 + width(cell) <= room => last.push_str(&format!("  {cell}")),
            Some(_) => lines.push(format!("    {cell}")),
            None => lines.push((*cell).to_owned()),
        }
    }
    if !said.is_empty() {
        lines.push(format!("    {said}"));
    }
    lines.iter().map(|line| format!("{}\n", fit(line, room))).collect()
}

/// Shortens a text to `most` characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The difference of two amounts, with a minus if the amount falls.
pub(crate) fn change(to: Usd, from: Usd) -> String {
    match to.nanos().checked_sub(from.nanos()) {
        Some(more) => Usd::from_nanos(more).to_string(),
        None => format!("-{}", Usd::from_nanos(from.nanos() - to.nanos())),
    }
}

/// A hint for an unknown name: the nearest known name, or `otherwise` if no name is near.
pub(crate) fn did_you_mean<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str>,
    otherwise: impl Into<String>,
) -> String {
    domain::problem::nearest(name, known)
        .map_or_else(|| otherwise.into(), |near| format!("did you mean `{near}`?"))
}
