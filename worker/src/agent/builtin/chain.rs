//! `chain`: each context hands over to the next, so the answer of the last one is the result of all.

use domain::wire::{FailureKind, Text, Verdict};
use serde_json::json;

use super::{
    parameters::{InvalidParameter, Parameters},
    tree::spawn,
};
use crate::{
    agent::{
        run::Run,
        verdict::{failed_as, goal},
    },
    attempt::children::{Child, Snapshot, SpawnOutcome, child_id},
};

const MAX_LENGTH: u32 = 1_000;

pub(super) async fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, InvalidParameter> {
    let length = parameters.count("length", 3, 1, MAX_LENGTH)?;
    if length == 1 {
        return Ok(goal(run.work()));
    }
    let next = Text::new(format!("{}, then", run.work().goal));
    let next = next.map_err(|reason| InvalidParameter { name: "goal", reason })?;
    let child_id = child_id(run.attempt.child_id(), "next");
    let inputs = vec![("length", json!(length - 1))];
    let spawn = spawn(run.work().agent.agent_id.clone(), child_id, next, inputs);
    Ok(match run.attempt.spawn(Child::Agent(Box::new(spawn)), Snapshot::default()).await {
        SpawnOutcome::Child(child) => Verdict::Waiting { children: vec![child], hand_over: true },
        SpawnOutcome::Refused(message) => failed_as(FailureKind::Refused, message),
    })
}
