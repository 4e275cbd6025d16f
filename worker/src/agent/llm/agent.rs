//! The loop of an LLM agent: call the model, call the tools it requests, check its answer, until there is a verdict.

use domain::{
    ChildId, Json, Tokens,
    id::ModelName,
    wire::{
        CheckedStep, Execute, Form, HistoryEntry, ModelStep, News, Payload, SeenNumbers, Text, ToolCall,
        Verdict,
    },
};
use serde_json::Value;
use text::set_limit::UsedLimit;

use super::{
    conversation::{Conversation, Next, Pending, Terms},
    judge, prompt, repetition,
    repetition::Repetition,
    window::{Category, Estimate, Window},
};
use crate::{
    agent::{
        journaled, news,
        run::Run,
        tool_step,
        verdict::{completed, failed, limit_exceeded, out_of_budget, plain_question},
    },
    billing::{
        model_call::{self, CallOutcome, Shortage},
        token_bound::{self, EarlierCall, PaidRequest},
    },
    check::Checker,
    files::{restore, tool_output, workspace::Workspace},
    journal::Journal,
    model::{Message, ScriptInput, ToolSpec},
    tool::{
        FS_READ,
        call::{Invocation, Observation, Outcome},
        may_call, spawn,
    },
};

/// The prompt for the last report, when the budget is too small for another ordinary call.
const LAST_REPORT: &str = "Your budget ends here: this is your last answer, and you can't call tools any more. \
                           Report what you have found so far, and what is still to do.";

pub(in crate::agent) async fn run(run: &Run<'_>) -> Verdict {
    let (journal, workspace) = match journaled::begin(run).await {
        Ok(begun) => begun,
        Err(verdict) => return verdict,
    };
    let checker = Checker::open(run.attempt, &journal, run.outside()).await;
    let entries = journal.entries();
    let conversation = Conversation::read(&entries, |step| judge::judge(run.work(), step));
    if let Some(result) = conversation.result {
        return result.verdict;
    }
    let changed =
        |tool: &str, place: &str, arguments: &Value| checker.changed_arguments(tool, place, arguments);
    restore::restore(run.attempt, &workspace, &entries, changed).await;
    let mut agent = Agent { run, journal: &journal, checker: &checker, workspace: &workspace, conversation };
    agent.count();
    let verdict = match checker.halted() {
        Some(halted) => halted,
        None => agent.run().await,
    };
    journaled::finish(run.attempt, &journal, &workspace, verdict, None).await
}

pub(super) struct Agent<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) journal: &'a Journal<'a>,
    pub(super) checker: &'a Checker<'a>,
    pub(super) workspace: &'a Workspace,
    pub(super) conversation: Conversation,
}

