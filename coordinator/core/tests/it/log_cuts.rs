//! Logs that end inside a commit. Every core test that calls `World::rest` cuts its log too.

use domain::{Timestamp, wire::Verdict};
use serde_json::json;
use trace::{Command, Event, LoggedEvents, Order, Replay, Rest, Superseded, Trace, logged};
use world::{World, cents, log_cuts};

/// The messages of a world's log, grouped by commit.
pub(super) fn commits(world: &World) -> Vec<Vec<LoggedEvents>> {
    let mut trace = Trace::new(world.trace.id());
    let commit = |(now, order): &(_, Order)| {
        let events = trace.handle(order.clone(), *now).unwrap();
        if events.is_empty() { Vec::new() } else { logged(&mut trace, events, *now) }
    };
    world.orders.iter().map(commit).filter(|messages| !messages.is_empty()).collect()
}

fn parent_of_two() -> World {
    let mut world = World::with_root(json!({"max_cost_usd": 1}));
    let lease = world.claim("root");
    world.spawn(&lease, json!({"goal": "a", "child_id": "a"})).unwrap();
    world.spawn(&lease, json!({"goal": "b", "child_id": "b"})).unwrap();
    world.wait(&lease, &["a", "b"]).unwrap();
    world.run("a", "ok");
    world.run("b", "ok");
    world
}

/// One commit of two messages holds the end of the last child and the requeue of its parent. With
/// only the first message, the child has ended and its parent would wait for ever.
#[test]
fn t9_a_log_that_ends_inside_a_commit_leaves_no_context_waiting_for_ever() {
    let world = parent_of_two();
    let commits = commits(&world);
    let (last, earlier) = commits.split_last().unwrap();
    let named: Vec<&str> = last.iter().map(|message| message.child_id.as_str()).collect();
    assert_eq!(named, ["b", "root"]);
    let mut log = earlier.concat();
    log.push(last[0].clone());
    let (trace, rest) = Replay::all(Trace::new(world.trace.id()), log);
    assert_eq!(rest, Rest::Unfinished);
    assert!(trace.context(&"b".parse().unwrap()).unwrap().is_live(), "its report is delivered again");
}

/// One commit of each kind that consists of several messages.
#[test]
fn t9_a_log_may_end_at_any_message_of_any_kind_of_commit() {
    let mut world = parent_of_two();
    let lease = world.claim("root");
    world.hold(&lease, "1", cents(10)).unwrap();
    world
        .spawn(&lease, json!({"goal": "c", "child_id": "c", "funding": "granted", "max_cost_usd": 0.2}))
        .unwrap();
    let child = world.claim("c");
    world.ask_human(&child, "which?").unwrap();
    world.answer("c", 1, "that").unwrap();
    world.spawn_graph(&lease, json!({"child_id": "g", "mode": "parallel", "steps": [
        {"id": "x", "agent_id": "writer", "task_description": "t", "for_each": "items", "output_to": "found"},
        {"id": "y", "agent_id": "writer", "task_description": "t", "when": "has(outputs.found)", "input_from": ["found"]},
        {"id": "r", "mode": "parallel", "race": true, "steps": [
            {"id": "r1", "agent_id": "writer", "task_description": "t"},
            {"id": "r2", "agent_id": "critic", "task_description": "t"}]},
    ], "inputs": {"items": [1, 2]}})).unwrap();
    world.run("x-1", "ok");
    world.run("x-2", "ok");
    world.run("r2", "ok");
    world.break_it("y");
    world.pass(30_000);
    let lease = world.claim("root");
    world.report(&lease, Verdict::HandedBack).unwrap();
    world.cancel(None).unwrap();
    world.delete(None, true).unwrap();
    let many = commits(&world).iter().filter(|messages| messages.len() > 1).count();
    assert!(many >= 7, "{many}");
    world.rest();
}

