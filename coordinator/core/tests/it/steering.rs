//! Messages to agents (G13) and the ladder of a budget (B21), as the core decides them.

use domain::{
    ladder::RungAction,
    wire::{Answer, News, Tell, Text, Verdict},
};
use serde_json::{Value, json};
use trace::{Command, Event, Refusal};
use world::{World, cents};

fn news(answer: Answer) -> News {
    let Answer::News(news) = answer else { panic!("no news: {answer:?}") };
    *news
}

fn texts(news: &News) -> Vec<(u32, String)> {
    news.told.iter().map(|told| (told.number.expect("a number"), told.text.to_string())).collect()
}

#[test]
fn g13_a_message_comes_before_the_next_hold_once_and_in_order() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    world.tell("root", "while it is queued").unwrap();
    let lease = world.claim("root");
    assert_eq!(world.ask_with(&lease, "1", cents(1), 1, 0), Answer::Done, "the message was seen");
    world.tell("root", "second").unwrap();
    world.tell("root", "third").unwrap();
    assert_eq!(world.ask_with(&lease, "1", cents(1), 1, 0), Answer::Done, "the first call is held already");
    for _ in 0..2 {
        let news = news(world.ask_with(&lease, "2", cents(1), 1, 0));
        assert_eq!(texts(&news), [(2, "second".into()), (3, "third".into())]);
        assert!(news.rungs.is_empty());
        assert_eq!(world.node("root").calls.open().count(), 1, "a call that gets news is not held");
    }
    assert_eq!(world.node("root").unseen(), 2);
    assert_eq!(world.ask_with(&lease, "3", cents(1), 3, 0), Answer::Done);
    assert_eq!(world.node("root").unseen(), 0);
    assert_eq!(
        world.hold(&lease, "4", cents(1)).unwrap().len(),
        1,
        "a worker without support for news gets none"
    );
    world.complete(&lease, "ok").unwrap();
    world.rest();
}

#[test]
fn g13_the_same_id_and_text_is_one_message_and_another_text_a_conflict() {
    let mut world = World::with_root(json!({}));
    assert_eq!(world.tell_as("one", None, "text").unwrap().len(), 1);
    assert!(world.tell_as("one", Some("root"), "text").unwrap().is_empty(), "both commands name the root");
    assert!(matches!(world.tell_as("one", None, "other"), Err(Refusal::MessageConflict(_))));
    world.tell_as("two", None, "text").unwrap();
    assert_eq!(world.node("root").told.len(), 2);
    world.run("root", "ok");
    assert!(
        world.tell_as("one", None, "text").unwrap().is_empty(),
        "the message was accepted before the end"
    );
    assert!(matches!(world.tell_as("three", None, "late"), Err(Refusal::Ended { .. })));
}

#[test]
fn g13_a_waiting_context_sees_the_message_only_when_it_continues() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    world.ask_human(&lease, "which?").unwrap();
    assert!(matches!(world.tell("root", "no hurry").unwrap()[..], [Event::Told { number: 1, .. }]));
    assert_eq!(world.status("root"), "input_required");
    world.answer("root", 1, "that").unwrap();
    let lease = world.claim("root");
    let answer = world.ask_with(&lease, "1", cents(1), 0, 0);
    assert_eq!(texts(&news(answer)), [(1, "no hurry".into())]);
}

#[test]
fn g13_late_messages_are_counted_in_the_outcome() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    world.tell("root", "seen").unwrap();
    assert_eq!(world.ask_with(&lease, "1", cents(1), 1, 0), Answer::Done);
    world.tell("root", "late").unwrap();
    world.settle(&lease, "1", cents(1)).unwrap();
    world.complete(&lease, "ok").unwrap();
    let node = world.node("root");
    let outcome = world.trace.outcome(&node.id).unwrap();
    assert_eq!((outcome.context.unseen, world.trace.snapshot(node).told), (1, 2));
    assert_eq!(serde_json::to_value(&outcome).unwrap()["unseen"], 1);
}

