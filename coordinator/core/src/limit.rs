//! The limits of section L that a running agent can exceed. An agent that has used exactly all of a
//! limit may still finish. The answer is therefore the same at a tick and at the end, whenever the
//! tick arrives.

use domain::{
    limits::MAX_VALUE_BYTES,
    wire::{FailureKind, Payload, Progress},
};
use text::set_limit::UsedLimit;

use super::{ContextIndex, ContextNode, Event, Trace, end, limit_text};

/// A limit, and the amount used.
pub(super) struct PassedLimit {
    limit: &'static str,
    has: u64,
    max: u64,
}

impl PassedLimit {
    /// The end of a context that has exceeded the limit.
    pub(super) fn ends(&self, trace: &Trace, at: ContextIndex) -> Event {
        let used = UsedLimit::new(self.limit, self.has, self.max);
        end::failed(trace, at, FailureKind::LimitExceeded, limit_text::said(trace, at, &used))
    }
}

/// The first limit that an agent with this progress has exceeded.
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

/// The limit that an inline result exceeds, if it exceeds one.
pub(super) fn too_large(node: &ContextNode, payload: &Payload) -> Option<PassedLimit> {
    let max = node.limits.max_result_bytes.min(MAX_VALUE_BYTES);
    match payload {
        Payload::Inline(value) if value.size_bytes() > max => {
            Some(PassedLimit { limit: "max_result_bytes", has: value.size_bytes(), max })
        }
        Payload::Inline(_) | Payload::Reference(_) => None,
    }
}
