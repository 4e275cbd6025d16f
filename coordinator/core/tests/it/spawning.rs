//! Rules P, I, L and W that are decided at admission.

use domain::{
    Tokens, decode,
    wire::{self, Lease, Progress, SharedMessage},
};
use serde_json::{Value, json};
use trace::{Command, ContextSpec, Event, Refusal, Spawn};
use world::{World, cents, id, with};

fn chain_of(world: &mut World, depth: u32) -> Lease {
    let mut lease = world.claim("root");
    for level in 1..=depth {
        let name = format!("d{level}");
        world.spawn(&lease, json!({"goal": name, "child_id": name})).unwrap();
        lease = world.claim(&name);
    }
    lease
}

#[test]
fn l_depth_is_enforced_at_the_limit() {
    let mut world = World::with_root(json!({}));
    let deepest = chain_of(&mut world, 3);
    assert_eq!(world.node("d3").identity.depth, 3);
    let refused = world.spawn(&deepest, json!({"goal": "too deep"})).unwrap_err();
    let said = "depth 4 is more than max_depth = 3 (the default); set `limits.max_depth` in the profile of agent `default` or the settings of the coordinators";
    assert_eq!(refused.to_string(), said);
    assert_eq!(refused.code(), ("depth", "L"));
}

#[test]
fn l_a_request_may_lower_the_depth_and_not_raise_it() {
    let mut world = World::with_root(json!({"limits": {"max_depth": 1}}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a", "limits": {"max_depth": 9}})).unwrap();
    assert_eq!(world.node("a").limits.max_depth, 1);
    let a = world.claim("a");
    assert!(matches!(world.spawn(&a, json!({"goal": "b"})).unwrap_err(), Refusal::Depth { .. }));
}

#[test]
fn l_t7_children_at_once_and_contexts_in_all() {
    let mut world = World::new();
    world.settings.limits.max_children = 2;
    world.settings.limits.max_contexts = 5;
    world.submit(json!({"goal": "root", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    let spawn = |world: &mut World, n: u32| {
        world.spawn(&root, json!({"goal": n.to_string(), "child_id": format!("c{n}")}))
    };
    spawn(&mut world, 1).unwrap();
    spawn(&mut world, 2).unwrap();
    let refused = spawn(&mut world, 3).unwrap_err();
    assert!(matches!(&refused, Refusal::MaxChildren { limit, .. } if limit.value == "2"), "{refused}");
    for (done, next) in [("c1", 3), ("c2", 4)] {
        world.run(done, "ok");
        spawn(&mut world, next).unwrap();
    }
    world.run("c3", "ok");
    let refused = spawn(&mut world, 5).unwrap_err();
    assert!(
        matches!(&refused, Refusal::MaxContexts { asked: 1, have: 5, limit } if limit.value == "5"),
        "{refused}"
    );
}

#[test]
fn p_the_same_agent_with_the_same_goal_among_the_ancestors_is_a_cycle() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "research", "agent_id": "researcher", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    let refused =
        world.spawn(&a, json!({"goal": "research", "agent_id": "researcher", "child_id": "b"})).unwrap_err();
    assert!(matches!(refused, Refusal::Cycle { ref ancestor, .. } if *ancestor == id("a")), "{refused}");
    world.spawn(&a, json!({"goal": "research", "agent_id": "writer", "child_id": "b"})).unwrap();
    world.spawn(&a, json!({"goal": "research more", "agent_id": "researcher", "child_id": "c"})).unwrap();
}

#[test]
fn p_the_model_allow_lists_of_every_ancestor_apply() {
    let mut world = World::new();
    world
        .agent(json!({"agent_id": "default", "allowed_models": ["small", "large"]}))
        .agent(json!({"agent_id": "writer", "allowed_models": []}))
        .agent(json!({"agent_id": "small", "kind": "llm", "model": "small"}))
        .agent(json!({"agent_id": "huge", "kind": "llm", "model": "huge"}));
    world.submit(json!({"goal": "root", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "x", "agent_id": "small", "child_id": "ok"})).unwrap();
    world.spawn(&root, json!({"goal": "w", "agent_id": "writer", "child_id": "w"})).unwrap();
    let writer = world.claim("w");
    for (lease, order) in [
        (&root, json!({"goal": "x", "agent_id": "huge"})),
        (&writer, json!({"goal": "x", "agent_id": "huge"})),
        (&writer, json!({"goal": "x", "agent_id": "small", "model": "huge"})),
    ] {
        let refused = world.spawn(lease, order).unwrap_err();
        assert!(matches!(refused, Refusal::Model { ref by, .. } if *by == id("root")), "{refused}");
    }
}

#[test]
fn p_a_fallback_model_that_is_not_allowed_is_not_handed_out() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "default", "allowed_models": ["large"]}));
    world.agent(json!({"agent_id": "writer", "kind": "llm", "model": "large", "fallback_model": "tiny"}));
    world.submit(json!({"goal": "root", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "x", "agent_id": "writer", "child_id": "a"})).unwrap();
    assert_eq!(world.work(&id("a")).unwrap().agent.fallback_model, None);
}

