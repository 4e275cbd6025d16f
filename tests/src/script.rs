//! A worker on the memory bus, and a coordinator that answers it from a script. The messages are
//! real; the test makes the decisions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bus::{Bus, Memory, Outgoing};
use domain::{
    ChildId, Json, Timestamp, decode,
    span::Headers,
    subject::{Filter, Namespace, Subject},
    wire::{
        self, Answer, Ask, AskMessage, ClaimAnswer, ClaimAt, Cost, DeadLetter, Execute, GivenAnswer, Lease,
        Offer, Report, TimeLeft, Verdict,
    },
};
use host::clock::Clock;
use serde_json::Value;
use tokio::{sync::oneshot, task::JoinHandle};

use world::{World, home, id};

/// Decides the answer to an ask. It gets the answer that lets the worker continue; `None` sends no
/// answer.
pub type Script = Box<dyn FnMut(&Ask, Answer) -> Option<Answer> + Send>;

/// The script whose answers let the worker continue.
pub fn agreeable() -> Script {
    Box::new(|_, answer| Some(answer))
}

#[derive(Debug)]
pub struct Bench {
    pub bus: Bus,
    pub clock: Clock,
    pub worker_id: domain::WorkerId,
    asks: Arc<Mutex<Vec<(Timestamp, Ask)>>>,
    shutdown: Option<oneshot::Sender<()>>,
    worker: JoinHandle<Result<(), worker::Error>>,
    coordinator: JoinHandle<()>,
}

/// An execute message for a built-in agent, made by the core.
pub fn work(child: &str, builtin: &str, inputs: Value) -> Execute {
    let world = World::with_root(serde_json::json!({ "inputs": inputs }));
    let mut work = world.work(&id("root")).expect("the root has work");
    work.child_id = id(child);
    work.agent.builtin = Some(builtin.into());
    work
}

impl Bench {
    /// Starts a worker with two slots, and a coordinator that has these execute messages.
    pub async fn start(works: Vec<Execute>, script: Script) -> Self {
        let clock = Clock::simulated(Timestamp::from_millis(1_000_000));
        let bus = Bus::Memory(Memory::starting_at(Namespace::default(), Timestamp::from_millis(1_000_000)));
        let config = worker::Config { slots: 2, clock, ..worker::Config::default() };
        let worker_id = config.id.clone();
        let asks = Arc::new(Mutex::new(Vec::new()));
        let works = works.into_iter().map(|work| (work.child_id.clone(), work)).collect();
        let coordinator = tokio::spawn(coordinate(bus.clone(), clock, works, script, asks.clone()));
        tokio::task::yield_now().await;
        let (shutdown, told) = oneshot::channel();
        let worker = tokio::spawn(worker::run(config, bus.clone(), async {
            let _ = told.await;
        }));
        Bench { bus, clock, worker_id, asks, shutdown: Some(shutdown), worker, coordinator }
    }

    /// As [`Bench::start`], with the first execute message dispatched.
    pub async fn run(work: Execute, script: Script) -> Self {
        let bench = Self::start(vec![work.clone()], script).await;
        bench.dispatch(&work).await;
        bench
    }

    pub async fn dispatch(&self, work: &Execute) {
        let (trace_id, child_id, attempt) = (work.trace_id, work.child_id.clone(), work.attempt);
        let report_to = ClaimAt { ask: work.report_to.ask.clone() };
        let offer = Offer { trace_id, child_id, attempt, report_to };
        self.publish(serde_json::to_vec(&offer).expect("string keys")).await;
    }

    /// Publishes any payload as work for the pool.
    pub async fn publish(&self, payload: Vec<u8>) {
        let subject = Subject::Execute("default".parse().expect("a valid literal"));
        let message = Outgoing {
            subject,
            id: None,
            headers: Headers::new(),
            payload: payload.into(),
            expect_last: None,
        };
        self.bus.publish(message).await.expect("the memory bus stores the message");
    }

    pub fn shut_down(&mut self) {
        self.shutdown.take();
    }

    /// Waits for the worker to end.
    pub async fn ended(self) -> Result<(), worker::Error> {
        let ended = self.worker.await.expect("the worker does not panic");
        self.coordinator.abort();
        ended
    }

    pub fn is_over(&self) -> bool {
        self.worker.is_finished()
    }

    /// The asks so far, each with the milliseconds since the start.
    pub fn asks(&self) -> Vec<(u64, Ask)> {
        let start = Timestamp::from_millis(1_000_000);
        let asks = self.asks.lock().expect("no test panics while it holds the lock");
        asks.iter().map(|(at, ask)| (at.millis_since(start), ask.clone())).collect()
    }

    pub fn claims(&self) -> Vec<(u64, wire::Claim)> {
        let claims = self.asks().into_iter();
        claims
            .filter_map(|(at, ask)| if let Ask::Claim(claim) = ask { Some((at, claim)) } else { None })
            .collect()
    }

