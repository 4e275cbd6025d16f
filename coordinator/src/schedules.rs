//! The known schedules (G16), and their log: the revisions of each, and what was decided about its ticks, each under its own
//! subject. A message is appended behind the last one that its writer saw, or not at all: of two coordinators that decide
//! the same tick, one has decided.
//!
//! Every coordinator follows the log and keeps what it says without the tasks. What it knows may be late: then what it writes
//! is refused, and it reads again.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bus::{Bus, From, Outgoing, PublishError, Stored};
use domain::{
    Json, ScheduleName, Timestamp, TraceId,
    schedule::{self, Readable, Rules, State, looks_at},
    subject::{Filter, Partition, Subject},
    wire::ScheduleRevision,
};
use serde_json::Value;
use telemetry::Outage;
use tokio::sync::watch;

/// How long is waited until what others have stored is known here.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(3);
/// Pause before the log is followed again after an error.
const FOLLOW_AGAIN_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the log of schedules can't be read")]
    Read(#[from] bus::Error),
    #[error("the schedule `{name}` could not be written to the log")]
    Write {
        name: ScheduleName,
        #[source]
        source: PublishError,
    },
    #[error("the log of schedules is ahead of what is known here")]
    Behind,
}

impl Error {
    /// Whether the log has no room.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Error::Write { source: PublishError::Full(_), .. })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Schedules {
    bus: Bus,
    known: Arc<RwLock<BTreeMap<ScheduleName, Arc<Known>>>>,
    /// The last message of the log that was followed.
    seen: Arc<watch::Sender<u64>>,
}

/// What is known about one schedule.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) revision: u64,
    pub(crate) at: Timestamp,
    /// The places of its definition and of its state in the log; 0: there is none.
    pub(crate) definition_at: u64,
    pub(crate) state_at: u64,
    pub(crate) content: Content,
    pub(crate) state: Arc<State>,
    /// When there may be something to do.
    pub(crate) looks_at: Option<Timestamp>,
}

/// What its latest revision is.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Rules(Arc<Brief>),
    Deleted,
    /// Written by a newer version of this program: why it can't be run.
    Unreadable(Arc<str>),
}

/// A definition without its task.
#[derive(Debug)]
pub(crate) struct Brief {
    pub(crate) rules: Rules,
    pub(crate) cron: String,
    pub(crate) time_zone: String,
}

pub(crate) enum Written {
    /// At this place.
    Done(u64),
    /// Another was first.
    Behind,
}

impl Default for Known {
    fn default() -> Self {
        Known {
            revision: 0,
            at: Timestamp::default(),
            definition_at: 0,
            state_at: 0,
            content: Content::Deleted,
            state: Arc::default(),
            looks_at: None,
        }
    }
}

impl Known {
    pub(crate) fn brief(&self) -> Option<&Arc<Brief>> {
        match &self.content {
            Content::Rules(brief) => Some(brief),
            Content::Deleted | Content::Unreadable(_) => None,
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        matches!(self.content, Content::Deleted)
    }

    /// Takes a revision that is stored at a place behind the known one. An earlier one never counts, wherever it is stored.
    fn define(&mut self, place: u64, revision: &ScheduleRevision) {
        if place <= self.definition_at || revision.revision < self.revision {
            return;
        }
        (self.revision, self.at, self.definition_at) = (revision.revision, revision.at, place);
        if revision.schedule.is_none() {
            // It is removed with its schedule.
            (self.state, self.state_at) = (Arc::default(), 0);
        }
        self.content = match revision.schedule.as_ref().map(|schedule| schedule::read(schedule.value())) {
            None => Content::Deleted,
            Some(Ok(readable)) => Content::Rules(Arc::new(Brief {
                rules: Rules::new(&readable, revision.revision, revision.at),
                cron: readable.schedule.cron,
                time_zone: readable.schedule.time_zone,
            })),
            Some(Err(problems)) => Content::Unreadable(problems.to_string().into()),
        };
    }

    fn look(mut self) -> Arc<Self> {
        self.looks_at = self.brief().and_then(|brief| looks_at(&brief.rules, &self.state));
        Arc::new(self)
    }
}

impl Schedules {
    /// Empty until the log is followed.
    pub(crate) fn new(bus: Bus) -> Self {
        Schedules { bus, known: Arc::default(), seen: Arc::new(watch::Sender::new(0)) }
    }

    /// Follows the log until it is dropped.
    pub(crate) async fn follow(self) {
        let mut outage = Outage::new("the log of schedules");
        loop {
            let followed = self.bus.follow(&[Filter::Schedules, Filter::AllTicks], From::Start).await;
            match followed {
                Ok(mut log) => {
                    outage.ended();
                    let denied = loop {
                        match log.next().await {
                            Ok(stored) => self.take(&stored),
                            Err(error) => break error,
                        }
                    };
                    // Whoever hears the server tells of it.
                    tracing::debug!(%denied, "the log of schedules can't be followed; trying again");
                }
                Err(error) => outage.failed(&error.to_string()),
            }
            tokio::time::sleep(FOLLOW_AGAIN_AFTER).await;
        }
    }

