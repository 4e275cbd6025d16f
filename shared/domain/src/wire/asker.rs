//! The senders of administrators' requests (S7), and the records of these requests.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The header with the sender's name. It is not verified.
pub const BY_HEADER: &str = "Trellis-By";

/// The header of a worker's asks with the digest of its policy.
pub const POLICY_HEADER: &str = "Trellis-Policy";

/// The sender of an administrator's request (S7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Asker {
    /// The identity of the sender's connection according to the server.
    Server {
        account: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// The name that the client chose for its connection.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// The name that the sender claims. It is not verified.
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

/// The record of an administrator's action, on `agent.audit.<what>`. It concerns agents, schedules,
/// stored graphs, workers, or the policies with which coordinators and workers were started.
/// Requests about a run are events of that run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AdminRecord {
    pub at: Timestamp,
    /// The action, such as `apply_agents`.
    pub asked: String,
    /// The names of the affected agents, schedules, graphs or workers.
    pub names: Vec<String>,
    /// The sender. Absent if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Asker>,
    /// The SHA-256 of the request as it was sent, in hexadecimal digits. It identifies the content
    /// that was stored under these names. Absent if the record has no request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}
