//! `trellis graphs rehearse`: runs a graph on the real core with simulated agents. Each agent
//! answers with its `--result`, or else with its task.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use coordinator::rehearsal::{PlayedAttempt, Rehearsal};
use domain::{
    AgentId, AgentProfile, Amount, ChildId, Json, StepId, Timestamp, TraceId, Usd,
    graph::{Body, Plan},
    limits::Settings,
    wire::{Execute, Failure, FailureKind, Payload, Question, Text, Verdict},
};
use serde_json::Value;
use trace::{ContextSpec, Event, Submit, Trace, logged};

use crate::{
    cluster::connect::Servers,
    input::{inputs::Inputs, parse},
    terminal::{
        display,
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
        questions, tree,
    },
};

/// The options that play the parts of agents and humans.
const FAIL: &str = "--fail";
const RESULT: &str = "--result";
const ANSWER: &str = "--answer";
/// The characters of an event that are shown on a line.
const EVENT_SHOWN: usize = 210;

/// Run a graph through the real scheduler and budget, without servers, models or costs.
///
/// Each agent answers at once with its task, at the cost of --cost-usd: the simulated clock moves only while a step waits. The code of
/// production decides order, skips, retries, limits and the outcome. Agent names are checked against --agents or the connected server.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// A JSON or YAML file; `-` is stdin.
    file: PathBuf,
    #[command(flatten)]
    inputs: Inputs,
    /// The cost of each attempt, in dollars.
    #[arg(long, alias = "spend", value_name = "USD", default_value = "0.01", value_parser = parse::usd, allow_hyphen_values = true)]
    cost_usd: Usd,
    /// A step that fails at every attempt; may be given more than once.
    ///
    /// The name of the step or of one of its contexts: `map-2` is an item, `main-fallback` a fallback, and
    /// the graph's own name its synthesis; `outer-inner` is a step of the graph that the step `outer` uses.
    #[arg(long, value_name = "STEP")]
    fail: Vec<StepId>,
    /// The result of a step, as JSON; by default, its task.
    #[arg(long, value_name = "STEP=JSON", value_parser = parse_result)]
    result: Vec<(StepId, Value)>,
    /// The answer to every question of a step; by default, its first choice or `yes`.
    #[arg(long, value_name = "STEP=TEXT", value_parser = parse_answer)]
    answer: Vec<(StepId, Text)>,
    /// Agent profiles, as for `run`: a graph must not name an agent that neither this file nor the server has.
    #[arg(long, value_name = "FILE")]
    agents: Option<PathBuf>,
    /// Also show every event, in full with `-o json`.
    #[arg(long)]
    events: bool,
}

fn parse_result(text: &str) -> Result<(StepId, Value), String> {
    parse::key_json(text, "write it as step=json, such as review='{\"good\": true}'")
}

fn parse_answer(text: &str) -> Result<(StepId, Text), String> {
    let hint = "write it as step=text, such as release='deny: too early'";
    let (step, answer) = text.split_once('=').ok_or(hint)?;
    Ok((step.parse().map_err(|error| format!("{error}; {hint}"))?, parse::text(answer)?))
}

pub(crate) async fn run(args: &Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let read = args.inputs.graph(&args.file, args.agents.as_deref(), servers, output).await?;
    let (definition, plan) = match read {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    let root = ChildId::new(definition.name.as_ref().map_or("graph", StepId::as_str))?;
    check_names(args, &plan, &root)?;
    let (spec, plan) = ContextSpec::from_graph(&definition, &root)?;
    let agents: BTreeSet<&AgentId> = plan.agents().map(|(agent, _)| agent).collect();
    let agents: Vec<AgentProfile> =
        agents.into_iter().map(|agent| AgentProfile::builtin(agent.clone(), "echo")).collect();
    let submit = Submit {
        spec,
        plan: Some(plan),
        agents: agents.into(),
        settings: Settings::default(),
        traced: None,
        rerun: None,
        unresolved: None,
    };
    let trace_id = definition.trace_id.or(TraceId::from_u128(1)).expect("one is not zero");
    let mut rehearsal = match Rehearsal::begin(trace_id, submit, Timestamp::from_millis(0)) {
        Ok(begun) => begun,
        Err(refusal) => return output::refuse(&refusal.to_wire(), output),
    };
    let cast = Cast { args, used: RefCell::default(), refused: RefCell::default() };
    rehearsal.play(|work| cast.play(work), |question| cast.answer(question));
    match output {
        Output::Text => {
            let events = if args.events { events(&rehearsal) } else { String::new() };
            output::print(&format!("{events}{}", tree::show(&rehearsal.trace)))?;
        }
        Output::Json => {
            let mut shown = tree::as_json(&rehearsal.trace);
            if args.events {
                shown["events"] = log(&rehearsal)?;
            }
            output::print_json(&shown)?;
        }
    }
    cast.check_all_used()?;
    Ok(ending(&rehearsal))
}

fn answers(args: &Args) -> impl Iterator<Item = &StepId> {
    args.answer.iter().map(|(step, _)| step)
}

/// Rejects names that match no step, because they would have no effect.
fn check_names(args: &Args, plan: &Plan, root: &ChildId) -> anyhow::Result<()> {
    let steps = || plan.groups().iter().flat_map(|group| &group.steps);
    let known: Vec<String> = steps()
        .filter(|step| !matches!(step.body, Body::Group(_)) || step.fallback.is_some())
        .map(|step| step.path.as_str().replace('/', "-"))
        .chain(plan.group(0).aggregate.iter().map(|_| root.to_string()))
        .collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let mut named = args.fail.iter().chain(args.result.iter().map(|(step, _)| step)).chain(answers(args));
    let Some(name) = named.find(|name| !known.iter().any(|step| could_be(name.as_str(), step))) else {
        return Ok(());
    };
    if steps().any(|step| step.path.as_str().replace('/', "-") == name.as_str()) {
        anyhow::bail!("`{name}` is a group, and a group runs no agent\n\nhint: name one of its steps");
    }
    let otherwise = format!("its steps are {}", known.join(", "));
    let hint = display::did_you_mean(name.as_str(), known.iter().copied(), otherwise);
    anyhow::bail!("the graph has no step `{name}`\n\nhint: {hint}")
}

/// True if the name is the step's, or could be the name of one of its contexts.
fn could_be(name: &str, step: &str) -> bool {
    name == step || name.strip_prefix(step).is_some_and(|rest| rest.starts_with('-'))
}

/// True if the name selects the context: by its own name, or by the step of which it is an item or
/// a round. The name of a step does not select its fallback, which runs after the step failed.
fn means(name: &str, context: &str) -> bool {
    let Some(rest) = context.strip_prefix(name) else { return false };
    let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit() || c == 'r' || c == 'n');
    rest.is_empty() || rest.strip_prefix('-').is_some_and(numbered)
}

