//! The answers of earlier attempts. A program that is started again repeats its requests. A request that was answered
//! before gets the recorded answer, each answer once and in order, and is not paid again.
//!
//! After a result that was refused, because it does not fit `output_schema`, nothing from before is repeated: the same
//! answers would lead to the same result. The program then begins anew behind that entry.

use std::collections::{BTreeMap, VecDeque};

use domain::{
    graph::OutputSchema,
    id::ModelName,
    wire::{Execute, HistoryEntry, HistoryStep, ModelStep, Payload, ResultStep, ToolStep, Verdict},
};

use super::message::ToldLine;
use crate::agent::news;

#[derive(Debug, Default)]
pub(super) struct Replay {
    /// With the numbers of their entries.
    models: BTreeMap<String, VecDeque<(u32, ModelStep)>>,
    tools: BTreeMap<String, VecDeque<(u32, ToolStep)>>,
    /// What the program was told, and this attempt of it not yet.
    told: VecDeque<(u32, ToldLine)>,
    /// The last rung of the budget that counts, and the model that the rungs changed to (B21).
    pub(super) last_rung: u32,
    pub(super) model: Option<ModelName>,
    /// How often each request was made: before a refused result, and in this attempt.
    made: BTreeMap<String, u32>,
    pub(super) retries: u32,
    /// The result, if the context has ended. A retryable failure is not an end.
    pub(super) result: Option<ResultStep>,
    /// Why its last result was refused, if one was.
    pub(super) refused: Option<String>,
    /// How many requests were answered before that.
    pub(super) steps: u32,
}

impl Replay {
    pub(super) fn new(work: &Execute, entries: &[HistoryEntry]) -> Self {
        let mut replay = Replay::default();
        for entry in entries {
            replay.add_news(entry);
            match &entry.step {
                HistoryStep::Model(step) => {
                    replay.retries = replay.retries.max(step.retries);
                    if let Some(fingerprint) = &step.asked {
                        replay
                            .models
                            .entry(fingerprint.clone())
                            .or_default()
                            .push_back((entry.number, (**step).clone()));
                    }
                }
                HistoryStep::Tool(step) => {
                    let steps = replay.tools.entry(step.id.clone()).or_default();
                    steps.push_back((entry.number, (**step).clone()));
                }
                HistoryStep::Result(result) => match refusal(work, &result.verdict) {
                    Some(why) => replay.begin_anew(why),
                    None => {
                        let again = matches!(&result.verdict, Verdict::Failed(f) if f.retryable);
                        replay.result = (!again).then(|| (**result).clone());
                    }
                },
                HistoryStep::Told(_)
                | HistoryStep::Rung(_)
                | HistoryStep::Began { .. }
                | HistoryStep::Lost(_)
                | HistoryStep::Received { .. }
                | HistoryStep::Restored { .. }
                | HistoryStep::Branched { .. }
                | HistoryStep::Compacted { .. }
                | HistoryStep::Checked(_) => {}
            }
        }
        replay
    }

    /// Takes in an entry that the program is told of.
    pub(super) fn add_news(&mut self, entry: &HistoryEntry) {
        self.told.extend(ToldLine::of(&entry.step).map(|line| (entry.number, line)));
        if let HistoryStep::Rung(rung) = &entry.step {
            self.last_rung = rung.number;
            self.model = news::model_of(rung).cloned().or_else(|| self.model.take());
        }
    }

    /// What the program was told before the entry of this number; without a number, all of it.
    pub(super) fn told_before(&mut self, number: Option<u32>) -> Vec<ToldLine> {
        let before = |told: &&(u32, ToldLine)| number.is_none_or(|number| told.0 < number);
        let count = self.told.iter().take_while(before).count();
        self.told.drain(..count).map(|(_, line)| line).collect()
    }

    /// What was answered so far is not given again, but counts.
    fn begin_anew(&mut self, why: String) {
        let models: usize = std::mem::take(&mut self.models).values().map(VecDeque::len).sum();
        let mut answered = models;
        for (fingerprint, steps) in std::mem::take(&mut self.tools) {
            answered += steps.len();
            *self.made.entry(fingerprint).or_default() += count(steps.len());
        }
        self.steps = self.steps.saturating_add(count(answered));
        self.refused = Some(why);
    }

    pub(super) fn model(&mut self, fingerprint: &str) -> Option<(u32, ModelStep)> {
        self.models.get_mut(fingerprint)?.pop_front()
    }

    pub(super) fn tool(&mut self, fingerprint: &str) -> Option<(u32, ToolStep)> {
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
