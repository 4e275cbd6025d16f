//! Sends the messages of committed traces. Once they are stored, replies and acknowledges. The next
//! turn is decided meanwhile.

use std::sync::Arc;

use bus::{Bus, Outgoing};
use bytes::Bytes;
use domain::{Timestamp, TraceId, subject::Subject, wire::Stop};
use futures_util::FutureExt;
use trace::{Effect, Trace};

use super::{
    Shard,
    batch::{Batch, Part, RemovedContext, SettledTrace},
    cache::UnsentOutbox,
    job::{Job, LeaseGrace, Origin, Work},
    outbox::Outbox,
    reply::Reply,
    spans,
    upload::MAX_UPLOADS,
};
use crate::{crash::Point, error_log, removal, store::SentOutboxes};

impl Shard {
    pub(super) async fn send(&mut self, settled: Vec<SettledTrace>, now: Timestamp) {
        let webhooks = self.handles.config.webhooks.now();
        let mut messages: Vec<Outgoing> = Vec::new();
        let mut parts = Vec::new();
        let mut removed = Vec::new();
        for SettledTrace { trace_id, outbox, frees_room, replies } in settled {
            let start = messages.len();
            let mut outboxes: Vec<Arc<Outbox>> = self.earlier(trace_id, outbox.as_deref(), &replies, now);
            outboxes.extend(outbox);
            for outbox in &outboxes {
                self.act(trace_id, outbox, &mut removed).await;
            }
            let home = self.handles.home(trace_id);
            let entry = self.cache.peek(trace_id).expect("a trace in a turn is in the cache");
            let version = entry.trace.version();
            let mut sent = Vec::with_capacity(outboxes.len());
            for outbox in &outboxes {
                let same = |unsent: &&UnsentOutbox| unsent.outbox.key() == outbox.key();
                let logged = entry.unsent.iter().find(same).is_some_and(|unsent| unsent.logged);
                let events = outbox.messages(&entry.trace, &home, &webhooks, logged, &mut messages);
                sent.push((outbox.key(), events.start - start..events.end - start));
            }
            let sends = |unsent: &&mut UnsentOutbox| sent.iter().any(|(key, _)| *key == unsent.outbox.key());
            entry.unsent.iter_mut().filter(sends).for_each(|unsent| unsent.sending = true);
            entry.in_flight += u32::from(!outboxes.is_empty());
            let woken = replies.iter().any(|reply| matches!(reply.job().work, Work::Wake(_)));
            if outboxes.is_empty() && woken {
                // No outbox was due, or all are being sent: set the timer to the next due time.
                if entry.in_flight > 0 {
                    entry.resend_not_before = now.plus_millis(self.handles.resend_ms());
                }
                self.sent.entry(trace_id).or_default();
                self.retimed.insert(
                    trace_id,
                    entry.timed(trace_id, self.handles.delays(), self.handles.owns(trace_id)),
                );
            }
            let mut waiting = Vec::with_capacity(replies.len());
            for reply in replies {
                match reply.redirected() {
                    Ok(job) => self.again.push(job),
                    Err(reply) if reply.waits() => self.waiting.keep(*reply),
                    Err(mut reply) => {
                        if let Some((to, answer)) = reply.early_answer() {
                            self.answer_early(to, answer).await;
                        }
                        messages.extend(reply.take_dead_letter());
                        waiting.push(*reply);
                    }
                }
            }
            if frees_room {
                self.again.extend(self.waiting.of(trace_id));
            }
            let messages = start..messages.len();
            parts.push(Part { trace_id, version, outboxes: sent, messages, replies: waiting });
        }
        if messages.is_empty() {
            self.stored(Batch { parts, results: Vec::new(), removed }).await;
            return;
        }
        let (messages, parts, removed) = self.upload(messages, parts, removed).await;
        if parts.is_empty() {
            return;
        }
        let (messages, merged) = spans::merge(messages);
        let sent = self.handles.bus.send(messages).await;
        let batch = async move { Batch { parts, results: merged.results(sent.stored().await), removed } };
        self.sending.push(batch.boxed());
    }

    async fn answer_early(&mut self, to: String, answer: Bytes) {
        let bus = self.handles.bus.clone();
        if !bus.fits(answer.len()) {
            self.uploads.answer(bus, to, answer);
        } else if let Err(error) = bus.reply(&to, answer).await {
            tracing::debug!(%error, "an answer could not be sent");
        }
    }

