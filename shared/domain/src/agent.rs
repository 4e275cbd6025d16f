//! Agent profiles: the kind, model, tools and limits of the agent that runs under a name. The
//! operator applies profiles; a trace keeps a resolved copy of each profile it uses.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    check::{self, Check},
    id::{AgentId, ModelName, PoolName, ToolName},
    ladder::{self, Rung},
    limits::{Ceilings, LimitOverrides, check_ceilings},
    money::{Tokens, Usd},
    problem::Problems,
    terms::{Hitl, OnExhausted},
    tool,
    usage::Usage,
};

pub use crate::sandbox::{Layer, Resources};

/// The agents that are built into every worker.
pub const BUILTINS: [&str; 10] =
    ["echo", "sleep", "fail", "spend", "tree", "crash", "ask", "share", "chain", "panic"];

/// The kind of an agent.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// Part of the worker; needs no model. `builtin` is its name.
    Builtin,
    /// A loop of model and tool calls. `model` names its model.
    Llm,
    /// Any program, in a sandbox. `command` is its argument list.
    Command,
}

/// The treatment of the oldest exchanges when the window is full (W7).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// A summary replaces them. The fallback model writes it if there is one, else the model. The
    /// budget pays for it; without money left, the exchanges are dropped.
    #[default]
    Summary,
    /// They are dropped, and the prompt says so.
    Drop,
}

impl Compaction {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    fn is_default(&self) -> bool {
        *self == Compaction::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentProfile {
    pub agent_id: AgentId,
    pub kind: AgentKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtin: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The cheaper model for a call when a hold for `model` is denied (B5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<ModelName>,
    /// The window of `model`, in tokens (W1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<Tokens>,
    /// The treatment of the oldest exchanges when the window is full (W7).
    #[serde(default, skip_serializing_if = "Compaction::is_default")]
    pub compaction: Compaction,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The tools that the agent may call. Absent: all tools of its parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<ToolName>>,
    /// The models that its descendants may use. Absent or empty: all (P).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub allowed_models: BTreeSet<ModelName>,
    /// Checks that run before and after each paid call and tool call, in this order (B16).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// The agent may read every key of the shared store, not only its declared inputs (C).
    #[serde(default)]
    pub reads_all_context: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Tokens>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing_reserve_usd: Option<Usd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exhausted: Option<OnExhausted>,
    /// Actions at fractions of the agent's ceiling (B21).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_budget: Vec<Rung>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hitl: Option<Hitl>,
    /// The timeout from the start of the first attempt. 0: no timeout of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub limits: LimitOverrides,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The pools whose agents may spawn this agent. Empty: all (S6).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub spawned_from: BTreeSet<PoolName>,
    /// The answers of the model `scripted`, turn by turn: for demonstrations and tests, without an
    /// API key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub script: Vec<Turn>,
    /// The whole environment of a program besides `HOME`, `TMPDIR` and a plain `PATH`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables to copy from the worker's own environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    /// True if a program may use the network.
    #[serde(default)]
    pub network: bool,
    /// The layers of the sandbox that a program requires. A worker that lacks one of them does not
    /// run the program.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub requires: BTreeSet<Layer>,
    /// Limits on a program's use of the machine.
    #[serde(default, skip_serializing_if = "Resources::is_default")]
    pub resources: Resources,
    /// Directories and files that a program may read besides the system's, such as its
    /// installation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
}

/// One turn of a scripted model: its text and tool calls at its n-th call. `{goal}`, `{last}` (the
/// last tool's output) and `{inputs.KEY}` are replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Turn {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub call: Vec<ScriptedCall>,
    /// The usage that the turn reports. Absent: counted from the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The duration of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// True if the turn is used again at every later call.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeat: bool,
    /// True for the turn that answers the last report, when the budget ends (B7). It has no other
    /// use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
    /// True for the turn that writes a summary of a full window (W7). It has no other use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub summary: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    pub tool: String,
    #[serde(default = "crate::json::Json::null")]
    pub arguments: crate::json::Json,
}

impl AgentProfile {
    /// Makes a profile of a built-in agent, with all other fields at their defaults.
    pub fn builtin(agent_id: AgentId, builtin: &str) -> Self {
        AgentProfile {
            agent_id,
            kind: AgentKind::Builtin,
            description: None,
            builtin: Some(builtin.into()),
            command: Vec::new(),
            model: None,
            fallback_model: None,
            window_tokens: None,
            compaction: Compaction::default(),
            system_prompt: None,
            tools: None,
            allowed_models: BTreeSet::new(),
            checks: Vec::new(),
            reads_all_context: false,
            max_cost_usd: None,
            max_tokens: None,
            closing_reserve_usd: None,
            on_exhausted: None,
            on_budget: Vec::new(),
            hitl: None,
            timeout_ms: None,
            limits: LimitOverrides::default(),
            pool: None,
            spawned_from: BTreeSet::new(),
            script: Vec::new(),
            env: BTreeMap::new(),
            env_from: Vec::new(),
            network: false,
            requires: BTreeSet::new(),
            resources: Resources::default(),
            reads: Vec::new(),
        }
    }

