//! `trellis graphs`: checks, plans and rehearses graphs, amends a running one, and stores graphs on a
//! cluster under names (G18).

use std::path::{Path, PathBuf};

use anyhow::Context;
use domain::{
    GraphName, Problems,
    graph::{self, Reference},
    wire::{GraphShown, GraphSummary, Query, QueryAnswer},
};
use serde_json::{Value, json};

use crate::{
    cluster::connect::Servers,
    command::{amend, check, plan, rehearse},
    input::{
        context_ref::{RunRef, WrittenRef},
        document::{Document, FileError},
        use_files::read_as_far,
    },
    terminal::{
        ending::Ending,
        output::{self, Output},
        table,
    },
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    #[command(alias = "validate")]
    Check(check::Args),
    Plan(plan::Args),
    Rehearse(rehearse::Args),
    Amend(amend::Args),
    /// Store a graph under a name, for `use: NAME` or `use: NAME@VERSION` in steps of other graphs.
    ///
    /// A changed graph gets the next version; an unchanged one keeps its version. Files that it uses become part of it, and names that
    /// it uses are fixed to their current versions. Existing runs keep the graph that they began with.
    #[command(after_help = "Examples:
  trellis graphs apply examples/facts.yaml
  trellis graphs apply examples/facts.yaml --name short-facts")]
    Apply {
        /// A task graph: YAML, JSON or TOML; `-` is stdin.
        file: PathBuf,
        /// Its name; by default, the graph's `name`, or the name of the file.
        #[arg(long)]
        name: Option<GraphName>,
    },
    /// List the stored graphs by name.
    List,
    /// Show a stored graph, in a form that can be applied again.
    ///
    /// With the id of a run instead, this is `trellis runs graph`, unless a stored graph has that name.
    #[command(after_help = "Examples:
  trellis graphs show facts
  trellis graphs show facts@2 | trellis graphs apply - --name facts      (back to version 2, as a new version)")]
    Show {
        /// Its name, with a version if not the latest; the last 64 versions are stored.
        #[arg(value_name = "NAME[@VERSION]", value_parser = shown)]
        name: Shown,
    },
    /// Delete a stored graph with all its versions.
    ///
    /// Existing runs keep the graph that they began with.
    #[command(after_help = "Examples:\n  trellis graphs delete facts")]
    Delete {
        name: GraphName,
    },
}

/// The argument of `graphs show`: a stored graph or, as `runs graph` took before, a run.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    stored: Option<(GraphName, Option<u64>)>,
    run: Option<WrittenRef>,
}

fn shown(text: &str) -> Result<Shown, String> {
    let stored = match Reference::new(text) {
        Reference::Kept(name, version) => Some((name, version)),
        Reference::File | Reference::Neither => None,
    };
    let run: Option<WrittenRef> = text.parse().ok();
    // A complete id, `@last` and `TRACE/CHILD` can only be a run.
    let is_run = run.as_ref().is_some_and(|named| !matches!(named.run, RunRef::Prefix(_)));
    let stored = stored.filter(|_| !is_run);
    if stored.is_none() && run.is_none() {
        return Err("write a name, or a name and a version, such as facts or facts@2".into());
    }
    Ok(Shown { stored, run })
}

pub(crate) async fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let (query, sources) = match command {
        Command::Check(args) => return check::run(args, servers, output).await,
        Command::Plan(args) => return plan::run(args, servers, output).await,
        Command::Rehearse(args) => return rehearse::run(&args, servers, output).await,
        Command::Amend(args) => return amend::run(args, servers, output).await,
        Command::Apply { file, name } => match read(&file, name) {
            Ok((name, Document { value, sources, .. })) => {
                (Query::PutGraph { name, graph: value.into() }, sources)
            }
            Err(unusable) => return unusable.report(&file, output),
        },
        Command::List => return list(servers, output).await,
        Command::Show { name } => return show(name, servers, output).await,
        Command::Delete { name } => (Query::DeleteGraph { name }, Default::default()),
    };
    let client = servers.cluster().await?;
    // Each query may be sent twice, because a coordinator may die before its answer. Repeating it
    // changes nothing.
    match client.query(&query).await? {
        Ok(QueryAnswer::GraphKept { name, version, unchanged }) => {
            match output {
                Output::Json => {
                    output::print_json(&json!({"name": name, "version": version, "unchanged": unchanged}))?;
                }
                Output::Text => {
                    let unchanged = if unchanged { "unchanged, " } else { "" };
                    output::print(&format!("{name}: {unchanged}version {version}\n"))?;
                }
            }
            Ok(Ending::Completed)
        }
        Ok(QueryAnswer::GraphDeleted { name, at }) => {
            match output {
                Output::Json => output::print_json(&json!({"deleted": name, "at": at}))?,
                Output::Text => output::print(&format!("{name}: deleted at {at}\n"))?,
            }
            Ok(Ending::Completed)
        }
        Err(refusal) => output::refuse(&sources.locate(refusal), output),
        Ok(other) => Err(client::Error::other_answer(other).into()),
    }
}

