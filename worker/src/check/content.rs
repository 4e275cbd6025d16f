//! The content that a check reads, and the checks that need only the content: patterns, sizes and
//! schemas. Pure. A reason never quotes the text that a pattern matched.

use domain::{check::CheckDecision, json_schema::JsonSchema};
use regex::Regex;
use serde_json::Value;

use super::rule::{Kind, Rule};

/// A text, or the arguments of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    Text(String),
    Arguments(Value),
}

/// The decision of a check about a content.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ContentDecision {
    pub(super) decision: CheckDecision,
    pub(super) reason: Option<String>,
    /// The changed content, if it was changed.
    pub(super) content: Option<Content>,
}

impl ContentDecision {
    pub(super) fn pass() -> Self {
        ContentDecision { decision: CheckDecision::Pass, reason: None, content: None }
    }

    pub(super) fn change(content: Content, reason: String) -> Self {
        ContentDecision { decision: CheckDecision::Change, reason: Some(reason), content: Some(content) }
    }

    pub(super) fn hit(rule: &Rule, reason: String) -> Self {
        ContentDecision { decision: rule.hit(), reason: Some(reason), content: None }
    }

    /// Denies the call, because the check could not run to its end.
    pub(super) fn failed(why: String) -> Self {
        ContentDecision { decision: CheckDecision::Deny, reason: Some(why), content: None }
    }
}

impl Content {
    /// The text that patterns match, and whose size is limited.
    fn as_text(&self) -> String {
        match self {
            Content::Text(text) => text.clone(),
            Content::Arguments(value) => value.to_string(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Content::Text(text) if text.is_empty())
    }

    pub(super) fn into_arguments(self) -> Value {
        match self {
            Content::Arguments(value) => value,
            Content::Text(text) => Value::String(text),
        }
    }

    /// Identifies the content in the journal, for its changes.
    pub(super) fn digest(&self) -> String {
        domain::digest::short_sha256(self.as_text())
    }

    /// The form in which the journal stores it; [`Content::changed_to`] reads that.
    pub(super) fn stored(&self) -> String {
        self.as_text()
    }

    pub(super) fn changed_to(&self, stored: &str) -> Self {
        match self {
            Content::Text(_) => Content::Text(stored.to_owned()),
            Content::Arguments(before) => {
                Content::Arguments(serde_json::from_str(stored).unwrap_or_else(|_| before.clone()))
            }
        }
    }
}

/// Judges a content; `None` for a kind of check that needs more than the content.
pub(super) fn judge(rule: &Rule, content: &Content) -> Option<ContentDecision> {
    Some(match &rule.kind {
        Kind::Forbidden(patterns) if rule.redacts() => redact(rule, patterns, content),
        Kind::Forbidden(patterns) => match matching(patterns, &content.as_text()) {
            Some(reason) => ContentDecision::hit(rule, reason),
            None => ContentDecision::pass(),
        },
        Kind::Allowed(patterns) => {
            let text = content.as_text();
            if patterns.iter().any(|pattern| pattern.is_match(&text)) {
                ContentDecision::pass()
            } else {
                ContentDecision::hit(rule, "it matches none of the allowed patterns".into())
            }
        }
        Kind::MaxBytes(max) => size(rule, content.as_text().len() as u64, *max),
        Kind::Schema(validator) => schema(rule, validator, content),
        Kind::Unusable(why) => ContentDecision::failed(format!("this worker can't run the check: {why}")),
        Kind::Program(_) | Kind::Mcp(_) | Kind::PerMinute(_) | Kind::MaxCost(_) | Kind::Approval(_) => {
            return None;
        }
    })
}

pub(super) fn size(rule: &Rule, has: u64, max: u64) -> ContentDecision {
    if has <= max {
        return ContentDecision::pass();
    }
    ContentDecision::hit(rule, format!("it has {has} bytes, and {max} are allowed"))
}

fn matching(patterns: &[Regex], text: &str) -> Option<String> {
    let at = patterns.iter().position(|pattern| pattern.is_match(text))?;
    Some(format!("it matches pattern {} of {}", at + 1, patterns.len()))
}

fn schema(rule: &Rule, wanted: &JsonSchema, content: &Content) -> ContentDecision {
    let parsed = match content {
        Content::Arguments(value) => value.clone(),
        Content::Text(text) => match serde_json::from_str(without_fence(text.trim())) {
            Ok(value) => value,
            Err(error) => return ContentDecision::hit(rule, format!("it is not JSON: {error}")),
        },
    };
    let errors: Vec<String> = wanted.mistakes(&parsed, 3).into_iter().map(|(_, error)| error).collect();
    if errors.is_empty() {
        return ContentDecision::pass();
    }
    ContentDecision::hit(rule, format!("it does not match the schema: {}", errors.join("; ")))
}

/// The JSON without the code fence that models often put around it.
fn without_fence(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner).trim())
}

