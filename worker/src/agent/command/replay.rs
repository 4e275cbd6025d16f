//! The answers of earlier attempts. A program that is started again repeats its requests. A request that was answered
//! before gets the recorded answer, each answer once and in order, and is not paid again.

use std::collections::{BTreeMap, VecDeque};

use shared::wire::{HistoryEntry, HistoryStep, ModelStep, ResultStep, ToolStep};

#[derive(Debug, Default)]
pub(super) struct Replay {
    models: BTreeMap<String, VecDeque<ModelStep>>,
    tools: BTreeMap<String, VecDeque<ToolStep>>,
    /// How often each request was made in this attempt.
    made: BTreeMap<String, u32>,
    pub(super) retries: u32,
    /// The result, if the context has ended. A retryable failure is not an end.
    pub(super) result: Option<ResultStep>,
}

impl Replay {
    pub(super) fn new(entries: &[HistoryEntry]) -> Self {
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
                HistoryStep::Result(result) => {
                    let again = matches!(&result.verdict, shared::wire::Verdict::Failed(f) if f.retryable);
                    replay.result = (!again).then(|| (**result).clone());
                }
                HistoryStep::Began { .. } | HistoryStep::Restored { .. } | HistoryStep::Branched { .. } => {}
            }
        }
        replay
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