#[test]
fn i5_a_childs_tools_are_a_subset_of_its_parents() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "writer", "tools": ["fs.read", "http.get"]}));
    world.submit(json!({"goal": "root", "child_id": "root", "tools": ["fs.read", "fs.write"]})).unwrap();
    let root = world.claim("root");
    let refused = world.spawn(&root, json!({"goal": "x", "tools": ["fs.read", "http.get"]})).unwrap_err();
    assert!(matches!(refused, Refusal::Tools { ref tools, .. } if tools.len() == 1), "{refused}");
    assert!(refused.to_string().contains("http.get"));
    world.spawn(&root, json!({"goal": "x", "child_id": "narrow", "tools": ["fs.read"]})).unwrap();
    world.spawn(&root, json!({"goal": "x", "child_id": "same"})).unwrap();
    world.spawn(&root, json!({"goal": "x", "child_id": "profile", "agent_id": "writer"})).unwrap();
    let tools = |c: &str| {
        let tools = world.work(&id(c)).unwrap().tools.unwrap();
        tools.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(tools("narrow"), ["fs.read"]);
    assert_eq!(tools("same"), ["fs.read", "fs.write"]);
    assert_eq!(tools("profile"), ["fs.read"], "the tools of the profile are limited to those of the parent");
}

#[test]
fn i1_a_child_is_given_its_goal_and_declared_inputs_and_nothing_else() {
    let mut world = World::with_root(json!({"inputs": {"secret": "the parent's"}}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "find it", "child_id": "a", "inputs": {"topic": "ants"}})).unwrap();
    let work = world.work(&id("a")).unwrap();
    assert_eq!(work.goal.as_str(), "find it");
    assert_eq!(serde_json::to_value(&work.inputs).unwrap(), json!({"topic": "ants"}));
    let text = serde_json::to_string(&work).unwrap();
    assert!(!text.contains("the parent's") && !text.contains("the root's goal"), "{text}");
}

#[test]
fn i2_only_the_result_crosses_to_the_parent() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.wait(&root, &["a"]).unwrap();
    world.run("a", json!({"found": 3}));
    let work = world.work(&id("root")).unwrap();
    let children = serde_json::to_value(&work.children).unwrap();
    let expected = json!([{"child_id": "a", "status": "completed", "result": {"inline": {"found": 3}}}]);
    assert_eq!(children, expected);
}

#[test]
fn i6_a_thread_id_is_handed_down_by_graphs_and_grants_nothing() {
    let mut world = World::with_graph(json!({
        "thread_id": "thread-7",
        "steps": [{"agent_id": "writer", "task_description": "w"}],
    }));
    let work = world.work(&id("writer")).unwrap();
    assert_eq!(work.thread_id.unwrap().as_str(), "thread-7");
    world.run("writer", "ok");
    assert_eq!(world.trace.outcome(&id("graph")).unwrap().context.thread_id.unwrap().as_str(), "thread-7");
}

