//! Checkpoints (W5): restoring a live agent to a step of its journal, and branching from one.

use domain::wire::{Checkpoint, Lease, Progress, Restore, RestorePoint, Verdict};
use serde_json::json;
use trace::{Command, Phase, Refusal, Requeue, Status};
use world::{World, cents, id};

fn restore(child: &str, number: u32, to: u32) -> Command {
    Command::Restore(Restore { child_id: id(child), number, to })
}

fn code(answer: Result<Vec<trace::Event>, Refusal>) -> &'static str {
    answer.map(|events| format!("{events:?}")).unwrap_err().code().0
}

#[test]
fn w5_a_restore_fences_the_live_attempt_and_counts_no_retry() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    world.handle(restore("root", 1, 3)).unwrap();
    assert!(world.tick(&lease, Progress::default()).is_err(), "the earlier attempt is fenced");
    assert!(world.complete(&lease, "too late").is_err());
    let node = world.trace.context(&id("root")).unwrap();
    assert!(matches!(node.status, Status::Working(Phase::Queued { .. })), "{:?}", node.status);
    assert_eq!(node.retries(), 0);
    let next = world.claim("root");
    assert_eq!(next.attempt, 2);
    let work = world.work(&id("root")).unwrap();
    assert_eq!(work.restore, Some(RestorePoint { number: 1, to: 3, answers: 0 }));
    world.complete(&next, "done").unwrap();
    world.rest();
}

/// A call in flight is already paid for. It may finish and is booked at its cost, even if its hold
/// is the whole budget.
#[test]
fn w5_a_restore_lets_a_call_in_flight_finish_and_nothing_else_begin() {
    type End = fn(&mut World, &Lease);
    let ends: [(&str, End); 4] = [
        ("settled", |world, lease| drop(world.settle(lease, "1-1", cents(4)).unwrap())),
        ("released", |world, lease| {
            let (lease, call_id) = (lease.clone(), "1-1".parse().unwrap());
            world.handle(Command::Release { lease, call_id }).unwrap();
        }),
        ("handed back", |world, lease| drop(world.report(lease, Verdict::HandedBack).unwrap())),
        ("lost", |world, _| drop(world.pass(10_000))),
    ];
    for (how, end) in ends {
        let mut world = World::with_root(json!({"max_cost_usd": 0.1}));
        let lease = world.claim("root");
        world.hold(&lease, "1-1", cents(10)).unwrap();
        world.handle(restore("root", 1, 3)).unwrap();
        // The lease can be renewed for as long as the call takes, also after a second restore.
        for number in 2..5 {
            world.now = world.now.plus_millis(9_000);
            world.tick(&lease, Progress::default()).unwrap();
            world.handle(restore("root", number, 2)).unwrap();
            assert!(matches!(world.try_claim("root").unwrap_err(), Refusal::Taken { .. }));
        }
        let refused = [
            world.hold(&lease, "1-2", cents(1)).unwrap_err(),
            world.spawn(&lease, json!({"goal": "c", "child_id": "c"})).unwrap_err(),
            world.complete(&lease, "too late").unwrap_err(),
        ];
        assert!(refused.iter().all(|refusal| refusal.code().0 == "restored"), "{refused:?}");
        world.check_replay();
        end(&mut world, &lease);
        let next = world.claim("root");
        assert_eq!(world.work(&id("root")).unwrap().restore.unwrap().number, 4, "{how}");
        assert!(world.tick(&lease, Progress::default()).is_err(), "{how}: the earlier attempt is fenced");
        let open = world.node("root").calls.open().count();
        match how {
            "settled" => assert_eq!((world.node("root").budget.spent, open), (cents(4), 0), "{how}"),
            "released" => assert_eq!((world.node("root").budget.spent, open), (cents(0), 0), "{how}"),
            _ => assert_eq!(open, 1, "{how}: the cost of the call is unknown"),
        }
        world.resume(&next, &[]).unwrap();
        world.complete(&next, "done").unwrap();
        world.rest();
    }
}

#[test]
fn w5_a_parked_context_is_queued_and_a_queued_one_stays_queued() {
    for parked in [true, false] {
        let mut world = World::with_root(json!({}));
        if parked {
            let lease = world.claim("root");
            world.ask_human(&lease, "which?").unwrap();
        }
        let events = world.handle(restore("root", 1, 0)).unwrap();
        let queued =
            events.iter().any(|event| matches!(event, trace::Event::Requeued { why: Requeue::Restored, .. }));
        assert_eq!(queued, parked, "{events:?}");
        let lease = world.claim("root");
        let answers = u32::from(parked);
        assert_eq!(
            world.work(&id("root")).unwrap().restore,
            Some(RestorePoint { number: 1, to: 0, answers })
        );
        world.ask_human(&lease, "which?").unwrap();
        assert_eq!(
            world.trace.question(&id("root")).unwrap().number,
            answers + 1,
            "the number of a removed question is not used again"
        );
        if parked {
            assert_eq!(code(world.answer("root", 1, "late")), "no_question");
            assert_eq!(code(world.answer("root", 1, "which?")), "no_question");
        }
        world.answer("root", answers + 1, "that").unwrap();
        let lease = world.claim("root");
        world.complete(&lease, "ok").unwrap();
        world.rest();
    }
}

