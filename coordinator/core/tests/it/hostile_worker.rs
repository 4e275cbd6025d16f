//! The stolen credential of a pool (S6). Its holder may send anything on the subjects of that pool,
//! and here also knows the leases of all contexts. It sends thousands of random asks, results and
//! costs about traces and contexts of its own and of other pools.

use domain::{
    AgentProfile, Amount, ChildId, PoolName, Tokens, Usd, decode,
    wire::{
        self, Claim, Failure, Hold, Lease, Payload, Progress, Report, Resume, SettledCall, Tick, Verdict,
    },
};
use serde_json::json;
use trace::{Command, ContextSpec, Spawn};
use world::{World, cents, dice::Dice, id};

/// The number of commands in one attack.
const COMMANDS: usize = 1_500;

/// From zero up to the largest amount that a message can carry.
fn any_amount(dice: &mut Dice) -> Amount {
    let usd = match dice.below(4) {
        0 => Usd::ZERO,
        1 => Usd::from_cents(dice.roll() % 50),
        2 => Usd::from_cents(dice.roll() % 5_000),
        _ => Usd::from_cents(90_000_000),
    };
    Amount::new(usd, Tokens::new(dice.roll() % 10_000))
}

fn pool_a() -> PoolName {
    "a".parse().unwrap()
}

/// A trace with work for both pools: a root of pool `b`, a child in each pool, money held and
/// spent.
fn mixed() -> World {
    let mut world = World::new();
    for (agent, pool) in [("alpha", "a"), ("beta", "b")] {
        world.agent(json!({"agent_id": agent, "pool": pool}));
    }
    let root = json!({"goal": "g", "child_id": "root", "agent_id": "beta", "max_cost_usd": 10});
    world.submit(root).unwrap();
    let root = world.claim("root");
    world.pay(&root, "r1", cents(25)).unwrap();
    world.hold(&root, "r2", cents(50)).unwrap();
    for (child, agent) in [("mine", "alpha"), ("theirs", "beta"), ("waits", "beta")] {
        let spawn = json!({"goal": child, "child_id": child, "agent_id": agent, "max_cost_usd": 2});
        world.spawn(&root, spawn).unwrap();
    }
    let theirs = world.claim("theirs");
    world.pay(&theirs, "t1", cents(30)).unwrap();
    world.hold(&theirs, "t2", cents(40)).unwrap();
    world.claim("mine");
    world
}

/// A trace without work for the attacking pool.
fn foreign() -> World {
    let mut world = World::new();
    world.agent(json!({"agent_id": "beta", "pool": "b"}));
    world.submit(json!({"goal": "g", "child_id": "root", "agent_id": "beta", "max_cost_usd": 5})).unwrap();
    let root = world.claim("root");
    world.hold(&root, "r1", cents(50)).unwrap();
    world
}

/// A random command about any context of the world, with the lease of its latest attempt if one
/// exists.
fn hostile(dice: &mut Dice, world: &World) -> Command {
    let contexts = world.trace.contexts();
    let child: ChildId = contexts[dice.below(contexts.len())].id.clone();
    let known = ["root", "mine", "theirs"].contains(&child.as_str())
        && world.trace.context(&child).is_some_and(|node| node.attempt() > 0);
    let lease = if known && dice.below(8) > 0 {
        world.lease(&child)
    } else {
        Lease { child_id: child.clone(), attempt: 1, token: "guessed".parse().unwrap() }
    };
    let call = |dice: &mut Dice| format!("c{}", dice.below(40)).parse().unwrap();
    let of_others = ["r1", "r2", "t1", "t2"];
    let call_id = match dice.below(3) {
        0 => of_others[dice.below(of_others.len())].parse().unwrap(),
        _ => call(dice),
    };
    let amount = any_amount(dice);
    let report = |verdict| {
        let lease = lease.clone();
        Command::Report(Box::new(Report { lease, progress: Progress::default(), verdict }))
    };
    match dice.below(14) {
        0 => {
            let token = format!("token-{}", dice.below(20)).parse().unwrap();
            Command::Claim(Claim { child_id: child, worker_id: "thief".parse().unwrap(), token })
        }
        1 => Command::Tick(Tick {
            lease,
            progress: Progress { steps: u32::try_from(dice.below(30)).unwrap(), ..Progress::default() },
        }),
        2 | 3 => Command::Hold(Hold { lease, call_id, amount, closing: dice.below(2) == 0, seen: None }),
        4..=6 => Command::Settle { lease, call_id, amount, model: None },
        7 => Command::Release { lease, call_id },
        8 => Command::Forfeit { lease, call_id },
        9 => Command::Resume(Resume { lease, settled: vec![SettledCall { call_id, amount, model: None }] }),
        10 => {
            let name = format!("s{}", dice.below(6));
            let agent = ["alpha", "beta"][dice.below(2)];
            let spawn = json!({"goal": "g", "child_id": name, "agent_id": agent, "max_cost_usd": 1});
            let spawn: wire::Spawn = decode::value(&spawn).unwrap();
            let spec = ContextSpec::from_spawn(&spawn, &[], &id(&name)).unwrap();
            let agents: Vec<AgentProfile> = world.agents.clone();
            Command::Spawn(Box::new(Spawn { lease, spec, plan: None, agents: agents.into() }))
        }
        11 => Command::SetValue {
            key: format!("{}.k", lease.child_id).parse().unwrap(),
            lease,
            value: json!(dice.roll()).into(),
        },
        // Rare, so that the context stays open to attacks for a while.
        12 if dice.below(40) == 0 => report(Verdict::Completed(Payload::Inline(json!("mine").into()))),
        13 if dice.below(40) == 0 => report(Verdict::Failed(Failure::retryable("no"))),
        _ => Command::Settle { lease, call_id, amount, model: None },
    }
}

