//! Attempts: claim, tick, report. A worker identifies itself by the lease from the answer to its
//! claim. A message with an older attempt or another token changes nothing (t5).
//!
//! A second delivery is harmless. A claim is known by its token, and a tick only extends the lease.
//! A report ends the attempt that it names, so its second copy finds an attempt that no longer
//! runs.

use domain::{
    ChildId, Timestamp,
    wire::{
        Claim, EndStatus, Failure, FailureKind, Lease, OnExhausted, Payload, Progress, Report, Tick, Verdict,
    },
    wording::count,
};

use super::{
    ContextIndex, Event, Phase, Refusal, Requeue, Status, TokenHash, Trace, content, context_store, end,
    limit, limit_text, question,
};

impl Trace {
    pub(super) fn known(&self, child_id: &ChildId) -> Result<ContextIndex, Refusal> {
        if self.contexts.is_empty() {
            return Err(Refusal::NoTrace);
        }
        self.find(child_id).ok_or_else(|| Refusal::UnknownContext(child_id.clone()))
    }

    pub(super) fn known_live(&self, child_id: &ChildId) -> Result<ContextIndex, Refusal> {
        let at = self.known(child_id)?;
        match self.node(at).end() {
            Some(end) => Err(Refusal::Ended { child_id: child_id.clone(), status: end.status }),
            None => Ok(at),
        }
    }

    /// The context of a lease that was issued, for any of its attempts.
    pub(super) fn issued(&self, lease: &Lease) -> Result<ContextIndex, Refusal> {
        let at = self.known(&lease.child_id)?;
        let place = (lease.attempt as usize).checked_sub(1);
        match place.and_then(|place| self.node(at).attempts.get(place)) {
            Some(attempt) if attempt.token == TokenHash::of(&lease.token) => Ok(at),
            Some(_) => Err(Refusal::WrongToken { child_id: lease.child_id.clone(), attempt: lease.attempt }),
            None => Err(stale(self, at, lease)),
        }
    }

    /// Checks that a lease belongs to the attempt that runs now.
    pub fn check_lease(&self, lease: &Lease) -> Result<(), Refusal> {
        self.running(lease).map(drop)
    }

    /// The context of the lease of a running attempt. An expired lease stays valid until another
    /// attempt claims the context: the first commit wins. After a restore the attempt may neither
    /// begin nor report anything.
    pub(super) fn running(&self, lease: &Lease) -> Result<ContextIndex, Refusal> {
        let at = self.leased(lease)?;
        match &self.node(at).status {
            Status::Working(Phase::Running { restored: true, .. }) => {
                Err(Refusal::Restored(lease.child_id.clone()))
            }
            Status::Submitted { .. }
            | Status::Working(_)
            | Status::InputRequired { .. }
            | Status::Paused { .. }
            | Status::Ended(_) => Ok(at),
        }
    }

    /// Like `running`, but accepts a restored context: its attempt keeps the lease until its call
    /// in flight has ended.
    fn leased(&self, lease: &Lease) -> Result<ContextIndex, Refusal> {
        let at = self.issued(lease)?;
        self.known_live(&lease.child_id)?;
        let node = self.node(at);
        match &node.status {
            Status::Working(Phase::Running { .. }) if node.attempt() == lease.attempt => Ok(at),
            Status::Submitted { .. }
            | Status::Working(_)
            | Status::InputRequired { .. }
            | Status::Paused { .. } => Err(stale(self, at, lease)),
            Status::Ended(_) => unreachable!("`known_live` refuses an ended context"),
        }
    }
}

fn stale(trace: &Trace, at: ContextIndex, lease: &Lease) -> Refusal {
    let latest = trace.node(at).attempt();
    Refusal::Stale { child_id: lease.child_id.clone(), attempt: lease.attempt, latest }
}