    /// A message of the log. One that is known already changes nothing.
    fn take(&self, stored: &Stored) {
        let place = stored.sequence;
        let taken = if let Subject::Schedule(name) = &stored.subject {
            serde_json::from_slice(&stored.payload).map(|revision| {
                self.change(name, |known| known.define(place, &revision));
            })
        } else if let Subject::Ticks(name) = &stored.subject {
            serde_json::from_slice::<State>(&stored.payload).map(|state| {
                self.change(name, |known| {
                    if known.state_at < place {
                        (known.state, known.state_at) = (Arc::new(state), place);
                    }
                });
            })
        } else {
            // No other subject is followed.
            Ok(())
        };
        if let Err(error) = taken {
            tracing::error!(subject = %stored.subject, %error, "a message of the log of schedules can't be read");
        }
        self.seen.send_modify(|seen| *seen = place.max(*seen));
    }

    fn change(&self, name: &ScheduleName, change: impl FnOnce(&mut Known)) {
        let mut all = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut known = all.get(name).map_or_else(Known::default, |known| (**known).clone());
        change(&mut known);
        all.insert(name.clone(), known.look());
    }

    /// Waits until everything is known that is stored now.
    pub(crate) async fn caught_up(&self) -> Result<(), Error> {
        let mut last = 0;
        for filter in [Filter::Schedules, Filter::AllTicks] {
            last = last.max(self.bus.last(&filter).await?.map_or(0, |stored| stored.sequence));
        }
        let mut seen = self.seen.subscribe();
        let waited = tokio::time::timeout(CATCH_UP_WITHIN, seen.wait_for(|seen| *seen >= last));
        let caught_up = waited.await.is_ok_and(|seen| seen.is_ok());
        if caught_up { Ok(()) } else { Err(Error::Behind) }
    }

