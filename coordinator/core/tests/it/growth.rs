//! The bytes that a command writes depend on its change, not on the size of the trace. The stored
//! fields and events of the first, the hundredth and the ten thousandth command are compared.

use domain::wire::{Answer, Lease, Progress};
use serde_json::{Value, json};
use world::{World, cents, invariants};

/// Room for ten thousand of everything.
fn large(world: &mut World) {
    world.settings.limits.max_children = 20_000;
    world.settings.limits.max_contexts = 50_000;
    world.settings.limits.max_depth = 20;
    world.settings.limits.max_steps = 1_000_000;
    world.settings.limits.max_context_store_bytes = 1 << 30;
}

fn root() -> (World, Lease) {
    let mut world = World::new();
    large(&mut world);
    world.submit(json!({"goal": "g", "child_id": "root", "max_cost_usd": 100_000})).unwrap();
    let lease = world.claim("root");
    world.measured();
    (world, lease)
}

/// The largest write among the first 10 and among the last 10 of these commands.
fn first_and_last(count: usize, mut written: impl FnMut(usize) -> usize) -> (usize, usize) {
    let all: Vec<usize> = (0..count).map(&mut written).collect();
    let most = |some: &[usize]| *some.iter().max().expect("some");
    (most(&all[..10]), most(&all[count - 10..]))
}

/// Larger numbers may add some digits.
fn assert_flat(what: &str, (first, last): (usize, usize)) {
    assert!(last <= first + first / 20 + 60, "{what}: {first} bytes at first, {last} bytes in the end");
}

#[test]
fn a_hold_at_depth_eight_writes_as_much_after_ten_thousand_calls_as_after_ten() {
    let (mut world, mut lease) = root();
    for depth in 1..8 {
        let child = format!("child{depth}");
        world.spawn(&lease, json!({"goal": child, "child_id": child})).unwrap();
        lease = world.claim(&child);
    }
    let mut of_settles = Vec::new();
    let holds = first_and_last(10_000, |n| {
        world.hold(&lease, &format!("c{n}"), cents(1)).unwrap();
        let written = world.written();
        world.settle(&lease, &format!("c{n}"), cents(1)).unwrap();
        of_settles.push(world.written());
        written
    });
    assert_flat("hold", holds);
    assert_flat("settle", (of_settles[9], of_settles[9_999]));
    assert!(holds.1 <= 2_048, "a hold at depth 8 writes {} bytes", holds.1);
    invariants::check(&world.trace).unwrap();
}

#[test]
fn the_ten_thousandth_spawn_and_charge_and_the_thousandth_tick_and_answer_write_no_more_than_the_tenth() {
    let (mut world, lease) = root();
    assert_flat(
        "spawn",
        first_and_last(10_000, |n| {
            world.spawn(&lease, json!({"goal": format!("s{n}"), "child_id": format!("s{n}")})).unwrap();
            world.written()
        }),
    );
    assert_flat(
        "charge",
        first_and_last(10_000, |n| {
            world.charge("root", &format!("k{n}"), cents(1)).unwrap();
            world.written()
        }),
    );
    world.settings.limits.max_steps = 0;
    assert_flat(
        "tick",
        first_and_last(1_000, |n| {
            let steps = u32::try_from(n).unwrap();
            world.tick(&lease, Progress { steps, ..Progress::default() }).unwrap();
            world.written()
        }),
    );
    let mut lease = lease;
    assert_flat(
        "question and answer",
        first_and_last(1_000, |n| {
            world.ask_human(&lease, "which?").unwrap();
            world.answer("root", u32::try_from(n).unwrap() + 1, "that").unwrap();
            let written = world.written();
            lease = world.claim("root");
            written + world.written()
        }),
    );
    assert_flat(
        "cancel of a missing context",
        first_and_last(500, |n| {
            world.cancel(Some(&format!("later{n}"))).unwrap();
            world.written()
        }),
    );
    invariants::check(&world.trace).unwrap();
}

#[test]
fn g13_a_message_writes_about_its_text_and_a_hold_no_more_after_a_thousand_of_them() {
    let (mut world, lease) = root();
    let text = |n: usize| format!("{n:04}{}", "x".repeat(1_000));
    let tells = first_and_last(1_000, |n| {
        world.tell_as(&format!("m{n}"), None, &text(n)).unwrap();
        world.written()
    });
    assert_flat("tell", tells);
    // One stored field, and twice its event.
    assert!(tells.1 <= 3 * 1_004 + 1_000, "a message of 1,004 bytes writes {}", tells.1);
    let holds = first_and_last(10_000, |n| {
        assert_eq!(world.ask_with(&lease, &format!("c{n}"), cents(1), 1_000, 0), Answer::Done);
        let written = world.written();
        world.settle(&lease, &format!("c{n}"), cents(1)).unwrap();
        written
    });
    assert_flat("hold", holds);
    invariants::check(&world.trace).unwrap();
}

