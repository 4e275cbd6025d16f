//! One delivery from beginning to end: claim, run, report, acknowledge, in this order. A crash
//! anywhere before the last brings the delivery again, and the next claim finds how far it came: a
//! context that still runs elsewhere is `taken`, one whose result was stored is over.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use shared::{
    Timestamp,
    bus::{Bus, Delivery},
    subject::{Partition, Subject},
    telemetry::{self, span_id},
    wire::{self, Claimed, Execute, Failure, FailureKind, Refusal, Report, Verdict},
};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::resources::Equipment,
    agent::{self, Counters, Run, WayOut},
    attempt::coordinator::Coordinator,
    attempt::lease::{Keeper, Lost},
    billing::meter::Meter,
    config::Config,
    crash::Point,
    delivery::claim::{AGAIN, Claim, claim},
    delivery::report,
};

/// What an attempt needs beside its delivery.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) config: Arc<Config>,
    pub(crate) equipment: Arc<Equipment>,
    pub(crate) bus: Bus,
    /// The coordinator broadcast that this context is to stop.
    pub(crate) stop: CancellationToken,
    /// The worker ends: what still runs goes back.
    pub(crate) hand_back: CancellationToken,
}

/// How the running of an agent ended.
enum End {
    Said(Verdict),
    HandedBack,
    Stopped { ours: bool },
    RanOut,
}

impl Surroundings {
    pub(crate) async fn run(self, work: Execute, delivery: Delivery) {
        let (trace_id, child_id) = (work.trace_id, work.child_id.clone());
        let dead =
            |refusal| report::dead_letter(&self.bus, &delivery, refusal, Some((trace_id, child_id.clone())));
        let Ok(Subject::Ask(partition)) = self.bus.namespace().parse(&work.report_to.ask) else {
            let ask = &work.report_to.ask;
            return dead(malformed(format!("report_to.ask: `{ask}` is not where questions go"))).await;
        };
        let attempt_headers = telemetry::headers(trace_id, span_id(trace_id, child_id.as_str()));
        let coordinator =
            Coordinator::new(self.bus.clone(), Subject::Ask(partition), trace_id, attempt_headers);
        let asked_at = self.config.clock.mark();
        let claimed = tokio::select! {
            biased;
            () = self.hand_back.cancelled() => return delivery.nak(std::time::Duration::ZERO).await,
            claimed = claim(&self.config, &coordinator, &work, &delivery) => claimed,
        };
        match claimed {
            Claim::Ours(claimed) => {
                let keeper =
                    Keeper::new(claimed.lease.clone(), claimed.lease_until, asked_at, self.config.clock);
                tracing::Span::current().record("attempt", keeper.lease.attempt);
                self.attempt(*claimed, partition, &coordinator, &keeper, &delivery).await;
            }
            Claim::Later(delay) => delivery.nak(delay).await,
            Claim::Over => delivery.ack().await,
            Claim::Refused(refusal) => dead(refusal).await,
        }
    }