struct Cast<'a> {
    args: &'a Args,
    /// The options that had an effect, with their step.
    used: RefCell<BTreeSet<(&'static str, &'a StepId)>>,
    /// The reasons why answers were rejected.
    refused: RefCell<BTreeMap<&'a StepId, String>>,
}

impl<'a> Cast<'a> {
    fn play(&self, work: &Execute) -> PlayedAttempt {
        let meant = |name: &&StepId| means(name.as_str(), work.child_id.as_str());
        let cost = Amount::cost(self.args.cost_usd);
        if let Some(name) = self.args.fail.iter().find(meant) {
            self.used.borrow_mut().insert((FAIL, name));
            let message = "set to fail by --fail".into();
            let failure = Failure { kind: FailureKind::Agent, message, retryable: true };
            return PlayedAttempt { cost, verdict: Verdict::Failed(failure) };
        }
        let told = self.args.result.iter().find(|(name, _)| meant(&name));
        let value = match told {
            Some((name, value)) => {
                self.used.borrow_mut().insert((RESULT, name));
                value.clone()
            }
            None => Value::from(work.goal.as_str()),
        };
        PlayedAttempt { cost, verdict: Verdict::Completed(Payload::Inline(Json::from(value))) }
    }

    fn answer(&self, question: &Question) -> Option<Text> {
        let meant = |name: &StepId| means(name.as_str(), question.child_id.as_str());
        if let Some((name, text)) = self.args.answer.iter().find(|(name, _)| meant(name)) {
            self.used.borrow_mut().insert((ANSWER, name));
            let answer = questions::in_form(&question.form, text.clone());
            if let Err(why) = question.form.check_answer(&answer) {
                self.refused.borrow_mut().insert(name, format!("{why}"));
                return None;
            }
            return Some(answer);
        }
        question.form.choices.first().cloned().or_else(|| Text::new("yes").ok())
    }

    /// Reports every option without an effect, and every rejected answer.
    fn check_all_used(&self) -> anyhow::Result<()> {
        let (used, refused) = (self.used.borrow(), self.refused.borrow());
        let mut told: Vec<String> = refused
            .iter()
            .map(|(step, why)| format!("{ANSWER} does not answer the question of `{step}`: {why}"))
            .collect();
        let failed = self.args.fail.iter().map(|step| (FAIL, step));
        let named = failed.chain(self.args.result.iter().map(|(step, _)| (RESULT, step)));
        for (option, step) in named.chain(answers(self.args).map(|step| (ANSWER, step))) {
            if !used.contains(&(option, step)) {
                let what = if option == ANSWER { "asked a question" } else { "was run" };
                told.push(format!("no context called `{step}` {what}, so {option} had no effect"));
            }
        }
        match told.as_slice() {
            [] => Ok(()),
            told => {
                let hint = "the output above shows the contexts of the run";
                anyhow::bail!("{}\n\nhint: {hint}", told.join("\n"))
            }
        }
    }
}

/// All events, one on each line.
fn events(rehearsal: &Rehearsal) -> String {
    let line = |(at, event): &(Timestamp, Event)| {
        let event = serde_json::to_string(event).unwrap_or_default();
        format!("{:>8} ms  {}\n", at.millis(), display::cut(&event, EVENT_SHOWN))
    };
    rehearsal.log.iter().map(line).chain(["\n".into()]).collect()
}

/// All events in the form of a cluster's log.
fn log(rehearsal: &Rehearsal) -> serde_json::Result<Value> {
    let mut replayed = Trace::new(rehearsal.trace.id());
    let log = rehearsal.log.iter().flat_map(|(at, event)| {
        replayed.apply(event, *at);
        logged(&mut replayed, vec![event.clone()], *at)
    });
    serde_json::to_value(log.collect::<Vec<_>>())
}

fn ending(rehearsal: &Rehearsal) -> Ending {
    let end = rehearsal.trace.root().and_then(|root| root.end());
    end.map_or(Ending::Failed, |end| end.status.into())
}
