//! The senders of administrators' requests (S7), and the records of these requests.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The header with the sender's name. It is not verified.
pub const BY_HEADER: &str = "Trellis-By";

/// The header of a worker's asks with the digest of its policy.
pub const POLICY_HEADER: &str = "Trellis-Policy";

/// Who asked for what only an administrator may (S7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Asker {
    /// As the server knows the connection.
    Server {
        account: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// The name that the connection gave itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// As the sender says of itself: nobody has checked it.
    Claimed(String),
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asker::Server { account, user, name } => {
                let who = user.as_deref().or(name.as_deref()).unwrap_or("somebody");
                write!(f, "{who} of the account {account}")
            }
            Asker::Claimed(by) => write!(f, "{by} (claimed)"),
        }
    }
}

/// What an administrator did, on `agent.audit.<what>`: agents, schedules, kept graphs, workers, and the policies that coordinators
/// and workers were started with. What is asked for about a run is an event of that run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AdminRecord {
    pub at: Timestamp,
    /// Such as `apply_agents`.
    pub asked: String,
    /// The names of what it is about.
    pub names: Vec<String>,
    /// Absent if nothing tells who it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Asker>,
    /// The SHA-256 of the request as it was sent, in hexadecimal digits: which content was put under these names. Absent for
    /// what nobody asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}