    /// Returns the problems that the types alone do not exclude.
    pub fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        let mut needs = |field: &str, missing: bool| {
            if missing {
                let kind = serde_json::to_value(self.kind).expect("a unit variant");
                problems.add(field, format!("an agent of kind {kind} needs `{field}`"), None);
            }
        };
        match self.kind {
            AgentKind::Builtin => needs("builtin", self.builtin.is_none()),
            AgentKind::Llm => needs("model", self.model.is_none()),
            AgentKind::Command => needs("command", self.command.is_empty()),
        }
        check::check_list(&self.checks, &mut problems);
        if self.kind == AgentKind::Builtin && !self.checks.is_empty() {
            let message = "a built-in agent makes no calls that a check could see";
            problems.add(
                "checks",
                message,
                Some("name them in the profile of an llm or command agent".into()),
            );
        }
        tool::check("tools", self.tools.iter().flatten(), &mut problems);
        check_published("env", &self.env, &mut problems);
        for (index, check) in self.checks.iter().enumerate() {
            if let Some(program) = &check.program {
                check_published(&format!("checks[{index}].program.env"), &program.env, &mut problems);
            }
        }
        let ceilings = Ceilings {
            max_cost_usd: self.max_cost_usd,
            max_tokens: self.max_tokens,
            closing_reserve_usd: self.closing_reserve_usd,
            timeout_ms: self.timeout_ms,
        };
        check_ceilings("", ceilings, &mut problems);
        ladder::check("on_budget", &self.on_budget, &mut problems);
        if self.fallback_model.is_none() {
            ladder::check_cheaper("on_budget", &self.on_budget, &mut problems);
        }
        problems.or(())
    }
}

/// Rejects variables that hold secrets. A profile is published, so every reader of runs sees their
/// values.
fn check_published(path: &str, env: &BTreeMap<String, String>, problems: &mut Problems) {
    for (name, _) in env.iter().filter(|(name, value)| names_secret(name) || has_password(value)) {
        let message = "every reader of runs sees this value, because it is published with the profile";
        let hint =
            "declare it in `secrets` of the worker's settings, and name it in `secrets` of the task (S8)";
        problems.add(format!("{path}.{name}"), message, Some(hint.into()));
    }
}

/// Returns true if a value contains an address with a password, such as a database's:
/// `scheme://user:password@host`.
fn has_password(value: &str) -> bool {
    let rests = value.match_indices("://").map(|(at, _)| &value[at + 3..]);
    let mut users = rests.filter_map(|rest| rest.split(['/', '?', '#', ' ']).next()?.rsplit_once('@'));
    users.any(|(user, _)| user.split_once(':').is_some_and(|(_, password)| !password.is_empty()))
}

/// Returns true if the name of a variable suggests a secret.
fn names_secret(name: &str) -> bool {
    const WORDS: [&str; 9] =
        ["KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"];
    name.to_ascii_uppercase().split('_').any(|word| WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    #[test]
    fn all_problems_of_a_profile_are_listed() {
        let text = r#"{"agent_id": "a", "kind": "llm", "max_cost_usd": 1, "closing_reserve_usd": 1,
            "checks": [{"name": "no-secrets"}]}"#;
        let profile: AgentProfile = decode::json(text.as_bytes()).unwrap();
        let problems = profile.check().unwrap_err();
        let paths: Vec<_> = problems.iter().map(|p| p.path.as_str()).collect();
        assert_eq!(paths, ["model", "checks[0]", "closing_reserve_usd"]);
    }

    #[test]
    fn s2_a_profile_that_would_publish_a_secret_is_refused() {
        let text = r#"{"agent_id": "a", "kind": "command", "command": ["x"], "env": {"LOG_LEVEL": "debug", "GITHUB_TOKEN": "x",
            "openai_api_key": "y", "KEYBOARD": "us", "PASSWORD": "z"}}"#;
        let profile: AgentProfile = decode::json(text.as_bytes()).unwrap();
        let problems = profile.check().unwrap_err();
        let paths: Vec<_> = problems.iter().map(|p| p.path.as_str()).collect();
        assert_eq!(paths, ["env.GITHUB_TOKEN", "env.PASSWORD", "env.openai_api_key"]);
        let text = r#"{"agent_id": "a", "kind": "command", "command": ["x"], "env": {"DATABASE_URL": "postgres://me:s3cret@db/x",
            "HOST": "https://me@example.org:443/a:b@c", "NOTE": "a://b"}, "checks": [{"name": "c", "on": ["before_call"],
            "program": {"command": ["x"], "env": {"A_TOKEN": "x", "B": "see redis://:pw@h:1", "C": "d"}}}]}"#;
        let profile: AgentProfile = decode::json(text.as_bytes()).unwrap();
        let problems = profile.check().unwrap_err();
        let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["env.DATABASE_URL", "checks[0].program.env.A_TOKEN", "checks[0].program.env.B"]);
        assert!(problems.iter().all(|p| p.hint.is_some()));
    }
}