    pub async fn queued(&self) -> usize {
        self.bus.read(&Filter::Executes).await.expect("a stream").len()
    }

    pub async fn reports(&self) -> Vec<Report> {
        let read = self.read::<wire::Result>(&Filter::Results).await;
        read.into_iter().map(|result| result.report).collect()
    }

    pub async fn verdicts(&self) -> Vec<Verdict> {
        self.reports().await.into_iter().map(|report| report.verdict).collect()
    }

    pub async fn costs(&self) -> Vec<Cost> {
        self.read(&Filter::Costs).await
    }

    pub async fn dead_letters(&self) -> Vec<DeadLetter> {
        let stored = self.bus.read(&Filter::Dead).await.expect("a stream");
        stored.iter().map(|stored| serde_json::from_slice(&stored.payload).expect("a dead letter")).collect()
    }

    async fn read<T: serde::de::DeserializeOwned + schemars::JsonSchema + 'static>(
        &self,
        filter: &Filter,
    ) -> Vec<T> {
        let stored = self.bus.read(filter).await.expect("a stream");
        stored.iter().map(|stored| decode::json(&stored.payload).unwrap_or_else(|p| panic!("{p}"))).collect()
    }

    /// Waits until a condition holds, for at most two minutes.
    pub async fn until(&self, what: &str, mut is_so: impl AsyncFnMut(&Self) -> bool) {
        for _ in 0..12_000 {
            if is_so(self).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}; asked {:#?}", self.asks());
    }

    /// Waits until the queue is empty, which means that everything was acknowledged.
    pub async fn until_done(&self) {
        self.until("the queue is empty", async |bench| bench.queued().await == 0).await;
    }
}

async fn coordinate(
    bus: Bus,
    clock: Clock,
    works: BTreeMap<ChildId, Execute>,
    mut script: Script,
    asks: Arc<Mutex<Vec<(Timestamp, Ask)>>>,
) {
    let mut requests =
        bus.serve(&Filter::AsksOf(home().partition)).await.expect("the memory bus serves requests");
    let mut attempts = BTreeMap::new();
    while let Some(request) = requests.next().await {
        let message: AskMessage = decode::json(&request.payload).unwrap_or_else(|p| panic!("{p}"));
        asks.lock().expect("no test panics while it holds the lock").push((clock.now(), message.ask.clone()));
        let answer = script(&message.ask, agree(&message.ask, &works, &mut attempts, clock.now()));
        if let (Some(answer), Some(to)) = (answer, &request.reply_to) {
            bus.reply(to, serde_json::to_vec(&answer).expect("string keys").into())
                .await
                .expect("the worker waits for the answer");
        }
    }
}

fn agree(
    ask: &Ask,
    works: &BTreeMap<ChildId, Execute>,
    attempts: &mut BTreeMap<ChildId, u32>,
    now: Timestamp,
) -> Answer {
    match ask {
        Ask::Claim(claim) => {
            let attempt = attempts.entry(claim.child_id.clone()).or_default();
            *attempt += 1;
            let (child_id, token) = (claim.child_id.clone(), claim.token.clone());
            let work = works.get(&child_id).cloned().expect("the script has the work of the child");
            let lease = Lease { child_id, attempt: *attempt, token };
            let lease_until = now.plus_millis(10_000);
            let left = TimeLeft { now, lease_ms: 10_000, deadline_ms: None };
            Answer::Claimed(Box::new(ClaimAnswer { lease, lease_until, left, work, open_holds: Vec::new() }))
        }
        Ask::Tick(_) => {
            let left = TimeLeft { now, lease_ms: 10_000, deadline_ms: None };
            Answer::GoOn { until: now.plus_millis(10_000), left }
        }
        Ask::Spawn(child) => {
            let spawn = child.spawn.as_ref().expect("built-in agents spawn no graphs");
            let child_id = spawn.child_id.clone().expect("built-in agents name their children");
            Answer::Spawned { child_id, adjusted: Vec::new() }
        }
        Ask::ContextGet { .. } => Answer::Value { value: None },
        Ask::ContextList { .. } => Answer::Keys { keys: Vec::new(), left_out: 0 },
        Ask::Part { .. } => panic!("the test asks for no parts"),
        Ask::Hold(_)
        | Ask::Release { .. }
        | Ask::Forfeit { .. }
        | Ask::Settle { .. }
        | Ask::Resume(_)
        | Ask::Checked(_)
        | Ask::ContextSet { .. }
        | Ask::ContextDelete { .. } => Answer::Done,
    }
}

/// A human's answer.
pub fn given(question: &str, answer: &str) -> GivenAnswer {
    let text = |text: &str| wire::Text::new(text).expect("not empty");
    GivenAnswer { question: text(question), answer: text(answer), by: None, default: false, withdrawn: false }
}

/// A completed verdict with an inline result.
pub fn inline(value: impl Into<Value>) -> Verdict {
    Verdict::Completed(wire::Payload::Inline(Json::from(value.into())))
}
