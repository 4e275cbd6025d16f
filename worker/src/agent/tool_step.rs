//! A tool call of an agent, of any kind: checked (B16), announced to observers, carried out, traced, and recorded in the
//! journal, a large output as a reference (W4).

use shared::{
    Timestamp,
    id::ToolName,
    telemetry::{self, metrics},
    wire::{HistoryEntry, HistoryStep, Said, ToolStep},
};

use tokio::time::Instant;

use super::run::Run;
use crate::{
    attempt::live_output::LiveOutput,
    check::{Checker, Gate, Stopped},
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
    let (began, asked) = (run.attempt.now(), Instant::now());
    let outcome = run.resources.toolbox.call(invocation).await;
    let failed = matches!(outcome, Outcome::Answered(Observation { is_error: true, .. }));
    metrics::tool_called(span_name(invocation.tool), asked.elapsed(), failed);
    run.attempt.config.crash.pass(Point::Called);
    emit(run, span_name(invocation.tool), began, &outcome);
    match outcome {
        Outcome::Answered(observation) => {
            let observation = Observation { checks: opened.passed, ..observation };
            Outcome::Answered(checker.after_tool(invocation.tool, observation).await)
        }
        outcome @ (Outcome::Waits { .. } | Outcome::HandsOver { .. } | Outcome::Asks { .. }) => outcome,
    }
}

/// What the agent is told of a call that a check denied.
fn denied(tool: &str, stopped: Stopped) -> Observation {
    let text = format!("the call was {}", stopped.describe());
    let tool = ToolName::new(span_name(tool)).expect("the name of a tool");
    Observation { checks: stopped.step.into_iter().collect(), ..Observation::new(tool, Err(text)) }
}

/// Records the answer of a call. `id` names the call in the journal; a passage, which is lines of a file that
/// the agent asked for, is recorded whole.
pub(super) async fn record(
    run: &Run<'_>,
    journal: &Journal<'_>,
    checker: &Checker<'_>,
    workspace: &Workspace,
    id: String,
    observation: Observation,
    is_passage: bool,
) -> HistoryEntry {
    let Observation { tool, text, is_error, note, checks } = observation;
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

/// The tool as a span may name it. Programs and models choose the text: what is not the name of a tool stays out.
fn span_name(tool: &str) -> &str {
    if ToolName::new(tool).is_ok() { tool } else { "unknown" }
}

fn emit(run: &Run<'_>, tool: &str, began: Timestamp, outcome: &Outcome) {
    if !telemetry::is_on() {
        return;
    }
    let failed = matches!(outcome, Outcome::Answered(Observation { is_error: true, .. }));
    telemetry::Span {
        name: format!("execute_tool {tool}").into(),
        trace_id: run.attempt.trace_id(),
        span_id: None,
        parent: Some(run.attempt.span),
        start: began,
        end: run.attempt.now(),
        kind: telemetry::Kind::Internal,
        attributes: vec![
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", tool.into()),
            ("trellis.child_id", run.attempt.child_id().as_str().into()),
        ],
        error: failed.then_some("the tool failed"),
        link: None,
    }
    .emit();
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
