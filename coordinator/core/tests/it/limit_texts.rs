//! L: messages about a limit contain its name, its value, where the value was set, and how to raise
//! it. One row for each limit and each origin.

use domain::{
    Amount, Tokens, Usd,
    wire::{Failure, FailureKind, Progress, Verdict},
};
use serde_json::{Value, json};
use world::World;

const COORDINATORS: &str = "the settings of the coordinators";

/// Why a context ended: its error, otherwise its reason.
fn why(world: &World, child: &str) -> String {
    world.node(child).why().expect("the context ended without completing")
}

fn too_many_steps(world: &mut World, child: &str) -> String {
    let lease = world.claim(child);
    world.tick(&lease, Progress { steps: 1_000, ..Progress::default() }).unwrap();
    why(world, child)
}

fn profile(more: Value) -> Value {
    world::with(json!({"agent_id": "writer", "kind": "llm", "model": "m"}), more)
}

/// A world with a profile named `writer`.
fn with_writer(more: Value) -> World {
    let mut world = World::new();
    world.agent(profile(more));
    world
}

#[test]
fn l_max_steps_names_where_it_was_set() {
    let root = json!({"goal": "g", "child_id": "root", "agent_id": "writer"});
    let lower = json!({"limits": {"max_steps": 5}});
    // The default, which the profile of a root may replace.
    let mut world = with_writer(json!({}));
    world.submit(root.clone()).unwrap();
    assert_eq!(
        too_many_steps(&mut world, "root"),
        format!(
            "`root` has used 1000 of max_steps = 20 (the default); set `limits.max_steps` in the profile of agent `writer` or {COORDINATORS}"
        )
    );
    // The profile.
    let mut world = with_writer(lower.clone());
    world.submit(root.clone()).unwrap();
    let of_profile = "max_steps = 5 (the profile of agent `writer`); raise `limits.max_steps` in the profile of agent `writer`";
    assert_eq!(too_many_steps(&mut world, "root"), format!("`root` has used 1000 of {of_profile}"));
    // The submission.
    let mut world = with_writer(json!({}));
    world.submit(world::with(root.clone(), lower.clone())).unwrap();
    let of_submission = "max_steps = 5 (the submission); raise `limits.max_steps` in the submission";
    assert_eq!(too_many_steps(&mut world, "root"), format!("`root` has used 1000 of {of_submission}"));
    // A submission that asks for the value that already applies has set nothing.
    let mut world = with_writer(json!({}));
    world.submit(world::with(root.clone(), json!({"limits": {"max_steps": 20}}))).unwrap();
    assert!(too_many_steps(&mut world, "root").contains("max_steps = 20 (the default)"));
    // The settings of the coordinators, and their maximum.
    let mut world = with_writer(json!({}));
    world.settings.limits.max_steps = 7;
    world.submit(root.clone()).unwrap();
    assert!(too_many_steps(&mut world, "root").contains(&format!("max_steps = 7 ({COORDINATORS}); raise ")));
    let mut world = with_writer(json!({"limits": {"max_steps": 50}}));
    world.settings.maximum.limits.max_steps = Some(30);
    world.submit(root).unwrap();
    let said = too_many_steps(&mut world, "root");
    assert!(said.contains("max_steps = 30 (the operator's `maximum`"), "{said}");
    assert!(said.ends_with(&format!("raise `maximum.limits.max_steps` in {COORDINATORS}")), "{said}");
}

#[test]
fn l_a_child_names_the_ancestor_that_set_the_limit() {
    let spawned = |limits: Value, child: Value| {
        let mut world = with_writer(json!({}));
        world.submit(json!({"goal": "g", "child_id": "root", "limits": limits})).unwrap();
        let root = world.claim("root");
        let spec = json!({"goal": "c", "child_id": "c", "agent_id": "writer", "limits": child});
        world.spawn(&root, spec).unwrap();
        too_many_steps(&mut world, "c")
    };
    let said = spawned(json!({"max_steps": 5}), json!({}));
    assert_eq!(
        said,
        "`c` has used 1000 of max_steps = 5 (the submission); raise `limits.max_steps` in the submission"
    );
    let said = spawned(json!({"max_steps": 5}), json!({"max_steps": 3}));
    assert_eq!(
        said,
        "`c` has used 1000 of max_steps = 3 (the spawn of `c`); raise `limits.max_steps` in the spawn of `c`"
    );
}

