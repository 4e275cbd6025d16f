//! The intake: messages of clients from a durable queue that all coordinators read, and the service
//! that answers requests. Each message becomes a job for a shard, or a refusal for its sender and a
//! dead letter. No message blocks later ones.

use std::{sync::Arc, time::Duration};

use bus::{Consumption, Delivery, Stream, Subscription};
use domain::{
    Problems, TraceId, decode,
    subject::{Action, Subject},
    wire::{Asker, Cancel, Charge, Control, Input, SubmitAnswer, Text},
};
use telemetry::metrics;
use trace::{Command, Order};

use super::{
    query,
    submission::{self, InvalidSubmission, RawSubmission},
};
use crate::{
    audit, dead_letter, dependents, error_log,
    loops::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin, Work},
    },
};

/// When a published submission that can't be taken now is delivered again.
const OFFER_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Deliveries requested in advance.
const PREFETCH: usize = 1024;

#[derive(Debug, Clone)]
pub(crate) struct Intake {
    pub(crate) handles: Arc<Handles>,
    pub(crate) dispatch: Dispatch,
}

impl Intake {
    /// Reads the queue until the future is dropped.
    pub(crate) async fn consume(self, mut queue: Consumption, health: crate::health::Pulse) {
        queue.want(PREFETCH);
        loop {
            let delivery = health.watch(&mut queue).await;
            metrics::delivered(Stream::Intake.name(), delivery.delivered);
            queue.want(1);
            self.take(delivery).await;
        }
    }

    /// Answers requests until the subscription ends.
    pub(crate) async fn serve(self, mut requests: Subscription) {
        while let Some(message) = requests.next().await {
            if let Err(problems) = message.genuine() {
                dead_letter::keep_request(&self.handles, &message, &problems);
            } else if message.subject == Subject::Submit {
                self.submit(RawSubmission::Requested(message), Subject::Submit).await;
            } else {
                query::take(&self.handles, &self.dispatch, message).await;
            }
        }
    }

    /// Sends a submission to its shard. A submission that takes long to read is read in a task of
    /// its own, so that later ones do not wait.
    async fn submit(&self, arrival: RawSubmission, subject: Subject) {
        if !arrival.is_large() && !arrival.may_be_rerun() && !arrival.may_use_names() {
            return self.read(arrival, subject).await;
        }
        let (intake, is_large) = (self.clone(), arrival.is_large() || arrival.may_be_rerun());
        let read = async move { intake.read(arrival, subject).await };
        if is_large { self.handles.beside(read) } else { self.handles.beside_named(read) }
    }

    async fn read(&self, arrival: RawSubmission, subject: Subject) {
        match submission::job(&self.handles, arrival, subject.clone()).await {
            Ok(job) => self.dispatch.give(job).await,
            Err(unusable) => refuse(&self.handles, *unusable, &subject).await,
        }
    }

    async fn take(&self, delivery: Delivery) {
        let subject = self.handles.bus.namespace().parse(&delivery.subject);
        if let Err(problems) = delivery.genuine() {
            return dead_letter::keep(&self.handles, delivery, subject.ok().as_ref(), problems).await;
        }
        match subject {
            Ok(subject @ (Subject::Spawn | Subject::Graph)) => {
                self.submit(RawSubmission::Published(delivery), subject).await;
            }
            Ok(subject @ Subject::Cancel) => {
                let orders = decode::from_outside(&delivery.payload).map(|cancel: Cancel| {
                    let Cancel { trace_id, child_id, reason, without_undo } = cancel;
                    let reason = reason.map(|reason| reason.to_string());
                    (trace_id, vec![Command::Cancel { child_id, reason, without_undo }.into()])
                });
                self.give(delivery, subject, orders).await;
            }
            Ok(subject @ Subject::Input) => {
                let orders = decode::from_outside(&delivery.payload).and_then(inputs);
                self.give(delivery, subject, orders).await;
            }
            Ok(subject @ Subject::Admin(action)) if Action::DURABLE.contains(&action) => {
                let orders = match decode::from_outside(&delivery.payload) {
                    Ok(control) => match only(&subject, &control) {
                        Ok(()) => self.control(control, audit::asker(&self.handles, &delivery.headers)).await,
                        Err(problems) => Err(problems),
                    },
                    Err(problems) => Err(problems),
                };
                self.give(delivery, subject, orders).await;
            }
            other => {
                let problems = Problems::one("", "messages on this subject are not accepted here", None);
                let subject = other.ok();
                dead_letter::keep(&self.handles, delivery, subject.as_ref(), problems).await;
            }
        }
    }

