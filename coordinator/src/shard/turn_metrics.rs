//! The metrics of a turn (X7). They are collected while jobs are decided, and recorded when the
//! decisions are committed. So a decision that another coordinator preceded is not counted, and a
//! message that is delivered twice is counted once.

use std::{collections::HashMap, time::Duration};

use domain::{
    AgentId, Amount, CallId, ChildId, PoolName, Timestamp, Usd,
    id::ModelName,
    wire::{EndStatus, Verdict},
};
use telemetry::metrics::{self, Source};
use trace::{Command, ContextNode, Event, Phase, Refusal, Status, Trace};

use super::job::Work;

/// The metrics of a trace in one turn, recorded once the turn is committed.
#[derive(Debug, Default)]
pub(super) struct TurnMetrics(Vec<Fact>);

#[derive(Debug, PartialEq)]
enum Fact {
    Waited(PoolName, Duration),
    Attempt(&'static str),
    LeaseExpired,
    Run(&'static str),
    /// Of an agent, or of a graph if there is none.
    Ended(Option<AgentId>, Duration, Option<&'static str>),
    Cancelled(Duration),
    Hold(&'static str),
    Denied(&'static str, &'static str),
    Spent(Source, Option<ModelName>, Usd),
    Overspent(Usd),
    Disputed(Usd),
}

/// The call whose hold was last denied, by context. A worker asks for it again when its costs are
/// booked, or while other calls are in flight: that is still one denial.
#[derive(Debug, Default)]
pub(crate) struct Denials(HashMap<ChildId, CallId>);

impl Denials {
    /// The decision to count: a repeated denial becomes `Ok`.
    pub(super) fn news<'a>(
        &mut self,
        work: &Work,
        decided: Result<(), &'a Refusal>,
    ) -> Result<(), &'a Refusal> {
        let Some((_, Command::Hold(hold))) = of_worker(work) else { return decided };
        match decided {
            Err(Refusal::Denied(_) | Refusal::Halted { .. }) => {
                let last = self.0.insert(hold.lease.child_id.clone(), hold.call_id.clone());
                if last.as_ref() == Some(&hold.call_id) { Ok(()) } else { decided }
            }
            Ok(()) | Err(_) => decided,
        }
    }
}

/// Values that can only be read from the state before a decision.
#[derive(Debug, Default)]
pub(super) struct Before {
    overspent: Amount,
    spent: Amount,
    /// Since when the context of a claim waits, and the pool of the claiming worker.
    queued: Option<(Timestamp, PoolName)>,
}

impl Before {
    pub(super) fn of(trace: &Trace, work: &Work) -> Self {
        if !metrics::is_on() {
            return Before::default();
        }
        let queued = if let Some((pool, Command::Claim(claim))) = of_worker(work) {
            let since = trace.context(&claim.child_id).and_then(queued_since);
            since.map(|since| (since, pool.clone()))
        } else {
            None
        };
        Before { overspent: overspent(trace), spent: spent(trace), queued }
    }
}

impl TurnMetrics {
    /// Collects the metrics of a decided job: `trace` is the state after it.
    pub(super) fn note(
        &mut self,
        before: Before,
        work: &Work,
        trace: &Trace,
        (events, decided): (&[Event], Result<(), &Refusal>),
        now: Timestamp,
    ) {
        if !metrics::is_on() {
            return;
        }
        let beyond = overspent(trace).saturating_sub(before.overspent).cost_usd;
        if beyond > Usd::ZERO {
            self.0.push(Fact::Overspent(beyond));
        }
        let booked = spent(trace).saturating_sub(before.spent).cost_usd;
        if booked > Usd::ZERO {
            self.0.extend(sources(work, events, booked));
        }
        for event in events {
            self.event(event, trace, &before, now);
        }
        match (of_worker(work), decided) {
            (Some((_, Command::Report(report))), Ok(())) => {
                self.0.push(Fact::Attempt(verdict(&report.verdict)));
            }
            (Some((_, Command::Hold(_))), Err(Refusal::Denied(denied))) => {
                let why = Fact::Denied(denied.dimension.name(), "too_small");
                self.0.extend([Fact::Hold("denied"), why]);
            }
            (Some((_, Command::Hold(_))), Err(Refusal::Halted { dimension, .. })) => {
                self.0.extend([Fact::Hold("halted"), Fact::Denied(dimension.name(), "exhausted")]);
            }
            (_, _) => {}
        }
    }

    fn event(&mut self, event: &Event, trace: &Trace, before: &Before, now: Timestamp) {
        if let Event::Claimed { .. } = event {
            if let Some((since, pool)) = &before.queued {
                self.0.push(Fact::Waited(pool.clone(), between(*since, now)));
            }
        } else if let Event::AttemptLost { .. } = event {
            self.0.push(Fact::LeaseExpired);
        } else if let Event::Held { .. } = event {
            self.0.push(Fact::Hold("granted"));
        } else if let Event::HoldQueued { .. } = event {
            self.0.push(Fact::Hold("waits"));
        } else if let Event::Disputed { amount, .. } = event {
            self.0.push(Fact::Disputed(amount.cost_usd));
        } else if let Event::Ended(ended) = event {
            self.0.extend(trace.context(&ended.child_id).into_iter().flat_map(|node| ends(node, now)));
        } else if let Event::Closed { child_id } = event
            && let Some(end) = trace.context(child_id).and_then(ContextNode::end)
            && end.status == EndStatus::Cancelled
        {
            self.0.push(Fact::Cancelled(between(end.at, now)));
        }
    }

    /// Records the metrics, after the commit or where there was nothing to commit.
    pub(super) fn tell(self) {
        for fact in self.0 {
            match fact {
                Fact::Waited(pool, waited) => metrics::queue_waited(pool.as_str(), waited),
                Fact::Attempt(verdict) => metrics::attempt_ended(verdict),
                Fact::LeaseExpired => metrics::lease_expired(),
                Fact::Run(status) => metrics::run_ended(status),
                Fact::Ended(agent, took, error) => {
                    let what = agent.as_ref().map_or(metrics::EndedWork::Workflow, |agent| {
                        metrics::EndedWork::Agent(agent.as_str())
                    });
                    metrics::context_ended(what, took, error);
                }
                Fact::Cancelled(took) => metrics::cancelled(took),
                Fact::Hold(result) => metrics::hold(result),
                Fact::Denied(dimension, reason) => metrics::denied(dimension, reason),
                Fact::Spent(source, model, usd) => {
                    metrics::spent(model.as_ref().map(ModelName::as_str), source, usd);
                }
                Fact::Overspent(usd) => metrics::overspent(usd),
                Fact::Disputed(usd) => metrics::disputed(usd),
            }
        }
    }
}

/// The command of a worker, and the worker's pool.
fn of_worker(work: &Work) -> Option<(&PoolName, &Command)> {
    let order = work.orders().first()?;
    Some((order.pool.as_ref()?, &order.command))
}

/// Since when a context could have been claimed. After the loss of a worker, since the lease
/// expired.
fn queued_since(node: &ContextNode) -> Option<Timestamp> {
    match &node.status {
        Status::Submitted { .. } => Some(node.identity.started_at),
        Status::Working(Phase::Queued { not_before, .. }) => Some(*not_before),
        Status::Working(Phase::Running { until, .. }) => Some(node.lease_until().unwrap_or(*until)),
        Status::Working(Phase::Waiting { .. } | Phase::Steps)
        | Status::InputRequired { .. }
        | Status::Paused { .. }
        | Status::Ended(_) => None,
    }
}

fn ends(node: &ContextNode, now: Timestamp) -> Vec<Fact> {
    let Some(end) = node.end() else { return Vec::new() };
    let is_run = node.parent.is_none();
    let mut facts: Vec<Fact> = is_run.then(|| Fact::Run(end.status.name())).into_iter().collect();
    let agent = node.spec.agent_id.clone().filter(|_| node.graph.is_none());
    // A result taken from an earlier run took no time in this one, and an approval has no agent.
    if node.identity.taken.is_none() && (node.graph.is_some() || agent.is_some()) {
        facts.push(Fact::Ended(agent, between(node.identity.started_at, now), end.error_type()));
    }
    facts
}

/// The money and tokens that the whole run has spent.
fn spent(trace: &Trace) -> Amount {
    trace.root().map(|root| root.budget.spent).unwrap_or_default()
}

/// The sources of the booked amount: calls whose cost is known, then the command itself.
fn sources(work: &Work, events: &[Event], booked: Usd) -> Vec<Fact> {
    let settled =
        |event: &Event| if let Event::Settled { amount, .. } = event { amount.cost_usd.nanos() } else { 0 };
    let known = Usd::from_nanos(events.iter().map(settled).sum()).min(booked);
    let (model, rest) = match work.orders().first().map(|order| &order.command) {
        Some(Command::Settle { model, .. }) => (model.clone(), Source::Call),
        Some(Command::Charge(_) | Command::DecideDispute(_)) => (None, Source::Charge),
        Some(_) | None => (None, Source::Estimate),
    };
    let left = Usd::from_nanos(booked.nanos() - known.nanos());
    let parts = [(Source::Call, model.clone(), known), (rest, model, left)];
    let some = parts.into_iter().filter(|(_, _, usd)| *usd > Usd::ZERO);
    some.map(|(source, model, usd)| Fact::Spent(source, model, usd)).collect()
}

/// The amount that was booked beyond the budget of the whole run.
fn overspent(trace: &Trace) -> Amount {
    let beyond = |root: &ContextNode| root.budget.spent.saturating_sub(root.budget.ceilings.limit);
    trace.root().map(beyond).unwrap_or_default()
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_millis(to.millis_since(from))
}

fn verdict(of: &Verdict) -> &'static str {
    match of {
        Verdict::Completed(_) => "completed",
        Verdict::Failed(_) => "failed",
        Verdict::Halted { .. } => "halted",
        Verdict::Waiting { .. } => "waiting",
        Verdict::InputRequired { .. } => "input_required",
        Verdict::OutOfBudget => "out_of_budget",
        Verdict::LastReport(_) => "last_report",
        Verdict::HandedBack => "handed_back",
    }
}

#[cfg(test)]
mod tests {
    use domain::TraceId;
    use serde_json::json;
    use trace::Order;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(5_000);

