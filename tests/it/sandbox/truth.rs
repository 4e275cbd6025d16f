//! The sandbox reports the truth: a layer that failed in part is reported as missing, and a program
//! that requires it does not run.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use domain::{
    agent::Layer,
    agent_policy::AgentPolicy,
    wire::{EndStatus, HistoryStep, Outcome, SandboxReport},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, eventually},
    processes::{binary, fresh_trace},
};

use super::{Directory, apply, cluster_as, cluster_under, error, processes_with, protocol::journal, result};

/// A helper that changes its mounts first, as some containers do.
fn helper_after(directory: &Directory, mounting: &str) -> PathBuf {
    let path = directory.path().join("helper");
    let script = format!(
        "#!/bin/sh\nexec /usr/bin/unshare --user --map-root-user --mount /bin/sh -c '{mounting} && exec \"$0\" \"$@\"' '{}' \"$@\"\n",
        binary().display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn agent(id: &str, requires: Value) -> Value {
    json!({"agent_id": id, "kind": "command", "command": ["sh", "-c", "echo ran"], "requires": requires})
}

async fn report(cluster: &Cluster, outcome: &Outcome) -> SandboxReport {
    let journal = journal(cluster, outcome).await;
    let HistoryStep::Result(last) = &journal.last().unwrap().step else { panic!("{journal:#?}") };
    last.sandbox.clone().unwrap()
}

async fn runs_without_its_pid_namespace(mounting: &str, reason: &str) {
    let directory = Directory::new();
    let cluster = cluster_as(&[&[]], helper_after(&directory, mounting), json!({}));
    apply(&cluster.client, vec![agent("easy", json!([])), agent("careful", json!(["pid_namespace"]))]).await;
    for _ in 0..2 {
        let outcome = cluster.client.run(json!({"goal": "go", "agent_id": "easy"})).await;
        assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
        assert_eq!(result(&outcome), "ran");
        let report = report(&cluster, &outcome).await;
        let missing = report.missing.iter().find(|missing| missing.layer == Layer::PidNamespace);
        assert!(missing.is_some_and(|missing| missing.reason.contains(reason)), "{report:#?}");
        assert!(report.applied.iter().all(|applied| applied.layer != Layer::PidNamespace), "{report:#?}");
    }
    let outcome = cluster.client.run(json!({"goal": "go", "agent_id": "careful"})).await;
    assert_eq!(outcome.context.status, EndStatus::Failed);
    assert!(
        error(&outcome).contains("pid_namespace (") && error(&outcome).contains(reason),
        "{}",
        error(&outcome)
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_a_pid_namespace_without_its_own_proc_is_missing() {
    // A mount over a part of `/proc` makes the kernel refuse another `/proc`.
    runs_without_its_pid_namespace("mount -t tmpfs none /proc/fs", "mount a /proc of its own").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s4_a_pid_namespace_with_writable_mounts_is_missing() {
    let place = Directory::new();
    // The name of this mount is not valid text, so the sandbox does not find it.
    let at = format!("$(printf \"{}/\\\\377\")", place.path().display());
    let mounting = format!("mkdir -p \"{at}\" && mount -t tmpfs none \"{at}\"");
    runs_without_its_pid_namespace(&mounting, "not read-only").await;
}

/// A helper with fewer open files than a program requests, as on some machines.
fn helper_with_few_files(directory: &Directory) -> PathBuf {
    let path = directory.path().join("helper");
    let script = format!("#!/bin/sh\nulimit -n 100 && exec '{}' \"$@\"\n", binary().display());
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

/// proves: a limit above the worker's own does not fail the sandbox: the program gets the worker's
/// limit, and the report says so.
#[tokio::test(flavor = "multi_thread")]
async fn s4_a_limit_above_the_workers_own_is_lowered_and_reported() {
    let directory = Directory::new();
    let cluster = cluster_as(&[&[]], helper_with_few_files(&directory), json!({}));
    let counts = json!({"agent_id": "counts", "kind": "command", "command": ["sh", "-c", "ulimit -Hn"],
        "resources": {"open_files": 512}});
    apply(&cluster.client, vec![counts]).await;
    let outcome = cluster.client.run(json!({"goal": "go", "agent_id": "counts"})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert_eq!(result(&outcome), "100");
    let report = report(&cluster, &outcome).await;
    let detail = report.applied.iter().find(|applied| applied.layer == Layer::Rlimits);
    let detail = &detail.unwrap_or_else(|| panic!("{report:#?}")).detail;
    assert!(detail.contains("100 (the worker's own limit, instead of 512) open files"), "{detail}");
    cluster.stop().await;
}

/// In some containers `/proc` can't be mounted again, so that layer fails.
#[tokio::test(flavor = "multi_thread")]
async fn s4_no_profile_does_without_a_layer_that_the_operator_did_not_switch_off() {
    let directory = Directory::new();
    let helper = helper_after(&directory, "mount -t tmpfs none /proc/fs");
    let requires = |policy: &mut AgentPolicy| {
        policy.requires.insert(Layer::PidNamespace);
    };
    let cluster = cluster_under(&[&[], &["pid_namespace"]], helper, json!({}), requires);
    let mut switched_off = agent("switched-off", json!([]));
    switched_off["pool"] = json!("pid_namespace");
    apply(&cluster.client, vec![agent("undemanding", json!([])), switched_off]).await;
    let outcome = cluster.client.run(json!({"goal": "go", "agent_id": "undemanding"})).await;
    assert_eq!(outcome.context.status, EndStatus::Failed);
    assert!(error(&outcome).contains("can't apply: pid_namespace ("), "{}", error(&outcome));
    let outcome = cluster.client.run(json!({"goal": "go", "agent_id": "switched-off"})).await;
    assert_eq!(result(&outcome), "ran");
    cluster.stop().await;
}

/// A plain directory plays a delegated cgroup: this shows the files that the worker writes, not
/// that the kernel obeys them.
#[tokio::test(flavor = "multi_thread")]
async fn s4_a_program_runs_in_a_cgroup_of_its_own_where_one_is_delegated() {
    let directory = Directory::new();
    std::fs::write(directory.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
    let cluster = cluster_as(&[&[]], binary(), json!({"cgroup": directory.path()}));
    let word = format!("cgroup-{}", fresh_trace());
    let waits = json!({"agent_id": "waits", "kind": "command", "requires": ["cgroup"],
        "resources": {"processes": 5, "memory_bytes": 100 << 20},
        "command": ["sh", "-c", "while [ ! -e tmp/end ] && sleep 0.2; do [ -s outputs/x ] || echo 1 > outputs/x; done", word]});
    apply(&cluster.client, vec![waits]).await;
    let accepted = cluster.client.accepted(json!({"goal": "wait", "agent_id": "waits"})).await;
    eventually("the program runs", async || processes_with(&word) > 0).await;
    let made: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().flatten().filter(|e| e.path().is_dir()).collect();
    let [made] = &made[..] else { panic!("not exactly one cgroup: {made:?}") };
    let read = |name: &str| std::fs::read_to_string(made.path().join(name)).unwrap();
    assert_eq!((read("memory.max"), read("pids.max").as_str()), ((100_u64 << 20).to_string(), "13"));
    assert_eq!((read("memory.swap.max").as_str(), read("memory.oom.group").as_str()), ("0", "1"));
    assert_eq!(read("cgroup.procs"), "0", "the helper moves itself into the cgroup");
    assert!(!made.path().join("cgroup.kill").exists());
    // As the kernel reports it after it killed the program for its memory.
    std::fs::write(made.path().join("memory.events"), "oom_kill 1\n").unwrap();
    for pid in super::pids_with(&word) {
        // A process may have ended since it was listed.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    let outcome = cluster.client.outcome(accepted.trace_id, &accepted.child_id).await;
    assert!(error(&outcome).contains("needed more memory together"), "{}", error(&outcome));
    eventually("killed", async || made.path().join("cgroup.kill").exists()).await;
    let report = report(&cluster, &outcome).await;
    let applied = report.applied.iter().find(|applied| applied.layer == Layer::Cgroup);
    assert!(
        applied.is_some_and(|applied| applied.detail.starts_with("104857600 bytes of memory")),
        "{report:#?}"
    );
    cluster.stop().await;
}