#[test]
fn g13_a_graph_without_an_agent_takes_no_messages_and_its_steps_do() {
    let mut world = World::with_graph(json!({"child_id": "graph", "steps": [
        {"id": "one", "agent_id": "writer", "task_description": "t"},
        {"id": "two", "agent_id": "writer", "task_description": "t"},
    ]}));
    assert!(matches!(world.tell("graph", "hello"), Err(Refusal::RunsNoAgent { .. })));
    assert!(
        matches!(world.tell("two", "hello"), Err(Refusal::UnknownContext(_))),
        "the context has not begun"
    );
    world.tell("one", "hello").unwrap();
    let mut world = World::with_graph(json!({"child_id": "graph", "agent_id": "editor", "aggregate": {},
        "task_description": "t", "steps": [{"id": "one", "agent_id": "writer", "task_description": "t"}]}));
    world.tell("graph", "for the synthesis").unwrap();
    world.run("one", "found");
    let lease = world.claim("graph");
    let answer = world.ask_with(&lease, "1", cents(1), 0, 0);
    assert_eq!(texts(&news(answer)), [(1, "for the synthesis".into())]);
}

#[test]
fn g13_a_context_takes_a_thousand_messages_and_no_more() {
    let mut world = World::with_root(json!({}));
    world.measured();
    for n in 0..1_000 {
        world.tell("root", &format!("text {n}")).unwrap();
    }
    let refusal = world.tell("root", "one more").unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "`root` has 1000 messages; at most 1000 messages and 4194304 bytes of text are allowed"
    );
    let mut world = World::with_root(json!({}));
    world.measured();
    let long = |n: usize| format!("{n:02}{}", "x".repeat(65_534));
    (0..64).for_each(|n| drop(world.tell("root", &long(n)).unwrap()));
    assert!(world.tell("root", &long(64)).unwrap_err().to_string().contains("4194304 bytes"));
}

#[test]
fn g13_messages_that_do_not_fit_into_one_answer_come_with_the_next() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    world.measured();
    // Every character is escaped and takes six bytes.
    let long = |n: usize| format!("{n}{}", "\u{1}".repeat(60_000));
    (0..3).for_each(|n| drop(world.tell_as(&format!("m{n}"), None, &long(n)).unwrap()));
    let lease = world.claim("root");
    let mut seen = 0;
    for number in 1..=3 {
        let told = news(world.ask_with(&lease, "1", cents(1), seen, 0)).told;
        assert_eq!(told.iter().map(|told| told.number.unwrap()).collect::<Vec<_>>(), [number]);
        seen = number;
    }
    assert_eq!(world.ask_with(&lease, "1", cents(1), seen, 0), Answer::Done);
}

#[test]
fn g13_a_hold_that_waits_in_the_line_gives_way_to_news() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    world.spawn(&lease, json!({"goal": "c", "child_id": "c"})).unwrap();
    let child = world.claim("c");
    world.hold(&child, "1", cents(60)).unwrap();
    assert!(matches!(world.ask_with(&lease, "1", cents(60), 0, 0), Answer::Wait(_)));
    world.tell("root", "stop that").unwrap();
    assert_eq!(texts(&news(world.ask_with(&lease, "1", cents(60), 0, 0))).len(), 1);
    assert_eq!(world.trace.line().count(), 0, "a call that was not made keeps no place");
    assert!(matches!(world.ask_with(&lease, "2", cents(60), 1, 0), Answer::Wait(_)));
    assert_eq!(world.node("root").unseen(), 1, "no call was made with it yet");
    world.cancel(None).unwrap();
    world.rest();
}

#[test]
fn g13_w6_a_delete_takes_the_texts_and_leaves_the_count() {
    let mut world = World::with_root(json!({}));
    world.tell("root", "a secret").unwrap();
    world.cancel(None).unwrap();
    world.delete(None, false).unwrap();
    world.rest();
    assert_eq!(world.node("root").told.len(), 1);
    assert!(!format!("{:?}", world.trace).contains("a secret"));
}

