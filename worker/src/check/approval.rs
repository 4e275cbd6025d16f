//! The approval of a human. The context parks with a question, and its next attempt has the answer.
//! The journal entry marks the answer as used, so each call is asked about once.

use domain::{
    check::Moment,
    wire::{CheckedStep, Text},
    wording,
};

use super::{
    checker::{Checker, step},
    content::ContentDecision,
    rule::Rule,
};

/// The answers of a human that approve a call.
const YES: [&str; 7] = ["yes", "y", "ok", "approve", "approved", "allow", "allowed"];
/// The most bytes that are stored of an answer.
const KEPT_BYTES: usize = 1000;

impl Checker<'_> {
    /// Returns the decision of a human about a call, or the question to ask. Only an answer to the
    /// same question matches. An earlier answer belongs to a call that was not made after all; a
    /// separate entry marks it as used.
    pub(super) async fn approval(
        &self,
        rule: &Rule,
        moment: Moment,
        what: &str,
    ) -> Result<ContentDecision, Text> {
        let agent = &self.attempt.work.agent.agent_id;
        let question = format!(
            "The check `{}` needs your approval: `{agent}` wants to {what}. Answer `yes` to allow it. Any other answer denies it, and the agent receives your answer.",
            rule.name
        );
        let question = Text::new(question.as_str()).expect("a short text");
        let used = self.answers_used();
        match self.attempt.answer_to(&question, used) {
            Some((place, given)) => {
                for _ in used..place {
                    let reason = Some("an answer to another question was not used".into());
                    let skipped = step(rule, moment, ContentDecision { reason, ..ContentDecision::pass() });
                    self.write(CheckedStep { asked: true, ..skipped }).await;
                }
                let said = given.answer.as_str().trim();
                let is_yes =
                    YES.iter().any(|yes| said.trim_end_matches(['.', '!']).eq_ignore_ascii_case(yes));
                Ok(if is_yes {
                    ContentDecision { reason: Some("a human approved it".into()), ..ContentDecision::pass() }
                } else {
                    let said = wording::cut(said.to_owned(), KEPT_BYTES);
                    ContentDecision::hit(rule, format!("a human did not approve it: {said}"))
                })
            }
            None => Err(question),
        }
    }
}
