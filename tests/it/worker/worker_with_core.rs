//! The real worker and the real core, joined by the memory bus and a coordinator loop without a
//! store: each must understand the other's messages.

use std::collections::BTreeSet;

use bus::{Bus, Connect, Consumer, Delivery, Memory, Nats, Outgoing, Topology};
use domain::{
    ChildId, Timestamp, decode,
    span::Headers,
    subject::{Filter, Namespace, Subject},
    wire::{self, Answer, Ask, AskMessage, ContextStatus, ContextValue, Payload},
};
use host::clock::Clock;
use serde_json::{Value, json};
use trace::{Command, ContextSpec, Refusal, Spawn, answer_refusal};
use trellis_tests::{servers::NatsServer, subjects::pool};
use world::{World, home, id, with};

const AGENTS: [&str; 7] = ["echo", "spend", "tree", "chain", "fail", "ask", "share"];

/// A world whose root runs a built-in agent, and whose profiles are the built-in agents.
fn world(agent: &str, inputs: Value, terms: Value) -> World {
    let mut world = World::new();
    for agent in AGENTS {
        world.agent(json!({"agent_id": agent, "builtin": agent}));
    }
    let root = json!({"goal": "the goal", "child_id": "root", "agent_id": agent, "inputs": inputs});
    world.submit(with(root, terms)).unwrap();
    world
}

/// Lets a worker run the world until its root ends or waits for a human or a raise.
async fn live(world: World) -> World {
    let clock = Clock::simulated(world.now);
    let bus = Bus::Memory(Memory::starting_at(Namespace::default(), world.now));
    live_on(bus, clock, world).await
}

async fn live_on(bus: Bus, clock: Clock, mut world: World) -> World {
    let (shutdown, told) = tokio::sync::oneshot::channel::<()>();
    let config = worker::Config { slots: 4, clock, ..worker::Config::default() };
    let worker = tokio::spawn(worker::run(config, bus.clone(), async {
        let _ = told.await;
    }));
    let mut asks = bus.serve(&Filter::AsksOf(home().partition)).await.unwrap();
    let mut reports = bus.consume(&Consumer::Report(home().partition)).await.unwrap();
    reports.want(1_000_000);
    let mut sent = BTreeSet::new();
    loop {
        world.now = clock.now();
        dispatch(&world, &bus, &mut sent).await;
        if !matches!(
            world.trace.root().unwrap().status_word(),
            ContextStatus::Submitted | ContextStatus::Working
        ) {
            break;
        }
        let due = world.trace.next_timer().unwrap_or(world.now.plus_millis(1_000));
        let wait = std::time::Duration::from_millis(due.millis_since(world.now).max(1));
        tokio::select! {
            Some(request) = asks.next() => {
                world.now = clock.now();
                let message: AskMessage = decode::json(&request.payload).unwrap();
                let answer = serde_json::to_vec(&answer(&mut world, message.ask)).unwrap();
                bus.reply(&request.reply_to.unwrap(), answer.into()).await.unwrap();
            }
            delivery = reports.next() => {
                world.now = clock.now();
                report(&mut world, &delivery);
                delivery.ack().await;
            }
            () = tokio::time::sleep(wait) => {
                world.now = clock.now();
                world.handle(Command::Wake).unwrap();
            }
        }
    }
    drop(shutdown);
    worker.await.unwrap().unwrap();
    world
}

async fn dispatch(world: &World, bus: &Bus, sent: &mut BTreeSet<(ChildId, u32)>) {
    for child in world.queued() {
        let work = world.work(&child).unwrap();
        if sent.insert((child, work.attempt)) {
            let subject = Subject::Execute("default".parse().unwrap());
            let payload = serde_json::to_vec(&work).unwrap().into();
            let message = Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last: None };
            bus.publish(message).await.unwrap();
        }
    }
}

fn report(world: &mut World, delivery: &Delivery) {
    let command = match delivery.subject.parse().unwrap() {
        Subject::Result(..) => {
            let result: wire::Result = decode::json(&delivery.payload).unwrap();
            Command::Report(Box::new(result.report))
        }
        Subject::Cost(..) => {
            let cost: wire::Cost = decode::json(&delivery.payload).unwrap();
            Command::Settle {
                lease: cost.lease,
                call_id: cost.call_id,
                amount: cost.amount,
                model: cost.model,
            }
        }
        other => panic!("{other}"),
    };
    let _ = world.handle(command.from_pool(pool()));
}

