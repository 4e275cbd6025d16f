//! A job that was decided: what is said about it, to whom, and when. An answer is made on the state
//! right after the decision; it is given when the decision is safe.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use shared::{
    Timestamp, TraceId,
    bus::{Bus, Outgoing},
    subject::{Home, Subject},
    wire::{self, Acceptance, Answer, ContextValue, SubmitAnswer},
};

use crate::{
    job::{Job, Origin, Question, Submission, Work},
    letter, spans,
    trace::{Refusal, Trace, answer_refusal},
};

/// How soon a message that could not be handled comes again.
const COME_AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct Done {
    job: Job,
    reply: Option<Bytes>,
    /// The answer may be given as soon as it is committed: losing it with the store costs a lease,
    /// no money.
    early: bool,
    /// To be stored before the message it is about is acknowledged.
    pub(crate) dead_letter: Option<Outgoing>,
    /// Where it is to be decided instead (X2).
    elsewhere: Option<TraceId>,
    ack: bool,
}

impl Done {
    pub(crate) fn new(
        job: Job,
        trace: &Trace,
        decided: Result<(), Refusal>,
        home: &Home,
        now: Timestamp,
    ) -> Self {
        let mut done = Done { job, reply: None, early: false, dead_letter: None, elsewhere: None, ack: true };
        match &done.job.origin {
            Origin::Timer | Origin::Sweep { .. } => {}
            Origin::Ask { question, .. } => {
                done.early = matches!(question, Question::Claim(_) | Question::Tick(_) | Question::Read);
                done.reply = Some(json(&answer(question, &done.job.work, trace, decided, home)));
            }
            Origin::Submission(submission) => match decided {
                Ok(()) => {
                    spans::admission(trace, submission, now);
                    let accepted = Acceptance { trace_id: trace.id(), child_id: submission.child_id.clone() };
                    done.reply = Some(json(&SubmitAnswer::Accepted(accepted)));
                }
                Err(Refusal::Conflict { .. }) if submission.elsewhere.is_some() => {
                    done.elsewhere = submission.elsewhere;
                }
                Err(refusal) => {
                    let refusal = refusal.to_wire();
                    done.dead_letter = submission.dead_letter(&refusal, trace.id());
                    done.reply = Some(json(&SubmitAnswer::Refused(refusal)));
                }
            },
            Origin::Queue { delivery, subject } => {
                // A report that comes late is normal; whoever asks for something wants to know.
                let report = matches!(subject, Subject::Result(..) | Subject::Cost(..));
                let refusal = decided.err().filter(|refusal| !(report && refusal.is_expected()));
                done.dead_letter = refusal.map(|refusal| {
                    tracing::warn!(trace_id = %trace.id(), kind = subject.kind(), %refusal, "refused");
                    letter::about(delivery, subject.kind(), refusal.to_wire(), Some((trace.id(), None)))
                });
            }
        }
        done
    }