pub(super) fn claim(trace: &Trace, claim: &Claim, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let at = trace.known_live(&claim.child_id)?;
    let node = trace.node(at);
    let child_id = node.id.clone();
    let token = TokenHash::of(&claim.token);
    if trace.deadline(node).is_some_and(|deadline| deadline <= now) {
        // The deadline has passed and its timer is late; an attempt would only run out of time.
        return Ok(vec![timed_out(trace, at)]);
    }
    let mut events = match &node.status {
        Status::Working(Phase::Running { until, .. }) => {
            let until = node.lease_until().unwrap_or(*until);
            if node.attempts.last().is_some_and(|attempt| attempt.token == token) {
                return Ok(Vec::new());
            }
            if now < until {
                return Err(Refusal::Taken { child_id, until });
            }
            let events = lost(trace, at, now);
            if !matches!(events.last(), Some(Event::Requeued { .. })) {
                return Ok(events);
            }
            events
        }
        Status::Working(Phase::Queued { not_before, .. }) if now < *not_before => {
            return Err(Refusal::NotYet { child_id, until: *not_before });
        }
        Status::Submitted { .. } | Status::Working(Phase::Queued { .. }) => Vec::new(),
        Status::Working(Phase::Waiting { .. }) => {
            return Err(Refusal::NotQueued { child_id, status: "waiting for children" });
        }
        Status::Working(Phase::Steps) => {
            return Err(Refusal::NotQueued { child_id, status: "running its steps" });
        }
        Status::InputRequired { .. } => {
            return Err(Refusal::NotQueued { child_id, status: "waiting for input" });
        }
        Status::Paused { .. } => return Err(Refusal::NotQueued { child_id, status: "paused" }),
        Status::Ended(_) => unreachable!("`known_live` refuses an ended context"),
    };
    if node.attempts.iter().any(|attempt| attempt.token == token) {
        // A late copy of an earlier attempt's claim: that attempt has ended.
        let latest = node.attempt();
        return Err(Refusal::Stale { child_id, attempt: latest, latest });
    }
    events.push(Event::Claimed {
        child_id,
        attempt: node.attempt() + 1,
        token,
        worker_id: claim.worker_id.clone(),
        until: now.plus_millis(trace.settings().lease_ms),
    });
    Ok(events)
}

/// A tick without progress gives no event: `handle` extends its lease in memory.
pub(super) fn tick(trace: &Trace, tick: &Tick, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let at = trace.leased(&tick.lease)?;
    let node = trace.node(at);
    let progress = grown(node.lifecycle.progress, tick.progress);
    if progress == node.lifecycle.progress && limit::passed(node, progress).is_none() {
        return Ok(Vec::new());
    }
    let until = now.plus_millis(trace.settings().lease_ms);
    let mut events = vec![Event::Ticked { child_id: node.id.clone(), until, progress }];
    events.extend(limit::passed(node, progress).map(|passed| passed.ends(trace, at)));
    Ok(events)
}

/// Counters only grow, so the order in which reports arrive does not matter.
fn grown(had: Progress, reported: Progress) -> Progress {
    Progress {
        steps: had.steps.max(reported.steps),
        retries: had.retries.max(reported.retries),
        output_files: had.output_files.max(reported.output_files),
        output_size_bytes: had.output_size_bytes.max(reported.output_size_bytes),
        journaled: had.journaled.max(reported.journaled),
    }
}

pub(super) fn report(trace: &Trace, report: Report, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let at = match report.verdict {
        Verdict::HandedBack => trace.leased(&report.lease)?,
        Verdict::Completed(_)
        | Verdict::Failed(_)
        | Verdict::Halted { .. }
        | Verdict::Waiting { .. }
        | Verdict::InputRequired { .. }
        | Verdict::OutOfBudget
        | Verdict::LastReport(_) => trace.running(&report.lease)?,
    };
    let node = trace.node(at);
    let progress = grown(node.lifecycle.progress, report.progress);
    let mut events = Vec::new();
    if progress != node.lifecycle.progress {
        events.push(Event::Progressed { child_id: node.id.clone(), progress });
    }
    let is_late = trace.deadline(node).is_some_and(|deadline| deadline <= now);
    events.extend(match report.verdict {
        verdict if is_late && gives_nothing(&verdict) => vec![timed_out(trace, at)],
        Verdict::Completed(payload) => completed(trace, at, payload, progress, now),
        Verdict::Failed(failure) => {
            vec![failed(trace, at, limit_text::explained(trace, at, failure), progress, now)]
        }
        Verdict::Halted { check, reason } => {
            // The text of a check may quote the content of the run, so it goes where a delete
            // removes it (W6).
            let failure = Failure::lasting(FailureKind::Refused, reason);
            let reason = Some(format!("check `{check}` halted it"));
            vec![end::with_error(trace, at, EndStatus::Aborted, failure, reason)]
        }
        Verdict::Waiting { children, hand_over } => waiting(trace, at, &children, hand_over, now)?,
        Verdict::InputRequired { question, form } => vec![question::by_agent(trace, at, question, *form)?],
        Verdict::OutOfBudget => vec![out_of_budget(trace, at, now)],
        Verdict::LastReport(payload) => vec![last_report(trace, at, payload)],
        Verdict::HandedBack => vec![queue_again(trace, at, Requeue::HandedBack, now)],
    });
    Ok(events)
}

