//! The checks around a tool call. For an LLM agent, checks that read arguments have already run on
//! the answer that requests the call, and their decisions are in the journal.

use std::collections::BTreeMap;

use domain::{
    check::{CheckDecision, Moment},
    wire::{CheckedStep, HistoryStep},
    wording,
};
use serde_json::Value;

use super::{
    checker::{About, Checker, step},
    content::{Content, ContentDecision},
    gate::{Gate, GatePass, GateStop},
    rate,
    rule::{Kind, Rule},
};
use crate::{
    crash::Point,
    tool::{
        call::{Invocation, Observation},
        human, spawn,
    },
};

/// The most bytes of the arguments that a question shows.
const SHOWN_BYTES: usize = 2000;

impl Checker<'_> {
    /// Runs the checks before a tool call. A check's change and a human's answer are in the journal
    /// when this returns; a denial is not.
    pub(crate) async fn before_tool(&self, invocation: &Invocation<'_>) -> Gate<GatePass<Value>> {
        let moment = Moment::BeforeTool;
        let Invocation { tool, place, .. } = *invocation;
        let mut arguments = Content::Arguments(invocation.arguments.clone());
        let mut passed = Vec::new();
        let rules = self.rules.iter().filter(|rule| rule.runs_on_tool(moment, tool));
        // Checks that read the arguments come first, so that a human is asked about the arguments
        // that the tool would get.
        let (reading, others): (Vec<_>, Vec<_>) = rules.partition(|rule| rule.reads_content());
        for rule in reading {
            if let Some(step) = self.decided(rule, moment, place) {
                if let Some(stopped) = GateStop::by(&step) {
                    return Gate::Stopped(stopped);
                }
                arguments = self.recorded().changed(&rule.name, &arguments).unwrap_or(arguments);
                continue;
            }
            let about = About { moment, tool: Some(tool), cost: None };
            let decided = self.judge(rule, about, &arguments).await;
            let mut step = step(rule, moment, decided.clone());
            if let Some(stopped) = GateStop::by(&step) {
                self.attempt.config.crash.pass(Point::Decided);
                return Gate::Stopped(GateStop { step: Some(step), ..stopped });
            }
            match decided.content {
                Some(changed) => {
                    step.place = Some(place.to_owned());
                    step.changed = BTreeMap::from([(arguments.digest(), changed.stored())]);
                    self.write(step).await;
                    arguments = changed;
                }
                None => passed.push(step),
            }
        }
        let arguments = arguments.into_arguments();
        for rule in others {
            match self.before_tool_now(rule, invocation, &arguments).await {
                Gate::Open(step) => passed.extend(step),
                Gate::Stopped(stopped) => return Gate::Stopped(stopped),
                Gate::Asks { question } => {
                    self.write_passes(passed, place).await;
                    return Gate::Asks { question };
                }
            }
        }
        if tool == human::NAME || spawn::TOOLS.contains(&tool) {
            self.write_passes(std::mem::take(&mut passed), place).await;
        }
        self.attempt.config.crash.pass(Point::Checked);
        Gate::Open(GatePass { changed: (arguments != *invocation.arguments).then_some(arguments), passed })
    }

    /// Runs the checks after a tool has answered, before its output is in the journal. A denied
    /// output is replaced by the reason.
    pub(crate) async fn after_tool(&self, tool: &str, mut observation: Observation) -> Observation {
        let moment = Moment::AfterTool;
        for rule in self.rules.iter().filter(|rule| rule.runs_on_tool(moment, tool)) {
            let output = Content::Text(observation.text.clone());
            if output.is_empty() {
                continue;
            }
            let decided = self.judge(rule, About { moment, tool: Some(tool), cost: None }, &output).await;
            let step = step(rule, moment, decided.clone());
            let stopped = GateStop::by(&step);
            observation.checks.push(step);
            if let Some(Content::Text(changed)) = decided.content {
                observation.text = changed;
            }
            if let Some(stopped) = stopped {
                observation.text = format!("the tool was called; its output was {}", stopped.describe());
                observation.is_error = true;
                observation.note = None;
                break;
            }
        }
        if observation.checks.iter().any(|step| step.decision != CheckDecision::Pass) {
            self.attempt.config.crash.pass(Point::Decided);
        }
        observation
    }

    /// The arguments of an earlier tool call, as its checks changed them.
    pub(crate) fn changed_arguments(&self, tool: &str, place: &str, arguments: &Value) -> Value {
        let recorded = self.recorded();
        let mut arguments = Content::Arguments(arguments.clone());
        for rule in self.rules.iter().filter(|rule| rule.runs_on_tool(Moment::BeforeTool, tool)) {
            if recorded.decision(&rule.name, Moment::BeforeTool, place).is_some() {
                arguments = recorded.changed(&rule.name, &arguments).unwrap_or(arguments);
            }
        }
        arguments.into_arguments()
    }

    /// Records the passes of a call that a question or a child may interrupt. A later attempt makes
    /// the same call again to take the answer or the result. The passes keep that call from being
    /// denied after it was allowed and paid for.
    async fn write_passes(&self, passed: Vec<CheckedStep>, place: &str) {
        for step in passed {
            self.write(CheckedStep { place: Some(place.to_owned()), ..step }).await;
        }
    }

    /// Decides whether a tool may be called now. The returned pass belongs into the entry of the
    /// call.
    async fn before_tool_now(
        &self,
        rule: &Rule,
        invocation: &Invocation<'_>,
        arguments: &Value,
    ) -> Gate<Option<CheckedStep>> {
        let moment = Moment::BeforeTool;
        let Invocation { tool, place, .. } = *invocation;
        if let Some(step) = self.decided(rule, moment, place) {
            return GateStop::by(&step).map_or(Gate::Open(None), Gate::Stopped);
        }
        if let Kind::Approval(_) = rule.kind {
            let shown = wording::cut(arguments.to_string(), SHOWN_BYTES);
            let what = format!("call the tool {tool} with {shown}");
            let decided = match self.approval(rule, moment, &what).await {
                Ok(decided) => decided,
                Err(question) => return Gate::Asks { question },
            };
            let place = Some(place.to_owned());
            let step = CheckedStep { asked: true, place, ..step(rule, moment, decided) };
            let stopped = GateStop::by(&step);
            self.write(step).await;
            return stopped.map_or(Gate::Open(None), Gate::Stopped);
        }
        let decided = if let Kind::PerMinute(per_minute) = rule.kind {
            self.tool_rate(rule, per_minute)
        } else {
            ContentDecision::pass()
        };
        let step = step(rule, moment, decided);
        match GateStop::by(&step) {
            None => Gate::Open(Some(step)),
            Some(stopped) => {
                self.attempt.config.crash.pass(Point::Decided);
                Gate::Stopped(GateStop { step: Some(step), ..stopped })
            }
        }
    }

    fn tool_rate(&self, rule: &Rule, per_minute: u32) -> ContentDecision {
        // Each call that passed the check has one recorded pass, in its own entry or before it.
        let is_pass = |step: &CheckedStep| {
            step.check == rule.name
                && step.moment == Moment::BeforeTool
                && step.decision == CheckDecision::Pass
        };
        let counts = |step: &HistoryStep| step.checks().iter().any(is_pass);
        let now = self.attempt.now();
        match self.journal.with_all_entries(|all| rate::wait(all, now, per_minute, counts)) {
            None => ContentDecision::pass(),
            Some(wait) => {
                let seconds = wait.as_secs() + 1;
                ContentDecision::hit(
                    rule,
                    format!("{per_minute} calls a minute are allowed; try again in {seconds} seconds"),
                )
            }
        }
    }
}
