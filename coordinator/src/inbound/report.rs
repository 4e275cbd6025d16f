//! The reports of workers about the traces of one partition, from a durable queue: results and
//! costs.
//!
//! A second delivery is harmless: a result ends the attempt that it names, and a cost is booked
//! once by its call id.

use std::sync::Arc;

use bus::{Consumption, Delivery, Stream};
use domain::{ChildId, Problems, TraceId, decode, subject::Subject, wire};
use telemetry::metrics;
use trace::{Command, Order};

use crate::{
    dead_letter,
    loops::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin},
    },
};

/// Deliveries requested in advance.
const PREFETCH: usize = 512;

#[derive(Debug, Clone)]
pub(crate) struct Reports {
    pub(crate) handles: Arc<Handles>,
    pub(crate) dispatch: Dispatch,
}

impl Reports {
    pub(crate) async fn consume(self, mut queue: Consumption) {
        queue.want(PREFETCH);
        loop {
            let delivery = queue.next().await;
            metrics::delivered(Stream::Report.name(), delivery.delivered);
            queue.want(1);
            self.take(delivery).await;
        }
    }

    async fn take(&self, delivery: Delivery) {
        let subject = self.handles.bus.namespace().parse(&delivery.subject).ok();
        match order(subject.as_ref(), &delivery) {
            Ok((trace_id, order)) => {
                let subject = subject.expect("a message was read from it");
                let origin = Origin::Queue { delivery: Box::new(delivery), subject };
                self.dispatch.give(Job::order(trace_id, order, origin)).await;
            }
            Err(problems) => dead_letter::keep(&self.handles, delivery, subject.as_ref(), problems).await,
        }
    }
}

fn order(subject: Option<&Subject>, delivery: &Delivery) -> Result<(TraceId, Order), Problems> {
    delivery.genuine()?;
    match subject {
        Some(Subject::Result(pool, _, trace_id, child_id)) => {
            let result: wire::Result = decode::from_peer(&delivery.payload)?;
            check(*trace_id == result.trace_id, child_id, &result.report.lease.child_id)?;
            Ok((*trace_id, Command::Report(Box::new(result.report)).from_pool(pool.clone())))
        }
        Some(Subject::Cost(pool, _, trace_id, child_id)) => {
            let cost: wire::Cost = decode::from_peer(&delivery.payload)?;
            check(*trace_id == cost.trace_id, child_id, &cost.lease.child_id)?;
            let wire::Cost { lease, call_id, amount, model, .. } = cost;
            Ok((*trace_id, Command::Settle { lease, call_id, amount, model }.from_pool(pool.clone())))
        }
        Some(_) | None => Err(Problems::one("", "messages on this subject are not accepted here", None)),
    }
}

/// Permissions are granted by subject, so a message must be about the context that its subject
/// names.
fn check(same_trace: bool, subject: &ChildId, message: &ChildId) -> Result<(), Problems> {
    if same_trace && subject == message {
        return Ok(());
    }
    let message = "the run or context in the message differs from that in its subject";
    Err(Problems::one("", message, None))
}
