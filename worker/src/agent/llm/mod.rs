//! LLM agents: a loop of model calls and tool calls, each written down when it is done. What comes next
//! follows from the journal alone, so that a successor goes on where the last worker was lost, and an
//! agent that waits for a child or a human holds no worker.

mod conversation;
mod judge;
mod prompt;
mod window;

use shared::{
    ChildId, Json,
    id::ToolName,
    telemetry,
    wire::{Failure, FailureKind, HistoryStep, ModelStep, Payload, Said, Text, ToolCall, ToolStep, Verdict},
};

use super::Run;
use crate::{
    agent::journaled as finish,
    attempt::live_output::Voice,
    billing::model_call::{self as paid, Before, Paid, Question, Short},
    crash::Point,
    files::tool_output as offload,
    files::workspace::Workspace,
    journal::Journal,
    journal::checkpoint as branch,
    model::{Cue, Message, ToolSpec},
    tool::{Invocation, Observation, Outcome},
};
use conversation::{Conversation, Next, Pending};
use window::{Category, Window};

/// What the model is told when its budget does not reach for what is left to do.
const LAST_WORDS: &str = "Your budget ends here: this is your last answer, and no tool can be called any more. \
                          Report what you have found so far, and what is left undone.";

pub(super) async fn run(run: &Run<'_>) -> Verdict {
    let (journal, workspace) = match super::begin(run).await {
        Ok(begun) => begun,
        Err(verdict) => return verdict,
    };
    let entries = journal.entries();
    let conversation = Conversation::of(&entries, |step| judge::judge(run.work, step));
    if let Some(result) = conversation.result {
        return result.verdict;
    }
    offload::restore(run, &workspace, &entries).await;
    let mut agent = Agent { run, journal: &journal, workspace: &workspace, conversation };
    agent.count();
    let verdict = agent.work().await;
    finish::finish(run, &journal, &workspace, verdict, None).await
}

struct Agent<'a> {
    run: &'a Run<'a>,
    journal: &'a Journal<'a>,
    workspace: &'a Workspace,
    conversation: Conversation,
}

