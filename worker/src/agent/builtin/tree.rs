//! `tree`: a tree of contexts of a given depth and width. The agent runs twice: first it spawns its
//! children, and when they have ended it collects their results. Each run spawns every child that
//! has not ended. That closes the window in which a worker is lost between two spawns.

use domain::{
    AgentId, ChildId, ContextKey, Json, Usd,
    wire::{ChildResult, EndStatus, Spawn, Text, Verdict},
};
use serde_json::{Value, json};

use super::parameters::{InvalidParameter, Parameters};
use crate::{
    agent::{run::Run, verdict::completed},
    attempt::children::{self, Child, Snapshot, SpawnOutcome},
};

const MAX_DEPTH: u32 = 32;
const MAX_WIDTH: u32 = 1_000;

pub(super) async fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, InvalidParameter> {
    let depth = parameters.count("depth", 2, 1, MAX_DEPTH)?;
    let width = parameters.count("width", 3, 1, MAX_WIDTH)?;
    let leaf = parameters.get_or("leaf", AgentId::new("echo").expect("a literal that fits the grammar"))?;
    let usd: Option<Usd> = parameters.get("usd")?;
    let (mut running, mut ended, mut shown, mut leaves) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for n in 1..=width {
        let child_id = children::child_id(run.attempt.child_id(), &n.to_string());
        match run.attempt.child_result(&child_id).await {
            Ok(Some(child)) => {
                let (child_leaves, entry) = show(&child, depth);
                leaves += child_leaves;
                shown.push(entry);
                ended.push(child_id);
                continue;
            }
            Ok(None) => {}
            Err(failure) => return Ok(Verdict::Failed(failure)),
        }
        let mut inputs = Vec::new();
        let agent_id = if depth > 1 {
            inputs.extend([("depth", json!(depth - 1)), ("width", json!(width)), ("leaf", json!(leaf))]);
            run.work().agent.agent_id.clone()
        } else {
            leaf.clone()
        };
        inputs.extend(usd.map(|usd| ("usd", json!(usd))));
        let child = spawn(agent_id, child_id.clone(), child_goal(run, n)?, inputs);
        match run.attempt.spawn(Child::Agent(Box::new(child)), Snapshot::default()).await {
            SpawnOutcome::Child(child_id) => running.push(child_id),
            SpawnOutcome::Refused(why) => shown.push(json!({"child_id": child_id, "refused": why})),
        }
    }
    if !running.is_empty() {
        // The context waits for all its children, so the list names the ended ones as well.
        running.extend(ended);
        return Ok(Verdict::Waiting { children: running, hand_over: false });
    }
    Ok(completed(Json::from(json!({"leaves": leaves, "children": shown}))))
}

/// The goal of a child. Contexts on one path need different goals, since an equal goal is rejected
/// as a cycle (P).
fn child_goal(run: &Run<'_>, n: u32) -> Result<Text, InvalidParameter> {
    let text = format!("{}, part {n}", run.work().goal);
    Text::new(text).map_err(|reason| InvalidParameter { name: "goal", reason })
}

pub(super) fn spawn(
    agent_id: AgentId,
    child_id: ChildId,
    goal: Text,
    inputs: Vec<(&'static str, Value)>,
) -> Spawn {
    let key = |name| ContextKey::new(name).expect("a literal that fits the grammar");
    Spawn {
        agent_id: Some(agent_id),
        child_id: Some(child_id),
        inputs: inputs.into_iter().map(|(name, value)| (key(name), Json::from(value))).collect(),
        ..Spawn::new(goal)
    }
}

/// The number of leaves beneath a child, and the child's entry in the result. The entry of a
/// subtree has only the count, otherwise the result would grow with the whole tree.
fn show(child: &ChildResult, depth: u32) -> (u64, Value) {
    let ChildResult { child_id, status, result, error } = child;
    let result = result.as_ref().map(|payload| payload.to_value());
    match (status, result) {
        (EndStatus::Completed, Some(result)) if depth > 1 => {
            let leaves = result.value().get("leaves").and_then(Value::as_u64).unwrap_or(0);
            (leaves, json!({"child_id": child_id, "status": status, "leaves": leaves}))
        }
        (EndStatus::Completed, result) => {
            (1, json!({"child_id": child_id, "status": status, "result": result}))
        }
        (status, _) => (0, json!({"child_id": child_id, "status": status, "error": error})),
    }
}
