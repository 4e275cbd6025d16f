//! A conversation as its journal tells it: what was said, what is still to be answered, what comes next.
//! Pure: the same journal gives the same conversation on any worker.

use shared::{
    Json,
    wire::{HistoryEntry, HistoryStep, ModelStep, ResultStep, ToolCall, ToolOutput, ToolStep},
};

use crate::{
    model::Message,
    window::{Category, Window},
};

#[derive(Debug, Default)]
pub(super) struct Conversation {
    turns: Vec<Turn>,
    pub(super) result: Option<ResultStep>,
}

/// A model's answer, and what became of the tools it called.
#[derive(Debug)]
struct Turn {
    /// Its place in the journal.
    number: u32,
    step: ModelStep,
    answered: Vec<ToolStep>,
    /// What is said to the model because of its answer, if that was not one.
    correction: Option<String>,
}

/// A call that is still to be answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pending {
    pub(super) call: ToolCall,
    /// Names it within its context, the same at every attempt.
    pub(super) place: String,
    /// It is the only one of its turn.
    pub(super) alone: bool,
}

/// What comes next.
#[derive(Debug, PartialEq)]
pub(super) enum Next<'a> {
    AskModel,
    CallTools(Vec<Pending>),
    /// It has said its last word, if that is one.
    Judge(&'a ModelStep),
}

impl Conversation {
    /// What a journal tells. An answer that another one follows was no answer: `judge` says again why.
    pub(super) fn of(entries: &[HistoryEntry], judge: impl Fn(&ModelStep) -> Result<Json, String>) -> Self {
        let mut conversation = Conversation::default();
        for entry in entries {
            if let (HistoryStep::Model(_), Next::Judge(step)) = (&entry.step, conversation.next())
                && let Err(why) = judge(step)
            {
                conversation.correct(why);
            }
            conversation.add(entry);
        }
        conversation
    }

    pub(super) fn add(&mut self, entry: &HistoryEntry) {
        match &entry.step {
            HistoryStep::Model(step) => {
                let (number, step) = (entry.number, (**step).clone());
                self.turns.push(Turn { number, step, answered: Vec::new(), correction: None });
            }
            HistoryStep::Tool(step) => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.answered.push((**step).clone());
                }
            }
            HistoryStep::Result(step) => self.result = Some((**step).clone()),
            HistoryStep::Began { .. } | HistoryStep::Branched { .. } | HistoryStep::Restored { .. } => {}
        }
    }

    pub(super) fn next(&self) -> Next<'_> {
        let Some(turn) = self.turns.last() else { return Next::AskModel };
        let pending = turn.pending();
        if !pending.is_empty() {
            return Next::CallTools(pending);
        }
        if turn.step.tool_calls.is_empty() && turn.correction.is_none() {
            return Next::Judge(&turn.step);
        }
        Next::AskModel
    }

    /// The last answer was none, and this is why.
    pub(super) fn correct(&mut self, why: String) {
        if let Some(turn) = self.turns.last_mut() {
            turn.correction = Some(why);
        }
    }

    /// How often the model has answered.
    pub(super) fn answers(&self) -> usize {
        self.turns.len()
    }

    /// Every tool call and every answer without one is a step (L).
    pub(super) fn steps(&self) -> u32 {
        let steps = self
            .turns
            .iter()
            .map(|turn| turn.answered.len().max(usize::from(turn.step.tool_calls.is_empty())));
        u32::try_from(steps.sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// The last answer, and how many turns came before it.
    pub(super) fn last(&self) -> Option<&ModelStep> {
        self.turns.last().map(|turn| &turn.step)
    }

    /// Adds what was said to a window, but for the last `leave` turns.
    pub(super) fn show(&self, window: &mut Window, leave: usize) {
        for turn in self.turns.iter().take(self.turns.len().saturating_sub(leave)) {
            turn.show(window);
        }
    }
}

impl Turn {
    fn pending(&self) -> Vec<Pending> {
        let alone = self.step.tool_calls.len() == 1;
        let calls = (1..).zip(&self.step.tool_calls);
        calls
            .filter(|(_, call)| !self.answered.iter().any(|step| step.id == call.id))
            .map(|(n, call)| Pending { call: call.clone(), place: format!("{}-{n}", self.number), alone })
            .collect()
    }

    fn show(&self, window: &mut Window) {
        let said = Message::Assistant { text: self.step.text.clone(), calls: self.step.tool_calls.clone() };
        if self.step.tool_calls.is_empty() {
            window.add(Category::Dialog, vec![said]);
        } else {
            let answers = self.step.tool_calls.iter().filter_map(|call| {
                let step = self.answered.iter().find(|step| step.id == call.id)?;
                Some(Message::Tool { id: call.id.clone(), tool: call.tool.clone(), content: shown(step) })
            });
            window.add(Category::Tools, std::iter::once(said).chain(answers).collect());
        }
        if let Some(why) = &self.correction {
            window.add(Category::Dialog, vec![Message::User(why.clone())]);
        }
    }
}

fn shown(step: &ToolStep) -> String {
    let text = match &step.output {
        ToolOutput::Inline(text) => text,
        ToolOutput::Offloaded { preview, .. } => preview,
    };
    if step.is_error { format!("error: {text}") } else { text.clone() }
}
