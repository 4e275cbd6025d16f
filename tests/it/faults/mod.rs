//! Real faults: processes and servers are killed, stopped and started again, and the checker runs
//! after each. The f-number of a test is that of its fault; `proves:` names the mechanism without
//! which the test fails. `TRELLIS_FAULT_REPEATS` repeats the fault within a test; CI runs each
//! once.

mod chaos;
mod clock;
mod coordinator;
mod disk;
mod hostile;
mod humans;
mod input;
mod load;
mod nats;
mod network;
mod program;
mod provider;
mod redis;
mod rolling;
mod schedules;
mod steering;
mod undo;
mod worker;

use std::time::Duration;

use ::trace::TokenHash;
use bus::Outgoing;
use domain::{
    ChildId, TraceId, WorkerId,
    span::Headers,
    subject::{Partition, Subject},
    wire::{Ask, AskMessage, Lease},
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use trellis_tests::processes::Processes;

const PARTITIONS: u16 = 16;

/// `default` times `TRELLIS_FAULT_REPEATS`.
fn repeats(default: usize) -> usize {
    size("TRELLIS_FAULT_REPEATS", 1) * default
}

/// A number from the environment, for longer runs than in CI.
fn size(variable: &str, default: usize) -> usize {
    let asked = std::env::var_os(variable).map(|text| text.to_string_lossy().parse());
    asked.map_or(default, |number| number.unwrap_or_else(|error| panic!("{variable}: {error}")))
}

fn root() -> ChildId {
    "root".parse().unwrap()
}

fn sleep(ms: u64) -> Value {
    json!({"goal": "z", "agent_id": "sleep", "inputs": {"ms": ms}})
}

/// A mix of all kinds of runs.
fn mixed(number: usize) -> Value {
    match number % 6 {
        0 => json!({"goal": format!("goal {number}")}),
        1 => {
            json!({"goal": "pay", "agent_id": "spend", "inputs": {"usd": 0.01, "calls": 3, "ms": 100, "hold_usd": 0.02}})
        }
        2 => {
            json!({"goal": "grow", "agent_id": "tree", "inputs": {"depth": 2, "width": 2, "leaf": "spend", "usd": 0.01}})
        }
        3 => json!({"goal": "on", "agent_id": "chain", "inputs": {"length": 3}}),
        4 => json!({
            "on_partial_success": "continue",
            "steps": [
                {"id": "a", "agent_id": "echo", "task_description": "a", "output_to": "a"},
                {"id": "b", "agent_id": "spend", "task_description": "b", "output_to": "b"},
                {"id": "c", "agent_id": "share", "task_description": "c", "input_from": ["a", "b"]},
            ],
        }),
        _ => sleep(300),
    }
}

/// Begins `count` runs, 20 ms apart, while servers may fail.
async fn drive(cluster: &Processes, count: usize) -> Vec<TraceId> {
    let mut runs = Vec::new();
    for number in 0..count {
        runs.push(cluster.begin(mixed(number)).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    runs
}

/// Listens to the claims of workers: no other message contains a lease token.
struct Claims(async_nats::Subscriber);

impl Claims {
    async fn listen(cluster: &Processes) -> Self {
        let client = async_nats::connect(cluster.nats.url()).await.unwrap();
        let claims = client.subscribe("agent.ask.*.*").await.unwrap();
        client.flush().await.unwrap();
        Claims(claims)
    }

    /// The lease of an attempt of the root.
    async fn lease(&mut self, attempt: u32, hash: &TokenHash) -> Lease {
        loop {
            let heard = self.0.next().await.unwrap();
            let ask: AskMessage = serde_json::from_slice(&heard.payload).unwrap();
            if let Ask::Claim(claim) = ask.ask
                && TokenHash::of(&claim.token) == *hash
            {
                return Lease { child_id: root(), attempt, token: claim.token };
            }
        }
    }
}

/// Waits until an attempt of the root runs. Returns its worker and the hash of its token.
async fn running(cluster: &Processes, trace_id: TraceId, attempt: u32) -> (WorkerId, TokenHash) {
    cluster
        .until(trace_id, "claimed", |trace| trace.root().is_some_and(|root| root.attempt() >= attempt))
        .await;
    let trace = cluster.client.trace(trace_id).await;
    let claimed = &trace.root().unwrap().attempts[attempt as usize - 1];
    (claimed.worker_id.clone(), claimed.token.clone())
}

/// Waits until the root holds money for a call.
async fn calling(cluster: &Processes, trace_id: TraceId, attempt: u32) -> (WorkerId, TokenHash) {
    let found = running(cluster, trace_id, attempt).await;
    cluster
        .until(trace_id, "in a call", |trace| {
            let calls = &trace.root().unwrap().calls.kept();
            calls.values().any(|call| call.attempt == attempt)
        })
        .await;
    found
}

fn home(trace_id: TraceId) -> Partition {
    Partition::of(trace_id, PARTITIONS)
}

/// Publishes a message without an id, so that NATS does not drop copies.
async fn publish(cluster: &Processes, subject: Subject, message: &impl serde::Serialize) {
    let payload = serde_json::to_vec(message).unwrap().into();
    let message = Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last: None };
    cluster.client.bus.publish(message).await.unwrap();
}
