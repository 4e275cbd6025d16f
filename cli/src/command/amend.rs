//! `trellis runs graph` and `trellis graphs amend`: prints the definition of a running graph, and
//! changes its pending steps.

use std::path::{Path, PathBuf};

use anyhow::Context;
use client::Client;
use domain::{
    CallId, ChildId, Problems, StepPath, decode,
    graph::{StepDef, TaskGraph},
    wire::{Amend, Query, QueryAnswer, StepReport, StepStatus, Text},
};
use serde_json::{Value, json};
use trace::Trace;
use uuid::Uuid;

use crate::{
    cluster::connect::Servers,
    input::{
        context_ref::WrittenRef,
        document::{Document, FileError},
        parse,
        sources::{Sources, join},
        use_files::read_with_graphs,
    },
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis runs graph 0af765 > graph.json        the graph as it is now; edit its steps, then
  trellis graphs amend 0af765 graph.json
  trellis graphs amend 0af765 --remove review --add check.yaml
";

/// Print the definition of a running graph, for an amend.
///
/// It has every step with its id, and a note lists the steps that have not begun.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The run, for the graph of its root. `TRACE/CHILD` is the graph of another context.
    #[arg(value_name = "TRACE[/CHILD]")]
    pub(crate) context: WrittenRef,
}

/// Replace, add or remove steps of a running graph that have not begun.
///
/// FILE is the whole new definition: the output of `runs graph` with other steps. Steps that have begun, ended or been skipped, and
/// the fields of the graph itself, must be unchanged. The amend is refused, without any change, if another amend came after FILE was
/// printed, or if a changed step has begun meanwhile. The options change the current definition instead of replacing it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run, for the graph of its root. `TRACE/CHILD` is the graph of another context.
    #[arg(value_name = "TRACE[/CHILD]")]
    context: WrittenRef,
    /// The definition: JSON, YAML or TOML; `-` is stdin.
    #[arg(required_unless_present_any = ["remove", "add", "replace"], conflicts_with_all = ["remove", "add", "replace"])]
    file: Option<PathBuf>,
    /// Remove this step; may be given more than once.
    ///
    /// `outer/inner` is a step of the graph that the step `outer` uses.
    #[arg(long, value_name = "STEP")]
    remove: Vec<StepPath>,
    /// Append the step or steps of a file; may be given more than once.
    #[arg(long, value_name = "FILE")]
    add: Vec<PathBuf>,
    /// Replace steps by those of a file with the same ids; may be given more than once.
    #[arg(long, value_name = "FILE")]
    replace: Vec<PathBuf>,
    /// The name of the sender, for the event.
    #[arg(long, value_name = "NAME", value_parser = parse::text)]
    by: Option<Text>,
    /// The id of the amend: a repetition with the same id is the same amend.
    #[arg(long, value_name = "ID")]
    id: Option<CallId>,
}

pub(crate) async fn show(client: &Client, named: &WrittenRef, output: Output) -> anyhow::Result<Ending> {
    let (trace_id, child) = named.context(client).await?;
    let trace = client.replay(trace_id).await?;
    let (now, pending) = current(&trace, child.as_ref())?;
    if output == Output::Text {
        output::note(&format!("steps that have not begun: {}", names(&pending)));
    }
    output::print_json(&json!({"revision": now.revision, "graph": now.graph}))?;
    Ok(Ending::Completed)
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    let (trace_id, child_id) = args.context.context(&client).await?;
    let trace = client.replay(trace_id).await?;
    let (now, _) = current(&trace, child_id.as_ref())?;
    let revision = now.revision;
    let (path, made) = match &args.file {
        Some(path) => (path.as_path(), from_file(path, now.revision)),
        None => (
            Path::new("the amended definition"),
            edited(&args, now).map(|graph| Made { revision, graph, sources: Sources::default() }),
        ),
    };
    let made = match made {
        Ok(made) => made,
        Err(unusable) => return unusable.report(path, output),
    };
    let id = args.id.map_or_else(|| Uuid::now_v7().simple().to_string().parse(), Ok)?;
    let Made { revision, graph, sources } = made;
    let amend = Box::new(Amend { child_id, id, revision, graph, by: args.by });
    match client.query(&Query::Amend { trace_id, amend }).await? {
        Ok(QueryAnswer::Amended { child_id, revision }) => {
            match output {
                Output::Json => output::print_json(&json!({"child_id": child_id, "revision": revision}))?,
                Output::Text => {
                    output::print(&format!("`{child_id}` continues as amended, revision {revision}\n"))?
                }
            }
            Ok(Ending::Completed)
        }
        Err(refusal) => output::refuse_with(&sources.locate(refusal), hint, output),
        Ok(other) => Err(client::Error::other_answer(other).into()),
    }
}

/// A definition, and the revision of the graph that it is based on.
struct Made {
    revision: u32,
    graph: TaskGraph,
    /// The text of the file, to show the lines of mistakes.
    sources: Sources,
}

/// The current graph, and its steps that have not begun.
fn current(trace: &Trace, child: Option<&ChildId>) -> anyhow::Result<(Made, Vec<StepPath>)> {
    let child = match child {
        Some(child) => child,
        None => &trace.root().context("the run has no root")?.id,
    };
    let (node, revision, graph) = trace.definition_of(child).with_context(|| {
        format!("`{child}` runs no graph\n\nhint: `trellis runs show` lists the contexts of a run")
    })?;
    let mut pending = Vec::new();
    let steps = trace.graph_outcome(node).map(|outcome| outcome.steps).unwrap_or_default();
    collect_pending(&steps, &graph.steps, None, &mut pending);
    Ok((Made { revision, graph, sources: Sources::default() }, pending))
}

