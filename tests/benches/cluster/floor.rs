//! Two floor programs. The bare one does the least that any such system must do for a job: a
//! submission, an execution and a result are JetStream messages, stored and acknowledged; two small
//! scripts run in Redis; a core NATS message announces the end. It has no budgets, state machine,
//! events or crash safety.
//!
//! The one with the duties of Trellis has the same messages and scripts as a job of Trellis. The
//! worker claims before it runs, by a request that runs a third script. Each script is followed by
//! a stored log message on a subject of its job. The outcome is a stored message too. This program
//! still decides nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_nats::jetstream::{self, consumer::pull, stream};
use futures_util::StreamExt;
use tokio::{sync::oneshot, task::JoinSet};
use trellis_tests::servers::{NatsServer, RedisServer};

use crate::measure::meter::Latencies;

const SCRIPT: &str = "redis.call('HSET', KEYS[1], 'v', ARGV[1], 'a', ARGV[2]) \
                      redis.call('ZADD', KEYS[2], ARGV[1], KEYS[1]) return redis.call('INCR', KEYS[3])";
/// About the size of a small job's state.
const STATE: &str =
    "{\"goal\":\"hello\",\"status\":\"working\",\"budget\":{\"limit\":1,\"spent\":0,\"held\":0}}";

type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// The sizes of stored messages in bytes: of the log, and of the outcome.
const EVENT_BYTES: usize = 400;
const OUTCOME_BYTES: usize = 500;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bare,
    Duties,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Bare => "floor",
            Kind::Duties => "duties",
        }
    }
}

pub(crate) struct Floor {
    kind: Kind,
    client: async_nats::Client,
    jetstream: jetstream::Context,
    redis: redis::aio::MultiplexedConnection,
    waiting: Waiting,
    tasks: JoinSet<()>,
}

impl Floor {
    pub(crate) async fn start(kind: Kind, nats: &NatsServer, redis: &RedisServer) -> Floor {
        let name = kind.name();
        let connect = async || async_nats::connect(nats.url()).await.unwrap();
        let client = connect().await;
        let context = jetstream::new(client.clone());
        for queue in ["intake", "execute", "result"] {
            let config = stream::Config {
                name: format!("{name}_{queue}"),
                subjects: vec![format!("{name}.{queue}")],
                retention: stream::RetentionPolicy::WorkQueue,
                ..Default::default()
            };
            context.create_stream(config).await.unwrap();
        }
        let logs: &[&str] = if kind == Kind::Duties { &["event", "outcome"] } else { &[] };
        for log in logs {
            let subjects = vec![format!("{name}.{log}.>")];
            let config = stream::Config { name: format!("{name}_{log}"), subjects, ..Default::default() };
            context.create_stream(config).await.unwrap();
        }
        let redis = {
            let client = redis::Client::open(redis.url()).unwrap();
            let info = client.get_connection_info().clone();
            let settings = info.tcp_settings().clone().set_nodelay(true);
            let client = redis::Client::open(info.set_tcp_settings(settings)).unwrap();
            client.get_multiplexed_async_connection().await.unwrap()
        };
        let waiting = Waiting::default();
        let mut tasks = JoinSet::new();
        let coordinator = jetstream::new(connect().await);
        let worker = jetstream::new(connect().await);
        let mut claims = coordinator.client().subscribe(format!("{name}.claim")).await.unwrap();
        let (claimed, scripts) = (coordinator.clone(), redis.clone());
        tasks.spawn(async move {
            while let Some(message) = claims.next().await {
                let (context, redis) = (claimed.clone(), scripts.clone());
                tokio::spawn(async move {
                    let id = String::from_utf8_lossy(&message.payload).into_owned();
                    script(redis, &id).await;
                    context.client().publish(message.reply.unwrap(), "yes".into()).await.unwrap();
                    keep(&context, format!("{name}.event.{id}.root"), "claim", EVENT_BYTES).await;
                });
            }
        });
        tasks.spawn(stage(kind, coordinator.clone(), "intake", Some(redis.clone()), Some("execute")));
        tasks.spawn(stage(kind, worker, "execute", None, Some("result")));
        tasks.spawn(stage(kind, coordinator, "result", Some(redis.clone()), None));
        let mut done = client.subscribe(format!("{name}.outcome.>")).await.unwrap();
        let told = waiting.clone();
        tasks.spawn(async move {
            while let Some(message) = done.next().await {
                let id = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
                told.lock().unwrap().remove(&id).map(|told| told.send(()));
            }
        });
        client.flush().await.unwrap();
        Floor { kind, client, jetstream: context, redis, waiting, tasks }
    }

