//! The limits of section L that an agent can pass while it runs. Whoever has used all of a limit may still finish, so the
//! answer is the same at a tick, at the end, and whenever a tick comes.

use domain::{
    limits::MAX_VALUE_BYTES,
    wire::{FailureKind, Payload, Progress},
};
use text::set_limit::UsedLimit;

use super::{ContextIndex, ContextNode, Event, Trace, end, limit_text};

/// A limit, and what was used of it.
pub(super) struct PassedLimit {
    limit: &'static str,
    has: u64,
    max: u64,
}

impl PassedLimit {
    /// The end of a context that has passed the limit.
    pub(super) fn ends(&self, trace: &Trace, at: ContextIndex) -> Event {
        let used = UsedLimit::new(self.limit, self.has, self.max);
        end::failed(trace, at, FailureKind::LimitExceeded, limit_text::said(trace, at, &used))
    }
}

/// The first limit that an agent with this progress has passed.
pub(super) fn passed(node: &ContextNode, progress: Progress) -> Option<PassedLimit> {
    let limits = &node.limits;
    let used = [
        ("max_steps", u64::from(progress.steps), u64::from(limits.max_steps)),
        ("max_retries_total", node.retries_with(progress).into(), limits.max_retries_total.into()),
        ("max_output_files", u64::from(progress.output_files), u64::from(limits.max_output_files)),
        ("max_output_size_bytes", progress.output_size_bytes, limits.max_output_size_bytes),
    ];
    let passed = used.into_iter().find(|(_, has, max)| has > max);
    passed.map(|(limit, has, max)| PassedLimit { limit, has, max })
}

/// The limit that a result by value passes, if it does.
pub(super) fn too_large(node: &ContextNode, payload: &Payload) -> Option<PassedLimit> {
    let max = node.limits.max_result_bytes.min(MAX_VALUE_BYTES);
    match payload {
        Payload::Inline(value) if value.size_bytes() > max => {
            Some(PassedLimit { limit: "max_result_bytes", has: value.size_bytes(), max })
        }
        Payload::Inline(_) | Payload::Reference(_) => None,
    }
}
