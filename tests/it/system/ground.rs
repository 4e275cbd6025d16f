//! A bus and a store that outlive the processes on them: in memory, or on servers of their own.

use coordinator::store::{self, Store};
use serde_json::Value;
use shared::{
    TraceId,
    bus::{Bus, Connect, Headers, Memory, Nats},
    subject::Subject,
    wire::QueryAnswer,
};
use trellis_tests::{
    cluster::{Client, Cluster, SOON, name},
    servers::{NatsServer, RedisServer},
};

pub(super) struct Ground {
    pub(super) bus: Bus,
    pub(super) store: Store,
    _servers: Option<(NatsServer, RedisServer)>,
}

impl Ground {
    pub(super) fn in_memory() -> Self {
        Self::on(Memory::new(Default::default()))
    }

    pub(super) fn on(bus: Memory) -> Self {
        let store = Store::Memory(store::Memory::new(config().topology.partitions));
        Ground { bus: Bus::Memory(bus), store, _servers: None }
    }

    pub(super) async fn on_servers() -> Self {
        let (nats, redis) = (NatsServer::start(), RedisServer::start());
        let to = Connect { url: nats.url(), creds: None, namespace: Default::default(), name: "test".into() };
        let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
        let store =
            store::Redis::connect(&redis.url(), Default::default(), config().topology.partitions).await;
        Ground { bus, store: Store::Redis(store.unwrap()), _servers: Some((nats, redis)) }
    }

    /// A coordinator and a worker.
    pub(super) fn start(&self, config: coordinator::Config) -> Cluster {
        let worker = worker::Config::new(name("worker"));
        Cluster::start(self.bus.clone(), self.store.clone(), vec![config], vec![worker])
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
    let payload = serde_json::to_vec(&query).unwrap();
    let answer = client.bus.request(&Subject::Query, &Headers::new(), payload.into(), SOON).await.unwrap();
    serde_json::from_slice(&answer).unwrap()
}