    /// A claimed run with a hold of a dollar.
    fn claimed() -> Trace {
        let mut trace = Trace::new(TraceId::from_u128(1).unwrap());
        let amount = json!({"cost_usd": 1, "tokens": 100});
        let spec = json!({"child_id": "root", "agent_id": "default", "goal": "g", "funding": "shared"});
        let token = trace::TokenHash::of(&"token".parse().unwrap());
        for event in [
            json!({"type": "opened", "settings": {}}),
            json!({"type": "admitted", "order": spec, "body": "agent", "depth": 0, "ceiling": amount}),
            json!({"type": "claimed", "child_id": "root", "attempt": 1, "token": token, "worker_id": "w", "until": 11_000}),
            json!({"type": "held", "child_id": "root", "call_id": "1-1", "attempt": 1, "amount": amount}),
        ] {
            trace.apply(&serde_json::from_value(event).unwrap(), Timestamp::from_millis(1_000));
        }
        trace
    }

    fn report() -> Command {
        let report = json!({"lease": lease(), "verdict": {"completed": {"inline": 1}}});
        Command::Report(Box::new(serde_json::from_value(report).unwrap()))
    }

    fn hold(call_id: &str, dollars: u32) -> Command {
        let amount = json!({"cost_usd": dollars, "tokens": 100});
        let hold = json!({"lease": lease(), "call_id": call_id, "amount": amount});
        Command::Hold(serde_json::from_value(hold).unwrap())
    }