#[test]
fn w5_a_restore_is_done_once_by_its_number_and_the_last_one_counts() {
    let mut world = World::with_root(json!({}));
    assert_eq!(code(world.handle(restore("root", 0, 1))), "not_restorable");
    assert_eq!(code(world.handle(restore("root", 2, 1))), "not_restorable");
    let lease = world.claim("root");
    world.handle(restore("root", 1, 5)).unwrap();
    assert!(world.handle(restore("root", 1, 5)).unwrap().is_empty(), "a second delivery changes nothing");
    assert_eq!(code(world.handle(restore("root", 1, 4))), "not_restorable");
    let again = world.claim("root");
    assert!(world.handle(restore("root", 1, 5)).unwrap().is_empty(), "a late restore does not fence");
    world.tick(&again, Progress::default()).unwrap();
    assert!(world.tick(&lease, Progress::default()).is_err());
    world.handle(restore("root", 2, 2)).unwrap();
    assert_eq!(world.work(&id("root")).unwrap().restore, Some(RestorePoint { number: 2, to: 2, answers: 0 }));
    world.check_replay();
}

#[test]
fn w5_ended_contexts_graphs_and_parents_are_not_restored() {
    let mut world = World::with_root(json!({}));
    let lease = world.claim("root");
    world.spawn(&lease, json!({"goal": "c", "child_id": "c"})).unwrap();
    world.wait(&lease, &["c"]).unwrap();
    assert_eq!(code(world.handle(restore("root", 1, 1))), "not_restorable");
    let child = world.claim("c");
    world.complete(&child, "ok").unwrap();
    let refusal = world.handle(restore("c", 1, 1)).unwrap_err();
    assert!(refusal.to_string().contains("branch"), "{refusal}");
    world.handle(restore("root", 1, 1)).unwrap();
    assert_eq!(code(world.handle(restore("nobody", 1, 1))), "unknown_context");
    let steps = json!([{"id": "s", "agent_id": "writer", "task_description": "t"}]);
    let mut world = World::with_graph(json!({"child_id": "graph", "steps": steps}));
    assert_eq!(code(world.handle(restore("graph", 1, 1))), "not_restorable");
}

#[test]
fn w5_a_submission_branches_and_a_child_does_not() {
    let from = json!({"trace_id": "0af7651916cd43dd8448eb211c80319c", "child_id": "writer", "step": 4});
    let mut world = World::new();
    let refused = world.submit(json!({"goal": "g", "child_id": "root", "branch_from": from})).unwrap_err();
    assert!(refused.to_string().contains("branch_from") && world.trace.root().is_none(), "{refused}");
    world.agent(json!({"agent_id": "thinker", "kind": "llm", "model": "scripted", "builtin": null}));
    let spec = json!({"goal": "g", "child_id": "root", "agent_id": "thinker", "branch_from": from});
    world.submit(spec).unwrap();
    let expected = Checkpoint {
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        child_id: id("writer"),
        step: 4,
    };
    let lease = world.claim("root");
    assert_eq!(world.work(&id("root")).unwrap().branch_from, Some(expected));
    let spawned = world.spawn(&lease, json!({"goal": "c", "child_id": "c", "branch_from": from}));
    assert_eq!(code(spawned), "child_branches");
    assert!(world.trace.context(&id("c")).is_none());
    world.report(&lease, Verdict::HandedBack).unwrap();
    world.check_replay();
}

#[test]
fn w5_the_next_attempt_gets_the_length_of_the_journal() {
    let mut world = World::with_root(json!({}));
    let lease = world.claim("root");
    assert_eq!(world.work(&id("root")).unwrap().journaled, 0);
    world.tick(&lease, Progress { journaled: 5, ..Progress::default() }).unwrap();
    world.tick(&lease, Progress { journaled: 3, ..Progress::default() }).unwrap();
    world.report(&lease, Verdict::HandedBack).unwrap();
    world.claim("root");
    assert_eq!(world.work(&id("root")).unwrap().journaled, 5);
    world.check_replay();
}
