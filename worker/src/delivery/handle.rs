//! One delivery from beginning to end: claim, run, report, acknowledge, in this order. After a
//! crash before the acknowledgement the delivery comes again. The answer to its claim then
//! decides: drop it, wait, or run it.

use std::{
    any::Any,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use bus::{Bus, Delivery};
use domain::{
    span::SpanId,
    subject::Subject,
    wire::{ClaimAnswer, Failure, Offer, OpenHold, POLICY_HEADER, Refusal, Verdict},
};
use futures_util::FutureExt;
use telemetry::{Outage, span_of};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    claim::{Claim, REDELIVER_AFTER, claim},
    dead_letter,
    heartbeat::{self, Lost},
    report,
    skew::Skew,
};
use crate::{
    agent::{self, Resources, Run},
    attempt::{
        Attempt,
        coordinator::Coordinator,
        deadline::Deadline,
        lease::HeldLease,
        traced::{self, AttemptSpan},
    },
    billing::meter::Meter,
    config::Config,
    crash::Point,
};

/// Handles one delivery.
#[derive(Debug, Clone)]
pub(crate) struct Handler {
    pub(crate) config: Arc<Config>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) bus: Bus,
    pub(crate) skew: Arc<Skew>,
    /// Records whether coordinators answer the claims of this worker, for its log.
    pub(crate) coordinators: Arc<Mutex<Outage>>,
    /// Notified when a broadcast asks this context to stop. The next tick checks with the
    /// coordinator.
    pub(crate) stop_told: Arc<Notify>,
    /// The worker ends: a running attempt reports that it was handed back, and unclaimed work
    /// returns to the queue.
    pub(crate) hand_back: CancellationToken,
}

/// The end of an attempt.
enum End {
    Finished(Verdict),
    HandedBack,
    Stopped { ours: bool },
    LeaseExpired,
}

impl Handler {
    pub(crate) async fn run(self, offer: Offer, delivery: Delivery) {
        let Ok(Subject::Ask(pool, partition)) = self.bus.namespace().parse(&offer.report_to.ask) else {
            let ask = &offer.report_to.ask;
            let refusal = Refusal::malformed(format!("report_to.ask: `{ask}` is not a subject for asks"));
            return self.refuse(&offer, &delivery, refusal).await;
        };
        let caller = domain::span::caller(&delivery.headers);
        let is_exported = caller.is_some_and(|caller| caller.sampled && caller.trace_id == offer.trace_id);
        let context = SpanId::of(offer.trace_id, offer.child_id.as_str());
        let mut headers = traced::headers(is_exported, offer.trace_id, context);
        headers.insert(POLICY_HEADER.to_owned(), self.resources.policy_digest.clone());
        let redactor = self.resources.secrets.redactor().clone();
        let asks = Subject::Ask(pool.clone(), partition);
        let coordinator = Coordinator::new(self.bus.clone(), asks, offer.trace_id, headers, redactor);
        let asked_at = self.config.clock.mark();
        let claimed = tokio::select! {
            biased;
            () = self.hand_back.cancelled() => return delivery.nak(Duration::ZERO).await,
            claimed = claim(&self.config, &coordinator, &offer, &delivery, &self.coordinators) => claimed,
        };
        match claimed {
            Claim::Ours(claimed) => {
                let ClaimAnswer { lease, lease_until: _, left, work, open_holds } = *claimed;
                self.skew.compare(left.now, self.config.clock.now());
                let lease = HeldLease::new(lease, left, asked_at, self.config.clock, self.stop_told.clone());
                let deadline = Deadline::new(self.config.clock, left);
                let (config, bus) = (self.config.clone(), self.bus.clone());
                let traced = AttemptSpan::new(is_exported, left.now, config.clock);
                let attempt = Attempt::new(
                    work,
                    lease,
                    deadline,
                    coordinator,
                    (pool, partition),
                    traced,
                    (config, bus),
                );
                let span = tracing::Span::current();
                span.record("attempt", attempt.number());
                span.record(
                    "span_id",
                    span_of(attempt.trace_id(), attempt.child_id(), Some(attempt.number())),
                );
                self.carry_out(&attempt, &open_holds, &delivery).await;
            }
            Claim::Later(delay) => delivery.nak(delay).await,
            Claim::Over => delivery.ack().await,
            Claim::Refused(refusal) => self.refuse(&offer, &delivery, refusal).await,
        }
    }