/// The bytes of one item in the middle of a `for_each` of this width: claim, hold, settle and end.
fn of_one_item(width: usize) -> (usize, usize) {
    let mut world = World::new();
    large(&mut world);
    let items: Vec<Value> = (0..width).map(|n| json!(format!("item {n:05}"))).collect();
    world
        .submit_graph(json!({
            "child_id": "graph", "mode": "parallel", "max_cost_usd": 100_000, "inputs": {"items": items},
            "steps": [{"id": "each", "agent_id": "writer", "task_description": "t", "for_each": "items"}],
        }))
        .unwrap();
    world.measured();
    let mut written = Vec::with_capacity(width);
    for n in 1..=width {
        let child = format!("each-{n}");
        let lease = world.claim(&child);
        let mut bytes = world.written();
        world.hold(&lease, "1", cents(1)).unwrap();
        bytes += world.written();
        world.settle(&lease, "1", cents(1)).unwrap();
        bytes += world.written();
        world.complete(&lease, "done").unwrap();
        written.push(bytes + world.written());
    }
    assert!(!world.node("graph").is_live());
    let (last, others) = written.split_last().unwrap();
    (*others.iter().max().unwrap(), *last)
}

#[test]
fn an_item_of_a_for_each_of_ten_thousand_writes_no_more_than_one_of_a_hundred() {
    let (narrow, _) = of_one_item(100);
    let (wide, _) = of_one_item(10_000);
    assert_flat("an item", (narrow, wide));
}

/// The bytes of one item in the middle of a `for_each` of this width, on a group of three steps.
fn of_one_group_item(width: usize) -> usize {
    let mut world = World::new();
    large(&mut world);
    let items: Vec<Value> = (0..width).map(|n| json!(format!("item {n:05}"))).collect();
    let step = |name: &str, reads: &str| json!({"id": name, "agent_id": "writer", "task_description": "t", "input_from": [reads], "output_to": format!("{name}-text")});
    world
        .submit_graph(json!({
            "child_id": "graph", "max_cost_usd": 100_000, "inputs": {"items": items},
            "steps": [{"id": "map", "for_each": {"in": "items", "max_parallel": 10}, "output_to": "all",
                "steps": [step("a", "item"), step("b", "a-text"), step("c", "b-text")]}],
        }))
        .unwrap();
    world.measured();
    let mut written = Vec::with_capacity(width);
    for n in 1..=width {
        let mut bytes = 0;
        for step in ["a", "b", "c"] {
            let lease = world.claim(&format!("{step}-{n}"));
            bytes += world.written();
            world.complete(&lease, "done").unwrap();
            bytes += world.written();
        }
        written.push(bytes);
        assert!(world.trace.values().len() <= 1 + 10 * 5, "the values of an item that has ended are deleted");
    }
    assert!(!world.node("graph").is_live());
    *written[..width - 1].iter().max().unwrap()
}

#[test]
fn g1_an_item_of_three_steps_of_ten_thousand_writes_no_more_than_one_of_a_hundred() {
    assert_flat("an item", (of_one_group_item(100), of_one_group_item(10_000)));
}

#[test]
fn a_pipeline_writes_no_more_when_two_hundred_have_run_before_it() {
    let (mut world, lease) = root();
    let step = |n: u32| json!({"id": format!("p{n}"), "agent_id": "writer", "task_description": "t"});
    let steps: Vec<Value> = (0..5).map(step).collect();
    assert_flat(
        "a pipeline",
        first_and_last(200, |n| {
            let graph = json!({"child_id": format!("g{n}"), "mode": "sequential", "steps": steps});
            world.spawn_graph(&lease, graph).unwrap();
            let mut written = world.written();
            while let Some(child) = world.queued().into_iter().find(|child| child.as_str() != "root") {
                let lease = world.claim(child.as_str());
                written += world.written();
                world.complete(&lease, "x").unwrap();
                written += world.written();
            }
            written
        }),
    );
}

#[test]
fn g7_questions_for_each_element_are_bounded_by_their_form() {
    let mut world = World::new();
    world.measured();
    let list: Vec<u32> = (0..20).collect();
    let graph = |question: usize| {
        let ask = json!({"id": "ok", "for_each": "inner", "approve": {"who": "w", "question": "q".repeat(question)}});
        let steps = json!([{"id": "g", "for_each": "outer", "steps": [ask]}]);
        json!({"inputs": {"outer": list, "inner": list}, "steps": steps})
    };
    assert!(world.submit_graph(graph(60_000)).is_err(), "a graph with 400 questions is too large");
    world.submit_graph(graph(4_000)).unwrap();
    assert!(world.written() < 8 << 20, "{} bytes", world.written());
}
