//! A handle to the bus: every call goes to NATS, to memory, to the disk, or over HTTP to who has one of these. It carries bytes; of what it carries it decides only what is authentic, and
//! what a full subject keeps (S3).

use std::time::Duration;

use bytes::Bytes;
use domain::{
    span::Headers,
    subject::{self, Filter, Namespace, Subject},
    wording::with_causes,
};
use telemetry::Outage;

use super::{
    Consumer, Stream, Topology,
    authentic::{self, Verifier},
    disk::Disk,
    error::{Error, PublishError, RequestError},
    fill::{Backlog, Fill},
    http::Http,
    memory::Memory,
    message::{From, Head, Identity, Outgoing, Position, Published, Service, Stored},
    nats::Nats,
    stream::{Consumption, Follow, Followed, Sending, Sent, Subscription},
};
use crate::keys::{Keys, Why};

/// How often a message is tried again that what counts for nobody stood in the way of.
const TRIES: usize = 3;

/// A handle to the bus; clones are cheap and are the same bus.
#[derive(Debug, Clone)]
pub enum Bus {
    Nats(Nats),
    Memory(Memory),
    Disk(Disk),
    /// For clients only.
    Http(Http),
}

impl Bus {
    pub fn namespace(&self) -> &Namespace {
        match self {
            Bus::Nats(nats) => nats.namespace(),
            Bus::Memory(memory) => memory.namespace(),
            Bus::Disk(disk) => disk.namespace(),
            Bus::Http(http) => http.namespace(),
        }
    }

    /// The same bus for a coordinator with keys: what it stores in the logs that are read back is signed, and what it reads
    /// there and nobody with these keys has signed is left out, as if it were not there (S3).
    #[must_use]
    pub fn with_keys(self, keys: Keys) -> Self {
        match self {
            Bus::Nats(nats) => Bus::Nats(nats.with_keys(keys)),
            Bus::Memory(memory) => Bus::Memory(memory.with_keys(keys)),
            Bus::Disk(disk) => Bus::Disk(disk.with_keys(keys)),
            Bus::Http(http) => Bus::Http(http),
        }
    }

    fn keys(&self) -> Option<&Keys> {
        match self {
            Bus::Nats(nats) => nats.1.as_ref(),
            Bus::Memory(memory) => memory.keys.as_ref(),
            Bus::Disk(disk) => disk.within.keys.as_ref(),
            Bus::Http(_) => None,
        }
    }

    fn verifier(&self) -> Option<Verifier> {
        Some(Verifier::new(self.keys()?.clone(), self.namespace().clone()))
    }

