//! A check of a profile, ready to run.

use std::{collections::BTreeSet, time::Duration};

use domain::{
    Usd,
    check::{
        ApprovalCheck, Check, CheckDecision, CheckKind, CostCheck, McpCheck, Moment, OnHit, PatternCheck,
        ProgramCheck, RateCheck, SizeCheck, compile_pattern,
    },
    id::{CheckName, ToolName},
    json_schema::JsonSchema,
};
use regex::Regex;

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: CheckName,
    moments: BTreeSet<Moment>,
    tools: Option<BTreeSet<ToolName>>,
    pub(super) timeout: Duration,
    pub(super) on_hit: OnHit,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// Every one of these patterns denies.
    Forbidden(Vec<Regex>),
    /// At least one of these patterns must match.
    Allowed(Vec<Regex>),
    MaxBytes(u64),
    Schema(Box<JsonSchema>),
    Program(ProgramCheck),
    Mcp(ToolName),
    PerMinute(u32),
    MaxCost(Usd),
    /// With an amount: only for calls that may cost more.
    Approval(Option<Usd>),
    /// This worker can't read the check, so it denies.
    Unusable(String),
}

impl Rule {
    pub(super) fn new(check: &Check) -> Self {
        Rule {
            name: check.name.clone(),
            moments: check.moments(),
            tools: check.tools.clone(),
            timeout: Duration::from_millis(check.timeout_ms()),
            on_hit: check.then.unwrap_or_default(),
            kind: kind(check).unwrap_or_else(Kind::Unusable),
        }
    }

    pub(super) fn runs_on(&self, moment: Moment) -> bool {
        self.moments.contains(&moment)
    }

    pub(super) fn runs_on_tool(&self, moment: Moment, tool: &str) -> bool {
        let named = |tools: &BTreeSet<ToolName>| tools.iter().any(|name| name.as_str() == tool);
        self.runs_on(moment) && self.tools.as_ref().is_none_or(named)
    }

    /// Returns true if the check judges a text or arguments. Other checks decide whether a call may
    /// be made now.
    pub(super) fn reads_content(&self) -> bool {
        match self.kind {
            Kind::Forbidden(_)
            | Kind::Allowed(_)
            | Kind::MaxBytes(_)
            | Kind::Schema(_)
            | Kind::Program(_)
            | Kind::Mcp(_)
            | Kind::Unusable(_) => true,
            Kind::PerMinute(_) | Kind::MaxCost(_) | Kind::Approval(_) => false,
        }
    }

    /// Returns true if the check redacts. Its changes follow from the message alone, so they are
    /// not recorded.
    pub(super) fn redacts(&self) -> bool {
        matches!(self.kind, Kind::Forbidden(_)) && self.on_hit == OnHit::Redact
    }

    /// Returns true if a program or an MCP tool decides. It judges each text once.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self.kind, Kind::Program(_) | Kind::Mcp(_))
    }

    /// Returns true if the check also judges messages before the model's last answer, so that no
    /// text is sent that it has not judged in this form. Other checks apply only to new messages.
    pub(super) fn judges_earlier(&self) -> bool {
        match self.kind {
            Kind::Forbidden(_) => !self.redacts(),
            Kind::Program(_) | Kind::Mcp(_) | Kind::Unusable(_) => true,
            Kind::Allowed(_)
            | Kind::MaxBytes(_)
            | Kind::Schema(_)
            | Kind::PerMinute(_)
            | Kind::MaxCost(_)
            | Kind::Approval(_) => false,
        }
    }

    /// Returns true if the check also applies to summaries (W7). Checks for the form of the agent's
    /// own prompts and answers do not apply.
    pub(super) fn runs_on_summaries(&self) -> bool {
        match self.kind {
            Kind::Allowed(_) | Kind::MaxBytes(_) | Kind::Schema(_) => false,
            Kind::Forbidden(_)
            | Kind::Program(_)
            | Kind::Mcp(_)
            | Kind::PerMinute(_)
            | Kind::MaxCost(_)
            | Kind::Approval(_)
            | Kind::Unusable(_) => true,
        }
    }

    /// The decision for a hit. A match that can't be redacted is denied.
    pub(super) fn hit(&self) -> CheckDecision {
        match self.on_hit {
            OnHit::Deny | OnHit::Redact => CheckDecision::Deny,
            OnHit::Halt => CheckDecision::Halt,
        }
    }
}

fn kind(check: &Check) -> Result<Kind, String> {
    let compiled = |patterns: &[String]| -> Result<Vec<Regex>, String> {
        patterns.iter().map(|pattern| compile_pattern(pattern)).collect()
    };
    Ok(match check.kind().ok_or("it has not exactly one kind")? {
        CheckKind::Pattern(PatternCheck::Deny(patterns)) => Kind::Forbidden(compiled(patterns)?),
        CheckKind::Pattern(PatternCheck::Allow(patterns)) => Kind::Allowed(compiled(patterns)?),
        CheckKind::Size(SizeCheck { max_bytes }) => Kind::MaxBytes(*max_bytes),
        CheckKind::Rate(RateCheck { per_minute }) => Kind::PerMinute(*per_minute),
        CheckKind::Cost(CostCheck { max_usd_per_call }) => Kind::MaxCost(*max_usd_per_call),
        CheckKind::Schema(schema) => Kind::Schema(Box::new(JsonSchema::compile(schema.value())?)),
        CheckKind::Approval(ApprovalCheck { above_usd }) => Kind::Approval(*above_usd),
        CheckKind::Program(program) => Kind::Program(program.clone()),
        CheckKind::Mcp(McpCheck { tool }) => Kind::Mcp(tool.clone()),
    })
}
