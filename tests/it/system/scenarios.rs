//! The numbered scenarios in `examples/scenarios`: each has the same outcome without servers, on a
//! cluster, and on a cluster of which every process is killed once in the middle.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use domain::TraceId;
use serde_json::{Value, json};
use tokio::process::Command;
use trellis_tests::processes::{Processes, binary, repository};

fn scenarios() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(repository().join("examples/scenarios")).unwrap();
    let is_numbered = |path: &PathBuf| {
        path.file_name().unwrap().to_string_lossy().starts_with(|c: char| c.is_ascii_digit())
    };
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).filter(is_numbered).collect();
    files.sort();
    assert!(files.len() >= 15, "{files:?}");
    files
}

/// `trellis run`: without servers, or on a cluster. Questions are answered with `yes`.
fn run(file: &Path, cluster: Option<&Processes>) -> Command {
    let mut command = Command::new(binary());
    command.arg("run").arg(file).args(["--agents", "examples/scenarios/agents.yaml"]);
    command.args(["--answer", "yes", "-o", "json"]);
    command.current_dir(repository()).env_clear().env("TRELLIS_NO_KEEP", "1").kill_on_drop(true);
    command.envs(cluster.map(|cluster| ("NATS_URL", cluster.nats.url())));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn outcome(file: &Path, output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    let outcome = serde_json::from_slice(&output.stdout);
    outcome.unwrap_or_else(|error| panic!("{}: {error}: {said}", file.display()))
}

/// The essential outcome: the ends and results of the run and its steps, without times, attempts
/// and ids.
fn essence(outcome: &Value) -> Value {
    let some = |of: &Value, names: &[&str]| -> Value {
        let kept: BTreeMap<&str, &Value> = names.iter().map(|name| (*name, &of[*name])).collect();
        json!(kept)
    };
    let graph = &outcome["graph"];
    let mut kept = some(outcome, &["status", "result", "error", "reason", "outputs"]);
    kept["graph"] =
        some(graph, &["verdict", "succeeded", "failed", "skipped", "undone", "undo_failed", "outputs"]);
    let steps = graph["steps"].as_array().into_iter().flatten();
    let step = |step: &Value| {
        let mut kept = some(step, &["id", "status", "reason", "partial", "fallback", "result"]);
        kept["undo"] = some(&step["undo"], &["status", "reason", "contexts"]);
        kept
    };
    kept["graph"]["steps"] = steps.map(step).collect();
    kept
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_every_scenario_ends_the_same_without_servers_and_on_a_cluster() {
    let cluster = Processes::start(1, 2).await;
    for file in scenarios() {
        let (embedded, clustered) =
            tokio::join!(run(&file, None).output(), run(&file, Some(&cluster)).output());
        let (embedded, clustered) = (embedded.unwrap(), clustered.unwrap());
        assert_eq!(embedded.status, clustered.status, "{}", file.display());
        let (embedded, clustered) = (outcome(&file, &embedded), outcome(&file, &clustered));
        assert_eq!(essence(&embedded), essence(&clustered), "{}", file.display());
        assert_eq!(embedded["budget"], clustered["budget"], "{}", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g1_every_scenario_ends_the_same_if_every_process_is_killed_once() {
    let mut cluster = Processes::start(1, 1).await;
    let mut runs = Vec::new();
    for file in scenarios() {
        cluster.stop("c1").await;
        // The second commit is the first claim: the run has begun, and can't have ended.
        cluster.run_with("c1", &["--crash-at", "committed:2"]);
        let killed = tokio::spawn(run(&file, Some(&cluster)).output());
        cluster.gone("c1").await;
        cluster.kill("w1");
        cluster.run("c1");
        cluster.run("w1");
        let embedded = outcome(&file, &run(&file, None).output().await.unwrap());
        let killed = outcome(&file, &killed.await.unwrap().unwrap());
        assert_eq!(essence(&embedded), essence(&killed), "{}", file.display());
        runs.push(killed["trace_id"].as_str().unwrap().parse::<TraceId>().unwrap());
    }
    cluster.check(&runs).await;
}
