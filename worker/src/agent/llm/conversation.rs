//! A conversation, read from its journal: the turns so far, the tool calls not answered yet, and the next action. Pure:
//! the same journal gives the same conversation on any worker.

use shared::{
    Json,
    id::ModelName,
    ladder::RungAction,
    wire::{
        CheckedStep, HistoryEntry, HistoryStep, ModelStep, ReachedRung, ResultStep, ToolCall, ToolOutput,
        ToolStep,
    },
};

use super::window::{Category, Window};
use crate::{agent::news, model::Message};

#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// Messages to the agent before its first turn.
    first: Vec<String>,
    turns: Vec<Turn>,
    /// What the rungs of its budget changed (B21).
    rungs: Rungs,
    pub(super) result: Option<ResultStep>,
}

#[derive(Debug, Default)]
struct Rungs {
    /// The number of the last one; 0: none.
    last: u32,
    model: Option<ModelName>,
    compact: bool,
}

/// One answer of the model, and the answers of the tools it called.
#[derive(Debug)]
struct Turn {
    /// The number of its journal entry.
    number: u32,
    step: ModelStep,
    answered: Vec<ToolStep>,
    /// The message to the model if its answer was not valid.
    correction: Option<String>,
    /// Messages to the agent that came behind it.
    messages: Vec<String>,
}

/// A tool call that is not answered yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pending {
    pub(super) call: ToolCall,
    /// Names the call within its context, the same at every attempt.
    pub(super) place: String,
    /// Whether it is the only call of its turn.
    pub(super) alone: bool,
}

/// The next action of the agent.
#[derive(Debug, PartialEq)]
pub(super) enum Next<'a> {
    AskModel,
    CallTools(Vec<Pending>),
    /// No tool was called: check whether the text is a valid answer.
    Judge(&'a ModelStep),
}

