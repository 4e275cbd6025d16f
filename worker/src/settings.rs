//! The settings file of a worker: addresses and prices of models, MCP servers, the directory of workspaces. Keys are
//! given as names of environment variables, never as values.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use domain::{
    Problems,
    agent::{Layer, Resources},
    id::{ModelName, SecretName},
    tool,
};
use serde::{Deserialize, Serialize};

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
    /// Tokenizers and windows of models, by the full name of the model.
    pub models: BTreeMap<ModelName, ModelEntry>,
    /// Servers of the Model Context Protocol, by the name before the colon of their tools.
    pub mcp: BTreeMap<String, McpServer>,
    pub http: Http,
    pub sandbox: SandboxSettings,
    /// The secrets that agents may name (S8), by the name that they use.
    pub secrets: BTreeMap<SecretName, Secret>,
    /// If true, the trace of a call is never sent to model providers, tools and programs. If false, it
    /// is sent if the run is exported.
    pub hide_traceparent: bool,
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

impl Protocol {
    /// The variable with the key of the provider's own service.
    pub(crate) fn key_variable(self) -> Option<&'static str> {
        match self {
            Protocol::Openai => Some("OPENAI_API_KEY"),
            Protocol::Anthropic => Some("ANTHROPIC_API_KEY"),
            Protocol::Gemini => Some("GEMINI_API_KEY"),
            Protocol::Ollama => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    pub protocol: Protocol,
    /// Its address, such as `http://127.0.0.1:8080/v1/`; the provider's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The environment variable that contains the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// The provider in the price table whose prices apply, such as `openai` for a proxy in front of it.
    /// If absent, only the prices in `prices` apply to a provider with a `base_url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced_as: Option<String>,
}

/// The prices of a model in dollars per million tokens, as decimal numbers: `0.15` or `"0.15"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceEntry {
    pub input: domain::Usd,
    /// For tokens read from a cache; the same as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<domain::Usd>,
    /// For tokens written to a cache; the same as `input` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<domain::Usd>,
    pub output: domain::Usd,
}

/// A model's tokenizer and window, if Trellis does not know them or has other values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelEntry {
    /// Counts the tokens of the texts that are sent; without a tokenizer, a token is at least a byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Tokenizer>,
    /// The most tokens of a prompt and its answer together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<domain::Tokens>,
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
    /// Its environment. Besides this it gets only a default `PATH`, `HOME`, `TMPDIR` and `LANG`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables that are copied from the worker's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    /// Directories and files that its program may read besides the system's own, such as its installation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// Directories that its program may change, in addition to its `HOME`. The program has its own
    /// `HOME`, which is emptied at each start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// If true, its program may use the network.
    #[serde(default)]
    pub network: bool,
    /// Layers of the sandbox that its program needs, in addition to those that every program needs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub requires: BTreeSet<Layer>,
    /// Limits on its program's use of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Its address, for a server with the streamable HTTP transport.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The environment variable that contains its bearer token.
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
    /// Layers that are not applied, for kernels on which a layer misbehaves. They are reported as
    /// missing: an agent whose profile requires one does not run on this worker.
    pub without: BTreeSet<Layer>,
    /// A cgroup of version 2, beneath which the worker creates one for each program. It must have no
    /// processes itself, and the worker's user must own it. If absent, the worker's own cgroup is used,
    /// if it is delegated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
}

/// The place of a secret's value, and the agents, tools and programs that may have it; by default none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Secret {
    /// The environment variable that contains the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<String>,
    /// The file that contains the value; spaces and line feeds around the value are ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The agents that may have it: names, or beginnings of names followed by `*`.
    pub agents: Vec<String>,
    /// The tools that may be sent it: `http.get`, `server:tool`, or `server:*`.
    pub tools: Vec<String>,
    /// If true, programs of these agents get it as an environment variable with its name.
    pub programs: bool,
    /// The hosts to which `http.get` may send it, as in `http.allow`. Without a port: only by https.
    pub hosts: Vec<String>,
}