    async fn attempt(
        &self,
        claimed: Claimed,
        partition: Partition,
        coordinator: &Coordinator,
        keeper: &Keeper,
        delivery: &Delivery,
    ) {
        let clock = self.config.clock;
        let started_at = clock.now();
        let Claimed { work, open_holds, .. } = claimed;
        let (trace_id, lease) = (work.trace_id, &keeper.lease);
        let span = span_id(trace_id, &format!("{}.{}", lease.child_id, lease.attempt));
        emit_queue_wait(&work, lease.attempt, delivery.at, started_at);
        tracing::debug!(agent = %work.agent.agent_id, "runs");

        let cost_subject = Subject::Cost(partition, trace_id, lease.child_id.clone());
        let meter = Meter::new(&self.bus, coordinator, keeper, clock, cost_subject, trace_id, span);
        let (counters, way_out) = (Counters::default(), WayOut::default());
        let run = Run {
            work: &work,
            meter: &meter,
            coordinator,
            keeper,
            counters: &counters,
            config: &self.config,
            equipment: &self.equipment,
            bus: &self.bus,
            span,
            open_holds: &open_holds,
            way_out: &way_out,
        };
        let mut keeping = std::pin::pin!(keeper.keep(coordinator, &counters, delivery));

        let acting = async {
            AssertUnwindSafe(agent::run(&run)).catch_unwind().await.unwrap_or_else(|panic| panicked(&*panic))
        };
        let mut end = tokio::select! {
            biased;
            () = self.stop.cancelled() => End::Stopped { ours: keeper.stands() },
            lost = &mut keeping => lost.into(),
            () = self.hand_back.cancelled() => End::HandedBack,
            failure = way_out.taken() => End::Said(Verdict::Failed(failure)),
            verdict = acting => End::Said(verdict),
        };
        // The agent is gone; what its calls cost is not.
        meter.flush().await;

        let verdict = match &end {
            End::Said(verdict) => Some(verdict.clone()),
            End::HandedBack => Some(Verdict::HandedBack),
            End::Stopped { .. } | End::RanOut => None,
        };
        if let Some(verdict) = verdict {
            let report = Report { lease: lease.clone(), progress: counters.progress(), verdict };
            self.config.crash.pass(Point::Finished);
            let reporting = async {
                meter.close().await;
                keeper.live().await;
                let subject = Subject::Result(partition, trace_id, lease.child_id.clone());
                let headers = telemetry::headers(trace_id, span);
                let result = wire::Result { trace_id, report };
                report::result(&self.bus, subject, headers, result, work.limits.max_result_bytes).await
            };
            tokio::select! {
                biased;
                reported = reporting => if reported.is_err() {
                    // Untold, it is somebody else's to do again once the lease has run out.
                    end = End::RanOut;
                },
                () = self.stop.cancelled() => end = End::Stopped { ours: keeper.stands() },
                lost = &mut keeping => end = lost.into(),
            }
        }
        self.config.crash.pass(Point::Reported);
        emit_attempt(&work, lease.attempt, span, started_at, clock.now(), &end);
        match end {
            End::Said(_) | End::HandedBack | End::Stopped { ours: true } => delivery.ack().await,
            // Whoever has it now decides about it.
            End::Stopped { ours: false } => {}
            End::RanOut => {
                tracing::warn!("the lease runs out, with no answer to any tick or no way to report: gave up");
                delivery.nak(AGAIN).await;
            }
        }
    }
}

impl From<Lost> for End {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Stopped { ours } => End::Stopped { ours },
            Lost::RanOut => End::RanOut,
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Verdict {
    let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(panic = said, "the agent panicked");
    let message = format!("the agent panicked: {said}");
    Verdict::Failed(Failure { kind: FailureKind::Agent, message, retryable: true })
}

pub(crate) fn malformed(message: String) -> Refusal {
    Refusal { code: "malformed".into(), rule: "P".into(), message, problems: Vec::new() }
}

/// How long the work lay in the queue, under its context's span.
fn emit_queue_wait(work: &Execute, attempt: u32, queued_at: Timestamp, claimed_at: Timestamp) {
    if !telemetry::is_on() {
        return;
    }
    telemetry::Span {
        name: "queue wait".into(),
        trace_id: work.trace_id,
        span_id: None,
        parent: Some(span_id(work.trace_id, work.child_id.as_str())),
        start: queued_at,
        end: claimed_at,
        kind: telemetry::Kind::Consumer,
        attributes: vec![
            ("trellis.child_id", work.child_id.as_str().into()),
            ("trellis.attempt", attempt.into()),
        ],
        error: None,
        link: None,
    }
    .emit();
}

fn emit_attempt(work: &Execute, attempt: u32, span: u64, start: Timestamp, end: Timestamp, how: &End) {
    let (verdict, error) = match how {
        End::Said(Verdict::Completed(_)) => ("completed", None),
        End::Said(Verdict::Failed(_)) => ("failed", Some("the agent failed")),
        End::Said(Verdict::Halted { .. }) => ("halted", Some("a check halted it")),
        End::Said(Verdict::Waiting { .. }) => ("waiting", None),
        End::Said(Verdict::InputRequired { .. }) => ("input_required", None),
        End::Said(Verdict::OutOfBudget) => ("out_of_budget", None),
        End::Said(Verdict::LastReport(_)) => ("last_report", None),
        End::Said(Verdict::HandedBack) | End::HandedBack => ("handed_back", None),
        End::Stopped { .. } => ("stopped", None),
        End::RanOut => ("lease_ran_out", Some("the lease ran out")),
    };
    tracing::debug!(verdict, "ended");
    if !telemetry::is_on() {
        return;
    }
    telemetry::Span {
        name: format!("invoke_agent {}", work.agent.agent_id).into(),
        trace_id: work.trace_id,
        span_id: Some(span),
        parent: Some(span_id(work.trace_id, work.child_id.as_str())),
        start,
        end,
        kind: telemetry::Kind::Internal,
        attributes: vec![
            ("gen_ai.operation.name", "invoke_agent".into()),
            ("gen_ai.agent.name", work.agent.agent_id.as_str().into()),
            ("trellis.child_id", work.child_id.as_str().into()),
            ("trellis.attempt", attempt.into()),
            ("trellis.verdict", verdict.into()),
        ],
        error,
        link: None,
    }
    .emit();
}