fn answer(world: &mut World, ask: Ask) -> Answer {
    let now = world.now;
    let done = |decided: Result<_, Refusal>| {
        decided.map_or_else(|refusal| answer_refusal(&refusal, now), |_| Answer::Done)
    };
    match ask {
        Ask::Claim(claim) => {
            let decided = world.handle(Command::Claim(claim.clone())).map(drop);
            world.trace.answer_claim(&claim, decided.as_ref().copied(), &home(), now)
        }
        Ask::Tick(tick) => {
            let decided = world.handle(Command::Tick(tick.clone())).map(drop);
            world.trace.answer_tick(&tick, decided.as_ref().copied(), now)
        }
        Ask::Hold(hold) => world.ask_hold(hold),
        Ask::Forfeit { lease, call_id } => done(world.handle(Command::Forfeit { lease, call_id })),
        Ask::Release { lease, call_id } => done(world.handle(Command::Release { lease, call_id })),
        Ask::Settle { lease, call_id, amount, model } => {
            done(world.handle(Command::Settle { lease, call_id, amount, model }))
        }
        Ask::Resume(resume) => done(world.handle(Command::Resume(resume))),
        Ask::Spawn(child) => {
            let spec = ContextSpec::from_spawn(&child.spawn.unwrap(), &[], &id("unnamed")).unwrap();
            let (child_id, agents) = (spec.child_id.clone(), world.agents.clone());
            let spawn = Spawn { lease: child.lease, spec, plan: None, agents: agents.into() };
            match world.handle(Command::Spawn(Box::new(spawn))) {
                Ok(_) => Answer::Spawned { child_id, adjusted: Vec::new() },
                Err(refusal) => answer_refusal(&refusal, now),
            }
        }
        Ask::ContextGet { lease, key } => match world.trace.read_value(&lease.child_id, &key) {
            Ok(entry) => Answer::Value {
                value: entry.map(|entry| ContextValue {
                    value: entry.value.clone(),
                    writer: entry.writer.clone(),
                    version: entry.version,
                    size_bytes: entry.value.size_bytes(),
                }),
            },
            Err(refusal) => answer_refusal(&refusal, now),
        },
        Ask::ContextList { lease } => match world.trace.readable_keys(&lease.child_id) {
            Ok((keys, left_out)) => Answer::Keys { keys, left_out },
            Err(refusal) => answer_refusal(&refusal, now),
        },
        Ask::Part { lease, part } => match world.trace.part(&lease, &part) {
            Ok(part) => Answer::Part(Box::new(part)),
            Err(refusal) => answer_refusal(&refusal, now),
        },
        Ask::ContextSet { lease, key, value } => done(world.handle(Command::SetValue { lease, key, value })),
        Ask::Checked(told) => done(world.handle(Command::Checked(told))),
        Ask::ContextDelete { lease, key } => done(world.handle(Command::DeleteValue { lease, key })),
    }
}

fn result(world: &World) -> Value {
    let end = world.node("root").end().unwrap_or_else(|| panic!("it is {}", world.status("root")));
    match &end.details.result {
        Some(Payload::Inline(value)) => value.value().clone(),
        other => panic!("{other:?}, {:?}", end.details.error),
    }
}

/// The same on a real NATS server.
#[tokio::test]
async fn b1_a_tree_of_spending_agents_adds_up_on_nats() {
    let server = NatsServer::start();
    let to = Connect::new(server.url(), Namespace::default(), "together");
    let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
    let small =
        Topology { partitions: 1, max_queue_bytes: 16 << 20, max_log_bytes: 16 << 20, ..Topology::default() };
    bus.set_up(&small).await.unwrap();
    let inputs = json!({"depth": 2, "width": 3, "leaf": "spend", "usd": 0.01});
    let mut world = live_on(bus.clone(), Clock::Machine, world("tree", inputs, json!({}))).await;
    assert_eq!((result(&world)["leaves"].clone(), world.spent_cents("root")), (json!(9), 9));
    assert!(bus.read(&Filter::Executes).await.unwrap().is_empty(), "a delivery was not acknowledged");
    world.rest();
}

/// proves: each call of `spend` is a step, as for any agent, and `max_steps` ends it.
#[tokio::test(start_paused = true)]
async fn l_spend_is_ended_by_max_steps() {
    let inputs = json!({"calls": 5, "usd": 0.01});
    let fits = live(world("spend", inputs.clone(), json!({"limits": {"max_steps": 5}}))).await;
    assert_eq!((result(&fits)["calls"].clone(), fits.spent_cents("root")), (json!(5), 5));
    let ended = live(world("spend", inputs, json!({"limits": {"max_steps": 3}}))).await;
    let end = ended.node("root").end().expect("the root has ended");
    let why = end.details.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
    assert!(why.starts_with("`root` has used 3 of max_steps = 3 (the submission)"), "{why}");
    assert_eq!(ended.spent_cents("root"), 3);
}

