//! What earlier attempts were answered. A program that is started again asks again; a question that was
//! answered before gets the same answer, each once and in order, and is not paid for again.

use std::collections::{BTreeMap, VecDeque};

use shared::wire::{HistoryEntry, HistoryStep, ModelStep, ResultStep, ToolStep};

#[derive(Debug, Default)]
pub(super) struct Replay {
    models: BTreeMap<String, VecDeque<ModelStep>>,
    tools: BTreeMap<String, VecDeque<ToolStep>>,
    /// How often each question was put in this attempt.
    put: BTreeMap<String, u32>,
    pub(super) retries: u32,
    /// How it ended, if it has: one that may be tried again has not.
    pub(super) result: Option<ResultStep>,
}

impl Replay {
    pub(super) fn new(entries: &[HistoryEntry]) -> Self {
        let mut replay = Replay::default();
        for entry in entries {
            match &entry.step {
                HistoryStep::Model(step) => {
                    replay.retries = replay.retries.max(step.retries);
                    if let Some(asked) = &step.asked {
                        replay.models.entry(asked.clone()).or_default().push_back((**step).clone());
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

    pub(super) fn model(&mut self, asked: &str) -> Option<ModelStep> {
        self.models.get_mut(asked)?.pop_front()
    }

    pub(super) fn tool(&mut self, asked: &str) -> Option<ToolStep> {
        self.tools.get_mut(asked)?.pop_front()
    }

    /// Names one question among its equals, the same at every attempt.
    pub(super) fn place(&mut self, asked: &str) -> String {
        let put = self.put.entry(asked.to_owned()).or_default();
        *put += 1;
        format!("{}-{put}", &asked[..12])
    }
}
