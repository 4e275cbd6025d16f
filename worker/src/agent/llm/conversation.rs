//! A conversation, read from its journal: the turns so far, the tool calls not answered yet, and the next action. Pure:
//! the same journal gives the same conversation on any worker.

use domain::{
    Json,
    id::ModelName,
    ladder::RungAction,
    wire::{
        CheckedStep, HistoryEntry, HistoryStep, ModelStep, ReachedRung, ResultStep, ToolCall, ToolOutput,
        ToolStep,
    },
};

use super::{
    compacted::{self, CompactedEntries},
    window::{Category, Estimate, Window},
};
use crate::{agent::news, model::Message};

/// The model sees how many steps are left once at most this many remain (L).
const LAST_STEPS: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// Messages to the agent before its first turn.
    first: Vec<String>,
    turns: Vec<Turn>,
    /// The changes that the rungs of its budget made (B21).
    rungs: Rungs,
    /// The entries that the window no longer shows.
    compacted: CompactedEntries,
    /// The number of retries of calls.
    retries: u32,
    pub(super) result: Option<ResultStep>,
}

#[derive(Debug, Default)]
struct Rungs {
    /// The number of the last rung; 0 before the first.
    last: u32,
    model: Option<ModelName>,
    /// A rung asked for a smaller window, and the window has not been compacted since.
    compact: bool,
}

/// The inputs of a window besides the journal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) max_steps: u32,
    /// The agent may call `fs.read`.
    pub(super) reads_files: bool,
}

/// One answer of the model, and the answers of the tools it called.
#[derive(Debug)]
struct Turn {
    /// The number of its journal entry.
    number: u32,
    step: ModelStep,
    answered: Vec<ToolAnswer>,
    /// The message to the model if its answer was not valid.
    correction: Option<String>,
    /// Messages to the agent that came after it.
    told: Vec<String>,
}

/// The answer of a tool, and the number of its journal entry.
#[derive(Debug)]
struct ToolAnswer {
    number: u32,
    step: ToolStep,
}

/// The size of an exchange: an answer of the model, and the answers of the tools it called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    /// The numbers of its first and last journal entry.
    pub(super) first: u32,
    pub(super) last: u32,
    /// Its tokens as it is shown, and with its tool outputs as references.
    pub(super) tokens: u64,
    pub(super) as_references: u64,
}

/// A tool call that is not answered yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pending {
    pub(super) call: ToolCall,
    /// Names the call within its context, with the same text in every attempt.
    pub(super) place: String,
    /// The turn has no other call.
    pub(super) alone: bool,
}

/// The next action of the agent.
#[derive(Debug, PartialEq)]
pub(super) enum Next<'a> {
    AskModel,
    CallTools(Vec<Pending>),
    /// No tool was called: check that the text is a valid answer.
    Judge(&'a ModelStep),
}

