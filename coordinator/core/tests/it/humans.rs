//! G7: the state of a run that waits for humans, the rules for their answers, and the outcome
//! without an answer.

use domain::wire::{ContextStatus, EndStatus, FailureKind, StepStatus};
use serde_json::{Value, json};
use trace::{Effect, Event, Refusal, effects};
use world::{World, id};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A root that waits for `a`, which runs a graph of `left` and `right`.
fn asking_beneath() -> World {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let step = |name: &str| json!({"id": name, "agent_id": "writer", "task_description": name});
    let graph = json!({"child_id": "a", "mode": "parallel", "steps": [step("left"), step("right")]});
    world.spawn_graph(&root, graph).unwrap();
    world.wait(&root, &["a"]).unwrap();
    world
}

#[test]
fn g7_all_above_a_question_show_input_required_with_the_path_until_it_is_answered() {
    let mut world = asking_beneath();
    let (left, right) = (world.claim("left"), world.claim("right"));
    assert_eq!(["root", "a"].map(|c| world.status(c)), ["working", "working"]);
    world.ask_human(&right, "tea or coffee?").unwrap();
    let shown = ["root", "a", "left", "right"].map(|c| world.status(c));
    assert_eq!(shown, ["input_required", "input_required", "working", "input_required"]);
    let snapshot = world.trace.snapshot(world.node("root"));
    assert_eq!(snapshot.asked_by, [id("root"), id("a"), id("right")]);
    assert_eq!(world.trace.snapshot(world.node("left")).asked_by, []);
    assert_eq!((world.summary().status, world.summary().questions), (ContextStatus::InputRequired, 1));
    world.ask_human(&left, "milk?").unwrap();
    assert_eq!(world.summary().questions, 2);

    world.answer("left", 1, "no").unwrap();
    assert_eq!(world.trace.snapshot(world.node("root")).asked_by, [id("root"), id("a"), id("right")]);
    world.answer("right", 1, "tea").unwrap();
    assert_eq!(["root", "a"].map(|c| world.status(c)), ["working", "working"]);
    assert_eq!((world.summary().status, world.summary().questions), (ContextStatus::Working, 0));
    world.run("left", "l");
    world.run("right", "r");
    world.run("root", "ok");
    world.rest();
}

#[test]
fn g7_a_context_that_works_itself_shows_working_while_another_beneath_it_asks() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    let a = world.claim("a");
    world.ask_human(&a, "which?").unwrap();
    assert_eq!((world.status("root"), world.node("root").lifecycle.questions), ("working".into(), 1));
    world.wait(&root, &["a"]).unwrap();
    assert_eq!(world.status("root"), "input_required");
    world.cancel(Some("a")).unwrap();
    assert_eq!((world.status("root"), world.node("root").lifecycle.questions), ("working".into(), 0));
    world.run("root", "ok");
    world.rest();
}

#[test]
fn g7_a_context_that_waits_for_a_raise_has_no_question() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": "pause"}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.wait(&root, &["a"]).unwrap();
    let a = world.claim("a");
    world.ask_human(&a, "which?").unwrap();
    world.charge("root", "k", world::cents(10)).unwrap();
    assert_eq!(world.status("a"), "input_required", "an answer may come before the raise");
    world.answer("a", 1, "this").unwrap();
    assert_eq!((world.status("a"), world.status("root")), ("paused".into(), "working".into()));
    assert_eq!(
        (world.node("root").lifecycle.waiting_for_humans, world.node("root").lifecycle.questions),
        (1, 0)
    );
    world.check_replay();
}

/// The problem messages of a refused answer.
fn refused(world: &mut World, child: &str, answer: &str) -> Vec<String> {
    let Refusal::Malformed(problems) = world.answer(child, 1, answer).unwrap_err() else {
        panic!("no problems")
    };
    problems.iter().map(|problem| problem.message.clone()).collect()
}

