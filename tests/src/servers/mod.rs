//! Real servers for tests, each with its own directory and loopback port. A server is killed and
//! its files are deleted when it is dropped. `scripts/servers` installs them; without an installed
//! server, its tests fail.

mod aimock;
mod collector;
mod disk;
mod fuzzed;
mod hostile;
mod llama;
mod model;
mod nats;
mod process;
mod proxy;
mod redis;
mod rotel;
mod trellis;

pub use aimock::{AiMock, Billed};
pub use collector::{Collector, Received, check_tree, drawn, exporting_to};
pub use disk::Disk;
pub use fuzzed::{FuzzedTools, Said, TOOL, Then, mutated};
pub use hostile::{Attack, HostileServer};
pub use llama::Llama;
pub use model::{Gate, INPUT_NANOS, Line, ModelServer, OUTPUT_NANOS, Prompt, Reply, UsageForm};
pub use nats::NatsServer;
pub use process::{Process, free_port, installed, node};
pub use proxy::{Proxy, Way};
pub use redis::RedisServer;
pub use rotel::Rotel;
pub use trellis::Trellis;
