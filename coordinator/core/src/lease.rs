//! Leases of running attempts. Claims are events, and so are ticks with progress. A tick without
//! progress is not an event: it extends the lease in memory, and nothing is stored or logged. A
//! coordinator that loads a trace without that memory first extends its leases. A live worker ticks
//! again in time, and a lost worker is noticed a little later.

use domain::{ChildId, Timestamp};

use super::{ContextIndex, ContextNode, Phase, Status, TokenHash, Trace};

/// A lease that was extended in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Renewal {
    child_id: ChildId,
    /// The token of the attempt that has the lease. After a loss of the store another attempt may
    /// have its number.
    token: TokenHash,
    pub until: Timestamp,
}

impl ContextNode {
    /// The time until which the running attempt has its lease.
    pub fn lease_until(&self) -> Option<Timestamp> {
        self.stored_lease().map(|until| self.renewed.map_or(until, |renewed| renewed.max(until)))
    }

    fn stored_lease(&self) -> Option<Timestamp> {
        match &self.status {
            Status::Working(Phase::Running { until, .. }) => Some(*until),
            Status::Submitted { .. }
            | Status::Working(_)
            | Status::InputRequired { .. }
            | Status::Paused { .. }
            | Status::Ended(_) => None,
        }
    }
}

impl Trace {
    /// Extends the lease of the running attempt to at least `until`.
    pub(super) fn renew(&mut self, at: ContextIndex, until: Timestamp) {
        if self.node(at).lease_until().is_some_and(|lease| lease < until) {
            self.contexts[at.0 as usize].renewed = Some(until);
            self.retime(at);
        }
    }

    /// Extends leases that have expired by `expired_by` to `until`, because no worker could renew
    /// them meanwhile (B13).
    pub(super) fn spare(&mut self, expired_by: Timestamp, until: Timestamp) {
        for at in self.due(expired_by) {
            if self.node(at).lease_until().is_some_and(|lease| lease <= expired_by) {
                self.renew(at, until);
            }
        }
    }

    /// Treats all running attempts as if they had renewed their leases at `then`, because the
    /// renewals before that time are unknown here.
    pub fn renewed_by(&mut self, then: Timestamp) {
        if let Some(settings) = &self.settings {
            let until = then.plus_millis(settings.lease_ms);
            self.spare(until, until);
        }
    }

    /// The renewals that are lost when the trace is loaded again.
    pub fn renewals(&self) -> Vec<Renewal> {
        let renewal = |node: &ContextNode| {
            let until = node.renewed.filter(|_| node.lease_until().is_some())?;
            let token = node.attempts.last()?.token.clone();
            Some(Renewal { child_id: node.id.clone(), token, until })
        };
        self.contexts.iter().filter_map(renewal).collect()
    }

    /// Restores the renewals of attempts that still run.
    pub fn renew_again(&mut self, renewals: &[Renewal]) {
        for Renewal { child_id, token, until } in renewals {
            let at = self.find(child_id);
            let runs =
                |at: &ContextIndex| self.node(*at).attempts.last().is_some_and(|last| last.token == *token);
            if let Some(at) = at.filter(runs) {
                self.renew(at, *until);
            }
        }
    }

    /// The trace without renewals, as its log has it.
    pub fn without_renewals(&self) -> Trace {
        let mut trace = self.clone();
        let contexts = self.contexts.iter().filter(|node| node.renewed.is_some());
        for at in contexts.filter_map(|node| self.find(&node.id)) {
            trace.contexts[at.0 as usize].renewed = None;
            trace.retime(at);
        }
        trace
    }

    /// The time of the next wake, as far as the store knows it: renewals are not stored.
    pub fn stored_timer(&self) -> Option<Timestamp> {
        self.timers.iter().filter_map(|(_, at)| self.due_with(*at, self.node(*at).stored_lease())).min()
    }
}