#[test]
fn g7_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.ask_with_form(&root, "which?", json!({"choices": ["tea", "coffee"]})).unwrap();
    assert_eq!(refused(&mut world, "root", "milk"), ["it is not one of the choices"]);
    assert_eq!(world.status("root"), "input_required");
    assert_eq!(world.trace.question(&id("root")).unwrap().form.choices.len(), 2);
    world.answer_by("root", "tea", "Ada").unwrap();
    assert_eq!(world.answer("root", 1, "tea").unwrap(), [], "the same answer again changes nothing");
    let work = world.work(&id("root")).unwrap();
    assert_eq!(
        (work.answers[0].answer.as_str(), work.answers[0].by.as_ref().unwrap().as_str()),
        ("tea", "Ada")
    );

    let root = world.claim("root");
    let schema =
        json!({"type": "object", "required": ["days", "why"], "properties": {"days": {"type": "integer"}}});
    world.ask_with_form(&root, "how long?", json!({"schema": schema})).unwrap();
    let Refusal::Malformed(problems) = world.answer("root", 2, r#"{"days": "x"}"#).unwrap_err() else {
        panic!()
    };
    assert_eq!(problems.iter().count(), 2, "{problems}");
    world.answer("root", 2, r#"{"days": 3, "why": "it rains"}"#).unwrap();
    world.run("root", "ok");
    world.rest();
}

#[test]
fn g7_an_agent_can_not_ask_an_unanswerable_question() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let asked = world.ask_with_form(&root, "?", json!({"choices": ["a"], "default": "b", "timeout_ms": 10}));
    assert!(matches!(asked, Err(Refusal::Malformed(_))));
    // An agent's form also can't imitate an `approve` step, whose answer would become its result.
    world.ask_with_form(&root, "?", json!({"approval": true, "who": "me"})).unwrap();
    world.answer("root", 1, "approve").unwrap();
    assert_eq!(world.status("root"), "working");
}

#[test]
fn g7_without_an_answer_in_time_the_agent_gets_the_default() {
    let mut world = World::with_root(json!({"timeout_ms": 50_000}));
    let root = world.claim("root");
    let form = json!({"choices": ["yes", "no"], "timeout_ms": 3 * DAY_MS, "default": "no"});
    world.ask_with_form(&root, "go on?", form).unwrap();
    assert_eq!(world.pass(3 * DAY_MS - 1), [], "the deadline is stopped meanwhile");
    let events = world.pass(1);
    assert!(matches!(&events[0], Event::Answered { default: true, .. }), "{events:?}");
    assert!(matches!(world.answer("root", 1, "yes").unwrap_err(), Refusal::NoQuestion { .. }), "too late");
    let given = world.work(&id("root")).unwrap().answers.remove(0);
    assert_eq!((given.answer.as_str(), given.default), ("no", true));
    world.run("root", "ok");
    world.rest();
}

#[test]
fn g7_without_an_answer_and_a_default_the_context_fails() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.ask_with_form(&root, "go on?", json!({"timeout_ms": 1000})).unwrap();
    world.pass(1000);
    let end = world.node("root").end().unwrap();
    assert_eq!(
        (end.status, end.details.error.as_ref().unwrap().kind),
        (EndStatus::Failed, FailureKind::InputRequired)
    );
    assert_eq!(end.details.error.as_ref().unwrap().message, "no answer within 1000 ms");
    world.rest();
}

#[test]
fn g7_a_question_is_asked_again_ten_times_and_is_still_one_question() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.ask_with_form(&root, "well?", json!({"remind_every_ms": DAY_MS})).unwrap();
    for reminder in 1..=10 {
        let events = world.pass(DAY_MS);
        assert!(matches!(events.as_slice(), [Event::Reminded { number: 1, .. }]), "{events:?}");
        assert!(matches!(effects(&world.trace, &events).as_slice(), [Effect::Question { .. }]));
        assert_eq!(world.trace.question(&id("root")).unwrap().reminder, reminder);
    }
    assert_eq!(
        (world.pass(100 * DAY_MS), world.trace.next_timer()),
        (Vec::new(), None),
        "no more reminders are sent"
    );
    world.answer("root", 1, "yes").unwrap();
    world.run("root", "ok");
    world.rest();
}

