//! What an operator tells a worker in a file: where models are and what they cost, which servers give
//! tools, where workspaces go. Keys are named by environment variables, never written here.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use shared::{Problems, agent::Layer, id::ModelName};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where workspaces are made; a directory of its own in the system's temporary one if absent.
    pub workspaces: Option<PathBuf>,
    /// Where models are, by the name that stands before the slash of a model: `local/smollm2` is the
    /// model `smollm2` of the provider `local`.
    pub providers: BTreeMap<String, Provider>,
    /// Prices that are not in the table, or other than there, by the whole name of the model.
    pub prices: BTreeMap<ModelName, PriceEntry>,
    /// Servers of the Model Context Protocol, by the name that stands before the colon of their tools.
    pub mcp: BTreeMap<String, McpServer>,
    pub http: Http,
    pub sandbox: SandboxSettings,
}

/// The protocol a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// OpenAI's chat completions, and all that speak like it: vLLM, llama.cpp, LiteLLM.
    Openai,
    Anthropic,
    Gemini,
    Ollama,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub protocol: Protocol,
    /// As its documentation gives it, such as `http://127.0.0.1:8080/v1/`; the provider's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// Whose prices in the table its models have, such as `openai` for a proxy before it. A provider with
    /// a `base_url` has no prices but those in `prices` if this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced_as: Option<String>,
}

/// What a model costs, in dollars for a million tokens, as decimal numbers: `0.15` or `"0.15"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceEntry {
    pub input: shared::Usd,
    /// Tokens read from a cache; as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<shared::Usd>,
    /// Tokens written to a cache; as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<shared::Usd>,
    pub output: shared::Usd,
}

/// A server of the Model Context Protocol: a program, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Its whole environment, besides a plain `PATH` and `HOME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names to be taken from the worker's own environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    /// Where it answers, for one that speaks streamable HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable that holds its bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// How long one call may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// What `http.get` may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Hosts, with a port if it is not the usual one; `*.example.org` for all beneath. None: no tool.
    pub allow: Vec<String>,
    /// How much of an answer is read.
    pub max_bytes: Option<u64>,
}

/// How programs are run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSettings {
    /// Layers to leave out, for kernels where one misbehaves. They count as missing: a profile that
    /// requires one is not run here.
    pub without: BTreeSet<Layer>,
}

impl Settings {
    /// What fits the types but makes no sense, all at once.
    pub fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        for (name, server) in &self.mcp {
            if server.command.is_empty() == server.url.is_none() {
                problems.add(format!("mcp.{name}"), "a server is either a `command` or a `url`", None);
            }
            // It stands before the colon of its tools, and `agent:spawn` is ours (I2).
            if name == "agent" || shared::id::AgentId::new(name).is_err() {
                let hint = "letters, digits, `_` and `-`, and not `agent`";
                problems.add(format!("mcp.{name}"), "a server can't have this name", Some(hint.into()));
            }
        }
        problems.or(())
    }
}
