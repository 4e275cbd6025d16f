//! The bus: durable publishing, work queues, request and reply, broadcast, logs that are read back,
//! and objects. One interface over two real implementations, NATS and memory; only this module knows
//! NATS. It carries bytes and decides nothing.

mod error;
mod fill;
mod handle;
mod memory;
mod message;
mod nats;
mod stream;
mod topology;

pub use error::{Error, PublishError, RequestError};
pub use fill::{Fill, Storage};
pub use handle::Bus;
pub use memory::Memory;
pub use message::{From, Head, Headers, Message, Outgoing, Position, Published, Service, Stored};
pub use nats::{Connect, Nats};
pub use stream::{Consumption, Delivery, Follow, Sent, Subscription};
pub use topology::{Consumer, Stream, Topology};