/// Replaces every match. In arguments each text is redacted alone. A match that is left spans
/// several texts or is outside of them, so it can't be redacted, and the call is denied.
fn redact(rule: &Rule, patterns: &[Regex], content: &Content) -> ContentDecision {
    let mark = format!("[redacted:{}]", rule.name);
    let mut count = 0;
    let redacted = match content {
        Content::Text(text) => Content::Text(redact_text(patterns, text, &mark, &mut count)),
        Content::Arguments(value) => Content::Arguments(redact_value(patterns, value, &mark, &mut count)),
    };
    let rest = redacted.as_text().replace(&mark, "");
    if let (Content::Arguments(_), Some(reason)) = (content, matching(patterns, &rest)) {
        return ContentDecision::hit(rule, format!("{reason}, which can't be redacted"));
    }
    match count {
        0 => ContentDecision::pass(),
        count => ContentDecision::change(redacted, format!("{count} matches were redacted")),
    }
}

fn redact_text(patterns: &[Regex], text: &str, mark: &str, count: &mut usize) -> String {
    let mut text = text.to_owned();
    for pattern in patterns {
        // A pattern searches the text between two marks, and never a mark itself.
        let parts: Vec<String> = text
            .split(mark)
            .map(|part| {
                *count += pattern.find_iter(part).count();
                pattern.replace_all(part, regex::NoExpand(mark)).into_owned()
            })
            .collect();
        text = parts.join(mark);
    }
    text
}

fn redact_value(patterns: &[Regex], value: &Value, mark: &str, count: &mut usize) -> Value {
    match value {
        Value::String(text) => Value::String(redact_text(patterns, text, mark, count)),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| redact_value(patterns, item, mark, count)).collect())
        }
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| (key.clone(), redact_value(patterns, value, mark, count)))
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use domain::check::Check;
    use serde_json::json;

    use super::*;

    fn judged(check: Value, content: Content) -> ContentDecision {
        let check: Check = serde_json::from_value(check).unwrap();
        judge(&Rule::new(&check), &content).unwrap()
    }

    fn text(text: &str) -> Content {
        Content::Text(text.into())
    }

    fn denied(check: Value, content: Content) -> bool {
        judged(check, content).decision == CheckDecision::Deny
    }

    #[test]
    fn b16_a_pattern_denies_what_matches_and_never_quotes_it() {
        let check = json!({"name": "keys", "pattern": {"deny": ["nothing", "sk-[a-z0-9]+"]}});
        assert_eq!(judged(check.clone(), text("no key")), ContentDecision::pass());
        let decided = judged(check.clone(), text("my key is sk-abc123"));
        assert_eq!(decided.reason.as_deref(), Some("it matches pattern 2 of 2"));
        assert_eq!(decided.decision, CheckDecision::Deny);
        assert!(denied(check, Content::Arguments(json!({"key": ["sk-abc"]}))));
        let allow = json!({"name": "polite", "pattern": {"allow": ["^Dear"]}});
        assert_eq!(judged(allow.clone(), text("Dear Ada")), ContentDecision::pass());
        assert!(denied(allow, text("Hey")));
    }

    #[test]
    fn b16_a_redaction_leaves_nothing_of_a_match_in_texts_and_arguments() {
        let check =
            json!({"name": "keys", "then": "redact", "pattern": {"deny": ["sk-[a-z0-9]+", "red[a-z]+"]}});
        let decided = judged(check.clone(), text("a sk-1 and sk-2, reddish"));
        let expected = text("a [redacted:keys] and [redacted:keys], [redacted:keys]");
        assert_eq!((decided.decision, decided.content), (CheckDecision::Change, Some(expected)));
        let decided = judged(check, Content::Arguments(json!({"a": ["sk-1", 2], "b": {"c": "sk-2"}})));
        let expected = json!({"a": ["[redacted:keys]", 2], "b": {"c": "[redacted:keys]"}});
        assert_eq!(decided.content, Some(Content::Arguments(expected)));
    }

    #[test]
    fn b16_a_match_that_can_not_be_redacted_is_denied() {
        let check =
            json!({"name": "cards", "then": "redact", "pattern": {"deny": ["[0-9]{16}", "\"pin\":"]}});
        assert!(denied(check.clone(), Content::Arguments(json!({"card": 4_111_111_111_111_111_u64}))));
        assert!(denied(check.clone(), Content::Arguments(json!({"pin": 1}))));
        let decided = judged(check, Content::Arguments(json!({"card": "4111111111111111"})));
        assert_eq!(decided.decision, CheckDecision::Change);
    }

    #[test]
    fn b16_a_size_and_a_schema_deny_what_does_not_fit() {
        let size = json!({"name": "short", "size": {"max_bytes": 4}});
        assert_eq!(judged(size.clone(), text("1234")), ContentDecision::pass());
        assert!(denied(size, text("12345")));
        let schema = json!({"name": "form", "schema": {"type": "object", "required": ["path"]}});
        assert_eq!(judged(schema.clone(), Content::Arguments(json!({"path": "a"}))), ContentDecision::pass());
        assert_eq!(judged(schema.clone(), text("```json\n{\"path\": 1}\n```")), ContentDecision::pass());
        assert!(denied(schema.clone(), text("no JSON")));
        let halts =
            json!({"name": "form", "then": "halt", "schema": {"type": "object", "required": ["path"]}});
        let decided = judged(halts, Content::Arguments(json!({})));
        assert_eq!(decided.decision, CheckDecision::Halt);
        assert!(decided.reason.unwrap().contains("path"));
    }

    #[test]
    fn b16_a_check_that_can_not_be_understood_denies() {
        assert!(denied(json!({"name": "none"}), text("anything")));
        assert!(denied(json!({"name": "bad", "pattern": {"deny": ["("]}}), text("anything")));
    }
}