/// The own spending and holds of each context of another pool.
fn books_of_others(world: &World) -> Vec<(ChildId, Amount, usize, String)> {
    let others = world
        .trace
        .contexts()
        .iter()
        .filter(|node| node.spec.agent_id.as_ref().is_some_and(|agent| agent.as_str() == "beta"));
    let of = |node: &trace::ContextNode| {
        let holds = format!("{:?}", node.calls.open().collect::<Vec<_>>());
        (node.id.clone(), node.budget.own, node.disputes.len(), holds)
    };
    others.filter(|node| !node.id.as_str().starts_with('s')).map(of).collect()
}

#[test]
fn s6_a_stolen_credential_of_a_pool_reaches_only_the_remaining_budget_there() {
    let mut refused = 0;
    for seed in 0..4 {
        let (mut dice, mut world, mut other) = (Dice::new(seed), mixed(), foreign());
        let untouched = other.trace.clone();
        let before = books_of_others(&world);
        for number in 0..COMMANDS {
            let at_others = dice.below(4) == 0;
            let target = if at_others { &mut other } else { &mut world };
            let command = hostile(&mut dice, target);
            let shown = format!("seed {seed}, command {number}: {command:?}");
            target.now = target.now.plus_millis(1);
            let decided = target.handle(command.from_pool(pool_a()));
            refused += usize::from(decided.is_err());
            assert!(other.trace == untouched, "a trace of another pool has changed: {shown}");
            assert_eq!(books_of_others(&world), before, "{shown}");
            let mine = &world.node("mine").budget;
            let most = mine.ceilings.limit.cost_usd.nanos() * 2;
            assert!(
                mine.spent.cost_usd.nanos() <= most,
                "{} of {}: {shown}",
                mine.spent,
                mine.ceilings.limit
            );
        }
        // The root pays for its descendants, and never more than their ceilings.
        let (root, mine) = (&world.node("root").budget, &world.node("mine").budget);
        let spawned = world.trace.contexts().iter().filter(|node| node.id.as_str().starts_with('s'));
        assert!(spawned.clone().all(|node| node.budget.own.is_zero()), "an unclaimed context has costs");
        let own: u64 = before.iter().map(|(_, own, ..)| own.cost_usd.nanos()).sum();
        assert_eq!(root.spent.cost_usd.nanos(), own + mine.spent.cost_usd.nanos(), "seed {seed}");
        world.check_replay();
    }
    assert!(refused > COMMANDS, "too few commands were refused: {refused}");
}

/// A cost far beyond its hold, with no money left for it, is not booked but stored as a dispute
/// with its worker.
#[test]
fn s6_b18_a_cost_far_beyond_its_hold_is_disputed_with_its_worker() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let root = world.claim("root");
    world.pay(&root, "paid", cents(60)).unwrap();
    world.hold(&root, "call", cents(10)).unwrap();
    // 30 cents are left beside the hold, and are used first.
    world.settle(&root, "call", Amount::cost(Usd::from_cents(90_000_000))).unwrap();
    let node = world.node("root");
    assert_eq!(node.budget.spent, cents(100), "the context spent its whole ceiling");
    assert_eq!(node.disputes[0].amount, cents(90_000_000 - 40));
    let sent_by = serde_json::to_value(&node.disputes[0].sent_by).unwrap();
    assert_eq!(sent_by, json!({"worker": {"worker_id": "worker", "attempt": 1}}));
    // A second delivery changes nothing; a different sum is a conflict.
    assert_eq!(world.settle(&root, "call", Amount::cost(Usd::from_cents(90_000_000))).unwrap(), []);
    world.settle(&root, "call", cents(41)).unwrap_err();
    world.check_replay();
}

/// B11: a provider that charges more than the hold is paid even above the ceiling, up to twice the
/// hold.
#[test]
fn b11_a_cost_beyond_its_hold_is_paid_up_to_twice_the_hold() {
    for (cost, booked) in [(150, 150), (200, 200), (201, 200), (5_000, 200)] {
        let mut world = World::with_root(json!({"max_cost_usd": 1}));
        let root = world.claim("root");
        world.hold(&root, "call", cents(100)).unwrap();
        world.settle(&root, "call", cents(cost)).unwrap();
        let budget = world.node("root").budget.snapshot();
        assert_eq!((budget.spent, budget.disputed), (cents(booked), cents(cost - booked)), "{cost}");
        world.check_replay();
    }
}
