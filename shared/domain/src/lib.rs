//! The vocabulary of Trellis: ids, money, limits, agent profiles, task graphs, schedules and
//! messages. A value is checked once, when it is read, and is valid afterwards. This crate does no
//! I/O, reads no clock and draws no random numbers. It does not depend on how a trace is decided,
//! stored or run.

pub mod agent;
pub mod agent_policy;
pub mod check;
pub mod decode;
pub mod depth;
pub mod digest;
pub mod graph;
pub mod id;
pub mod json;
pub mod json_schema;
pub mod labels;
pub mod ladder;
pub mod limits;
pub mod money;
pub mod problem;
pub mod sandbox;
pub mod schedule;
pub mod schema;
pub mod secrets;
pub mod signature;
pub mod source_positions;
pub mod span;
pub mod subject;
pub mod terms;

pub mod time;
pub mod tls;
pub mod tool;
pub mod usage;
pub mod wire;
pub mod wording;

pub use agent::AgentProfile;
pub use id::{
    AgentId, CallId, ChildId, ContextKey, GraphName, LeaseToken, PoolName, ScheduleName, StepId, StepPath,
    ThreadId, TraceId, WorkerId,
};
pub use json::Json;
pub use labels::Labels;
pub use limits::Limits;
pub use money::{Amount, Dimension, Tokens, Usd};
pub use problem::{Problem, Problems};
pub use secrets::Secrets;
pub use time::Timestamp;