/// A live reader shows a commit when all its messages are there, and starts again if it showed a
/// commit that a rebuild left out.
#[test]
fn t9_an_observer_begins_again_where_a_rebuild_left_out_events_that_it_saw() {
    let world = parent_of_two();
    let commits = commits(&world);
    let (late, earlier) = commits.split_last().unwrap();
    let mut live = Replay::new(Trace::new(world.trace.id()));
    let first = |live: &mut Replay| {
        earlier.concat().into_iter().for_each(|message| live.add(message).unwrap());
    };
    first(&mut live);
    let mut rebuilt = live.trace().clone();
    live.add(late[1].clone()).unwrap();
    assert_eq!(*live.trace(), rebuilt, "half of a commit is not applied");
    live.add(late[0].clone()).unwrap();
    let seen = live.trace().clone();
    assert_eq!(seen.version(), world.trace.version());

    let now = world.now.plus_millis(10);
    let begun = rebuilt.begin_generation(0, now);
    assert_eq!(begun, [Event::Rebuilt { generation: 1 }]);
    let begun = logged(&mut rebuilt, begun, now).remove(0);
    assert_eq!(live.add(begun.clone()), Err(Superseded));
    live.restart();
    first(&mut live);
    late.iter().chain([&begun]).for_each(|message| live.add(message.clone()).unwrap());
    assert_eq!(*live.trace(), rebuilt);

    // A stored trace that contains the omitted events is not continued either.
    let log = [earlier.concat(), vec![begun]].concat();
    assert_eq!(Replay::all(seen, log), (rebuilt, Rest::Nothing));
}

/// A missing commit that is followed by later ones was acknowledged: nothing is rebuilt without it.
#[test]
fn t9_a_missing_commit_is_a_gap() {
    let world = parent_of_two();
    let mut commits = commits(&world);
    let gone = commits.remove(2);
    let (trace, rest) = Replay::all(Trace::new(world.trace.id()), commits.concat());
    let last = commits.last().unwrap()[0].version;
    assert_eq!((trace.version() + 1, rest), (gone[0].version, Rest::Gap(last)));
    log_cuts::check(world.trace.id(), &world.orders).unwrap();
}

/// The content of a trace without its version and the times of its commits.
fn content(trace: &Trace) -> String {
    format!("{:?}", trace.contexts())
}

/// Replays a log live in this order, and restarts whenever the replay asks for it.
fn live(log: &[LoggedEvents]) -> Trace {
    let mut live = Replay::new(Trace::new(log[0].trace_id));
    let mut begins = 0;
    while log.iter().any(|message| live.add(message.clone()).is_err()) {
        live.restart();
        begins += 1;
        assert!(begins < 10, "the observer begins again without end");
    }
    live.trace().clone()
}

/// The store loses the last commits of a trace. Before the loss is noticed, others are made with
/// the same versions. The clocks of coordinators differ: the second commit of the later branch has
/// an earlier time.
#[test]
fn t9_of_two_commits_with_one_version_the_later_is_valid_in_any_order_of_reading() {
    let first = parent_of_two();
    let id = first.trace.id();
    let lost = commits(&first).split_off(4);
    let mut second = parent_of_two();
    second.orders.truncate(4);
    let (trace, _) = Replay::all(Trace::new(id), commits(&second).concat());
    second.trace = trace;
    second.pass(5_000);
    second.cancel(Some("a")).unwrap();
    second.now = Timestamp::from_millis(second.now.millis() - 3_000);
    second.cancel(None).unwrap();
    let later = commits(&second);
    let (expected, rest) = Replay::all(Trace::new(id), later.concat());
    assert_eq!((content(&expected), rest), (content(&second.trace), Rest::Nothing));

    let mut log = [later.concat(), lost.concat(), lost.concat(), later[3].clone()].concat();
    for step in 1..12 {
        let (trace, rest) = Replay::all(Trace::new(id), log.clone());
        assert_eq!((trace, rest), (expected.clone(), Rest::Nothing));
        assert_eq!(live(&log), expected, "in order {step}");
        let place = step * 5 % log.len();
        log.rotate_left(place);
        log.reverse();
    }
    // The store has either branch, or a state older than both.
    for stored in [&later[..3], &commits(&first)[..6], &later[..5]] {
        let (stored, _) = Replay::all(Trace::new(id), stored.concat());
        assert_eq!(Replay::all(stored, log.clone()).0, expected);
    }
}

