//! The vocabulary of Trellis: ids, money, limits, agent profiles, task graphs, messages, and the bus that
//! carries them. A value here is checked once, when it is read, and is valid afterwards. Nothing here knows
//! how a trace is decided, stored or run.

pub mod agent;
pub mod agent_policy;
pub mod bus;
pub mod check;
pub mod clock;
pub mod crash;
pub mod decode;
pub mod depth;
pub mod digest;
pub mod disk;
pub mod graph;
pub mod health;
pub mod id;
pub mod internet;
pub mod journal_text;
pub mod json;
pub mod json_schema;
pub mod keys;
pub mod labels;
pub mod ladder;
pub mod limits;
pub mod lines;
pub mod link;
pub mod money;
pub mod problem;
pub mod prompt_text;
pub mod random;
pub mod role;
pub mod sandbox;
pub mod schedule;
pub mod schema;
pub mod secrets;
pub mod set_limit;
pub mod signature;
pub mod subject;
pub mod telemetry;
pub mod terms;
pub mod text;
pub mod time;
pub mod tls;
pub mod tool;
pub mod usage;
pub mod webhook;
pub mod when;
pub mod wire;

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