#[test]
fn p_spawning_twice_is_the_same_spawn_and_other_content_is_a_conflict() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let child = json!({"goal": "a", "child_id": "a", "max_cost_usd": 0.1});
    world.spawn(&root, child.clone()).unwrap();
    assert_eq!(world.spawn(&root, child.clone()).unwrap(), []);
    let conflict = world.spawn(&root, with(child.clone(), json!({"goal": "b"}))).unwrap_err();
    assert!(matches!(conflict, Refusal::Conflict { .. }));
    // A redelivery after the child's end, from a later attempt of the parent, is still the same
    // spawn.
    world.run("a", "ok");
    world.pass(10_000);
    let successor = world.claim("root");
    assert_eq!(world.spawn(&successor, child).unwrap(), []);
    assert_eq!(world.trace.contexts().len(), 2);
}

#[test]
fn p_submitting_twice_is_the_same_trace() {
    let mut world = World::with_root(json!({"max_cost_usd": 2}));
    let same = json!({"goal": "the root's goal", "child_id": "root", "max_cost_usd": 2});
    assert_eq!(world.submit(same.clone()).unwrap(), []);
    assert!(matches!(
        world.submit(with(same, json!({"max_cost_usd": 3}))).unwrap_err(),
        Refusal::Conflict { .. }
    ));
}

#[test]
fn p_a_refusal_leaves_no_trace_and_all_its_problems_come_at_once() {
    let mut world = World::new();
    let refused = world
        .submit(json!({"goal": "x", "agent_id": "reseacher", "max_cost_usd": 1, "closing_reserve_usd": 1}))
        .unwrap_err();
    let Refusal::Malformed(problems) = &refused else { panic!("{refused}") };
    let shown: Vec<_> = problems.iter().map(|p| (p.path.as_str(), p.hint.as_deref().unwrap_or(""))).collect();
    assert_eq!(shown[0], ("agent_id", "did you mean `researcher`?"));
    assert_eq!(shown[1].0, "closing_reserve_usd");
    assert!(world.trace.root().is_none() && world.trace.version() == 0);
}

#[test]
fn p_the_checks_run_in_the_order_of_the_specification() {
    // One spawn that breaks every rule is corrected one rule at a time: each refusal is that of the
    // next rule.
    let mut world = World::new();
    world.settings.limits.max_depth = 1;
    world.settings.limits.max_children = 1;
    world.agent(json!({"agent_id": "default", "allowed_models": ["small"], "tools": ["fs.read"]}));
    world.agent(json!({"agent_id": "huge", "kind": "llm", "model": "huge"}));
    world.submit(json!({"goal": "root", "child_id": "root", "max_cost_usd": 1})).unwrap();
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    let mut order = json!({"goal": "a", "agent_id": "nobody", "tools": ["http.get"], "model": "huge", "max_cost_usd": 2, "funding": "granted"});
    let code = |world: &mut World, lease: &Lease, order: &Value| {
        world.spawn(lease, order.clone()).unwrap_err().code().0
    };
    assert_eq!(code(&mut world, &a, &order), "malformed");
    order = with(order, json!({"agent_id": "default"}));
    assert_eq!(code(&mut world, &a, &order), "depth");
    assert_eq!(code(&mut world, &root, &order), "max_children");
    world.complete(&a, "ok").unwrap();
    order = with(order, json!({"goal": "root"}));
    assert_eq!(code(&mut world, &root, &order), "cycle");
    order = with(order, json!({"goal": "other"}));
    assert_eq!(code(&mut world, &root, &order), "tools");
    order = with(order, json!({"tools": ["fs.read"]}));
    assert_eq!(code(&mut world, &root, &order), "model");
    order = with(order, json!({"model": "small"}));
    assert_eq!(code(&mut world, &root, &order), "budget_denied");
    order = with(order, json!({"max_cost_usd": 0.5}));
    world.spawn(&root, order.clone()).unwrap();
    world.cancel(None).unwrap();
    let late = with(order, json!({"child_id": "late"}));
    assert_eq!(code(&mut world, &root, &late), "ended");
}

