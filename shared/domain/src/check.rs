//! Checks (B16): the programs, patterns and limits that run before and after each paid call and
//! tool call. This module has their definitions and finds mistakes in them; the worker runs them.

use std::collections::{BTreeMap, BTreeSet};

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use crate::{
    id::{CheckName, ToolName},
    json::Json,
    json_schema::JsonSchema,
    money::Usd,
    problem::Problems,
    sandbox::Layer,
};

/// The most checks of one profile. `MAX_PATTERNS` bounds the patterns of one check.
pub const MAX_CHECKS: usize = 32;
const MAX_PATTERNS: usize = 64;
/// The longest pattern. `MAX_COMPILED_BYTES` bounds the memory of one compiled pattern.
const MAX_PATTERN_BYTES: usize = 2000;
const MAX_COMPILED_BYTES: usize = 1 << 20;
const MAX_TIMEOUT_MS: u64 = 60_000;
const DEFAULT_TIMEOUT_MS: u64 = 5_000;

/// The moment at which a check runs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    /// Before a model call: on the messages that are new since its last answer.
    BeforeCall,
    /// On a model's answer: its text, and the arguments of the tools it calls.
    AfterCall,
    /// Before a tool call: on its arguments.
    BeforeTool,
    /// On a tool's output.
    AfterTool,
}

impl Moment {
    pub fn as_str(self) -> &'static str {
        match self {
            Moment::BeforeCall => "before_call",
            Moment::AfterCall => "after_call",
            Moment::BeforeTool => "before_tool",
            Moment::AfterTool => "after_tool",
        }
    }
}

/// The decision of a check.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CheckDecision {
    Pass,
    /// Continues with a changed text.
    Change,
    /// The call is not made, or its answer is discarded.
    Deny,
    /// The context ends with the status `aborted`.
    Halt,
}

impl CheckDecision {
    pub fn as_str(self) -> &'static str {
        match self {
            CheckDecision::Pass => "pass",
            CheckDecision::Change => "change",
            CheckDecision::Deny => "deny",
            CheckDecision::Halt => "halt",
        }
    }
}

/// The consequence of a hit of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnHit {
    #[default]
    Deny,
    Halt,
    /// The matches of a pattern are replaced by `[redacted:<name>]`.
    Redact,
}

/// A named check. It has exactly one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    pub name: CheckName,
    /// Absent: the usual moments of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<BTreeSet<Moment>>,
    /// The tools whose calls are checked. Absent: all calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeSet<ToolName>>,
    /// The longest time that a program or an MCP tool may take. After that the call is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Absent: deny. A program and an MCP tool decide it by their answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<OnHit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<PatternCheck>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<SizeCheck>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateCheck>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostCheck>,
    /// A JSON Schema that the arguments of a tool, or the final answer, must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalCheck>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramCheck>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpCheck>,
}

/// Regular expressions: any match denies, or at least one match is required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatternCheck {
    Deny(Vec<String>),
    Allow(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeCheck {
    pub max_bytes: u64,
}

/// The most calls of the context in any 60 seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateCheck {
    pub per_minute: u32,
}

/// The most that one model call may cost, by the worst case that is about to be held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostCheck {
    pub max_usd_per_call: Usd,
}

/// Requires the approval of a human for the call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalCheck {
    /// Only for model calls whose worst case costs more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above_usd: Option<Usd>,
}

/// A program that runs in a sandbox, like agents of the kind `command`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramCheck {
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    #[serde(default)]
    pub network: bool,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub requires: BTreeSet<Layer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpCheck {
    /// A tool as `server:tool`. The agent itself need not have it.
    pub tool: ToolName,
}

