//! Many concurrent calls on a small budget: a call that does not fit only because of calls in
//! flight waits for them (B5, B8). The last test plays random trees of agents that all want money,
//! and checks that none of them starves.

use domain::{
    Amount, Usd,
    wire::{Answer, Hold, Lease, Verdict},
};
use proptest::{prelude::*, test_runner::Config};
use serde_json::json;
use trace::{Event, Phase, Refusal, Status};
use world::{World, cents, id};

/// The answer to a worker that asks for a hold.
fn ask(world: &mut World, lease: &Lease, call: &str, amount: Amount) -> Answer {
    let hold =
        Hold { lease: lease.clone(), call_id: call.parse().unwrap(), amount, closing: false, seen: None };
    world.ask_hold(hold)
}

fn is_held(answer: &Answer) -> bool {
    matches!(answer, Answer::Done)
}

fn waits(answer: &Answer) -> bool {
    matches!(answer, Answer::Wait(_))
}

/// A root with a ceiling in cents, and running children.
fn family(limit: u64, children: &[&str]) -> (World, Vec<Lease>) {
    let mut world = World::with_root(json!({"max_cost_usd": Usd::from_cents(limit)}));
    let root = world.claim("root");
    let mut run = |name: &&str| {
        world.spawn(&root, json!({"goal": name, "child_id": name})).unwrap();
        world.claim(name)
    };
    let leases = children.iter().map(&mut run).collect();
    (world, leases)
}

#[test]
fn b5_a_call_waits_for_calls_in_flight_and_is_made_when_one_returns_its_rest() {
    let (mut world, leases) = family(20, &["a", "b"]);
    world.hold(&leases[0], "1-1", cents(15)).unwrap();
    let Answer::Wait(why) = ask(&mut world, &leases[1], "1-1", cents(10)) else {
        panic!("the hold does not wait")
    };
    assert_eq!((why.context, why.held), (id("root"), cents(15)));
    assert_eq!(world.hold(&leases[1], "1-1", cents(10)).unwrap(), [], "a repeated hold keeps its place");
    let other = world.hold(&leases[1], "1-1", cents(9)).unwrap_err();
    assert!(matches!(other, Refusal::CallConflict(_)), "another amount is another hold: {other}");
    world.settle(&leases[0], "1-1", cents(3)).unwrap();
    assert!(is_held(&ask(&mut world, &leases[1], "1-1", cents(10))));
    assert_eq!(world.trace.line().count(), 0);
}

#[test]
fn b5_a_call_that_waited_for_money_is_denied_when_it_is_spent() {
    let (mut world, leases) = family(20, &["a", "b"]);
    world.hold(&leases[0], "1-1", cents(15)).unwrap();
    assert!(waits(&ask(&mut world, &leases[1], "1-1", cents(10))));
    world.settle(&leases[0], "1-1", cents(15)).unwrap();
    let Answer::Denied(denied) = ask(&mut world, &leases[1], "1-1", cents(10)) else { panic!("not denied") };
    assert_eq!(denied.left_usd, Usd::from_cents(5));
    assert_eq!(world.trace.line().count(), 0, "a denied hold keeps no place");
    assert!(is_held(&ask(&mut world, &leases[1], "1-2", cents(5))), "a cheaper call fits");
}

#[test]
fn b5_first_come_first_served_a_large_call_is_not_overtaken_by_small_ones() {
    let (mut world, leases) = family(20, &["a", "large", "small", "late"]);
    world.hold(&leases[0], "1-1", cents(10)).unwrap();
    assert!(waits(&ask(&mut world, &leases[1], "1-1", cents(18))));
    assert!(waits(&ask(&mut world, &leases[2], "1-1", cents(2))), "a small hold waits behind the large one");
    world.settle(&leases[0], "1-1", cents(0)).unwrap();
    assert!(is_held(&ask(&mut world, &leases[2], "1-1", cents(2))), "both holds fit");
    assert!(waits(&ask(&mut world, &leases[3], "1-1", cents(1))), "a third hold does not fit");
    assert!(is_held(&ask(&mut world, &leases[1], "1-1", cents(18))));
}

