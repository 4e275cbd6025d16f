//! The command line as people see it: whole outputs, exit codes, errors with hints.

#![allow(clippy::unwrap_used, reason = "a test that is surprised shall panic")]

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs `trellis` in the repository's root; everything it said, and its exit code.
fn trellis(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    let output =
        command.args(args).current_dir(root()).stdin(Stdio::null()).output().expect("the binary runs");
    let said = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    };
    let code = output.status.code().expect("it was not killed");
    format!("{}\n--- stderr\n{}\n--- exit {code}", said(&output.stdout), said(&output.stderr))
}

#[test]
fn every_example_is_valid() {
    let examples = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    for example in examples {
        let said = trellis(&["graph", "validate", example.to_str().unwrap()]);
        assert!(said.ends_with("--- exit 0"), "{said}");
        let said = trellis(&["graph", "rehearse", example.to_str().unwrap()]);
        assert!(said.ends_with("--- exit 0"), "{said}");
    }
}

#[test]
fn a_rehearsal_shows_the_tree_with_money() {
    insta::assert_snapshot!(trellis(&["graph", "rehearse", "examples/research.yaml"]));
}

#[test]
fn a_rehearsal_with_a_failure_shows_what_follows() {
    insta::assert_snapshot!(trellis(&[
        "graph",
        "rehearse",
        "examples/map-reduce.json",
        "--fail",
        "map-2",
        "--spend",
        "0.02"
    ]));
}

#[test]
fn a_rehearsed_loop_ends_at_its_bound() {
    insta::assert_snapshot!(trellis(&[
        "graph",
        "rehearse",
        "examples/author-and-critic.yaml",
        "--result",
        "critic=\"too long\"",
        "--spend",
        "0.06",
    ]));
}

#[test]
fn a_rehearsal_for_programs() {
    let said = trellis(&["graph", "rehearse", "examples/race.yaml", "-o", "json", "--events"]);
    let json: serde_json::Value = serde_json::from_str(said.split("\n--- stderr").next().unwrap()).unwrap();
    assert_eq!(json["outcome"]["status"], "completed");
    assert_eq!(json["outcome"]["graph"]["verdict"], "succeeded");
    assert_eq!(json["contexts"].as_array().unwrap().len(), 5);
    assert_eq!(json["events"][0]["events"][0]["type"], "opened");
}

#[test]
fn mistakes_are_explained_with_hints() {
    let file = std::env::temp_dir().join(format!("trellis-bad-{}.yaml", std::process::id()));
    std::fs::write(&file, "steps:\n  - agent_id: a\n    task_descripton: t\n    when: output.x > 1\n")
        .unwrap();
    let said = trellis(&["graph", "validate", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    let said = said.replace(file.to_str().unwrap(), "FILE");
    insta::assert_snapshot!(said);
}

#[test]
fn a_step_that_is_not_there_is_an_error() {
    insta::assert_snapshot!(trellis(&[
        "graph",
        "rehearse",
        "examples/research.yaml",
        "--fail",
        "reseacher-1"
    ]));
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    insta::assert_snapshot!(trellis(&["graph", "validate", "nowhere.yaml"]));
}

#[test]
fn a_fallback_is_there_for_when_its_step_fails() {
    let said =
        trellis(&["graph", "rehearse", "examples/map-reduce.json", "--fail", "reduce", "--spend", "0.001"]);
    assert!(said.contains("reduce-fallback") && said.ends_with("--- exit 0"), "{said}");
    let said = trellis(&[
        "graph",
        "rehearse",
        "examples/map-reduce.json",
        "--fail",
        "reduce",
        "--fail",
        "reduce-fallback",
        "--spend",
        "0.001",
    ]);
    let fallback = said.lines().find(|line| line.contains("reduce-fallback")).unwrap_or_default();
    assert!(fallback.contains("failed") && fallback.contains("told to fail"), "{said}");
}

#[test]
fn what_is_said_of_nothing_is_an_error() {
    for (name, says) in [("answer", "is a group"), ("fast-9", "nothing called `fast-9` was run")] {
        let said = trellis(&["graph", "rehearse", "examples/race.yaml", "--fail", name]);
        assert!(said.contains(says) && said.ends_with("--- exit 2"), "{said}");
    }
}

#[test]
fn every_file_is_looked_at_and_told_to_programs_too() {
    let said = trellis(&["graph", "validate", "nowhere.yaml", "examples/race.yaml", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(said.split("\n--- stderr").next().unwrap()).unwrap();
    assert_eq!((json[0]["ok"].clone(), json[1]["ok"].clone()), (false.into(), true.into()));
    assert_eq!((json[1]["steps"].clone(), json[1]["groups"].clone()), (3.into(), 1.into()));
    assert!(said.ends_with("--- exit 2"), "{said}");
}

#[test]
fn a_reader_that_goes_away_is_not_a_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_trellis"))
        .args(["schema", "graph"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()),
        (Some(0), String::new())
    );
}

#[test]
fn schemas_are_printed_by_name() {
    assert!(trellis(&["schema", "spawn"]).contains("\"max_cost_usd\""));
    insta::assert_snapshot!(trellis(&["schema", "spwan"]));
}

#[test]
fn help_helps() {
    insta::assert_snapshot!(trellis(&["graph", "rehearse", "--help"]));
}
