//! The answer to every command in every status; none panics. The snapshot is the whole table: a
//! changed answer is a changed rule.

use std::fmt::Write;

use domain::{
    Json, Usd,
    check::{CheckDecision, Moment},
    decode,
    graph::Plan,
    wire::{
        AnswerMessage, Charge, CheckReport, Claim, DecideDispute, Decision, Delete, Hold, Lease, Payload,
        Progress, Raise, Referrers, Report, Restore, Resume, SeenNumbers, Tell, Text, Tick, Verdict,
    },
};
use serde_json::json;
use trace::{Amend, Command, ContextSpec, Earlier, RerunOrder, Spawn, Submit};
use world::{World, cents, id};

/// A world whose context `x` has this status, and the lease of its last attempt (invented if it had
/// none).
fn in_status(status: &str) -> (World, Lease) {
    let made_up = Lease { child_id: id("x"), attempt: 1, token: "none".parse().unwrap() };
    if status == "absent" {
        return (World::new(), made_up);
    }
    let mut world = World::new();
    if status == "steps" {
        let steps = json!([{"id": "s", "agent_id": "writer", "task_description": "t"}]);
        world.submit_graph(json!({"child_id": "x", "steps": steps, "max_cost_usd": 1})).unwrap();
        return (world, made_up);
    }
    if status == "undoing" {
        let undo = json!({"agent_id": "editor", "max_cost_usd": 0.1});
        let steps = json!([{"id": "s", "agent_id": "writer", "task_description": "t", "undo": undo},
            {"id": "s2", "agent_id": "writer", "task_description": "t"}]);
        world.submit_graph(json!({"child_id": "x", "steps": steps, "max_cost_usd": 1})).unwrap();
        world.run("s", "done");
        world.break_it("s2");
        return (world, made_up);
    }
    if status == "approval" {
        let steps = json!([{"id": "x", "approve": {"who": "the editor", "timeout_ms": 60_000}}]);
        world.submit_graph(json!({"child_id": "g", "steps": steps, "max_cost_usd": 1})).unwrap();
        return (world, made_up);
    }
    let spawn = json!({"goal": "g", "child_id": "x", "max_cost_usd": 1, "on_exhausted": "pause", "timeout_ms": 100_000, "output_to": "out"});
    world.submit(spawn).unwrap();
    if status == "submitted" {
        return (world, made_up);
    }
    let lease = world.claim("x");
    world.hold(&lease, "open", cents(10)).unwrap();
    match status {
        "running" => {}
        "queued" => drop(world.report(&lease, Verdict::HandedBack)),
        "backing off" => drop(world.fail(&lease, true)),
        "waiting" => {
            world.spawn(&lease, json!({"goal": "c", "child_id": "c"})).unwrap();
            world.wait(&lease, &["c"]).unwrap();
        }
        "input_required" => drop(world.ask_human(&lease, "which?")),
        "choices" => drop(world.ask_with_form(&lease, "which?", json!({"choices": ["a", "b"]}))),
        "other choices" => drop(world.ask_with_form(&lease, "which?", json!({"choices": ["b"]}))),
        "paused" => drop(world.report(&lease, Verdict::OutOfBudget)),
        "in the line" | "parked in the line" | "called up" => {
            world.hold(&lease, "waits", cents(95)).unwrap();
            if status != "in the line" {
                world.report(&lease, Verdict::OutOfBudget).unwrap();
            }
            if status == "called up" {
                world.release(&lease, "open").unwrap();
            }
        }
        "completed" => drop(world.complete(&lease, "ok")),
        "failed" => drop(world.fail(&lease, false)),
        "cancelled" => drop(world.cancel(None)),
        "timed_out" => drop(world.pass(100_000)),
        "aborted" => drop(world.report(&lease, Verdict::Halted { check: "c".into(), reason: "r".into() })),
        other => panic!("no commands lead to {other}"),
    }
    (world, lease)
}

