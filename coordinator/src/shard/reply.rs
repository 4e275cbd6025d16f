//! The reply to a decided job: the answer, its receiver, and when it is sent. The answer is made
//! from the state right after the decision, and sent when the decision is committed and its
//! messages are stored. The answer to a claim, a tick or a read is sent right after the commit.

use std::{sync::atomic::Ordering, time::Duration};

use bus::{Bus, Outgoing};
use bytes::Bytes;
use domain::{
    Timestamp, TraceId,
    subject::{Home, Subject},
    wire::{self, Acceptance, Answer, ContextValue, Lease, QueryAnswer, SubmitAnswer},
};
use serde::Serialize;
use trace::{Command, Refusal, Trace, answer_refusal};

use super::job::{Elsewhere, Job, Origin, Reading, Submission, Work};
use crate::{
    dead_letter::{self, Letter},
    error_log,
};

/// Redelivery delay of a message that could not be handled.
const REDELIVER_AFTER: Duration = Duration::from_secs(1);

/// The number of deliveries after which a report about an unknown context is refused.
const TRIES_OF_UNKNOWN: u64 = 10;

pub(crate) struct Reply {
    job: Job,
    answer: Option<Bytes>,
    /// The job asks for a hold that waits in the queue of holds.
    waits: bool,
    /// The answer is sent right after the commit. If the store loses the commit, this costs a
    /// lease, but no money.
    early: bool,
    /// The dead letter, which is stored before its message is acknowledged.
    dead_letter: Option<Outgoing>,
    /// The log line about the dead letter, written once the letter is stored.
    letter_line: Option<dead_letter::Line>,
    /// The trace in which the submission is to be decided instead (X2).
    elsewhere: Option<Elsewhere>,
    ack: bool,
}

/// The answer to a request for a trace whose state and log both fail their signature check.
pub(crate) const NOT_AUTHENTIC: &str = "the stored state of the run was not written by a coordinator with these keys, and its \
    event log can't rebuild it; see the logs of the coordinators, and docs/authenticity.md";

impl Reply {
    pub(crate) fn new(
        job: Job,
        trace: &Trace,
        decided: Result<(), Refusal>,
        home: &Home,
        now: Timestamp,
    ) -> Self {
        let mut reply = Reply {
            job,
            answer: None,
            waits: false,
            early: false,
            dead_letter: None,
            letter_line: None,
            elsewhere: None,
            ack: true,
        };
        match &reply.job.origin {
            Origin::Timer | Origin::Sweep(_) => {}
            Origin::Ask { .. } => {
                reply.early = is_early(&reply.job.work);
                let answer = answer(&reply.job.work, trace, decided, home, now);
                reply.waits = matches!(answer, Answer::Wait(_));
                reply.answer = Some(json(&answer));
            }
            Origin::Query { .. } => {
                reply.answer = Some(json(&query_answer(trace, &reply.job.work, decided)));
            }
            Origin::Submission(submission) => match decided {
                Ok(()) => {
                    let child_id = submission.child_id.clone();
                    let adjusted = trace.adjusted(&child_id);
                    let accepted = Acceptance { trace_id: trace.id(), child_id, adjusted };
                    reply.answer = Some(json(&SubmitAnswer::Accepted(accepted)));
                }
                Err(Refusal::Conflict { .. }) if submission.elsewhere.is_some() => {
                    reply.elsewhere.clone_from(&submission.elsewhere);
                }
                Err(refusal) => {
                    let refusal = refusal.to_wire();
                    reply.refuse(submission.dead_letter(&refusal, trace.id()));
                    reply.answer = Some(json(&SubmitAnswer::Refused(refusal)));
                }
            },
            Origin::Queue { delivery, subject } => {
                // A late report is normal; a refused client request is not.
                let report = matches!(subject, Subject::Result(..) | Subject::Cost(..));
                let refusal = decided.err().filter(|refusal| !(report && refusal.is_expected()));
                // The store may have lost the context without a coordinator having noticed yet; the
                // context's log still has it.
                let unknown =
                    |refusal: &Refusal| matches!(refusal, Refusal::NoTrace | Refusal::UnknownContext(_));
                if report && delivery.delivered < TRIES_OF_UNKNOWN && refusal.as_ref().is_some_and(unknown) {
                    reply.ack = false;
                    return reply;
                }
                let letter = refusal.map(|refusal| {
                    tracing::debug!(trace_id = %trace.id(), %refusal, "a message was refused");
                    dead_letter::about(delivery, subject.kind(), refusal.to_wire(), Some((trace.id(), None)))
                });
                reply.refuse(letter);
            }
        }
        reply
    }

    /// B13: the job can't be decided now. A published message is delivered again; a request gets an
    /// answer.
    pub(crate) fn unavailable(job: Job) -> Self {
        Self::not_now(job, wire::Refusal::unavailable())
    }

    /// S3: as `unavailable`, because the stored data fails its signature check.
    pub(crate) fn not_authentic(job: Job) -> Self {
        Self::not_now(job, wire::Refusal::not_authentic(NOT_AUTHENTIC))
    }

