//! The marks of partitions: up to which position of the event log the store has their commits.

use std::sync::LazyLock;

use domain::subject::Partition;
use redis::{Cmd, Script};

use super::{
    super::{Error, LogMark, MarkOutcome, NewMark},
    Redis, reply,
    traces::{By, script},
};

static MARK: LazyLock<Script> = LazyLock::new(|| Script::new(MARK_SOURCE));
const MARK_SOURCE: &str = include_str!("../mark.lua");

impl Redis {
    pub(in super::super) async fn log_marks(&self, partitions: &[Partition]) -> Result<Vec<LogMark>, Error> {
        let doing = "read the marks of partitions in Redis";
        let command = |place: usize, by: By| {
            let mut command = self.mark_command(partitions[place], by);
            command.arg(0).arg("").arg("").arg("");
            command
        };
        let answers = self.run(doing, partitions, command).await?;
        answers.into_iter().map(|answer| Ok(reply::log_mark(doing, answer)?.1)).collect()
    }

    pub(in super::super) async fn set_log_marks(&self, marks: &[NewMark]) -> Result<Vec<MarkOutcome>, Error> {
        let doing = "set the marks of partitions in Redis";
        let homes: Vec<Partition> = marks.iter().map(|mark| mark.partition).collect();
        let command = |place: usize, by: By| {
            let NewMark { partition, seen, position } = &marks[place];
            let mut command = self.mark_command(*partition, by);
            let seen_at = seen.position.map_or_else(String::new, |position| position.to_string());
            command.arg(seen.counter).arg(seen_at).arg(&seen.run).arg(position.to_string());
            command
        };
        let marked = |answer| {
            let (done, found) = reply::log_mark(doing, answer)?;
            Ok(if done { MarkOutcome::Done } else { MarkOutcome::Differs(found) })
        };
        self.run(doing, &homes, command).await?.into_iter().map(marked).collect()
    }

    fn mark_command(&self, partition: Partition, by: By) -> Cmd {
        let mut command = script(&MARK, MARK_SOURCE, by);
        command.arg(2).arg(self.keys.counter(partition)).arg(self.keys.mark(partition));
        command
    }
}
