//! The operator's policy file for workers: the kinds, programs, files, networks, models and MCP
//! servers that agent profiles may request. Coordinators reject a profile that requests more when
//! it is applied, and a worker never runs one. The defaults of the file are narrow.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    agent::{AgentKind, AgentProfile, Layer, Resources},
    check::ProgramCheck,
    digest,
    id::ModelName,
    problem::Problems,
};

/// The pattern that matches everything.
const ALL: &str = "*";

/// The variables that profiles may set if the policy lists none. None of them makes an interpreter
/// run other code.
const PLAIN_VARIABLES: [&str; 7] = ["LANG", "LANGUAGE", "LC_*", "LOG_LEVEL", "NO_COLOR", "TERM", "TZ"];

/// Examples of variables that make programs load or run other code. A pattern must not include one
/// by accident.
const CODE_VARIABLES: [&str; 24] = [
    "BASH_ENV",
    "BROWSER",
    "CLASSPATH",
    "EDITOR",
    "ENV",
    "GCONV_PATH",
    "GIT_SSH_COMMAND",
    "HOME",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "LD_PRELOAD",
    "LUA_INIT",
    "NODE_OPTIONS",
    "PAGER",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PHPRC",
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "RUBYOPT",
    "SHELL",
    "TMPDIR",
    "VISUAL",
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentPolicy {
    /// The kinds of agents.
    pub kinds: BTreeSet<AgentKind>,
    /// The allowed beginnings of commands, word by word: `git`, or `python3 /opt/agents/review.py`;
    /// `*` for all. A profile that may run an interpreter may run any code in it.
    pub programs: Vec<String>,
    /// Directories and files that `reads` of a profile may name, including their contents; `/` for
    /// all.
    pub reads: Vec<String>,
    /// True if programs may use the network.
    pub network: bool,
    /// The variables that `env` of a profile may set: names, or beginnings with a `*`. Many
    /// variables make a program load or run other code. If `programs` allows every program, every
    /// variable is allowed too.
    pub env: Vec<String>,
    /// Variables of the worker that programs may get; `*` for all but its secrets.
    pub env_from: Vec<String>,
    /// The models: names, or beginnings with a `*`.
    pub models: Vec<String>,
    /// The MCP servers of the worker's settings that it starts: names, or beginnings with a `*`.
    pub mcp_servers: Vec<String>,
    /// The pools that profiles may name: names, or beginnings with a `*`.
    pub pools: Vec<String>,
    /// The layers of the sandbox that every program requires, in addition to those of its profile.
    pub requires: BTreeSet<Layer>,
    /// The largest limits that a profile may request.
    pub resources: Resources,
}

impl Default for AgentPolicy {
    /// The policy without a policy file: built-in agents, LLM agents within the worker's settings,
    /// and no programs.
    fn default() -> Self {
        let all = || vec![ALL.to_owned()];
        AgentPolicy {
            kinds: [AgentKind::Builtin, AgentKind::Llm].into(),
            programs: Vec::new(),
            reads: Vec::new(),
            network: false,
            env: PLAIN_VARIABLES.map(str::to_owned).into(),
            env_from: Vec::new(),
            models: all(),
            mcp_servers: all(),
            pools: all(),
            requires: [Layer::Landlock, Layer::Seccomp, Layer::Rlimits].into(),
            resources: Resources::default(),
        }
    }
}

impl AgentPolicy {
    /// Allows every profile; programs still run in the sandbox. For operators who write all
    /// profiles themselves.
    pub fn everything() -> Self {
        let most = u64::MAX;
        AgentPolicy {
            kinds: [AgentKind::Builtin, AgentKind::Llm, AgentKind::Command].into(),
            programs: vec![ALL.to_owned()],
            reads: vec!["/".to_owned()],
            network: true,
            env: vec![ALL.to_owned()],
            env_from: vec![ALL.to_owned()],
            resources: Resources {
                memory_bytes: most,
                cpu_seconds: most,
                file_bytes: most,
                open_files: most,
                processes: most,
            },
            ..AgentPolicy::default()
        }
    }

    /// Returns the problems of the policy itself.
    pub fn check(&self) -> Result<(), Problems> {
        let mut problems = Problems::default();
        for (index, program) in self.programs.iter().enumerate() {
            if program.trim().is_empty() || (program.contains(ALL) && program != ALL) {
                let hint = "write the words that a command begins with, or `*` for every command";
                problems.add(format!("programs[{index}]"), "it names no program", Some(hint.into()));
            }
        }
        for (index, path) in self.reads.iter().enumerate() {
            if path.is_empty() || has_parent(path) {
                let hint = "write a directory or a file, without `..`";
                problems.add(format!("reads[{index}]"), "it is not a plain path", Some(hint.into()));
            }
        }
        for (field, patterns) in [
            ("env", &self.env),
            ("models", &self.models),
            ("mcp_servers", &self.mcp_servers),
            ("pools", &self.pools),
        ] {
            for (index, pattern) in patterns.iter().enumerate() {
                if pattern.is_empty()
                    || pattern.trim_end_matches('*').contains('*')
                    || pattern.ends_with("**")
                {
                    let hint = "write a name, `beginning*`, or `*`";
                    problems.add(
                        format!("{field}[{index}]"),
                        "it is not a pattern of names",
                        Some(hint.into()),
                    );
                }
            }
        }
        for (index, pattern) in self.env.iter().enumerate() {
            let included = CODE_VARIABLES.iter().find(|name| matches(std::slice::from_ref(pattern), name));
            if let Some(name) = included.filter(|_| pattern.ends_with(ALL) && !self.allows_all_programs()) {
                let message =
                    format!("it includes `{name}`, which can turn an allowed program into another one");
                let hint = "write the names one by one, or a longer beginning";
                problems.add(format!("env[{index}]"), message, Some(hint.into()));
            }
        }
        if !self.kinds.contains(&AgentKind::Command) && (!self.reads.is_empty() || self.network) {
            let hint = "add `command` to `kinds`, or remove `reads` and `network`: only programs use them";
            let message = "programs are not among the kinds, but may read files or use the network";
            // With `programs`, a check of an LLM agent may be a program.
            if self.programs.is_empty() {
                problems.add("kinds", message, Some(hint.into()));
            }
        }
        problems.or(())
    }

    /// Returns all requests of a profile that this policy does not allow. `resolve` returns the
    /// real path of a path; a worker follows links in it.
    pub fn refuses(&self, profile: &AgentProfile, resolve: &dyn Fn(&str) -> PathBuf) -> Problems {
        let mut found = PolicyProblems { policy: self, resolve, problems: Problems::default() };
        if !self.kinds.contains(&profile.kind) {
            let kind = name_of(&profile.kind);
            found.add("kind", format!("agents of the kind `{kind}` are not allowed"), "kinds");
        }
        for (field, model) in
            [("model", profile.model.as_ref()), ("fallback_model", profile.fallback_model.as_ref())]
        {
            found.model(field, model);
        }
        for (index, rung) in profile.on_budget.iter().enumerate().filter(|(_, rung)| !rung.is_cheaper()) {
            found.model(&format!("on_budget[{index}].model"), rung.model.as_ref());
        }
        for tool in profile.tools.iter().flatten() {
            found.tool("tools", tool.as_str());
        }
        if let Some(pool) = profile.pool.as_ref().filter(|pool| !matches(&self.pools, pool.as_str())) {
            found.add("pool", format!("the pool `{pool}` is not allowed"), "pools");
        }
        if profile.kind == AgentKind::Command {
            let AgentProfile { command, env, env_from, reads, network, .. } = profile;
            found.program("", command, env, env_from, reads, *network);
            found.resources(&profile.resources);
        }
        for (index, check) in profile.checks.iter().enumerate() {
            if let Some(ProgramCheck { command, env, env_from, reads, network, requires: _ }) = &check.program
            {
                let path = format!("checks[{index}].program.");
                found.program(&path, command, env, env_from, reads, *network);
            }
            if let Some(mcp) = &check.mcp {
                found.tool(&format!("checks[{index}].mcp.tool"), mcp.tool.as_str());
            }
        }
        found.problems
    }

    fn allows_all_programs(&self) -> bool {
        self.programs.iter().any(|program| program == ALL)
    }

    pub fn allows_model(&self, model: &ModelName) -> bool {
        matches(&self.models, model.as_str())
    }

    pub fn allows_server(&self, server: &str) -> bool {
        matches(&self.mcp_servers, server)
    }

    /// Identifies the policy: equal policies have equal digests.
    pub fn digest(&self) -> String {
        digest::short_sha256(serde_json::to_vec(self).expect("a policy has string keys only"))
    }

    /// Summarizes the policy in a few words, for lists of workers.
    pub fn summary(&self) -> String {
        if *self == Self::everything() {
            return "everything".into();
        }
        let kinds: Vec<String> = self.kinds.iter().map(name_of).collect();
        let mut text = kinds.join(" ");
        let mut more = |name: &str, values: &[String], usual: &[String]| {
            if values != usual {
                let values = if values.is_empty() { "none".to_owned() } else { values.join(", ") };
                let _ = write!(text, "; {name}: {values}");
            }
        };
        let all = [ALL.to_owned()];
        more("programs", &self.programs, &[]);
        more("reads", &self.reads, &[]);
        more("env", &self.env, &Self::default().env);
        more("env_from", &self.env_from, &[]);
        more("models", &self.models, &all);
        more("mcp_servers", &self.mcp_servers, &all);
        more("pools", &self.pools, &all);
        let requires: Vec<String> = self.requires.iter().map(name_of).collect();
        let usual: Vec<String> = Self::default().requires.iter().map(name_of).collect();
        more("requires", &requires, &usual);
        if self.network {
            text.push_str("; network");
        }
        text
    }
}

/// Collects the requests that are not allowed.
struct PolicyProblems<'a> {
    policy: &'a AgentPolicy,
    resolve: &'a dyn Fn(&str) -> PathBuf,
    problems: Problems,
}

