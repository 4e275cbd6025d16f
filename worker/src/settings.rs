//! The settings file of a worker: addresses and prices of models, MCP servers, the directory of workspaces. Keys are
//! given as names of environment variables, never as values.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use shared::{Problems, agent::Layer, id::ModelName};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The directory for workspaces; if absent, a directory of this user in the system's temporary directory.
    pub workspaces: Option<PathBuf>,
    /// Providers of models, by the name before the slash of a model: `local/smollm2` is the model `smollm2` of the
    /// provider `local`.
    pub providers: BTreeMap<String, Provider>,
    /// Prices that are missing in the price table or differ from it, by the full name of the model.
    pub prices: BTreeMap<ModelName, PriceEntry>,
    /// What is known of models besides their prices, by the full name of the model.
    pub models: BTreeMap<ModelName, ModelEntry>,
    /// Servers of the Model Context Protocol, by the name before the colon of their tools.
    pub mcp: BTreeMap<String, McpServer>,
    pub http: Http,
    pub sandbox: SandboxSettings,
}

/// The protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// OpenAI's chat completions, also used by vLLM, llama.cpp and LiteLLM.
    Openai,
    Anthropic,
    Gemini,
    Ollama,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub protocol: Protocol,
    /// Its address, such as `http://127.0.0.1:8080/v1/`; the provider's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The environment variable that holds the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// The provider in the price table whose prices its models have, such as `openai` for a proxy in front of it. If
    /// absent, a provider with a `base_url` has only the prices in `prices`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced_as: Option<String>,
}

/// What a model costs, in dollars per million tokens, as decimal numbers: `0.15` or `"0.15"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceEntry {
    pub input: shared::Usd,
    /// For tokens read from a cache; the same as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<shared::Usd>,
    /// For tokens written to a cache; the same as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<shared::Usd>,
    pub output: shared::Usd,
}

/// A model's tokenizer and window, where they are not known or differ from what is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelEntry {
    /// Counts the tokens of what is sent; without one, a token is at least a byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Tokenizer>,
    /// The most tokens of a prompt and its answer together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<shared::Tokens>,
}

/// A tokenizer that the worker has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum Tokenizer {
    /// Of gpt-4o, gpt-4.1, gpt-5 and the models named o1 to o4.
    #[serde(rename = "o200k_base")]
    O200kBase,
    /// Of gpt-4 and gpt-3.5-turbo.
    #[serde(rename = "cl100k_base")]
    Cl100kBase,
}

/// A server of the Model Context Protocol: a program, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Its environment. Besides this it gets only a default `PATH` and `HOME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables that are copied from the worker's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    /// Its address, for a server with the streamable HTTP transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable that holds its bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// The limit for one call, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The settings of the tool `http.get`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Allowed hosts, with a port unless it is the default; `*.example.org` for all subdomains. If empty, the tool is not
    /// offered.
    pub allow: Vec<String>,
    /// The most bytes of an answer that are read.
    pub max_bytes: Option<u64>,
}

/// The settings of the sandbox around programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSettings {
    /// Layers that are not applied, for kernels on which one misbehaves. They count as missing: an agent whose profile
    /// requires one does not run on this worker.
    pub without: BTreeSet<Layer>,
}

impl Settings {
    /// Checks what the types can't express, and reports every problem at once.
    pub fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        for (name, server) in &self.mcp {
            if server.command.is_empty() == server.url.is_none() {
                problems.add(format!("mcp.{name}"), "a server needs either a `command` or a `url`", None);
            }
            // The name precedes the colon of its tools, and `agent:spawn` is reserved (I2).
            if name == "agent" || shared::id::AgentId::new(name).is_err() {
                let hint = "use letters, digits, `_` and `-`; `agent` is reserved";
                problems.add(format!("mcp.{name}"), "not a valid name of a server", Some(hint.into()));
            }
        }
        problems.or(())
    }
}
