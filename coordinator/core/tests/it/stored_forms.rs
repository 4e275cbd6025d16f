//! The form of a stored trace (t9). A trace in another form is rejected before the rest of it is
//! read; a context of each status reads back unchanged.

use std::collections::HashMap;

use domain::wire::{Restore, Verdict};
use serde_json::{Value, json};
use trace::{Command, Trace};
use world::{World, cents, id};

/// All stored fields of a trace.
fn stored(trace: &Trace) -> HashMap<String, String> {
    let mut trace = trace.clone();
    trace.mark_all_changed();
    trace.take_changes().fields.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
}

fn read(world: &World, fields: &HashMap<String, String>) -> Result<Trace, trace::Corrupt> {
    Trace::from_stored(world.trace.id(), world.trace.version(), fields, &HashMap::new())
}

#[test]
fn t9_a_trace_in_another_form_is_rejected_with_both_forms_and_a_hint() {
    let world = World::with_root(json!({}));
    let mut fields = stored(&world.trace);
    assert!(read(&world, &fields).unwrap() == world.trace);
    let head: Value = serde_json::from_str(&fields["head"]).unwrap();
    assert_eq!(head["form"], json!(9));

    // Another form may also write the rest of the head differently.
    let others = [
        (json!({"form": 8, "settings": 1}), "form 8", "an earlier build"),
        (json!({"form": 10, "settings": 1}), "form 10", "a later build"),
        (json!({"settings": 1}), "form 0", "an earlier build"),
    ];
    for (head, found, wrote) in others {
        fields.insert("head".into(), head.to_string());
        let refused = read(&world, &fields).unwrap_err().to_string();
        let says = [found, "reads form 9", "hint:", wrote];
        assert!(says.iter().all(|part| refused.contains(part)), "{refused}");
    }
}

#[test]
fn t9_a_context_of_each_status_reads_back_as_it_was() {
    let root = || World::with_root(json!({"max_cost_usd": 0.1, "on_exhausted": "pause"}));
    let step = json!({"id": "one", "agent_id": "writer", "task_description": "t"});
    let mut worlds = vec![
        (root(), json!({"submitted": {"sent_at": 1_000_000}})),
        (World::with_graph(json!({"child_id": "root", "steps": [step]})), json!("steps")),
    ];
    let mut claimed = |name: &str, change: &dyn Fn(&mut World)| {
        let mut world = root();
        world.claim("root");
        change(&mut world);
        let fields = stored(&world.trace);
        let status: Value = serde_json::from_str(&fields["c0"]).unwrap();
        worlds.push((world, status[0].clone()));
        let (_, status) = worlds.last().unwrap();
        assert!(status.get(name).is_some(), "{name}: {status}");
    };
    let lease = |world: &World| world.lease(&id("root"));
    claimed("running", &|_| {});
    claimed("queued", &|world| drop(world.fail(&lease(world), true).unwrap()));
    claimed("running", &|world| {
        world.hold(&lease(world), "1-1", cents(1)).unwrap();
        world.handle(Command::Restore(Restore { child_id: id("root"), number: 1, to: 0 })).unwrap();
    });
    claimed("waiting", &|world| {
        world.spawn(&lease(world), json!({"goal": "c", "child_id": "c"})).unwrap();
        world.wait(&lease(world), &["c"]).unwrap();
    });
    claimed("input_required", &|world| {
        let form = json!({"choices": ["tea", "coffee"], "default": "tea", "timeout_ms": 5_000});
        world.ask_with_form(&lease(world), "which?", form).unwrap();
    });
    claimed("paused", &|world| {
        world.charge("root", "k", cents(10)).unwrap();
        world.report(&lease(world), Verdict::HandedBack).unwrap();
    });
    claimed("ended", &|world| drop(world.complete(&lease(world), "done").unwrap()));
    for (world, status) in worlds {
        let mut fields = stored(&world.trace);
        assert!(fields["c0"].starts_with(&format!("[{status},")), "{}", fields["c0"]);
        let again = read(&world, &fields).unwrap();
        assert!(
            again == world.trace && again.root().unwrap().status == world.node("root").status,
            "{status}"
        );
        assert_eq!(stored(&again), fields);
        // An unknown status is an error, and is not read as another status.
        fields.insert("c0".into(), fields["c0"].replacen(&status.to_string(), r#"{"asleep":{}}"#, 1));
        assert!(read(&world, &fields).unwrap_err().to_string().starts_with("field `c0`"));
    }
}