/// Collects the pending steps. `outer` is the step whose graph contains `steps`.
fn collect_pending(
    steps: &[StepReport],
    definitions: &[StepDef],
    outer: Option<&StepPath>,
    found: &mut Vec<StepPath>,
) {
    for step in steps {
        let path = StepPath::of(outer, &step.id);
        if step.status == StepStatus::Pending {
            found.push(path.clone());
        }
        let definition = definitions.iter().find(|of| of.id.as_ref() == Some(&step.id));
        match definition.and_then(|of| of.graph.as_ref()) {
            Some(graph) => collect_pending(&step.steps, &graph.steps, Some(&path), found),
            None => {
                let inner = definition.map(|of| of.steps.as_slice()).unwrap_or_default();
                collect_pending(&step.steps, inner, outer, found);
            }
        }
    }
}

fn names(steps: &[StepPath]) -> String {
    let names: Vec<&str> = steps.iter().map(StepPath::as_str).collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Reads a definition: the output of `runs graph`, or a graph alone, which is taken to be based on
/// the current revision.
fn from_file(path: &Path, revision: u32) -> Result<Made, FileError> {
    let document = read_with_graphs(path)?;
    let shown = document.value.get("graph").and(document.value.get("revision")).and_then(Value::as_u64);
    let (document, revision) = match shown {
        Some(revision) => (document.part("graph"), u32::try_from(revision).unwrap_or(u32::MAX)),
        None => (document, revision),
    };
    let graph = document.graph_to_send()?;
    Ok(Made { revision, graph, sources: document.sources })
}

/// The current graph with the changes of the options.
fn edited(args: &Args, now: Made) -> Result<TaskGraph, FileError> {
    let mut graph = now.graph;
    let mut problems = Problems::default();
    for id in &args.remove {
        if !put(&mut graph.steps, id.as_str(), None) {
            problems.add("--remove", format!("there is no step `{id}`"), None);
        }
    }
    for path in &args.replace {
        for step in steps(path)? {
            let replaced =
                step.id.clone().is_some_and(|id| put(&mut graph.steps, id.as_str(), Some(step.clone())));
            if !replaced {
                let name = step.id.map_or("a step without an id".into(), |id| format!("`{id}`"));
                problems.add("--replace", format!("{}: {name} replaces no step", path.display()), None);
            }
        }
    }
    for path in &args.add {
        graph.steps.extend(steps(path)?);
    }
    problems.or(())?;
    Document::made(json!(graph)).graph_to_send()
}

/// Replaces or removes a step, also in a group. A name `outer/inner` is a step in the graph that
/// `outer` uses. Returns false if there is no such step.
fn put(steps: &mut Vec<StepDef>, name: &str, by: Option<StepDef>) -> bool {
    let (first, rest) = name.split_once('/').map_or((name, None), |(first, rest)| (first, Some(rest)));
    if let Some(place) = steps.iter().position(|step| step.id.as_ref().is_some_and(|id| id.as_str() == first))
    {
        match (rest, by) {
            (Some(rest), by) => {
                let step = &mut steps[place];
                let is_put = step.graph.as_mut().is_some_and(|graph| put(&mut graph.steps, rest, by));
                if is_put {
                    // The changed graph is no longer the stored version that the step names.
                    (step.uses, step.latest) = (None, false);
                }
                return is_put;
            }
            (None, Some(step)) => steps[place] = step,
            (None, None) => drop(steps.remove(place)),
        }
        return true;
    }
    steps.iter_mut().any(|step| put(&mut step.steps, name, by.clone()))
}

/// Reads one step, or a list of steps, from a file.
fn steps(path: &Path) -> Result<Vec<StepDef>, FileError> {
    let document = read_with_graphs(path).map_err(|unusable| unusable.in_file(path))?;
    let (at, steps) = match &document.value {
        Value::Array(steps) => ("", steps.clone()),
        Value::Object(fields) if fields.contains_key("steps") && !fields.contains_key("id") => {
            ("steps", fields["steps"].as_array().cloned().unwrap_or_default())
        }
        one @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            ("", vec![one.clone()])
        }
    };
    let is_list = at == "steps" || document.value.is_array();
    let mut problems = Problems::default();
    let mut read = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        match decode::value::<StepDef>(step) {
            Ok(step) => read.push(step),
            Err(wrong) => {
                for problem in wrong.iter() {
                    let place = if is_list { format!("{at}[{number}]") } else { String::new() };
                    problems.add(join(&place, &problem.path), &problem.message, problem.hint.clone());
                }
            }
        }
    }
    problems.or(read).map_err(|problems| document.wrong(problems).in_file(path))
}

fn hint(code: &str) -> Option<&'static str> {
    match code {
        "graph_moved" => Some("print it again with `trellis runs graph`, and make your changes to that"),
        "ended" => Some("`trellis submit` runs another graph"),
        "unknown_context" | "runs_no_graph" => Some("`trellis runs show` lists the contexts of a run"),
        "no_trace" => Some("`trellis runs list` shows the newest runs"),
        _ => None,
    }
}
