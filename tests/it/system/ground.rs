//! A bus and a store that outlive the processes on them: in memory, or on separate servers.

use bus::{Bus, Connect, Memory, Nats};
use coordinator::store::{self, Store};
use domain::{TraceId, wire::QueryAnswer};
use serde_json::Value;
use trellis_tests::{
    cluster::{Client, Cluster, name},
    servers::{NatsServer, RedisServer},
};

pub(super) struct Ground {
    pub(super) bus: Bus,
    pub(super) store: Store,
    servers: Option<(NatsServer, RedisServer)>,
}

impl Ground {
    pub(super) fn in_memory() -> Self {
        Self::on(Memory::new(Default::default()))
    }

    pub(super) fn on(bus: Memory) -> Self {
        let store = Store::Memory(store::Memory::new(config().topology.partitions));
        Ground { bus: Bus::Memory(bus), store, servers: None }
    }

    pub(super) async fn on_servers() -> Self {
        let (nats, redis) = (NatsServer::start(), RedisServer::start());
        let to = Connect::new(nats.url(), Default::default(), "test");
        let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
        let store =
            store::Redis::connect(&redis.url(), Default::default(), config().topology.partitions).await;
        Ground { bus, store: Store::Redis(store.unwrap()), servers: Some((nats, redis)) }
    }

    /// A coordinator and a worker.
    pub(super) fn start(&self, config: coordinator::Config) -> Cluster {
        let worker = worker::Config::new(name("worker"));
        Cluster::start(self.bus.clone(), self.store.clone(), vec![config], vec![worker])
    }

    /// The address of the ground's own NATS server.
    pub(super) fn nats_url(&self) -> String {
        self.servers.as_ref().expect("the ground is on servers").0.url()
    }

    /// Puts a run at the beginning of the list of ended runs in the ground's own Redis.
    pub(super) async fn list_as_ended(&self, trace: TraceId) {
        for key in self.ended_lists(trace).await {
            let mut redis = self.redis().await;
            let _: u64 = redis::cmd("ZADD")
                .arg(key)
                .arg(1)
                .arg(trace.to_string())
                .query_async(&mut redis)
                .await
                .unwrap();
        }
    }

    /// The time at which a run ended, as that list records it.
    pub(super) async fn ended_score(&self, trace: TraceId) -> u64 {
        let mut found = 0;
        for key in self.ended_lists(trace).await {
            let mut redis = self.redis().await;
            let score: Option<u64> =
                redis::cmd("ZSCORE").arg(key).arg(trace.to_string()).query_async(&mut redis).await.unwrap();
            found = found.max(score.unwrap_or_default());
        }
        found
    }

    /// Sends a command to the ground's own Redis; `KEY` is replaced by the key of a run.
    pub(super) async fn tell_redis(&self, run: TraceId, words: &[&str]) {
        let mut redis = self.redis().await;
        let found: Vec<String> =
            redis::cmd("KEYS").arg(format!("*trace:{run}")).query_async(&mut redis).await.unwrap();
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(if *word == "KEY" { found[0].as_str() } else { word });
        }
        let _: redis::Value = command.query_async(&mut redis).await.unwrap();
    }

    async fn redis(&self) -> redis::aio::MultiplexedConnection {
        let url = self.servers.as_ref().expect("the ground is on servers").1.url();
        redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
    }

    /// The lists of ended runs of the trace's partition.
    async fn ended_lists(&self, trace: TraceId) -> Vec<String> {
        let mut redis = self.redis().await;
        let keys: Vec<String> =
            redis::cmd("KEYS").arg(format!("*trace:{trace}")).query_async(&mut redis).await.unwrap();
        keys.iter().map(|key| key.replace(&format!("trace:{trace}"), "ended")).collect()
    }

    pub(super) async fn has(&self, trace: TraceId) -> bool {
        self.store.versions(&[trace]).await.unwrap()[0] > 0
    }
}

pub(super) fn config() -> coordinator::Config {
    let mut config = coordinator::Config::new(name("coordinator"));
    // NATS reserves disk space for every stream.
    config.topology.max_log_bytes = 64 << 20;
    config.topology.max_queue_bytes = 64 << 20;
    config
}

pub(super) async fn query(client: &Client, query: Value) -> QueryAnswer {
    client.query(query).await
}
