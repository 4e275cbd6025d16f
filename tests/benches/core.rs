//! Benchmarks of the core, on one thread, with no I/O: `cargo bench -p trellis-tests`.
//!
//! The targets: hold and settle at depth 8 (at least 500,000 pairs a second), a parallel graph from
//! submission to outcome (cost per step at 10,000 steps at most twice that at 100), and memory per
//! live context (under 2 KiB).

use std::{collections::HashMap, hint::black_box};

use coordinator::rehearsal::{PlayedAttempt, Rehearsal};
use divan::{Bencher, counter::ItemsCount};
use domain::{
    AgentProfile, Amount, ChildId, Json, LeaseToken, Timestamp, Tokens, TraceId, Usd, decode,
    limits::Settings,
    wire::{Claim, Hold, Lease, Payload, Verdict},
};
use serde_json::{Value, json};
use trace::{Command, ContextSpec, LoggedEvents, Replay, Spawn, Submit, Trace, logged};

fn main() {
    memory();
    divan::main();
}

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn wide_settings() -> Settings {
    let mut settings = Settings::default();
    settings.limits.max_depth = 8;
    settings.limits.max_contexts = 50_000;
    settings.limits.max_children = 50_000;
    settings
}

fn agents() -> Vec<AgentProfile> {
    vec![AgentProfile::builtin("default".parse().expect("valid"), "echo")]
}

fn spec(spawn: &Value) -> ContextSpec {
    let spawn = decode::value(spawn).expect("a valid spawn");
    ContextSpec::from_spawn(&spawn, &[], &id("x")).expect("a valid order")
}

fn id(text: &str) -> ChildId {
    text.parse().expect("a valid id")
}

fn take(trace: &mut Trace, command: Command) {
    trace.handle(command, NOW).unwrap_or_else(|refusal| panic!("{refusal}"));
}

fn claim(trace: &mut Trace, child: &str) -> Lease {
    let token: LeaseToken = format!("token-of-{child}").parse().expect("valid");
    let claim = Claim { child_id: id(child), worker_id: "w".parse().expect("valid"), token: token.clone() };
    take(trace, Command::Claim(claim));
    Lease { child_id: id(child), attempt: 1, token }
}

fn rooted(budget_usd: u64) -> (Trace, Lease) {
    let mut trace = Trace::new(TraceId::from_u128(1).expect("not zero"));
    let spec = spec(&json!({"goal": "root", "child_id": "root", "max_cost_usd": budget_usd}));
    let submit = Submit {
        spec,
        plan: None,
        agents: agents().into(),
        settings: wide_settings(),
        traced: None,
        rerun: None,
        unresolved: None,
    };
    take(&mut trace, Command::Submit(Box::new(submit)));
    let lease = claim(&mut trace, "root");
    (trace, lease)
}

fn spawn(trace: &mut Trace, lease: &Lease, name: &str) {
    let spec = spec(
        &json!({"goal": format!("the goal of {name}, in a sentence as people write them"), "child_id": name}),
    );
    let spawn = Spawn { lease: lease.clone(), spec, plan: None, agents: Default::default() };
    take(trace, Command::Spawn(Box::new(spawn)));
}

/// A trace with a chain of agents, and the lease of the deepest one.
fn chain(depth: u32) -> (Trace, Lease) {
    let (mut trace, mut lease) = rooted(1_000_000);
    for level in 1..=depth {
        let name = format!("level-{level}");
        spawn(&mut trace, &lease, &name);
        lease = claim(&mut trace, &name);
    }
    (trace, lease)
}

/// One paid call: a hold on nine contexts, and a settlement on nine contexts.
#[divan::bench(args = [0, 4, 8], sample_count = 20)]
fn hold_and_settle_at_depth(bencher: Bencher<'_, '_>, depth: u32) {
    const PAIRS: u64 = 20_000;
    let held = Amount::new(Usd::from_nanos(2_000), Tokens::new(20));
    let spent = Amount::new(Usd::from_nanos(1_000), Tokens::new(10));
    bencher
        .counter(ItemsCount::new(PAIRS))
        .with_inputs(|| {
            let (trace, lease) = chain(depth);
            let calls: Vec<domain::CallId> =
                (0..PAIRS).map(|n| format!("call-{n}").parse().expect("valid")).collect();
            (trace, lease, calls)
        })
        .bench_local_values(|(mut trace, lease, calls)| {
            for call_id in calls {
                take(
                    &mut trace,
                    Command::Hold(Hold {
                        lease: lease.clone(),
                        call_id: call_id.clone(),
                        amount: held,
                        closing: false,
                        seen: None,
                    }),
                );
                take(
                    &mut trace,
                    Command::Settle { lease: lease.clone(), call_id, amount: spent, model: None },
                );
            }
            black_box(trace)
        });
}

