//! The log lines about decisions, each written once, after the commit (X8): admissions, ends, lost
//! attempts, denials and cancels. They contain ids, names and numbers, and never the words of an
//! agent, a provider or a user.

use domain::{
    AgentId, ChildId, Dimension, TraceId, WorkerId,
    wire::{EndStatus, FailureKind},
};
use telemetry::span_of;
use trace::{Command, Event, Refusal, Trace};
use tracing::Level;

use super::job::Work;

#[derive(Debug)]
pub(super) enum Line {
    Admitted {
        child_id: ChildId,
        parent_id: Option<ChildId>,
        agent_id: Option<AgentId>,
    },
    Ended {
        child_id: ChildId,
        attempt: u32,
        status: EndStatus,
        error: Option<FailureKind>,
    },
    Lost {
        child_id: ChildId,
        attempt: u32,
        worker_id: Option<WorkerId>,
    },
    Denied {
        child_id: Option<ChildId>,
        attempt: Option<u32>,
        scope: ChildId,
        dimension: Dimension,
    },
    /// None: the whole run.
    Cancelled {
        child_id: Option<ChildId>,
    },
}

/// The lines to write for a decision; empty if the log level excludes them.
pub(super) fn of(work: &Work, trace: &Trace, events: &[Event], decided: Result<(), &Refusal>) -> Vec<Line> {
    if !tracing::enabled!(Level::INFO) {
        return Vec::new();
    }
    let orders = work.orders();
    let cancels = orders.iter().filter_map(|order| cancelled(&order.command, events));
    let mut lines: Vec<Line> = cancels.collect();
    if let Err(refusal) = decided {
        lines.extend(orders.last().and_then(|order| denied(&order.command, trace, refusal)));
    }
    lines.extend(events.iter().filter_map(|event| happened(trace, event)));
    lines
}

/// A cancel that changes nothing was logged before.
fn cancelled(command: &Command, events: &[Event]) -> Option<Line> {
    let Command::Cancel { child_id, .. } = command else { return None };
    (!events.is_empty()).then(|| Line::Cancelled { child_id: child_id.clone() })
}

fn denied(command: &Command, trace: &Trace, refusal: &Refusal) -> Option<Line> {
    let (scope, dimension) = if let Refusal::Denied(denied) | Refusal::NotGranted(denied) = refusal {
        (&denied.context, denied.dimension)
    } else if let Refusal::Halted { context, dimension, .. } | Refusal::NothingLeft { context, dimension } =
        refusal
    {
        (context, *dimension)
    } else {
        return None;
    };
    let lease = if let Command::Hold(hold) = command {
        Some(&hold.lease)
    } else if let Command::Spawn(spawn) = command {
        Some(&spawn.lease)
    } else {
        None
    };
    let child_id = lease.map(|lease| lease.child_id.clone());
    let attempt = child_id.as_ref().and_then(|id| trace.context(id)).map(|node| node.attempt());
    Some(Line::Denied { child_id, attempt, scope: scope.clone(), dimension })
}

fn happened(trace: &Trace, event: &Event) -> Option<Line> {
    if let Event::Admitted(admitted) = event {
        let (child_id, agent_id) = (admitted.spec.child_id.clone(), admitted.spec.agent_id.clone());
        Some(Line::Admitted { child_id, parent_id: admitted.parent_id.clone(), agent_id })
    } else if let Event::Ended(ended) = event {
        let attempt = trace.context(&ended.child_id).map_or(0, |node| node.attempt());
        let error = ended.error.as_ref().map(|error| error.kind);
        Some(Line::Ended { child_id: ended.child_id.clone(), attempt, status: ended.status, error })
    } else if let Event::AttemptLost { child_id, attempt } = event {
        let attempts = trace.context(child_id).map(|node| &node.attempts);
        let at = usize::try_from(*attempt).ok().and_then(|number| number.checked_sub(1));
        let lost = attempts.zip(at).and_then(|(attempts, at)| attempts.get(at));
        let worker_id = lost.map(|attempt| attempt.worker_id.clone());
        Some(Line::Lost { child_id: child_id.clone(), attempt: *attempt, worker_id })
    } else {
        None
    }
}

impl Line {
    pub(super) fn tell(&self, trace_id: TraceId) {
        match self {
            Line::Admitted { child_id, parent_id, agent_id } => tracing::info!(
                %trace_id,
                span_id = span_of(trace_id, child_id, None),
                %child_id,
                parent_id = parent_id.as_ref().map(display),
                agent_id = agent_id.as_ref().map(display),
                "a context was admitted"
            ),
            Line::Ended { child_id, attempt, status, error } => tracing::info!(
                %trace_id,
                span_id = span_of(trace_id, child_id, None),
                %child_id,
                attempt,
                %status,
                error_type = error.map(FailureKind::name),
                "a context ended"
            ),
            Line::Lost { child_id, attempt, worker_id } => tracing::info!(
                %trace_id,
                span_id = span_of(trace_id, child_id, Some(*attempt)),
                %child_id,
                attempt,
                worker_id = worker_id.as_ref().map(display),
                "an attempt was lost"
            ),
            Line::Denied { child_id, attempt, scope, dimension } => tracing::info!(
                %trace_id,
                span_id = child_id.as_ref().map(|child_id| span_of(trace_id, child_id, *attempt)),
                child_id = child_id.as_ref().map(display),
                attempt,
                %scope,
                %dimension,
                "a budget denied a call"
            ),
            Line::Cancelled { child_id } => tracing::info!(
                %trace_id,
                span_id = child_id.as_ref().map(|child_id| span_of(trace_id, child_id, None)),
                child_id = child_id.as_ref().map(display),
                "a cancel was taken"
            ),
        }
    }
}
