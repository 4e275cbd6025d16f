//! The approval of a human. The context parks with a question; the answer comes with its next attempt, and its entry in the
//! journal uses it up, so that each call is asked about once.

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

/// The answers of a human that let a call go on.
const YES: [&str; 7] = ["yes", "y", "ok", "approve", "approved", "allow", "allowed"];
/// How much of an answer is kept.
const KEPT_BYTES: usize = 1000;

impl Checker<'_> {
    /// What a human said about a call, or the question to ask. Only an answer to this very question counts: one to another
    /// question, whose call was not made after all, is used up by an entry of its own.
    pub(super) async fn approval(
        &self,
        rule: &Rule,
        moment: Moment,
        what: &str,
    ) -> Result<ContentDecision, Text> {
        let agent = &self.attempt.work.agent.agent_id;
        let question = format!(
            "The check `{}` needs your approval: `{agent}` wants to {what}. Answer `yes` to allow it. Any other answer denies it, and the agent is told your answer.",
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