    /// Makes the streams and consumers of a deployment, or checks those that exist.
    pub async fn set_up(&self, topology: &Topology) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.set_up(topology).await,
            Bus::Memory(memory) => memory.set_up(topology).await,
            Bus::Disk(disk) => disk.set_up(topology).await,
            Bus::Http(http) => http.not_carried("making streams"),
        }
    }

    /// Sends messages in order, without waiting until they are stored: [`Sent::stored`] does that.
    pub async fn send(&self, mut messages: Vec<Outgoing>) -> Sent {
        messages.iter_mut().for_each(|message| self.sign(message));
        self.send_signed(messages).await
    }

    fn sign(&self, message: &mut Outgoing) {
        if let Some(keys) = self.keys() {
            authentic::sign(keys, self.namespace(), message, self.fits(message.payload.len()));
        }
    }

    async fn send_signed(&self, messages: Vec<Outgoing>) -> Sent {
        let is_dead = |(place, message): (usize, &Outgoing)| {
            if let Subject::Dead(kind) = &message.subject { Some((place, kind.clone())) } else { None }
        };
        let dead_letters = messages.iter().enumerate().filter_map(is_dead).collect();
        let sending = match self {
            Bus::Nats(nats) => Sending::Nats(nats.send(messages).await),
            Bus::Memory(memory) => Sending::Memory(memory.send(messages)),
            Bus::Disk(disk) => Sending::Disk(disk.send(messages).await),
            Bus::Http(http) => Sending::Http(http.send(messages)),
        };
        Sent { sending, dead_letters }
    }

    /// Whether a payload of this size fits into a message. A larger one is stored as an object first, which takes longer.
    pub fn fits(&self, bytes: usize) -> bool {
        match self {
            Bus::Nats(nats) => nats.fits(bytes),
            Bus::Memory(_) | Bus::Disk(_) | Bus::Http(_) => true,
        }
    }

    /// Publishes one message and waits until it is stored. What counts for nobody does not stand in its way: neither behind the
    /// message that it expects, nor by filling its subject.
    pub async fn publish(&self, mut message: Outgoing) -> Result<Published, PublishError> {
        self.sign(&mut message);
        let expected = message.expect_last;
        for _ in 0..TRIES {
            let published = self.publish_signed(message.clone()).await;
            message.expect_last = match (&published, expected) {
                (Err(PublishError::WrongSequence), Some(expected)) if self.keys().is_some() => {
                    match Box::pin(self.last_refused(&message.subject, expected)).await {
                        Some(last) => Some(last),
                        None => return published,
                    }
                }
                // Boxed, as what is seldom and large within what everybody does.
                (Err(PublishError::Full(_)), expected)
                    if Box::pin(self.make_room(&message.subject)).await =>
                {
                    expected
                }
                (_, _) => return published,
            };
        }
        self.publish_signed(message).await
    }

    /// The same for a message that is to stand behind one that was removed, with all before it: nothing may be on its subject.
    pub async fn publish_behind_removed(&self, mut message: Outgoing) -> Result<Published, PublishError> {
        self.sign(&mut message);
        message.expect_last = Some(0);
        self.publish_signed(message).await
    }

    /// A subject that is full refuses what is new: so nobody can push out the message that counts, and coordinators remove what is
    /// too much. What is not authentic goes first, then the oldest; what a coordinator with other keys may have stored stays
    /// as far as there is room. Returns whether something was removed.
    async fn make_room(&self, subject: &Subject) -> bool {
        let filter = Filter::One(subject.clone());
        let kept = Stream::of(&filter).and_then(Stream::kept_per_subject);
        let Some(kept) = kept.and_then(|kept| usize::try_from(kept).ok()) else { return false };
        let Ok(all) = self.read_unjudged(&filter).await else { return false };
        if all.len() <= kept {
            // Others take the room of the whole stream.
            return false;
        }
        let (mut counts, mut foreign, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        let mut verifier = self.verifier();
        for stored in &all {
            match verifier.as_mut().map_or(Ok(()), |verifier| verifier.judge(stored)) {
                Ok(()) => counts.push(stored.sequence),
                Err(why) if why.is_foreign() => foreign.push(stored.sequence),
                Err(_) => gone.push(stored.sequence),
            }
        }
        let room = kept.saturating_sub(counts.len());
        gone.extend(&foreign[..foreign.len().saturating_sub(room)]);
        gone.extend(&counts[..counts.len().saturating_sub(kept)]);
        for sequence in &gone {
            if let Err(error) = self.delete_message(subject, *sequence).await {
                tracing::warn!(%error, %subject, "a subject is full, and what is too much could not be removed");
                return false;
            }
        }
        !gone.is_empty()
    }

    async fn publish_signed(&self, message: Outgoing) -> Result<Published, PublishError> {
        let mut results = self.send_signed(vec![message]).await.stored().await;
        results.pop().unwrap_or(Err(PublishError::Unacknowledged))
    }

    /// The last message on a subject, if everything behind the expected one is not authentic.
    async fn last_refused(&self, subject: &Subject, expected: u64) -> Option<u64> {
        let all = self.read_unjudged(&Filter::One(subject.clone())).await.ok()?;
        let mut verifier = self.verifier()?;
        let mut last = None;
        for stored in &all {
            let counts = verifier.takes(stored);
            if stored.sequence > expected {
                last = if counts { return None } else { Some(stored.sequence) };
            }
        }
        last
    }

    /// Sends a message to whoever listens now; it is not stored.
    pub async fn broadcast(&self, subject: &Subject, headers: &Headers, payload: Bytes) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.broadcast(subject, headers, payload).await,
            Bus::Memory(memory) => memory.broadcast(subject, headers, payload),
            Bus::Disk(disk) => disk.broadcast(subject, headers, payload).await,
            Bus::Http(http) => http.not_carried("telling everybody"),
        }
    }

    /// Sends to a reply subject that a requester chose; nobody may be listening any more. We publish with
    /// our own permissions, so it is never sent to a subject of Trellis or of the server.
    pub async fn reply(&self, to: &str, payload: Bytes) -> Result<(), Error> {
        if subject::is_reserved(to) {
            let reason = format!("`{to}` is reserved, and can't be a reply subject");
            return Err(Error::Failed { doing: "answering a request".into(), reason });
        }
        match self {
            Bus::Nats(nats) => nats.reply(to, payload).await,
            Bus::Memory(memory) => memory.reply(to, payload),
            Bus::Disk(disk) => disk.within.reply(to, payload),
            Bus::Http(http) => http.not_carried("answering a request"),
        }
    }

    pub async fn request(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        match self {
            Bus::Nats(nats) => nats.request(subject, headers, payload, timeout).await,
            Bus::Memory(memory) => memory.request(subject, headers, payload, timeout).await,
            Bus::Disk(disk) => disk.within.request(subject, headers, payload, timeout).await,
            Bus::Http(http) => http.request(subject, headers, payload, timeout).await,
        }
    }

    /// Sends a request to everybody who listens, and collects answers for the time `wait`.
    pub async fn gather(
        &self,
        subject: &Subject,
        payload: Bytes,
        wait: Duration,
    ) -> Result<Vec<Bytes>, Error> {
        match self {
            Bus::Nats(nats) => nats.gather(subject, payload, wait).await,
            Bus::Memory(memory) => memory.gather(subject, payload, wait).await,
            Bus::Disk(disk) => disk.within.gather(subject, payload, wait).await,
            Bus::Http(http) => http.gather(subject, payload, wait).await,
        }
    }

    /// Receives requests; of all processes that serve the filter, one gets each request.
    pub async fn serve(&self, filter: &Filter) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Nats(nats.serve(filter).await?)),
            Bus::Memory(memory) => Ok(Subscription::Memory(memory.serve(filter))),
            Bus::Disk(disk) => Ok(Subscription::Memory(disk.within.serve(filter))),
            Bus::Http(http) => http.not_carried("serving requests"),
        }
    }

    /// As `serve`, for several subjects, and listed: on NATS as a micro service that tools can find.
    pub async fn offer(&self, service: &Service) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Service(Box::new(nats.offer(service).await?))),
            Bus::Memory(memory) => Ok(Subscription::Memory(memory.offer(service))),
            Bus::Disk(disk) => Ok(Subscription::Memory(disk.within.offer(service))),
            Bus::Http(http) => http.not_carried("serving requests"),
        }
    }

    /// Receives every broadcast.
    pub async fn subscribe(&self, filter: &Filter) -> Result<Subscription, Error> {
        match self {
            Bus::Nats(nats) => Ok(Subscription::Nats(nats.subscribe(filter).await?)),
            Bus::Memory(memory) => Ok(Subscription::Memory(memory.subscribe(filter))),
            Bus::Disk(disk) => Ok(Subscription::Memory(disk.within.subscribe(filter))),
            Bus::Http(http) => Ok(Subscription::Http(Box::new(http.subscribe(filter).await?))),
        }
    }

    /// Takes work from a queue, as much as [`Consumption::want`] asks for.
    pub async fn consume(&self, consumer: &Consumer) -> Result<Consumption, Error> {
        match self {
            Bus::Nats(nats) => Ok(Consumption::Nats(Box::new(nats.consume(consumer).await?))),
            Bus::Memory(memory) => Ok(Consumption::Memory(memory.consume(consumer))),
            Bus::Disk(disk) => Ok(Consumption::Disk(disk.consume(consumer))),
            Bus::Http(http) => http.not_carried("taking work"),
        }
    }

    /// Everything stored under a filter now, oldest first.
    pub async fn read(&self, filter: &Filter) -> Result<Vec<Stored>, Error> {
        let mut all = self.read_unjudged(filter).await?;
        if let Some(mut verifier) = self.verifier() {
            all.retain(|stored| verifier.takes(stored));
        }
        Ok(all)
    }

    /// The same, and the sequences of what a coordinator may have stored that has other keys, or none.
    pub async fn read_judged(&self, filter: &Filter) -> Result<(Vec<Stored>, Vec<u64>), Error> {
        let mut all = self.read_unjudged(filter).await?;
        let mut foreign = Vec::new();
        if let Some(mut verifier) = self.verifier() {
            all.retain(|stored| {
                let judged = verifier.judge(stored);
                foreign.extend(judged.is_err_and(Why::is_foreign).then_some(stored.sequence));
                judged.is_ok()
            });
        }
        Ok((all, foreign))
    }

    /// What is stored under a filter and is not authentic: for whoever removes it.
    pub async fn read_refused(&self, filter: &Filter) -> Result<Vec<Stored>, Error> {
        let Some(mut verifier) = self.verifier() else { return Ok(Vec::new()) };
        let mut all = self.read_unjudged(filter).await?;
        all.retain(|stored| !verifier.takes(stored));
        Ok(all)
    }

    /// Everything stored under a filter, whoever stored it: for what nothing depends on.
    pub async fn read_unjudged(&self, filter: &Filter) -> Result<Vec<Stored>, Error> {
        match self {
            Bus::Nats(nats) => nats.read(filter).await,
            Bus::Memory(memory) => memory.read(filter).await,
            Bus::Disk(disk) => disk.read(filter),
            Bus::Http(http) => http.read(filter).await,
        }
    }

    /// The last message stored under a filter.
    pub async fn last(&self, filter: &Filter) -> Result<Option<Stored>, Error> {
        let last = match self {
            Bus::Nats(nats) => nats.last(filter).await?,
            Bus::Memory(memory) => memory.last(filter).await?,
            Bus::Disk(disk) => disk.last(filter)?,
            Bus::Http(http) => http.last(filter).await?,
        };
        let (Some(verifier), Some(stored)) = (self.verifier(), &last) else { return Ok(last) };
        let in_place = match verifier.check(stored) {
            Err(_) => false,
            Ok(None) => true,
            // Only its predecessor tells whether it is an earlier message that was stored again.
            Ok(Some(after)) => self.next_behind(&stored.subject, after).await? == Some(stored.sequence),
        };
        if in_place { Ok(last) } else { Ok(self.read(filter).await?.pop()) }
    }

    /// The sequence of the first message on a subject behind another.
    async fn next_behind(&self, subject: &Subject, sequence: u64) -> Result<Option<u64>, Error> {
        match self {
            Bus::Nats(nats) => nats.next_behind(subject, sequence).await,
            Bus::Memory(memory) => {
                let behind = memory.heads_since(&Filter::One(subject.clone()), sequence).await?;
                Ok(behind.first().map(|head| head.sequence))
            }
            Bus::Disk(disk) => {
                let behind = disk.heads_since(&Filter::One(subject.clone()), sequence)?;
                Ok(behind.first().map(|head| head.sequence))
            }
            Bus::Http(http) => http.not_carried("looking behind a message"),
        }
    }

    /// As `subjects`, without those that have no authentic message. Without keys it costs as little.
    pub async fn authentic_subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        match self.keys() {
            None => self.subjects(filter).await,
            Some(_) => Ok(self.read(filter).await?.into_iter().map(|stored| stored.subject).collect()),
        }
    }

    /// Stores what counts on a subject again, signed with the first key, where another key has signed it, or none; and
    /// removes it as it was. `all`: every message, in their order; otherwise the last. Returns how many. Nothing of it is
    /// harmful twice; if somebody else stores something meanwhile, the rest is left.
    pub async fn sign_again(&self, subject: &Subject, all: bool) -> Result<usize, Error> {
        let Some(keys) = self.keys() else { return Ok(0) };
        let filter = Filter::One(subject.clone());
        let counts =
            if all { self.read(&filter).await? } else { self.last(&filter).await?.into_iter().collect() };
        let is_old =
            |stored: &Stored| authentic::signer(&stored.headers).as_deref() != Some(keys.signing().id());
        // Those behind the first go with it: their order stays.
        let Some(first) = counts.iter().position(is_old) else { return Ok(0) };
        let mut last = counts.last().map_or(0, |last| last.sequence);
        for (done, Stored { headers, payload, sequence, .. }) in counts[first..].iter().enumerate() {
            let (headers, payload) = (headers.clone(), payload.clone());
            let again =
                Outgoing { subject: subject.clone(), id: None, headers, payload, expect_last: Some(last) };
            last = match self.publish(again).await {
                Ok(published) => published.sequence,
                Err(PublishError::WrongSequence) => return Ok(done),
                Err(error) => {
                    let doing = format!("signing `{subject}` again");
                    return Err(Error::Failed { doing, reason: error.to_string() });
                }
            };
            self.delete_message(subject, *sequence).await?;
        }
        Ok(counts.len() - first)
    }

    /// Follows a log as it grows. Survives reconnects without losing or repeating a message.
    pub async fn follow(&self, filters: &[Filter], from: From) -> Result<Follow, Error> {
        let log = match self {
            Bus::Nats(nats) => Followed::Nats(Box::new(nats.follow(filters, from).await?)),
            Bus::Memory(memory) => Followed::Memory(memory.follow(filters, from)?),
            Bus::Disk(disk) => Followed::Disk(disk.follow(filters, from)?),
            Bus::Http(http) => Followed::Http(Box::new(http.follow(filters, from).await?)),
        };
        Ok(Follow { log, verifier: self.verifier() })
    }

    /// The subjects that have messages under a filter.
    pub async fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        match self {
            Bus::Nats(nats) => nats.subjects(filter).await,
            Bus::Memory(memory) => memory.subjects(filter).await,
            Bus::Disk(disk) => disk.subjects(filter),
            Bus::Http(http) => http.subjects(filter).await,
        }
    }

    /// Every message under a filter behind a sequence, up to the one that is now the last. Costs as much as there are such
    /// messages, however many there are before them.
    pub async fn each_since(
        &self,
        filter: &Filter,
        sequence: u64,
        each: &mut (dyn FnMut(Head) + Send),
    ) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.each_since(filter, sequence, each).await,
            Bus::Memory(memory) => {
                memory.heads_since(filter, sequence).await?.into_iter().for_each(each);
                Ok(())
            }
            Bus::Disk(disk) => {
                disk.heads_since(filter, sequence)?.into_iter().for_each(each);
                Ok(())
            }
            Bus::Http(http) => http.not_carried("reading a log without its payloads"),
        }
    }

    /// Where the log that holds the subjects of a filter ends now. Its last message may be of another filter, or removed.
    pub async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        match self {
            Bus::Nats(nats) => nats.end(filter).await,
            Bus::Memory(memory) => memory.end(filter).await,
            Bus::Disk(disk) => disk.end(filter),
            Bus::Http(http) => http.end(filter).await,
        }
    }

    /// Removes what is stored under a filter.
    pub async fn purge(&self, filter: &Filter) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.purge(filter).await,
            Bus::Memory(memory) => memory.purge(filter).await,
            Bus::Disk(disk) => disk.purge(filter).await,
            Bus::Http(http) => http.not_carried("removing what is stored"),
        }
    }

    /// Removes one message that is stored under a subject.
    pub async fn delete_message(&self, subject: &Subject, sequence: u64) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.delete_message(subject, sequence).await,
            Bus::Memory(memory) => memory.delete_message(subject, sequence).await,
            Bus::Disk(disk) => disk.delete_message(subject, sequence).await,
            Bus::Http(http) => http.delete_message(subject, sequence).await,
        }
    }

    pub async fn put_object(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.put_object(name, bytes).await,
            Bus::Memory(memory) => memory.put_object(name, bytes).await,
            Bus::Disk(disk) => disk.put_object(name, bytes).await,
            Bus::Http(http) => http.not_carried("storing an object"),
        }
    }

    pub async fn get_object(&self, name: &str) -> Result<Option<Bytes>, Error> {
        match self {
            Bus::Nats(nats) => Box::pin(nats.get_object(name, None)).await,
            Bus::Memory(memory) => memory.get_object(name).await,
            Bus::Disk(disk) => disk.get_object(name),
            Bus::Http(http) => http.get_object(name, None).await,
        }
    }

    /// The object of this name whose content has this hash, whatever others have stored under its name since; if there is none, what
    /// there is. The caller compares the hash.
    pub async fn get_content(&self, name: &str, sha256: &str) -> Result<Option<Bytes>, Error> {
        match self {
            Bus::Nats(nats) => Box::pin(nats.get_object(name, Some(sha256))).await,
            Bus::Memory(memory) => memory.get_object(name).await,
            Bus::Disk(disk) => disk.get_object(name),
            Bus::Http(http) => http.get_object(name, Some(sha256)).await,
        }
    }

    pub async fn delete_object(&self, name: &str) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.delete_object(name).await,
            Bus::Memory(memory) => memory.delete_object(name).await,
            Bus::Disk(disk) => disk.delete_object(name).await,
            Bus::Http(http) => http.not_carried("removing an object"),
        }
    }

    /// The names of the objects with this prefix, in order.
    pub async fn objects(&self, prefix: &str) -> Result<Vec<String>, Error> {
        match self {
            Bus::Nats(nats) => nats.objects(prefix).await,
            Bus::Memory(memory) => memory.objects(prefix).await,
            Bus::Disk(disk) => disk.objects(prefix),
            Bus::Http(http) => http.objects(prefix).await,
        }
    }

    /// How full each stream and the objects are.
    pub async fn fill(&self) -> Result<Vec<Fill>, Error> {
        match self {
            Bus::Nats(nats) => nats.fill().await,
            Bus::Memory(memory) => memory.fill().await,
            Bus::Disk(disk) => disk.fill(),
            Bus::Http(http) => http.fill().await,
        }
    }

    /// How many deliveries of a queue are not acknowledged yet, over all its readers.
    pub async fn unacknowledged(&self, consumer: &Consumer) -> Result<usize, Error> {
        match self {
            Bus::Nats(nats) => nats.unacknowledged(consumer).await,
            Bus::Memory(memory) => memory.unacknowledged(consumer).await,
            Bus::Disk(disk) => disk.within.unacknowledged(consumer).await,
            Bus::Http(http) => http.not_carried("asking about a queue"),
        }
    }

    /// How much of a queue waits, and is being done. A queue that does not exist has nothing.
    pub async fn backlog(&self, consumer: &Consumer) -> Result<Backlog, Error> {
        match self {
            Bus::Nats(nats) => nats.backlog(consumer).await,
            Bus::Memory(memory) => memory.backlog(consumer).await,
            Bus::Disk(disk) => disk.backlog(consumer),
            Bus::Http(http) => http.backlog(consumer).await,
        }
    }

    /// Something could not be done, again and again. Without a connection nothing can, and that is told once for all (X8).
    pub fn tell(&self, outage: &mut Outage, error: &Error) {
        match self {
            Bus::Nats(nats) => nats.failed(outage, error),
            Bus::Memory(_) | Bus::Disk(_) | Bus::Http(_) => outage.failed(&with_causes(error)),
        }
    }

    /// Makes the queues of the pools that this process has published work for again, if they were removed.
    pub async fn keep_pools(&self) -> Result<(), Error> {
        match self {
            Bus::Nats(nats) => nats.keep_pools().await,
            Bus::Memory(_) | Bus::Disk(_) | Bus::Http(_) => Ok(()),
        }
    }

    /// Who we are for the server, and what it permits us; nobody within this process.
    pub async fn identity(&self) -> Result<Option<Identity>, Error> {
        match self {
            Bus::Nats(nats) => Ok(Some(nats.identity().await?)),
            Bus::Memory(_) | Bus::Disk(_) | Bus::Http(_) => Ok(None),
        }
    }

    /// How the streams of a server differ from those that a coordinator makes; what is within a process, or behind another
    /// server, can't.
    pub async fn differences(&self) -> Result<Vec<String>, Error> {
        match self {
            Bus::Nats(nats) => nats.differences().await,
            Bus::Memory(_) | Bus::Disk(_) | Bus::Http(_) => Ok(Vec::new()),
        }
    }

    /// Measures a round trip to the server.
    pub async fn ping(&self) -> Result<Duration, Error> {
        match self {
            Bus::Nats(nats) => nats.ping().await,
            Bus::Memory(_) => Ok(Duration::ZERO),
            Bus::Disk(disk) => disk.ping().map(|()| Duration::ZERO),
            Bus::Http(http) => http.ping().await,
        }
    }
}
