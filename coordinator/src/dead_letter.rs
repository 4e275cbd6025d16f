//! Dead letters: records of messages that were finally refused, for the operator. A letter has the
//! reason, the context and the identity of the message, but not its content, because a reader of
//! dead letters may lack the permission for it. To send the message again, a client has to supply
//! it (`trellis dead-letters retry`).

use std::{sync::Arc, time::Duration};

use bus::{
    Bus, Delivery, Message, Outgoing, PublishError,
    keys::{ForgedMessage, Keys, Why},
};
use domain::{
    ChildId, Problems, TraceId,
    span::Headers,
    subject::Subject,
    wire::{DeadLetter, Refusal},
};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::{error_log, loops::Handles};

/// Dead letters that are stored at the same time.
pub(crate) const AT_ONCE: usize = 64;

/// Interval at which letters about refused signatures are stored.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Least time between two letters about messages without a known key.
const FOREIGN_EVERY: Duration = Duration::from_secs(60);

/// A dead letter, and the log line that is written once it is stored (X8).
pub(crate) struct Letter {
    pub(crate) message: Outgoing,
    pub(crate) line: Line,
}

impl Letter {
    /// Stores the letter and logs it. A letter that was stored before is not logged again.
    pub(crate) async fn store(self, bus: &Bus) -> Result<(), PublishError> {
        if !bus.publish(self.message).await?.duplicate {
            self.line.tell();
        }
        Ok(())
    }
}

/// The log line about a dead letter. It never contains the message, nor the problem with it.
pub(crate) struct Line {
    kind: &'static str,
    code: String,
    trace_id: Option<TraceId>,
    child_id: Option<ChildId>,
}

impl Line {
    pub(crate) fn tell(&self) {
        let trace_id = self.trace_id.map(tracing::field::display);
        let child_id = self.child_id.as_ref().map(tracing::field::display);
        tracing::info!(
            trace_id,
            child_id,
            kind = self.kind,
            code = self.code,
            "a message became a dead letter"
        );
    }
}

/// A dead letter about a message from a queue. Its id follows from the message, so that it is
/// stored once, even if the message is delivered many times.
pub(crate) fn about(
    delivery: &Delivery,
    kind: &'static str,
    refusal: Refusal,
    of: Option<(TraceId, Option<ChildId>)>,
) -> Letter {
    let id = format!("{kind}.{}.{}.dead", delivery.sequence, delivery.at.millis());
    letter(&delivery.subject, kind, Some(&delivery.payload), refusal, of, Some(id))
}

/// A dead letter about a request.
pub(crate) fn about_request(message: &Message, subject: String, refusal: Refusal) -> Letter {
    letter(&subject, message.subject.kind(), Some(&message.payload), refusal, None, None)
}

/// The kind of a subject; `unknown` if it does not parse.
fn kind(subject: Option<&Subject>) -> &'static str {
    subject.map_or("unknown", Subject::kind)
}

/// Stores a dead letter about a message without a reply subject, and removes the message from its
/// queue. If the letter can't be stored, the message is delivered again. The letter is stored in a
/// task of its own, so that a client which sends many bad messages does not delay later ones (S6).
/// The loop waits only while many letters are being stored.
pub(crate) async fn keep(
    handles: &Arc<Handles>,
    delivery: Delivery,
    subject: Option<&Subject>,
    problems: Problems,
) {
    let kind = kind(subject);
    tracing::debug!(%problems, subject = delivery.subject, "a message is refused");
    let letter = about(&delivery, kind, Refusal::invalid(&problems), None);
    let one = handles.letters.clone().acquire_owned().await;
    let bus = handles.bus.clone();
    handles.spawn(&TaskTracker::new(), async move {
        match letter.store(&bus).await {
            Ok(()) => delivery.terminate().await,
            Err(error) => error_log::tell(
                &error,
                None,
                "a dead letter could not be stored; the message will be delivered again",
            ),
        }
        drop(one);
    });
}

/// Stores a dead letter about a request, in a task of its own. While many letters are being stored,
/// this one is dropped: the sender of the request gets an answer in any case, and must not delay
/// other requests.
pub(crate) fn keep_request(handles: &Arc<Handles>, message: &Message, problems: &Problems) {
    let Ok(one) = handles.letters.clone().try_acquire_owned() else {
        tracing::debug!(subject = %message.subject, "too many dead letters are being stored; the dead letter of a request is dropped");
        return;
    };
    let (bus, refusal) = (handles.bus.clone(), Refusal::invalid(problems));
    let letter = about_request(message, bus.namespace().subject(&message.subject), refusal);
    handles.spawn(&TaskTracker::new(), async move {
        if let Err(error) = letter.store(&bus).await {
            error_log::tell(&error, None, "a dead letter could not be stored");
        }
        drop(one);
    });
}

