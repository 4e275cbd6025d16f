//! Every action of an administrator on a trace leaves an event that names the administrator (S7).

use domain::{
    Usd,
    wire::{Asker, Charge, DecideDispute, Decision, Delete, Raise, Referrers, Restore},
};
use serde_json::json;
use trace::{Command, Event};
use world::{World, cents, id};

fn alice() -> Asker {
    Asker::Claimed("alice".into())
}

/// The indexes of the events that name alice as the administrator.
fn signed(events: &[Event]) -> Vec<usize> {
    let is_alice = |event: &Event| serde_json::to_value(event).unwrap()["by"] == json!({"claimed": "alice"});
    events.iter().enumerate().filter(|(_, event)| is_alice(event)).map(|(place, _)| place).collect()
}

#[test]
fn s7_every_action_on_a_run_names_its_sender() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    world.claim("root");
    let raise = Raise { child_id: id("root"), max_cost_usd: Some(Usd::from_cents(200)), max_tokens: None };
    let charge = Charge { child_id: id("root"), key: "bill".parse().unwrap(), amount: cents(500), by: None };
    let decided = DecideDispute { child_id: id("root"), number: 1, decision: Decision::Dropped };
    let restore = Restore { child_id: id("root"), number: 1, to: 0 };
    let delete = Delete { child_id: None, force: true, outside: Referrers::Known(Vec::new()) };
    let actions = [
        Command::Raise(raise),
        Command::Charge(charge),
        Command::DecideDispute(decided),
        Command::Restore(restore),
        Command::Delete { delete, branches: Some(Vec::new()) },
    ];
    for action in actions {
        let shown = format!("{action:?}");
        let mut nobody = world.clone();
        let unsigned = nobody.handle(action.clone()).unwrap();
        assert_eq!(signed(&unsigned), [0; 0], "{shown}");
        let events = world.handle(action.clone().asked_by(Some(alice()))).unwrap();
        assert_eq!(signed(&events).len(), 1, "{shown}: {events:?}");
        // The administrator's name changes nothing else, and a second delivery adds no second
        // event.
        assert!(world.trace == nobody.trace, "{shown}");
        if !matches!(action, Command::Charge(_) | Command::Delete { .. }) {
            assert_eq!(world.handle(action.asked_by(Some(alice()))).unwrap(), [], "{shown}");
        }
    }
    world.check_replay();
}

/// A deletion of many contexts names the administrator in one event only.
#[test]
fn s7_a_large_deletion_names_its_sender_once() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    for number in 0..20 {
        let spawn = json!({"goal": format!("{number}"), "child_id": format!("c{number}")});
        world.spawn(&root, spawn).unwrap();
    }
    let delete = Delete { child_id: None, force: true, outside: Referrers::Known(Vec::new()) };
    let delete = Command::Delete { delete, branches: Some(Vec::new()) };
    let events = world.handle(delete.asked_by(Some(alice()))).unwrap();
    let deleted = events.iter().filter(|event| matches!(event, Event::Deleted { .. })).count();
    assert_eq!((deleted, signed(&events).len()), (21, 1));
    world.check_replay();
}