impl Secret {
    fn check(&self, name: &SecretName, problems: &mut Problems) {
        let mut add = |field: &str, message: String, hint: &str| {
            problems.add(format!("secrets.{name}{field}"), message, Some(hint.into()));
        };
        if self.env.is_some() == self.file.is_some() {
            add(
                "",
                "a secret needs either `env` or `file`".into(),
                "name the place of its value, never the value itself",
            );
        }
        for (i, pattern) in self.agents.iter().enumerate() {
            if !is_pattern(pattern) {
                let hint = "write the name of an agent, `beginning-*`, or `*`";
                add(&format!(".agents[{i}]"), format!("`{pattern}` is not a pattern of agents"), hint);
            }
        }
        for (i, pattern) in self.tools.iter().enumerate() {
            let is_served = pattern.split_once(':').is_some_and(|(server, tool)| {
                !server.is_empty() && !server.contains('*') && !tool.is_empty()
            });
            if pattern != tool::HTTP_GET && !(is_served && is_pattern(pattern)) {
                let hint = "only `http.get` and tools of MCP servers, `server:tool` or `server:*`, can be sent a secret";
                add(&format!(".tools[{i}]"), format!("`{pattern}` can't be sent a secret"), hint);
            }
        }
        let gets = self.tools.iter().any(|pattern| pattern == tool::HTTP_GET);
        if gets && self.hosts.is_empty() {
            add(
                ".hosts",
                "`http.get` has no host to send it to".into(),
                "name the hosts that may receive it",
            );
        }
        if !gets && !self.hosts.is_empty() {
            add(".hosts", "no tool uses these hosts".into(), "add `http.get` to `tools`");
        }
        if self.programs && ["PATH", "HOME", "TMPDIR", "LANG"].contains(&name.as_str()) {
            add(
                ".programs",
                format!("a program already has a `{name}` in its environment"),
                "give it another name",
            );
        }
    }
}

/// Returns true if the text is a name, whose end may be a `*`.
fn is_pattern(text: &str) -> bool {
    !text.is_empty() && !text.trim_end_matches('*').contains('*') && !text.ends_with("**")
}

/// The endings of the names of secrets, among variables of any kind.
const SECRET_ENDS: [&str; 4] = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"];

impl Settings {
    /// The variables with the worker's own keys: those of providers, and the tokens of tool
    /// servers.
    pub(crate) fn key_variables(&self) -> BTreeSet<&str> {
        let built_in = [Protocol::Openai, Protocol::Anthropic, Protocol::Gemini];
        let mut all: BTreeSet<&str> = built_in.into_iter().filter_map(Protocol::key_variable).collect();
        all.extend(self.providers.values().filter_map(|provider| provider.key_env.as_deref()));
        all.extend(self.mcp.values().filter_map(|server| server.token_env.as_deref()));
        all
    }

    /// The variables that contain secrets: the worker's own keys, those of contexts, and variables
    /// for tool servers whose names end like those of secrets. Only the worker reads them.
    pub(crate) fn secret_variables(&self) -> BTreeSet<&str> {
        let mut all = self.key_variables();
        all.extend(self.secrets.values().filter_map(|secret| secret.env.as_deref()));
        let copied = self.mcp.values().flat_map(|server| server.env_from.iter().map(String::as_str));
        all.extend(copied.filter(|name| SECRET_ENDS.iter().any(|end| name.ends_with(end))));
        all
    }

    /// Checks the rules that the types can't express, and reports every problem at once.
    pub fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        for (name, server) in &self.mcp {
            if server.command.is_empty() == server.url.is_none() {
                problems.add(format!("mcp.{name}"), "a server needs either a `command` or a `url`", None);
            }
            let confined = !server.reads.is_empty() || !server.writes.is_empty() || server.network;
            if server.url.is_some() && (confined || !server.requires.is_empty() || server.resources.is_some())
            {
                let hint = "remove `reads`, `writes`, `network`, `requires` and `resources`";
                let message = "a server with a `url` runs elsewhere, so no sandbox confines it";
                problems.add(format!("mcp.{name}"), message, Some(hint.into()));
            }
            // The name precedes the colon of its tools, and `agent:spawn` is reserved (I2).
            if name == "agent" || domain::id::AgentId::new(name).is_err() {
                let hint = "use letters, digits, `_` and `-`; `agent` is reserved";
                problems.add(format!("mcp.{name}"), "not a valid name of a server", Some(hint.into()));
            }
        }
        self.secrets.iter().for_each(|(name, secret)| secret.check(name, &mut problems));
        problems.or(())
    }
}