    fn not_now(job: Job, refusal: wire::Refusal) -> Self {
        let published =
            matches!(&job.origin, Origin::Submission(submission) if submission.delivery.is_some());
        let reply = Self::undecided(job, refusal);
        if published { Reply { answer: None, ..reply } } else { reply }
    }

    /// t2: the job can't be decided. A message becomes a dead letter; a timer is tried again when
    /// it is due.
    pub(crate) fn given_up(job: Job) -> Self {
        let refusal = wire::Refusal::internal();
        let dead_letter = match &job.origin {
            Origin::Queue { delivery, subject } => {
                let of = Some((job.trace_id, None));
                Some(dead_letter::about(delivery, subject.kind(), refusal.clone(), of))
            }
            Origin::Submission(submission) => submission.dead_letter(&refusal, job.trace_id),
            Origin::Timer | Origin::Sweep(_) | Origin::Ask { .. } | Origin::Query { .. } => None,
        };
        let mut reply = Reply { ack: true, ..Self::undecided(job, refusal) };
        reply.refuse(dead_letter);
        reply
    }

    fn refuse(&mut self, letter: Option<Letter>) {
        (self.dead_letter, self.letter_line) = letter.map(|Letter { message, line }| (message, line)).unzip();
    }

    /// The dead letter to store before the reply is sent.
    pub(crate) fn take_dead_letter(&mut self) -> Option<Outgoing> {
        self.dead_letter.take()
    }

    fn undecided(job: Job, refusal: wire::Refusal) -> Self {
        if let Origin::Sweep(swept) = &job.origin {
            swept.failed.fetch_add(1, Ordering::Relaxed);
        }
        let answer = match &job.origin {
            Origin::Timer | Origin::Sweep(_) | Origin::Queue { .. } => None,
            Origin::Ask { .. } => Some(json(&Answer::Refused(refusal))),
            Origin::Query { .. } => Some(json(&QueryAnswer::Refused(refusal))),
            Origin::Submission(_) => Some(json(&SubmitAnswer::Refused(refusal))),
        };
        Reply {
            job,
            answer,
            waits: false,
            early: false,
            dead_letter: None,
            letter_line: None,
            elsewhere: None,
            ack: false,
        }
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// Returns true if the reply reports a decision to a caller, or acknowledges a message.
    pub(crate) fn tells(&self) -> bool {
        match self.job.origin {
            Origin::Timer | Origin::Sweep(_) => false,
            Origin::Ask { .. } => !self.early,
            Origin::Query { .. } | Origin::Submission(_) | Origin::Queue { .. } => true,
        }
    }

    /// Returns true if the job asks for a hold that waits in the queue of its trace.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    pub(crate) fn into_job(self) -> Job {
        self.job
    }

    /// The job for the other trace in which it is to be decided (X2); without such a trace, the
    /// reply itself.
    pub(crate) fn redirected(self) -> Result<Job, Box<Self>> {
        let Some(Elsewhere { trace_id, traced }) = self.elsewhere else { return Err(Box::new(self)) };
        let Job { mut work, origin, tries, refused, trace_id: _ } = self.job;
        for order in work.orders_mut() {
            if let Command::Submit(submit) = &mut order.command {
                submit.traced.clone_from(&traced);
            }
        }
        let origin = match origin {
            Origin::Submission(submission) => {
                Origin::Submission(Box::new(Submission { elsewhere: None, ..*submission }))
            }
            other @ (Origin::Timer
            | Origin::Sweep(_)
            | Origin::Ask { .. }
            | Origin::Query { .. }
            | Origin::Queue { .. }) => other,
        };
        Ok(Job { trace_id, work, origin, tries, refused })
    }

    /// The answer that need not wait until the messages are stored, with its reply subject.
    pub(crate) fn early_answer(&mut self) -> Option<(String, Bytes)> {
        let Origin::Ask { reply_to } = &self.job.origin else { return None };
        self.early.then(|| Some((reply_to.clone(), self.answer.take()?))).flatten()
    }

    /// Returns true if the answer is too large for one message.
    pub(crate) fn is_large(&self, bus: &Bus) -> bool {
        self.answer.as_ref().is_some_and(|answer| !bus.fits(answer.len()))
    }

    /// Replies and acknowledges a job without a batch. If its dead letter can't be stored, the
    /// message is delivered again.
    pub(crate) async fn finish_alone(mut self, bus: &Bus) {
        if let Some(letter) = self.dead_letter.take()
            && let Err(error) = bus.publish(letter).await
        {
            error_log::tell(
                &error,
                None,
                "a dead letter could not be stored; the message will be delivered again",
            );
            self.ack = false;
        }
        self.finish(bus).await;
    }