    fn lease() -> serde_json::Value {
        json!({"child_id": "root", "attempt": 1, "token": "token"})
    }

    fn told(command: Command, trace: &mut Trace) -> Vec<Fact> {
        told_after(&mut Denials::default(), command, trace)
    }

    fn told_after(denials: &mut Denials, command: Command, trace: &mut Trace) -> Vec<Fact> {
        told_of(denials, command.from_pool(PoolName::default_pool()), trace)
    }

    fn told_of(denials: &mut Denials, order: Order, trace: &mut Trace) -> Vec<Fact> {
        metrics::switch_on();
        let work = Work::Orders(vec![order.clone()]);
        let before = Before::of(trace, &work);
        let decided = trace.handle(order, NOW);
        let (events, decided) = match &decided {
            Ok(events) => (&events[..], Ok(())),
            Err(refusal) => (&[][..], Err(refusal)),
        };
        let mut counted = TurnMetrics::default();
        counted.note(before, &work, trace, (events, denials.news(&work, decided)), NOW);
        counted.0
    }

    #[test]
    fn x7_a_report_that_comes_twice_counts_once() {
        let mut trace = claimed();
        let agent = "default".parse().unwrap();
        let took = Duration::from_secs(4);
        let first = told(report(), &mut trace);
        // The open hold of the call is booked by the next attempt, or later.
        assert_eq!(
            first,
            [Fact::Run("completed"), Fact::Ended(Some(agent), took, None), Fact::Attempt("completed")]
        );
        assert_eq!(told(report(), &mut trace), []);
    }

    #[test]
    fn x7_a_repeated_hold_is_counted_once_and_a_denial_names_its_dimension() {
        let mut trace = claimed();
        assert_eq!(told(hold("1-1", 1), &mut trace), []);
        let denied = [Fact::Hold("denied"), Fact::Denied("cost", "too_small")];
        assert_eq!(told(hold("1-2", 2), &mut trace), denied);
    }

    #[test]
    fn x7_money_of_an_administrators_charge_is_booked_as_charged() {
        let mut trace = claimed();
        let lease = serde_json::from_value(lease()).unwrap();
        told(Command::Release { lease, call_id: "1-1".parse().unwrap() }, &mut trace);
        let amount = json!({"cost_usd": 0.5, "tokens": 10});
        let charge = json!({"child_id": "root", "key": "k", "amount": amount});
        let charge = Command::Charge(serde_json::from_value(charge).unwrap()).asked_by(None);
        let booked = Fact::Spent(Source::Charge, None, Usd::from_cents(50));
        assert_eq!(told_of(&mut Denials::default(), charge, &mut trace), [booked]);
    }

    #[test]
    fn x7_a_hold_that_is_denied_and_asked_for_again_is_one_denial() {
        let (mut trace, mut denials) = (claimed(), Denials::default());
        let denied = [Fact::Hold("denied"), Fact::Denied("cost", "too_small")];
        assert_eq!(told_after(&mut denials, hold("1-2", 2), &mut trace), denied);
        assert_eq!(told_after(&mut denials, hold("1-2", 2), &mut trace), []);
        assert_eq!(told_after(&mut denials, hold("1-3", 2), &mut trace), denied, "another call");
    }
}
