//! `trellis outputs`: the output files of a context, from the object store. The journal names them
//! and is not trusted: checksums are compared, and no file is written outside the directory that
//! the user named.

use std::{
    io::Write,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, bail};
use cap_std::{ambient_authority, fs::Dir};
use client::{Client, Content};
use domain::{
    ChildId,
    wire::{HistoryEntry, OutputFile},
    wording::count,
};
use serde_json::json;
use trace::Trace;

use crate::{
    cluster::connect::Servers,
    input::context_ref::ContextRef,
    terminal::{
        display,
        ending::Ending,
        output::{self, Output},
        table,
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis outputs 0af765/writer                     list the files
  trellis outputs 0af765/writer --get report.md     print one file to stdout
  trellis outputs 0af765/writer --save results      save all files in a directory
";

/// List, print or save the files that a context left in its `outputs/`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    context: ContextRef,
    /// Write this file to stdout.
    #[arg(long, value_name = "PATH", conflicts_with = "save")]
    get: Option<String>,
    /// Write all files into this directory. Existing files are not overwritten.
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    let (trace, child) = args.context.find(&client).await?;
    let entries = client.journal(trace, &child).await?;
    let Some(files) = left(&entries) else {
        output::error(&why_none(&client.replay(trace).await?, &child));
        return Ok(Ending::Refused);
    };
    if let Some(path) = &args.get {
        let Some(file) = files.iter().find(|file| file.path == *path) else {
            let known = files.iter().map(|file| file.path.as_str());
            let hint = display::did_you_mean(path, known, "without --get, all files are listed");
            output::error(&format!("`{child}` left no file `{}`\n\nhint: {hint}", display::flat(path)));
            return Ok(Ending::Refused);
        };
        let bytes = fetch(&client, file).await?;
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&bytes).and_then(|()| stdout.flush()).context("could not write the output")?;
        return Ok(Ending::Completed);
    }
    if let Some(directory) = &args.save {
        save(&client, files, directory).await?;
        output::note(&format!("{} saved in {}", count(files.len(), "file"), directory.display()));
        return Ok(Ending::Completed);
    }
    list(files, output)
}

/// The files in the last result; `None` if the context has not ended.
fn left(entries: &[HistoryEntry]) -> Option<&[OutputFile]> {
    entries.iter().rev().find_map(|entry| Some(entry.step.as_result()?.outputs.as_slice()))
}

fn why_none(trace: &Trace, child: &ChildId) -> String {
    match trace.context(child).filter(|node| !node.is_live()) {
        None => format!("`{child}` has not ended yet: its files are collected when it ends"),
        Some(node) => format!(
            "`{child}` ended as {}, and its files were not collected\n\nhint: files are collected when an agent ends by \
             itself, not when it is stopped; `trellis history` shows what it wrote with `fs.write`",
            trace.word(node)
        ),
    }
}

fn list(files: &[OutputFile], output: Output) -> anyhow::Result<Ending> {
    match output {
        Output::Json => output::print_json(&json!(files))?,
        Output::Text if files.is_empty() => output::note("the context left no files"),
        Output::Text => {
            let row = |file: &OutputFile| [file.object.size_bytes.to_string(), display::flat(&file.path)];
            output::print(&table::show(["BYTES", "PATH"], &files.iter().map(row).collect::<Vec<_>>()))?;
        }
    }
    Ok(Ending::Completed)
}

async fn fetch(client: &Client, file: &OutputFile) -> anyhow::Result<bytes::Bytes> {
    let path = display::flat(&file.path);
    match client.content(&file.object).await? {
        Content::Stored(bytes) => Ok(bytes),
        Content::Expired => {
            bail!("`{path}` is no longer stored\n\nhint: files are kept for a limited time")
        }
        Content::Altered => bail!("`{path}` is not the file that the agent left: its checksum differs"),
    }
}

/// Saves the files. All paths are checked before the first file is written.
async fn save(client: &Client, files: &[OutputFile], directory: &Path) -> anyhow::Result<()> {
    for file in files {
        let plain = Path::new(&file.path).components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || file.path.is_empty() {
            bail!("{:?} is not a path below a directory: nothing was written", file.path);
        }
    }
    let name = directory.display();
    std::fs::create_dir_all(directory).with_context(|| format!("could not create {name}"))?;
    let within = Dir::open_ambient_dir(directory, ambient_authority())
        .with_context(|| format!("could not open {name}"))?;
    for file in files {
        let bytes = fetch(client, file).await?;
        let path = Path::new(&file.path);
        let written = path.parent().map_or(Ok(()), |parent| within.create_dir_all(parent)).and_then(|()| {
            let options = cap_std::fs::OpenOptions::new().write(true).create_new(true).clone();
            within.open_with(path, &options)?.write_all(&bytes)
        });
        written.with_context(|| format!("could not write {}", directory.join(path).display()))?;
    }
    Ok(())
}