#[test]
fn g7_reminders_end_with_the_time_of_the_question_even_if_the_trace_was_not_woken() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let form = json!({"remind_every_ms": 1000, "timeout_ms": 5000, "default": "x"});
    world.ask_with_form(&root, "well?", form).unwrap();
    let events = world.pass(60_000);
    assert!(
        matches!(events.as_slice(), [Event::Answered { default: true, .. }, Event::Requeued { .. }]),
        "{events:?}"
    );
}

fn approval(terms: Value) -> Value {
    let mut approve = json!({"who": "the editor"});
    approve.as_object_mut().unwrap().extend(terms.as_object().unwrap().clone());
    json!({"id": "ok", "approve": approve, "output_to": "decision"})
}

fn writer(id: &str) -> Value {
    json!({"id": id, "agent_id": "writer", "task_description": id})
}

#[test]
fn g7_an_approve_step_waits_for_a_human_without_worker_lease_or_money() {
    let graph = json!({"max_cost_usd": 1, "steps": [
        {"id": "draft", "agent_id": "writer", "task_description": "t", "output_to": "text"},
        {"id": "ok", "approve": {"who": "the editor", "question": "Publish it?"}, "input_from": ["text"], "output_to": "decision"},
        {"id": "publish", "agent_id": "writer", "task_description": "t", "when": "outputs.decision == 'approve'"}]});
    let mut world = World::with_graph(graph);
    world.run("draft", "All about ants.");
    let ok = world.node("ok");
    assert_eq!(
        (ok.attempt(), world.status("ok"), world.status("graph")),
        (0, "input_required".into(), "input_required".into())
    );
    assert!(world.node("graph").budget.held.is_zero());
    assert_eq!((world.queued(), world.trace.next_timer()), (Vec::new(), None));
    let question = world.trace.question(&id("ok")).unwrap();
    assert_eq!(question.question.as_str(), "Publish it?\n\ntext: All about ants.");
    assert_eq!(question.form.who.as_ref().unwrap().as_str(), "the editor");
    assert!(matches!(world.try_claim("ok"), Err(Refusal::NotQueued { .. })));
    assert!(matches!(world.tell("ok", "hello"), Err(Refusal::RunsNoAgent { .. })));

    world.pass(30 * DAY_MS);
    world.answer_by("ok", "Yes", "Ada").unwrap();
    assert_eq!(
        world.answer("ok", 1, "Yes").unwrap(),
        [],
        "the same answer again changes nothing, even after the end"
    );
    assert_eq!((world.status("ok"), world.status("publish")), ("completed".into(), "submitted".into()));
    let report = world.trace.graph_outcome(world.node("graph")).unwrap().steps.remove(1);
    assert_eq!(
        (report.status, report.attempts, report.cost_usd),
        (StepStatus::Succeeded, 0, domain::Usd::ZERO)
    );
    assert_eq!(report.answered_by.unwrap().as_str(), "Ada");
    world.run("publish", "done");
    assert_eq!(world.status("graph"), "completed");
    world.rest();
}

#[test]
fn g7_g4_a_denied_step_fails_with_the_reason_as_any_other() {
    for (policy, status, after) in
        [("fail", "failed", StepStatus::Skipped), ("continue", "completed", StepStatus::Succeeded)]
    {
        let steps = json!([approval(json!({})), writer("other")]);
        let mut world = World::with_graph(json!({"on_partial_success": policy, "steps": steps}));
        assert_eq!(refused(&mut world, "ok", "perhaps"), ["it neither approves nor denies"]);
        world.answer_by("ok", "no: it is too long", "Ada").unwrap();
        let error = world.node("ok").end().unwrap().details.error.clone().unwrap();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (FailureKind::Denied, "denied by Ada: it is too long")
        );
        if policy == "continue" {
            world.run("other", "x");
        }
        let steps = world.trace.graph_outcome(world.node("graph")).unwrap().steps;
        assert_eq!((world.status("graph").as_str(), steps[1].status), (status, after), "{policy}");
        assert!(steps[0].reason.as_ref().unwrap().contains("too long"));
        world.rest();
    }
}