    async fn job(&self, id: String, first: &'static str) {
        let (tell, told) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id.clone(), tell);
        let subject = format!("{}.{first}", self.kind.name());
        self.jetstream.publish(subject, id.into()).await.unwrap().await.unwrap();
        told.await.unwrap();
    }

    pub(crate) async fn many(&self, jobs: usize, in_flight: usize) -> Duration {
        let began = Instant::now();
        let all = (0..jobs).map(|n| self.job(format!("many-{n}"), "intake"));
        futures_util::stream::iter(all).buffer_unordered(in_flight).count().await;
        began.elapsed()
    }

    pub(crate) async fn one_at_a_time(&self, jobs: usize) -> Latencies {
        let mut latencies = Latencies::default();
        for n in 0..jobs {
            let began = Instant::now();
            self.job(format!("one-{n}"), "intake").await;
            latencies.add(began.elapsed());
        }
        latencies
    }

    /// Measures one submission with `wide` executions and results.
    pub(crate) async fn wide(&self, wide: usize) -> Duration {
        let began = Instant::now();
        self.job("wide".into(), "intake").await;
        let all = (0..wide).map(|n| self.job(format!("wide-{n}"), "execute"));
        futures_util::stream::iter(all).buffer_unordered(wide).count().await;
        began.elapsed()
    }

    pub(crate) async fn chain(&self, long: usize) -> Duration {
        let began = Instant::now();
        for n in 0..long {
            self.job(format!("chain-{n}"), "execute").await;
        }
        began.elapsed()
    }

    /// The least work of a hold and a settlement: a request that runs a script, and a stored
    /// message that runs another.
    pub(crate) async fn pairs(&self, pairs: usize) -> Latencies {
        let mut asked = self.client.subscribe("floor.ask").await.unwrap();
        let (client, redis) = (self.client.clone(), self.redis.clone());
        let server = tokio::spawn(async move {
            while let Some(message) = asked.next().await {
                script(redis.clone(), "ask").await;
                client.publish(message.reply.unwrap(), "yes".into()).await.unwrap();
            }
        });
        let mut latencies = Latencies::default();
        for n in 0..pairs {
            let began = Instant::now();
            self.client.request("floor.ask", "hold".into()).await.unwrap();
            self.job(format!("pair-{n}"), "result").await;
            latencies.add(began.elapsed());
        }
        server.abort();
        latencies
    }

    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn stage(
    kind: Kind,
    context: jetstream::Context,
    from: &'static str,
    redis: Option<redis::aio::MultiplexedConnection>,
    to: Option<&'static str>,
) {
    let name = kind.name();
    let stream = context.get_stream(format!("{name}_{from}")).await.unwrap();
    let config =
        pull::Config { durable_name: Some(from.into()), max_ack_pending: 100_000, ..Default::default() };
    let consumer = stream.create_consumer(config).await.unwrap();
    let messages = consumer.stream().max_messages_per_batch(512).messages().await.unwrap();
    let handle = |message: Result<jetstream::Message, _>| {
        let (context, redis) = (context.clone(), redis.clone());
        async move {
            let message = message.unwrap();
            let id = message.payload.clone();
            let job = String::from_utf8_lossy(&id).into_owned();
            let duties = kind == Kind::Duties;
            if duties && redis.is_none() {
                context.client().request(format!("{name}.claim"), id.clone()).await.unwrap();
            }
            let log = duties && redis.is_some();
            if let Some(redis) = redis {
                script(redis, &job).await;
            }
            let outcome = format!("{name}.outcome.{job}");
            let next = async {
                match to {
                    Some(to) => {
                        drop(context.publish(format!("{name}.{to}"), id).await.unwrap().await.unwrap())
                    }
                    None if duties => keep(&context, outcome, "end", OUTCOME_BYTES).await,
                    None => context.client().publish(outcome, id).await.unwrap(),
                }
            };
            let logged = async {
                if log {
                    keep(&context, format!("{name}.event.{job}.root"), from, EVENT_BYTES).await;
                }
            };
            futures_util::future::join(next, logged).await;
            message.ack().await.unwrap();
        }
    };
    messages.map(handle).buffer_unordered(256).for_each(|()| async {}).await;
}

/// Stores a message under its own id.
async fn keep(context: &jetstream::Context, subject: String, what: &str, bytes: usize) {
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Nats-Msg-Id", format!("{subject}.{what}"));
    let stored = context.publish_with_headers(subject, headers, vec![b'x'; bytes].into()).await;
    stored.unwrap().await.unwrap();
}

async fn script(mut redis: redis::aio::MultiplexedConnection, id: &str) {
    static PREPARED: std::sync::LazyLock<redis::Script> =
        std::sync::LazyLock::new(|| redis::Script::new(SCRIPT));
    let mut call = PREPARED.key(format!("floor:{id}"));
    let _: i64 = call
        .key("floor:timers")
        .key("floor:counter")
        .arg(1)
        .arg(STATE)
        .invoke_async(&mut redis)
        .await
        .unwrap();
}
