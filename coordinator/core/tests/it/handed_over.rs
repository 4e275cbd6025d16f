//! G10: the files that `delegate` hands over.

use domain::{
    digest::sha256,
    wire::{Lease, ObjectReference, OutputFile, Verdict},
};
use serde_json::json;
use trace::{Command, ContextSpec, Event, Refusal, Spawn};
use world::{World, id};

/// A file of `owner`, as stored by one of its attempts.
fn file(world: &World, owner: &str, attempt: u32, path: &str, size_bytes: u64) -> OutputFile {
    let prefix = ObjectReference::prefix(world.trace.id(), &id(owner));
    let object = format!("{prefix}{attempt}.handed-over/{path}");
    OutputFile { path: path.into(), object: ObjectReference { object, size_bytes, sha256: sha256(path) } }
}

fn delegate(world: &mut World, lease: &Lease, files: Vec<OutputFile>) -> Result<Vec<Event>, Refusal> {
    let spawn =
        serde_json::from_value(json!({"goal": "go on", "child_id": "heir", "agent_id": "writer"})).unwrap();
    let spec = ContextSpec { files, ..ContextSpec::from_spawn(&spawn, &[], &id("heir")).unwrap() };
    let (lease, agents) = (lease.clone(), world.agents.clone());
    world.handle(Command::Spawn(Box::new(Spawn { lease, spec, plan: None, agents: agents.into() })))
}

#[test]
fn g10_files_that_are_handed_over_are_part_of_the_work_and_not_of_the_spawns_identity() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    let files = |world: &World, attempt| {
        vec![file(world, "root", attempt, "a SECRET", 3), file(world, "root", attempt, "b/c", 4)]
    };
    let (first, second) = (files(&world, 1), files(&world, 2));
    delegate(&mut world, &root, first.clone()).unwrap();
    assert_eq!(world.work(&id("heir")).unwrap().files, first);
    // A later attempt of the caller stores the files under other names, and a program may have
    // changed them.
    assert_eq!(delegate(&mut world, &root, second).unwrap(), []);
    assert_eq!(delegate(&mut world, &root, Vec::new()).unwrap(), []);
    assert_eq!(world.work(&id("heir")).unwrap().files, first);
    world.report(&root, Verdict::Waiting { children: vec![id("heir")], hand_over: true }).unwrap();
    world.run("heir", "done");
    assert_eq!(world.status("root"), "completed");
    world.delete(None, true).unwrap();
    assert!(world.node("heir").spec.files.is_empty(), "W6: a delete leaves no names of files");
    world.rest();
}

#[test]
fn g10_files_that_the_child_may_not_have_refuse_the_delegate() {
    let mut world = World::new();
    world
        .agent(json!({"agent_id": "writer", "limits": {"max_output_files": 2, "max_output_size_bytes": 10}}));
    world.submit(json!({"goal": "root", "child_id": "root"})).unwrap();
    let root = world.claim("root");
    let of = |world: &World, owner, sizes: &[u64]| {
        sizes.iter().enumerate().map(|(n, size)| file(world, owner, 1, &n.to_string(), *size)).collect()
    };
    for (owner, sizes, why) in [
        (
            "root",
            &[1, 1, 1][..],
            "3 files in outputs/ are handed over, and the child may have 2 (max_output_files)",
        ),
        (
            "root",
            &[11],
            "11 bytes in outputs/ are handed over, and the child may have 10 (max_output_size_bytes)",
        ),
        ("other", &[1], "files[0].object: it is not an object of the caller"),
    ] {
        let files = of(&world, owner, sizes);
        let refused = delegate(&mut world, &root, files).unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let files = of(&world, "root", &[5, 5]);
    delegate(&mut world, &root, files).unwrap();
}