/// The kind of a check.
#[derive(Debug, Clone, Copy)]
pub enum CheckKind<'a> {
    Pattern(&'a PatternCheck),
    Size(&'a SizeCheck),
    Rate(&'a RateCheck),
    Cost(&'a CostCheck),
    Schema(&'a Json),
    Approval(&'a ApprovalCheck),
    Program(&'a ProgramCheck),
    Mcp(&'a McpCheck),
}

const KINDS: &str = "`pattern`, `size`, `rate`, `cost`, `schema`, `approval`, `program` or `mcp`";

const ALL: [Moment; 4] = [Moment::BeforeCall, Moment::AfterCall, Moment::BeforeTool, Moment::AfterTool];
const TOOL: [Moment; 2] = [Moment::BeforeTool, Moment::AfterTool];

impl CheckKind<'_> {
    fn name(self) -> &'static str {
        match self {
            CheckKind::Pattern(_) => "pattern",
            CheckKind::Size(_) => "size",
            CheckKind::Rate(_) => "rate",
            CheckKind::Cost(_) => "cost",
            CheckKind::Schema(_) => "schema",
            CheckKind::Approval(_) => "approval",
            CheckKind::Program(_) => "program",
            CheckKind::Mcp(_) => "mcp",
        }
    }

    /// Returns all moments at which the kind can run.
    fn possible(self) -> &'static [Moment] {
        match self {
            CheckKind::Pattern(_) | CheckKind::Size(_) | CheckKind::Program(_) | CheckKind::Mcp(_) => &ALL,
            CheckKind::Rate(_) => &[Moment::BeforeCall, Moment::BeforeTool],
            CheckKind::Cost(_) | CheckKind::Approval(ApprovalCheck { above_usd: Some(_) }) => {
                &[Moment::BeforeCall]
            }
            CheckKind::Schema(_) => &[Moment::AfterCall, Moment::BeforeTool],
            CheckKind::Approval(ApprovalCheck { above_usd: None }) => {
                &[Moment::BeforeCall, Moment::BeforeTool]
            }
        }
    }

    /// Returns the moments at which the kind runs if the check sets none.
    fn usual(self, of_tools: bool) -> &'static [Moment] {
        match self {
            CheckKind::Pattern(_) | CheckKind::Size(_) | CheckKind::Program(_) | CheckKind::Mcp(_) => {
                if of_tools {
                    &TOOL
                } else {
                    &ALL
                }
            }
            CheckKind::Approval(ApprovalCheck { above_usd: None }) => &[Moment::BeforeTool],
            CheckKind::Rate(_) | CheckKind::Schema(_) if of_tools => &[Moment::BeforeTool],
            CheckKind::Schema(_) => &[Moment::AfterCall],
            CheckKind::Rate(_) | CheckKind::Cost(_) | CheckKind::Approval(_) => &[Moment::BeforeCall],
        }
    }
}

impl Check {
    fn kinds(&self) -> Vec<CheckKind<'_>> {
        let kinds = [
            self.pattern.as_ref().map(CheckKind::Pattern),
            self.size.as_ref().map(CheckKind::Size),
            self.rate.as_ref().map(CheckKind::Rate),
            self.cost.as_ref().map(CheckKind::Cost),
            self.schema.as_ref().map(CheckKind::Schema),
            self.approval.as_ref().map(CheckKind::Approval),
            self.program.as_ref().map(CheckKind::Program),
            self.mcp.as_ref().map(CheckKind::Mcp),
        ];
        kinds.into_iter().flatten().collect()
    }

    /// Returns the check's kind, or `None` if it has no kind or several.
    pub fn kind(&self) -> Option<CheckKind<'_>> {
        match self.kinds()[..] {
            [kind] => Some(kind),
            _ => None,
        }
    }

    pub fn moments(&self) -> BTreeSet<Moment> {
        match (&self.on, self.kind()) {
            (Some(on), _) => on.clone(),
            (None, Some(kind)) => kind.usual(self.tools.is_some()).iter().copied().collect(),
            (None, None) => BTreeSet::new(),
        }
    }

    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)
    }

    fn problems(&self, path: &str, problems: &mut Problems) {
        let mut add = |field: &str, message: String, hint: &str| {
            problems.add(join(path, field), message, Some(hint.into()))
        };
        let kinds = self.kinds();
        let kind = match kinds[..] {
            [kind] => kind,
            [] => return add("", "a check needs a kind".into(), &format!("add one of {KINDS}")),
            _ => {
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                let message = format!("a check has one kind, and this one has {}", names.join(", "));
                return add("", message, "make a check of each, with a name of its own");
            }
        };
        if self.timeout_ms.is_some_and(|ms| ms == 0 || ms > MAX_TIMEOUT_MS) {
            add("timeout_ms", format!("must be from 1 to {MAX_TIMEOUT_MS}"), "leave it out for 5 seconds");
        }
        let decides_itself = matches!(kind, CheckKind::Program(_) | CheckKind::Mcp(_));
        if self.timeout_ms.is_some() && !decides_itself {
            add("timeout_ms", format!("a check of the kind {} has no timeout", kind.name()), "leave it out");
        }
        match self.then {
            Some(_) if decides_itself => {
                add("then", "the answer decides what a hit means".into(), "leave it out");
            }
            Some(OnHit::Redact) if !matches!(kind, CheckKind::Pattern(PatternCheck::Deny(_))) => {
                add("then", "only the matches of `pattern.deny` can be redacted".into(), "use deny or halt");
            }
            Some(OnHit::Deny | OnHit::Halt | OnHit::Redact) | None => {}
        }
        self.moment_problems(kind, &mut add);
        match kind {
            CheckKind::Pattern(pattern) => pattern.problems(&mut add),
            CheckKind::Schema(schema) => {
                if let Err(why) = JsonSchema::compile(schema.value()) {
                    add("schema", why, "write it as in https://json-schema.org");
                }
            }
            CheckKind::Size(SizeCheck { max_bytes: 0 }) => {
                add("size.max_bytes", "must be at least 1".into(), "0 would deny everything");
            }
            CheckKind::Rate(RateCheck { per_minute: 0 }) => {
                add("rate.per_minute", "must be at least 1".into(), "0 would deny every call");
            }
            CheckKind::Program(program) if program.command.first().is_none_or(String::is_empty) => {
                add("program.command", "names no program".into(), "for example [\"python3\", \"check.py\"]");
            }
            CheckKind::Mcp(McpCheck { tool }) if !tool.as_str().contains(':') => {
                let message = format!("`{tool}` is not a tool of an MCP server");
                add("mcp.tool", message, "write server:tool, with a server of the worker's settings");
            }
            CheckKind::Size(_)
            | CheckKind::Rate(_)
            | CheckKind::Cost(_)
            | CheckKind::Approval(_)
            | CheckKind::Program(_)
            | CheckKind::Mcp(_) => {}
        }
    }

    fn moment_problems(&self, kind: CheckKind<'_>, add: &mut impl FnMut(&str, String, &str)) {
        let listed = |moments: &[Moment]| moments.iter().map(|m| m.as_str()).collect::<Vec<_>>().join(", ");
        let hint = format!("it can run on {}", listed(kind.possible()));
        if let Some(on) = &self.on {
            let wrong: Vec<Moment> = on.iter().copied().filter(|m| !kind.possible().contains(m)).collect();
            if on.is_empty() {
                add("on", "an empty list: it would never run".into(), &hint);
            }
            if !wrong.is_empty() {
                let message = format!("a check of the kind {} can't run on {}", kind.name(), listed(&wrong));
                add("on", message, &hint);
            }
        }
        if self.tools.as_ref().is_some_and(BTreeSet::is_empty) {
            add("tools", "an empty list: it would never run".into(), "leave it out for all tools");
        }
        if self.tools.is_some() && !self.moments().iter().any(|moment| TOOL.contains(moment)) {
            add("tools", "it runs on no call of a tool".into(), "leave it out, or add before_tool to `on`");
        }
    }
}