/// Messages without a code, or with the code of an unknown key. When a deployment begins to use a
/// key, or drops one too early, every message is of this kind. So one letter a minute is stored for
/// each reason.
#[derive(Debug, Default)]
struct Foreign {
    waiting: Vec<(ForgedMessage, u64)>,
    told: Vec<(Why, Instant)>,
}

impl Foreign {
    /// The letters to store now, each with the number of other messages with the same reason.
    fn told_now(&mut self, refused: Vec<ForgedMessage>, now: Instant) -> Vec<(ForgedMessage, u64)> {
        let mut tell = Vec::new();
        for refused in refused {
            if !refused.why.is_foreign() {
                tell.push((refused, 0));
            } else if let Some((_, others)) =
                self.waiting.iter_mut().find(|(first, _)| first.why == refused.why)
            {
                *others += 1;
            } else {
                self.waiting.push((refused, 0));
            }
        }
        self.told.retain(|(_, at)| now.duration_since(*at) < FOREIGN_EVERY);
        let told = &mut self.told;
        let due = self.waiting.extract_if(.., |(first, _)| told.iter().all(|(why, _)| *why != first.why));
        let due: Vec<(ForgedMessage, u64)> = due.collect();
        told.extend(due.iter().map(|(first, _)| (first.why, now)));
        tell.extend(due);
        tell
    }
}

/// Stores a dead letter about each record that was read and is not authentic (S3), without its
/// content. Each letter is stored once while the server remembers its id, and after that once per
/// process.
pub(crate) async fn tell_refused(bus: &Bus, keys: &Keys) {
    let mut interval = tokio::time::interval(TELL_EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut foreign = Foreign::default();
    loop {
        interval.tick().await;
        for (ForgedMessage { place, number, why }, others) in
            foreign.told_now(keys.take_untold(), Instant::now())
        {
            let subject = bus.namespace().parse(&place).ok();
            let kind = subject.as_ref().map_or("store", Subject::kind);
            let of = match &subject {
                Some(Subject::Event(trace, child) | Subject::Outcome(trace, child)) => {
                    Some((*trace, Some(child.clone())))
                }
                Some(_) => None,
                None => place.split_once(' ').and_then(|(_, id)| Some((id.parse().ok()?, None))),
            };
            let what = if subject.is_some() { "message" } else { "version" };
            let mut message = format!("{what} {number} of `{place}` is ignored: {why}");
            if others > 0 {
                message += &format!("; {others} others are ignored too");
            }
            let refusal = Refusal::not_authentic(message);
            let id = Some(format!("{place}.{number}.refused").replace(' ', "."));
            if let Err(error) = letter(&place, kind, None, refusal, of, id).store(bus).await {
                error_log::tell(&error, None, "a dead letter could not be stored");
            }
        }
    }
}

fn letter(
    subject: &str,
    kind: &'static str,
    payload: Option<&[u8]>,
    refusal: Refusal,
    of: Option<(TraceId, Option<ChildId>)>,
    id: Option<String>,
) -> Letter {
    let (trace_id, child_id) = of.map_or((None, None), |(trace_id, child_id)| (Some(trace_id), child_id));
    let line = Line { kind, code: refusal.code.clone(), trace_id, child_id: child_id.clone() };
    let letter = DeadLetter::new(subject, payload, refusal).about(trace_id, child_id);
    let message = Outgoing {
        subject: Subject::Dead(ChildId::new(kind).expect("kinds are words")),
        id,
        headers: Headers::new(),
        payload: serde_json::to_vec(&letter).expect("a message has string keys only").into(),
        expect_last: None,
    };
    Letter { message, line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_data_without_a_known_code_is_reported_once_a_minute() {
        let (mut foreign, start) = (Foreign::default(), Instant::now());
        let mut tell = |seconds: u64, refused: &[(u64, Why)]| -> Vec<(u64, u64)> {
            let refused = refused.iter().map(|(number, why)| ForgedMessage {
                place: "agent.event".into(),
                number: *number,
                why: *why,
            });
            let told = foreign.told_now(refused.collect(), start + Duration::from_secs(seconds));
            told.into_iter().map(|(refused, others)| (refused.number, others)).collect()
        };
        let many: Vec<(u64, Why)> = (1..=1_000).map(|number| (number, Why::Unsigned)).collect();
        assert_eq!(tell(0, &many), [(1, 999)]);
        assert_eq!(
            tell(1, &[(1_001, Why::Unsigned), (7, Why::WrongCode), (8, Why::WrongCode)]),
            [(7, 0), (8, 0)]
        );
        assert_eq!(tell(2, &[(9, Why::UnknownKey)]), [(9, 0)], "each reason has its own letter");
        assert_eq!(tell(59, &many), []);
        assert_eq!(tell(60, &[]), [(1_001, 1_000)]);
        assert_eq!(tell(61, &[]), []);
    }
}
