//! Trellis as processes on the same servers: a coordinator and a worker, as a user starts them.

use std::{
    collections::HashMap,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bus::{Bus, Nats, Outgoing};
use domain::{
    TraceId,
    span::Headers,
    subject::{Filter, Subject},
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle};
use trellis_tests::cluster::Client;

use crate::{
    Options,
    guards::Access,
    measure::meter::{self, Latencies, Usage},
};

type Waiting = Arc<Mutex<HashMap<TraceId, oneshot::Sender<()>>>>;

pub(crate) struct Trellis {
    pub(crate) client: Client,
    waiting: Waiting,
    listener: JoinHandle<()>,
    processes: Mutex<Vec<Process>>,
    servers: Vec<(String, u32)>,
    /// Present only for a server that needs no login.
    streams: Option<async_nats::jetstream::Context>,
}

struct Process {
    name: String,
    command: Command,
    child: Child,
    /// The processor time of its killed predecessors.
    before: Duration,
}

impl Process {
    fn start(name: &str, mut command: Command) -> Self {
        let child = command.spawn().unwrap();
        Process { name: name.to_owned(), command, child, before: Duration::ZERO }
    }

    fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The resources that all processes of one name have used.
pub(crate) struct Spent {
    pub(crate) name: String,
    pub(crate) cpu: Duration,
    pub(crate) rss: u64,
}

impl Trellis {
    pub(crate) async fn start(access: &Access, options: &Options) -> Trellis {
        let settings = std::env::temp_dir().join(format!("trellis-bench-{}.yaml", std::process::id()));
        let limits =
            "limits: {max_children: 20000, max_contexts: 20000, max_depth: 20, max_steps: 1000000}\n";
        std::fs::write(&settings, limits).unwrap();
        let binary = binary();
        let start = |name: &str, arguments: &[&str]| {
            let mut command = Command::new(&binary);
            command.arg(name).args(arguments).envs(access.environment(name));
            command.env("RUST_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::null());
            Process::start(name, command)
        };
        let settings = settings.to_str().unwrap();
        let slots = 512.max(options.workers).div_euclid(options.workers).to_string();
        let arguments = [&["--settings", settings], access.sizes()].concat();
        let coordinators = (0..options.coordinators).map(|_| start("coordinator", &arguments));
        let workers = (0..options.workers).map(|_| start("worker", &["--slots", &slots]));
        let processes = Mutex::new(coordinators.chain(workers).collect());
        let bus = Bus::Nats(Nats::connect(&access.client()).await.unwrap());
        let client = Client { bus };
        client.accepted(json!({"goal": "are you there?"})).await;
        let waiting = Waiting::default();
        let mut outcomes = client.bus.subscribe(&Filter::Outcomes).await.unwrap();
        let told = waiting.clone();
        let listener = tokio::spawn(async move {
            while let Some(message) = outcomes.next().await {
                if let Subject::Outcome(trace_id, child_id) = message.subject
                    && child_id.as_str() == "root"
                {
                    told.lock().unwrap().remove(&trace_id).map(|told| told.send(()));
                }
            }
        });
        let pids = [("nats-server", access.nats.pid()), ("redis-server", access.redis.pid())];
        let servers = pids.map(|(name, pid)| (name.to_owned(), pid)).to_vec();
        let streams = async_nats::connect(access.nats.url()).await.ok().map(async_nats::jetstream::new);
        Trellis { client, waiting, listener, processes, servers, streams }
    }

    /// Publishes a submission to the stream, and waits for its outcome.
    pub(crate) async fn job(&self, subject: Subject, mut message: Value) {
        let trace_id = TraceId::from_u128(uuid::Uuid::now_v7().as_u128()).unwrap();
        message["trace_id"] = trace_id.to_string().into();
        message["child_id"] = "root".into();
        let (tell, told) = oneshot::channel();
        self.waiting.lock().unwrap().insert(trace_id, tell);
        self.publish(subject, &message).await;
        tokio::time::timeout(Duration::from_secs(120), told).await.expect("an outcome").unwrap();
    }

    async fn publish(&self, subject: Subject, message: &Value) {
        let payload = serde_json::to_vec(message).unwrap().into();
        let message = Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last: None };
        self.client.bus.publish(message).await.unwrap();
    }

    pub(crate) async fn many(&self, jobs: usize, in_flight: usize) -> Duration {
        let began = Instant::now();
        let job = |_| self.job(Subject::Spawn, json!({"goal": "hello", "max_cost_usd": 0.01}));
        futures_util::stream::iter(0..jobs).map(job).buffer_unordered(in_flight).count().await;
        began.elapsed()
    }

    pub(crate) async fn one_at_a_time(&self, jobs: usize) -> Latencies {
        let mut latencies = Latencies::default();
        for _ in 0..jobs {
            let began = Instant::now();
            self.job(Subject::Spawn, json!({"goal": "hello", "max_cost_usd": 0.01})).await;
            latencies.add(began.elapsed());
        }
        latencies
    }

    pub(crate) async fn wide(&self, wide: usize) -> Duration {
        let began = Instant::now();
        let items: Vec<usize> = (0..wide).collect();
        let step = json!({"id": "each", "agent_id": "echo", "task_description": "hello", "for_each": "items", "output_to": "all"});
        self.job(Subject::Graph, json!({"inputs": {"items": items}, "steps": [step]})).await;
        began.elapsed()
    }

    pub(crate) async fn chain(&self, long: usize) -> Duration {
        let began = Instant::now();
        let step = |n| json!({"id": format!("s{n}"), "agent_id": "echo", "task_description": "hello"});
        let steps: Vec<Value> = (0..long).map(step).collect();
        self.job(Subject::Graph, json!({"mode": "sequential", "steps": steps})).await;
        began.elapsed()
    }

    /// Submits jobs for a pool without workers, and returns the number admitted per second.
    pub(crate) async fn pile_up(&self, jobs: usize) -> f64 {
        self.client
            .apply(json!([{"agent_id": "nobody", "kind": "builtin", "builtin": "echo", "pool": "nobody"}]))
            .await;
        let began = Instant::now();
        let job = |_| async {
            let message = json!({"goal": "hello", "agent_id": "nobody", "max_cost_usd": 0.01});
            self.publish(Subject::Spawn, &message).await;
        };
        futures_util::stream::iter(0..jobs).map(job).buffer_unordered(256).count().await;
        // This job is behind all others in the queue, so its outcome shows that they were admitted.
        self.job(Subject::Spawn, json!({"goal": "hello"})).await;
        jobs as f64 / began.elapsed().as_secs_f64()
    }

    pub(crate) fn usage(&self) -> Usage {
        let processes = self.processes.lock().unwrap();
        let ours = processes.iter().map(|process| (process.name.clone(), process.child.id()));
        Usage::of(&self.servers.iter().cloned().chain(ours).collect::<Vec<_>>())
    }

    pub(crate) fn server(&self, name: &str) -> u32 {
        self.servers.iter().find(|(server, _)| server == name).expect("the test started the server").1
    }

    /// The number of messages that all streams have stored so far, including removed ones.
    pub(crate) async fn stored_messages(&self) -> u64 {
        let streams = self.streams.as_ref().expect("measured on a plain server only");
        let names: Vec<String> = streams.stream_names().map(Result::unwrap).collect().await;
        let mut stored = 0;
        for name in names {
            stored += streams.get_stream(name).await.unwrap().cached_info().state.last_sequence;
        }
        stored
    }

    /// The resources used so far, including those of killed processes.
    pub(crate) fn spent(&self) -> Vec<Spent> {
        let processes = self.processes.lock().unwrap();
        let ours = processes.iter().map(|process| (&process.name, process.child.id(), process.before));
        let servers = self.servers.iter().map(|(name, pid)| (name, *pid, Duration::ZERO));
        let mut spent: Vec<Spent> = Vec::new();
        for (name, pid, before) in servers.chain(ours) {
            let (cpu, rss) = (before + meter::cpu(pid), meter::rss(pid));
            match spent.iter_mut().find(|spent| spent.name == *name) {
                Some(spent) => (spent.cpu, spent.rss) = (spent.cpu + cpu, spent.rss + rss),
                None => spent.push(Spent { name: name.clone(), cpu, rss }),
            }
        }
        spent
    }

    /// Kills a process and restarts it.
    pub(crate) fn kill_one(&self, number: usize) {
        let mut processes = self.processes.lock().unwrap();
        let place = number % processes.len();
        let process = &mut processes[place];
        process.before += meter::cpu(process.child.id());
        process.kill();
        process.child = process.command.spawn().unwrap();
    }

    pub(crate) async fn stop(mut self) {
        self.listener.abort();
        self.processes.get_mut().unwrap().iter_mut().for_each(Process::kill);
    }
}

impl Drop for Trellis {
    fn drop(&mut self) {
        self.processes.get_mut().unwrap().iter_mut().for_each(Process::kill);
    }
}

/// The binary beside this benchmark, in the directory of its profile.
pub(crate) fn binary() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let binary = own.parent().unwrap().parent().unwrap().join("trellis");
    assert!(
        binary.exists(),
        "{} is missing\n\nhint: run `cargo build --release -p trellis`",
        binary.display()
    );
    binary
}