/// Usage of `n - 1`, `n` and `n + 1` of a limit `n` is reported, with a tick before the end and
/// without.
#[test]
fn l_a_limit_means_the_same_at_a_tick_and_at_the_end() {
    type Use = fn(u64) -> Progress;
    let limits: [(&str, u64, Use); 4] = [
        ("max_steps", 3, |n| Progress { steps: n as u32, ..Progress::default() }),
        ("max_retries_total", 2, |n| Progress { retries: n as u32, ..Progress::default() }),
        ("max_output_files", 0, |n| Progress { output_files: n as u32, ..Progress::default() }),
        ("max_output_size_bytes", 1_000, |n| Progress { output_size_bytes: n, ..Progress::default() }),
    ];
    for (limit, max, of) in limits {
        for used in max.saturating_sub(1)..=max + 1 {
            for ticked in [false, true] {
                let mut world = World::with_root(json!({"limits": {limit: max}}));
                let root = world.claim("root");
                if ticked {
                    world.tick(&root, of(used)).unwrap();
                }
                let done = wire::Verdict::Completed(wire::Payload::Inline(json!("done").into()));
                world.report_with(&root, of(used), done).ok();
                let end = world.node("root").end().expect("the root has ended");
                let error = end.details.error.as_ref().map(|error| (error.kind, error.message.clone()));
                let said = format!(
                    "`root` has used {used} of {limit} = {max} (the submission); raise `limits.{limit}` in the submission"
                );
                let passed = (wire::FailureKind::LimitExceeded, said);
                assert_eq!(
                    error,
                    (used > max).then_some(passed),
                    "{limit} {used} of {max}, ticked: {ticked}"
                );
            }
        }
    }
}

#[test]
fn l_a_result_larger_than_the_limit_goes_by_reference() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.complete(&root, "x".repeat(262_145)).unwrap();
    assert!(
        world
            .node("root")
            .end()
            .unwrap()
            .details
            .error
            .as_ref()
            .unwrap()
            .message
            .contains("max_result_bytes = 262144")
    );

    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let by_reference = wire::Payload::Reference(wire::ObjectReference {
        object: "o".into(),
        size_bytes: 9_000_000,
        sha256: "0".repeat(64),
    });
    world.report(&root, wire::Verdict::Completed(by_reference)).unwrap();
    assert_eq!(world.status("root"), "completed");
}

#[test]
fn l_a_childs_deadline_is_the_earlier_of_its_own_and_its_parents() {
    let mut world = World::with_root(json!({"timeout_ms": 50_000}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "default"})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "short", "timeout_ms": 20_000})).unwrap();
    world.spawn(&root, json!({"goal": "c", "child_id": "none", "timeout_ms": 0})).unwrap();
    for child in ["default", "short", "none"] {
        world.claim(child);
    }
    let deadline = |c: &str| world.trace.deadline(world.node(c)).map(|d| d.millis_since(world.now));
    assert_eq!(["default", "short", "none"].map(deadline), [Some(50_000), Some(20_000), Some(50_000)]);

    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    assert_eq!(world.trace.deadline(world.node("root")), None, "a root has no deadline by default");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "b", "timeout_ms": 0})).unwrap();
    for child in ["a", "b"] {
        world.claim(child);
    }
    let deadline = |c: &str| world.trace.deadline(world.node(c)).map(|d| d.millis_since(world.now));
    assert_eq!(["a", "b"].map(deadline), [Some(60_000), None]);
}