impl PolicyProblems<'_> {
    fn add(&mut self, path: &str, message: String, field: &str) {
        let hint = format!("the operator of the workers can allow it in `{field}` of the policy file");
        self.problems.add(path, message, Some(hint));
    }

    fn model(&mut self, field: &str, model: Option<&ModelName>) {
        if let Some(model) = model.filter(|model| !self.policy.allows_model(model)) {
            self.add(field, format!("the model `{model}` is not allowed"), "models");
        }
    }

    fn tool(&mut self, path: &str, tool: &str) {
        if let Some((server, _)) = tool.split_once(':')
            && server != "agent"
            && !self.policy.allows_server(server)
        {
            self.add(path, format!("the MCP server `{server}` of `{tool}` is not allowed"), "mcp_servers");
        }
    }

    fn program(
        &mut self,
        path: &str,
        command: &[String],
        env: &BTreeMap<String, String>,
        env_from: &[String],
        reads: &[String],
        network: bool,
    ) {
        let policy = self.policy;
        let begins = |program: &String| {
            program == ALL
                || program.split_whitespace().zip(command).all(|(word, given)| word == given)
                    && program.split_whitespace().count() <= command.len()
        };
        if !policy.programs.iter().any(begins) {
            let shown = command.first().map_or("", String::as_str);
            self.add(
                &format!("{path}command"),
                format!("the command `{shown} …` is not allowed"),
                "programs",
            );
        }
        if !policy.allows_all_programs() {
            for name in env.keys().filter(|name| !matches(&policy.env, name)) {
                let allowed = if policy.env.is_empty() { "none".to_owned() } else { policy.env.join(", ") };
                let message =
                    format!("profiles may not set `{name}`, which could turn the program into another one");
                let hint = format!(
                    "the operator of the workers can add `{name}` to `env` of the policy file, if no allowed program loads or runs \
                     anything because of it; allowed are {allowed}"
                );
                self.problems.add(format!("{path}env.{name}"), message, Some(hint));
            }
            // These variables decide which file a command's name resolves to, and which libraries
            // are loaded.
            let decides = |name: &&String| name.as_str() == "PATH" || name.starts_with("LD_");
            for name in env_from.iter().filter(decides) {
                let message = format!("`{name}` could turn the program into another one");
                self.add(&format!("{path}env_from"), message, "programs");
            }
        }
        for (index, name) in env_from.iter().enumerate() {
            if !policy.env_from.iter().any(|allowed| allowed == ALL || allowed == name) {
                let message = format!("programs may not use the worker's variable `{name}`");
                self.add(&format!("{path}env_from[{index}]"), message, "env_from");
            }
        }
        for (index, read) in reads.iter().enumerate() {
            let beneath = |allowed: &String| (self.resolve)(read).starts_with((self.resolve)(allowed));
            if has_parent(read) || !policy.reads.iter().any(beneath) {
                let message = format!("`{read}` is not among the files that programs may read");
                self.add(&format!("{path}reads[{index}]"), message, "reads");
            }
        }
        if network && !policy.network {
            self.add(&format!("{path}network"), "programs may not use the network".to_owned(), "network");
        }
    }

    fn resources(&mut self, asked: &Resources) {
        let most = &self.policy.resources;
        for (field, asked, most) in [
            ("memory_bytes", asked.memory_bytes, most.memory_bytes),
            ("cpu_seconds", asked.cpu_seconds, most.cpu_seconds),
            ("file_bytes", asked.file_bytes, most.file_bytes),
            ("open_files", asked.open_files, most.open_files),
            ("processes", asked.processes, most.processes),
        ] {
            if asked > most {
                let message = format!("{asked} is more than the {most} allowed");
                self.add(&format!("resources.{field}"), message, "resources");
            }
        }
    }
}

