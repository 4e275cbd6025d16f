//! The request to a program or an MCP tool that runs a check, and its answer: one JSON object each.

use domain::{
    AgentId, ChildId, TraceId, Usd,
    check::{CheckDecision, Moment},
    depth::{self, MAX_VALUE_DEPTH},
    id::CheckName,
    wording,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::{Content, ContentDecision};

/// The longest reason that is stored.
const MAX_REASON_BYTES: usize = 1000;

#[derive(Debug, Clone, Serialize)]
pub(super) struct CheckRequest<'a> {
    pub(super) check: &'a CheckName,
    pub(super) moment: Moment,
    pub(super) trace_id: TraceId,
    pub(super) child_id: &'a ChildId,
    pub(super) agent_id: &'a AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arguments: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<&'a str>,
    /// The most that the call may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost_usd: Option<Usd>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckReply {
    decision: CheckDecision,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(default)]
    reason: Option<String>,
}

/// Reads the decision of an answer about `content`. An invalid answer denies.
pub(super) fn read(answer: &str, content: &Content) -> ContentDecision {
    let given: CheckReply = match serde_json::from_str(answer.trim()) {
        Ok(given) => given,
        Err(error) => return ContentDecision::failed(format!("its answer can't be understood: {error}")),
    };
    let reason = given.reason.map(|reason| wording::cut(reason, MAX_REASON_BYTES));
    match given.decision {
        CheckDecision::Pass => ContentDecision::pass(),
        CheckDecision::Change => {
            let changed = match content {
                Content::Text(_) => given.text.map(Content::Text),
                Content::Arguments(_) => given.arguments.filter(Value::is_object).map(Content::Arguments),
            };
            match changed {
                Some(Content::Arguments(changed)) if depth::is_deeper(&changed, MAX_VALUE_DEPTH) => {
                    // A deeper value could not be read from the journal again.
                    ContentDecision::failed(format!(
                        "its change nests deeper than the {MAX_VALUE_DEPTH} levels allowed"
                    ))
                }
                Some(changed) if changed == *content => ContentDecision::pass(),
                Some(changed) => {
                    ContentDecision::change(changed, reason.unwrap_or_else(|| "it was changed".into()))
                }
                None => {
                    let wanted = match content {
                        Content::Text(_) => "text",
                        Content::Arguments(_) => "arguments",
                    };
                    ContentDecision::failed(format!(
                        "its answer can't be understood: a change needs `{wanted}`"
                    ))
                }
            }
        }
        decision @ (CheckDecision::Deny | CheckDecision::Halt) => {
            let reason = reason.unwrap_or_else(|| "it gave no reason".into());
            ContentDecision { decision, reason: Some(reason), content: None }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b16_an_answer_that_can_not_be_understood_denies() {
        let text = Content::Text("a".into());
        let decision = |answer: &str| read(answer, &text).decision;
        assert_eq!(decision(r#"{"decision": "pass"}"#), CheckDecision::Pass);
        assert_eq!(decision(r#"{"decision": "change", "text": "b"}"#), CheckDecision::Change);
        assert_eq!(decision(r#"{"decision": "change", "text": "a"}"#), CheckDecision::Pass);
        assert_eq!(decision(r#"{"decision": "halt"}"#), CheckDecision::Halt);
        for answer in [
            "",
            "pass",
            "{}",
            r#"{"decision": "allow"}"#,
            r#"{"decision": "change"}"#,
            r#"{"decision": "change", "arguments": {}}"#,
            r#"{"decision": "pass", "resaon": "typo"}"#,
            "{\"decision\": \"pass\"}\n{\"decision\": \"pass\"}",
        ] {
            let decided = read(answer, &text);
            assert_eq!(decided.decision, CheckDecision::Deny, "{answer}");
            assert!(decided.reason.unwrap().contains("can't be understood"), "{answer}");
        }
        let arguments = Content::Arguments(json!({"a": 1}));
        let answer = r#"{"decision": "change", "arguments": {"a": 2}}"#;
        assert_eq!(read(answer, &arguments).content, Some(Content::Arguments(json!({"a": 2}))));
        let answer = r#"{"decision": "change", "arguments": 7}"#;
        assert_eq!(read(answer, &arguments).decision, CheckDecision::Deny);
    }

    #[test]
    fn b16_a_change_that_the_journal_could_not_keep_denies() {
        let arguments = Content::Arguments(json!({"a": 1}));
        let nested = |levels: usize| {
            let (open, close) = (r#"{"a":"#.repeat(levels), "}".repeat(levels));
            read(&format!(r#"{{"decision": "change", "arguments": {open}1{close}}}"#), &arguments)
        };
        assert_eq!(nested(MAX_VALUE_DEPTH).decision, CheckDecision::Change);
        let decided = nested(MAX_VALUE_DEPTH + 1);
        assert_eq!((decided.decision, decided.content), (CheckDecision::Deny, None));
        assert!(decided.reason.unwrap().contains("nests deeper than the 48 levels allowed"));
    }
}
