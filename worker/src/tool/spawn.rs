//! `spawn` starts one agent, `delegate` hands over to one, and `run_pipeline` starts a graph. The
//! coordinator decides whether the child may exist; a refusal is an observation. The id of a child
//! is derived from the place of its call, so the same call in a later attempt is the same spawn
//! (P). Only the child's result is returned (I2).

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    AgentId, ChildId, ContextKey, Json, Secrets, Usd,
    decode::Format,
    graph::{self, TaskGraph},
    id::{ModelName, ToolName},
    money::Tokens,
    wire::{
        ChildResult, EndStatus, Funding, ObjectReference, OutputFile, Payload, ShareCategory, SharedMessage,
        Spawn, Text,
    },
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    arguments,
    call::{Invocation, Observation, Outcome, Output},
};
use crate::{
    attempt::{
        Attempt,
        children::{self, Child, Snapshot, SpawnOutcome},
    },
    files::objects,
};

pub(super) const SPAWN: &str = domain::tool::SPAWN;
pub(super) const SPAWN_DESCRIPTION: &str = "Starts another agent on one task and returns its result; then you continue. Use it for an \
     independent part of your work. The agent knows nothing of your conversation: give it everything it \
     needs in the goal and the inputs. For several parts that depend on each other, or that should run \
     at the same time, use run_pipeline; if the other agent should finish the work in your place, use \
     delegate.";
pub(crate) const DELEGATE: &str = domain::tool::DELEGATE;
pub(super) const DELEGATE_DESCRIPTION: &str = "Hands your work over: the other agent's result becomes your result, and you do not continue. It begins with the \
     files in your outputs/. Use it \
     when another agent is better suited to finish your task. To get the result back and continue, use \
     spawn.";
pub(super) const PIPELINE: &str = domain::tool::RUN_PIPELINE;
/// All tools that start a child.
pub(crate) const TOOLS: [&str; 3] = [SPAWN, DELEGATE, PIPELINE];
pub(super) const PIPELINE_DESCRIPTION: &str = "Runs several agents as a graph and returns every step with its status, result or reason, and cost. Use it for work of more \
     than one step: steps that run at the same time (mode parallel), or that pass results on (a step's \
     output_to is a key that later steps list in input_from). For a single agent use spawn.";

/// The number of characters of a goal that the parent's journal shows (I2).
const NOTE_CHARACTERS: usize = 50;
/// The largest result that is fetched from the object store.
const MAX_RESULT_BYTES: u64 = 8 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The task of the other agent, with everything it needs to know.
    goal: Text,
    /// The agent to start; the default agent if absent.
    #[serde(default)]
    agent_id: Option<AgentId>,
    /// Its inputs: values by name.
    #[serde(default)]
    inputs: BTreeMap<ContextKey, Json>,
    /// Keys of the shared store that it may read.
    #[serde(default)]
    input_from: Vec<ContextKey>,
    /// The key of the shared store that its result is written to.
    #[serde(default)]
    output_to: Option<ContextKey>,
    /// The tools that it may call, at most your own; the same as yours if absent.
    #[serde(default)]
    tools: Option<BTreeSet<ToolName>>,
    /// The names of your secrets that it may use too; none if absent.
    #[serde(default)]
    secrets: Secrets,
    #[serde(default)]
    model: Option<ModelName>,
    /// The most it may spend, in dollars; everything you have left if absent.
    #[serde(default)]
    max_cost_usd: Option<Usd>,
    #[serde(default)]
    max_tokens: Option<Tokens>,
    /// `granted` reserves its limit for it out of your budget; `shared` lets it spend from your budget.
    #[serde(default)]
    funding: Funding,
    /// Its time limit in milliseconds; 0 for the same as yours.
    #[serde(default)]
    timeout_ms: Option<u64>,
    /// An upper limit of its context window, in tokens.
    #[serde(default)]
    window_tokens: Option<Tokens>,
    /// The categories of your own messages that it sees; none if absent.
    #[serde(default)]
    share: Vec<ShareCategory>,
    /// The JSON Schema that its result must match.
    #[serde(default)]
    output_schema: Option<Json>,
}

impl Arguments {
    fn spawn(self, child_id: ChildId) -> Spawn {
        Spawn {
            agent_id: self.agent_id,
            child_id: Some(child_id),
            inputs: self.inputs,
            input_from: self.input_from,
            output_to: self.output_to,
            tools: self.tools,
            secrets: self.secrets,
            model: self.model,
            max_cost_usd: self.max_cost_usd,
            max_tokens: self.max_tokens,
            funding: self.funding,
            timeout_ms: self.timeout_ms,
            window_tokens: self.window_tokens,
            share: self.share,
            output_schema: self.output_schema,
            ..Spawn::new(self.goal)
        }
    }
}