    /// Starts the upload of messages that are too large, together with the messages that must
    /// follow them. Returns the rest.
    async fn upload(
        &mut self,
        messages: Vec<Outgoing>,
        parts: Vec<Part>,
        removed: Vec<RemovedContext>,
    ) -> (Vec<Outgoing>, Vec<Part>, Vec<RemovedContext>) {
        let large = |part: &Part, bus: &Bus| {
            messages[part.messages.clone()].iter().any(|message| !bus.fits(message.payload.len()))
        };
        let bus = self.handles.bus.clone();
        let late: Vec<bool> =
            parts.iter().map(|part| self.uploads.has(part.trace_id) || large(part, &bus)).collect();
        if !late.contains(&true) {
            return (messages, parts, removed);
        }
        let (mut messages, mut removed) = (messages.into_iter(), removed);
        let (mut rest, mut others) = (Vec::new(), Vec::new());
        for (part, late) in parts.into_iter().zip(late) {
            let own = messages.by_ref().take(part.messages.len());
            if late {
                let own: Vec<Outgoing> = own.collect();
                let of_it = |gone: &mut RemovedContext| gone.trace_id == part.trace_id;
                let gone: Vec<RemovedContext> = removed.extract_if(.., of_it).collect();
                self.uploads.send(bus.clone(), Part { messages: 0..own.len(), ..part }, own, gone);
            } else {
                let start = rest.len();
                rest.extend(own);
                others.push(Part { messages: start..rest.len(), ..part });
            }
        }
        while self.uploads.len() > MAX_UPLOADS
            && let Some(batch) = self.uploads.next().await
        {
            self.stored(batch).await;
        }
        (rest, others, removed)
    }

    /// Outboxes of earlier commits, by any coordinator, that are not known to be sent. Sending them
    /// again is harmless: the ids of their messages are the same. A wake sends the overdue ones. A
    /// reply must not report a commit that the log lacks, so it sends at once all whose events are
    /// not in the log, except those that are being sent.
    fn earlier(
        &mut self,
        id: TraceId,
        own: Option<&Outbox>,
        replies: &[Reply],
        now: Timestamp,
    ) -> Vec<Arc<Outbox>> {
        let resend_ms = self.handles.resend_ms();
        let Some(entry) = self.cache.peek(id).filter(|entry| entry.resend_not_before <= now) else {
            return Vec::new();
        };
        let tells = replies.iter().any(Reply::tells);
        let woken = replies.iter().any(|reply| matches!(reply.job().work, Work::Wake(_)));
        let earlier = entry.unsent.iter().filter(|unsent| {
            let overdue = woken && unsent.outbox.at.plus_millis(resend_ms) <= now;
            let is_own = own.is_some_and(|own| own.key() == unsent.outbox.key());
            !is_own && !unsent.sending && (overdue || tells && !unsent.logged)
        });
        earlier.map(|unsent| unsent.outbox.clone()).collect()
    }

    /// Carries out the effects that are not stored messages.
    async fn act(&mut self, id: TraceId, outbox: &Outbox, removed: &mut Vec<RemovedContext>) {
        let trace: &Trace = &self.cache.peek(id).expect("a trace in a turn is in the cache").trace;
        for effect in outbox.effects() {
            match effect {
                Effect::Stop { child_id } => {
                    let stop = Stop { trace_id: id, child_id: child_id.clone() };
                    let payload = serde_json::to_vec(&stop).expect("a message has string keys only");
                    let headers = Default::default();
                    // The stop may be lost: the answer to the next tick stops the worker anyway.
                    self.handles.bus.broadcast(&Subject::Stop(id), &headers, payload.into()).await.ok();
                }
                Effect::Remove { child_id } => {
                    let whole_trace = trace.root().is_some_and(|root| root.id == *child_id);
                    removed.push(RemovedContext { trace_id: id, child_id: child_id.clone(), whole_trace });
                }
                Effect::Execute { .. } | Effect::Question { .. } | Effect::Outcome { .. } => {}
            }
        }
    }