/// Returns the path as it is written. For callers without access to the worker's files.
pub fn as_written(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| !matches!(part, Component::CurDir)).collect()
}

fn has_parent(path: &str) -> bool {
    Path::new(path).components().any(|part| part == Component::ParentDir)
}

/// Returns true if a name matches a pattern: an equal name, or a beginning with a `*`.
fn matches(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix(ALL) {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    })
}

fn name_of(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).expect("a unit variant");
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode;

    fn profile(text: &str) -> AgentProfile {
        decode::json(text.as_bytes()).unwrap()
    }

    fn paths(policy: &str, asked: &str) -> Vec<String> {
        let policy: AgentPolicy = decode::json(policy.as_bytes()).unwrap();
        policy.check().unwrap();
        policy.refuses(&profile(asked), &as_written).iter().map(|problem| problem.path.clone()).collect()
    }

    #[test]
    fn s4_without_a_file_no_program_is_allowed_and_every_other_agent_is() {
        let program = r#"{"agent_id": "p", "kind": "command", "command": ["sh"], "reads": ["/srv"], "network": true,
            "env_from": ["TERM"], "resources": {"processes": 65}}"#;
        let all = ["kind", "command", "env_from[0]", "reads[0]", "network", "resources.processes"];
        assert_eq!(paths("{}", program), all);
        let llm = r#"{"agent_id": "l", "kind": "llm", "model": "a/b", "tools": ["files:read"], "pool": "p"}"#;
        assert_eq!(paths("{}", llm), Vec::<String>::new());
        let checked = r#"{"agent_id": "l", "kind": "llm", "model": "a/b",
            "checks": [{"name": "c", "on": ["before_call"], "program": {"command": ["sh"], "network": true}}]}"#;
        assert_eq!(paths("{}", checked), ["checks[0].program.command", "checks[0].program.network"]);
        assert!(AgentPolicy::everything().refuses(&profile(program), &as_written).iter().next().is_none());
    }

    #[test]
    fn s4_a_program_is_named_by_the_words_that_its_command_begins_with() {
        let policy =
            r#"{"kinds": ["command"], "programs": ["python3 /opt/a.py", "git"], "reads": ["/opt/", "data"]}"#;
        let asks = |command: &str, more: &str| {
            paths(policy, &format!(r#"{{"agent_id": "p", "kind": "command", "command": {command}{more}}}"#))
        };
        for allowed in [r#"["python3", "/opt/a.py", "-v"]"#, r#"["git"]"#, r#"["git", "log"]"#] {
            assert_eq!(asks(allowed, ""), Vec::<String>::new(), "{allowed}");
        }
        for refused in
            [r#"["python3"]"#, r#"["python3", "-c", "/opt/a.py"]"#, r#"["/tmp/git"]"#, r#"["gitk"]"#]
        {
            assert_eq!(asks(refused, ""), ["command"], "{refused}");
        }
        for (reads, refused) in [
            ("/opt", false),
            ("/opt/x/y", false),
            ("./data/x", false),
            ("/optional", true),
            ("/opt/../etc", true),
            ("/", true),
        ] {
            let expected: &[&str] = if refused { &["reads[0]"] } else { &[] };
            assert_eq!(asks(r#"["git"]"#, &format!(r#", "reads": ["{reads}"]"#)), expected, "{reads}");
        }
    }

    /// proves: no variable can make an allowed program run other code, because profiles may only
    /// set the variables that the operator lists.
    #[test]
    fn s4_a_profile_sets_only_the_variables_that_the_policy_lists() {
        let asks = |policy: &str, env: &str| {
            let profile = format!(
                r#"{{"agent_id": "p", "kind": "command", "command": ["git"], "env": {{{env}}}, "checks": [
                    {{"name": "c", "on": ["before_call"], "program": {{"command": ["git"], "env": {{{env}}}}}}}]}}"#
            );
            paths(&format!(r#"{{"kinds": ["command"], {policy}}}"#), &profile)
        };
        let refused = |name: &str| [format!("env.{name}"), format!("checks[0].program.env.{name}")];
        let git = r#""programs": ["git"]"#;
        for name in CODE_VARIABLES.into_iter().chain(["PYTHONINSPECT", "GIT_EXEC_PATH", "lang", "A"]) {
            assert_eq!(asks(git, &format!(r#""{name}": "x""#)), refused(name), "{name}");
        }
        for name in ["LANG", "LC_ALL", "TZ", "LOG_LEVEL"] {
            assert_eq!(asks(git, &format!(r#""{name}": "x""#)), Vec::<String>::new(), "{name}");
        }
        let listed = format!(r#"{git}, "env": ["APP_*", "PAGER"]"#);
        assert_eq!(asks(&listed, r#""APP_A": "x", "PAGER": "cat""#), Vec::<String>::new());
        assert_eq!(asks(&listed, r#""LANG": "x""#), refused("LANG"));
        assert_eq!(asks(r#""programs": ["*"]"#, r#""LD_PRELOAD": "x""#), Vec::<String>::new());

        let policy: AgentPolicy = decode::json(format!("{{{git}}}").as_bytes()).unwrap();
        let asked = r#"{"agent_id": "p", "kind": "command", "command": ["git"], "env": {"BASH_ENV": "x"}}"#;
        let said = policy.refuses(&profile(asked), &as_written).to_string();
        assert!(said.contains("can add `BASH_ENV` to `env`") && said.contains("LOG_LEVEL"), "{said}");
        for (pattern, wrong) in [("LD_*", true), ("P*", true), ("*", true), ("PATH", false), ("APP_*", false)]
        {
            let text = format!(r#"{{"kinds": ["command"], {git}, "env": ["{pattern}"]}}"#);
            let policy: AgentPolicy = decode::json(text.as_bytes()).unwrap();
            assert_eq!(policy.check().is_err(), wrong, "{pattern}");
        }
    }

    #[test]
    fn s4_models_servers_and_pools_are_named_or_begin_so() {
        let policy =
            r#"{"models": ["openai/*", "local/small"], "mcp_servers": ["files"], "pools": ["team-*"]}"#;
        let asked = r#"{"agent_id": "l", "kind": "llm", "model": "openai/x", "fallback_model": "local/smaller", "pool": "others",
            "tools": ["files:read", "web:get", "fs.read"], "on_budget": [{"at": 0.5, "model": "cheaper"}, {"at": 0.8, "model": "x/y"}],
            "checks": [{"name": "c", "on": ["before_call"], "mcp": {"tool": "guard:check"}}]}"#;
        let refused = ["fallback_model", "on_budget[1].model", "tools", "pool", "checks[0].mcp.tool"];
        assert_eq!(paths(policy, asked), refused);
    }

    #[test]
    fn all_mistakes_of_a_policy_are_reported_at_once() {
        let text = r#"{"programs": ["", "py*"], "reads": ["../x"], "models": ["a*b"], "pools": [""]}"#;
        let policy: AgentPolicy = decode::json(text.as_bytes()).unwrap();
        let problems = policy.check().unwrap_err();
        let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["programs[0]", "programs[1]", "reads[0]", "models[0]", "pools[0]"]);
    }
}