/// The fields of a graph that are described to a model. docs/graphs.md has all of them. A graph is
/// fully checked when it is read.
pub(super) fn pipeline_schema() -> Json {
    let key = || json!({"type": "string", "description": "A key of the shared store."});
    let step = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The name of the step; made from the agent's name if absent."},
            "agent_id": {"type": "string", "description": "The agent that runs the step."},
            "task_description": {"type": "string", "description": "The task, with everything the agent needs to know."},
            "input_from": {"type": "array", "items": key(), "description": "Keys that it reads: output_to of other steps, inputs of the graph, or your own inputs."},
            "output_to": key(),
            "depends_on": {"type": "array", "items": {"type": "string"}, "description": "Steps that must have succeeded before."},
            "when": {"type": "string", "description": "A CEL expression over outputs, steps and budget; false skips the step."},
            "required": {"type": "boolean", "description": "If false, the graph continues after a failure of this step, and does not fail because of it."},
            "retries": {"type": "integer"},
            "timeout_ms": {"type": "integer"},
            "max_cost_usd": {"type": "number"},
            "secrets": {"type": "array", "items": {"type": "string"}, "description": "The names of the graph's secrets that it may use; all if absent."},
            "for_each": {"type": "string", "description": "A key that holds a list: the step runs once for each element, which is its input `item`."},
        },
    });
    Json::from(json!({
        "type": "object",
        "properties": {
            "graph": {
                "type": "object",
                "properties": {
                    "mode": {"type": "string", "enum": ["sequential", "parallel"]},
                    "steps": {"type": "array", "items": step, "minItems": 1},
                    "inputs": {"type": "object", "description": "Values written to the shared store before the first step."},
                    "input_from": {"type": "array", "items": key(), "description": "Other keys that you may read, for the steps to read under the same names."},
                    "secrets": {"type": "array", "items": {"type": "string"}, "description": "The names of your secrets that its steps may use; none if absent."},
                    "on_partial_success": {"type": "string", "enum": ["fail", "continue", "best_effort"]},
                    "aggregate": {"type": "object", "description": "Set to {} to have the graph's own agent_id combine the results of the steps into one answer."},
                    "agent_id": {"type": "string", "description": "The agent that aggregates."},
                    "task_description": {"type": "string", "description": "The purpose of the graph."},
                    "max_cost_usd": {"type": "number"},
                },
                "required": ["steps"],
            },
        },
        "required": ["graph"],
        "additionalProperties": false,
    }))
}

/// The tool that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Spawn,
    Delegate,
    Pipeline,
}

/// The child that a call requests.
#[derive(Debug)]
struct ChildRequest {
    child: Child,
    goal: String,
    shared_messages: Vec<SharedMessage>,
}

pub(super) async fn call(kind: Kind, invocation: Invocation<'_>) -> Outcome {
    let attempt = invocation.attempt;
    let child_id = children::child_id(attempt.child_id(), invocation.place);
    let wanted = match kind {
        Kind::Pipeline => pipeline(invocation, &child_id),
        Kind::Spawn | Kind::Delegate => agent(invocation, &child_id),
    };
    let ChildRequest { child, goal, shared_messages } = match wanted {
        Ok(wanted) => wanted,
        Err(mistakes) => return Outcome::Answered(Observation::new(agent_spawn(), Err(mistakes))),
    };
    let hands_over = kind == Kind::Delegate;
    // After `delegate` the caller does not run again, so it hands over even to a child that has
    // already ended.
    let ended = if hands_over { Ok(None) } else { attempt.child_result(&child_id).await };
    let ended = match ended {
        Ok(ended) => ended,
        Err(failure) => attempt.give_up(failure).await,
    };
    if let Some(ended) = ended {
        let observation = Observation::new(agent_spawn(), result(attempt, kind, &ended).await);
        return Outcome::Answered(Observation {
            note: Some(note(&child_id, &goal)),
            is_late: true,
            ..observation
        });
    }
    let files = if hands_over { files(invocation).await } else { Ok(Vec::new()) };
    let files = match files {
        Ok(files) => files,
        Err(why) => {
            return Outcome::Answered(Observation::new(
                agent_spawn(),
                Err(format!("no child was started: {why}")),
            ));
        }
    };
    match attempt.spawn(child, Snapshot { shared_messages, files }).await {
        SpawnOutcome::Child(child) if hands_over => Outcome::HandsOver { child },
        SpawnOutcome::Child(child) => Outcome::Waits { child },
        SpawnOutcome::Refused(why) => {
            let output = Err(format!("no child was started: {why}"));
            Outcome::Answered(Observation::new(agent_spawn(), output))
        }
    }
}

/// Stores the files in `outputs/` for the child that takes over. They are separate from the files
/// that the caller leaves at its end, since a program may still change its files.
async fn files(invocation: Invocation<'_>) -> Result<Vec<OutputFile>, String> {
    let Invocation { attempt, workspace, .. } = invocation;
    let outputs = workspace.outputs(&attempt.work.limits);
    let outputs = outputs.map_err(|error| format!("your files can't be handed over: {error}"))?;
    let mut files = Vec::with_capacity(outputs.len());
    for (path, bytes) in outputs {
        let object = objects::put_file(attempt, "handed-over", &path, bytes).await;
        files.push(OutputFile { path, object });
    }
    Ok(files)
}