    /// Handles the result of a send: replies and acknowledges where all messages are stored.
    pub(super) async fn stored(&mut self, batch: Batch) {
        if batch.parts.is_empty() {
            return;
        }
        self.handles.config.crash.pass(Point::Sent);
        for part in batch.parts {
            let results = batch.results.get(part.messages.clone()).unwrap_or_default();
            let failed = results.iter().find_map(|result| result.as_ref().err());
            if let Some(entry) = self.cache.peek(part.trace_id) {
                entry.in_flight = entry.in_flight.saturating_sub(u32::from(!part.outboxes.is_empty()));
                for (key, events) in &part.outboxes {
                    let logged =
                        results.get(events.clone()).is_some_and(|events| events.iter().all(Result::is_ok));
                    let sent = entry.unsent.iter_mut().filter(|unsent| unsent.outbox.key() == *key);
                    sent.for_each(|unsent| (unsent.logged, unsent.sending) = (unsent.logged | logged, false));
                }
                let sent =
                    |unsent: &UnsentOutbox| part.outboxes.iter().any(|(key, _)| *key == unsent.outbox.key());
                if entry.doubted && entry.in_flight == 0 {
                    let wake = Work::Wake(LeaseGrace::Anew);
                    self.again.push(Job::new(part.trace_id, wake, Origin::Timer));
                }
                match failed {
                    None => entry.unsent.retain(|unsent| !sent(unsent)),
                    Some(_) => {
                        entry.resend_not_before =
                            self.handles.clock.now().plus_millis(self.handles.resend_ms());
                    }
                }
            }
            if let Some(error) = failed {
                // The outbox keeps the messages, and its timer sends them again. Unacknowledged
                // deliveries are delivered again.
                error_log::tell(
                    error,
                    Some(part.trace_id),
                    "committed, but not all messages could be sent; sending them again later",
                );
                self.sent.entry(part.trace_id).or_default();
                self.tell(part.trace_id, part.version, Vec::new()).await;
                continue;
            }
            if !part.outboxes.is_empty() {
                let keys = part.outboxes.iter().map(|(key, _)| *key);
                self.sent.entry(part.trace_id).or_default().extend(keys);
            }
            self.tell(part.trace_id, part.version, part.replies).await;
        }
        self.handles.config.crash.pass(Point::Acknowledged);
        if !batch.removed.is_empty() {
            let bus = self.handles.bus.clone();
            let removing = async move {
                remove(&bus, batch.removed).await;
                Batch { parts: Vec::new(), results: Vec::new(), removed: Vec::new() }
            };
            self.sending.push(removing.boxed());
        }
    }

    /// Sends the replies that report this version, and earlier replies that had to wait. No reply
    /// reports a commit that the log may lack, because the store may lose it too. A reply waits for
    /// sends in progress. If a send fails, the caller has to ask again.
    async fn tell(&mut self, id: TraceId, version: u64, replies: Vec<Reply>) {
        let mut waiting = self.untold.remove(&id).unwrap_or_default();
        waiting.extend(replies.into_iter().map(|reply| (version, reply)));
        for (version, reply) in waiting {
            match self.cache.peek(id) {
                _ if !reply.tells() => self.finish(reply).await,
                Some(entry) if entry.is_logged(version) => self.finish(reply).await,
                Some(entry) if entry.in_flight > 0 => {
                    self.untold.entry(id).or_default().push((version, reply));
                }
                Some(_) | None => self.unavailable(reply.into_job()).await,
            }
        }
    }

    async fn finish(&mut self, reply: Reply) {
        if reply.is_large(&self.handles.bus) {
            self.uploads.finish(self.handles.bus.clone(), reply);
        } else {
            reply.finish(&self.handles.bus).await;
        }
    }

    /// Clears outboxes that were sent. If this coordinator dies before the write, they are sent
    /// once more, which is harmless. While the store is unreachable they are kept for the next
    /// round: the timer reads the cache, where they are already cleared.
    pub(super) async fn clear_outboxes(&mut self) {
        if self.sent.is_empty() {
            self.retimed.clear();
            return;
        }
        let delays = self.handles.delays();
        let mut sent = Vec::with_capacity(self.sent.len());
        // All of them: the commit of a woken trace has set its timer meanwhile.
        let mut retimed = std::mem::take(&mut self.retimed);
        for (trace_id, outboxes) in std::mem::take(&mut self.sent) {
            let timed = match self.cache.peek(trace_id) {
                Some(entry) => Some(entry.timed(trace_id, delays, self.handles.owns(trace_id))),
                // The trace was evicted. If nothing was due at its wake, it must not be woken again
                // at once.
                None => retimed.remove(&trace_id),
            };
            let untimed = SentOutboxes {
                trace_id,
                outboxes: Vec::new(),
                version: None,
                stamp: None,
                timer: None,
                keeps_earlier_timer: false,
                all: false,
            };
            sent.push(SentOutboxes { outboxes, ..timed.unwrap_or(untimed) });
        }
        if let Err(error) = self.handles.store.sent(&sent).await {
            error_log::tell(&error, None, "outboxes could not be cleared; trying again");
            for SentOutboxes { trace_id, outboxes, .. } in sent {
                self.sent.entry(trace_id).or_default().extend(outboxes);
            }
        }
    }
}

/// Removes the journals and objects of deleted contexts. After a crash or with an unreachable bus,
/// the rest is removed with the run, at the end of its retention.
async fn remove(bus: &Bus, contexts: Vec<RemovedContext>) {
    for RemovedContext { trace_id, child_id, whole_trace } in contexts {
        if let Err(error) = removal::context(bus, trace_id, &child_id).await {
            tracing::warn!(%trace_id, %child_id, %error, "a deleted context could not be removed yet");
        }
        if whole_trace && let Err(error) = removal::log(bus, trace_id).await {
            error_log::tell(
                &error,
                Some(trace_id),
                "the event log of a deleted trace keeps its content until it expires",
            );
        }
    }
}
