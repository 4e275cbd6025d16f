//! Makes room in a full window (W7). Each compaction is a journal entry, so any worker continues
//! with the same window. A summary is a paid call like any other: it is repeated after a crash
//! before its entry, and never after that entry.

use domain::{
    agent::Compaction,
    wire::{CompactionKind, HistoryStep, Verdict},
};

use super::{
    agent::Agent,
    compaction::{self, Plan, Sizes},
    summary,
    window::Estimate,
};
use crate::{
    agent::{tool_step, verdict::plain_question},
    billing::{
        model_call::{self, CallOutcome, Shortage},
        token_bound::PaidRequest,
    },
    check::Redaction,
    model::ScriptInput,
};

/// The longest summary, in tokens, and the shortest that is asked for.
const MAX_SUMMARY_TOKENS: u64 = 1024;
const MIN_SUMMARY_TOKENS: u64 = 64;
/// A summary takes at most this part of the window: one eighth.
const SUMMARY_PART: u64 = 8;

impl Agent<'_> {
    /// Compacts a window that is nearly full, or that a rung of the budget asks to be smaller (B21).
    pub(super) async fn compact(&mut self, reserved: u64) -> Result<(), Verdict> {
        if self.conversation.wants_compaction() {
            let as_it_is = reserved + self.window().tokens(self.estimate());
            self.make_room(as_it_is, reserved).await?;
        }
        match self.size() {
            Some(size) => self.make_room(size.count(), reserved).await,
            None => Ok(()),
        }
    }

    /// Compacts until the messages and `reserved` tokens beside them take at most nine tenths of
    /// `limit`, or nothing is left to compact. Returns a verdict if the context ends or waits
    /// instead.
    async fn make_room(&mut self, limit: u64, reserved: u64) -> Result<(), Verdict> {
        let longest = (limit / SUMMARY_PART).clamp(MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS);
        let max_tokens =
            u32::try_from(longest).unwrap_or(u32::MAX).min(self.work().limits.max_tokens_per_step);
        let estimate = self.estimate();
        loop {
            let exchanges = self.conversation.exchanges(self.terms(), estimate);
            let shown: u64 = exchanges.iter().map(|exchange| exchange.tokens).sum();
            let fixed = (reserved + self.window().tokens(estimate)).saturating_sub(shown);
            let sizes = Sizes { limit, fixed, summary: max_tokens.into(), exchanges: &exchanges };
            let (from, to, how) = match compaction::next(sizes) {
                None => return Ok(()),
                Some(Plan::Refer { from, to }) => (from, to, CompactionKind::References),
                Some(Plan::Remove { from, to, summarise }) => {
                    let wanted = summarise && self.work().agent.compaction == Compaction::Summary;
                    if wanted && self.summarise(to, max_tokens, limit).await? {
                        continue;
                    }
                    (from, to, CompactionKind::Dropped)
                }
            };
            let entry = self.journal.append(HistoryStep::Compacted { from, to, how }).await;
            tool_step::note_in_history(self.workspace, &entry);
            self.take(&entry);
        }
    }

    /// Makes a summary of everything up to entry `to`, by the cheaper model if there is one.
    /// Returns false without a summary: the money is too little, the provider fails, a check denies
    /// it, or the request itself is too large.
    async fn summarise(&mut self, to: u32, max_tokens: u32, limit: u64) -> Result<bool, Verdict> {
        let work = self.work();
        // The parts are cut later, so redaction comes first: a pattern would miss a match that is
        // cut in half (B16).
        let transcript =
            self.conversation.transcript(self.terms(), to, |message| self.checker.as_sent(message));
        let redaction = Redaction::of_messages(&work.agent.checks);
        let transcript: Vec<String> = transcript.into_iter().map(|part| redaction.apply(part)).collect();
        let request = summary::request(work.goal.as_str(), &transcript, max_tokens, self.estimate(), limit);
        let Some(messages) = request else { return Ok(false) };
        let request = PaidRequest {
            messages: &messages,
            tools: &[],
            output_schema: None,
            max_tokens,
            closing: false,
            earlier: None,
            script: Some(ScriptInput {
                turns: &work.agent.script,
                goal: work.goal.as_str(),
                inputs: &work.inputs,
                answered: self.conversation.answers(),
                closing: false,
                summary: true,
            }),
            model: self.conversation.model(),
            seen: None,
            asked: None,
            summary_of: Some(to),
        };
        let (meter, models) = (self.run.meter, &self.run.resources.models);
        match model_call::call(meter, models, self.journal, self.checker, &request).await {
            CallOutcome::Answered(step) => {
                self.take_last();
                Ok(step.denied().is_none())
            }
            CallOutcome::Halted(verdict) => Err(verdict),
            CallOutcome::Asks { question } => Err(plain_question(question)),
            CallOutcome::News(_) => unreachable!("a summary asks for no news"),
            CallOutcome::CannotAfford(Shortage { pause: true, .. }) => Err(Verdict::OutOfBudget),
            CallOutcome::CannotAfford(Shortage { why, .. }) => {
                tracing::debug!(why, "the money that is left");
                tracing::debug!("no money for a summary: exchanges are dropped from the window");
                Ok(false)
            }
            CallOutcome::Failed(failure) => {
                tracing::warn!(kind = ?failure.kind, "no summary: exchanges are dropped from the window");
                tracing::debug!(said = failure.message, "why");
                Ok(false)
            }
        }
    }

    /// How the tokens of this context's model are estimated.
    pub(super) fn estimate(&self) -> Estimate {
        Estimate(self.model().and_then(|model| self.run.resources.models.tokenizer(model)))
    }
}
