//! Makes a tool call for any kind of agent: checks it (B16), announces it to observers, runs it,
//! traces it, and records it in the journal. A large output is recorded as a reference (W4).

use domain::{
    id::ToolName,
    span::{Kind, attribute},
    wire::{HistoryEntry, HistoryStep, Said, ToolStep},
};
use telemetry::metrics;

use tokio::time::Instant;

use super::run::Run;
use crate::{
    attempt::{live_output::LiveOutput, span::Doing},
    check::{Checker, Gate, GateStop},
    crash::Point,
    files::{tool_output, workspace::Workspace},
    journal::Journal,
    tool::call::{Invocation, Observation, Outcome},
};

pub(super) async fn call(
    run: &Run<'_>,
    journal: &Journal<'_>,
    checker: &Checker<'_>,
    invocation: Invocation<'_>,
) -> Outcome {
    let opened = match checker.before_tool(&invocation).await {
        Gate::Open(opened) => opened,
        Gate::Asks { question } => return Outcome::Asks { question, form: Box::default() },
        Gate::Stopped(stopped) => return Outcome::Answered(denied(invocation.tool, stopped)),
    };
    let arguments = opened.changed.as_ref().unwrap_or(invocation.arguments);
    let invocation = Invocation { arguments, questions_before: checker.answers_used(), ..invocation };
    let live = LiveOutput::new(run.attempt, journal.next_number());
    live.send(Said::Tool { tool: invocation.tool.to_owned() }).await;
    let span = begin(run, journal, &invocation);
    let asked = Instant::now();
    let outcome = run.resources.toolbox.call(invocation).await;
    if let Outcome::Answered(Observation { is_late: false, is_error, .. }) = outcome {
        metrics::tool_called(span_name(invocation.tool), asked.elapsed(), is_error);
    }
    run.attempt.config.crash.pass(Point::Called);
    end(span, run, &outcome);
    match outcome {
        Outcome::Answered(observation) => {
            let observation = Observation { checks: opened.passed, ..observation };
            Outcome::Answered(checker.after_tool(invocation.tool, observation).await)
        }
        outcome @ (Outcome::Waits { .. } | Outcome::HandsOver { .. } | Outcome::Asks { .. }) => outcome,
    }
}

/// The agent's observation of a call that a check denied.
fn denied(tool: &str, stopped: GateStop) -> Observation {
    let text = format!("the call was {}", stopped.describe());
    let tool = ToolName::new(span_name(tool)).expect("the name of a tool");
    Observation { checks: stopped.step.into_iter().collect(), ..Observation::new(tool, Err(text)) }
}

/// Records the answer of a call. `id` names the call in the journal. A passage, which is lines of a
/// file that the agent asked for, is recorded whole.
pub(super) async fn record(
    run: &Run<'_>,
    journal: &Journal<'_>,
    checker: &Checker<'_>,
    workspace: &Workspace,
    id: String,
    observation: Observation,
    is_passage: bool,
) -> HistoryEntry {
    let Observation { tool, text, is_error, note, checks, is_late: _ } = observation;
    let output = if is_passage {
        tool_output::passage(text)
    } else {
        tool_output::offload(run.attempt, workspace, journal.next_number(), text).await
    };
    let step = ToolStep { id, tool, output, is_error, note, checks };
    let entry = journal.append(HistoryStep::Tool(Box::new(step))).await;
    note_in_history(workspace, &entry);
    checker.note(&entry).await;
    entry
}

/// Writes an entry into the workspace's own copy of the history, for the agent to read (I3).
pub(super) fn note_in_history(workspace: &Workspace, entry: &HistoryEntry) {
    if let Err(error) = workspace.note(entry) {
        tracing::warn!(%error, "could not write a step into the workspace's history");
    }
}

/// The name of a tool in a span. Programs and models choose this text, so an invalid name is left
/// out.
fn span_name(tool: &str) -> &str {
    if ToolName::new(tool).is_ok() { tool } else { "unknown" }
}

fn begin<'a>(run: &Run<'a>, journal: &Journal<'_>, invocation: &Invocation<'_>) -> Doing<'a> {
    let tool = span_name(invocation.tool);
    let id = format!("{}.{}.tool", run.attempt.number(), journal.next_number());
    let mut span = run.attempt.begin(format!("execute_tool {tool}"), Kind::Internal, &id);
    span.add(|| {
        let mut attributes = vec![
            attribute("gen_ai.operation.name", "execute_tool"),
            attribute("gen_ai.tool.name", tool),
            attribute("gen_ai.tool.call.id", invocation.place),
        ];
        if telemetry::has_content() {
            let arguments = run.attempt.content(invocation.arguments.to_string());
            attributes.push(attribute("gen_ai.tool.call.arguments", arguments));
        }
        attributes
    });
    span
}

/// Ends the span of a call. A tool that a child or a human answers ends later, and the coordinator
/// creates its span.
fn end(mut span: Doing<'_>, run: &Run<'_>, outcome: &Outcome) {
    let Outcome::Answered(observation) = outcome else { return span.forget() };
    if observation.is_late {
        return span.forget();
    }
    if observation.is_error {
        span.fail("tool_error");
    }
    if telemetry::has_content() {
        span.add(|| {
            vec![attribute("gen_ai.tool.call.result", run.attempt.content(observation.text.clone()))]
        });
    }
    span.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x4_a_span_names_tools_and_no_text_that_a_program_chose() {
        assert_eq!(span_name("fs.read"), "fs.read");
        assert_eq!(span_name("everything:echo"), "everything:echo");
        for text in ["", "my secret is 42", "line\nline", &"x".repeat(1 << 20)] {
            assert_eq!(span_name(text), "unknown");
        }
    }
}
