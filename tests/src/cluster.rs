//! A cluster in one process: coordinators and workers on one bus and one store, and a client of it.

use std::time::Duration;

use bus::{Bus, Connect, Consumer, Consumption, From, Nats, Outgoing, keys::Keys};
use coordinator::store::{Redis, Store};
use domain::{
    ChildId, TraceId, WorkerId, decode,
    span::Headers,
    subject::{Filter, Subject},
    wire::{Acceptance, HistoryEntry, Outcome, QueryAnswer, SubmitAnswer},
};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use trace::{Rest, Trace};

use crate::servers::{NatsServer, RedisServer};

/// The timeout for anything that a test waits for. It only bounds a hang: no test passes or fails
/// by the speed of the machine.
pub const SOON: Duration = Duration::from_secs(180);

/// Waits until the condition holds, and panics with `what` after [`SOON`].
pub async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let waited = tokio::time::timeout(SOON, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

/// The queue of a pool. Coordinators create it with the first work for the pool, so this waits for
/// it.
pub async fn queue_of(bus: &Bus, pool: &str) -> Consumption {
    let consumer = Consumer::Execute(pool.parse().expect("the name of a pool"));
    let found = async {
        loop {
            match bus.consume(&consumer).await {
                Ok(queue) => return queue,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(SOON, found).await.expect("the pool has work")
}

/// A client of a cluster, in this process or on servers. It panics where [`client::Client`] returns
/// errors.
#[derive(Debug, Clone)]
pub struct Client {
    pub bus: Bus,
}

impl Client {
    /// The product's client, with the timeouts of a test.
    fn patient(&self) -> client::Client {
        client::Client::new(self.bus.clone(), "test").with_timeout(SOON).with_patience(SOON)
    }

    /// Submits by request, and retries until a coordinator answers.
    pub async fn submit(&self, message: Value) -> SubmitAnswer {
        let payload = serde_json::to_vec(&message).expect("JSON");
        self.patient().submit_json(payload).await.expect("an answer to a submission")
    }

    /// Sends a query to a coordinator. A refusal is returned as an answer.
    pub async fn query(&self, query: Value) -> QueryAnswer {
        let query = decode::value(&query).unwrap_or_else(|problems| panic!("{problems}"));
        let reply = self.patient().query(&query).await.expect("an answer to a query");
        reply.unwrap_or_else(QueryAnswer::Refused)
    }

    /// Applies agent profiles.
    pub async fn apply(&self, agents: Value) {
        let answer = self.query(json!({"apply_agents": {"agents": agents}})).await;
        assert!(matches!(answer, QueryAnswer::Applied { .. }), "{answer:?}");
    }

    pub async fn accepted(&self, message: Value) -> Acceptance {
        match self.submit(message).await {
            SubmitAnswer::Accepted(acceptance) => acceptance,
            SubmitAnswer::Refused(refusal) => panic!("refused: {refusal:?}"),
        }
    }

    /// Publishes to a stream.
    pub async fn publish(&self, subject: Subject, message: &Value) {
        let payload = serde_json::to_vec(message).expect("JSON").into();
        let message = Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last: None };
        self.bus.publish(message).await.expect("published");
    }

    /// The current journal of a context.
    pub async fn journal(&self, trace: TraceId, child: &ChildId) -> Vec<HistoryEntry> {
        self.patient().journal_or_empty(trace, child).await.expect("the journal can be read")
    }

    /// Waits for the outcome of a context.
    pub async fn outcome(&self, trace_id: TraceId, child_id: &ChildId) -> Outcome {
        let subject = Filter::One(Subject::Outcome(trace_id, child_id.clone()));
        let waited = tokio::time::timeout(SOON, async {
            let mut follow = self.bus.follow(&[subject], From::Start).await.expect("followed");
            follow.next().await.expect("an outcome")
        });
        let stored = match waited.await {
            Ok(stored) => stored,
            Err(_) => panic!("no outcome of {child_id}; its trace: {:#?}", self.trace(trace_id).await),
        };
        serde_json::from_slice(&stored.payload).expect("an outcome")
    }

    /// Submits, and waits for the outcome.
    pub async fn run(&self, message: Value) -> Outcome {
        let accepted = self.accepted(message).await;
        self.outcome(accepted.trace_id, &accepted.child_id).await
    }

    /// The trace replayed from its event log.
    pub async fn trace(&self, trace_id: TraceId) -> Trace {
        let found = self.patient().find_with_rest(trace_id).await.expect("the log can be read");
        let Some((trace, rest)) = found else { return Trace::new(trace_id) };
        assert!(!matches!(rest, Rest::Gap(_)), "the log of {trace_id}: {rest:?}");
        trace
    }
}

/// Coordinators and workers in this process.
#[derive(Debug)]
pub struct Cluster {
    pub client: Client,
    pub store: Store,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// The keys of each coordinator, with the count of what it refused.
    keys: Vec<Keys>,
}

impl Cluster {
    pub fn start(
        bus: Bus,
        store: Store,
        coordinators: Vec<coordinator::Config>,
        workers: Vec<worker::Config>,
    ) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let mut all_keys = Vec::new();
        for mut config in coordinators {
            all_keys.push(config.keys.get_or_insert_with(keys).clone());
            let (bus, store, stop) = (bus.clone(), store.clone(), stop.clone());
            tasks.spawn(async move {
                coordinator::run(config, bus, store, stop.cancelled_owned())
                    .await
                    .expect("a coordinator runs");
            });
        }
        for config in workers {
            let (bus, stop) = (bus.clone(), stop.clone());
            tasks.spawn(async move {
                worker::run(config, bus, stop.cancelled_owned()).await.expect("a worker runs");
            });
        }
        tasks.close();
        Cluster { client: Client { bus }, store, stop, tasks, keys: all_keys }
    }

    /// Starts one coordinator and one worker, on a bus and a store in memory.
    pub fn embedded() -> Self {
        let coordinator = coordinator::Config::new(name("coordinator"));
        let bus = Bus::Memory(bus::Memory::new(Default::default()));
        let store = Store::Memory(coordinator::store::Memory::new(coordinator.topology.partitions));
        Self::start(bus, store, vec![coordinator], vec![worker::Config::new(name("worker"))])
    }

    /// Starts one coordinator and one worker in this process, on real servers.
    pub async fn on(nats: &NatsServer, redis: &RedisServer) -> Self {
        Self::on_with(nats, redis, None).await
    }

    /// As [`Cluster::on`], with keys.
    pub async fn on_with(nats: &NatsServer, redis: &RedisServer, keys: Option<Keys>) -> Self {
        let to = Connect::new(nats.url(), Default::default(), "test");
        let bus = Bus::Nats(Nats::connect(&to).await.expect("NATS accepts the connection"));
        let mut coordinator = coordinator::Config::new(name("coordinator"));
        coordinator.keys = keys;
        // NATS reserves disk space for every stream, and many servers run at once. Tests need
        // little.
        coordinator.topology.max_log_bytes = 256 << 20;
        coordinator.topology.max_queue_bytes = 128 << 20;
        let partitions = coordinator.topology.partitions;
        let store = Redis::connect(&redis.url(), Default::default(), partitions).await;
        let store = Store::Redis(store.expect("Redis accepts the connection"));
        Self::start(bus, store, vec![coordinator], vec![worker::Config::new(name("worker"))])
    }

    /// Stops the cluster. Panics if a coordinator refused to read what the coordinators wrote.
    pub async fn stop(self) {
        assert_eq!(self.refused(), 0, "a coordinator refused its own data");
        self.stop_with_refusals().await;
    }

    /// The number of messages and values that the coordinators refused as not authentic.
    pub fn refused(&self) -> u64 {
        self.keys.iter().map(Keys::refused).sum()
    }

    /// Stops the cluster without the check for refused messages.
    pub async fn stop_with_refusals(self) {
        self.stop.cancel();
        tokio::time::timeout(SOON, self.tasks.wait()).await.expect("the processes drain");
    }
}

/// The key of every tested deployment, except in tests about keys.
pub fn keys() -> Keys {
    Keys::parse(KEY).expect("a valid literal")
}

/// The same key, for tests that write without a signature. A wrong signature is still refused.
pub fn lenient_keys() -> Option<Keys> {
    Some(keys().accepting_unsigned())
}

/// The bus with a coordinator's keys, for tests that write into its logs.
pub fn signed(bus: &Bus) -> Bus {
    bus.clone().with_keys(keys())
}

pub const KEY: &str = "7465737473207369676e20776861742074686579207265616420206261636b21";

pub fn name(text: &str) -> WorkerId {
    WorkerId::new(text).expect("a valid literal")
}