#[test]
fn b5_a_worker_that_is_lost_in_the_line_leaves_its_place() {
    let (mut world, leases) = family(20, &["a", "large", "small"]);
    world.hold(&leases[0], "1-1", cents(10)).unwrap();
    assert!(waits(&ask(&mut world, &leases[1], "1-1", cents(18))));
    assert!(waits(&ask(&mut world, &leases[2], "1-1", cents(2))));
    let lease_ms = world.settings.lease_ms;
    world.pass(lease_ms - 1);
    for lease in [&leases[0], &leases[2]] {
        world.tick(lease, Default::default()).unwrap();
    }
    world.pass(1);
    assert!(is_held(&ask(&mut world, &leases[2], "1-1", cents(2))));
}

#[test]
fn b8_a_call_that_waits_for_long_parks_without_a_worker_and_keeps_its_place() {
    let (mut world, leases) = family(20, &["a", "b", "c"]);
    world.hold(&leases[0], "1-1", cents(15)).unwrap();
    assert!(waits(&ask(&mut world, &leases[1], "1-1", cents(10))));
    world.report(&leases[1], Verdict::OutOfBudget).unwrap();
    assert_eq!(
        world.status("b"),
        "paused",
        "paused even without `on_exhausted: pause`, because the budget suffices"
    );
    assert!(waits(&ask(&mut world, &leases[2], "1-1", cents(8))), "the hold waits behind `b`");

    world.settle(&leases[0], "1-1", cents(5)).unwrap();
    assert_eq!(world.queued(), [id("b")], "`b` is queued when its hold fits");
    assert!(waits(&ask(&mut world, &leases[2], "1-1", cents(8))), "a queued context keeps its place");
    let again = world.claim("b");
    assert!(is_held(&ask(&mut world, &again, "2-1", cents(10))));
    assert_eq!(world.trace.line().count(), 1);
    world.settle(&again, "2-1", cents(1)).unwrap();
    assert!(is_held(&ask(&mut world, &leases[2], "1-1", cents(8))));
}

#[test]
fn b6_a_call_beneath_a_grant_does_not_wait_for_calls_that_need_the_root() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.3}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "b"})).unwrap();
    let grant = json!({"goal": "g", "child_id": "g", "max_cost_usd": 0.1, "funding": "granted"});
    world.spawn(&root, grant).unwrap();
    let [a, b, g] = ["a", "b", "g"].map(|name| world.claim(name));
    world.spawn(&g, json!({"goal": "c", "child_id": "c"})).unwrap();
    let c = world.claim("c");
    world.hold(&a, "1-1", cents(15)).unwrap();
    world.hold(&c, "1-1", cents(8)).unwrap();
    assert!(waits(&ask(&mut world, &b, "1-1", cents(10))), "the root has 5 cents left");
    assert!(waits(&ask(&mut world, &g, "1-1", cents(5))), "the grant has 2 cents left");
    for lease in [&b, &g] {
        world.report(lease, Verdict::OutOfBudget).unwrap();
    }
    world.settle(&c, "1-1", cents(1)).unwrap();
    assert_eq!(world.queued(), [id("g")], "its grant has room; `b` still waits for the root");
    let again = world.claim("g");
    assert!(is_held(&ask(&mut world, &again, "2-1", cents(5))));
}

#[test]
fn b8_a_call_that_waited_until_the_budget_was_used_up_waits_for_a_human() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": "pause"}));
    let root = world.claim("root");
    world.hold(&root, "1-1", cents(10)).unwrap();
    assert!(waits(&ask(&mut world, &root, "1-2", cents(1))));
    world.settle(&root, "1-1", cents(10)).unwrap();
    world.report(&root, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.trace.line().count(), 0, "no call in flight can return money");
    world.pass(3 * 24 * 3600 * 1000);
    assert_eq!(world.status("root"), "paused", "the deadline is stopped meanwhile");
    world.raise("root", 100).unwrap();
    let again = world.claim("root");
    assert!(is_held(&ask(&mut world, &again, "2-1", cents(1))));
}

