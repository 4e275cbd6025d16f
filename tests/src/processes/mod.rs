//! A cluster of `trellis` processes with its own NATS and Redis: a small deployment with short
//! timeouts. Processes are started, stopped, killed and paused by name, and end when the cluster is
//! dropped. `cargo build -p trellis` builds the binary.

mod load;
mod node;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use bus::{Bus, Connect, Nats};
use coordinator::store::{Redis, Store};
use domain::{
    TraceId,
    agent_policy::AgentPolicy,
    subject::Subject,
    wire::{Query, QueryAnswer, WorkerCall},
};
use serde_json::{Value, json};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use trace::Trace;

pub use load::fresh_trace;
use node::Node;
pub use node::{binary, repository};

use crate::{
    checker,
    cluster::{Client, KEY, SOON},
    servers::{NatsServer, RedisServer},
};

const PARTITIONS: u16 = 16;
/// The time in which a process must start or end.
const PATIENCE: Duration = SOON;

/// The lease in these tests; the default is 10 s.
pub const LEASE: Duration = Duration::from_millis(4_000);

/// The configuration of a cluster.
#[derive(Debug)]
pub struct Shape {
    pub coordinators: usize,
    pub workers: usize,
    pub slots: usize,
    /// The time for which a drained worker lets its attempts run.
    pub drain: &'static str,
    /// Settings of the deployment, which override those of all tests.
    pub settings: Value,
    /// Settings of every worker: models and tools.
    pub worker: Value,
    /// The policy file of every worker. Without one, everything is allowed.
    pub policy: Option<PathBuf>,
    /// The environment variables of every worker.
    pub environment: Vec<(String, String)>,
    /// The environment variables of every coordinator.
    pub coordinators_environment: Vec<(String, String)>,
    pub nats: NatsServer,
    pub redis: RedisServer,
    /// The key of the coordinators.
    pub key: Option<&'static str>,
    /// The address of Redis for all processes, if another than the server's.
    pub redis_url: Option<String>,
    /// The address of NATS for coordinators, if another than the server's.
    pub coordinators_nats: Option<String>,
    /// The address of NATS for workers, if another than the server's.
    pub workers_nats: Option<String>,
    /// If set, logs are JSON.
    pub json_logs: bool,
    /// The first program of all processes, if another than the one built with the tests.
    pub program: Option<PathBuf>,
}

impl Shape {
    pub fn new(coordinators: usize, workers: usize) -> Self {
        let (nats, redis) = (NatsServer::start(), RedisServer::start());
        let (settings, worker, environment) = (json!({}), json!({}), Vec::new());
        Shape {
            coordinators,
            workers,
            slots: 16,
            drain: "3s",
            settings,
            worker,
            policy: None,
            environment,
            coordinators_environment: Vec::new(),
            nats,
            redis,
            key: Some(KEY),
            redis_url: None,
            coordinators_nats: None,
            workers_nats: None,
            json_logs: false,
            program: None,
        }
    }
}

#[derive(Debug)]
pub struct Processes {
    pub client: Client,
    pub store: Store,
    pub nats: NatsServer,
    pub redis: RedisServer,
    nodes: BTreeMap<String, Node>,
    dir: PathBuf,
    _room: OwnedSemaphorePermit,
}

impl Processes {
    /// Starts coordinators `c1`, `c2`, … and workers `w1`, `w2`, …, and waits until all answer.
    pub async fn start(coordinators: usize, workers: usize) -> Self {
        let room = room().await;
        Self::in_room(Shape::new(coordinators, workers), room).await
    }

    /// Starts a cluster of this shape. `shape` starts servers, so it is called only after a place
    /// among the running clusters is free.
    pub async fn start_as(shape: impl FnOnce() -> Shape) -> Self {
        let room = room().await;
        Self::in_room(shape(), room).await
    }