    async fn refuse(&self, offer: &Offer, delivery: &Delivery, refusal: Refusal) {
        dead_letter::store(&self.bus, delivery, refusal, Some((offer.trace_id, offer.child_id.clone())))
            .await;
    }

    /// Runs the agent while the lease lasts, reports its end, and acknowledges.
    async fn carry_out(&self, attempt: &Attempt, open_holds: &[OpenHold], delivery: &Delivery) {
        tracing::debug!(agent = %attempt.work.agent.agent_id, "an attempt begins");
        let meter = Meter::new(attempt);
        let mut heartbeat = std::pin::pin!(heartbeat::run(attempt, &meter, delivery));
        let run = Run { attempt, meter: &meter, resources: &self.resources, open_holds };
        let acting = async {
            AssertUnwindSafe(agent::run(&run)).catch_unwind().await.unwrap_or_else(|panic| panicked(&*panic))
        };
        let mut end = tokio::select! {
            biased;
            lost = &mut heartbeat => lost.into(),
            () = self.hand_back.cancelled() => End::HandedBack,
            failure = attempt.exit.taken() => End::Finished(Verdict::Failed(failure)),
            verdict = acting => End::Finished(verdict),
        };
        // The agent has ended. Costs that it has not sent are sent now.
        meter.flush().await;
        if matches!(end, End::Stopped { .. }) {
            meter.forfeit_cut_off().await;
        }
        if let Some(verdict) = end.verdict() {
            self.config.crash.pass(Point::Finished);
            let reporting = async {
                meter.close().await;
                attempt.lease.live().await;
                report::send(attempt, verdict).await
            };
            tokio::select! {
                biased;
                reported = reporting => if reported.is_err() {
                    // Without a report, another worker runs the context again once the lease has
                    // expired.
                    end = End::LeaseExpired;
                },
                lost = &mut heartbeat => end = lost.into(),
            }
        }
        self.config.crash.pass(Point::Reported);
        conclude(&end, delivery).await;
    }
}

async fn conclude(end: &End, delivery: &Delivery) {
    tracing::debug!(verdict = end.name(), "an attempt ended");
    match end {
        End::Finished(_) | End::HandedBack | End::Stopped { ours: true } => delivery.ack().await,
        // The context belongs to another worker now, which acknowledges the delivery.
        End::Stopped { ours: false } => {}
        End::LeaseExpired => {
            tracing::warn!(
                "gave up: no tick was answered for a whole lease and no call was in flight, or the result could not be stored"
            );
            delivery.nak(REDELIVER_AFTER).await;
        }
    }
}

impl End {
    /// The verdict to report, if there is one.
    fn verdict(&self) -> Option<Verdict> {
        match self {
            End::Finished(verdict) => Some(verdict.clone()),
            End::HandedBack => Some(Verdict::HandedBack),
            End::Stopped { .. } | End::LeaseExpired => None,
        }
    }

    /// The name for logs.
    fn name(&self) -> &'static str {
        match self {
            End::Finished(Verdict::Completed(_)) => "completed",
            End::Finished(Verdict::Failed(_)) => "failed",
            End::Finished(Verdict::Halted { .. }) => "halted",
            End::Finished(Verdict::Waiting { .. }) => "waiting",
            End::Finished(Verdict::InputRequired { .. }) => "input_required",
            End::Finished(Verdict::OutOfBudget) => "out_of_budget",
            End::Finished(Verdict::LastReport(_)) => "last_report",
            End::Finished(Verdict::HandedBack) | End::HandedBack => "handed_back",
            End::Stopped { .. } => "stopped",
            End::LeaseExpired => "lease_expired",
        }
    }
}

impl From<Lost> for End {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Stopped { ours } => End::Stopped { ours },
            Lost::Expired => End::LeaseExpired,
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Verdict {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!("the agent panicked: this is a bug in Trellis");
    tracing::debug!(text, "the message of the panic");
    Verdict::Failed(Failure::retryable(format!("the agent panicked: {text}")))
}