#[test]
fn b8_a_place_that_no_worker_takes_is_lost_after_a_lease() {
    let (mut world, leases) = family(20, &["a", "b", "c"]);
    world.hold(&leases[0], "1-1", cents(15)).unwrap();
    for (lease, amount) in [(&leases[1], 15), (&leases[2], 10)] {
        assert!(waits(&ask(&mut world, lease, "1-1", cents(amount))));
        world.report(lease, Verdict::OutOfBudget).unwrap();
    }
    world.settle(&leases[0], "1-1", cents(1)).unwrap();
    assert_eq!(["b", "c"].map(|c| world.status(c)), ["working", "paused"], "one hold fits");
    world.pass(world.settings.lease_ms);
    assert_eq!(
        ["b", "c"].map(|c| world.status(c)),
        ["working", "working"],
        "`b` was not claimed, so `c` continues first"
    );
    let c = world.claim("c");
    assert!(is_held(&ask(&mut world, &c, "2-1", cents(10))));
}

#[test]
fn b8_a_parked_call_is_bounded_by_its_deadline_and_denied_when_it_can_not_be_made() {
    let (mut world, leases) = family(20, &["a", "b"]);
    world.hold(&leases[0], "1-1", cents(15)).unwrap();
    assert!(waits(&ask(&mut world, &leases[1], "1-1", cents(10))));
    world.report(&leases[1], Verdict::OutOfBudget).unwrap();
    let mut late = world.clone();
    for _ in 0..8 {
        late.pass(9_000);
        late.tick(&leases[0], Default::default()).ok();
    }
    assert_eq!(late.status("b"), "timed_out");

    world.settle(&leases[0], "1-1", cents(15)).unwrap();
    let again = world.claim("b");
    assert!(
        matches!(ask(&mut world, &again, "2-1", cents(10)), Answer::Denied(_)),
        "the next attempt receives the denial"
    );
}

#[test]
fn b8_a_context_that_paused_goes_on_when_a_grant_returns_what_it_lacked() {
    let mut world = World::with_root(json!({"max_cost_usd": 1, "on_exhausted": "pause"}));
    let root = world.claim("root");
    for (child, terms) in
        [("poor", json!({"timeout_ms": 0})), ("granted", json!({"max_cost_usd": 0.9, "funding": "granted"}))]
    {
        let spawn = world::with(json!({"goal": child, "child_id": child}), terms);
        world.spawn(&root, spawn).unwrap();
    }
    let (granted, poor) = (world.claim("granted"), world.claim("poor"));
    let denied = ask(&mut world, &poor, "1-1", cents(20));
    assert!(matches!(denied, Answer::Denied(ref denied) if denied.pause), "{denied:?}");
    world.report(&poor, Verdict::OutOfBudget).unwrap();
    assert_eq!(world.status("poor"), "paused");
    world.complete(&granted, "it needed nothing").unwrap();
    let again = world.claim("poor");
    assert!(is_held(&ask(&mut world, &again, "2-1", cents(20))));
}

#[test]
fn b6_a_grant_waits_for_calls_in_flight_too() {
    let grant = json!({"goal": "x", "child_id": "x", "max_cost_usd": 0.1, "funding": "granted"});
    let mut world = World::with_root(json!({"max_cost_usd": 0.2}));
    let root = world.claim("root");
    world.hold(&root, "1-1", cents(15)).unwrap();
    let busy = world.spawn(&root, grant.clone()).unwrap_err();
    assert!(matches!(busy, Refusal::Busy(_)), "{busy}");
    world.settle(&root, "1-1", cents(10)).unwrap();
    world.spawn(&root, grant).unwrap();

    let step =
        |id: &str, more| world::with(json!({"id": id, "agent_id": "writer", "task_description": "x"}), more);
    let granted = step("granted", json!({"max_cost_usd": 0.1, "funding": "granted"}));
    let mut world = World::with_graph(json!({"mode": "parallel", "max_cost_usd": 0.2, "steps": [
        step("busy", json!({})), {"id": "group", "steps": [step("first", json!({})), granted]},
    ]}));
    let (busy, first) = (world.claim("busy"), world.claim("first"));
    world.hold(&busy, "1-1", cents(15)).unwrap();
    world.complete(&first, "ok").unwrap();
    assert_eq!(world.status("group"), "paused", "the next step needs ten cents, and five are left");
    world.settle(&busy, "1-1", cents(10)).unwrap();
    assert_eq!(world.queued(), [id("granted")]);
    world.run("granted", "ok");
    world.complete(&busy, "ok").unwrap();
    assert_eq!(world.status("graph"), "completed");
    world.rest();
}

