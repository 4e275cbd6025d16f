//! A worker can read every message that a coordinator makes for it, however large its parts are.

use domain::{
    Json, decode, json,
    limits::MAX_MESSAGE_BYTES,
    wire::{Answer, Claim, Execute, Failure, FailureKind, Hold, Lease, Part, PartName, Verdict},
};
use proptest::{prelude::*, test_runner::Config};
use serde_json::{Value, json};
use trace::{Command, ContextNode, Phase, Status};
use world::{World, cents, home, id};

/// Reads a message back, as a worker does.
fn sent<T>(message: &T) -> T
where
    T: serde::Serialize + serde::de::DeserializeOwned + schemars::JsonSchema + PartialEq + 'static,
{
    let bytes = serde_json::to_vec(message).unwrap();
    decode::json(&bytes).unwrap_or_else(|problems| panic!("a worker refuses its own message: {problems}"))
}

/// The work of a running context, after fetching every omitted part.
fn fetched(world: &World, lease: &Lease, mut work: Execute) -> Execute {
    let part = |name| {
        let part = world.trace.part(lease, &name).unwrap_or_else(|refusal| panic!("{name:?}: {refusal}"));
        let Answer::Part(part) = sent(&Answer::Part(Box::new(part))) else { unreachable!() };
        *part
    };
    for key in std::mem::take(&mut work.left_out.inputs) {
        let Part::Input(value) = part(PartName::Input(key.clone())) else { panic!("{key}") };
        work.inputs.insert(key, value);
    }
    for number in (1..=std::mem::take(&mut work.left_out.answers)).rev() {
        let Part::Answer(given) = part(PartName::Answer(number)) else { panic!("{number}") };
        work.answers.insert(0, given);
    }
    if std::mem::take(&mut work.left_out.children) {
        let node = world.trace.context(&work.child_id).unwrap();
        let children = node.children.iter().map(|child| world.trace.node(*child).id.clone());
        let result = |child| match part(PartName::Child(child)) {
            Part::Child(ended) => ended,
            other => panic!("{other:?}"),
        };
        work.children = children.filter_map(result).collect();
    }
    work
}

/// Reads every message that could be sent now.
fn check(world: &World) {
    for node in world.trace.contexts().iter().filter(|node| node.is_live()) {
        let offer = world.trace.offer(&node.id, &home()).map(|(_, offer)| sent(&offer));
        let Status::Working(Phase::Running { .. }) = node.status else { continue };
        assert!(offer.is_some_and(|offer| json::size_bytes(&offer) < 1_000));
        let lease = world.lease(&node.id);
        let (child_id, token) = (node.id.clone(), lease.token.clone());
        let claim = Claim { child_id, worker_id: "worker".parse().unwrap(), token };
        let Answer::Claimed(claimed) = sent(&world.trace.answer_claim(&claim, Ok(()), &home(), world.now))
        else {
            panic!("{} runs", node.id)
        };
        let work = fetched(world, &lease, claimed.work);
        assert_eq!(work.answers, *node.answers);
        let ended = node.children.iter().filter(|child| !world.trace.node(**child).is_live()).count();
        assert_eq!(work.children.len(), ended, "every ended child, once");
        for (key, value) in node.spec.inputs.iter().filter(|(key, _)| !node.spec.input_from.contains(key)) {
            assert_eq!(work.inputs[key], *value);
        }
        let (keys, left_out) = world.trace.readable_keys(&node.id).unwrap();
        sent(&Answer::Keys { keys, left_out });
    }
}

/// Text that is longer as JSON: quotes take two bytes, control characters six.
fn text(bytes: usize, kind: u8) -> String {
    let (one, size) = [("x", 1), ("\"", 2), ("\u{1}", 6), ("é", 2)][usize::from(kind) % 4];
    one.repeat((bytes / size).max(1))
}

/// Many large parts of one kind, for one running context.
#[derive(Debug, Clone, Copy)]
struct Op {
    kind: u8,
    who: u8,
    count: usize,
    bytes: usize,
    letters: u8,
}

/// Parts up to their largest size, in sum slightly more than one message may carry.
fn op() -> impl Strategy<Value = Op> {
    (0u8..6, any::<u8>(), 0usize..700_000, any::<u8>()).prop_map(|(kind, who, some, letters)| {
        let bytes = match kind {
            0 | 1 => 100_000 + some % 162_000,
            2 | 3 => 300_000 + some,
            _ => 64_000,
        };
        Op { kind, who, count: MAX_MESSAGE_BYTES * 9 / 8 / bytes + 1, bytes, letters }
    })
}

fn running(world: &World) -> Vec<Lease> {
    let runs = |node: &&ContextNode| matches!(node.status, Status::Working(Phase::Running { .. }));
    world.trace.contexts().iter().filter(runs).map(|node| world.lease(&node.id)).collect()
}