/// The core completes a worker's message about a limit, so workers in any language report the same.
#[test]
fn l_a_workers_report_of_a_limit_is_completed() {
    for (limit, max) in [
        ("max_steps", 2),
        ("max_retries_total", 2),
        ("max_tokens_per_step", 2),
        ("max_output_files", 2),
        ("max_output_size_bytes", 2),
        ("max_result_bytes", 2),
    ] {
        let mut world = World::with_root(json!({"limits": {limit: max}}));
        let root = world.claim("root");
        let message = format!("{limit}: 3 of {max}; why it was so");
        world.report(&root, Verdict::Failed(Failure::lasting(FailureKind::LimitExceeded, message))).unwrap();
        let said = format!(
            "`root` has used 3 of {limit} = {max} (the submission); raise `limits.{limit}` in the submission"
        );
        // After retries the cause comes first, because the rest may be cut off.
        let said = match limit {
            "max_retries_total" => format!("why it was so; tried 3 times: {said}"),
            _ => format!("{said}; why it was so"),
        };
        assert_eq!(why(&world, "root"), said);
    }
    // Any other message stays unchanged.
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let failure = Failure::lasting(FailureKind::LimitExceeded, "a bound of my own: 3 of 2");
    world.report(&root, Verdict::Failed(failure)).unwrap();
    assert_eq!(why(&world, "root"), "a bound of my own: 3 of 2");
}

#[test]
fn l_w1_a_window_names_where_it_was_set() {
    let overfull = |agent: Value, spec: Value| {
        let mut world = with_writer(agent);
        let root = json!({"goal": "g", "child_id": "root", "agent_id": "writer"});
        world.submit(world::with(root, spec)).unwrap();
        let root = world.claim("root");
        let failure = Failure::lasting(FailureKind::LimitExceeded, "window_tokens: 900 of 800; why");
        world.report(&root, Verdict::Failed(failure)).unwrap();
        why(&world, "root")
    };
    let window = json!({"window_tokens": 800});
    let said = overfull(window.clone(), json!({}));
    assert!(said.contains("(the profile of agent `writer`); raise `window_tokens` in the profile"), "{said}");
    let said = overfull(json!({}), window);
    assert!(said.contains("(the submission); raise `window_tokens` in the submission; why"), "{said}");
    let said = overfull(json!({}), json!({}));
    assert!(said.contains("(the settings of the worker)"), "{said}");
}

#[test]
fn l_a_timeout_names_where_it_was_set() {
    let step = |agent: Value, more: Value| {
        let mut world = with_writer(agent);
        let step = json!({"id": "write", "agent_id": "writer", "task_description": "t"});
        world.submit_graph(json!({"steps": [world::with(step, more)]})).unwrap();
        let lease = world.claim("write");
        for _ in 0..30 {
            world.pass(3_000);
            world.tick(&lease, Progress::default()).ok();
        }
        why(&world, "write")
    };
    assert_eq!(
        step(json!({}), json!({})),
        format!(
            "step `write` reached timeout_ms = 60000 (the default); set `timeout_ms` in the step or the profile of agent `writer`, or `limits.timeout_ms` in {COORDINATORS}"
        )
    );
    let nine = json!({"timeout_ms": 9_000});
    let of_step = "step `write` reached timeout_ms = 9000 (the step); raise `timeout_ms` in the step";
    assert_eq!(step(json!({}), nine.clone()), of_step);
    let said = step(nine, json!({}));
    assert!(said.contains("(the profile of agent `writer`); raise `timeout_ms` in the profile"), "{said}");

    // The wall time of the run. Contexts below it name the context whose timeout it was.
    let submitted = |timeout: Option<u64>, maximum: Option<u64>| {
        let mut world = World::new();
        world.settings.maximum.timeout_ms = maximum;
        world.submit(json!({"goal": "g", "child_id": "root", "timeout_ms": timeout})).unwrap();
        let lease = world.claim("root");
        for _ in 0..3 {
            world.pass(3_000);
            world.tick(&lease, Progress::default()).ok();
        }
        why(&world, "root")
    };
    let of_submission =
        "`root` reached timeout_ms = 9000 (the submission); raise `timeout_ms` in the submission";
    assert_eq!(submitted(Some(9_000), None), of_submission);
    assert!(submitted(None, Some(9_000)).contains("timeout_ms = 9000 (the operator's `maximum`"));
}

/// proves: a context that no worker claimed in time names its pool: a longer timeout would not
/// help.
#[test]
fn l_work_that_no_worker_took_in_time_names_the_pool() {
    let writer = || with_writer(json!({"pool": "gpu"}));
    let mut world = writer();
    let root = json!({"goal": "g", "child_id": "root", "agent_id": "writer", "timeout_ms": 5_000});
    world.submit(root).unwrap();
    world.pass(5_000);
    assert_eq!(
        why(&world, "root"),
        "no worker of the pool `gpu` took `root`: `root` reached timeout_ms = 5000 (the submission)"
    );
    let steps = json!([{"id": "write", "agent_id": "writer", "task_description": "t"}]);
    let graph = json!({"child_id": "root", "timeout_ms": 5_000, "steps": steps});
    let mut world = writer();
    world.submit_graph(graph.clone()).unwrap();
    world.pass(5_000);
    let said = why(&world, "root");
    assert!(said.starts_with("no worker of the pool `gpu` took step `write`: `root` reached"), "{said}");
    // A context that a worker has claimed is late, so the pool is not blamed.
    let mut world = writer();
    world.submit_graph(graph).unwrap();
    world.claim("write");
    world.pass(5_000);
    let said = why(&world, "root");
    assert!(said.starts_with("`root` reached timeout_ms") && said.contains("; raise "), "{said}");
}