    async fn control(&self, control: Control, by: Option<Asker>) -> Result<(TraceId, Vec<Order>), Problems> {
        let raise = control.raise.map(Command::Raise);
        let told = by.as_ref().and_then(|by| Text::new(by.to_string()).ok());
        let charge = control.charge.map(|charge| Charge { by: charge.by.or(told), ..charge });
        let charge = charge.map(Command::Charge);
        let delete = match control.delete {
            Some(delete) => {
                let found = dependents::of(&self.handles, control.trace_id).await;
                let unknown = |error: &dependents::Error| {
                    error_log::tell(error, None, "the branches of a run can't be read");
                };
                Some(Command::Delete { delete, branches: found.inspect_err(unknown).ok() })
            }
            None => None,
        };
        let restore = control.restore.map(Command::Restore);
        let dispute = control.dispute.map(Command::DecideDispute);
        let commands = [raise, charge, delete, restore, dispute].into_iter().flatten();
        let orders = commands.map(|command| command.asked_by(by.clone())).collect();
        Ok((control.trace_id, orders))
    }

    async fn give(
        &self,
        delivery: Delivery,
        subject: Subject,
        orders: Result<(TraceId, Vec<Order>), Problems>,
    ) {
        match orders {
            Ok((trace_id, orders)) => {
                let origin = Origin::Queue { delivery: Box::new(delivery), subject };
                self.dispatch.give(Job::new(trace_id, Work::Orders(orders), origin)).await;
            }
            Err(problems) => dead_letter::keep(&self.handles, delivery, Some(&subject), problems).await,
        }
    }
}

/// Permissions are granted by subject, so a message may request only what its subject names.
fn only(subject: &Subject, control: &Control) -> Result<(), Problems> {
    let (mut problems, asked) = (Problems::default(), Subject::of_control(control));
    if !asked.contains(subject) {
        let message = format!("`{}` is missing: this subject accepts no other message", subject.kind());
        problems.add(subject.kind(), message, None);
    }
    for other in asked.iter().filter(|other| *other != subject) {
        problems.add(other.kind(), "it has a subject of its own", Some(format!("send it on `{other}`")));
    }
    problems.or(())
}

fn inputs(input: Input) -> Result<(TraceId, Vec<Order>), Problems> {
    let commands = input.answered.map(Command::Answer).into_iter().chain(input.told.map(Command::Tell));
    let orders: Vec<Order> = commands.map(Order::from).collect();
    if orders.is_empty() {
        let hint = "give `answered`, for an answer to a question, or `told`, for a message to an agent";
        return Err(Problems::one("", "the message has no content", Some(hint.into())));
    }
    Ok((input.trace_id, orders))
}

/// Replies to the sender, stores a dead letter, and removes the message from its queue. A published
/// submission that may be taken later stays in its queue; the sender of a request has the answer,
/// and may ask again.
async fn refuse(handles: &Handles, unusable: InvalidSubmission, subject: &Subject) {
    let (bus, InvalidSubmission { arrival, refusal, reply_to, again }) = (&handles.bus, unusable);
    match &arrival {
        RawSubmission::Published(delivery) if again && handles.room.may_wait(delivery) => {
            return delivery.nak(OFFER_AGAIN_AFTER).await;
        }
        RawSubmission::Published(_) | RawSubmission::Requested(_) => {}
    }
    let letter = match &arrival {
        RawSubmission::Published(delivery) => {
            dead_letter::about(delivery, subject.kind(), refusal.clone(), None)
        }
        RawSubmission::Requested(message) => {
            let name = bus.namespace().subject(subject);
            dead_letter::about_request(message, name, refusal.clone())
        }
    };
    if let Some(to) = reply_to {
        let answer =
            serde_json::to_vec(&SubmitAnswer::Refused(refusal)).expect("a message has string keys only");
        bus.reply(&to, answer.into()).await.ok();
    }
    if again && matches!(arrival, RawSubmission::Requested(_)) {
        return;
    }
    match (letter.store(bus).await, &arrival) {
        (Ok(()), RawSubmission::Published(delivery)) => delivery.terminate().await,
        // The message is delivered again, and refused again.
        (Err(error), RawSubmission::Published(_)) => {
            error_log::tell(&error, None, "a dead letter could not be stored")
        }
        (_, RawSubmission::Requested(_)) => {}
    }
}
