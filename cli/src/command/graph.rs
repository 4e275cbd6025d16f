//! `trellis graph`: checks, plans or rehearses a task graph, and amends a running one.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use domain::{graph::Plan, wording::count};
use serde_json::{Value, json};

use crate::{
    cluster::connect::Servers,
    command::{amend, plan, rehearse, runtime},
    input::{inputs::Inputs, known_agents, names},
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
    },
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check graphs, and list every mistake in them, with its line.
    ///
    /// The inputs of a graph that has none, and whose `input_schema` asks for some, are checked when it is submitted, or here
    /// with --inputs or --input. Whether the agents that it names exist is checked with --agents, with `agents.yaml` in the folder of
    /// the graph, or where NATS_URL names a cluster; without any nobody knows.
    #[command(after_help = EXIT_CODES)]
    Validate {
        /// JSON or YAML files; `-` is stdin.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        inputs: Inputs,
        /// Agent profiles, as for `run`: an agent that neither they nor the cluster have is a mistake.
        #[arg(long, value_name = "FILE")]
        agents: Option<PathBuf>,
    },
    /// Play a graph through the real scheduler and budget, with no servers, models or money.
    ///
    /// Every agent answers with its task, at the cost given by --spend, at once: the simulated clock moves
    /// only while something waits. Order, skips, retries, limits and the outcome are decided by the code
    /// that runs in production. Which agents there are is checked with --agents, or where NATS_URL names a cluster.
    #[command(after_help = EXIT_CODES)]
    Rehearse(rehearse::Args),
    /// Show what a graph may cost at most, what it is expected to cost, and its critical path.
    ///
    /// The worst case comes from the ceilings of its steps: items, rounds and fallbacks count, retries stay within a
    /// ceiling, and the budget of the graph bounds all. What is expected comes from earlier runs.
    Plan(plan::Args),
    Show(amend::Show),
    Amend(amend::Args),
}

pub(crate) fn run(
    command: Command,
    servers: &Servers,
    output: Output,
    log_json: bool,
) -> anyhow::Result<Ending> {
    match command {
        Command::Validate { files, inputs, agents } => runtime::block_on(
            log_json,
            runtime::closing(servers, validate(&files, &inputs, agents.as_deref(), servers, output)),
        ),
        Command::Rehearse(args) => {
            runtime::block_on(log_json, runtime::closing(servers, rehearse::run(&args, servers, output)))
        }
        Command::Plan(args) => {
            runtime::block_on(log_json, runtime::closing(servers, plan::run(args, servers, output)))
        }
        Command::Show(args) => {
            runtime::block_on(log_json, runtime::closing(servers, amend::show(args, servers, output)))
        }
        Command::Amend(args) => {
            runtime::block_on(log_json, runtime::closing(servers, amend::run(args, servers, output)))
        }
    }
}

/// Checks every file, even after an invalid one.
async fn validate(
    files: &[PathBuf],
    inputs: &Inputs,
    agents: Option<&Path>,
    servers: &Servers,
    output: Output,
) -> anyhow::Result<Ending> {
    let mut worst = Ending::Completed;
    let mut found: Vec<Value> = Vec::new();
    let mut is_unknown = false;
    for path in files {
        let known = match known_agents::of_graph(path, agents, servers).await {
            Ok(known) => known,
            Err(ending) => return Ok(ending),
        };
        is_unknown |= known.is_none();
        let read = match inputs.document(path) {
            Ok(mut document) => {
                names::put(&mut document, servers).await?;
                known_agents::check(known.as_ref(), &mut document);
                document.graph_to_check()
            }
            Err(unusable) => Err(unusable),
        };
        match read {
            Ok((definition, plan)) => {
                let (steps, groups) = sizes(&plan);
                let needs = definition.needed_inputs();
                let name = path.display().to_string();
                if output == Output::Text {
                    let groups =
                        if groups == 0 { String::new() } else { format!(", {}", count(groups, "group")) };
                    let later = match needs.as_slice() {
                        [] => String::new(),
                        needs => format!("; inputs that it needs: {}", needs.join(", ")),
                    };
                    output::print(&format!("{name}: ok, {}{groups}{later}\n", count(steps, "step")))?;
                }
                let mut shown = json!({"file": name, "ok": true, "steps": steps, "groups": groups});
                if !needs.is_empty() {
                    shown["needs"] = json!(needs);
                }
                found.push(shown);
            }
            Err(unusable) => {
                found.push(unusable.to_json(path));
                let ending = unusable.explain(path);
                if worst != Ending::Refused {
                    worst = ending;
                }
            }
        }
    }
    // If a cluster was named but did not answer, a warning was printed already.
    let asked_nobody = is_unknown && !servers.has_cluster();
    if asked_nobody && found.iter().any(|shown| shown["ok"] == true) {
        output::note("not checked: whether the agents exist (give --agents, or NATS_URL)");
    }
    if output == Output::Json {
        output::print_json(&Value::Array(found))?;
    }
    Ok(worst)
}

/// The number of steps that run an agent, and the number of groups.
fn sizes(plan: &Plan) -> (usize, usize) {
    let groups = plan.groups().len() - 1;
    (plan.step_count() as usize - groups, groups)
}
