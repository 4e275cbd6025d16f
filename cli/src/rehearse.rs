//! `trellis graph rehearse`: plays a graph through the real core. The agents are played here: each
//! answers with what it was told to, or with its task.

use std::{collections::BTreeMap, path::PathBuf};

use coordinator::{
    rehearsal::{Played, Rehearsal},
    trace::{Order, Submit},
};
use serde_json::Value;
use shared::{
    AgentProfile, Amount, ChildId, Json, StepId, Timestamp, TraceId, Usd,
    graph::Plan,
    limits::Settings,
    wire::{EndStatus, Execute, Failure, FailureKind, Payload, Text, Verdict},
};

use crate::{
    Ending, Output,
    file::{explain, read_graph},
    tree,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A JSON or YAML file; `-` is stdin.
    file: PathBuf,
    /// What each attempt costs, in dollars.
    #[arg(long, value_name = "USD", default_value = "0.01", value_parser = parse_usd)]
    spend: Usd,
    /// A step (or one of its contexts) that fails; may be given more than once.
    #[arg(long, value_name = "STEP")]
    fail: Vec<StepId>,
    /// What a step answers, as JSON; without it, a step answers with its task.
    #[arg(long, value_name = "STEP=JSON", value_parser = parse_result)]
    result: Vec<(StepId, Value)>,
    /// Show every event as well.
    #[arg(long)]
    events: bool,
}

fn parse_usd(text: &str) -> Result<Usd, String> {
    text.parse().map_err(|error: shared::money::Error| error.to_string())
}

fn parse_result(text: &str) -> Result<(StepId, Value), String> {
    let (step, json) =
        text.split_once('=').ok_or("write it as step=json, such as review='{\"good\": true}'")?;
    let step = step.parse().map_err(|error: shared::id::Error| error.to_string())?;
    let value = serde_json::from_str(json).map_err(|error| format!("{json:?} is not JSON: {error}"))?;
    Ok((step, value))
}

pub(crate) fn run(args: &Args, output: Output) -> anyhow::Result<Ending> {
    let (definition, plan) = match read_graph(&args.file)? {
        Ok(read) => read,
        Err(problems) => {
            explain(&args.file.display().to_string(), &problems);
            return Ok(Ending::Refused);
        }
    };
    check_names(args, &plan)?;
    let name = definition.name.as_ref().map_or("graph", StepId::as_str);
    let (order, plan) = Order::from_graph(&definition, &ChildId::new(name)?)?;
    let agents = plan.agents().map(|(agent, _)| AgentProfile::builtin(agent.clone(), "echo")).collect();
    let submit = Submit { order, plan: Some(plan), agents, settings: Settings::default() };
    let trace_id = definition.trace_id.or(TraceId::from_u128(1)).expect("one is not zero");
    let mut rehearsal = match Rehearsal::begin(trace_id, submit, Timestamp::from_millis(0)) {
        Ok(begun) => begun,
        Err(refusal) => {
            let (code, rule) = refusal.code();
            eprintln!("error: refused ({code}, rule {rule}): {refusal}");
            return Ok(Ending::Refused);
        }
    };
    let cast = Cast { spend: args.spend, fail: &args.fail, results: args.result.iter().cloned().collect() };
    rehearsal.play(|work| cast.play(work), |_| Text::new("yes").ok());
    match output {
        Output::Text => print!("{}", tree::show(&rehearsal, args.events)),
        Output::Json => {
            println!("{}", serde_json::to_string_pretty(&tree::as_json(&rehearsal, args.events)?)?)
        }
    }
    Ok(ending(&rehearsal))
}

/// A `--fail` or `--result` for a step that is not there would silently do nothing.
fn check_names(args: &Args, plan: &Plan) -> anyhow::Result<()> {
    let known: Vec<&str> =
        plan.groups().iter().flat_map(|group| &group.steps).map(|step| step.id.as_str()).collect();
    let mut named = args.fail.iter().chain(args.result.iter().map(|(step, _)| step));
    let Some(step) = named.find(|step| !known.iter().any(|known| belongs(step.as_str(), known))) else {
        return Ok(());
    };
    let near = shared::problem::nearest(step.as_str(), known.iter().copied());
    let hint =
        near.map_or(format!("its steps are {}", known.join(", ")), |near| format!("did you mean `{near}`?"));
    anyhow::bail!("the graph has no step `{step}`\n\nhint: {hint}")
}

/// Whether a context runs a step: it is named after it, with an item or a round behind.
fn belongs(context: &str, step: &str) -> bool {
    context == step || context.strip_prefix(step).is_some_and(|rest| rest.starts_with('-'))
}

struct Cast<'a> {
    spend: Usd,
    fail: &'a [StepId],
    results: BTreeMap<StepId, Value>,
}

impl Cast<'_> {
    fn play(&self, work: &Execute) -> Played {
        let context = work.child_id.as_str();
        let cost = Amount::cost(self.spend);
        if self.fail.iter().any(|step| belongs(context, step.as_str())) {
            let message = "told to fail by --fail".into();
            let failure = Failure { kind: FailureKind::Agent, message, retryable: true };
            return Played { cost, verdict: Verdict::Failed(failure) };
        }
        let told = self.results.iter().find(|(step, _)| belongs(context, step.as_str()));
        let value = told.map_or_else(|| Value::from(work.goal.as_str()), |(_, value)| value.clone());
        Played { cost, verdict: Verdict::Completed(Payload::Inline(Json::from(value))) }
    }
}

fn ending(rehearsal: &Rehearsal) -> Ending {
    let end = rehearsal.trace.root().and_then(|root| root.end());
    match end.map(|end| end.status) {
        Some(EndStatus::Completed) => Ending::Completed,
        Some(EndStatus::Cancelled | EndStatus::TimedOut) => Ending::Cancelled,
        Some(EndStatus::Rejected) => Ending::Refused,
        Some(EndStatus::Failed | EndStatus::Aborted) | None => Ending::Failed,
    }
}