fn commands(world: &World, lease: &Lease) -> Vec<(&'static str, Command)> {
    let lease = || lease.clone();
    let spec = |name: &str, goal: &str| {
        let spawn = decode::value(&json!({"goal": goal, "child_id": name})).unwrap();
        ContextSpec::from_spawn(&spawn, &[], &id("x")).unwrap()
    };
    let submit = Submit {
        spec: spec("x", "another"),
        plan: None,
        agents: world.agents.clone().into(),
        settings: world.settings.clone(),
        traced: None,
        rerun: None,
        unresolved: None,
    };
    let asked = decode::value(&json!({"rerun": {"trace_id": world.trace.id()}})).unwrap();
    let request = RerunOrder::new(&asked, &id("x"));
    let rerun = Submit {
        spec: ContextSpec { rerun: Some(request), ..ContextSpec::new(id("x")) },
        rerun: Some(Err(Earlier::unknown(world.trace.id()))),
        ..submit.clone()
    };
    let spawn =
        Spawn { lease: lease(), spec: spec("new", "new"), plan: None, agents: world.agents.clone().into() };
    let report = |verdict| {
        Command::Report(Box::new(Report { lease: lease(), progress: Progress::default(), verdict }))
    };
    let call = |name: &str| name.parse().unwrap();
    let inline = Payload::Inline(Json::from("ok"));
    vec![
        ("submit another", Command::Submit(Box::new(submit))),
        ("submit a rerun", Command::Submit(Box::new(rerun))),
        ("spawn", Command::Spawn(Box::new(spawn))),
        (
            "claim",
            Command::Claim(Claim {
                child_id: id("x"),
                worker_id: "w".parse().unwrap(),
                token: "new".parse().unwrap(),
            }),
        ),
        ("tick", Command::Tick(Tick { lease: lease(), progress: Progress::default() })),
        ("complete", report(Verdict::Completed(inline.clone()))),
        ("last report", report(Verdict::LastReport(inline))),
        ("wait", report(Verdict::Waiting { children: vec![id("c")], hand_over: false })),
        ("hand back", report(Verdict::HandedBack)),
        ("resume", Command::Resume(Resume { lease: lease(), settled: Vec::new() })),
        (
            "hold",
            Command::Hold(Hold {
                lease: lease(),
                call_id: call("new"),
                amount: cents(1),
                closing: false,
                seen: None,
            }),
        ),
        (
            "hold, no news",
            Command::Hold(Hold {
                lease: lease(),
                call_id: call("new"),
                amount: cents(1),
                closing: false,
                seen: Some(SeenNumbers { told: Some(0), rungs: Some(0) }),
            }),
        ),
        ("release", Command::Release { lease: lease(), call_id: call("open") }),
        ("forfeit", Command::Forfeit { lease: lease(), call_id: call("open") }),
        ("settle", Command::Settle { lease: lease(), call_id: call("open"), amount: cents(1), model: None }),
        ("charge", Command::Charge(Charge { child_id: id("x"), key: call("k"), amount: cents(1), by: None })),
        (
            "accept dispute",
            Command::DecideDispute(DecideDispute {
                child_id: id("x"),
                number: 1,
                decision: Decision::Accepted,
            }),
        ),
        (
            "raise",
            Command::Raise(Raise {
                child_id: id("x"),
                max_cost_usd: Some(Usd::from_cents(200)),
                max_tokens: None,
            }),
        ),
        (
            "set value",
            Command::SetValue { lease: lease(), key: "out".parse().unwrap(), value: Json::from("v") },
        ),
        ("delete value", Command::DeleteValue { lease: lease(), key: "out".parse().unwrap() }),
        (
            "checked",
            Command::Checked(CheckReport {
                lease: lease(),
                number: 1,
                check: "c".parse().unwrap(),
                moment: Moment::BeforeTool,
                decision: CheckDecision::Deny,
                reason: Some("r".into()),
            }),
        ),
        (
            "answer",
            Command::Answer(AnswerMessage {
                child_id: id("x"),
                question: 1,
                answer: Text::new("a").unwrap(),
                by: None,
            }),
        ),
        (
            "approve",
            Command::Answer(AnswerMessage {
                child_id: id("x"),
                question: 1,
                answer: Text::new("approve").unwrap(),
                by: Some(Text::new("me").unwrap()),
            }),
        ),
        (
            "tell",
            Command::Tell(Tell {
                child_id: Some(id("x")),
                id: call("m"),
                text: Text::new("t").unwrap(),
                by: None,
            }),
        ),
        ("amend", Command::Amend(Box::new(amend(world)))),
        ("cancel", Command::Cancel { child_id: Some(id("x")), reason: None, without_undo: false }),
        ("cancel trace", Command::Cancel { child_id: None, reason: None, without_undo: false }),
        ("without undo", Command::Cancel { child_id: None, reason: None, without_undo: true }),
        (
            "delete",
            Command::Delete {
                delete: Delete {
                    child_id: Some(id("x")),
                    force: false,
                    outside: Referrers::Known(Vec::new()),
                },
                branches: Some(Vec::new()),
            },
        ),
        (
            "force delete",
            Command::Delete {
                delete: Delete { child_id: Some(id("x")), force: true, outside: Referrers::Unknown },
                branches: None,
            },
        ),
        ("restore", Command::Restore(Restore { child_id: id("x"), number: 1, to: 1 })),
        ("spare", Command::Spare { until: domain::Timestamp::from_millis(u64::from(u32::MAX)) }),
        ("wake", Command::Wake),
    ]
}