/// The motivating case: ten steps share twenty cents; each holds three cents and costs less than
/// one.
#[test]
fn b5_ten_parallel_steps_all_end_well_on_a_budget_that_suffices() {
    let steps: Vec<_> = (0..10)
        .map(|n| json!({"id": format!("s{n}"), "agent_id": "writer", "task_description": "x"}))
        .collect();
    let mut world = World::with_graph(json!({"mode": "parallel", "max_cost_usd": 0.2, "steps": steps}));
    let mut waiting: Vec<Lease> = (0..10).map(|n| world.claim(&format!("s{n}"))).collect();
    let nano = |n| Amount::cost(Usd::from_nanos(n));
    while !waiting.is_empty() {
        let mut held = Vec::new();
        waiting.retain(|lease| {
            let answer = ask(&mut world, lease, "1-1", nano(37_200_000));
            assert!(is_held(&answer) || waits(&answer), "{answer:?}");
            if is_held(&answer) {
                held.push(lease.clone());
            }
            waits(&answer)
        });
        assert!(!held.is_empty(), "no hold was granted");
        for lease in held {
            world.settle(&lease, "1-1", nano(9_300_000)).unwrap();
            world.complete(&lease, "ok").unwrap();
        }
    }
    assert_eq!(
        (world.status("graph").as_str(), world.node("graph").budget.spent),
        ("completed", nano(93_000_000))
    );
    world.rest();
}

/// An agent of the random play: its remaining calls, each with its hold and its cost.
#[derive(Debug, Clone)]
struct Actor {
    name: String,
    lease: Option<Lease>,
    calls: Vec<(u64, u64)>,
    in_flight: bool,
    number: u32,
}

#[derive(Debug, Clone)]
struct Child {
    parent: usize,
    ceiling: Option<u64>,
    granted: bool,
    pause: bool,
    calls: Vec<(u64, u64)>,
}

fn children() -> impl Strategy<Value = Vec<Child>> {
    let call = (1u64..40, 0u64..=100).prop_map(|(hold, part)| (hold, hold * part / 100));
    let child = (
        any::<usize>(),
        proptest::option::of(5u64..60),
        any::<bool>(),
        any::<bool>(),
        prop::collection::vec(call, 1..4),
    )
        .prop_map(|(parent, ceiling, granted, pause, calls)| Child {
            parent,
            ceiling,
            granted,
            pause,
            calls,
        });
    prop::collection::vec(child, 2..9)
}