/// L: whether a verdict after the deadline ends the context as its timer would, so that it does not
/// matter which of the two arrives first. A result is still accepted if it arrives before the
/// timer.
fn gives_nothing(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Failed(_) | Verdict::InputRequired { .. } | Verdict::OutOfBudget | Verdict::HandedBack => {
            true
        }
        Verdict::Waiting { hand_over, .. } => !hand_over,
        Verdict::Completed(_) | Verdict::LastReport(_) | Verdict::Halted { .. } => false,
    }
}

pub(super) fn timed_out(trace: &Trace, at: ContextIndex) -> Event {
    end::stopped(trace, at, EndStatus::TimedOut, limit_text::out_of_time(trace, at))
}

fn completed(
    trace: &Trace,
    at: ContextIndex,
    payload: Payload,
    progress: Progress,
    now: Timestamp,
) -> Vec<Event> {
    let node = trace.node(at);
    if let Some(passed) = limit::passed(node, progress).or_else(|| limit::too_large(node, &payload)) {
        return vec![passed.ends(trace, at)];
    }
    match unfit(trace, at, &payload) {
        Some(message) => {
            let failure = Failure { kind: FailureKind::OutputSchema, message, retryable: true };
            // The value that the context wrote to its output belongs to the rejected result, and
            // must not pass as the next one.
            let mut events: Vec<_> = context_store::own_value_deleted(trace, at).into_iter().collect();
            events.push(failed(trace, at, failure, progress, now));
            events
        }
        None => finish(trace, at, payload),
    }
}

/// Why a result does not match the schema; `None` if it matches. If the context wrote a value to
/// its output, readers get that value instead of the result, so it must match too.
pub(super) fn unfit(trace: &Trace, at: ContextIndex, payload: &Payload) -> Option<String> {
    let spec = &trace.node(at).spec;
    let schema = spec.output_schema.as_ref()?;
    let result = match payload {
        Payload::Inline(value) => schema.check(value).err(),
        Payload::Reference(_) => Some("a result by reference can't be checked; return it inline".into()),
    };
    result.or_else(|| {
        let key = spec.output_to.as_ref()?;
        let why = schema.check(context_store::own_value(trace, at, key)?).err()?;
        Some(format!("the value that it wrote to `{key}`: {why}"))
    })
}

/// Completes a context and writes the result to its output key, unless the context has written
/// there itself. For a step, its graph writes the result.
fn finish(trace: &Trace, at: ContextIndex, payload: Payload) -> Vec<Event> {
    let node = trace.node(at);
    // A result that has no room ends the context as failed, so that a reader can't mistake anything
    // else for its result.
    if let Err(message) = content::check_end(trace, at, EndStatus::Completed, Some(&payload)) {
        return vec![end::failed(trace, at, FailureKind::LimitExceeded, message)];
    }
    let mut events = Vec::new();
    if let (Some(key), None) = (&node.spec.output_to, node.identity.step) {
        match context_store::put_result(trace, at, key, &payload.to_value()) {
            Ok(written) => events.extend(written),
            Err(refusal) => {
                return vec![end::failed(trace, at, FailureKind::LimitExceeded, refusal.to_string())];
            }
        }
    }
    events.push(end::completed(trace, at, Some(payload)));
    events
}

/// B15: another attempt after a delay, while retries are left.
fn failed(trace: &Trace, at: ContextIndex, failure: Failure, progress: Progress, now: Timestamp) -> Event {
    let node = trace.node(at);
    if trace.deadline(node).is_some_and(|deadline| deadline <= now) {
        return timed_out(trace, at);
    }
    if failure.retryable && node.retries_with(progress) < node.limits.max_retries_total {
        let settings = trace.settings();
        let doubled = settings.retry_base_ms.saturating_mul(1 << node.lifecycle.retried.min(20));
        return queue_again(trace, at, Requeue::Retry, now.plus_millis(doubled.min(settings.retry_max_ms)));
    }
    match trace.blocked(at) {
        // The exhausted budget is the cause, not the failure that the worker reports.
        Some((context, dimension)) if context.terms.on_exhausted == OnExhausted::Abort => {
            let reason = limit_text::out_of_money(trace, context, dimension);
            end::with_error(trace, at, EndStatus::Aborted, failure, Some(reason))
        }
        Some(_) | None => end::with_error(trace, at, EndStatus::Failed, failure, None),
    }
}