fn agent(invocation: Invocation<'_>, child_id: &ChildId) -> Result<ChildRequest, String> {
    let arguments: Arguments = arguments::read(invocation)?;
    let shared = invocation.shareable.iter().filter(|message| arguments.share.contains(&message.category));
    let shared_messages = shared.cloned().collect();
    let goal = arguments.goal.as_str().to_owned();
    let child = Child::Agent(Box::new(arguments.spawn(child_id.clone())));
    Ok(ChildRequest { child, goal, shared_messages })
}

fn pipeline(invocation: Invocation<'_>, child_id: &ChildId) -> Result<ChildRequest, String> {
    let given = invocation.arguments.as_object();
    let other = given.into_iter().flat_map(|fields| fields.keys()).find(|name| *name != "graph");
    if let Some(other) = other {
        return Err(arguments::invalid(
            invocation.tool,
            &format!("{other}: there is no such argument, only `graph`"),
        ));
    }
    // Some models write a nested value as a string.
    let text = match invocation.arguments.get("graph") {
        Some(Value::String(text)) => text.clone(),
        Some(graph @ Value::Object(_)) => graph.to_string(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => {
            return Err(arguments::invalid(invocation.tool, &"graph: an object with `steps` is needed"));
        }
    };
    let work = &invocation.attempt.work;
    let was_given = |key: &ContextKey| {
        work.inputs.contains_key(key) || work.left_out.inputs.contains(key) || key.is_under(&work.child_id)
    };
    let read = graph::read_within(text.as_bytes(), Format::Json, was_given);
    let (graph, _) = read.map_err(|problems| arguments::invalid(invocation.tool, &problems))?;
    let goal = match (&graph.task_description, &graph.name) {
        (Some(task), _) => task.as_str().to_owned(),
        (None, Some(name)) => format!("run {name}"),
        (None, None) => format!("run a graph of {} steps", graph.steps.len()),
    };
    // The model chooses neither the place of the graph nor the recipient of its answer.
    let graph = TaskGraph {
        trace_id: None,
        child_id: Some(child_id.clone()),
        thread_id: None,
        labels: Default::default(),
        reply_to: None,
        ..graph
    };
    Ok(ChildRequest { child: Child::Graph(Box::new(graph)), goal, shared_messages: Vec::new() })
}

async fn result(attempt: &Attempt, kind: Kind, ended: &ChildResult) -> Output {
    let ChildResult { child_id, status, result, error } = ended;
    let value = match result {
        Some(Payload::Inline(value)) => Some(value.to_text()),
        Some(Payload::Reference(reference)) if reference.size_bytes > MAX_RESULT_BYTES => {
            let ObjectReference { object, size_bytes, .. } = reference;
            Some(format!("[the result has {size_bytes} bytes and is kept as the object `{object}`]"))
        }
        Some(Payload::Reference(reference)) => match objects::get(&attempt.bus, reference).await {
            Ok(bytes) => Some(text(&bytes)),
            Err(why) => {
                return Err(format!("`{child_id}` has ended, but its result could not be fetched: {why}"));
            }
        },
        None => None,
    };
    match status {
        EndStatus::Completed => {
            Ok(value.unwrap_or_else(|| format!("`{child_id}` has ended without a result")))
        }
        EndStatus::Failed
        | EndStatus::Cancelled
        | EndStatus::TimedOut
        | EndStatus::Aborted
        | EndStatus::Rejected => {
            let status = serde_json::to_value(status).expect("a unit variant");
            let status = status.as_str().unwrap_or_default().replace('_', " ");
            let why = error.as_deref().unwrap_or("no reason was given");
            // The child's last report, if it wrote one (B7); for a graph, every step.
            let what = if kind == Kind::Pipeline { "what its steps did" } else { "its last report" };
            let report = value.map(|value| format!("\n\n{what}: {value}")).unwrap_or_default();
            Err(format!("`{child_id}` {status}: {why}{report}"))
        }
    }
}

fn text(bytes: &[u8]) -> String {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) => Json::from(value).to_text(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn note(child_id: &ChildId, goal: &str) -> String {
    let shown: String = goal.chars().take(NOTE_CHARACTERS).collect();
    format!("Spawned {child_id} with goal: {shown}...")
}

/// The answer to a `delegate` that was called together with other tools.
pub(crate) fn delegate_with_others() -> Observation {
    let tool = ToolName::new(DELEGATE).expect("a literal that fits the grammar");
    Observation::new(tool, Err("`delegate` hands over all your work: call it alone, or use `spawn`".into()))
}

fn agent_spawn() -> ToolName {
    ToolName::new(domain::tool::JOURNALED_SPAWN).expect("a literal that fits the grammar")
}