/// Reads a graph and its name, and checks all that needs no cluster.
fn read(file: &Path, name: Option<GraphName>) -> Result<(GraphName, Document), FileError> {
    let document = read_as_far(file)?;
    let mut checked = document.value.clone();
    let mut problems = graph::put_stand_ins(&mut checked);
    if let Err(more) = graph::read_to_keep(checked) {
        problems.extend(more);
    }
    let stem = || Some(file.file_stem()?.to_str()?.to_owned()).filter(|stem| stem != "-");
    let said = document.value.get("name").and_then(Value::as_str).map(str::to_owned).or_else(stem);
    let name = name.or_else(|| GraphName::new(&said?).ok());
    if name.is_none() {
        let hint = "give one with --name, or write `name:` into the graph";
        problems.extend(Problems::one("name", "the graph has no name", Some(hint.into())));
    }
    let name = document.checked(problems.or(name))?;
    match name {
        Some(name) => Ok((name, document)),
        None => Err(document.wrong(Problems::default())),
    }
}

/// Shows the stored graph of a name, or else the graph of a run.
async fn show(named: Shown, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    let Some((name, version)) = named.stored else {
        let run = named.run.context("neither a graph nor a run is named")?;
        return amend::show(&client, &run, output).await;
    };
    match client.query(&Query::Graph { name, version }).await? {
        Ok(QueryAnswer::Graph(found)) => print_graph(&found, output),
        // The name is the mistake: no graph has it.
        Err(refusal) if refusal.problems.iter().any(|problem| problem.path == "name") => match named.run {
            Some(run) => amend::show(&client, &run, output).await,
            None => output::refuse(&refusal, output),
        },
        Err(refusal) => output::refuse(&refusal, output),
        Ok(other) => Err(client::Error::other_answer(other).into()),
    }
}

/// Prints a graph as a file to stdout, and its versions to stderr.
fn print_graph(found: &GraphShown, output: Output) -> anyhow::Result<Ending> {
    match output {
        Output::Json => output::print_json(&json!(found))?,
        Output::Text => {
            let GraphShown { summary, versions, graph } = found;
            let kept: Vec<String> = versions.iter().map(ToString::to_string).collect();
            let needs = match summary.needs.as_slice() {
                [] => String::new(),
                needs => format!("; required inputs: {}", needs.join(", ")),
            };
            let GraphSummary { name, version, at, .. } = summary;
            output::note(&format!(
                "{name}: version {version}, stored since {at}; stored versions: {}{needs}",
                kept.join(" ")
            ));
            output::print_json(graph.value())?;
        }
    }
    Ok(Ending::Completed)
}

async fn list(servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    let page = |answer| {
        let QueryAnswer::Graphs { graphs, next } = answer else {
            return Err(client::Error::other_answer(answer));
        };
        Ok((graphs, next))
    };
    let asked = client.all_pages(|after, limit| Query::Graphs { after, limit }, page).await?;
    let all = match asked {
        Ok(all) => all,
        Err(refusal) => return output::refuse(&refusal, output),
    };
    if output == Output::Json {
        output::print_json(&json!(all))?;
        return Ok(Ending::Completed);
    }
    if all.is_empty() {
        output::note(
            "no graphs are stored yet\n\nhint: `trellis graphs apply examples/facts.yaml` stores one",
        );
        return Ok(Ending::Completed);
    }
    if output::is_quiet() {
        output::print_ids(all.iter().map(|graph| &graph.name))?;
        return Ok(Ending::Completed);
    }
    let row = |graph: &GraphSummary| {
        [
            graph.name.to_string(),
            graph.version.to_string(),
            graph.at.to_string(),
            graph.needs.join(", "),
            graph.uses.join(", "),
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    output::print(&table::show(["GRAPH", "VERSION", "SINCE", "NEEDS", "USES"], &rows))?;
    Ok(Ending::Completed)
}
