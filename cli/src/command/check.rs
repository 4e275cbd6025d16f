//! `trellis graphs check`: checks task graphs, and reports every mistake with its line.

use std::path::{Path, PathBuf};

use domain::{graph::Plan, wording::count};
use serde_json::{Value, json};

use crate::{
    cluster::connect::Servers,
    input::{inputs::Inputs, known_agents, names},
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
    },
};

/// Check graphs, and list every mistake in them with its line.
///
/// Inputs are checked against the graph's `input_schema` if the graph has inputs, or with --inputs or --input; otherwise at
/// submission. Agent names are checked against --agents, against `agents.yaml` in the directory of the graph, or against the
/// connected server; without any of them, at submission.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// JSON, YAML or TOML files; `-` is stdin.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    inputs: Inputs,
    /// Agent profiles, as for `run`: a graph must not name an agent that neither this file nor the server has.
    #[arg(long, value_name = "FILE")]
    agents: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    check(&args.files, &args.inputs, args.agents.as_deref(), servers, output).await
}

/// Checks every file, even after an invalid one.
async fn check(
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
                        needs => format!("; required inputs: {}", needs.join(", ")),
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
        output::note("agent names are not checked (give --agents, or NATS_URL)");
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
