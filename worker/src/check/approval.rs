//! The approval of a human. The context parks with a question; the answer comes with its next attempt, and its entry in the
//! journal uses it up, so that each call is asked about once.

use shared::{text, wire::Text};

use super::{checker::Checker, content::Decided, rule::Rule};

/// The answers of a human that let a call go on.
const YES: [&str; 7] = ["yes", "y", "ok", "approve", "approved", "allow", "allowed"];
/// How much of an answer is kept.
const KEPT_BYTES: usize = 1000;

impl Checker<'_> {
    /// What a human said about a call, or the question to ask.
    pub(super) fn approval(&self, rule: &Rule, what: &str) -> Result<Decided, Text> {
        match self.attempt.work.answers.get(self.answers_used()) {
            Some(given) => {
                let said = given.answer.as_str().trim();
                let is_yes =
                    YES.iter().any(|yes| said.trim_end_matches(['.', '!']).eq_ignore_ascii_case(yes));
                Ok(if is_yes {
                    Decided { reason: Some("a human approved it".into()), ..Decided::pass() }
                } else {
                    let said = text::cut(said.to_owned(), KEPT_BYTES);
                    Decided::hit(rule, format!("a human did not approve it: {said}"))
                })
            }
            None => {
                let agent = &self.attempt.work.agent.agent_id;
                let question = format!(
                    "The check `{}` needs your approval: `{agent}` wants to {what}. Answer `yes` to allow it. Any other answer denies it, and the agent is told your answer.",
                    rule.name
                );
                Err(Text::new(question.as_str()).expect("a short text"))
            }
        }
    }
}