fn waiting(
    trace: &Trace,
    at: ContextIndex,
    children: &[ChildId],
    hand_over: bool,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let malformed =
        |message: String| Refusal::Malformed(domain::Problems::one("verdict.waiting", message, None));
    for child in children {
        let is_own = trace.find(child).is_some_and(|child| trace.node(child).parent == Some(at));
        if !is_own {
            return Err(malformed(format!("`{child}` is not a child of `{}`", trace.node(at).id)));
        }
    }
    if children.is_empty() || (hand_over && children.len() != 1) {
        let message = "name the children to wait for; `hand_over` needs exactly one";
        return Err(malformed(message.into()));
    }
    let child_id = trace.node(at).id.clone();
    let indices: Vec<_> = children.iter().map(|child| trace.expect(child)).collect();
    if indices.iter().any(|child| trace.node(*child).is_live()) {
        return Ok(vec![Event::Waiting { child_id, children: children.to_vec(), hand_over }]);
    }
    Ok(children_ended(trace, at, &indices, hand_over, now))
}

/// The parent gets the children's results as the answer of its tool. After a hand-over, the child's
/// result becomes the parent's result.
pub(super) fn children_ended(
    trace: &Trace,
    at: ContextIndex,
    children: &[ContextIndex],
    hand_over: bool,
    now: Timestamp,
) -> Vec<Event> {
    let [child] = children else { return vec![queue_again(trace, at, Requeue::ChildrenEnded, now)] };
    if !hand_over {
        return vec![queue_again(trace, at, Requeue::ChildrenEnded, now)];
    }
    let end = trace.node(*child).end().expect("asked only when all have ended").clone();
    match (end.status, end.details.result.clone()) {
        (EndStatus::Completed, Some(payload)) => match unfit(trace, at, &payload) {
            Some(message) => vec![end::failed(trace, at, FailureKind::OutputSchema, message)],
            None => finish(trace, at, payload),
        },
        _ => vec![end::same_as(trace, at, end)],
    }
}

/// B7: the last report. The context was cut short, so it never ends as completed.
fn last_report(trace: &Trace, at: ContextIndex, payload: Payload) -> Event {
    match limit::too_large(trace.node(at), &payload) {
        Some(passed) => passed.ends(trace, at),
        None => end::last_report(trace, at, payload),
    }
}

/// B8: pauses if the context or an ancestor has `on_exhausted: pause`, or if the next call only
/// waits for calls in flight; aborts otherwise.
fn out_of_budget(trace: &Trace, at: ContextIndex, now: Timestamp) -> Event {
    let node = trace.node(at);
    let child_id = node.id.clone();
    // The end of a call returns nothing to an exhausted budget: only a raise helps.
    if node.lifecycle.waiting.iter().any(|hold| hold.attempt == node.attempt()) && trace.blocked(at).is_none()
    {
        let reason = "its next call waits until calls in flight return unused budget".into();
        return Event::Paused { child_id, reason, in_line: true };
    }
    // More may have become available since the hold was denied, so the next attempt requests it
    // again.
    if trace.growths(at) > node.lifecycle.growths_before {
        return queue_again(trace, at, Requeue::Room, now);
    }
    if trace.may_pause(at) {
        let reason = limit_text::too_little_left(trace, at, None);
        return Event::Paused { child_id, reason, in_line: false };
    }
    let reason = limit_text::too_little_left(trace, at, Some(EndStatus::Aborted));
    end::stopped(trace, at, EndStatus::Aborted, reason)
}

/// Queues a context again, unless an exhausted budget prevents it: then it aborts or pauses. If its
/// deadline has passed, it ends as its timer would end it.
pub(super) fn queue_again(trace: &Trace, at: ContextIndex, why: Requeue, not_before: Timestamp) -> Event {
    let child_id = trace.node(at).id.clone();
    match trace.blocked(at) {
        None => Event::Requeued { child_id, why, not_before },
        Some((context, dimension)) => {
            let reason = limit_text::out_of_money(trace, context, dimension);
            let is_over = |deadline: Timestamp| why != Requeue::Retry && deadline <= not_before;
            match context.terms.on_exhausted {
                _ if trace.deadline(trace.node(at)).is_some_and(is_over) => timed_out(trace, at),
                OnExhausted::Abort => end::stopped(trace, at, EndStatus::Aborted, reason),
                OnExhausted::Pause => Event::Paused { child_id, reason, in_line: false },
            }
        }
    }
}

/// The lease expired. The attempt uses a retry, so that work that kills its workers ends at some
/// point.
pub(super) fn lost(trace: &Trace, at: ContextIndex, now: Timestamp) -> Vec<Event> {
    let node = trace.node(at);
    let lost = Event::AttemptLost { child_id: node.id.clone(), attempt: node.attempt() };
    let next = if node.retries() < node.limits.max_retries_total {
        queue_again(trace, at, Requeue::Lost, now)
    } else {
        let limit = limit_text::of_context(trace, at, "max_retries_total");
        let message =
            format!("its worker was lost {}, and {limit}", count(node.lifecycle.retried + 1, "time"));
        end::failed(trace, at, FailureKind::WorkerLost, message)
    };
    vec![lost, next]
}