/// One worker slot and four steps of 1.4 s each, with a timeout of 3 s each: waiting for the slot
/// times none of them out.
#[test]
fn l_the_timeout_of_a_step_counts_from_its_first_attempt() {
    let step =
        |id: &str| json!({"id": id, "agent_id": "writer", "task_description": id, "timeout_ms": 3_000});
    let steps: Vec<_> = ["a", "b", "c", "d"].map(step).to_vec();
    let mut world = World::with_graph(json!({"mode": "parallel", "timeout_ms": 60_000, "steps": steps}));
    for id in ["a", "b", "c", "d"] {
        let snapshot = world.trace.snapshot(world.node(id));
        assert_eq!(snapshot.timeout_ms, Some(3_000), "the timeout is shown before the first attempt");
        let lease = world.claim(id);
        let left = world.trace.snapshot(world.node(id)).deadline.unwrap().millis_since(world.now);
        assert_eq!(left, 3_000);
        world.pass(1_400);
        world.complete(&lease, id).unwrap();
    }
    assert_eq!(world.status("graph"), "completed");
    world.rest();
}

#[test]
fn l_a_timeout_goes_on_through_retries_and_the_wait_between_them() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a", "timeout_ms": 20_000})).unwrap();
    world.wait(&root, &["a"]).unwrap();
    world.pass(100_000);
    let lease = world.claim("a");
    world.fail(&lease, true).unwrap();
    world.pass(19_999);
    assert_eq!(world.status("a"), "working", "queued again");
    world.pass(1);
    assert_eq!(world.status("a"), "timed_out");
}

/// The timeout of a submission is wall time; that of a root's profile is the running time of the
/// agent.
#[test]
fn l_the_timeout_of_a_submission_counts_from_its_admission() {
    let mut world = World::with_root(json!({"timeout_ms": 5_000}));
    world.pass(4_999);
    assert_eq!(world.status("root"), "submitted");
    world.pass(1);
    assert_eq!(world.status("root"), "timed_out");

    let mut world = World::new();
    world.agent(json!({"agent_id": "default", "timeout_ms": 5_000}));
    world.submit(json!({"goal": "root", "child_id": "root"})).unwrap();
    world.pass(50_000);
    world.claim("root");
    world.pass(4_999);
    assert_eq!(world.status("root"), "working");
    world.pass(1);
    assert_eq!(world.status("root"), "timed_out");
}

#[test]
fn l_max_queue_ms_bounds_each_wait_for_a_worker() {
    let waits = |millis: u64| {
        let mut world = World::with_root(json!({"limits": {"max_queue_ms": 7_000}}));
        let until = world.trace.snapshot(world.node("root")).queue_until.unwrap();
        assert_eq!(until.millis_since(world.now), 7_000);
        world.pass(millis);
        world
    };
    let world = waits(7_000);
    assert_eq!(world.status("root"), "timed_out");
    let end = world.node("root").end().unwrap();
    assert_eq!(
        end.details.reason.as_deref(),
        Some(
            "no worker of the pool `default` took `root` within max_queue_ms = 7000 (the submission); raise `limits.max_queue_ms` in the submission"
        )
    );

    // Claimed in time. A running attempt has no queue bound; the wait for the next attempt has one.
    let mut world = waits(6_999);
    let lease = world.claim("root");
    assert_eq!(world.trace.snapshot(world.node("root")).queue_until, None);
    for _ in 0..10 {
        world.pass(5_000);
        world.tick(&lease, Progress::default()).unwrap();
    }
    world.spawn(&lease, json!({"goal": "a", "child_id": "a"})).unwrap();
    assert_eq!(world.node("a").limits.max_queue_ms, 7_000, "a child has the limit of its parent");
    let a = world.claim("a");
    world.wait(&lease, &["a"]).unwrap();
    world.complete(&a, "done").unwrap();
    world.pass(6_999);
    assert_eq!(world.status("root"), "working", "queued for its child's result");
    world.pass(1);
    assert_eq!(world.status("root"), "timed_out");
    world.rest();
}