    async fn in_room(shape: Shape, room: OwnedSemaphorePermit) -> Self {
        let Shape { coordinators, workers, slots, settings, worker, environment, nats, redis, .. } = shape;
        let dir = std::env::temp_dir().join(format!("trellis-cluster-{}", fresh_trace()));
        std::fs::create_dir_all(&dir).expect("the temporary directory can be written");
        let file = settings_file(&dir, settings);
        let worker_file = dir.join("worker.json");
        let worker = over(json!({"workspaces": dir.join("workspaces")}), worker);
        std::fs::write(&worker_file, worker.to_string()).expect("the test created the directory");
        let worker_file = worker_file.to_string_lossy();
        let policy_file = shape.policy.unwrap_or_else(|| {
            let file = dir.join("policy.json");
            std::fs::write(&file, json!(AgentPolicy::everything()).to_string())
                .expect("the test created the directory");
            file
        });
        let policy_file = policy_file.to_string_lossy();
        let connect = Connect::new(nats.url(), Default::default(), "test");
        let bus = Bus::Nats(Nats::connect(&connect).await.expect("the server was started"));
        let store = Redis::connect(&redis.url(), Default::default(), PARTITIONS).await;
        let store = Store::Redis(store.expect("the server was started"));
        let servers = |nats_url: Option<String>| {
            let redis_url = shape.redis_url.clone().unwrap_or_else(|| redis.url());
            let nats_url = nats_url.unwrap_or_else(|| nats.url());
            vec![("NATS_URL".to_owned(), nats_url), ("REDIS_URL".to_owned(), redis_url)]
        };
        let mut of_coordinators = [servers(shape.coordinators_nats), shape.coordinators_environment].concat();
        of_coordinators.extend(shape.key.map(|key| ("TRELLIS_LOG_KEY".to_owned(), key.to_owned())));
        let log_format: &[&str] = if shape.json_logs { &["--log-json"] } else { &[] };
        let mut nodes = BTreeMap::new();
        for number in 1..=coordinators {
            let name = format!("c{number}");
            let file = file.to_string_lossy();
            // NATS reserves disk space for every stream, and many servers run at once. Tests need
            // little.
            let [log, queue] = ["--max-log-bytes", "--max-queue-bytes"];
            let arguments =
                ["coordinator", "--id", &name, "--settings", &file, log, "256MiB", queue, "128MiB"];
            let arguments = [&arguments[..], log_format].concat();
            nodes.insert(name.clone(), Node::new(&dir, &name, &arguments, &of_coordinators));
        }
        let environment = [servers(shape.workers_nats), environment].concat();
        for number in 1..=workers {
            let name = format!("w{number}");
            let slots = slots.to_string();
            let arguments = [
                "worker",
                "--id",
                &name,
                "--slots",
                &slots,
                "--config",
                &worker_file,
                "--policy",
                &policy_file,
                "--allow-crash",
                "--drain",
                shape.drain,
            ];
            let arguments = [&arguments[..], log_format].concat();
            nodes.insert(name.clone(), Node::new(&dir, &name, &arguments, &environment));
        }
        let mut cluster = Processes { client: Client { bus }, store, nats, redis, nodes, dir, _room: room };
        for name in cluster.names("") {
            if let Some(program) = &shape.program {
                cluster.node(&name).become_program(program);
            }
            cluster.run(&name);
        }
        cluster.all_there().await;
        cluster
    }

    /// The processes whose names have this prefix: `c` for coordinators, `w` for workers.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        self.nodes.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// Sends SIGTERM, then starts the process again with the program that was built with the tests.
    pub async fn upgrade(&mut self, name: &str) {
        self.stop(name).await;
        self.node(name).become_program(&binary());
        self.run(name);
    }

    /// Starts the process again with its first arguments.
    pub fn run(&mut self, name: &str) {
        self.run_with(name, &[]);
    }

    /// Starts the process again with more arguments, such as `["--crash-at", "committed:2"]`.
    pub fn run_with(&mut self, name: &str, flags: &[&str]) {
        self.node(name).run(flags);
    }

    /// Changes the deployment's settings for coordinators that start from now on.
    pub fn configure(&self, settings: Value) {
        settings_file(&self.dir, settings);
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self, name: &str) {
        self.node(name).kill();
    }

    /// Sends SIGTERM, and waits until the process has ended.
    pub async fn stop(&mut self, name: &str) {
        self.node(name).terminate();
        self.gone(name).await;
    }

    /// Sends SIGSTOP: the connections stay open, but the process does nothing.
    pub fn pause(&mut self, name: &str) {
        self.node(name).pause();
    }

    /// Sends SIGCONT.
    pub fn resume(&mut self, name: &str) {
        self.node(name).resume();
    }

    pub fn is_running(&mut self, name: &str) -> bool {
        self.node(name).is_running()
    }