fn graph(steps: u32) -> Submit {
    let step = |n| json!({"id": format!("step-{n}"), "agent_id": "default", "task_description": "do it", "output_to": format!("out-{n}")});
    let steps: Vec<Value> = (0..steps).map(step).collect();
    let graph =
        decode::value(&json!({"mode": "parallel", "max_cost_usd": 1000, "steps": steps})).expect("valid");
    let (spec, plan) = ContextSpec::from_graph(&graph, &id("graph")).expect("valid");
    Submit {
        spec,
        plan: Some(plan),
        agents: agents().into(),
        settings: wide_settings(),
        traced: None,
        rerun: None,
        unresolved: None,
    }
}

fn played(submit: Submit) -> Rehearsal {
    let cost = Amount::cost(Usd::from_nanos(1_000));
    let mut rehearsal = Rehearsal::begin(TraceId::from_u128(1).expect("not zero"), submit, NOW)
        .unwrap_or_else(|refusal| panic!("{refusal}"));
    let done = Payload::Inline(Json::from("done"));
    rehearsal.play(|_| PlayedAttempt { cost, verdict: Verdict::Completed(done.clone()) }, |_| None);
    assert!(!rehearsal.trace.root().expect("submitted").is_live());
    rehearsal
}

/// A parallel graph from submission to outcome: admits, claims, holds, settles and reports every
/// step.
#[divan::bench(args = [100, 1_000, 10_000], sample_count = 10)]
fn parallel_graph_of(bencher: Bencher<'_, '_>, steps: u32) {
    bencher.counter(ItemsCount::new(steps)).with_inputs(|| graph(steps)).bench_local_values(played);
}

/// Reads such a graph from its stored fields.
#[divan::bench(args = [100, 10_000], sample_count = 10)]
fn load_graph_of(bencher: Bencher<'_, '_>, steps: u32) {
    let mut trace = played(graph(steps)).trace;
    trace.mark_all_changed();
    let changes = trace.take_changes();
    let read = |changes: Vec<(String, Option<String>)>| -> HashMap<String, String> {
        changes.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
    };
    let (fields, values) = (read(changes.fields), read(changes.values));
    bencher.counter(ItemsCount::new(steps)).bench_local(|| {
        Trace::from_stored(trace.id(), trace.version(), &fields, &values).expect("the trace was stored")
    });
}

/// Rebuilds such a graph from its event log: the messages are parsed and replayed.
#[divan::bench(args = [100, 10_000], sample_count = 10)]
fn rebuild_graph_of(bencher: Bencher<'_, '_>, steps: u32) {
    let rehearsal = played(graph(steps));
    let mut trace = Trace::new(rehearsal.trace.id());
    let messages = rehearsal.log.iter().flat_map(|(at, event)| {
        trace.apply(event, *at);
        logged(&mut trace, vec![event.clone()], *at)
    });
    let log: Vec<Vec<u8>> =
        messages.map(|message| serde_json::to_vec(&message).expect("string keys only")).collect();
    bencher.counter(ItemsCount::new(steps)).bench_local(|| {
        let log = log
            .iter()
            .map(|message| serde_json::from_slice::<LoggedEvents>(message).expect("the message was logged"));
        Replay::all(Trace::new(rehearsal.trace.id()), log.collect())
    });
}

/// Compiles a graph: its definition is read and checked.
#[divan::bench(args = [100, 10_000], sample_count = 10)]
fn compile_graph_of(bencher: Bencher<'_, '_>, steps: u32) {
    bencher.counter(ItemsCount::new(steps)).bench_local(|| graph(black_box(steps)));
}

/// Resident memory per live context: agents spawned and claimed, each with an open call.
fn memory() {
    const CONTEXTS: u32 = 40_000;
    let before = resident_bytes();
    let (mut trace, root) = rooted(1_000_000);
    let amount = Amount::new(Usd::from_nanos(1_000), Tokens::new(10));
    for n in 0..CONTEXTS {
        let name = format!("agent-{n}");
        spawn(&mut trace, &root, &name);
        let lease = claim(&mut trace, &name);
        take(
            &mut trace,
            Command::Hold(Hold {
                lease,
                call_id: "call-1".parse().expect("valid"),
                amount,
                closing: false,
                seen: None,
            }),
        );
    }
    let agents = resident_bytes() - before;
    black_box(&trace);
    drop(trace);

    let before = resident_bytes();
    let submit = graph(CONTEXTS);
    let rehearsal = Rehearsal::begin(TraceId::from_u128(1).expect("not zero"), submit, NOW);
    let steps = resident_bytes() - before;
    black_box(&rehearsal);
    say(&format!(
        "memory per live context: {} bytes (agent, claimed, one open call)",
        agents / u64::from(CONTEXTS)
    ));
    say(&format!(
        "memory per live step:    {} bytes (its plan, event log and queue included)",
        steps / u64::from(CONTEXTS)
    ));
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = status.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

fn say(line: &str) {
    #[expect(clippy::print_stdout, reason = "a benchmark's figures")]
    {
        println!("{line}");
    }
}
