//! The schedules (G16): the revisions of each, and the states that its decided ticks led to, in a
//! registry. If two coordinators decide the same tick, only one decision is stored.
//!
//! Every coordinator follows the log and has a copy of each schedule without its task. A copy may
//! be outdated: a decision based on it is rejected then, and the schedule is read again.

use std::sync::Arc;

use bus::StoredMessage;
use domain::{
    Json, ScheduleName, Timestamp, TraceId,
    schedule::{self, ReadySchedule, Rules, State, looks_at},
    subject::{Filter, Partition, Subject},
    wire::ScheduleRevision,
};
use serde_json::Value;

use crate::registry::{Appended, Error, Known, Record, Registry};

pub(crate) type Schedules = Registry<ScheduleRecord>;

/// One schedule.
#[derive(Debug, Clone)]
pub(crate) struct ScheduleRecord {
    pub(crate) revision: u64,
    pub(crate) at: Timestamp,
    pub(crate) content: Content,
    pub(crate) state: Arc<State>,
    /// When the schedule is next examined.
    pub(crate) looks_at: Option<Timestamp>,
}

/// The content of the latest revision.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Rules(Arc<Brief>),
    Deleted,
    /// Written by a newer version of this program. Holds the reason that it can't be read.
    Unreadable(Arc<str>),
}

/// A definition without its task.
#[derive(Debug)]
pub(crate) struct Brief {
    pub(crate) rules: Rules,
    pub(crate) cron: String,
    pub(crate) time_zone: String,
}

impl Default for ScheduleRecord {
    fn default() -> Self {
        ScheduleRecord {
            revision: 0,
            at: Timestamp::default(),
            content: Content::Deleted,
            state: Arc::default(),
            looks_at: None,
        }
    }
}

impl Record for ScheduleRecord {
    type Key = ScheduleName;

    const LOG: &'static str = "the log of schedules";
    const ALL: &'static [Filter] = &[Filter::Schedules, Filter::AllTicks];

    fn title(name: &ScheduleName) -> String {
        format!("the schedule `{name}`")
    }

    fn subjects(name: &ScheduleName) -> Vec<Subject> {
        vec![Subject::Schedule(name.clone()), Subject::Ticks(name.clone())]
    }

    fn key(subject: &Subject) -> Option<ScheduleName> {
        if let Subject::Schedule(name) | Subject::Ticks(name) = subject { Some(name.clone()) } else { None }
    }

    fn add(&mut self, stored: &StoredMessage) {
        let added = if let Subject::Schedule(_) = stored.subject {
            serde_json::from_slice(&stored.payload).map(|revision| self.define(&revision))
        } else {
            serde_json::from_slice(&stored.payload).map(|state| self.state = Arc::new(state))
        };
        if let Err(error) = added {
            tracing::error!(subject = %stored.subject, %error, "a message of the log of schedules can't be read");
        }
        self.looks_at = self.brief().and_then(|brief| looks_at(&brief.rules, &self.state));
    }
}