    pub fn pid(&mut self, name: &str) -> u32 {
        self.node(name).pid().as_raw().unsigned_abs()
    }

    /// The log of the process so far.
    pub fn log(&self, name: &str) -> String {
        self.nodes.get(name).unwrap_or_else(|| panic!("no process {name}")).read_log()
    }

    /// Waits until the process has ended by itself.
    pub async fn gone(&mut self, name: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.node(name).is_running() {
            assert!(Instant::now() < deadline, "{name} did not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until every running process answers.
    pub async fn all_there(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let mut running = self.names("");
        running.retain(|name| self.is_running(name));
        // Collecting answers always takes this whole time. It starts short, and doubles with each
        // round for a busy machine.
        let mut collect = Duration::from_millis(25);
        loop {
            let heard = self.heard(collect).await;
            collect = (collect * 2).min(Duration::from_secs(2));
            if running.iter().all(|name| heard.contains(name)) {
                return;
            }
            assert!(Instant::now() < deadline, "of {running:?} only {heard:?} answer");
            let dead = running.iter().find(|name| !self.is_running(name));
            assert!(dead.is_none(), "{dead:?} ended while it started");
        }
    }

    /// The processes that answer within `wait`.
    async fn heard(&self, wait: Duration) -> Vec<String> {
        let bus = &self.client.bus;
        let asker = client::Client::new(bus.clone(), "test").with_timeout(wait);
        let mut heard = Vec::new();
        if let Ok(Ok(QueryAnswer::Coordinators { coordinators, .. })) =
            asker.query_once(&Query::Coordinators).await
        {
            heard.extend(coordinators.iter().map(ToString::to_string));
        }
        let call = serde_json::to_vec(&WorkerCall::Describe).expect("plain fields").into();
        for answer in bus.gather(&Subject::Worker, call, wait).await.unwrap_or_default() {
            let state: Value = serde_json::from_slice(&answer).unwrap_or_default();
            heard.extend(state["worker_id"].as_str().map(str::to_owned));
        }
        heard
    }

    /// Applies agent profiles.
    pub async fn apply(&self, agents: Value) {
        self.client.apply(agents).await;
    }

    /// A trace as the store has it.
    pub async fn stored(&self, trace_id: TraceId) -> Option<Trace> {
        let record = self.store.load(&[trace_id]).await.ok()?.pop()?.record?;
        Trace::from_stored(trace_id, record.version, &record.fields, &record.values).ok()
    }

    /// Waits until these runs are at rest, and runs the checker on them.
    pub async fn check(&self, runs: &[TraceId]) {
        checker::check(&self.client, &self.store, runs).await;
    }

    fn node(&mut self, name: &str) -> &mut Node {
        self.nodes.get_mut(name).unwrap_or_else(|| panic!("no process {name}"))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            node.kill();
        }
        if std::thread::panicking() {
            for node in self.nodes.values() {
                node.show_log();
            }
        }
        // Remaining files in the temporary directory must not cause a panic in a drop.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Limits the clusters at once to the number of cores plus one. Each has half a dozen processes,
/// which mostly wait, but a starved process looks like a broken one.
async fn room() -> OwnedSemaphorePermit {
    static ROOM: OnceLock<Arc<Semaphore>> = OnceLock::new();
    let room = ROOM.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Arc::new(Semaphore::new(cores + 1))
    });
    room.clone().acquire_owned().await.expect("the semaphore is never closed")
}

/// Writes the settings of the deployment, merged over those of every test.
fn settings_file(dir: &Path, settings: Value) -> PathBuf {
    let file = dir.join("settings.json");
    std::fs::write(&file, over(test_settings(), settings).to_string())
        .expect("the test created the directory");
    file
}

/// The default settings with shorter times.
fn test_settings() -> Value {
    let lease_ms = u64::try_from(LEASE.as_millis()).expect("seconds");
    json!({"lease_ms": lease_ms, "hold_grace_ms": 5_000, "retry_base_ms": 200, "retry_max_ms": 2_000})
}

/// `base` with the fields of `more` replaced, recursively.
fn over(base: Value, more: Value) -> Value {
    match (base, more) {
        (Value::Object(mut base), Value::Object(more)) => {
            for (key, value) in more {
                let was = base.remove(&key).unwrap_or_default();
                base.insert(key, over(was, value));
            }
            Value::Object(base)
        }
        (_, more) => more,
    }
}