/// Adds a step after the first, which has begun.
fn amend(world: &World) -> Amend {
    let step = |name: &str| json!({"id": name, "agent_id": "writer", "task_description": "t"});
    let graph = json!({"child_id": "x", "steps": [step("s"), step("s2")], "max_cost_usd": 1});
    Amend {
        child_id: Some(id("x")),
        id: "am".parse().unwrap(),
        revision: 0,
        plan: Plan::compile(&decode::value(&graph).unwrap()).unwrap().into(),
        by: None,
        agents: world.agents.clone().into(),
        unresolved: None,
        unverified: Vec::new(),
    }
}

#[test]
fn every_status_has_an_answer_to_every_command_and_to_its_second_delivery() {
    let statuses = [
        "absent",
        "submitted",
        "queued",
        "backing off",
        "running",
        "waiting",
        "steps",
        "input_required",
        "choices",
        "other choices",
        "approval",
        "paused",
        "undoing",
        "in the line",
        "parked in the line",
        "called up",
        "completed",
        "failed",
        "cancelled",
        "timed_out",
        "aborted",
    ];
    let mut table = String::new();
    for status in statuses {
        writeln!(table, "{status}").unwrap();
        let (world, lease) = in_status(status);
        for (name, command) in commands(&world, &lease) {
            let mut world = world.clone();
            let mut answers = Vec::new();
            for _ in 0..2 {
                answers.push(match world.handle(command.clone()) {
                    Ok(events) if events.is_empty() => "nothing".to_owned(),
                    Ok(events) => {
                        let kinds =
                            events.iter().map(|event| serde_json::to_value(event).unwrap()["type"].clone());
                        kinds.map(|kind| kind.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
                    }
                    Err(refusal) => format!("refused: {}", refusal.code().0),
                });
            }
            writeln!(table, "  {name:14} {} | again: {}", answers[0], answers[1]).unwrap();
            world.check_replay();
            world.cancel_without_undo(None).unwrap();
            world.rest_if_begun();
        }
    }
    insta::assert_snapshot!(table);
}

trait RestIfBegun {
    fn rest_if_begun(&mut self);
}

impl RestIfBegun for World {
    /// Skips `rest` for a trace that was cancelled before its submission: it has no context.
    fn rest_if_begun(&mut self) {
        if self.trace.root().is_some() {
            self.rest();
        }
    }
}
