//! The own cost of a context, compared with its journal (B19).

use domain::{
    Amount, decode,
    wire::{Charge, DecideDispute, Decision, HistoryEntry},
};
use serde_json::{Value, json};
use trace::{Command, Statement, Why};
use world::{World, cents, id};

/// A journal of these steps.
fn journal(steps: &[Value]) -> Vec<HistoryEntry> {
    let entry = |(number, step): (u32, &Value)| {
        let entry = json!({"trace_id": "0af7651916cd43dd8448eb211c80319c", "child_id": "root", "number": number,
            "attempt": 1, "at": 0, "step": step});
        decode::value(&entry).unwrap_or_else(|problems| panic!("{problems}"))
    };
    (1..).zip(steps).map(entry).collect()
}

fn answer(call_id: &str, cents: u64) -> Value {
    let amount = json!({"cost_usd": format!("0.{cents:02}"), "tokens": 0});
    json!({"model": {"call_id": call_id, "model": "test/model", "max_tokens": 10,
        "cost": {"amount": amount, "prices": "none"}}})
}

fn lost(call_id: &str, cents: u64) -> Value {
    let amount = json!({"cost_usd": format!("0.{cents:02}"), "tokens": 0});
    json!({"lost": {"call_id": call_id, "amount": amount, "cause": "no answer"}})
}

/// Asserts that the journal's sum plus the differences is the own cost.
fn statement(world: &World, steps: &[Value]) -> (Vec<(String, Why)>, Statement) {
    let statement = world.node("root").statement(&journal(steps));
    let (mut expected, mut own) = (statement.journal, statement.own);
    for line in &statement.differences {
        expected = expected.checked_add(line.booked).unwrap();
        own = own.checked_add(line.journaled).unwrap();
    }
    assert_eq!((expected, statement.own), (own, world.node("root").budget.own), "{statement:#?}");
    let name =
        |call_id: &Option<domain::CallId>| call_id.as_ref().map_or_else(String::new, ToString::to_string);
    let lines = statement.differences.iter().map(|line| (name(&line.call_id), line.why)).collect();
    (lines, statement)
}

fn lines(expected: &[(&str, Why)]) -> Vec<(String, Why)> {
    expected.iter().map(|(id, why)| ((*id).to_owned(), *why)).collect()
}

#[test]
fn b19_the_journal_and_what_it_can_not_have_add_up_to_the_own_cost() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    for (call, cost) in [("1-1", 3), ("1-2", 4), ("1-3", 5)] {
        world.hold(&root, call, cents(10)).unwrap();
        if call != "1-3" {
            world.settle(&root, call, cents(cost)).unwrap();
        }
    }
    let forfeit = Command::Forfeit { lease: root.clone(), call_id: "1-3".parse().unwrap() };
    world.handle(forfeit).unwrap();
    let told = [answer("1-1", 3), answer("1-2", 4), lost("1-3", 10)];
    assert_eq!(statement(&world, &told).0, lines(&[]), "the journal has every call");
    assert_eq!(world.node("root").estimates(), [(&"1-3".parse().unwrap(), cents(10))]);
    // Revoked entries stay paid; copied entries of a branch were paid for in the other run.
    let from = json!({"trace_id": "1af7651916cd43dd8448eb211c80319c", "child_id": "root", "step": 1});
    let branched = [
        json!({"branched": {"from": from, "copies": 1}}),
        answer("branched-1", 50),
        answer("1-1", 3),
        answer("1-2", 4),
        json!({"restored": {"number": 1, "to": 1}}),
        lost("1-3", 10),
    ];
    assert_eq!(statement(&world, &branched).0, lines(&[]));
    assert_eq!(
        statement(&world, &told[1..2]).0,
        lines(&[("1-1", Why::NotJournaled), ("1-3", Why::Estimated)])
    );

    // The real cost arrives later; then a charge, a program's cost, and a cost beyond the remaining
    // budget.
    world.settle(&root, "1-3", cents(2)).unwrap();
    world.settle(&root, "external-abc", cents(1)).unwrap();
    let charge = |key: &str, amount| {
        let (child_id, key) = (id("root"), key.parse().unwrap());
        Command::Charge(Charge { child_id, key, amount, by: None })
    };
    world.handle(charge("invoice", cents(7))).unwrap();
    world.handle(charge("large", cents(100))).unwrap();
    let all = [
        ("1-3", Why::Corrected),
        ("external-abc", Why::OfProgram),
        ("invoice", Why::Charge),
        ("large", Why::Charge),
    ];
    assert_eq!(statement(&world, &told).0, lines(&all));
    let number = world.node("root").disputes[0].number;
    let decided = DecideDispute { child_id: id("root"), number, decision: Decision::Accepted };
    world.handle(Command::DecideDispute(decided)).unwrap();
    assert_eq!(statement(&world, &told).0, lines(&[&all[..], &[("", Why::Dispute)]].concat()));
}

/// Only the sum of old calls is kept. The journal has each of them, and comparing only a part of it
/// stays correct.
#[test]
fn b19_calls_that_were_folded_are_accounted_for() {
    let mut world = World::with_root(json!({"max_cost_usd": 10}));
    let root = world.claim("root");
    let calls: Vec<String> = (1..=300).map(|n| format!("1-{n}")).collect();
    for call in &calls {
        world.hold(&root, call, cents(2)).unwrap();
        world.settle(&root, call, cents(1)).unwrap();
    }
    let told: Vec<Value> = calls.iter().map(|call| answer(call, 1)).collect();
    assert_eq!(statement(&world, &told).0, lines(&[]));
    let (differences, part) = statement(&world, &told[1..]);
    assert_eq!(differences, lines(&[("", Why::Older)]));
    assert_eq!(part.differences[0].booked, cents(1));
    // A journaled call that is not booked yet is reported too.
    world.hold(&root, "1-301", cents(2)).unwrap();
    let early: Vec<Value> = told.iter().cloned().chain([answer("1-301", 2)]).collect();
    let (differences, whole) = statement(&world, &early);
    assert_eq!(differences, lines(&[("1-301", Why::NotBookedYet)]));
    assert_eq!((whole.differences[0].booked, whole.own), (Amount::ZERO, cents(300)));
}
