//! `trellis graphs plan`: the highest possible and the expected cost of a graph, before it runs.

use std::{collections::BTreeMap, path::PathBuf};

use domain::{
    AgentId, ChildId, StepId, StepPath, Usd,
    graph::{
        CriticalPath, EarlierRun, Estimate, EstimateInputs, ExpectedCost, StepEstimate, StepKind, Synthesis,
    },
};
use serde_json::json;

use crate::{
    cluster::connect::Servers,
    input::{inputs::Inputs, parse, profiles},
    terminal::{
        ending::Ending,
        output::{self, Output},
        table,
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis graphs plan examples/research.yaml
  trellis graphs plan g.yaml --max-cost-usd 2    exit code 3 if the worst case does not fit
  trellis graphs plan g.yaml --items 20          lists of unknown length have 20 elements
  NATS_URL=nats://… trellis graphs plan g.yaml --runs 10    expect the cost of the last 10 runs

Without a server, no earlier runs are known, and agent names are checked against --agents only. With
`trellis submit --must-fit`, the server refuses a graph whose worst case does not fit.
";

/// Show the highest possible cost of a graph, its expected cost, and its critical path.
///
/// The worst case is made from the ceilings of the steps, with items, rounds and fallbacks; retries stay within a ceiling, and the budget
/// of the graph bounds the whole. The expected cost is made from earlier runs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A JSON, YAML or TOML file; `-` is stdin.
    file: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
    /// The budget for the worst case, in dollars; by default, the graph's max_cost_usd.
    #[arg(long, alias = "budget", value_name = "USD", value_parser = parse::usd, allow_hyphen_values = true)]
    max_cost_usd: Option<Usd>,
    /// The number of earlier runs of the same graph for the expected cost.
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
    /// The length of lists whose length is only known in the run.
    #[arg(long, value_name = "N")]
    items: Option<u32>,
    /// Agent profiles, whose max_cost_usd bound their steps; by default, `agents.yaml` in the directory of the file.
    ///
    /// A graph must not name an agent that neither the named file nor the server has.
    #[arg(long, value_name = "FILE")]
    agents: Option<PathBuf>,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let read = args.inputs.graph(&args.file, args.agents.as_deref(), servers, output).await?;
    let (definition, plan) = match read {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    let ceilings = match ceilings(&args) {
        Ok(ceilings) => ceilings,
        Err(ending) => return Ok(ending),
    };
    let inputs = definition.filled_inputs();
    let known = EstimateInputs { inputs: &inputs, profiles: &ceilings, items: args.items };
    let estimate = Estimate::of(&plan, &known);
    let root = definition
        .child_id
        .clone()
        .map_or_else(|| ChildId::new(definition.name.as_ref().map_or("graph", StepId::as_str)), Ok)?;
    let earlier = if args.runs == 0 { Vec::new() } else { learn(servers, &root, args.runs).await? };
    let expected = ExpectedCost::of_steps(&earlier);
    let times = expected.iter().map(|(step, of)| (step.clone(), of.mean_ms)).collect();
    let planned = PlanReport {
        needs: estimate.needs(definition.closing_reserve_usd.unwrap_or_default()),
        budget: args.max_cost_usd.or(definition.max_cost_usd),
        whole: ExpectedCost::of(earlier.iter().map(|run| run.whole)),
        path: CriticalPath::of(&plan, &times),
        estimate,
        expected,
    };
    match output {
        Output::Text => output::print(&planned.shown())?,
        Output::Json => output::print_json(&json!({
            "steps": planned.estimate.steps, "synthesis": planned.estimate.synthesis, "worst": planned.estimate.worst,
            "needs": planned.needs, "unbounded": planned.estimate.unbounded(), "budget": planned.budget,
            "fits": planned.fits(), "bound": planned.bound(), "expected": planned.whole,
            "expected_steps": planned.expected, "critical_path": planned.path,
        }))?,
    }
    let asked_and_not = args.max_cost_usd.is_some() && planned.fits() != Some(true);
    Ok(if asked_and_not { Ending::Refused } else { Ending::Completed })
}

/// The cost ceilings in the agents' profiles.
fn ceilings(args: &Args) -> Result<BTreeMap<AgentId, Usd>, Ending> {
    let Some(path) = args.agents.clone().or_else(|| profiles::beside(&args.file)) else {
        return Ok(BTreeMap::new());
    };
    let agents = profiles::read(&path).map_err(|unusable| profiles::explain(&unusable, &path))?;
    Ok(agents.into_iter().filter_map(|agent| Some((agent.agent_id, agent.max_cost_usd?))).collect())
}

/// Earlier runs of the graph, if a cluster is named.
async fn learn(servers: &Servers, root: &ChildId, most: usize) -> anyhow::Result<Vec<EarlierRun>> {
    if !servers.has_cluster() {
        return Ok(Vec::new());
    }
    let client = servers.cluster().await?;
    client.earlier_runs(root, most).await?.map_err(|refusal| client::Error::refused(refusal).into())
}

struct PlanReport {
    estimate: Estimate,
    needs: Option<Usd>,
    budget: Option<Usd>,
    whole: Option<ExpectedCost>,
    expected: BTreeMap<StepPath, ExpectedCost>,
    path: CriticalPath,
}

impl PlanReport {
    /// True if the worst case fits the budget; `None` without a budget.
    fn fits(&self) -> Option<bool> {
        let budget = self.budget?;
        Some(self.needs.is_some_and(|needs| needs <= budget))
    }

    /// The most that the run can cost: the lower of the worst case and the budget.
    fn bound(&self) -> Option<Usd> {
        self.needs.into_iter().chain(self.budget).min()
    }

    fn shown(&self) -> String {
        let mut rows = Vec::new();
        self.rows(&self.estimate.steps, self.estimate.synthesis.as_ref(), 0, &mut rows);
        let mut text =
            table::show(["STEP", "AGENT", "RUNS", "EACH AT MOST", "WORST", "EXPECTED", "CRITICAL"], &rows);
        text.push_str(&format!("\nworst case     {}\n", self.worst()));
        let budget = match (self.budget, self.fits()) {
            (Some(budget), Some(true)) => format!("{budget}: the worst case fits"),
            (Some(budget), _) => {
                format!("{budget}: the worst case does not fit; the run is stopped at the budget")
            }
            (None, _) => "none is named: give --max-cost-usd, or max_cost_usd in the graph".into(),
        };
        text.push_str(&format!("budget         {budget}\n"));
        let expected = self.whole.map_or("no earlier runs".into(), |of| {
            let runs = if of.runs == 1 { "run" } else { "runs" };
            let spread = format!("{} to {} in {} {runs}", of.least, of.most, of.runs);
            format!("{} ({spread}), {}", of.mean, time(of.mean_ms))
        });
        text.push_str(&format!("expected       {expected}\n"));
        let steps: Vec<&str> = self.path.steps.iter().map(StepPath::as_str).collect();
        let by =
            self.path.expected_ms.map_or("by the number of steps".into(), |ms| format!("about {}", time(ms)));
        text.push_str(&format!("critical path  {} ({by})\n", steps.join(" → ")));
        text
    }

    fn worst(&self) -> String {
        match (self.needs, self.budget) {
            (Some(needs), Some(budget)) if needs > budget => {
                format!("{needs} for all steps; the budget stops the run at {budget}")
            }
            (Some(needs), _) => needs.to_string(),
            (None, budget) => {
                let bound = budget
                    .map_or("not bounded".into(), |budget| format!("bounded only by the budget of {budget}"));
                format!("{bound}: {}", self.estimate.unbounded().join("; "))
            }
        }
    }

    fn rows(
        &self,
        steps: &[StepEstimate],
        synthesis: Option<&Synthesis>,
        depth: usize,
        rows: &mut Vec<[String; 7]>,
    ) {
        let indent = "  ".repeat(depth);
        let usd =
            |amount: Option<Usd>| amount.map_or_else(|| "no own limit".into(), |amount| amount.to_string());
        for step in steps {
            let runs = match (step.runs, &step.repeats) {
                (Some(1), None) => "1".to_owned(),
                (runs, why) => {
                    let runs = runs.map_or_else(|| "?".into(), |runs| runs.to_string());
                    why.as_ref().map_or(runs.clone(), |why| format!("{runs}, {why}"))
                }
            };
            let fallback = if step.has_fallback { " + fallback" } else { "" };
            let undo = if step.undo.is_some() { " + undo" } else { "" };
            let expected = self.expected.get(&step.path).map_or_else(String::new, |of| {
                format!("{} ({} to {}), {}", of.mean, of.least, of.most, time(of.mean_ms))
            });
            rows.push([
                format!("{indent}{}", step.id),
                step.agent_id.as_ref().map_or_else(|| kind(step.kind).into(), ToString::to_string),
                format!("{runs}{fallback}{undo}"),
                usd(step.each),
                usd(step.worst),
                expected,
                if self.path.steps.contains(&step.path) { "*".into() } else { String::new() },
            ]);
            self.rows(&step.steps, step.synthesis.as_ref(), depth + 1, rows);
        }
        if let Some(Synthesis { agent_id, worst }) = synthesis {
            let none = String::new;
            rows.push([
                format!("{indent}(synthesis)"),
                agent_id.to_string(),
                "1".into(),
                usd(*worst),
                usd(*worst),
                none(),
                none(),
            ]);
        }
    }
}

/// The label of a step that runs no agent.
fn kind(kind: StepKind) -> &'static str {
    match kind {
        StepKind::Agent => "",
        StepKind::Group => "(group)",
        StepKind::Graph => "(graph)",
        StepKind::Approve => "(approve)",
    }
}

fn time(ms: u64) -> String {
    if ms < 10_000 { format!("{ms} ms") } else { format!("{} s", ms / 1000) }
}