impl ScheduleRecord {
    pub(crate) fn brief(&self) -> Option<&Arc<Brief>> {
        match &self.content {
            Content::Rules(brief) => Some(brief),
            Content::Deleted | Content::Unreadable(_) => None,
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        matches!(self.content, Content::Deleted)
    }

    /// Takes a revision, unless it is earlier than the known one: an earlier revision that is
    /// stored again changes nothing.
    fn define(&mut self, revision: &ScheduleRevision) {
        if revision.revision < self.revision {
            return;
        }
        (self.revision, self.at) = (revision.revision, revision.at);
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
}

impl Registry<ScheduleRecord> {
    /// The copies of schedules that are not deleted, in order after a name.
    pub(crate) fn behind(
        &self,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> Vec<(ScheduleName, Arc<Known<ScheduleRecord>>)> {
        self.copies(|all| {
            let behind = all
                .iter()
                .filter(|(name, known)| after.is_none_or(|after| *name > after) && !known.is_deleted());
            behind.take(limit).map(|(name, known)| (name.clone(), known.clone())).collect()
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.copies(|all| all.values().filter(|known| !known.is_deleted()).count())
    }

    /// The schedules of these partitions that are due to be examined.
    pub(crate) fn due(&self, partitions: &[Partition], of: u16, now: Timestamp) -> Vec<ScheduleName> {
        let is_due = |name: &ScheduleName, known: &ScheduleRecord| {
            known.looks_at.is_some_and(|at| at <= now) && partitions.contains(&partition(name, of))
        };
        self.copies(|all| {
            all.iter().filter(|(name, known)| is_due(name, known)).map(|(name, _)| name.clone()).collect()
        })
    }

    /// Appends a state after the known one.
    pub(crate) async fn decide(
        &self,
        name: &ScheduleName,
        known: &Known<ScheduleRecord>,
        state: &State,
    ) -> Result<Appended<ScheduleRecord>, Error> {
        let payload = serde_json::to_vec(state).expect("a state has string keys only");
        self.append(name, known, Subject::Ticks(name.clone()), payload).await
    }

    /// Appends a revision after the known one: a definition as it was given, or none, which deletes
    /// the schedule.
    pub(crate) async fn revise(
        &self,
        name: &ScheduleName,
        known: &Known<ScheduleRecord>,
        at: Timestamp,
        schedule: Option<&Value>,
    ) -> Result<Appended<ScheduleRecord>, Error> {
        let schedule = schedule.cloned().map(Json::from);
        let revision = ScheduleRevision { revision: known.revision + 1, at, schedule };
        let payload = serde_json::to_vec(&revision).expect("a revision has string keys only");
        self.append(name, known, Subject::Schedule(name.clone()), payload).await
    }

    /// The definition of one revision; none if it was removed already.
    pub(crate) async fn definition(
        &self,
        name: &ScheduleName,
        revision: u64,
    ) -> Result<Option<ReadySchedule>, Error> {
        let kept = self.stored(&Subject::Schedule(name.clone())).await?;
        let found = kept.iter().rev().find_map(|stored| {
            let found: ScheduleRevision = serde_json::from_slice(&stored.payload).ok()?;
            (found.revision == revision).then_some(found.schedule?)
        });
        Ok(found.and_then(|schedule| schedule::read(schedule.value()).ok()))
    }

    /// The latest definition, as it was given.
    pub(crate) async fn given(&self, name: &ScheduleName) -> Result<Option<Json>, Error> {
        let stored = self.last(&Subject::Schedule(name.clone())).await?;
        let revision =
            stored.and_then(|stored| serde_json::from_slice::<ScheduleRevision>(&stored.payload).ok());
        Ok(revision.and_then(|revision| revision.schedule))
    }

    /// The decided states that are still stored, oldest first.
    pub(crate) async fn history(&self, name: &ScheduleName) -> Result<Vec<State>, Error> {
        let kept = self.stored(&Subject::Ticks(name.clone())).await?;
        Ok(kept.iter().filter_map(|stored| serde_json::from_slice(&stored.payload).ok()).collect())
    }

    /// Removes all revisions except the last ones.
    pub(crate) async fn remove_revisions(&self, name: &ScheduleName, kept: usize) -> Result<(), Error> {
        self.remove_all_but(&Subject::Schedule(name.clone()), kept).await
    }

    /// Removes the states of a deleted schedule. The costs of the day's runs stay, so that a new
    /// schedule of the same name does not get the day's budget twice. One message always stays:
    /// after an empty subject an earlier state that is stored again would be valid.
    pub(crate) async fn remove_states(
        &self,
        name: &ScheduleName,
        known: &Known<ScheduleRecord>,
    ) -> Result<(), Error> {
        let subject = Subject::Ticks(name.clone());
        if known.last(&subject) == 0 {
            return Ok(());
        }
        if let Appended::Behind = self.decide(name, known, &known.state.after_deletion()).await? {
            // A tick was decided meanwhile.
            let known = self.one(name).await?;
            if let Appended::Behind = self.decide(name, &known, &known.state.after_deletion()).await? {
                return Err(Error::Behind { log: ScheduleRecord::LOG });
            }
        }
        self.remove_all_but(&subject, 1).await
    }
}

/// The partition of a schedule, whose owner looks after its ticks.
fn partition(name: &ScheduleName, of: u16) -> Partition {
    let id: TraceId = ReadySchedule::trace_asked(name, "");
    Partition::of(id, of)
}
