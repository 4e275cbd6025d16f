//! Checks of agents (B16), with a model server, real programs and a worker in this process.

mod answers;
mod approval;
mod crash;
mod outside;
mod summaries;
mod tools;
mod wording;

use bus::Bus;
use domain::{
    TraceId,
    subject::Filter,
    wire::{HistoryEntry, HistoryStep, Outcome},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, name},
    processes::{binary, fresh_trace},
    servers::ModelServer,
};

/// A cluster in this process whose worker calls `model`, with these profiles.
async fn embedded(settings: Value, agents: Value) -> Cluster {
    let coordinator = coordinator::Config::new(name("coordinator"));
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let store = coordinator::store::Memory::new(coordinator.topology.partitions);
    let store = coordinator::store::Store::Memory(store);
    let worker = worker::Config {
        sandbox: Some(binary()),
        policy: domain::agent_policy::AgentPolicy::everything(),
        settings: serde_json::from_value(settings).unwrap(),
        ..worker::Config::new(name("w"))
    };
    let cluster = Cluster::start(bus, store, vec![coordinator], vec![worker]);
    cluster.client.apply(agents).await;
    cluster
}

/// A profile with these checks, and few tools.
fn checked(checks: Value) -> Value {
    let mut agent = super::frugal("checked");
    agent["tools"] = json!(["fs.read", "fs.write", "fs.list", "ask_human"]);
    agent["checks"] = checks;
    agent
}

async fn run(cluster: &Cluster, goal: &str) -> (Outcome, Vec<HistoryEntry>) {
    run_as(cluster, fresh_trace(), goal).await
}

async fn run_as(cluster: &Cluster, trace_id: TraceId, goal: &str) -> (Outcome, Vec<HistoryEntry>) {
    let message = json!({"goal": goal, "agent_id": "checked", "trace_id": trace_id, "max_cost_usd": 1});
    let outcome = cluster.client.run(message).await;
    let journal = cluster.client.journal(trace_id, &outcome.context.child_id).await;
    (outcome, journal)
}

/// The decisions in a journal except passes, as `check moment decision`.
fn decisions(journal: &[HistoryEntry]) -> Vec<String> {
    let steps = journal.iter().flat_map(|entry| entry.step.checks());
    steps
        .filter(|step| step.decision.as_str() != "pass")
        .map(|step| format!("{} {} {}", step.check, step.moment.as_str(), step.decision.as_str()))
        .collect()
}

fn passes(journal: &[HistoryEntry]) -> usize {
    journal
        .iter()
        .flat_map(|entry| entry.step.checks())
        .filter(|step| step.decision.as_str() == "pass")
        .count()
}

fn tool_errors(journal: &[HistoryEntry]) -> Vec<String> {
    let error = |entry: &HistoryEntry| match &entry.step {
        HistoryStep::Tool(step) if step.is_error => Some(serde_json::to_string(&step.output).unwrap()),
        _ => None,
    };
    journal.iter().filter_map(error).collect()
}

/// All stored and sent data of a run: its events, outcomes, questions and journals.
async fn everything(cluster: &Cluster, trace: TraceId) -> String {
    let mut all = String::new();
    for filter in [Filter::EventsOf(trace), Filter::HistoriesOf(trace)] {
        for message in cluster.client.bus.read(&filter).await.unwrap() {
            all.push_str(&String::from_utf8_lossy(&message.payload));
        }
    }
    all
}

/// The counts in the snapshot of a root: changed, denied, halted.
async fn counts(cluster: &Cluster, outcome: &Outcome) -> [u32; 3] {
    let trace = cluster.client.trace(outcome.trace_id).await;
    let checks = trace.snapshot(trace.root().unwrap()).checks;
    [checks.changed, checks.denied, checks.halted]
}

fn prompts(model: &ModelServer) -> String {
    serde_json::to_string(&model.prompts()).unwrap()
}
