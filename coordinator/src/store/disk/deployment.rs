//! The rows of a deployment outside its traces: agent profiles, partitions with their counters and
//! marks, the clock, live coordinators.

use std::collections::BTreeMap;

use bus::Position;
use disk::{Key, Kind, Reader, Row, Rows};
use domain::subject::Partition;

use super::{
    super::{
        AgentVersion, Agents, Correction, Error, LogMark, MarkOutcome, Member, Members, NewMark, StoreTime,
    },
    Disk, rows,
};

/// The settings of a deployment, by their names.
const CORRECTION: &str = "correction";
const PARTITIONS: &str = "partitions";

impl Disk {
    /// Checks that the directory can be read.
    pub(in super::super) fn ping(&self) -> Result<(), Error> {
        self.read("read the directory", |_| Ok(()))
    }

    pub(in super::super) async fn time(&self) -> Result<StoreTime, Error> {
        let correction = self.read("read the clock", correction)?;
        Ok(StoreTime { read: self.within.now(), correction })
    }

    pub(in super::super) async fn correct_time(&self, proposed: Correction) -> Result<(), Error> {
        self.write("correct the clock", move |rows| {
            if proposed.number <= correction(rows)?.number {
                return Ok(());
            }
            let value = Key::value().number(proposed.number).number(proposed.ahead_ms.cast_unsigned());
            rows.put(&rows::setting(CORRECTION), value.bytes())
        })
        .await
    }

    pub(in super::super) async fn heartbeat(
        &self,
        coordinator: &Member,
        ttl_ms: u64,
    ) -> Result<Members, Error> {
        Ok(self.within.heartbeat(coordinator, ttl_ms))
    }

    pub(in super::super) async fn leave(&self, coordinator: &Member) -> Result<(), Error> {
        self.within.leave(coordinator);
        Ok(())
    }

    pub(in super::super) async fn agents(&self) -> Result<Agents, Error> {
        self.read("read the agents", |rows| {
            let texts = |value: &[u8]| Ok(Reader::new(value).rest_as_text()?.to_owned());
            let numbers = |value: &[u8]| Reader::new(value).number();
            Ok(Agents {
                revision: rows.number(&rows::revision())?,
                profiles: by_name(rows, Kind::Agent, texts)?,
                versions: by_name(rows, Kind::AgentVersion, numbers)?,
            })
        })
    }

    pub(in super::super) async fn agents_revision(&self) -> Result<u64, Error> {
        self.read("read the revision of the agents", |rows| rows.number(&rows::revision()))
    }

    pub(in super::super) async fn apply_agents(
        &self,
        versions: &[AgentVersion],
        at_least: u64,
    ) -> Result<u64, Error> {
        let versions = versions.to_vec();
        self.write("store agents", move |rows| {
            let mut changed = false;
            for AgentVersion { agent_id, version, profile, again } in &versions {
                let [profiles, numbers] =
                    [Kind::Agent, Kind::AgentVersion].map(|kind| Key::new(kind).rest(agent_id.as_bytes()));
                let found = rows.number(&numbers)?;
                if found > *version || (found == *version && !again) {
                    continue;
                }
                changed = true;
                rows.put_number(&numbers, *version)?;
                match profile {
                    Some(profile) => rows.put(&profiles, profile.as_bytes())?,
                    None => drop(rows.remove(&profiles)?),
                }
            }
            let revision = (rows.number(&rows::revision())? + u64::from(changed)).max(at_least);
            rows.put_number(&rows::revision(), revision)?;
            Ok(revision)
        })
        .await
    }

    pub(in super::super) async fn counters(&self, partitions: &[Partition]) -> Result<Vec<u64>, Error> {
        self.read("read counters", |rows| {
            partitions.iter().map(|home| rows.number(&rows::counter(*home))).collect()
        })
    }

    pub(in super::super) async fn log_marks(&self, partitions: &[Partition]) -> Result<Vec<LogMark>, Error> {
        self.read("read marks", |rows| {
            partitions.iter().map(|home| log_mark(rows, *home, &self.run)).collect()
        })
    }

    pub(in super::super) async fn set_log_marks(&self, marks: &[NewMark]) -> Result<Vec<MarkOutcome>, Error> {
        let (marks, run) = (marks.to_vec(), self.run.clone());
        self.write("set marks", move |rows| {
            let mut set = |NewMark { partition, seen, position }: &NewMark| {
                let found = log_mark(rows, *partition, &run)?;
                if found.counter < seen.counter || found.position != seen.position || found.run != seen.run {
                    return Ok(MarkOutcome::Differs(found));
                }
                let value = Key::value().number(position.log).number(position.sequence);
                rows.put(&rows::mark(*partition), value.bytes())?;
                Ok(MarkOutcome::Done)
            };
            marks.iter().map(&mut set).collect()
        })
        .await
    }

    /// Returns the partition count that is valid from now on: the first that a coordinator gave.
    pub(in super::super) async fn settle_partitions(&self, count: u16) -> Result<u16, Error> {
        let found = self.write("settle the partitions", move |rows| {
            let key = rows::setting(PARTITIONS);
            if !rows.has(&key)? {
                rows.put_number(&key, count.into())?;
            }
            let found = rows.number(&key)?;
            u16::try_from(found).map_err(|_| disk::Error::Corrupt { what: format!("{found} partitions") })
        });
        found.await
    }
}

fn correction(rows: &impl Rows) -> Result<Correction, disk::Error> {
    let Some(value) = rows.get(&rows::setting(CORRECTION))? else { return Ok(Correction::default()) };
    let mut reader = Reader::new(&value);
    Ok(Correction { number: reader.number()?, ahead_ms: reader.number()?.cast_signed() })
}

fn log_mark(rows: &impl Rows, home: Partition, run: &str) -> Result<LogMark, disk::Error> {
    let value = rows.get(&rows::mark(home))?;
    let position = value.as_deref().map(read_position).transpose()?;
    Ok(LogMark { counter: rows.number(&rows::counter(home))?, position, run: run.to_owned() })
}

fn read_position(value: &[u8]) -> Result<Position, disk::Error> {
    let mut reader = Reader::new(value);
    Ok(Position { log: reader.number()?, sequence: reader.number()? })
}

/// The rows of a kind by the names in their keys.
fn by_name<T>(
    rows: &impl Rows,
    kind: Kind,
    read: impl Fn(&[u8]) -> Result<T, disk::Error>,
) -> Result<BTreeMap<String, T>, disk::Error> {
    let all = Key::new(kind);
    let named =
        |(key, value): Row| Ok((Reader::behind(&key, &all)?.rest_as_text()?.to_owned(), read(&value)?));
    rows.beginning(&all)?.map(|row| named(row?)).collect()
}