impl Agent<'_> {
    async fn work(&mut self) -> Verdict {
        loop {
            let verdict = match self.conversation.next() {
                Next::AskModel => self.ask_model().await,
                Next::CallTools(pending) => self.call_tools(pending).await,
                Next::Judge(step) => match self.judge(step) {
                    Ok(verdict) => Some(verdict),
                    Err(why) => {
                        self.conversation.correct(why);
                        None
                    }
                },
            };
            if let Some(verdict) = verdict {
                return verdict;
            }
        }
    }

    /// What the journal holds is what has been done, whoever did it.
    fn count(&self) {
        let retries = self.conversation.last().map_or(0, |step| step.retries);
        let steps = self.conversation.steps();
        self.run.counters.change(|progress| {
            progress.steps = steps;
            progress.retries = progress.retries.max(retries);
        });
    }

    async fn append(&mut self, step: HistoryStep) {
        let entry = self.journal.append(step).await;
        self.take(&entry);
    }

    fn take(&mut self, entry: &shared::wire::HistoryEntry) {
        if let Err(error) = self.workspace.note(entry) {
            tracing::warn!(%error, "a step is not in the workspace's history");
        }
        self.conversation.add(entry);
        self.count();
    }

    /// The verdict, if the loop ends here.
    async fn ask_model(&mut self) -> Option<Verdict> {
        if let Some(verdict) = self.out_of_steps() {
            return Some(verdict);
        }
        let toolbox = &self.run.equipment.toolbox;
        toolbox.ready(self.run).await;
        let tools = toolbox.specs(self.run);
        let window = self.window();
        match self.ask(&window, &tools, false).await {
            Err(verdict) => Some(verdict),
            Ok(Paid::Answered(_)) => {
                self.take_last();
                None
            }
            Ok(Paid::Failed(failure)) => Some(Verdict::Failed(failure)),
            Ok(Paid::Short(Short { pause: true, .. })) => Some(Verdict::OutOfBudget),
            Ok(Paid::Short(Short { halted: true, why, .. })) => Some(out_of_budget(why)),
            Ok(Paid::Short(short)) => Some(self.last_words(window, &tools, short).await),
        }
    }

    fn out_of_steps(&self) -> Option<Verdict> {
        let (has, max) = (self.conversation.steps(), self.run.work.limits.max_steps);
        (has >= max).then(|| limit_exceeded(format!("max_steps: {has} of {max}")))
    }

    /// B7: what the closing reserve is for.
    async fn last_words(&mut self, mut window: Window, offered: &[ToolSpec], short: Short) -> Verdict {
        if self.run.work.budget.closing_reserve_usd.nanos() == 0 {
            return out_of_budget(short.why);
        }
        window.add(Category::System, vec![Message::User(LAST_WORDS.into())]);
        match self.ask(&window, offered, true).await {
            Err(verdict) => verdict,
            Ok(Paid::Answered(step)) => {
                self.take_last();
                last_report(&step)
            }
            Ok(Paid::Failed(failure)) => Verdict::Failed(failure),
            Ok(Paid::Short(_)) => out_of_budget(short.why),
        }
    }

    /// Asks with the tools it has, or, for its last report, with none.
    async fn ask(&self, window: &Window, offered: &[ToolSpec], closing: bool) -> Result<Paid, Verdict> {
        let work = self.run.work;
        let tools = if closing { &[] } else { offered };
        let max_tokens = work.limits.max_tokens_per_step;
        let described: u64 =
            tools.iter().map(|tool| tool.parameters.size_bytes() + tool.description.len() as u64).sum();
        let room = u64::from(max_tokens) + described.div_ceil(3);
        let view = window
            .fit(work.window_tokens, room)
            .map_err(|overfull| limit_exceeded(format!("window: {overfull}")))?;
        if view.left_out > 0 {
            tracing::debug!(left_out = view.left_out, "the window is full");
        }
        let question = Question {
            messages: &view.messages,
            tools,
            output_schema: work.output_schema.as_ref().filter(|_| !closing),
            max_tokens,
            closing,
            before: if view.left_out == 0 { self.before(offered) } else { None },
            left_out: view.left_out > 0,
            script: Some(Cue {
                turns: &work.agent.script,
                goal: work.goal.as_str(),
                inputs: &work.inputs,
                answered: self.conversation.answers(),
                closing,
            }),
            asked: None,
        };
        Ok(paid::call(self.run, self.journal, &question).await)
    }

    /// What the last call sent and used, if what was sent then is the beginning of what is sent now.
    fn before(&self, offered: &[ToolSpec]) -> Option<Before<'_>> {
        let last = self.conversation.last()?;
        let mut window = prompt::first_window(self.run.work);
        self.conversation.show(&mut window, 1);
        let view = window.fit(None, 0).ok()?;
        Before::of(last, &view.messages, offered, self.run.work.output_schema.as_ref())
    }

    fn window(&self) -> Window {
        let mut window = prompt::first_window(self.run.work);
        self.conversation.show(&mut window, 0);
        window
    }

    /// The entry the paid call has just written.
    fn take_last(&mut self) {
        let entry = self.journal.last().expect("the call was written down");
        self.take(&entry);
    }

    /// Calls what is still to be answered; what waits is waited for together, holding no worker.
    async fn call_tools(&mut self, pending: Vec<Pending>) -> Option<Verdict> {
        let shareable = self.window().shareable();
        let mut waits: Vec<ChildId> = Vec::new();
        let mut question: Option<Text> = None;
        for Pending { call, place, alone } in pending {
            if let Some(verdict) = self.out_of_steps() {
                return Some(verdict);
            }
            let asks = ToolName::new("ask_human").expect("a literal that fits the grammar");
            let invocation = Invocation {
                run: self.run,
                workspace: self.workspace,
                tool: &call.tool,
                arguments: call.arguments.value(),
                place: &place,
                shareable: &shareable,
                questions_before: branch::answers_before(self.run, self.journal, &asks),
            };
            match self.call_tool(invocation, alone).await {
                Outcome::Said(said) => self.observe(call, said).await,
                Outcome::Waits { child } => waits.push(child),
                Outcome::HandsOver { child } => {
                    return Some(Verdict::Waiting { children: vec![child], hand_over: true });
                }
                // One at a time: the next is asked when this is answered.
                Outcome::Asks { question: asked } => question = question.or(Some(asked)),
            }
        }
        match (waits.is_empty(), question) {
            (false, _) => Some(Verdict::Waiting { children: waits, hand_over: false }),
            (true, Some(question)) => Some(Verdict::InputRequired { question }),
            (true, None) => None,
        }
    }

    async fn call_tool(&self, invocation: Invocation<'_>, alone: bool) -> Outcome {
        // To hand over is to end: nothing else of the turn would be heard of again.
        if invocation.tool == "delegate" && !alone {
            let text = "`delegate` hands everything over: call it alone, or use `spawn`".into();
            let tool = ToolName::new("delegate").expect("a literal that fits the grammar");
            return Outcome::Said(Observation { tool, text, is_error: true, note: None });
        }
        let voice = Voice::new(self.run, self.journal.next_number());
        voice.say(Said::Tool { tool: invocation.tool.to_owned() }).await;
        let began = self.run.config.clock.now();
        let outcome = self.run.equipment.toolbox.call(invocation).await;
        self.run.config.crash.pass(Point::Called);
        self.emit_tool(invocation.tool, began, &outcome);
        outcome
    }

    async fn observe(&mut self, call: ToolCall, said: Observation) {
        let Observation { tool, text, is_error, note } = said;
        let output = match offload::is_passage(&call) {
            true => offload::passage(text),
            false => offload::offload(self.run, self.workspace, self.journal.next_number(), text).await,
        };
        let step = ToolStep { id: call.id, tool, output, is_error, note };
        self.append(HistoryStep::Tool(Box::new(step))).await;
    }

    fn judge(&self, step: &ModelStep) -> Result<Verdict, String> {
        if step.closing {
            return Ok(last_report(step));
        }
        if step.cut_off {
            let most = self.run.work.limits.max_tokens_per_step;
            return Ok(if step.max_tokens < most {
                last_report(step)
            } else {
                limit_exceeded(format!("max_tokens_per_step: {most} of {most}"))
            });
        }
        let value = judge::judge(self.run.work, step)?;
        let (has, max) = (value.size_bytes(), self.run.work.limits.max_result_bytes);
        // What goes by reference can't be held against a schema.
        Ok(if has > max && self.run.work.output_schema.is_some() {
            limit_exceeded(format!("max_result_bytes: {has} of {max}"))
        } else {
            Verdict::Completed(Payload::Inline(value))
        })
    }

    fn emit_tool(&self, tool: &str, began: shared::Timestamp, outcome: &Outcome) {
        if !telemetry::is_on() {
            return;
        }
        let failed = matches!(outcome, Outcome::Said(Observation { is_error: true, .. }));
        telemetry::Span {
            name: format!("execute_tool {tool}").into(),
            trace_id: self.run.work.trace_id,
            span_id: None,
            parent: Some(self.run.span),
            start: began,
            end: self.run.config.clock.now(),
            kind: telemetry::Kind::Internal,
            attributes: vec![
                ("gen_ai.operation.name", "execute_tool".into()),
                ("gen_ai.tool.name", tool.into()),
                ("trellis.child_id", self.run.work.child_id.as_str().into()),
            ],
            error: failed.then_some("the tool failed"),
            link: None,
        }
        .emit();
    }
}

fn last_report(step: &ModelStep) -> Verdict {
    Verdict::LastReport(Payload::Inline(Json::from(step.text.as_deref().unwrap_or_default())))
}

fn out_of_budget(message: String) -> Verdict {
    Verdict::Failed(Failure { kind: FailureKind::Budget, message, retryable: false })
}

fn limit_exceeded(message: String) -> Verdict {
    Verdict::Failed(Failure { kind: FailureKind::LimitExceeded, message, retryable: false })
}
