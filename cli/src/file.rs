//! Reads a task graph from a file or from stdin, as JSON or YAML.

use std::{io::Read, path::Path};

use anyhow::{Context, bail};
use shared::{
    Problems,
    decode::Format,
    graph::{self, Plan, TaskGraph},
    limits::MAX_MESSAGE_BYTES,
};

/// The definition, or everything that is wrong with it.
pub(crate) fn read_graph(path: &Path) -> anyhow::Result<Result<(TaskGraph, Plan), Problems>> {
    let text = read(path)?;
    let json =
        path.extension().is_some_and(|extension| extension == "json") || text.trim_start().starts_with('{');
    Ok(graph::read(text.as_bytes(), if json { Format::Json } else { Format::Yaml }))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    // One byte more than is allowed tells a file that is too long from one that just fits.
    let most = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX) + 1;
    if path == "-" {
        std::io::stdin().take(most).read_to_string(&mut text).context("could not read stdin")?;
    } else {
        let file = std::fs::File::open(path).with_context(|| format!("could not open {}", path.display()))?;
        file.take(most)
            .read_to_string(&mut text)
            .with_context(|| format!("could not read {}", path.display()))?;
    }
    if text.trim().is_empty() {
        bail!("{} is empty\n\nhint: examples/ has task graphs to start from", path.display());
    }
    Ok(text)
}

/// Everything that is wrong with a file, on stderr.
pub(crate) fn explain(name: &str, problems: &Problems) {
    eprintln!("error: {name} is not a task graph that can run\n\n{problems}");
}
