//! Redacts a text before it is cut. After a cut, the remaining half of a match would no longer
//! match, and would be sent.

use domain::check::{Check, Moment, OnHit};

use super::{
    content::{self, Content},
    rule::Rule,
};

/// The patterns that redact messages to a model.
#[derive(Debug)]
pub(crate) struct Redaction(Vec<Rule>);

impl Redaction {
    pub(crate) fn of_messages(checks: &[Check]) -> Self {
        let redacting = checks.iter().filter(|check| check.then == Some(OnHit::Redact)).map(Rule::new);
        Redaction(redacting.filter(|rule| rule.redacts() && rule.runs_on(Moment::BeforeCall)).collect())
    }

    /// The text without the matches.
    pub(crate) fn apply(&self, text: String) -> String {
        self.0.iter().fold(text, |text, rule| {
            let content = Content::Text(text);
            let changed = content::judge(rule, &content).and_then(|decided| decided.content);
            match changed.unwrap_or(content) {
                Content::Text(text) => text,
                Content::Arguments(value) => value.to_string(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b16_only_checks_that_redact_messages_apply_before_a_cut() {
        let checks: Vec<Check> = serde_json::from_value(json!([
            {"name": "keys", "then": "redact", "pattern": {"deny": ["sk-[a-z]{8,}"]}},
            {"name": "answers", "then": "redact", "on": ["after_call"], "pattern": {"deny": ["tulip"]}},
            {"name": "words", "pattern": {"deny": ["rose"]}},
        ]))
        .unwrap();
        let redacted = Redaction::of_messages(&checks).apply("tulip rose sk-abcdefghij".into());
        assert_eq!(redacted, "tulip rose [redacted:keys]");
    }
}
