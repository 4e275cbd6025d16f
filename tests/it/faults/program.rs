//! Agent programs that are killed, fork without end, or ignore SIGTERM.

use domain::wire::EndStatus;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use trellis_tests::{
    cluster::eventually,
    processes::{Processes, fresh_trace},
};

/// Runs for ever, and ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; while :; do sleep 1; done";
/// Stops by itself a little above the limit, so that it is harmless without the sandbox.
const FORKS: &str = "for i in $(seq 60); do sleep 5 & done; wait; echo survived";

/// The shells with this word in their command line.
fn shells(word: &str) -> Vec<Pid> {
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    let pid = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let is_shell = line.starts_with(b"sh\0") && String::from_utf8_lossy(&line).contains(word);
        let pid = entry.file_name().to_string_lossy().parse().ok();
        pid.filter(|_| is_shell).map(Pid::from_raw)
    };
    listed.filter_map(pid).collect()
}

/// The child processes of this one.
fn children(parent: u32) -> Vec<Pid> {
    let listed = std::fs::read_dir(format!("/proc/{parent}/task")).unwrap().flatten();
    let of_thread = |thread: std::fs::DirEntry| {
        std::fs::read_to_string(thread.path().join("children")).unwrap_or_default()
    };
    let pids: String = listed.map(of_thread).collect();
    pids.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap())).collect()
}

/// proves: a worker outlives its programs. A program that is killed, reaches its process limit or
/// ignores a cancel ends its agent, leaves nothing behind, and the worker continues with the next.
#[tokio::test(flavor = "multi_thread")]
async fn f04_a_program_that_is_killed_forks_without_end_or_ignores_sigterm() {
    let mut cluster = Processes::start(1, 1).await;
    let word = format!("program-{}", fresh_trace());
    let program = |id: &str, script: &str| {
        json!({"agent_id": id, "kind": "command", "command": ["sh", "-c", script, word],
            "limits": {"max_retries_total": 0}, "resources": {"processes": 20}})
    };
    let agents = [program("stubborn", STUBBORN), program("forks", FORKS), program("quiet", "echo survived")];
    cluster.apply(json!(agents)).await;
    let worker = cluster.pid("w1");

    let killed = cluster.begin(json!({"goal": "stay", "agent_id": "stubborn"})).await;
    eventually("the program runs", async || !shells(&word).is_empty()).await;
    shells(&word).into_iter().for_each(|pid| kill(pid, Signal::SIGKILL).unwrap());
    let outcome = cluster.outcome(killed).await.context;
    let error = outcome.error.map(|error| error.message).unwrap_or_default();
    assert!(outcome.status == EndStatus::Failed && error.contains("signal"), "{error}");

    // The process between the worker and the sandbox is killed: the worker gets no exit code at
    // all.
    let between = cluster.begin(json!({"goal": "stay", "agent_id": "stubborn"})).await;
    eventually("the program runs", async || !shells(&word).is_empty()).await;
    children(worker).into_iter().for_each(|pid| kill(pid, Signal::SIGKILL).unwrap());
    let outcome = cluster.outcome(between).await.context;
    let error = outcome.error.map(|error| error.message).unwrap_or_default();
    assert!(outcome.status == EndStatus::Failed && error.contains("signal 9 (SIGKILL)"), "{error}");
    eventually("no process of the program is left", async || shells(&word).is_empty()).await;

    let forks = cluster.begin(json!({"goal": "fork", "agent_id": "forks"})).await;
    let outcome = cluster.outcome(forks).await.context;
    let error = outcome.error.map(|error| error.message).unwrap_or_default();
    assert!(
        error.contains(
            "more than resources.processes = 20; raise `resources.processes` in the agent's profile"
        ),
        "{error}"
    );

    let ignores = cluster.begin(json!({"goal": "stay", "agent_id": "stubborn"})).await;
    eventually("the program runs", async || !shells(&word).is_empty()).await;
    cluster.cancel(ignores).await;
    assert_eq!(cluster.outcome(ignores).await.context.status, EndStatus::Cancelled);
    eventually("the program has ended", async || shells(&word).is_empty()).await;

    let quiet = cluster.begin(json!({"goal": "go", "agent_id": "quiet"})).await;
    let outcome = cluster.outcome(quiet).await.context;
    assert_eq!(outcome.result.unwrap().value(), "survived");
    cluster.check(&[killed, forks, ignores, quiet]).await;
    assert!(cluster.is_running("w1") && cluster.pid("w1") == worker, "the same worker");
}
