//! Reads a file or stdin as JSON, YAML or TOML.

use std::{io::Read, path::Path};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use shared::{
    Problems,
    decode::{self, Format},
    graph::{self, Plan, TaskGraph},
    limits::MAX_MESSAGE_BYTES,
};

use crate::terminal::{
    ending::Ending,
    output::{self, Output},
};

/// Why a file can't be used.
pub(crate) enum Unusable {
    /// The file can't be read.
    Unreadable(anyhow::Error),
    /// Its content is not valid: all mistakes.
    Wrong(Problems),
}

pub(crate) fn read_graph(path: &Path) -> Result<(TaskGraph, Plan), Unusable> {
    let text = read(path).map_err(Unusable::Unreadable)?;
    if is_toml(path) {
        let value = from_toml(&text).map_err(Unusable::Wrong)?;
        return graph::read(value.to_string().as_bytes(), Format::Json).map_err(Unusable::Wrong);
    }
    graph::read(&text, format_of(path, &text)).map_err(Unusable::Wrong)
}

/// A file as a JSON value.
pub(crate) fn read_value(path: &Path) -> Result<Value, Unusable> {
    let text = read(path).map_err(Unusable::Unreadable)?;
    if is_toml(path) {
        return from_toml(&text).map_err(Unusable::Wrong);
    }
    decode::parse(&text, format_of(path, &text)).map_err(Unusable::Wrong)
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

fn from_toml(text: &[u8]) -> Result<Value, Problems> {
    let wrong = |what: String| Problems::one("", what, None);
    let text = str::from_utf8(text).map_err(|error| wrong(format!("not valid UTF-8: {error}")))?;
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        // The message without the source excerpt that `Display` draws: it would not fit in a list.
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        wrong(format!("not valid TOML: line {line}: {}", error.message()))
    })?;
    plain("", toml::Value::Table(table))
}

/// The value as JSON. JSON has no dates, which become texts, and no infinite numbers, which are refused.
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

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    // One byte more than allowed: a longer file differs from one that just fits.
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
        bail!("{} is empty\n\nhint: examples/ has task graphs to start from", path.display());
    }
    Ok(text)
}

impl Unusable {
    /// Prints the mistakes in a task graph to stderr; the ending of the command.
    pub(crate) fn explain(&self, path: &Path) -> Ending {
        self.explain_as(path, "a valid task graph")
    }

    /// As `explain`, for a file that should be `what`.
    pub(crate) fn explain_as(&self, path: &Path, what: &str) -> Ending {
        match self {
            Unusable::Unreadable(error) => {
                output::error(&format!("{error:#}"));
                Ending::Unreadable
            }
            Unusable::Wrong(problems) => {
                let name = path.display();
                output::error(&format!("{name} is not {what}\n\n{problems}"));
                Ending::Refused
            }
        }
    }

    /// The mistakes as JSON.
    pub(crate) fn to_json(&self, path: &Path) -> Value {
        let problems = match self {
            Unusable::Unreadable(error) => json!([{"path": "", "message": format!("{error:#}")}]),
            Unusable::Wrong(problems) => json!(problems.iter().collect::<Vec<_>>()),
        };
        json!({"file": path.display().to_string(), "ok": false, "problems": problems})
    }

    /// Prints the mistakes as text, and with `-o json` as JSON too.
    pub(crate) fn report(&self, path: &Path, output: Output) -> anyhow::Result<Ending> {
        if output == Output::Json {
            output::print_json(&self.to_json(path))?;
        }
        Ok(self.explain(path))
    }
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::Unreadable(error) => write!(f, "{error:#}"),
            Unusable::Wrong(problems) => write!(f, "{problems}"),
        }
    }
}