impl PatternCheck {
    pub fn patterns(&self) -> &[String] {
        match self {
            PatternCheck::Deny(patterns) | PatternCheck::Allow(patterns) => patterns,
        }
    }

    fn problems(&self, add: &mut impl FnMut(&str, String, &str)) {
        let field = match self {
            PatternCheck::Deny(_) => "pattern.deny",
            PatternCheck::Allow(_) => "pattern.allow",
        };
        let patterns = self.patterns();
        if patterns.is_empty() || patterns.len() > MAX_PATTERNS {
            add(
                field,
                format!("has {} patterns, of 1 to {MAX_PATTERNS}", patterns.len()),
                "use several checks",
            );
        }
        for (index, pattern) in patterns.iter().enumerate() {
            if let Err(why) = compile_pattern(pattern) {
                add(&format!("{field}[{index}]"), why, "the syntax is that of https://docs.rs/regex");
            }
        }
    }
}

/// Compiles a pattern. Matching takes linear time, and the pattern's memory is bounded.
pub fn compile_pattern(pattern: &str) -> Result<Regex, String> {
    if pattern.is_empty() {
        return Err("an empty pattern matches everything".into());
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!("the pattern has {} bytes, more than {MAX_PATTERN_BYTES}", pattern.len()));
    }
    let built = RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .nest_limit(50)
        .build();
    match built {
        Ok(regex) if regex.is_match("") => {
            Err("the pattern matches an empty text, so it matches everything".into())
        }
        Ok(regex) => Ok(regex),
        Err(regex::Error::CompiledTooBig(limit)) => {
            Err(format!("the pattern needs more than {limit} bytes of memory"))
        }
        Err(error) => Err(last_line(&error.to_string())),
    }
}

/// Adds the problems of a list of checks.
pub fn check_list(checks: &[Check], problems: &mut Problems) {
    if checks.len() > MAX_CHECKS {
        let message = format!("has {} checks, more than {MAX_CHECKS}", checks.len());
        problems.add("checks", message, Some("put several patterns into one check".into()));
    }
    let mut names: BTreeMap<&CheckName, usize> = BTreeMap::new();
    for (index, check) in checks.iter().enumerate() {
        check.problems(&format!("checks[{index}]"), problems);
        if let Some(first) = names.insert(&check.name, index) {
            let message = format!("`{}` is the name of checks[{first}] too", check.name);
            problems.add(format!("checks[{index}].name"), message, Some("choose another name".into()));
        }
    }
}

fn join(path: &str, field: &str) -> String {
    if field.is_empty() { path.to_owned() } else { format!("{path}.{field}") }
}

/// Returns the last line of a parser's error. It has the reason; the lines before it draw the
/// pattern.
fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
