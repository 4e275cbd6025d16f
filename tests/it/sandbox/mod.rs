//! Programs as agents: real programs in the real sandbox, run by a real worker. They try forbidden
//! actions, and report the result.

mod binary_name;
mod bombs;
mod crash;
mod escapes;
mod gone;
mod isolation;
mod links;
mod money;
mod parking;
mod protocol;
mod servers;
mod truth;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bus::Bus;
use coordinator::store::Store;
use domain::{WorkerId, agent_policy::AgentPolicy, id::PoolName, wire::Outcome};
use nix::unistd::Pid;
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Client, Cluster, name},
    processes::{binary, fresh_trace},
};

/// Helper functions for programs in Python.
const ASK: &str = r#"
import json, sys
start = json.loads(sys.stdin.readline())
def say(**line):
    print(json.dumps(line), flush=True)
def ask(**line):
    say(**line)
    return json.loads(sys.stdin.readline())
"#;

fn python(id: &str, body: &str) -> Value {
    json!({"agent_id": id, "kind": "command", "command": ["python3", "-c", format!("{ASK}{body}")]})
}

/// A directory that is deleted with its last owner.
#[derive(Debug)]
struct Directory(PathBuf);

impl Directory {
    fn new() -> Arc<Self> {
        let path = std::env::temp_dir().join(format!("trellis-sandbox-{}", fresh_trace()));
        std::fs::create_dir_all(&path).unwrap();
        Arc::new(Directory(path.canonicalize().unwrap()))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A cluster with a worker for each set of disabled layers, in a pool named after the set.
fn cluster(sets: &[&[&str]]) -> Cluster {
    cluster_as(sets, binary(), json!({}))
}

/// The same, with another helper and further settings of the sandbox.
fn cluster_as(sets: &[&[&str]], helper: PathBuf, settings: Value) -> Cluster {
    cluster_under(sets, helper, settings, |_| {})
}

/// The same, with a changed policy; the unchanged one allows everything.
fn cluster_under(
    sets: &[&[&str]],
    helper: PathBuf,
    settings: Value,
    change: impl Fn(&mut AgentPolicy),
) -> Cluster {
    let mut policy = AgentPolicy::everything();
    change(&mut policy);
    // The binary does this first; here the worker is a part of this process.
    worker::protect_process().unwrap();
    let coordinator = coordinator::Config::new(name("coordinator"));
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let store = Store::Memory(coordinator::store::Memory::new(coordinator.topology.partitions));
    let worker = |without: &&[&str]| {
        let pool = pool(without);
        let mut settings = settings.clone();
        settings["without"] = json!(without);
        worker::Config {
            pool: PoolName::new(&pool).unwrap(),
            sandbox: Some(helper.clone()),
            policy: policy.clone(),
            settings: serde_json::from_value(json!({"sandbox": settings})).unwrap(),
            ..worker::Config::new(WorkerId::new(&format!("worker-{pool}")).unwrap())
        }
    };
    Cluster::start(bus, store, vec![coordinator], sets.iter().map(worker).collect())
}

fn pool(without: &[&str]) -> String {
    if without.is_empty() { "default".into() } else { without.join("-") }
}

fn result(outcome: &Outcome) -> Value {
    match &outcome.context.result {
        Some(value) => value.value().clone(),
        None => panic!("no result: {outcome:#?}"),
    }
}

fn error(outcome: &Outcome) -> String {
    let failure = outcome.context.error.clone();
    failure.map(|failure| failure.message).unwrap_or_else(|| panic!("no error: {outcome:#?}"))
}

/// The number of processes on this machine with a word in their command line.
fn processes_with(word: &str) -> usize {
    pids_with(word).len()
}

fn pids_with(word: &str) -> Vec<Pid> {
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    };
    let pid = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw);
    listed.filter(has).filter_map(pid).collect()
}

async fn apply(client: &Client, agents: Vec<Value>) {
    client.apply(json!(agents)).await;
}