/// Refusals are fine: the test reads the messages that follow.
fn play(world: &mut World, number: usize, op: Op) -> Option<()> {
    let Op { kind, who, count, bytes, letters } = op;
    let running = running(world);
    let lease = running.get(usize::from(who) % running.len().max(1))?.clone();
    let name = |n: usize| format!("c{number}-{n}");
    match kind {
        // Children that return a large result, or fail with a long message.
        0 | 1 => {
            for n in 0..count {
                world.spawn(&lease, json!({"goal": name(n), "child_id": name(n)})).ok()?;
                let child = world.try_claim(&name(n)).ok()?;
                let message = text(bytes, letters);
                let failure = Failure { kind: FailureKind::Agent, message, retryable: false };
                match kind {
                    0 => world.complete(&child, text(bytes, letters)),
                    _ => world.report(&child, Verdict::Failed(failure)),
                }
                .ok()?;
            }
        }
        // A child with large inputs, and one that reads as much from the shared store.
        2 | 3 => {
            let key = |n: usize| format!("{}.k{n}", lease.child_id);
            let value = |n: usize| match n % 3 {
                0 => json!(vec![1e15; bytes / 20]),
                _ => json!(text(bytes, letters)),
            };
            let mut spawn = json!({"goal": format!("{number} {}", text(bytes.min(60_000), letters)), "child_id": name(0)});
            if kind == 2 {
                spawn["inputs"] = (0..count).map(|n| (format!("i{n}"), value(n))).collect();
            } else {
                spawn["input_from"] = (0..count).map(|n| Value::from(key(n))).collect();
                for n in 0..count {
                    let (lease, key, value) = (lease.clone(), key(n).parse().unwrap(), Json::from(value(n)));
                    world.handle(Command::SetValue { lease, key, value }).ok()?;
                }
            }
            world.spawn(&lease, spawn).ok()?;
        }
        4 => {
            let (mut lease, long) = (lease, text(bytes, letters));
            for _ in 0..count {
                let child = lease.child_id.to_string();
                world.ask_human(&lease, &long).ok()?;
                let number = u32::try_from(world.node(&child).answers.len()).unwrap() + 1;
                world.answer(&child, number, &long).ok()?;
                lease = world.try_claim(&child).ok()?;
            }
        }
        // Holds that the next attempt has to book.
        _ => {
            for n in 0..count * 30 {
                world.trace.handle(hold(&lease, &format!("h{number}-{n}")), world.now).ok()?;
            }
            world.report(&lease, Verdict::HandedBack).ok()?;
        }
    }
    Some(())
}

fn hold(lease: &Lease, call_id: &str) -> Command {
    let (lease, call_id, amount) = (lease.clone(), call_id.parse().unwrap(), cents(0));
    Command::Hold(Hold { lease, call_id, amount, closing: false, seen: None })
}

proptest! {
    #![proptest_config(Config { cases: world::cases(3), failure_persistence: None, max_shrink_iters: 10, ..Config::default() })]

    #[test]
    fn l_every_message_to_a_worker_can_be_read_whatever_it_carries(ops in prop::collection::vec(op(), 2..6)) {
        let mut world = World::with_root(json!({"max_cost_usd": 1, "hitl": "ask"}));
        world.claim("root");
        for (number, op) in ops.into_iter().enumerate() {
            play(&mut world, number, op);
            for child in world.queued() {
                world.try_claim(child.as_str()).ok();
            }
        }
        check(&world);
    }
}

/// The message does not grow with children that ended long ago.
#[test]
fn l_the_work_of_a_parent_is_bounded_for_any_results_of_its_children() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    for n in 0..40 {
        let child = format!("c{n}");
        world.spawn(&lease, json!({"goal": child, "child_id": child})).unwrap();
        world.run(&child, "x".repeat(250_000));
    }
    world.wait(&lease, &["c0", "c39"]).unwrap();
    world.claim("root");
    let work = world.work(&id("root")).unwrap();
    assert!(json::size_bytes(&work) < 300_000, "{} bytes", json::size_bytes(&work));
    assert!(work.left_out.children);
    let listed: Vec<&str> = work.children.iter().map(|child| child.child_id.as_str()).collect();
    assert_eq!(listed, ["c39"], "the newest fit");
    check(&world);
    for n in 40..400 {
        let child = format!("c{n}");
        let lease = world.lease(&id("root"));
        world.spawn(&lease, json!({"goal": child, "child_id": child})).unwrap();
        world.run(&child, "ok");
    }
    let work = world.work(&id("root")).unwrap();
    assert_eq!(work.children.len(), 256, "small results are bounded by their number");
    assert!(work.left_out.children);
}