    /// B13: it can't be decided now.
    pub(crate) fn unavailable(job: Job) -> Self {
        let refusal = wire::Refusal::unavailable();
        let reply = match &job.origin {
            Origin::Timer | Origin::Sweep { .. } | Origin::Queue { .. } => None,
            Origin::Ask { .. } => Some(json(&Answer::Refused(refusal))),
            // A published submission comes again; a requested one is told.
            Origin::Submission(submission) if submission.delivery.is_some() => None,
            Origin::Submission(_) => Some(json(&SubmitAnswer::Refused(refusal))),
        };
        Done { job, reply, early: false, dead_letter: None, elsewhere: None, ack: false }
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    pub(crate) fn into_job(self) -> Job {
        self.job
    }

    /// The job as it is to be decided elsewhere, or itself if it is done.
    pub(crate) fn redirected(self) -> Result<Job, Box<Self>> {
        let Some(trace_id) = self.elsewhere else { return Err(Box::new(self)) };
        let Job { work, origin, tries, trace_id: taken } = self.job;
        let origin = match origin {
            Origin::Submission(submission) => {
                let link = submission.parent_span.map(|span| (taken, span));
                Origin::Submission(Box::new(Submission {
                    elsewhere: None,
                    link,
                    parent_span: None,
                    ..*submission
                }))
            }
            other @ (Origin::Timer | Origin::Sweep { .. } | Origin::Ask { .. } | Origin::Queue { .. }) => {
                other
            }
        };
        Ok(Job { trace_id, work, origin, tries })
    }

    /// Gives the answers that need not wait for the log.
    pub(crate) async fn tell_early(&mut self, bus: &Bus) {
        if self.early {
            self.reply(bus).await;
        }
    }

    /// Replies and acknowledges.
    pub(crate) async fn tell(mut self, bus: &Bus) {
        self.reply(bus).await;
        let delivery = match &self.job.origin {
            Origin::Timer | Origin::Sweep { .. } | Origin::Ask { .. } => None,
            Origin::Submission(submission) => submission.delivery.as_ref(),
            Origin::Queue { delivery, .. } => Some(&**delivery),
        };
        match delivery {
            Some(delivery) if self.ack => delivery.ack().await,
            Some(delivery) => delivery.nak(COME_AGAIN).await,
            None => {}
        }
    }

    async fn reply(&mut self, bus: &Bus) {
        let to = match &self.job.origin {
            Origin::Timer | Origin::Sweep { .. } | Origin::Queue { .. } => None,
            Origin::Ask { reply_to, .. } => Some(reply_to),
            Origin::Submission(submission) => submission.reply_to.as_ref(),
        };
        if let (Some(to), Some(reply)) = (to, self.reply.take())
            && let Err(error) = bus.reply(to, reply).await
        {
            tracing::debug!(%error, "an answer found nobody");
        }
    }
}

impl Submission {
    /// What is kept of a refused submission nobody waits for.
    pub(crate) fn dead_letter(&self, refusal: &wire::Refusal, trace_id: TraceId) -> Option<Outgoing> {
        let delivery = self.delivery.as_ref()?;
        let of = Some((trace_id, Some(self.child_id.clone())));
        Some(letter::about(delivery, self.subject.kind(), refusal.clone(), of))
    }
}

fn answer(
    question: &Question,
    work: &Work,
    trace: &Trace,
    decided: Result<(), Refusal>,
    home: &Home,
) -> Answer {
    match question {
        Question::Claim(claim) => trace.answer_claim(claim, as_ref(&decided), home),
        Question::Tick(tick) => trace.answer_tick(tick, as_ref(&decided)),
        Question::Spawn(child_id) => answered(decided, || Answer::Spawned { child_id: child_id.clone() }),
        Question::Plain => answered(decided, || Answer::Done),
        Question::Read => read(work, trace),
    }
}

fn as_ref(decided: &Result<(), Refusal>) -> Result<(), &Refusal> {
    match decided {
        Ok(()) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

fn answered(decided: Result<(), Refusal>, answer: impl FnOnce() -> Answer) -> Answer {
    match decided {
        Ok(()) => answer(),
        Err(refusal) => answer_refusal(&refusal),
    }
}

fn read(work: &Work, trace: &Trace) -> Answer {
    let answer = match work {
        Work::ReadValue(lease, key) => trace.check_lease(lease).and_then(|()| {
            let entry = trace.read_value(&lease.child_id, key)?;
            let value = entry.map(|entry| ContextValue {
                value: entry.value.clone(),
                writer: entry.writer.clone(),
                version: entry.version,
                size_bytes: entry.size_bytes,
            });
            Ok(Answer::Value { value })
        }),
        Work::ListValues(lease) => trace
            .check_lease(lease)
            .and_then(|()| Ok(Answer::Keys { keys: trace.readable_keys(&lease.child_id)? })),
        Work::Command(_) | Work::Commands(_) | Work::Wake => Ok(Answer::Done),
    };
    answer.unwrap_or_else(|refusal| answer_refusal(&refusal))
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("messages have string keys only").into()
}