/// proves: a pool that served a run is not blamed for its deadline because of a context queued in
/// the last moment.
#[test]
fn l_a_short_wait_is_not_named_as_the_reason_of_a_timeout() {
    let after = |works_ms: u64| {
        let mut world = with_writer(json!({"pool": "gpu"}));
        let step = |id: &str| json!({"id": id, "agent_id": "writer", "task_description": "t"});
        let steps = json!([step("first"), step("second")]);
        let graph = json!({"child_id": "root", "mode": "sequential", "timeout_ms": 5_000, "steps": steps});
        world.submit_graph(graph).unwrap();
        let lease = world.claim("first");
        for _ in 0..4 {
            world.pass(works_ms / 4);
            world.tick(&lease, Progress::default()).unwrap();
        }
        world.complete(&lease, "done").unwrap();
        world.pass(5_000 - works_ms);
        why(&world, "root")
    };
    assert_eq!(
        after(4_980),
        "`root` reached timeout_ms = 5000 (the submission); raise `timeout_ms` in the submission"
    );
    let said = after(2_000);
    assert!(said.starts_with("no worker of the pool `gpu` took step `second`: `root` reached"), "{said}");
    assert!(!said.contains("; raise "), "{said}");
}

#[test]
fn b8_a_budget_that_is_used_up_names_what_raises_it() {
    let spent = |more: Value| {
        let mut world = World::with_root(world::with(json!({"max_cost_usd": 0.1}), more));
        let root = world.claim("root");
        world.charge("root", "k", world::cents(10)).unwrap();
        world.report(&root, Verdict::HandedBack).unwrap();
        world
    };
    let world = spent(json!({}));
    let said = why(&world, "root");
    assert_eq!(
        said,
        "the cost budget of `root` is used up: max_cost_usd = $0.10 (the submission); raise `max_cost_usd` in the submission, or set `on_exhausted: pause` and raise it while the context waits"
    );
    let world = spent(json!({"on_exhausted": "pause"}));
    let said = world.trace.snapshot(world.node("root")).waits.unwrap();
    let command = format!("`trellis budgets raise {}/root --max-cost-usd USD`", world.trace.id());
    assert!(said.contains(&command), "{said}");
}

#[test]
fn b15_a_lost_worker_names_the_retries() {
    let mut world = World::with_root(json!({"limits": {"max_retries_total": 0}}));
    world.claim("root");
    world.pass(60_000);
    let said = why(&world, "root");
    assert!(
        said.starts_with("its worker was lost 1 time, and max_retries_total = 0 (the submission)"),
        "{said}"
    );
}

#[test]
fn b8_too_little_for_the_next_call_names_the_context() {
    let short = |pauses: Value| {
        let mut world = World::with_root(world::with(json!({"max_cost_usd": 0.1}), pauses));
        let root = world.claim("root");
        world.spawn(&root, json!({"goal": "c", "child_id": "c", "max_cost_usd": 0.02})).unwrap();
        let child = world.claim("c");
        world.report(&child, Verdict::OutOfBudget).unwrap();
        world
    };
    let said = "its budget is too small for the next call: `c` has $0.02 left of max_cost_usd = $0.02 (the spawn of `c`); ";
    let world = short(json!({}));
    assert_eq!(why(&world, "c"), format!("{said}raise `max_cost_usd` in the spawn of `c`"));
    let world = short(json!({"on_exhausted": "pause"}));
    let command = format!("go on with `trellis budgets raise {}/c --max-cost-usd USD`", world.trace.id());
    assert_eq!(world.trace.snapshot(world.node("c")).waits, Some(format!("{said}{command}")));
}

#[test]
fn b8_too_few_tokens_for_the_next_call_are_reported_as_tokens() {
    let mut world = World::with_root(json!({"max_cost_usd": 1, "max_tokens": 1_000}));
    let root = world.claim("root");
    world.pay(&root, "k", Amount::new(Usd::from_cents(1), Tokens::new(900))).unwrap();
    world.report(&root, Verdict::OutOfBudget).unwrap();
    assert_eq!(
        why(&world, "root"),
        "its budget is too small for the next call: `root` has 100 left of max_tokens = 1000 (the submission); raise `max_tokens` in the submission"
    );
}
