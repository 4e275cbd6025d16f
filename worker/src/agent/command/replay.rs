//! The answers of earlier attempts. A restarted program repeats its requests. A request that was
//! answered before gets the recorded answer, each answer once and in order, and is not paid again.
//!
//! A result that does not fit `output_schema` is refused. The answers before it are not replayed,
//! since they would lead to the same result. The program then begins anew after that entry.

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
    /// The recorded answers by fingerprint, each with the number of its entry.
    models: BTreeMap<String, VecDeque<(u32, ModelStep)>>,
    tools: BTreeMap<String, VecDeque<(u32, ToolStep)>>,
    /// The messages that this attempt has not sent to the program yet.
    told: VecDeque<(u32, ToldLine)>,
    /// The number of the last rung of the budget, and the model that the rungs changed to (B21).
    pub(super) last_rung: u32,
    pub(super) model: Option<ModelName>,
    /// The number of times that each request was made: before a refused result, and in this
    /// attempt.
    made: BTreeMap<String, u32>,
    pub(super) retries: u32,
    /// The result, if the context has ended. A retryable failure is not an end.
    pub(super) result: Option<ResultStep>,
    /// The reason why the last result was refused, if it was.
    pub(super) refused: Option<String>,
    /// The number of requests that were answered before that refusal.
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

    /// Records an entry that becomes a `told` line of the program.
    pub(super) fn add_news(&mut self, entry: &HistoryEntry) {
        self.told.extend(ToldLine::of(&entry.step).map(|line| (entry.number, line)));
        if let HistoryStep::Rung(rung) = &entry.step {
            self.last_rung = rung.number;
            self.model = news::model_of(rung).cloned().or_else(|| self.model.take());
        }
    }

    /// Removes and returns the messages before the entry of this number; without a number, all of
    /// them.
    pub(super) fn told_before(&mut self, number: Option<u32>) -> Vec<ToldLine> {
        let before = |told: &&(u32, ToldLine)| number.is_none_or(|number| told.0 < number);
        let count = self.told.iter().take_while(before).count();
        self.told.drain(..count).map(|(_, line)| line).collect()
    }

    /// Discards the recorded answers, but includes them in the counts of steps and of requests.
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

    /// Identifies one request among equal ones, with the same text in every attempt.
    pub(super) fn place(&mut self, fingerprint: &str) -> String {
        let made = self.made.entry(fingerprint.to_owned()).or_default();
        *made += 1;
        format!("{}-{made}", &fingerprint[..12])
    }
}

/// The reason why the coordinator refuses a result, if it does. The coordinator checks the same
/// schema.
fn refusal(work: &Execute, verdict: &Verdict) -> Option<String> {
    let Verdict::Completed(payload) = verdict else { return None };
    // An invalid schema was already rejected when the work was submitted.
    let schema = OutputSchema::compile(work.output_schema.as_ref()?).ok()?;
    match payload {
        Payload::Inline(value) => schema.check(value).err(),
        Payload::Reference(_) => Some("the result is too large to be checked against its schema".into()),
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