/// L: an order that would not fit into any message is refused at once, with its size.
#[test]
fn l_an_order_that_no_message_could_carry_is_refused() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    let refusal = |world: &mut World, spawn: Value| world.spawn(&lease, spawn).unwrap_err().to_string();
    let tools: Vec<String> = (0..40_000).map(|n| format!("web:a-tool-with-a-long-name-{n}")).collect();
    let many = json!({"goal": "g", "child_id": "a", "tools": tools});
    assert!(refusal(&mut world, many).contains("the largest order without inputs = 1048576 (built in)"));
    let input =
        json!({"goal": "g", "child_id": "b", "inputs": {"big": "x".repeat(MAX_MESSAGE_BYTES - (1 << 19))}});
    assert!(refusal(&mut world, input).contains("the largest input"));
    let six =
        json!({"goal": "g", "child_id": "c", "inputs": {"a": "x".repeat(3 << 20), "b": "y".repeat(3 << 20)}});
    world.spawn(&lease, six).unwrap();
    world.claim("c");
    check(&world);
    let prompt = "p".repeat(1 << 20);
    world.agent(json!({"agent_id": "talker", "kind": "llm", "builtin": null, "model": "scripted", "system_prompt": prompt}));
    let talker = json!({"goal": "g", "child_id": "d", "agent_id": "talker"});
    assert!(refusal(&mut world, talker).contains("the largest agent profile"));
}

/// A value with the greatest depth of a message is written into events, copies, stored fields and
/// work. Each adds levels around the value, and all of them must be readable.
#[test]
fn l_a_value_of_the_maximum_depth_is_read_back_from_every_message_with_it() {
    use domain::depth::{MAX_ADDED, MAX_MESSAGE_DEPTH, too_deep};
    let nested = |levels: usize| {
        let text = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let submission = |levels| json!({"goal": "g", "child_id": "root", "inputs": {"deep": nested(levels)}});
    let deepest = MAX_MESSAGE_DEPTH - 2;
    let read =
        |levels| decode::from_outside::<domain::wire::Spawn>(submission(levels).to_string().as_bytes());
    read(deepest).unwrap_or_else(|problems| panic!("{problems}"));
    let refused = read(deepest + 1).unwrap_err().to_string();
    assert!(refused.contains("inputs.deep[0][0]…") && refused.contains("64 levels"), "{refused}");

    let mut world = World::new();
    world.submit(submission(deepest)).unwrap();
    let root = world.claim("root");
    let deep = Json::from(nested(deepest));
    let set =
        |key: &str| Command::SetValue { lease: root.clone(), key: key.parse().unwrap(), value: deep.clone() };
    world.handle(set("root.deep")).unwrap();
    world.handle(Command::Copy { after_ms: 0 }).unwrap();
    world.report(&root, Verdict::Completed(domain::wire::Payload::Inline(deep.clone()))).unwrap();
    let mut made = Vec::new();
    let mut trace = trace::Trace::new(world.trace.id());
    for (at, event) in world.log.clone() {
        trace.apply(&event, at);
        made.extend(trace::logged(&mut trace, vec![event], at).into_iter().map(|logged| {
            let text = serde_json::to_string(&logged).unwrap();
            serde_json::from_str::<trace::LoggedEvents>(&text)
                .unwrap_or_else(|error| panic!("{error}: {text}"));
            text
        }));
    }
    made.push(serde_json::to_string(&world.trace.outcome(&id("root"))).unwrap());
    let changes = world.trace.clone().take_changes();
    made.extend(changes.fields.iter().chain(&changes.values).filter_map(|(_, text)| text.clone()));
    assert!(
        made.iter().any(|text| too_deep(text.as_bytes(), deepest).is_some()),
        "no message reaches the maximum depth"
    );
    for text in made {
        assert_eq!(too_deep(text.as_bytes(), deepest + MAX_ADDED), None, "{text}");
        serde_json::from_str::<Value>(&text).unwrap();
    }
}

#[test]
fn l_the_report_of_a_graph_can_be_read_with_a_large_winner() {
    let step = |name: &str| json!({"id": name, "agent_id": "writer", "task_description": "do it"});
    let inner: Vec<Value> = (0..40).map(|n| step(&format!("s{n}"))).collect();
    let group = json!({"id": "group", "mode": "parallel", "steps": inner});
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let graph = json!({"child_id": "graph", "race": true, "steps": [group, step("slow")]});
    world.spawn_graph(&root, graph).unwrap();
    world.wait(&root, &["graph"]).unwrap();
    for n in 0..40 {
        world.run(&format!("s{n}"), "x".repeat(250_000));
    }
    let root = world.claim("root");
    let part = world.trace.part(&root, &PartName::Child(id("graph"))).unwrap();
    sent(&Answer::Part(Box::new(part)));
}