/// The store loses a rebuild before the log has it, and another rebuild begins with the same
/// number. The messages before the rebuild arrive late, and so does the lost rebuild.
#[test]
fn t9_of_two_rebuilds_with_one_number_the_later_is_valid() {
    let world = parent_of_two();
    let id = world.trace.id();
    let commits = commits(&world);
    let rebuild = |of: &[Vec<LoggedEvents>], seconds: u64| {
        let (mut trace, _) = Replay::all(Trace::new(id), of.concat());
        let now = world.now.plus_millis(1_000 * seconds);
        let begun = trace.begin_generation(0, now);
        let messages = logged(&mut trace, begun, now);
        (trace, messages)
    };
    let (mut lost, first) = rebuild(&commits[..4], 1);
    let cancel = Command::Cancel { child_id: None, reason: None, without_undo: false };
    let now = world.now.plus_millis(2_000);
    let events = lost.handle(cancel, now).unwrap();
    let lost_messages = [first, logged(&mut lost, events, now)].concat();
    let (trace, messages) = rebuild(&commits, 3);
    assert_eq!((trace.generation(), lost.generation()), (1, 1));
    let mut log = [commits.concat(), messages, lost_messages].concat();
    for _ in 0..2 {
        assert_eq!(Replay::all(Trace::new(id), log.clone()), (trace.clone(), Rest::Nothing));
        assert_eq!(live(&log), trace);
        log.reverse();
    }
}

/// A large copy comes in messages of bounded size, and is used once all of them are there. A delete
/// leaves nothing of it.
#[test]
fn t9_a_copy_comes_in_parts_and_counts_as_a_whole() {
    // Larger than one part, and nested deeper than a copy could be read.
    let deep = (0..122).fold(json!("ä".repeat(300_000)), |inner, _| json!([inner]));
    let mut world = World::with_root(json!({"max_cost_usd": 1, "inputs": {"deep": deep}}));
    let lease = world.claim("root");
    let secret = "tell nobody ".repeat(4_000);
    for number in 0..20 {
        world.spawn(&lease, json!({"goal": secret, "child_id": format!("c{number}")})).unwrap();
    }
    world.handle(Command::Copy { after_ms: 0 }).unwrap();
    assert_eq!(
        world.handle(Command::Copy { after_ms: 1 }).unwrap(),
        [],
        "a second copy within a millisecond"
    );
    let copy = commits(&world).pop().unwrap();
    let bytes = |logged: &LoggedEvents| serde_json::to_vec(logged).unwrap().len();
    assert!(copy.len() > 5 && copy.iter().all(|part| bytes(part) < 300_000), "{} parts", copy.len());
    let read = |part: &LoggedEvents| {
        serde_json::from_slice::<LoggedEvents>(&serde_json::to_vec(part).unwrap()).unwrap()
    };
    let copy: Vec<LoggedEvents> = copy.iter().map(read).collect();
    let id = world.trace.id();
    for missing in 0..copy.len() {
        let some = copy.iter().enumerate().filter(|(part, _)| *part != missing);
        let (trace, rest) = Replay::all(Trace::new(id), some.map(|(_, part)| part.clone()).collect());
        assert_eq!((trace.version(), rest), (0, Rest::Unfinished));
    }
    let (trace, rest) = Replay::all(Trace::new(id), copy.clone());
    assert_eq!((trace.version(), rest), (world.trace.version(), Rest::Nothing));
    assert!(trace.contexts() == world.trace.contexts());
    let bare: Vec<LoggedEvents> = copy.into_iter().map(LoggedEvents::without_content).collect();
    assert!(!serde_json::to_string(&bare).unwrap().contains("tell nobody"));
    assert_eq!(Replay::all(Trace::new(id), bare).0.version(), 0, "a log without content is not a beginning");
}

/// A run that was copied because it lived long is copied again at its end. So its log keeps a
/// beginning for as long as the logs of other runs. Short runs are never copied.
#[test]
fn t9_an_old_run_is_copied_at_its_end() {
    let copy = |world: &mut World| world.handle(Command::Copy { after_ms: 1_000 }).unwrap().len();
    let mut old = World::with_root(json!({"max_cost_usd": 1}));
    assert_eq!(copy(&mut old), 0);
    old.pass(1_000);
    assert_eq!(copy(&mut old), 1);
    old.pass(1);
    old.run("root", "ok");
    assert_eq!(old.trace.copy_due(1_000), Some(old.now));
    assert_eq!((copy(&mut old), copy(&mut old)), (1, 0));
    assert_eq!(old.trace.copy_due(1_000), None);

    let mut short = World::with_root(json!({"max_cost_usd": 1}));
    short.run("root", "ok");
    short.pass(10_000);
    assert_eq!((copy(&mut short), short.trace.copy_due(1_000)), (0, None));
}