impl<'a> Agent<'a> {
    pub(super) fn work(&self) -> &'a Execute {
        self.run.work()
    }

    async fn run(&mut self) -> Verdict {
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

    /// Copies steps and retries from the journal to the progress. They include those of earlier
    /// attempts.
    fn count(&self) {
        let retries = self.conversation.retries();
        let steps = self.conversation.steps();
        self.run.attempt.progress.change(|progress| {
            progress.steps = steps;
            progress.retries = progress.retries.max(retries);
        });
    }

    /// Adds a journal entry to the conversation.
    pub(super) fn take(&mut self, entry: &HistoryEntry) {
        self.conversation.add(entry);
        self.count();
    }

    /// Calls the model. Returns a verdict if the loop ends here.
    async fn ask_model(&mut self) -> Option<Verdict> {
        if let Some(verdict) = self.out_of_steps().or_else(|| self.calls_unoffered()) {
            return Some(verdict);
        }
        let toolbox = &self.run.resources.toolbox;
        toolbox.ready(self.work()).await;
        if self.conversation.steps() == 0 {
            if let Some(missing) = toolbox.missing(self.work()) {
                return Some(failed(missing));
            }
            toolbox.tell_absent(self.work());
        }
        let tools = toolbox.specs(self.work());
        if let Err(verdict) = self.compact(self.reserved(&tools, false)).await {
            return Some(verdict);
        }
        let window = self.window();
        match self.ask(&window, &tools, false).await {
            Err(verdict) => Some(verdict),
            Ok(CallOutcome::Answered(_)) => {
                self.take_last();
                None
            }
            Ok(CallOutcome::News(news)) => {
                self.take_news(*news).await;
                None
            }
            Ok(CallOutcome::Failed(failure)) => Some(Verdict::Failed(failure)),
            Ok(CallOutcome::Halted(verdict)) => Some(verdict),
            Ok(CallOutcome::Asks { question }) => Some(plain_question(question)),
            Ok(CallOutcome::CannotAfford(Shortage { pause: true, .. })) => Some(Verdict::OutOfBudget),
            Ok(CallOutcome::CannotAfford(Shortage { halted: true, why, .. })) => Some(out_of_budget(why)),
            Ok(CallOutcome::CannotAfford(shortage)) => Some(self.last_report(&tools, shortage).await),
        }
    }

    fn out_of_steps(&self) -> Option<Verdict> {
        let (has, max) = (self.conversation.steps(), self.work().limits.max_steps);
        (has >= max).then(|| limit_exceeded(&UsedLimit::new("max_steps", has, max)))
    }

    /// Ends an agent whose model calls tools that it was not offered, again after a correction. It
    /// would continue until its steps are used up.
    fn calls_unoffered(&self) -> Option<Verdict> {
        let tools = self.conversation.called_unoffered_twice()?.join("`, `");
        Some(failed(format!("the model called tools that it was not offered, twice in a row: `{tools}`")))
    }

    /// The model of its calls: the context's own, or the one that a rung of its budget changed to
    /// (B21).
    pub(super) fn model(&self) -> Option<&ModelName> {
        self.conversation.model().or(self.work().model.as_ref())
    }

    /// The size of the window: the limit of the context. If the profile names no size, the model's
    /// own size is a limit too (W1).
    pub(super) fn size(&self) -> Option<Tokens> {
        let work = self.work();
        let given = work.window_tokens;
        if work.agent.window_tokens.is_some() {
            return given;
        }
        let known = self.model().and_then(|model| self.run.resources.models.window(model));
        given.into_iter().chain(known).min()
    }

    /// The tokens of a call besides its messages: the answer, the tools, the schema.
    fn reserved(&self, tools: &[ToolSpec], closing: bool) -> u64 {
        let tools = tools
            .iter()
            .map(|tool| tool.parameters.size_bytes() + tool.description.len() as u64)
            .sum::<u64>();
        let schema = self.work().output_schema.as_ref().filter(|_| !closing).map_or(0, Json::size_bytes);
        u64::from(self.work().limits.max_tokens_per_step) + self.estimate().bytes(tools + schema)
    }

    /// The last report, paid from the closing reserve (B7).
    async fn last_report(&mut self, offered: &[ToolSpec], shortage: Shortage) -> Verdict {
        if self.work().budget.closing_reserve_usd.nanos() == 0 {
            return out_of_budget(shortage.why);
        }
        loop {
            let mut window = self.window();
            window.add(Category::System, vec![Message::User(LAST_REPORT.into())]);
            return match self.ask(&window, offered, true).await {
                Err(verdict) => verdict,
                Ok(CallOutcome::Answered(step)) => {
                    self.take_last();
                    last_report(&step)
                }
                Ok(CallOutcome::News(news)) => {
                    self.take_news(*news).await;
                    continue;
                }
                Ok(CallOutcome::Failed(failure)) => Verdict::Failed(failure),
                Ok(CallOutcome::Halted(verdict)) => verdict,
                Ok(CallOutcome::Asks { question }) => plain_question(question),
                Ok(CallOutcome::CannotAfford(_)) => out_of_budget(shortage.why),
            };
        }
    }

    /// Appends news to the journal and adds them to the window.
    async fn take_news(&mut self, news: News) {
        for entry in news::record(self.run.attempt, self.journal, self.workspace, news).await {
            self.take(&entry);
        }
    }

    fn seen(&self) -> SeenNumbers {
        SeenNumbers { told: Some(news::last_told(self.journal)), rungs: Some(self.conversation.last_rung()) }
    }

    /// Makes one paid call with the tools of the context; for the last report, without tools.
    async fn ask(
        &self,
        window: &Window,
        offered: &[ToolSpec],
        closing: bool,
    ) -> Result<CallOutcome, Verdict> {
        let work = self.work();
        let tools = if closing { &[] } else { offered };
        let output_schema = work.output_schema.as_ref().filter(|_| !closing);
        let fit = |window: &Window| {
            let messages = window.fit(self.size(), self.reserved(tools, closing), self.estimate());
            messages.map_err(|overfull| {
                let why = "the role, the task, the tools and the newest step need this many tokens";
                limit_exceeded(&UsedLimit::new("window_tokens", overfull.needed, overfull.size).with(why))
            })
        };
        let mut messages = fit(window)?;
        let last = self.conversation.last().and_then(|step| step.sent.as_deref());
        let sent = |messages: &[Message]| token_bound::digest(messages, tools, output_schema);
        match repetition::find(last, &messages, sent) {
            Repetition::None => {}
            Repetition::Once(told) => messages = told,
            Repetition::Again => return Err(failed(repetition::WHY.into())),
        }
        let request = PaidRequest {
            messages: &messages,
            tools,
            output_schema,
            max_tokens: work.limits.max_tokens_per_step,
            closing,
            earlier: self.earlier(offered),
            script: Some(ScriptInput {
                turns: &work.agent.script,
                goal: work.goal.as_str(),
                inputs: &work.inputs,
                answered: self.conversation.answers(),
                closing,
                summary: false,
            }),
            model: self.conversation.model(),
            seen: Some(self.seen()),
            asked: None,
            summary_of: None,
        };
        let models = &self.run.resources.models;
        Ok(model_call::call(self.run.meter, models, self.journal, self.checker, &request).await)
    }

    /// The previous call, if this request begins with the messages of that call.
    fn earlier(&self, offered: &[ToolSpec]) -> Option<EarlierCall<'_>> {
        let last = self.conversation.last()?;
        let mut window = prompt::first_window(self.work(), &self.run.resources.secrets);
        self.conversation.show(&mut window, self.terms(), 1);
        let messages = window.fit(None, 0, Estimate::default()).ok()?;
        EarlierCall::matching(last, &messages, offered, self.work().output_schema.as_ref())
    }

    pub(super) fn window(&self) -> Window {
        let mut window = prompt::first_window(self.work(), &self.run.resources.secrets);
        self.conversation.show(&mut window, self.terms(), 0);
        window
    }

    pub(super) fn terms(&self) -> Terms {
        Terms { max_steps: self.work().limits.max_steps, reads_files: may_call(self.work(), FS_READ) }
    }

    /// Takes the entry that the paid call has just appended.
    pub(super) fn take_last(&mut self) {
        let entry = self.journal.last().expect("the call was recorded");
        tool_step::note_in_history(self.workspace, &entry);
        self.take(&entry);
    }

    /// Makes the tool calls that are not answered yet. The context waits for all children together and holds no worker
    /// meanwhile.
    async fn call_tools(&mut self, pending: Vec<Pending>) -> Option<Verdict> {
        let shareable = self.window().shareable();
        let mut children: Vec<ChildId> = Vec::new();
        let mut question: Option<(Text, Box<Form>)> = None;
        for Pending { call, place, alone } in pending {
            if let Some(verdict) = self.out_of_steps() {
                return Some(verdict);
            }
            let invocation = Invocation {
                attempt: self.run.attempt,
                workspace: self.workspace,
                tool: &call.tool,
                arguments: call.arguments.value(),
                place: &place,
                shareable: &shareable,
                questions_before: self.checker.answers_used(),
            };
            match self.call_tool(invocation, alone).await {
                Outcome::Answered(observation) => {
                    self.observe(call, observation).await;
                    if let Some(halted) = self.checker.halted() {
                        return Some(halted);
                    }
                }
                Outcome::Waits { child } => children.push(child),
                Outcome::HandsOver { child } => {
                    return Some(Verdict::Waiting { children: vec![child], hand_over: true });
                }
                // Questions are asked one at a time: the next one follows the answer to this one.
                Outcome::Asks { question: next, form } => question = question.or(Some((next, form))),
            }
        }
        match (children.is_empty(), question) {
            (false, _) => Some(Verdict::Waiting { children, hand_over: false }),
            (true, Some((question, form))) => Some(Verdict::InputRequired { question, form }),
            (true, None) => None,
        }
    }

    async fn call_tool(&self, invocation: Invocation<'_>, alone: bool) -> Outcome {
        // The arguments may be cut off. The call is answered with an error, so that the
        // conversation stays valid, and not made.
        if let Some(step) = self.conversation.last().filter(|step| step.cut_off) {
            return Outcome::Answered(Observation::cut_off(invocation.tool, step.max_tokens));
        }
        // Handing over ends the agent, so the other calls of the turn would stay unanswered.
        if invocation.tool == spawn::DELEGATE && !alone {
            return Outcome::Answered(spawn::delegate_with_others());
        }
        tool_step::call(self.run, self.journal, self.checker, invocation).await
    }

    async fn observe(&mut self, call: ToolCall, observation: Observation) {
        let is_passage = tool_output::is_passage(&call);
        let (run, journal, checker, workspace) = (self.run, self.journal, self.checker, self.workspace);
        let entry =
            tool_step::record(run, journal, checker, workspace, call.id, observation, is_passage).await;
        self.take(&entry);
    }

    fn judge(&self, step: &ModelStep) -> Result<Verdict, String> {
        if step.closing {
            return Ok(last_report(step));
        }
        if step.cut_off {
            let max = self.work().limits.max_tokens_per_step;
            return Ok(if step.max_tokens < max {
                last_report(step)
            } else {
                limit_exceeded(&UsedLimit::new("max_tokens_per_step", max, max))
            });
        }
        let value = judge::judge(self.work(), step)?;
        let (has, max) = (value.size_bytes(), self.work().limits.max_result_bytes);
        // A result by reference can't be checked against a schema.
        Ok(if has > max && self.work().output_schema.is_some() {
            limit_exceeded(&UsedLimit::new("max_result_bytes", has, max))
        } else {
            completed(value)
        })
    }
}

/// A report that a check denied does not become a result (B16).
fn last_report(step: &ModelStep) -> Verdict {
    if let Some(CheckedStep { check, reason, .. }) = step.denied() {
        let reason = reason.as_deref().unwrap_or_default();
        return out_of_budget(format!("the last report was denied by the check `{check}`: {reason}"));
    }
    Verdict::LastReport(Payload::Inline(Json::from(step.text.as_deref().unwrap_or_default())))
}