impl Conversation {
    /// Reads a journal. An answer without tool calls that is followed by another answer was
    /// invalid. `judge` computes the reason again.
    pub(super) fn read(entries: &[HistoryEntry], judge: impl Fn(&ModelStep) -> Result<Json, String>) -> Self {
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
                self.retries = self.retries.max(step.retries);
                let correction = step.denied().map(denied);
                match step.summary_of {
                    // A summary that a check denied is ignored.
                    Some(_) if correction.is_some() => {}
                    Some(to) => {
                        self.compacted.summarise(to, step.text.as_deref());
                        self.rungs.compact = false;
                    }
                    None => {
                        let (number, step) = (entry.number, (**step).clone());
                        let (answered, told) = (Vec::new(), Vec::new());
                        self.turns.push(Turn { number, step, answered, correction, told });
                    }
                }
            }
            HistoryStep::Tool(step) => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.answered.push(ToolAnswer { number: entry.number, step: (**step).clone() });
                }
            }
            HistoryStep::Told(told) => self.message(news::message_text(told)),
            HistoryStep::Received { files } => self.message(news::received_text(files)),
            HistoryStep::Rung(rung) => self.rung(rung),
            HistoryStep::Compacted { from, to, how } => {
                self.compacted.add(*from, *to, *how);
                self.rungs.compact = false;
            }
            HistoryStep::Result(step) => self.result = Some((**step).clone()),
            HistoryStep::Began { .. }
            | HistoryStep::Lost(_)
            | HistoryStep::Branched { .. }
            | HistoryStep::Restored { .. }
            | HistoryStep::Checked(_) => {}
        }
    }

    fn message(&mut self, text: String) {
        self.turns.last_mut().map_or(&mut self.first, |turn| &mut turn.told).push(text);
    }

    fn rung(&mut self, rung: &ReachedRung) {
        self.rungs.last = rung.number;
        match &rung.action {
            RungAction::Tell => self.message(news::budget_text(rung)),
            RungAction::Model(model) => self.rungs.model = Some(model.clone()),
            RungAction::Compact => self.rungs.compact = true,
        }
    }

    /// The number of the last rung of the budget that the agent has seen.
    pub(super) fn last_rung(&self) -> u32 {
        self.rungs.last
    }

    /// The model of its calls, if a rung of its budget changed it.
    pub(super) fn model(&self) -> Option<&ModelName> {
        self.rungs.model.as_ref()
    }

    /// Returns true if a rung of the budget asked for a smaller window.
    pub(super) fn wants_compaction(&self) -> bool {
        self.rungs.compact
    }

    pub(super) fn next(&self) -> Next<'_> {
        let Some(turn) = self.turns.last() else { return Next::AskModel };
        if turn.step.closing {
            return Next::Judge(&turn.step);
        }
        let pending = turn.pending();
        if !pending.is_empty() {
            return Next::CallTools(pending);
        }
        if turn.step.tool_calls.is_empty() && turn.correction.is_none() {
            return Next::Judge(&turn.step);
        }
        Next::AskModel
    }

    /// Records why the last answer was invalid.
    pub(super) fn correct(&mut self, why: String) {
        if let Some(turn) = self.turns.last_mut() {
            turn.correction = Some(why);
        }
    }

    /// The number of answers of the model.
    pub(super) fn answers(&self) -> usize {
        self.turns.len()
    }

    /// Each tool call and each invalid answer is a step (L). The final answer is not a step.
    pub(super) fn steps(&self) -> u32 {
        self.turns.iter().map(Turn::steps).fold(0, u32::saturating_add)
    }

    pub(super) fn retries(&self) -> u32 {
        self.retries
    }

    /// The unoffered tools of the last answer, if the last two answers called only tools that were
    /// not offered.
    pub(super) fn called_unoffered_twice(&self) -> Option<&[String]> {
        let [.., before, last] = self.turns.as_slice() else { return None };
        (before.only_unoffered() && last.only_unoffered()).then_some(last.step.unoffered.as_slice())
    }

    /// The model's last answer.
    pub(super) fn last(&self) -> Option<&ModelStep> {
        self.turns.last().map(|turn| &turn.step)
    }

    /// Adds the turns that are shown to a window, except for the last `leave`.
    pub(super) fn show(&self, window: &mut Window, terms: Terms, leave: usize) {
        show_told(&self.first, window);
        let hidden = self.turns.iter().filter(|turn| self.compacted.is_hidden(turn.number));
        let dropped = hidden.filter(|turn| self.compacted.is_dropped(turn.number)).count();
        if let Some(text) = self.compacted.notice(dropped, terms.reads_files) {
            window.add(Category::Dialog, vec![Message::User(text)]);
        }
        let shown = self.turns.len().saturating_sub(leave);
        for (turn, left) in self.turns.iter().zip(self.steps_left(terms.max_steps)).take(shown) {
            if !self.compacted.is_hidden(turn.number) {
                let refers = |number| self.compacted.is_reference(number);
                turn.messages(left, terms, &refers).into_iter().for_each(|(category, messages)| {
                    window.add(category, messages);
                });
            }
            show_told(&turn.told, window);
        }
    }

    /// The exchanges that are shown, oldest first, with their sizes.
    pub(super) fn exchanges(&self, terms: Terms, estimate: Estimate) -> Vec<Exchange> {
        let tokens = |messages: Vec<(Category, Vec<Message>)>| {
            messages.iter().flat_map(|(_, messages)| messages).map(|message| estimate.message(message)).sum()
        };
        let turns = self.turns.iter().zip(self.steps_left(terms.max_steps));
        let shown = turns.filter(|(turn, _)| !self.compacted.is_hidden(turn.number));
        let size = |(turn, left): (&Turn, Option<u32>)| Exchange {
            first: turn.number,
            last: turn.last_number(),
            tokens: tokens(turn.messages(left, terms, &|number| self.compacted.is_reference(number))),
            as_references: tokens(turn.messages(left, terms, &|_| true)),
        };
        shown.map(size).collect()
    }

    /// The texts to summarise, up to entry `to`: the earlier summary and notices, then each message
    /// as a separate text. `as_sent` changes a message to the form in which it is sent to a model.
    pub(super) fn transcript(&self, terms: Terms, to: u32, as_sent: impl Fn(&mut Message)) -> Vec<String> {
        let mut texts: Vec<String> = self.compacted.notice(0, false).into_iter().collect();
        for turn in self.turns.iter().filter(|turn| turn.number <= to) {
            if self.compacted.is_hidden(turn.number) {
                continue;
            }
            let refers = |number| self.compacted.is_reference(number);
            let messages = turn.messages(None, terms, &refers).into_iter().flat_map(|(_, messages)| messages);
            for mut message in messages {
                as_sent(&mut message);
                texts.push(match message {
                    Message::System(text) | Message::User(text) => format!("Told: {text}"),
                    Message::Assistant { text, calls } => {
                        let calls = calls
                            .iter()
                            .map(|call| format!(" [calls {} {}]", call.tool, call.arguments.value()));
                        format!("Agent: {}{}", text.unwrap_or_default(), calls.collect::<String>())
                    }
                    Message::Tool { tool, content, .. } => format!("{tool}: {content}"),
                });
            }
        }
        texts
    }

    /// For each turn, the number of steps left after it, if it is at most `LAST_STEPS`.
    fn steps_left(&self, max: u32) -> Vec<Option<u32>> {
        let mut steps = 0;
        let left = self.turns.iter().map(|turn| {
            steps += turn.steps();
            Some(max.saturating_sub(steps)).filter(|left| *left <= LAST_STEPS)
        });
        left.collect()
    }
}

