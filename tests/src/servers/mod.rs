//! Real servers for tests, each with its own directory and port on the loopback, killed and swept away
//! when dropped. A test that needs one fails without it: `scripts/servers` brings them.

mod aimock;
mod llama;
mod model;
mod nats;
mod process;
mod proxy;
mod redis;

pub use aimock::{AiMock, Billed};
pub use llama::Llama;
pub use model::{Gate, INPUT_NANOS, Line, ModelServer, OUTPUT_NANOS, Prompt, Reply};
pub use nats::NatsServer;
pub use process::{free_port, installed};
pub use proxy::Proxy;
pub use redis::RedisServer;