    pub(crate) fn get(&self, name: &ScheduleName) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Those that are not deleted, behind a name.
    pub(crate) fn behind(
        &self,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> Vec<(ScheduleName, Arc<Known>)> {
        let all = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let behind =
            all.iter().filter(|(name, known)| after.is_none_or(|after| *name > after) && !known.is_deleted());
        behind.take(limit).map(|(name, known)| (name.clone(), known.clone())).collect()
    }

    pub(crate) fn count(&self) -> usize {
        let all = self.known.read().unwrap_or_else(PoisonError::into_inner);
        all.values().filter(|known| !known.is_deleted()).count()
    }

    /// Those of these partitions for which there may be something to do.
    pub(crate) fn due(&self, partitions: &[Partition], of: u16, now: Timestamp) -> Vec<ScheduleName> {
        let all = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let due = all.iter().filter(|(name, known)| {
            known.looks_at.is_some_and(|at| at <= now) && partitions.contains(&partition(name, of))
        });
        due.map(|(name, _)| name.clone()).collect()
    }

    /// Reads what the log has of one schedule.
    pub(crate) async fn refresh(&self, name: &ScheduleName) -> Result<Arc<Known>, Error> {
        let definition = self.bus.last(&Filter::One(Subject::Schedule(name.clone()))).await?;
        let state = self.bus.last(&Filter::One(Subject::Ticks(name.clone()))).await?;
        self.change(name, |known| {
            if let Some(stored) = definition
                && let Ok(revision) = serde_json::from_slice(&stored.payload)
            {
                known.define(stored.sequence, &revision);
            }
            match state {
                Some(stored) if stored.sequence > known.state_at => {
                    if let Ok(state) = serde_json::from_slice(&stored.payload) {
                        (known.state, known.state_at) = (Arc::new(state), stored.sequence);
                    }
                }
                Some(_) => {}
                // It was removed with its schedule.
                None => (known.state, known.state_at) = (Arc::default(), 0),
            }
        });
        Ok(self.get(name).unwrap_or_default())
    }

    /// Writes a state behind the one that is known.
    pub(crate) async fn decide(
        &self,
        name: &ScheduleName,
        known: &Known,
        state: State,
    ) -> Result<Written, Error> {
        let payload = serde_json::to_vec(&state).expect("a state has string keys only");
        let written = self.append(Subject::Ticks(name.clone()), name, payload, known.state_at).await?;
        if let Written::Done(place) = written {
            self.change(name, |known| {
                if known.state_at < place {
                    (known.state, known.state_at) = (Arc::new(state), place);
                }
            });
        }
        Ok(written)
    }

    /// Writes a revision behind the one that is known.
    pub(crate) async fn revise(
        &self,
        name: &ScheduleName,
        known: &Known,
        revision: ScheduleRevision,
    ) -> Result<Written, Error> {
        let payload = serde_json::to_vec(&revision).expect("a revision has string keys only");
        let written =
            self.append(Subject::Schedule(name.clone()), name, payload, known.definition_at).await?;
        if let Written::Done(place) = written {
            self.change(name, |known| known.define(place, &revision));
        }
        Ok(written)
    }

    async fn append(
        &self,
        subject: Subject,
        name: &ScheduleName,
        payload: Vec<u8>,
        after: u64,
    ) -> Result<Written, Error> {
        let message = Outgoing {
            subject: subject.clone(),
            id: None,
            headers: Default::default(),
            payload: payload.clone().into(),
            expect_last: Some(after),
        };
        let source = match self.bus.publish(message).await {
            Ok(published) => return Ok(Written::Done(published.sequence)),
            Err(source) => source,
        };
        // A lost acknowledgement: what is there may be ours.
        let last = self.bus.last(&Filter::One(subject)).await?;
        match (last, source) {
            (Some(last), _) if last.payload == payload => Ok(Written::Done(last.sequence)),
            (_, PublishError::WrongSequence) => Ok(Written::Behind),
            (
                _,
                source @ (PublishError::Unacknowledged
                | PublishError::Full(_)
                | PublishError::Denied(_)
                | PublishError::Other(_)),
            ) => Err(Error::Write { name: name.clone(), source }),
        }
    }

    /// The definition of one revision; none if it is not kept any more.
    pub(crate) async fn definition(
        &self,
        name: &ScheduleName,
        revision: u64,
    ) -> Result<Option<Readable>, Error> {
        let kept = self.bus.read(&Filter::One(Subject::Schedule(name.clone()))).await?;
        let found = kept.iter().rev().find_map(|stored| {
            let found: ScheduleRevision = serde_json::from_slice(&stored.payload).ok()?;
            (found.revision == revision).then_some(found.schedule?)
        });
        Ok(found.and_then(|schedule| schedule::read(schedule.value()).ok()))
    }

    /// The latest definition as it was given.
    pub(crate) async fn latest(&self, name: &ScheduleName) -> Result<Option<Json>, Error> {
        let stored = self.bus.last(&Filter::One(Subject::Schedule(name.clone()))).await?;
        let revision =
            stored.and_then(|stored| serde_json::from_slice::<ScheduleRevision>(&stored.payload).ok());
        Ok(revision.and_then(|revision| revision.schedule))
    }

    /// What was stored about its ticks, oldest first, as far as it is kept.
    pub(crate) async fn history(&self, name: &ScheduleName) -> Result<Vec<State>, Error> {
        let kept = self.bus.read(&Filter::One(Subject::Ticks(name.clone()))).await?;
        Ok(kept.iter().filter_map(|stored| serde_json::from_slice(&stored.payload).ok()).collect())
    }

    /// Removes the revisions before the last two: a tick that is being submitted may need the one before the last.
    pub(crate) async fn forget_revisions(&self, name: &ScheduleName, kept: usize) -> Result<(), Error> {
        let subject = Subject::Schedule(name.clone());
        let all = self.bus.read(&Filter::One(subject.clone())).await?;
        for stored in all.iter().rev().skip(kept) {
            self.bus.delete_message(&subject, stored.sequence).await?;
        }
        Ok(())
    }

    /// Removes what was stored about the ticks of a schedule that was deleted, as it was known before. What its runs of the day
    /// have cost stays: the same name does not have the day's budget twice. Something always stays: behind nothing, what was stored
    /// before would count again.
    pub(crate) async fn forget_ticks(&self, name: &ScheduleName, known: &Known) -> Result<(), Error> {
        let subject = Subject::Ticks(name.clone());
        if known.state_at == 0 {
            return Ok(());
        }
        let left = known.state.after_deletion();
        if let Written::Behind = self.decide(name, known, left).await? {
            // A tick was decided meanwhile.
            let known = self.refresh(name).await?;
            if let Written::Behind = self.decide(name, &known, known.state.after_deletion()).await? {
                return Err(Error::Behind);
            }
        }
        let all = self.bus.read(&Filter::One(subject.clone())).await?;
        for stored in all.iter().rev().skip(1) {
            self.bus.delete_message(&subject, stored.sequence).await?;
        }
        Ok(())
    }
}

/// The partition of a schedule: its owner looks after its ticks.
fn partition(name: &ScheduleName, of: u16) -> Partition {
    let id: TraceId = Readable::trace_asked(name, "");
    Partition::of(id, of)
}

/// The text of a definition as it is stored: as it was given.
pub(crate) fn revision(revision: u64, at: Timestamp, schedule: Option<&Value>) -> ScheduleRevision {
    ScheduleRevision { revision, at, schedule: schedule.cloned().map(Json::from) }
}
