//! The checks around a model call. They run before a hold is taken, and before the answer is in the
//! journal. If they change an answer, the journal, the events and the live output have only the
//! changed text. If the worker is lost while they run, the answer is lost with it, and its cost is
//! booked.

use domain::{
    Json, Usd,
    check::{CheckDecision, Moment, OnHit},
    id::ModelName,
    wire::{CheckedStep, HistoryStep, ModelStep, ToolCall},
};

use super::{
    checker::{About, Checker, step, with},
    content::{self, Content, ContentDecision},
    gate::{Gate, GatePass, GateStop},
    messages, rate,
    rule::{Kind, Rule},
};
use crate::{crash::Point, journal::checkpoint, model::Message};

/// A model call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelCall<'a> {
    /// Identifies the request of a program.
    pub(crate) asked: Option<&'a str>,
    /// The call asks for a summary of the journal up to this entry.
    pub(crate) summary_of: Option<u32>,
    pub(crate) messages: &'a [Message],
    pub(crate) model: &'a ModelName,
    /// The worst case that will be held.
    pub(crate) cost: Usd,
    /// The checks have run for the agent's own model; for the fallback model only the cost differs.
    pub(crate) is_fallback: bool,
}

impl Checker<'_> {
    /// Runs the checks before a model call. A decision other than a pass is in the journal, and
    /// reported.
    pub(crate) async fn before_call(&self, call: &ModelCall<'_>) -> Gate<GatePass<Vec<Message>>> {
        let moment = Moment::BeforeCall;
        let runs = |rule: &&Rule| {
            rule.runs_on(moment)
                && (call.summary_of.is_none() || rule.runs_on_summaries())
                && (!call.is_fallback || matches!(rule.kind, Kind::MaxCost(_)))
        };
        let mut passed = Vec::new();
        if !self.rules.iter().any(|rule| runs(&rule)) {
            return Gate::Open(GatePass { changed: None, passed });
        }
        let answered = self.answered();
        let call_place = call_place(call, &answered);
        let mut all = call.messages.to_vec();
        // A program may send any messages, so all of them are new. The first messages of a branch
        // were perhaps never checked.
        let continues = call.asked.is_none() && answered.iter().any(|step| !checkpoint::is_copy(step));
        let first_new = if continues { messages::first_new(&all) } else { 0 };
        for rule in self.rules.iter().filter(runs) {
            let place = if matches!(rule.kind, Kind::Approval(_)) {
                approved_place(call, &call_place)
            } else {
                call_place.clone()
            };
            let recorded = self.decided(rule, moment, &place);
            if let Some(stopped) = recorded.as_ref().and_then(GateStop::by) {
                return Gate::Stopped(stopped);
            }
            // The messages may have changed since: the agent got a message, or this is its last
            // report.
            if recorded.is_some() && !rule.is_outside() {
                self.repeat_changes(rule, &mut all);
                continue;
            }
            let mut step = step(rule, moment, ContentDecision::pass());
            step.place = Some(place);
            match &rule.kind {
                Kind::PerMinute(per_minute) => step = self.wait_for_rate(rule, *per_minute, step).await,
                Kind::MaxCost(max) if call.cost > *max => {
                    let reason = format!("the call may cost {}, and {max} are allowed", call.cost);
                    step = with(step, ContentDecision::hit(rule, reason));
                }
                Kind::MaxCost(_) => {}
                Kind::Approval(Some(above)) if call.cost <= *above => {}
                Kind::Approval(_) => {
                    let purpose = if call.summary_of.is_some() { " for a summary of its work" } else { "" };
                    let what =
                        format!("call the model {}{purpose}, which may cost up to {}", call.model, call.cost);
                    match self.approval(rule, moment, &what).await {
                        Ok(decided) => step = CheckedStep { asked: true, ..with(step, decided) },
                        Err(question) => return Gate::Asks { question },
                    }
                }
                Kind::MaxBytes(max) => {
                    let has: usize = all[first_new..].iter().map(Message::size_bytes).sum();
                    step = with(step, content::size(rule, has as u64, *max));
                }
                Kind::Forbidden(_)
                | Kind::Allowed(_)
                | Kind::Schema(_)
                | Kind::Program(_)
                | Kind::Mcp(_)
                | Kind::Unusable(_) => {
                    let about = About { moment, tool: None, cost: Some(call.cost) };
                    step = self.judge_messages(rule, about, &mut all, first_new, step).await;
                }
            }
            if recorded.is_some() && step.judged.is_empty() && GateStop::by(&step).is_none() {
                continue;
            }
            if step.decision == CheckDecision::Pass && !step.asked {
                passed.push(CheckedStep { place: None, ..step });
                continue;
            }
            let stopped = GateStop::by(&step);
            self.write(step).await;
            if let Some(stopped) = stopped {
                return Gate::Stopped(stopped);
            }
        }
        let changed = (all != call.messages).then_some(all);
        self.attempt.config.crash.pass(Point::Checked);
        Gate::Open(GatePass { changed, passed })
    }

    /// Runs the checks after an answer, before it is in the journal. Returns the decisions for its
    /// entry, including those about the arguments of its tool calls: arguments that change here
    /// change in the journal too. The tool calls of a denied answer are removed.
    pub(crate) async fn after_call(
        &self,
        summary_of: Option<u32>,
        text: &mut Option<String>,
        calls: &mut Vec<ToolCall>,
    ) -> Vec<CheckedStep> {
        let mut steps = Vec::new();
        for rule in self.rules.iter().filter(|rule| summary_of.is_none() || rule.runs_on_summaries()) {
            if rule.runs_on(Moment::AfterCall) {
                let step = self.judge_answer(rule, text, calls).await;
                let stops = matches!(step.decision, CheckDecision::Deny | CheckDecision::Halt);
                if stops {
                    calls.clear();
                    // A message to a model can't be empty.
                    if text.as_ref().is_none_or(String::is_empty) {
                        *text = Some(format!("[denied:{}]", step.check));
                    }
                }
                steps.push(step);
                if stops {
                    break;
                }
            }
            if rule.reads_content() && self.judge_tool_calls(rule, calls, &mut steps).await {
                break;
            }
        }
        if steps.iter().any(|step| step.decision != CheckDecision::Pass) {
            self.attempt.config.crash.pass(Point::Decided);
        }
        steps
    }

    /// The answers so far, including those that a branch begins with.
    fn answered(&self) -> Vec<ModelStep> {
        self.journal.entries().iter().filter_map(|entry| entry.step.as_model().cloned()).collect()
    }

    /// Changes a message as checks changed it before an earlier call.
    pub(crate) fn as_sent(&self, message: &mut Message) {
        for rule in self.rules.iter().filter(|rule| rule.runs_on(Moment::BeforeCall)) {
            self.repeat_changes(rule, std::slice::from_mut(message));
        }
    }

    /// Applies the changes of a check before an earlier call to these messages again.
    fn repeat_changes(&self, rule: &Rule, messages: &mut [Message]) {
        for message in messages {
            let Some(content) = messages::text(message) else { continue };
            let changed = if rule.redacts() {
                content::judge(rule, &content).and_then(|decided| decided.content)
            } else {
                self.recorded().changed(&rule.name, &content)
            };
            if let Some(changed) = changed {
                messages::set_text(message, changed);
            }
        }
    }

    /// Judges new messages, and earlier messages with a text that was not judged yet. For the
    /// others, earlier changes are repeated.
    async fn judge_messages(
        &self,
        rule: &Rule,
        about: About<'_>,
        all: &mut [Message],
        first_new: usize,
        mut step: CheckedStep,
    ) -> CheckedStep {
        for (at, message) in all.iter_mut().enumerate() {
            let Some(content) = messages::text(message) else { continue };
            // The agent's own answers were checked after their calls.
            let is_own = matches!(message, Message::Assistant { .. });
            let is_settled = at < first_new && (is_own || !rule.judges_earlier());
            if is_settled || rule.is_outside() && self.recorded().has_judged(&rule.name, &content) {
                self.repeat_changes(rule, std::slice::from_mut(message));
                continue;
            }
            let decided = self.judge(rule, about, &content).await;
            if rule.is_outside() {
                step.judged.insert(content.digest());
            }
            if decided.decision == CheckDecision::Pass {
                continue;
            }
            if let Some(changed) = &decided.content {
                if !rule.redacts() {
                    step.changed.insert(content.digest(), changed.stored());
                }
                messages::set_text(message, changed.clone());
            }
            step = with(step, decided);
            if GateStop::by(&step).is_some() {
                step.changed.clear();
                step.judged.clear();
                break;
            }
        }
        step
    }

    /// Runs one check of an answer: its text, and the arguments of every tool call. A schema
    /// applies to the final answer only.
    async fn judge_answer(
        &self,
        rule: &Rule,
        text: &mut Option<String>,
        calls: &mut [ToolCall],
    ) -> CheckedStep {
        let mut decision = step(rule, Moment::AfterCall, ContentDecision::pass());
        let about = About { moment: Moment::AfterCall, tool: None, cost: None };
        let is_schema = matches!(rule.kind, Kind::Schema(_));
        if let Some(said) = text.as_ref().filter(|said| !said.is_empty() && (!is_schema || calls.is_empty()))
        {
            let decided = self.judge(rule, about, &Content::Text(said.clone())).await;
            if let Some(Content::Text(changed)) = &decided.content {
                *text = Some(changed.clone());
            }
            decision = with(decision, decided);
        }
        for call in calls.iter_mut().filter(|_| !is_schema) {
            if GateStop::by(&decision).is_some() {
                break;
            }
            let arguments = Content::Arguments(call.arguments.value().clone());
            let decided = self.judge(rule, About { tool: Some(&call.tool), ..about }, &arguments).await;
            if let Some(Content::Arguments(changed)) = &decided.content {
                call.arguments = Json::from(changed.clone());
            }
            if decided.decision != CheckDecision::Pass {
                decision = with(decision, decided);
            }
        }
        decision
    }

    /// Runs the check before each tool call of an answer. It runs this early so that a change is in
    /// the journal. Returns true if it halts the context.
    async fn judge_tool_calls(
        &self,
        rule: &Rule,
        calls: &mut [ToolCall],
        steps: &mut Vec<CheckedStep>,
    ) -> bool {
        let moment = Moment::BeforeTool;
        let entry = self.journal.next_number();
        for (number, call) in (1..).zip(calls) {
            let place = format!("{entry}-{number}");
            let is_denied = steps
                .iter()
                .any(|step| step.place.as_ref() == Some(&place) && step.decision == CheckDecision::Deny);
            if is_denied || !rule.runs_on_tool(moment, &call.tool) {
                continue;
            }
            let arguments = Content::Arguments(call.arguments.value().clone());
            let decided =
                self.judge(rule, About { moment, tool: Some(&call.tool), cost: None }, &arguments).await;
            if let Some(Content::Arguments(changed)) = &decided.content {
                call.arguments = Json::from(changed.clone());
            }
            let step = CheckedStep { place: Some(place), ..step(rule, moment, decided) };
            let halts = step.decision == CheckDecision::Halt;
            steps.push(step);
            if halts {
                return true;
            }
        }
        false
    }

    /// Waits until the minute allows another model call. Denies if the deadline comes first.
    async fn wait_for_rate(&self, rule: &Rule, per_minute: u32, step: CheckedStep) -> CheckedStep {
        loop {
            let now = self.attempt.now();
            let counts = |step: &HistoryStep| matches!(step, HistoryStep::Model(_) | HistoryStep::Lost(_));
            let Some(wait) = self.journal.with_all_entries(|all| rate::wait(all, now, per_minute, counts))
            else {
                return step;
            };
            let in_time = self.attempt.deadline.left().is_none_or(|left| wait < left);
            if rule.on_hit == OnHit::Halt || !in_time {
                let reason = format!("{per_minute} calls a minute are allowed, and there is no time to wait");
                return with(step, ContentDecision::hit(rule, reason));
            }
            tracing::debug!(check = %rule.name, ?wait, "a model call waits for the calls per minute that a check allows");
            tokio::time::sleep(wait).await;
        }
    }
}