#[test]
fn g7_an_unanswered_approve_step_ends_as_otherwise_says() {
    for (otherwise, choices, end) in [
        ("approve", json!([]), Ok("approve")),
        ("approve", json!(["today", "tomorrow"]), Ok("today")),
        ("deny", json!([]), Err((FailureKind::Denied, "denied: no answer within 5000 ms"))),
        ("fail", json!([]), Err((FailureKind::InputRequired, "no answer within 5000 ms"))),
    ] {
        let terms = json!({"timeout_ms": 5000, "otherwise": otherwise, "choices": choices});
        let mut world = World::with_graph(json!({"steps": [approval(terms)]}));
        world.pass(5000);
        let ended = world.node("ok").end().unwrap().clone();
        match end {
            Ok(result) => {
                assert_eq!(ended.status, EndStatus::Completed);
                assert_eq!(world.trace.outputs()["decision"].to_text(), result);
            }
            Err((kind, message)) => {
                let error = ended.details.error.unwrap();
                assert_eq!((error.kind, error.message.as_str()), (kind, message));
            }
        }
        world.rest();
    }
}

#[test]
fn g7_an_approve_step_in_a_loop_asks_each_round_and_in_a_race_is_cancelled_with_the_rest() {
    let inner = json!([writer("w"), approval(json!({"choices": ["again", "good"]}))]);
    let group =
        json!({"id": "g", "steps": inner, "loop": {"max_rounds": 3, "until": "outputs.decision == 'good'"}});
    let mut world = World::with_graph(json!({"steps": [group]}));
    world.run("w", "one");
    world.answer("ok", 1, "again").unwrap();
    let second: Vec<_> = world.queued();
    world.run(second[0].as_str(), "two");
    let asks = world.trace.contexts().iter().find(|node| node.asks()).unwrap().id.clone();
    world.answer(asks.as_str(), 1, "good").unwrap();
    assert_eq!(world.status("graph"), "completed");
    world.rest();

    let mut world = World::with_graph(json!({"race": true, "steps": [approval(json!({})), writer("w")]}));
    world.run("w", "first");
    assert_eq!((world.status("ok"), world.status("graph")), ("cancelled".into(), "completed".into()));
    assert_eq!(world.node("graph").lifecycle.questions, 0);
    world.rest();
}

#[test]
fn g7_an_approve_step_for_each_element_shows_it() {
    let mut step = approval(json!({}));
    step["for_each"] = json!("items");
    let mut world = World::with_graph(json!({"inputs": {"items": ["a", "b"]}, "steps": [step]}));
    let question = world.trace.question(&id("ok-2")).unwrap().question;
    assert_eq!(question.as_str(), "Do you approve `ok`?\n\nindex: 1\n\nitem: b");
    world.answer("ok-1", 1, "yes").unwrap();
    world.answer("ok-2", 1, "ok").unwrap();
    assert_eq!(world.trace.outputs()["decision"].to_text(), r#"["approve","approve"]"#);
    world.rest();
}

#[test]
fn g7_hitl_fail_of_the_caller_fails_an_approve_step_beneath_it() {
    let mut world = World::with_root(json!({"hitl": "fail"}));
    let root = world.claim("root");
    world.spawn_graph(&root, json!({"child_id": "g", "steps": [approval(json!({}))]})).unwrap();
    let error = world.node("ok").end().unwrap().details.error.clone().unwrap();
    assert_eq!(error.kind, FailureKind::InputRequired);
    assert_eq!(world.status("g"), "failed");
}

#[test]
fn g7_a_cancel_that_comes_before_an_approve_step_ends_it_before_it_asks() {
    let mut world = World::new();
    world.submit(json!({"goal": "g", "child_id": "root"})).unwrap();
    world.cancel(Some("ok")).unwrap();
    let root = world.claim("root");
    world.spawn_graph(&root, json!({"child_id": "g", "steps": [approval(json!({}))]})).unwrap();
    assert_eq!((world.status("ok"), world.status("g")), ("cancelled".into(), "failed".into()));
    assert!(!world.log.iter().any(|(_, event)| matches!(event, Event::InputRequired { .. })));
}

#[test]
fn g7_a_reminder_and_a_late_question_write_no_more_than_the_first() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.measured();
    world.ask_with_form(&root, "well?", json!({"remind_every_ms": DAY_MS})).unwrap();
    let reminders: Vec<usize> = (0..9)
        .map(|_| {
            world.pass(DAY_MS);
            world.written()
        })
        .collect();
    assert!(reminders.iter().all(|bytes| bytes.abs_diff(reminders[0]) <= 20), "{reminders:?}");

    let mut asked = Vec::new();
    for number in 1..=1_000 {
        world.answer("root", number, "yes").unwrap();
        let root = world.claim("root");
        world.ask_with_form(&root, "well?", json!({"choices": ["yes"]})).unwrap();
        asked.push(world.written());
    }
    assert!(asked[999].abs_diff(asked[9]) <= 40, "{} and {}", asked[9], asked[999]);
}