/// A context stored before timeouts counted from the first attempt still loads, and keeps its
/// deadline.
#[test]
fn l_a_context_of_an_earlier_version_keeps_its_deadline() {
    let mut world = World::with_root(json!({"timeout_ms": 5_000}));
    let (_, admitted) = world.log.iter().find(|(_, event)| matches!(event, Event::Admitted(_))).unwrap();
    let stored = serde_json::to_value(admitted).unwrap();
    assert!(stored.get("timeout_ms").is_none(), "the earlier stored form has no timeout: {stored}");
    let read: Event = serde_json::from_value(stored).unwrap();
    assert_eq!(read, *admitted);
    world.claim("root");
    assert_eq!(world.node("root").lifecycle.deadline.unwrap().millis_since(world.now), 5_000);
}

#[test]
fn l_a_timeout_reaches_all_beneath() {
    let mut world = World::with_root(json!({"timeout_ms": 5_000}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.wait(&root, &["a"]).unwrap();
    world.pass(5_000);
    assert_eq!(["root", "a"].map(|c| world.status(c)), ["timed_out", "timed_out"]);
    world.rest();
}

#[test]
fn b15_steps_and_retries_default_to_the_parents() {
    let mut world = World::with_root(json!({"limits": {"max_steps": 7, "max_retries_total": 2}}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.spawn(&root, json!({"goal": "b", "child_id": "b", "limits": {"max_steps": 3}})).unwrap();
    let limits = |c: &str| (world.node(c).limits.max_steps, world.node(c).limits.max_retries_total);
    assert_eq!((limits("a"), limits("b")), ((7, 2), (3, 2)));
}

#[test]
fn w1_the_window_is_clamped_and_the_note_is_on_the_parent() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "default", "window_tokens": 8000}));
    world.agent(json!({"agent_id": "writer", "window_tokens": 2000}));
    world.submit(json!({"goal": "root", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "same"})).unwrap();
    let events = world.spawn(&root, json!({"goal": "b", "child_id": "small", "agent_id": "writer"})).unwrap();
    assert!(events.iter().any(|event| matches!(event, Event::WindowClamped { .. })));
    world.spawn(&root, json!({"goal": "c", "child_id": "asked", "window_tokens": 500})).unwrap();
    let window = |c: &str| world.node(c).terms.window_tokens.map(Tokens::count);
    assert_eq!(["same", "small", "asked"].map(window), [Some(8000), Some(2000), Some(500)]);
    assert_eq!(world.node("root").notes.len(), 2, "{:?}", world.node("root").notes);
    assert!(world.node("small").notes.is_empty());
}

#[test]
fn w3_a_share_is_a_snapshot_of_system_and_context_alone() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let said = |category: &str, content: &str| -> SharedMessage {
        serde_json::from_value(json!({"category": category, "content": content})).unwrap()
    };
    let shared = [said("system", "be kind"), said("context", "the year is 2026")];
    let spawn = |world: &mut World, name: &str, share: Value| {
        let spawn: wire::Spawn =
            decode::value(&json!({"goal": "x", "child_id": name, "share": share})).unwrap();
        let spec = ContextSpec::from_spawn(&spawn, &shared, &id("c")).unwrap();
        let command = Spawn { lease: root.clone(), spec, plan: None, agents: world.agents.clone().into() };
        world.handle(Command::Spawn(Box::new(command))).unwrap();
        world.work(&id(name)).unwrap().shared_messages
    };
    assert_eq!(spawn(&mut world, "goal-only", json!([])), []);
    assert_eq!(spawn(&mut world, "one", json!(["context"])), [shared[1].clone()]);
    assert_eq!(spawn(&mut world, "both", json!(["system", "context"])).len(), 2);
    for forbidden in ["dialog", "tools"] {
        let refused = decode::value::<wire::Spawn>(&json!({"goal": "x", "share": [forbidden]})).unwrap_err();
        assert!(refused.to_string().contains("share[0]"), "{refused}");
    }
}

