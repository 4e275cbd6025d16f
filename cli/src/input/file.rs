//! Reads a file or stdin as JSON, YAML or TOML.

use std::{io::Read, path::Path};

use anyhow::{Context, bail};
use domain::{
    Problems,
    decode::{self, Format},
    limits::MAX_MESSAGE_BYTES,
};
use serde_json::Value;

use crate::input::{
    document::{Document, FileError, UnreadableGraphs},
    sources::{Form, Mistakes, Sources},
};

/// A file as a JSON value.
pub(crate) fn read_value(path: &Path) -> Result<Document, FileError> {
    let text = read(path).map_err(FileError::Unreadable)?;
    let (value, form) = if is_toml(path) {
        (from_toml(&text), Form::Toml)
    } else {
        let format = format_of(path, &text);
        (decode::parse(&text, format), Form::Plain(format))
    };
    match value {
        Ok(value) => {
            Ok(Document { value, sources: Sources::of(text, form), unread: UnreadableGraphs::default() })
        }
        Err(problems) => Err(FileError::Wrong(Mistakes::of_syntax(problems))),
    }
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

fn from_toml(text: &[u8]) -> Result<Value, Problems> {
    let wrong = |what: String| Problems::one("", what, None);
    let text = str::from_utf8(text).map_err(|error| wrong(format!("not valid UTF-8: {error}")))?;
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        // This message leaves out the source excerpt that `Display` draws, which would not fit in a
        // list.
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        wrong(format!("not valid TOML: {} at line {line}", error.message()))
    })?;
    plain("", toml::Value::Table(table))
}

/// Converts a TOML value to JSON. JSON has no dates and no infinite numbers: dates become texts,
/// infinite numbers are rejected.
fn plain(at: &str, value: toml::Value) -> Result<Value, Problems> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => serde_json::Number::from_f64(number)
            .ok_or_else(|| {
                Problems::one(at, format!("{number} is not allowed: numbers must be finite"), None)
            })?
            .into(),
        toml::Value::Boolean(truth) => truth.into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(items) => {
            let items = items.into_iter().enumerate();
            items
                .map(|(index, item)| plain(&format!("{at}[{index}]"), item))
                .collect::<Result<Vec<_>, _>>()?
                .into()
        }
        toml::Value::Table(table) => {
            let dot = if at.is_empty() { "" } else { "." };
            let fields = table.into_iter().map(|(key, value)| {
                let value = plain(&format!("{at}{dot}{key}"), value)?;
                Ok((key, value))
            });
            Value::Object(fields.collect::<Result<_, Problems>>()?)
        }
    })
}

fn format_of(path: &Path, text: &[u8]) -> Format {
    let json = path.extension().is_some_and(|extension| extension == "json") || text.starts_with(b"{");
    if json { Format::Json } else { Format::Yaml }
}

pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    // Reads one byte more than allowed, to distinguish a longer file from one that just fits.
    let most = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX) + 1;
    if path == "-" {
        std::io::stdin().take(most).read_to_end(&mut text).context("could not read stdin")?;
    } else {
        let file = std::fs::File::open(path).with_context(|| format!("could not open {}", path.display()))?;
        file.take(most)
            .read_to_end(&mut text)
            .with_context(|| format!("could not read {}", path.display()))?;
    }
    if text.len() > MAX_MESSAGE_BYTES {
        bail!("{} is larger than the limit of {} MiB", path.display(), MAX_MESSAGE_BYTES >> 20);
    }
    if text.trim_ascii().is_empty() {
        bail!("{} is empty\n\nhint: examples/ has files to start from", path.display());
    }
    Ok(text)
}