#[tokio::test(start_paused = true)]
async fn b1_a_tree_of_spending_agents_adds_up() {
    let inputs = json!({"depth": 2, "width": 3, "leaf": "spend", "usd": 0.01});
    let mut world = live(world("tree", inputs, json!({}))).await;
    let result = result(&world);
    assert_eq!(result["leaves"], 9);
    assert_eq!(result["children"][0], json!({"child_id": "root-1", "status": "completed", "leaves": 3}));
    assert_eq!(
        (world.spent_cents("root"), world.spent_cents("root-1"), world.spent_cents("root-1-1")),
        (9, 3, 1)
    );
    world.rest();
}

/// The mechanism: a hold before each call, and outstanding costs are booked before a denial is
/// final.
#[tokio::test(start_paused = true)]
async fn f31_exactly_as_many_agents_run_as_the_budget_affords() {
    let inputs = json!({"depth": 1, "width": 40, "leaf": "spend", "usd": 0.01});
    let mut world = live(world("tree", inputs, json!({"max_cost_usd": 0.1}))).await;
    assert_eq!(world.spent_cents("root"), 10);
    world.rest();
    let paid = world.trace.contexts().iter().filter(|node| !node.budget.own.is_zero()).count();
    assert_eq!(paid, 10);
}

#[tokio::test(start_paused = true)]
async fn p_a_refused_child_is_an_observation() {
    let inputs = json!({"depth": 4, "width": 1, "leaf": "echo"});
    let mut world = live(world("tree", inputs, json!({}))).await;
    assert_eq!(result(&world)["leaves"], 0, "depth 4 is more than max_depth 3");
    assert_eq!(world.status("root-1-1-1"), "completed");
    world.rest();
}

#[tokio::test(start_paused = true)]
async fn g10_a_chain_hands_over_and_the_last_result_is_that_of_all() {
    let mut world = live(world("chain", json!({"length": 3}), json!({}))).await;
    assert_eq!(result(&world), "the goal, then, then");
    assert_eq!(world.node("root").attempt(), 1, "a hand-over needs no second attempt");
    world.rest();
}

#[tokio::test(start_paused = true)]
async fn b15_a_failing_agent_is_tried_again() {
    let mut world = live(world("fail", json!({"times": 2}), json!({}))).await;
    assert_eq!((result(&world), world.node("root").attempt()), (json!("the goal"), 3));
    world.rest();
}

#[tokio::test(start_paused = true)]
async fn g7_a_question_parks_and_its_answer_resumes() {
    let mut world = live(world("ask", json!({"question": "which?"}), json!({}))).await;
    assert_eq!(world.status("root"), "input_required");
    world.now = Timestamp::from_millis(world.now.millis() + 3 * 24 * 3600 * 1000);
    world.answer("root", 1, "the blue one").unwrap();
    let mut world = live(world).await;
    assert_eq!(result(&world), "the blue one");
    world.rest();
}

#[tokio::test(start_paused = true)]
async fn b8_a_paused_agent_goes_on_when_its_budget_is_raised_and_pays_no_call_twice() {
    let terms = json!({"max_cost_usd": 0.03, "on_exhausted": "pause"});
    let mut world = live(world("spend", json!({"calls": 5}), terms)).await;
    assert_eq!((world.status("root").as_str(), world.spent_cents("root")), ("paused", 3));
    world.raise("root", 100).unwrap();
    let mut world = live(world).await;
    assert_eq!((result(&world)["calls"].clone(), world.spent_cents("root")), (json!(5), 5));
    world.rest();
}

#[tokio::test(start_paused = true)]
async fn c_shared_values_can_be_read_back() {
    let mut world = live(world("share", json!({"value": {"a": null}}), json!({}))).await;
    assert_eq!(result(&world), json!({"keys": ["root.note"], "read": {"root.note": {"a": null}}}));
    world.rest();
}

#[test]
fn every_built_in_agent_is_known_to_the_coordinator_and_explained_by_the_worker() {
    let mut explained = worker::BUILTIN_HELP.map(|(name, _)| name);
    let mut known = domain::agent::BUILTINS;
    explained.sort_unstable();
    known.sort_unstable();
    assert_eq!(explained, known);
}
