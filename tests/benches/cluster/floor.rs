//! The floor: the least that any such system must do for a job. A submission, an execution and a result are JetStream
//! messages, stored and acknowledged; two small scripts run in Redis; a core NATS message tells the end. No budgets, no
//! state machine, no events, no crash safety.

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

pub(crate) struct Floor {
    client: async_nats::Client,
    jetstream: jetstream::Context,
    redis: redis::aio::MultiplexedConnection,
    waiting: Waiting,
    tasks: JoinSet<()>,
}

impl Floor {
    pub(crate) async fn start(nats: &NatsServer, redis: &RedisServer) -> Floor {
        let connect = async || async_nats::connect(nats.url()).await.unwrap();
        let client = connect().await;
        let context = jetstream::new(client.clone());
        for name in ["intake", "execute", "result"] {
            let config = stream::Config {
                name: format!("floor_{name}"),
                subjects: vec![format!("floor.{name}")],
                retention: stream::RetentionPolicy::WorkQueue,
                ..Default::default()
            };
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
        tasks.spawn(stage(coordinator.clone(), "intake", Some(redis.clone()), Some("execute")));
        tasks.spawn(stage(worker, "execute", None, Some("result")));
        tasks.spawn(stage(coordinator, "result", Some(redis.clone()), None));
        let mut done = client.subscribe("floor.done").await.unwrap();
        let told = waiting.clone();
        tasks.spawn(async move {
            while let Some(message) = done.next().await {
                let id = String::from_utf8_lossy(&message.payload).into_owned();
                told.lock().unwrap().remove(&id).map(|told| told.send(()));
            }
        });
        client.flush().await.unwrap();
        Floor { client, jetstream: context, redis, waiting, tasks }
    }

    async fn job(&self, id: String, first: &'static str) {
        let (tell, told) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id.clone(), tell);
        let subject = format!("floor.{first}");
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

    /// One submission, a thousand executions, a thousand results.
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

    /// The least that a hold and a settlement need: a request that runs a script, and a stored message that runs another.
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
    context: jetstream::Context,
    from: &'static str,
    redis: Option<redis::aio::MultiplexedConnection>,
    to: Option<&'static str>,
) {
    let stream = context.get_stream(format!("floor_{from}")).await.unwrap();
    let config =
        pull::Config { durable_name: Some(from.into()), max_ack_pending: 100_000, ..Default::default() };
    let consumer = stream.create_consumer(config).await.unwrap();
    let messages = consumer.stream().max_messages_per_batch(512).messages().await.unwrap();
    let handle = |message: Result<jetstream::Message, _>| {
        let (context, redis) = (context.clone(), redis.clone());
        async move {
            let message = message.unwrap();
            let id = message.payload.clone();
            if let Some(redis) = redis {
                script(redis, &String::from_utf8_lossy(&id)).await;
            }
            match to {
                Some(to) => drop(context.publish(format!("floor.{to}"), id).await.unwrap().await.unwrap()),
                None => context.client().publish("floor.done", id).await.unwrap(),
            }
            message.ack().await.unwrap();
        }
    };
    messages.map(handle).buffer_unordered(256).for_each(|()| async {}).await;
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
