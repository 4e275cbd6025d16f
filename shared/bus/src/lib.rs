//! The bus: durable publishing, work queues, request and reply, broadcast, logs that can be read
//! back, and objects.
//!
//! Peers of a cluster (coordinators, workers, gateways) hold a [`Bus`], one interface over three
//! real implementations: NATS, memory and disk. Clients hold a [`ClientBus`]: a [`Bus`], or HTTP to
//! a gateway. Only this crate knows NATS. It carries bytes and decides nothing.

mod authentic;
mod client_bus;
mod disk;
mod error;
mod fill;
mod handle;
pub mod http;
mod journals;
pub mod keys;
mod memory;
mod message;
mod nats;
mod replayed;
pub mod role;
mod signed_log;
mod stream;
mod topology;

pub use client_bus::ClientBus;
pub use disk::Disk;
pub use error::{Action, Denied, Error, PublishError, RequestError};
pub use fill::{Backlog, Fill, Storage};
pub use handle::Bus;
pub use http::Http;
pub use journals::{FirstWriters, of_first_writers};
pub use memory::Memory;
pub(crate) use message::ABOUT_US;
pub use message::{
    From, Head, Identity, Message, Outgoing, Position, PublishReceipt, REQUEST_INFO, Service, StoredMessage,
};
pub use nats::{Connect, Login, Nats};
pub use stream::{Consumption, Delivery, Follow, MessagesInFlight, Subscription};
pub use topology::{Consumer, ExistingLimits, GRAPH_VERSIONS_KEPT, PROFILE_VERSIONS_KEPT, Stream, Topology};
