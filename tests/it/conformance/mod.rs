//! Tests that run on all implementations of the bus and the store: in memory, on a disk and on real
//! servers.

mod authentic;
mod bus_contract;
mod bus_nats;
mod disk_faults;
mod index;
pub(crate) mod logins;
mod objects_of_others;
mod redis_faults;
mod redis_kinds;
mod reopened;
mod store;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bus::{Bus, Connect, Delivery, Memory, Nats, Outgoing, Topology};
use bytes::Bytes;
use disk::Disk;
use domain::{
    TraceId,
    span::Headers,
    subject::{Namespace, Subject},
};
use trellis_tests::{cluster::SOON, directory::Directory, servers::NatsServer};

fn topology() -> Topology {
    // NATS reserves these sizes: many deployments must fit on one server.
    Topology { partitions: 4, max_queue_bytes: 16 << 20, max_log_bytes: 16 << 20, ..Topology::default() }
}

/// A namespace that no other test uses.
fn namespace() -> Namespace {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("t{}-{number}", std::process::id()).parse().unwrap()
}

async fn memory() -> Bus {
    let bus = Bus::Memory(Memory::new(namespace()));
    bus.set_up(&topology()).await.unwrap();
    bus
}

/// A bus in a fresh directory.
async fn disk() -> (Directory, Bus) {
    let directory = Directory::fresh();
    let bus = bus_in(&directory).await;
    (directory, bus)
}

async fn bus_in(directory: &Directory) -> Bus {
    bus_of(&directory.open()).await
}

async fn bus_of(disk: &Disk) -> Bus {
    let bus = Bus::Disk(bus::Disk::open(disk, Default::default()).await.unwrap());
    bus.set_up(&topology()).await.unwrap();
    bus
}

async fn connected(server: &NatsServer, namespace: Namespace) -> Bus {
    let to = Connect::new(server.url(), namespace, "conformance");
    Bus::Nats(Nats::connect(&to).await.unwrap())
}

async fn nats() -> (Arc<NatsServer>, Bus) {
    let server = NatsServer::shared();
    let bus = connected(&server, namespace()).await;
    bus.set_up(&topology()).await.unwrap();
    (server, bus)
}

fn trace(number: u128) -> TraceId {
    TraceId::from_u128(number).unwrap()
}

fn event(number: u128) -> Subject {
    Subject::Event(trace(number), "root".parse().unwrap())
}

fn message(subject: Subject, text: &str) -> Outgoing {
    let payload = Bytes::copy_from_slice(text.as_bytes());
    Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last: None }
}

fn identified(subject: Subject, text: &str) -> Outgoing {
    Outgoing { id: Some(text.into()), ..message(subject, text) }
}

fn text(payload: &Bytes) -> String {
    String::from_utf8(payload.to_vec()).unwrap()
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("the expected event did not arrive in time")
}

/// Asserts that no message is delivered for a while.
async fn quiet(what: impl Future<Output = Delivery>) {
    let came = tokio::time::timeout(Duration::from_millis(700), what).await;
    assert!(came.is_err(), "{:?}", came.map(|delivery| text(&delivery.payload)));
}