impl Conversation {
    /// Reads a journal. An answer that is followed by another was not valid: `judge` computes again why.
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
                let (number, step) = (entry.number, (**step).clone());
                let correction = step.denied().map(denied);
                self.turns.push(Turn {
                    number,
                    step,
                    answered: Vec::new(),
                    correction,
                    messages: Vec::new(),
                });
            }
            HistoryStep::Tool(step) => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.answered.push((**step).clone());
                }
            }
            HistoryStep::Told(told) => self.message(news::message_text(told)),
            HistoryStep::Rung(rung) => self.rung(rung),
            HistoryStep::Result(step) => self.result = Some((**step).clone()),
            HistoryStep::Began { .. }
            | HistoryStep::Lost(_)
            | HistoryStep::Branched { .. }
            | HistoryStep::Restored { .. }
            | HistoryStep::Checked(_) => {}
        }
    }

    fn message(&mut self, text: String) {
        self.turns.last_mut().map_or(&mut self.first, |turn| &mut turn.messages).push(text);
    }

    fn rung(&mut self, rung: &ReachedRung) {
        self.rungs.last = rung.number;
        match &rung.action {
            RungAction::Tell => self.message(news::budget_text(rung)),
            RungAction::Model(model) => self.rungs.model = Some(model.clone()),
            RungAction::Compact => self.rungs.compact = true,
        }
    }

    /// The last rung of the budget that it has seen.
    pub(super) fn last_rung(&self) -> u32 {
        self.rungs.last
    }

    /// The model of its calls, if a rung of its budget changed it.
    pub(super) fn model(&self) -> Option<&ModelName> {
        self.rungs.model.as_ref()
    }

    /// Whether a rung of its budget asks for a smaller window.
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

    /// The last answer was not valid, and this is why.
    pub(super) fn correct(&mut self, why: String) {
        if let Some(turn) = self.turns.last_mut() {
            turn.correction = Some(why);
        }
    }

    /// How often the model has answered.
    pub(super) fn answers(&self) -> usize {
        self.turns.len()
    }

    /// Every tool call is a step, and every answer that was not valid (L). The final answer does not count as a
    /// step.
    pub(super) fn steps(&self) -> u32 {
        let steps =
            self.turns.iter().map(|turn| turn.answered.len() + usize::from(turn.correction.is_some()));
        u32::try_from(steps.sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// The model's last answer.
    pub(super) fn last(&self) -> Option<&ModelStep> {
        self.turns.last().map(|turn| &turn.step)
    }

    /// Adds all turns but the last `leave` to a window.
    pub(super) fn show(&self, window: &mut Window, leave: usize) {
        show_messages(&self.first, window);
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
        let answer = Message::Assistant { text: self.step.text.clone(), calls: self.step.tool_calls.clone() };
        if self.step.tool_calls.is_empty() {
            window.add(Category::Dialog, vec![answer]);
        } else {
            let answers = self.step.tool_calls.iter().filter_map(|call| {
                let step = self.answered.iter().find(|step| step.id == call.id)?;
                Some(Message::Tool {
                    id: call.id.clone(),
                    tool: call.tool.clone(),
                    content: output_text(step),
                })
            });
            window.add(Category::Tools, std::iter::once(answer).chain(answers).collect());
        }
        if let Some(why) = &self.correction {
            window.add(Category::Dialog, vec![Message::User(why.clone())]);
        }
        show_messages(&self.messages, window);
    }
}

/// Messages to the agent. They stay in the window longer than its dialog.
fn show_messages(messages: &[String], window: &mut Window) {
    for text in messages {
        window.add(Category::Context, vec![Message::User(text.clone())]);
    }
}

/// What the model is told of an answer that a check denied (B16).
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
mod tests {
    use serde_json::json;
    use shared::{Amount, Timestamp, wire::CallCost};

    use super::*;

    fn entry(number: u32, step: HistoryStep) -> HistoryEntry {
        HistoryEntry {
            trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
            child_id: "root".parse().unwrap(),
            number,
            attempt: 1,
            at: Timestamp::from_millis(0),
            step,
        }
    }

    fn model_answer(text: &str, calls: &[&str]) -> HistoryStep {
        let call = |id: &&str| ToolCall {
            id: (*id).into(),
            tool: "fs.read".into(),
            arguments: Json::from(json!({})),
        };
        HistoryStep::Model(Box::new(ModelStep {
            call_id: "1-1".parse().unwrap(),
            model: "test/model".parse().unwrap(),
            cost: CallCost { amount: Amount::ZERO, estimated: false, prices: "none".into() },
            usage: None,
            sent: None,
            retries: 0,
            text: Some(text.into()),
            tool_calls: calls.iter().map(call).collect(),
            max_tokens: 10,
            cut_off: false,
            closing: false,
            asked: None,
            checks: Vec::new(),
        }))
    }

    fn tool_answer(id: &str) -> HistoryStep {
        let output = ToolOutput::Inline(format!("answer to {id}"));
        let tool = "fs.read".parse().unwrap();
        HistoryStep::Tool(Box::new(ToolStep {
            id: id.into(),
            tool,
            output,
            is_error: false,
            note: None,
            checks: Vec::new(),
        }))
    }

    fn conversation(steps: Vec<HistoryStep>) -> Conversation {
        let entries: Vec<_> = (1..).zip(steps).map(|(number, step)| entry(number, step)).collect();
        Conversation::read(&entries, |step| Err(format!("no: {}", step.text.as_deref().unwrap_or_default())))
    }

    #[test]
    fn w5_what_comes_next_follows_from_the_journal_alone() {
        assert_eq!(conversation(vec![]).next(), Next::AskModel);
        let half = conversation(vec![model_answer("two", &["a", "b"]), tool_answer("a")]);
        let Next::CallTools(pending) = half.next() else { panic!("{half:?}") };
        // The second call of the first entry, the same in every attempt.
        assert_eq!((pending[0].call.id.as_str(), pending[0].place.as_str(), pending.len()), ("b", "1-2", 1));
        assert_eq!(conversation(vec![model_answer("one", &["a"]), tool_answer("a")]).next(), Next::AskModel);
        let last =
            conversation(vec![model_answer("one", &["a"]), tool_answer("a"), model_answer("done", &[])]);
        assert!(matches!(last.next(), Next::Judge(step) if step.text.as_deref() == Some("done")));
    }

    fn told(number: u32, text: &str) -> HistoryStep {
        let text = shared::wire::Text::new(text).unwrap();
        HistoryStep::Told(Box::new(shared::wire::Told { number: Some(number), text, by: None }))
    }

    fn rung(number: u32, action: RungAction) -> HistoryStep {
        let at = serde_json::from_value(json!(0.8)).unwrap();
        let (left_usd, left_tokens) = (Amount::ZERO.cost_usd, Amount::ZERO.tokens);
        HistoryStep::Rung(Box::new(ReachedRung { number, at, action, left_usd, left_tokens }))
    }

    /// The messages of a conversation without its last `leave` turns, each by its first words.
    fn shown(conversation: &Conversation, leave: usize) -> Vec<String> {
        let mut window = Window::default();
        conversation.show(&mut window, leave);
        let view = window.fit(None, 0).unwrap();
        view.messages
            .iter()
            .map(|message| match message {
                Message::System(text) | Message::User(text) => text.clone(),
                Message::Assistant { text, .. } => text.clone().unwrap_or_default(),
                Message::Tool { content, .. } => content.clone(),
            })
            .collect()
    }

    #[test]
    fn g13_a_message_has_its_place_between_turns_behind_the_answers_of_tools() {
        let steps = vec![
            told(1, "before all"),
            model_answer("two", &["a", "b"]),
            tool_answer("a"),
            told(2, "early"),
            tool_answer("b"),
            model_answer("no", &[]),
            told(3, "late"),
        ];
        let read = conversation(steps);
        assert_eq!(read.next(), Next::Judge(&read.turns[1].step), "a message answers nothing");
        let first = "A message from the operator: before all";
        let (early, late) = ("A message from the operator: early", "A message from the operator: late");
        let before = [first, "two", "answer to a", "answer to b", early];
        assert_eq!(shown(&read, 1), before, "what the last call was sent");
        assert_eq!(shown(&read, 0), [&before[..], &["no", late]].concat());
        assert_eq!((read.steps(), read.answers()), (2, 2), "a message is no step");
    }

    #[test]
    fn b21_rungs_change_the_model_tell_what_is_left_and_ask_for_compaction() {
        let read = conversation(vec![model_answer("one", &["a"]), tool_answer("a")]);
        assert_eq!((read.last_rung(), read.model(), read.wants_compaction()), (0, None, false));
        let small: ModelName = "small".parse().unwrap();
        let rungs = [RungAction::Tell, RungAction::Model(small.clone()), RungAction::Compact];
        let read = conversation((1..).zip(rungs).map(|(number, action)| rung(number, action)).collect());
        assert_eq!((read.last_rung(), read.model(), read.wants_compaction()), (3, Some(&small), true));
        let told = shown(&read, 0);
        assert!(
            told.len() == 1 && told[0].starts_with("Your budget: 80 % is spent; left: $0.00 and 0 tokens."),
            "{told:?}"
        );
    }

    #[test]
    fn l_a_step_is_a_tool_call_or_an_invalid_answer() {
        let steps = vec![
            model_answer("two", &["a", "b"]),
            tool_answer("a"),
            tool_answer("b"),
            model_answer("no", &[]),
            model_answer("yes", &[]),
        ];
        assert_eq!(conversation(steps).steps(), 3);
    }

    #[test]
    fn w5_another_worker_repeats_the_correction_to_the_model() {
        let mut window = Window::default();
        conversation(vec![model_answer("no", &[]), model_answer("yes", &[])]).show(&mut window, 0);
        let view = window.fit(None, 0).unwrap();
        assert_eq!(view.messages[1], Message::User("no: no".into()));
        assert_eq!(view.messages.len(), 3);
    }
}