/// Names a model call, with the same text in every attempt: by the number of earlier answers to
/// calls of its kind, or by the last entry that it summarises.
fn call_place(call: &ModelCall<'_>, answered: &[ModelStep]) -> String {
    if let Some(to) = call.summary_of {
        return format!("summary-{to}");
    }
    let before = answered.iter().filter(|step| step.asked.as_deref() == call.asked).count();
    let name = call.asked.map_or("call", |fingerprint| &fingerprint[..fingerprint.len().min(12)]);
    format!("{name}-{}{}", before + 1, if call.is_fallback { "-fallback" } else { "" })
}

/// Names the subject of an approval: this model, with these messages.
fn approved_place(call: &ModelCall<'_>, call_place: &str) -> String {
    format!("{call_place}-{}-{}", call.model, messages::digest(call.messages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b16_a_summary_has_a_place_of_its_own_and_an_approval_is_for_one_model_and_its_messages() {
        let (model, other): (ModelName, ModelName) =
            ("test/model".parse().unwrap(), "test/cheap".parse().unwrap());
        let (task, told) = (Message::User("Your task".into()), Message::User("And this".into()));
        let (first, both) = ([task.clone()], [task, told]);
        let call = ModelCall {
            asked: None,
            summary_of: None,
            messages: &first,
            model: &model,
            cost: Usd::ZERO,
            is_fallback: false,
        };
        let summary = ModelCall { summary_of: Some(4), ..call };
        assert_eq!(
            (call_place(&call, &[]), call_place(&summary, &[])),
            ("call-1".into(), "summary-4".into())
        );
        let approved = |call: &ModelCall<'_>| approved_place(call, &call_place(call, &[]));
        let places = [
            approved(&call),
            approved(&summary),
            approved(&ModelCall { model: &other, ..call }),
            approved(&ModelCall { messages: &both, ..call }),
        ];
        let distinct: std::collections::BTreeSet<&String> = places.iter().collect();
        assert_eq!(distinct.len(), places.len(), "{places:?}");
        assert_eq!(approved(&call), places[0], "the place is the same in every attempt");
    }
}