fn ladder() -> Value {
    json!([{"at": 0.5, "tell": true}, {"at": 0.8, "model": "cheaper"}, {"at": 0.9, "compact": true}])
}

/// A world whose root has this ladder and a budget of one dollar.
fn with_ladder() -> World {
    let mut world = World::new();
    world.agent(json!({"agent_id": "default", "fallback_model": "small", "on_budget": ladder()}));
    world.submit(json!({"goal": "g", "child_id": "root", "max_cost_usd": 1, "max_tokens": 1000})).unwrap();
    world
}

fn rungs(news: &News) -> Vec<(u32, RungAction)> {
    news.rungs.iter().map(|rung| (rung.number, rung.action.clone())).collect()
}

#[test]
fn b21_a_rung_is_reached_once_by_what_is_spent() {
    let mut world = with_ladder();
    let lease = world.claim("root");
    world.pay(&lease, "1", cents(49)).unwrap();
    assert_eq!(world.ask_with(&lease, "2", cents(1), 0, 0), Answer::Done, "0.49 is less than 0.5");
    world.settle(&lease, "2", cents(1)).unwrap();
    for _ in 0..2 {
        let news = news(world.ask_with(&lease, "3", cents(1), 0, 0));
        assert_eq!(rungs(&news), [(1, RungAction::Tell)]);
        assert_eq!(news.rungs[0].left_usd, cents(50).cost_usd);
    }
    let reached = world.log.iter().filter(|(_, event)| matches!(event, Event::RungReached { .. })).count();
    assert_eq!(reached, 1, "the rung is reached once");
    assert_eq!(world.ask_with(&lease, "3", cents(45), 0, 1), Answer::Done);
    world.settle(&lease, "3", cents(45)).unwrap();
    let small = RungAction::Model("small".parse().unwrap());
    let both = news(world.ask_with(&lease, "4", cents(1), 0, 1));
    assert_eq!(rungs(&both), [(2, small), (3, RungAction::Compact)], "one call may reach two rungs");
    world.raise("root", 10_000).unwrap();
    assert_eq!(world.node("root").lifecycle.rungs, 3, "a raise keeps the reached rungs");
    world.complete(&lease, "ok").unwrap();
    world.rest();
}

#[test]
fn b21_tokens_count_like_money_and_a_request_replaces_the_ladder_of_its_profile() {
    let mut world = with_ladder();
    let lease = world.claim("root");
    let tokens = domain::Amount::new(domain::Usd::ZERO, domain::Tokens::new(500));
    world.pay(&lease, "1", tokens).unwrap();
    assert_eq!(rungs(&news(world.ask_with(&lease, "2", cents(1), 0, 0))), [(1, RungAction::Tell)]);
    let own = json!({"goal": "c", "child_id": "c", "max_cost_usd": 0.1, "on_budget": [{"at": 0.3, "compact": true}]});
    world.spawn(&lease, own).unwrap();
    let child = world.claim("c");
    world.pay(&child, "1", cents(3)).unwrap();
    assert_eq!(rungs(&news(world.ask_with(&child, "2", cents(1), 0, 0))), [(1, RungAction::Compact)]);
    world.spawn(&lease, json!({"goal": "d", "child_id": "d", "max_cost_usd": 0.1, "on_budget": []})).unwrap();
    let child = world.claim("d");
    world.pay(&child, "1", cents(9)).unwrap();
    assert_eq!(world.ask_with(&child, "2", cents(1), 0, 0), Answer::Done, "an empty ladder has no rungs");
}