    /// Replies and acknowledges.
    pub(crate) async fn finish(mut self, bus: &Bus) {
        if self.ack
            && let Some(line) = &self.letter_line
        {
            line.tell();
        }
        self.send_answer(bus).await;
        let delivery = match &self.job.origin {
            Origin::Timer | Origin::Sweep(_) | Origin::Ask { .. } | Origin::Query { .. } => None,
            Origin::Submission(submission) => submission.delivery.as_ref(),
            Origin::Queue { delivery, .. } => Some(&**delivery),
        };
        match delivery {
            Some(delivery) if self.ack => delivery.ack().await,
            Some(delivery) => delivery.nak(REDELIVER_AFTER).await,
            None => {}
        }
    }

    async fn send_answer(&mut self, bus: &Bus) {
        let to = match &self.job.origin {
            Origin::Timer | Origin::Sweep(_) | Origin::Queue { .. } => None,
            Origin::Ask { reply_to } => Some(reply_to),
            Origin::Query { reply_to } => reply_to.as_ref(),
            Origin::Submission(submission) => submission.reply_to.as_ref(),
        };
        if let (Some(to), Some(answer)) = (to, self.answer.take())
            && let Err(error) = bus.reply(to, answer).await
        {
            tracing::debug!(%error, "an answer could not be sent");
        }
    }
}

impl Submission {
    /// The dead letter of a refused submission that came from a queue.
    pub(crate) fn dead_letter(&self, refusal: &wire::Refusal, trace_id: TraceId) -> Option<Letter> {
        let delivery = self.delivery.as_ref()?;
        let of = Some((trace_id, Some(self.child_id.clone())));
        Some(dead_letter::about(delivery, self.subject.kind(), refusal.clone(), of))
    }
}

/// The answer to a claim, a tick or a read is sent right after the commit.
fn is_early(work: &Work) -> bool {
    match work {
        Work::Read { .. } => true,
        Work::Orders(orders) => {
            orders.iter().any(|order| matches!(order.command, Command::Claim(_) | Command::Tick(_)))
        }
        Work::Wake(_) => false,
    }
}

/// The one command of a request.
fn command(work: &Work) -> Option<&Command> {
    Some(&work.orders().first()?.command)
}

/// The answer to a worker's ask.
fn answer(work: &Work, trace: &Trace, decided: Result<(), Refusal>, home: &Home, now: Timestamp) -> Answer {
    if let Work::Read { pool, lease, what } = work {
        let read = trace.check_pool(pool, &lease.child_id).and_then(|()| read_of(trace, lease, what));
        return read.unwrap_or_else(|refusal| answer_refusal(&refusal, now));
    }
    let command = command(work);
    if let Some(Command::Claim(claim)) = command {
        trace.answer_claim(claim, as_ref(&decided), home, now)
    } else if let Some(Command::Tick(tick)) = command {
        trace.answer_tick(tick, as_ref(&decided), now)
    } else if let Some(Command::Hold(hold)) = command {
        trace.answer_hold(hold, as_ref(&decided), now)
    } else if let Err(refusal) = decided {
        answer_refusal(&refusal, now)
    } else if let Some(Command::Spawn(spawn)) = command {
        let child_id = spawn.spec.child_id.clone();
        Answer::Spawned { adjusted: trace.adjusted(&child_id), child_id }
    } else {
        Answer::Done
    }
}

/// The answer to a client's request: the number of a message to an agent, or the revision that an
/// amend made, now or before.
fn query_answer(trace: &Trace, work: &Work, decided: Result<(), Refusal>) -> QueryAnswer {
    let command = command(work);
    if let Err(refusal) = decided {
        QueryAnswer::Refused(refusal.to_wire())
    } else if let Some(Command::Answer(answered)) = command {
        QueryAnswer::Answered { child_id: answered.child_id.clone(), question: answered.question }
    } else if let Some(Command::Tell(told)) = command {
        match trace.told(told) {
            Some((node, number)) => QueryAnswer::Told { child_id: node.id.clone(), number },
            None => QueryAnswer::Refused(wire::Refusal::unexpected("tell")),
        }
    } else if let Some(Command::Amend(amend)) = command
        && let Some((node, revision)) = trace.amended(amend)
    {
        QueryAnswer::Amended { child_id: node.id.clone(), revision }
    } else {
        QueryAnswer::Refused(wire::Refusal::unexpected("amend"))
    }
}

fn as_ref(decided: &Result<(), Refusal>) -> Result<(), &Refusal> {
    match decided {
        Ok(()) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

fn read_of(trace: &Trace, lease: &Lease, what: &Reading) -> Result<Answer, Refusal> {
    trace.check_lease(lease)?;
    match what {
        Reading::Value(key) => {
            let entry = trace.read_value(&lease.child_id, key)?;
            let value = entry.map(|entry| ContextValue {
                value: entry.value.clone(),
                writer: entry.writer.clone(),
                version: entry.version,
                size_bytes: entry.size_bytes,
            });
            Ok(Answer::Value { value })
        }
        Reading::Keys => {
            trace.readable_keys(&lease.child_id).map(|(keys, left_out)| Answer::Keys { keys, left_out })
        }
        Reading::Part(part) => trace.part(lease, part).map(|part| Answer::Part(Box::new(part))),
    }
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("messages have string keys only").into()
}
