//! The answers of earlier attempts. A program that is started again repeats its requests. A request that was answered
//! before gets the recorded answer, each answer once and in order, and is not paid again.
//!
//! After a result that was refused, because it does not fit `output_schema`, nothing from before is repeated: the same
//! answers would lead to the same result. The program then begins anew behind that entry.

use std::collections::{BTreeMap, VecDeque};

use shared::{
    graph::OutputSchema,
    wire::{Execute, HistoryEntry, HistoryStep, ModelStep, Payload, ResultStep, ToolStep, Verdict},
};

use crate::tool::human;

#[derive(Debug, Default)]
pub(super) struct Replay {
    models: BTreeMap<String, VecDeque<ModelStep>>,
    tools: BTreeMap<String, VecDeque<ToolStep>>,
    /// How often each request was made: before a refused result, and in this attempt.
    made: BTreeMap<String, u32>,
    pub(super) retries: u32,
    /// The result, if the context has ended. A retryable failure is not an end.
    pub(super) result: Option<ResultStep>,
    /// Why its last result was refused, if one was.
    pub(super) refused: Option<String>,
    /// How many requests were answered before that, and how many of them asked a human.
    pub(super) steps: u32,
    pub(super) questions: usize,
}

impl Replay {
    pub(super) fn new(work: &Execute, entries: &[HistoryEntry]) -> Self {
        let mut replay = Replay::default();
        for entry in entries {
            match &entry.step {
                HistoryStep::Model(step) => {
                    replay.retries = replay.retries.max(step.retries);
                    if let Some(fingerprint) = &step.asked {
                        replay.models.entry(fingerprint.clone()).or_default().push_back((**step).clone());
                    }
                }
                HistoryStep::Tool(step) => {
                    replay.tools.entry(step.id.clone()).or_default().push_back((**step).clone());
                }
                HistoryStep::Result(result) => match refusal(work, &result.verdict) {
                    Some(why) => replay.begin_anew(why),
                    None => {
                        let again = matches!(&result.verdict, Verdict::Failed(f) if f.retryable);
                        replay.result = (!again).then(|| (**result).clone());
                    }
                },
                HistoryStep::Began { .. }
                | HistoryStep::Restored { .. }
                | HistoryStep::Branched { .. }
                | HistoryStep::Compacted { .. } => {}
            }
        }
        replay
    }

    /// What was answered so far is not given again, but counts.
    fn begin_anew(&mut self, why: String) {
        let models: usize = std::mem::take(&mut self.models).values().map(VecDeque::len).sum();
        let mut answered = models;
        for (fingerprint, steps) in std::mem::take(&mut self.tools) {
            answered += steps.len();
            self.questions += steps.iter().filter(|step| step.tool.as_str() == human::NAME).count();
            *self.made.entry(fingerprint).or_default() += count(steps.len());
        }
        self.steps = self.steps.saturating_add(count(answered));
        self.refused = Some(why);
    }

    pub(super) fn model(&mut self, fingerprint: &str) -> Option<ModelStep> {
        self.models.get_mut(fingerprint)?.pop_front()
    }

    pub(super) fn tool(&mut self, fingerprint: &str) -> Option<ToolStep> {
        self.tools.get_mut(fingerprint)?.pop_front()
    }

    /// Identifies one request among equal ones, the same in every attempt.
    pub(super) fn place(&mut self, fingerprint: &str) -> String {
        let made = self.made.entry(fingerprint.to_owned()).or_default();
        *made += 1;
        format!("{}-{made}", &fingerprint[..12])
    }
}

/// Why the coordinator refuses a result, if it does: it checks the same schema.
fn refusal(work: &Execute, verdict: &Verdict) -> Option<String> {
    let Verdict::Completed(payload) = verdict else { return None };
    // An invalid schema was already refused when the work was submitted.
    let schema = OutputSchema::compile(work.output_schema.as_ref()?).ok()?;
    match payload {
        Payload::Inline(value) => schema.check(value).err(),
        Payload::Reference(_) => Some("the result is too large to be checked against its schema".into()),
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