#[test]
fn b21_the_models_of_a_ladder_must_be_allowed_and_exist() {
    let mut world = World::new();
    world.agent(json!({"agent_id": "default", "allowed_models": ["small"]}));
    world.agent(json!({"agent_id": "writer", "fallback_model": "large"}));
    world.submit(json!({"goal": "g", "child_id": "root"})).unwrap();
    let lease = world.claim("root");
    let ladder = |child: &str, model: &str| json!({"goal": "c", "child_id": child, "agent_id": "writer", "on_budget": [{"at": 0.5, "model": model}]});
    let refusal = world.spawn(&lease, ladder("c", "large")).unwrap_err().to_string();
    assert_eq!(refusal, "model `large` is not among the allowed_models of `root`");
    // A fallback model that is not allowed is not used: the rung only sends its message.
    world.spawn(&lease, ladder("told", "cheaper")).unwrap();
    let told = world.claim("told");
    world.hold(&told, "1", cents(90)).unwrap();
    world.settle(&told, "1", cents(90)).unwrap();
    assert_eq!(news(world.ask_with(&told, "2", cents(1), 0, 0)).rungs[0].action, RungAction::Tell);
    let cheaper = json!({"goal": "c", "child_id": "c", "agent_id": "critic", "on_budget": [{"at": 0.5, "model": "cheaper"}]});
    let refusal = world.spawn(&lease, cheaper).unwrap_err().to_string();
    assert!(refusal.contains("on_budget[0].model: `cheaper` is the `fallback_model`"), "{refusal}");
    let step = json!({"id": "s", "agent_id": "critic", "task_description": "t", "on_budget": [{"at": 0.5, "model": "cheaper"}]});
    let refusal = world.spawn_graph(&lease, json!({"steps": [step]})).unwrap_err().to_string();
    assert!(refusal.contains("steps[0].on_budget[0].model: `cheaper`"), "{refusal}");
    let allowed = json!({"goal": "c", "child_id": "c", "agent_id": "writer", "on_budget": [{"at": 0.5, "model": "small"}]});
    world.spawn(&lease, allowed).unwrap();
}

#[test]
fn b21_the_remaining_budget_includes_that_of_the_ancestors() {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    let ladder = json!([{"at": 0.1, "tell": true}]);
    world
        .spawn(&lease, json!({"goal": "c", "child_id": "c", "max_cost_usd": 0.5, "on_budget": ladder}))
        .unwrap();
    let child = world.claim("c");
    world.hold(&lease, "1", cents(60)).unwrap();
    world.hold(&child, "1", cents(10)).unwrap();
    world.settle(&child, "1", cents(10)).unwrap();
    let told = news(world.ask_with(&child, "2", cents(1), 0, 0));
    assert_eq!(told.rungs[0].left_usd, cents(30).cost_usd, "0.40 is left to it, and 0.30 to its parent");
}

#[test]
fn g13_the_name_of_a_sender_is_short() {
    let mut world = World::with_root(json!({}));
    let by = Some(Text::new("n".repeat(257)).unwrap());
    let tell = Tell { child_id: None, id: "one".parse().unwrap(), text: Text::new("hi").unwrap(), by };
    let refusal = world.handle(Command::Tell(tell)).unwrap_err().to_string();
    assert!(refusal.contains("at most 256 bytes"), "{refusal}");
}

#[test]
fn b21_a_step_of_a_graph_has_a_ladder_of_its_own() {
    let mut world = World::with_graph(json!({"child_id": "graph", "max_cost_usd": 1, "steps": [
        {"id": "one", "agent_id": "writer", "task_description": "t", "max_cost_usd": 0.1,
            "on_budget": [{"at": 0.5, "tell": true}]},
    ]}));
    let lease = world.claim("one");
    world.pay(&lease, "1", cents(5)).unwrap();
    assert_eq!(rungs(&news(world.ask_with(&lease, "2", cents(1), 0, 0))), [(1, RungAction::Tell)]);
    assert_eq!(world.work(&lease.child_id).unwrap().on_budget.len(), 1);
    world.report(&lease, Verdict::HandedBack).unwrap();
    assert_eq!(world.node("one").lifecycle.rungs, 1);
}