#[test]
fn w3_a_spawn_asked_again_keeps_its_first_snapshot() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let ask = |world: &mut World, said: &str| {
        let message: SharedMessage =
            serde_json::from_value(json!({"category": "context", "content": said})).unwrap();
        let spawn = json!({"goal": "x", "child_id": "a", "share": ["context"]});
        let spec = ContextSpec::from_spawn(&decode::value(&spawn).unwrap(), &[message], &id("c")).unwrap();
        let command = Spawn { lease: root.clone(), spec, plan: None, agents: world.agents.clone().into() };
        world.handle(Command::Spawn(Box::new(command)))
    };
    ask(&mut world, "it rains").unwrap();
    assert_eq!(ask(&mut world, "it rains; then the sun came out").unwrap(), []);
    assert_eq!(world.work(&id("a")).unwrap().shared_messages[0].content.as_str(), "it rains");
}

#[test]
fn w6_a_guarded_delete_lists_its_referrers() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    world.pay(&a, "c1", cents(10)).unwrap();
    world.spawn(&a, json!({"goal": "b", "child_id": "b"})).unwrap();

    let Refusal::Guarded { referrers, .. } = world.delete(Some("a"), false).unwrap_err() else { panic!() };
    assert_eq!(
        referrers.len(),
        3,
        "not the context, `b` and `root`, which has not read the result: {referrers:?}"
    );
    world.complete(&a, "the secret").unwrap();
    let Refusal::Guarded { referrers, .. } = world.delete(Some("a"), false).unwrap_err() else { panic!() };
    assert!(matches!(referrers.as_slice(), [only] if only.contains("root")), "{referrers:?}");
    world.complete(&root, "ok").unwrap();

    let known =
        |referrers: &[&str]| wire::Referrers::Known(referrers.iter().map(|r| (*r).to_owned()).collect());
    let delete = |world: &mut World, force, outside| {
        let delete = wire::Delete { child_id: Some(id("a")), force, outside };
        world.handle(Command::Delete { delete, branches: Some(Vec::new()) })
    };
    assert!(matches!(
        delete(&mut world, false, wire::Referrers::Unknown).unwrap_err(),
        Refusal::GuardUnsure { .. }
    ));
    assert!(matches!(delete(&mut world, false, known(&["branch-7"])).unwrap_err(), Refusal::Guarded { .. }));
    let branching = |world: &mut World, branches| {
        let delete = wire::Delete { child_id: Some(id("a")), force: false, outside: known(&[]) };
        world.handle(Command::Delete { delete, branches })
    };
    let branch = |from: &str| wire::Branch {
        trace_id: domain::TraceId::from_u128(7).unwrap(),
        from: id(from),
        taken: false,
    };
    assert!(matches!(branching(&mut world, None).unwrap_err(), Refusal::GuardUnsure { .. }));
    let refused = branching(&mut world, Some(vec![branch("root"), branch("b")])).unwrap_err();
    let Refusal::Guarded { referrers, .. } = refused else { panic!("{refused:?}") };
    assert!(matches!(referrers.as_slice(), [only] if only.contains("`b`")), "{referrers:?}");
    branching(&mut world, Some(vec![branch("root")])).unwrap();
    assert_eq!(delete(&mut world, false, known(&[])).unwrap(), [], "a second delete changes nothing");
    assert!(
        world.node("a").lifecycle.deleted
            && world.node("b").lifecycle.deleted
            && !world.node("root").lifecycle.deleted
    );
    assert!(!serde_json::to_string(&world.trace.outcome(&id("a"))).unwrap().contains("secret"));
    assert_eq!(world.spent_cents("root"), 10, "the booked costs remain");
    world.rest();
}

#[test]
fn w6_a_forced_delete_ends_what_is_live() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let (lease, key) = (root.clone(), "root.note".parse().unwrap());
    world.handle(Command::SetValue { lease, key, value: domain::Json::from("private") }).unwrap();
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    assert!(world.delete(None, false).is_err());
    world.delete(None, true).unwrap();
    assert_eq!(
        ["root", "a"].map(|c| (world.status(c), world.node(c).lifecycle.deleted)),
        [("cancelled".into(), true), ("cancelled".into(), true)]
    );
    assert!(world.trace.outputs().is_empty() && world.trace.values().is_empty());
    world.rest();
}