impl Turn {
    fn pending(&self) -> Vec<Pending> {
        let alone = self.step.tool_calls.len() == 1;
        let calls = (1..).zip(&self.step.tool_calls);
        calls
            .filter(|(_, call)| !self.answered.iter().any(|answered| answered.step.id == call.id))
            .map(|(n, call)| Pending { call: call.clone(), place: format!("{}-{n}", self.number), alone })
            .collect()
    }

    fn steps(&self) -> u32 {
        u32::try_from(self.answered.len() + usize::from(self.correction.is_some())).unwrap_or(u32::MAX)
    }

    fn last_number(&self) -> u32 {
        self.answered.last().map_or(self.number, |answered| answered.number)
    }

    /// Returns true if it called tools, all of them unoffered.
    fn only_unoffered(&self) -> bool {
        let (step, offered) = (&self.step, |call: &ToolCall| !self.step.unoffered.contains(&call.tool));
        !step.unoffered.is_empty() && !step.tool_calls.iter().any(offered)
    }

    /// Its messages: the answer, the answers of the tools, then the correction. With `left`, the
    /// last of them contains that number of steps. `refers` returns true for an entry that is shown
    /// as a reference.
    fn messages(
        &self,
        left: Option<u32>,
        terms: Terms,
        refers: &dyn Fn(u32) -> bool,
    ) -> Vec<(Category, Vec<Message>)> {
        let told = left.map(|left| {
            format!("\n[{left} of {} steps are left: finish, or answer with what you have]", terms.max_steps)
        });
        let told = told.unwrap_or_default();
        let answer = Message::Assistant { text: self.step.text.clone(), calls: self.step.tool_calls.clone() };
        let mut shown = Vec::new();
        if self.step.tool_calls.is_empty() {
            shown.push((Category::Dialog, vec![answer]));
        } else {
            let mut messages = vec![answer];
            messages.extend(self.step.tool_calls.iter().filter_map(|call| {
                let answered = self.answered.iter().find(|answered| answered.step.id == call.id)?;
                let content = answered.content(refers(answered.number), terms.reads_files);
                Some(Message::Tool { id: call.id.clone(), tool: call.tool.clone(), content })
            }));
            if let Some(Message::Tool { content, .. }) = messages.last_mut() {
                content.push_str(&told);
            }
            shown.push((Category::Tools, messages));
        }
        if let Some(why) = &self.correction {
            shown.push((Category::Dialog, vec![Message::User(format!("{why}{told}"))]));
        }
        shown
    }
}

impl ToolAnswer {
    /// The output as the model sees it: as a reference, if that is shorter.
    fn content(&self, is_reference: bool, reads_files: bool) -> String {
        let text = output_text(&self.step);
        if !is_reference {
            return text;
        }
        let reference = compacted::reference(self.number, &self.step, reads_files);
        if reference.len() < text.len() { reference } else { text }
    }
}

/// Adds messages to the agent. Like its task they stay in the window when the exchange before them
/// is hidden.
fn show_told(texts: &[String], window: &mut Window) {
    for text in texts {
        window.add(Category::Dialog, vec![Message::User(text.clone())]);
    }
}

/// The message to the model about an answer that a check denied (B16).
fn denied(step: &CheckedStep) -> String {
    let reason = step.reason.as_deref().unwrap_or_default();
    format!("Your answer was denied by the check `{}`: {reason}. Answer again.", step.check)
}

/// The output of a tool as the model sees it.
fn output_text(step: &ToolStep) -> String {
    let text = match &step.output {
        ToolOutput::Inline(text) => text,
        ToolOutput::Offloaded { preview, .. } => preview,
    };
    if step.is_error { format!("error: {text}") } else { text.clone() }
}

#[cfg(test)]
mod tests;