impl Actor {
    /// One action, if the agent can act: claim, ask, end the call, or finish. `choice` selects
    /// among several.
    fn act(&mut self, world: &mut World, choice: u8) -> Result<bool, TestCaseError> {
        let Some(lease) = self.lease.clone() else {
            self.lease = world.try_claim(&self.name).ok();
            return Ok(self.lease.is_some());
        };
        let call = format!("{}-{}", lease.attempt, self.number);
        let Some((hold, cost)) = self.calls.first().copied() else {
            self.lease = None;
            return Ok(world.complete(&lease, "done").is_ok());
        };
        if self.in_flight {
            match choice % 4 {
                0 => drop(world.release(&lease, &call).unwrap()),
                _ => drop(world.settle(&lease, &call, cents(cost)).unwrap()),
            }
            self.calls.remove(0);
            (self.in_flight, self.number) = (false, self.number + 1);
            return Ok(true);
        }
        if !world.node(&self.name).is_live() {
            return Ok(false);
        }
        match ask(world, &lease, &call, cents(hold)) {
            Answer::Done => {
                self.in_flight = true;
                Ok(true)
            }
            Answer::Wait(_) if choice.is_multiple_of(3) => {
                world.report(&lease, Verdict::OutOfBudget).unwrap();
                let parked = world.status(&self.name);
                prop_assert_eq!(parked, "paused", "a sufficient budget ends no context");
                self.lease = None;
                Ok(true)
            }
            Answer::Wait(_) => Ok(false),
            Answer::Denied(denied) => {
                let left = world.trace.context(&denied.context).unwrap().budget.left_for_children().cost_usd;
                prop_assert!(
                    left < Usd::from_cents(hold),
                    "denied {hold} cents, {left} are left apart from calls"
                );
                if denied.pause {
                    world.report(&lease, Verdict::OutOfBudget).unwrap();
                    self.lease = None;
                    return Ok(world.status(&self.name) != "paused");
                }
                self.calls.remove(0);
                self.number += 1;
                Ok(true)
            }
            Answer::Halt { .. } => {
                world.report(&lease, Verdict::OutOfBudget).ok();
                self.lease = None;
                Ok(true)
            }
            other => Err(TestCaseError::fail(format!("{other:?}"))),
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: world::cases(48), failure_persistence: None, ..Config::default() })]

    /// b1 to b3 hold after every command (`World` checks them), and no agent starves: an agent that
    /// has not ended when nothing moves any more lacks a budget for another reason than calls in
    /// flight.
    #[test]
    fn b5_b8_nobody_starves_and_nobody_passes_a_limit(limit in 20u64..120, children in children(), choices in prop::collection::vec(any::<u8>(), 600)) {
        let mut world = World::with_root(json!({"max_cost_usd": Usd::from_cents(limit)}));
        let root = world.claim("root");
        let mut actors: Vec<Actor> = Vec::new();
        for (n, child) in children.into_iter().enumerate() {
            let name = format!("c{n}");
            let parent = if n == 0 { None } else { actors.get(child.parent % (n + 1)) };
            let lease = parent.and_then(|parent| parent.lease.clone()).unwrap_or_else(|| root.clone());
            let spawn = json!({"goal": name, "child_id": name, "timeout_ms": 0,
                "max_cost_usd": child.ceiling.map(Usd::from_cents), "funding": if child.granted { "granted" } else { "shared" },
                "on_exhausted": if child.pause { "pause" } else { "abort" }});
            if world.spawn(&lease, spawn).is_ok() {
                let lease = Some(world.claim(&name));
                actors.push(Actor { name, lease, calls: child.calls, in_flight: false, number: 1 });
            }
        }
        for choice in &choices {
            let place = *choice as usize % actors.len().max(1);
            if let Some(actor) = actors.get_mut(place) {
                actor.act(&mut world, choice.wrapping_mul(31))?;
            }
        }
        // All agents act in turns until nothing moves.
        let mut moved = true;
        while moved {
            moved = false;
            for actor in &mut actors {
                moved |= actor.act(&mut world, 1)?;
            }
        }
        for actor in &actors {
            let node = world.node(&actor.name);
            prop_assert!(!actor.in_flight, "{} has a call in flight", actor.name);
            let stuck = matches!(node.status, Status::Working(Phase::Running { .. } | Phase::Queued { .. }) | Status::Submitted { .. });
            prop_assert!(!stuck, "{} starves: {:?}", actor.name, node.status);
            let waiting = &node.lifecycle.waiting;
            prop_assert!(waiting.is_empty(), "{} waits for a hold, but no call is in flight", actor.name);
        }
        world.cancel(None).unwrap();
        world.rest();
    }
}

/// The event of a waiting hold, as observers of a run read it.
#[test]
fn b5_the_log_shows_which_contexts_wait() {
    let (mut world, leases) = family(20, &["a", "b"]);
    world.hold(&leases[0], "1-1", cents(15)).unwrap();
    let events = world.hold(&leases[1], "1-1", cents(10)).unwrap();
    assert!(
        matches!(events.as_slice(), [Event::HoldQueued { amount, .. }] if *amount == cents(10)),
        "{events:?}"
    );
    let shown = world.trace.snapshot(world.node("b")).waits.expect("the context waits for a hold");
    assert!(shown.contains("$0.10") && shown.contains("root"), "{shown}");
}
