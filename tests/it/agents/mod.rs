//! LLM agents in worker processes on real NATS and Redis servers, with a model server that keeps a
//! bill of its own (b5).

mod bills;
mod budget;
mod checks;
mod compaction;
mod crash;
mod foreign;
mod isolation;
mod mistakes;
mod parking;
mod prompts;
mod restores;
mod secrets;
pub(crate) mod steering;
pub(crate) mod survives;

use domain::TraceId;
use serde_json::{Value, json};
use trace::Trace;
use trellis_tests::{
    checker,
    processes::{Processes, Shape},
    servers::{ModelServer, Reply},
};

/// A cluster whose workers call `model`, with these profiles.
pub(crate) async fn cluster(workers: usize, model: &ModelServer, agents: Value) -> Processes {
    cluster_with(workers, model.settings(), agents).await
}

pub(crate) async fn cluster_with(workers: usize, settings: Value, agents: Value) -> Processes {
    let shape = || Shape { worker: settings, ..Shape::new(1, workers) };
    let cluster = Processes::start_as(shape).await;
    cluster.apply(agents).await;
    cluster
}

/// A profile that calls the test's model, with every tool.
pub(crate) fn agent(agent_id: &str) -> Value {
    json!({"agent_id": agent_id, "kind": "llm", "model": "test/model", "system_prompt": "You are a test."})
}

/// The same with few tools, for small holds: tool descriptions are part of the prompt, and a hold
/// covers every byte.
fn frugal(agent_id: &str) -> Value {
    let mut agent = agent(agent_id);
    agent["tools"] = json!(["fs.read", "fs.write", "fs.list"]);
    agent
}

pub(crate) fn say(text: &str) -> Reply {
    Reply { text: text.into(), input_tokens: 100, output_tokens: 20, ..Reply::default() }
}

pub(crate) fn call(tool: &str, arguments: Value) -> Reply {
    Reply { calls: vec![(tool.into(), arguments)], input_tokens: 100, output_tokens: 20, ..Reply::default() }
}

/// b5: the bill equals the booked cost, except for calls whose answer was lost, which are booked as
/// estimated; and the ceiling is not exceeded.
pub(crate) fn check_bill(model: &ModelServer, traces: &[&Trace], unseen_nanos: u64) {
    let booked: u64 = traces.iter().map(|trace| known(trace)).sum();
    let billed = model.billed_nanos();
    assert_eq!(billed - unseen_nanos, booked, "b5: the bill and the booked cost differ: {:#?}", model.bill());
    for trace in traces {
        let budget = &trace.root().unwrap().budget;
        assert!(budget.spent.exceeds(budget.ceilings.limit).is_none(), "over its limit: {budget:?}");
    }
}

/// The booked cost that is not estimated, in nano-dollars.
fn known(trace: &Trace) -> u64 {
    let budget = &trace.root().unwrap().budget;
    budget.spent.cost_usd.nanos() - budget.estimated.cost_usd.nanos()
}

pub(crate) async fn finished(cluster: &Processes, run: TraceId) -> (Value, Trace) {
    let outcome = cluster.outcome(run).await;
    cluster.check(&[run]).await;
    let trace = cluster.client.trace(run).await;
    checker::assert_journals_are_complete(&cluster.client, &trace).await;
    (serde_json::to_value(&outcome).unwrap(), trace)
}