#[test]
fn g7_a_question_with_many_long_inputs_is_cut_to_what_a_question_may_have() {
    let keys: Vec<String> = (0..40).map(|n| format!("k{n}")).collect();
    let inputs: serde_json::Map<String, Value> =
        keys.iter().map(|key| (key.clone(), json!("x".repeat(3_000)))).collect();
    let mut step = approval(json!({}));
    step["input_from"] = json!(keys);
    let mut world = World::with_graph(json!({"inputs": inputs, "steps": [step]}));
    let question = world.trace.question(&id("ok")).unwrap().question;
    assert!(question.as_str().len() <= domain::limits::MAX_TEXT_BYTES);
    world.answer("ok", 1, "yes").unwrap();
    world.rest();
    // The longest question that a graph may have, with one input.
    let approve = json!({"who": "w", "question": "q".repeat(8 * 1024)});
    let steps = json!([{"id": "ok", "approve": approve, "input_from": ["a"]}]);
    let world = World::with_graph(json!({"inputs": {"a": 1}, "steps": steps}));
    assert_eq!(world.status("ok"), "input_required");
}

#[test]
fn g7_g11_a_human_is_asked_also_if_all_that_the_steps_may_use_is_spent() {
    for on_exhausted in ["abort", "pause"] {
        let first = json!({"id": "a", "agent_id": "writer", "task_description": "t", "max_cost_usd": 0.08});
        let mut world =
            World::with_graph(json!({"must_fit": true, "max_cost_usd": 0.10, "closing_reserve_usd": 0.02,
            "on_exhausted": on_exhausted, "steps": [first, approval(json!({}))]}));
        let a = world.claim("a");
        world.pay(&a, "1-1", world::cents(8)).unwrap();
        world.complete(&a, "x").unwrap();
        assert_eq!(world.status("ok"), "input_required", "{on_exhausted}");
        world.answer("ok", 1, "yes").unwrap();
        assert_eq!(world.status("graph"), "completed");
        world.rest();
    }
}

#[test]
fn g7_the_name_of_an_answerer_is_bounded() {
    let mut world = World::with_graph(json!({"steps": [approval(json!({}))]}));
    assert!(world.answer_by("ok", "yes", &"n".repeat(257)).is_err());
    assert_eq!(world.status("ok"), "input_required", "the question stays open");
    world.answer_by("ok", "yes", &"n".repeat(256)).unwrap();
    world.rest();
}

#[test]
fn g7_b4_no_question_is_asked_for_a_context_that_can_not_continue() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.10}));
    let root = world.claim("root");
    world.pay(&root, "1-1", world::cents(10)).unwrap();
    world.ask_human(&root, "which?").unwrap();
    assert_eq!(world.status("root"), "aborted");
    world.rest();
}

#[test]
fn g7_t1_a_default_that_is_due_when_the_asker_ends_does_not_revive_it() {
    let mut world = World::with_root(json!({"limits": {"max_retries_total": 0}}));
    let root = world.claim("root");
    world.spawn(&root, json!({"goal": "asks", "child_id": "asks"})).unwrap();
    let lease = world.claim("asks");
    world.ask_with_form(&lease, "which?", json!({"timeout_ms": 15_000, "default": "this"})).unwrap();
    // One wake finds both the lost worker of the root and the due default answer.
    world.pass(15_000);
    assert_eq!((world.status("root").as_str(), world.status("asks").as_str()), ("failed", "cancelled"));
    world.rest();
}
