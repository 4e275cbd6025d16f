//! Committing, finding and removing traces in Redis.

use std::{
    collections::{BTreeSet, HashMap},
    sync::LazyLock,
};

use domain::{Timestamp, TraceId, subject::Partition};
use redis::{Cmd, RedisResult, Script, Value};

use super::{
    super::{CommitOutcome, Error, Replaces, SentOutboxes, UNREADABLE, Write, keys, record::RUNS_KEPT},
    Redis, Request, WRONG_TYPE, is_no_script,
    reply::{self, corrupt, decode},
    unavailable,
};

static COMMIT: LazyLock<Script> = LazyLock::new(|| Script::new(COMMIT_SOURCE));
const COMMIT_SOURCE: &str = include_str!("../commit.lua");
static SENT: LazyLock<Script> = LazyLock::new(|| Script::new(SENT_SOURCE));
const SENT_SOURCE: &str = include_str!("../sent.lua");
static REMOVE: LazyLock<Script> = LazyLock::new(|| Script::new(REMOVE_SOURCE));
const REMOVE_SOURCE: &str = include_str!("../remove.lua");

/// The error codes of a script that finds a key in an unexpected form: of another type, or not a
/// number.
const STRANGE: [Option<&str>; 2] = [Some(WRONG_TYPE), Some("ERR")];

/// How a script is called: by its hash, or with its source, after which the server has the hash.
#[derive(Clone, Copy)]
pub(super) enum By {
    Hash,
    Source,
}

impl Redis {
    pub(in super::super) async fn commit(&self, writes: &[Write]) -> Result<Vec<CommitOutcome>, Error> {
        let doing = "commit traces to Redis";
        let homes: Vec<Partition> = writes.iter().map(|write| self.keys.home(write.trace_id)).collect();
        let command = |place: usize, by: By| self.commit_command(&writes[place], by);
        let answers = self.run(doing, &homes, command).await?;
        answers.into_iter().map(|answer| reply::committed(doing, answer)).collect()
    }

    pub(in super::super) async fn sent(&self, sent: &[SentOutboxes]) -> Result<(), Error> {
        let doing = "clear outboxes in Redis";
        let homes: Vec<Partition> = sent.iter().map(|sent| self.keys.home(sent.trace_id)).collect();
        let command = |place: usize, by: By| self.sent_command(&sent[place], by);
        for answer in self.run(doing, &homes, command).await? {
            match decode::<String>(doing, answer)?.as_str() {
                "done" | "changed" => {}
                other => return Err(corrupt(doing, other)),
            }
        }
        Ok(())
    }

    /// Runs a script once for each item. If the server did not have the script (after a restart or
    /// a flush), the item changed nothing and is sent again with the source. Any other error fails
    /// the whole call: the caller can't know which items were done, and need not.
    pub(super) async fn run(
        &self,
        doing: &'static str,
        homes: &[Partition],
        command: impl Fn(usize, By) -> Cmd,
    ) -> Result<Vec<Value>, Error> {
        let request =
            |place: usize, by: By| Request { home: homes[place], commands: vec![command(place, by)] };
        let first = (0..homes.len()).map(|place| request(place, By::Hash)).collect();
        let mut answers = self.send(doing, first).await?.into_iter().flatten().collect::<Vec<_>>();
        let unknown: Vec<usize> =
            (0..answers.len()).filter(|place| answers[*place].as_ref().is_err_and(is_no_script)).collect();
        if !unknown.is_empty() {
            let again = unknown.iter().map(|place| request(*place, By::Source)).collect();
            let again = self.send(doing, again).await?.into_iter().flatten();
            unknown.into_iter().zip(again).for_each(|(place, answer)| answers[place] = answer);
        }
        let whole: redis::RedisResult<Vec<Value>> = answers.into_iter().collect();
        if let Err(error) = &whole {
            self.link.doubt(error);
            if STRANGE.contains(&error.code()) {
                self.mend(homes).await;
            }
        }
        whole.map_err(unavailable(doing))
    }

    /// Removes keys of partitions that have an unexpected form, because every script would fail on
    /// them. Such a partition has lost data, so its counter begins again. A coordinator that sees
    /// the lower counter sweeps for lost traces, and logs the loss.
    async fn mend(&self, homes: &[Partition]) {
        for home in homes.iter().collect::<BTreeSet<_>>() {
            if let Err(error) = self.mend_one(*home).await {
                tracing::debug!(%error, partition = %home, "the keys of a partition in Redis could not be checked");
            }
        }
    }

    async fn mend_one(&self, home: Partition) -> Result<(), Error> {
        let doing = "check the keys of a partition in Redis";
        let lists = [
            self.keys.timers(home),
            self.keys.runs(home),
            self.keys.ended(home),
            self.keys.agents_seen(home),
        ];
        let counter = self.keys.counter(home);
        let mut commands: Vec<Cmd> = lists.iter().map(Cmd::zcard).collect();
        commands.push(Cmd::get(&counter));
        let mut answers = self.send(doing, vec![Request { home, commands }]).await?.into_iter().flatten();
        let mut strange = Vec::new();
        for (key, answer) in lists.into_iter().zip(answers.by_ref()) {
            if answer.is_err_and(|error| error.code() == Some(WRONG_TYPE)) {
                strange.push(key);
            }
        }
        let is_whole = |answer: redis::RedisResult<Value>| match answer {
            Ok(Value::Nil) => true,
            answer => reply::counter(answer).is_ok_and(|counter| counter > 0),
        };
        if !strange.is_empty() || !answers.next().is_none_or(is_whole) {
            tracing::error!(partition = %home, ?strange, "invalid keys of a partition in Redis are removed; the partition is handled as if it had lost writes");
            strange.extend([counter, self.keys.mark(home)]);
            self.fetch(doing, vec![Request { home, commands: vec![Cmd::del(strange)] }]).await?;
        }
        Ok(())
    }

    fn commit_command(&self, write: &Write, by: By) -> Cmd {
        let home = self.keys.home(write.trace_id);
        let mut command = script(&COMMIT, COMMIT_SOURCE, by);
        command.arg(7);
        command.arg(self.keys.trace(write.trace_id)).arg(self.keys.context(write.trace_id));
        command.arg(self.keys.timers(home)).arg(self.keys.runs(home)).arg(self.keys.counter(home));
        command.arg(self.keys.ended(home)).arg(self.keys.agents_seen(home));
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        command.arg(write.trace_id.to_string()).arg(write.expected);
        command.arg(timer(write.timer, write.keeps_earlier_timer));
        command.arg(number(write.ended_at.map(Timestamp::millis)));
        command.arg(number(write.opened_at.map(Timestamp::millis)));
        // The rank, from the end, of the newest entry to remove.
        command.arg(RUNS_KEPT + 1).arg(match write.replaces {
            Replaces::Nothing => "",
            Replaces::AllButOutboxes => "1",
            Replaces::Everything => "2",
        });
        let is_set =
            |changes: &[(String, Option<String>)]| changes.iter().filter(|(_, to)| to.is_some()).count();
        let (fields, values) = (is_set(&write.fields), is_set(&write.values));
        command.arg(1 + usize::from(write.outbox.is_some()) + usize::from(write.index.is_some()) + fields);
        command.arg(write.fields.len() - fields + write.cleared.len());
        command.arg(values).arg(write.values.len() - values).arg(write.stamp.as_deref().unwrap_or_default());
        command.arg(number(write.profiles)).arg(write.index.as_deref().unwrap_or_default());
        command.arg(keys::VERSION).arg(write.version);
        if let Some((key, outbox)) = &write.outbox {
            command.arg(keys::outbox(*key)).arg(outbox);
        }
        if let Some(index) = &write.index {
            command.arg(keys::INDEX).arg(index);
        }
        set(&mut command, &write.fields);
        delete(&mut command, &write.fields);
        for key in &write.cleared {
            command.arg(keys::outbox(*key));
        }
        set(&mut command, &write.values);
        delete(&mut command, &write.values);
        command
    }

    fn sent_command(&self, sent: &SentOutboxes, by: By) -> Cmd {
        let mut command = script(&SENT, SENT_SOURCE, by);
        let timers = self.keys.timers(self.keys.home(sent.trace_id));
        command.arg(2).arg(self.keys.trace(sent.trace_id)).arg(timers);
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        command.arg(sent.trace_id.to_string());
        command.arg(number(sent.version)).arg(timer(sent.timer, sent.keeps_earlier_timer));
        command.arg(sent.stamp.as_deref().unwrap_or_default()).arg(if sent.all { "1" } else { "" });
        for key in &sent.outboxes {
            command.arg(keys::outbox(*key));
        }
        command
    }

    pub(in super::super) async fn due(
        &self,
        partitions: &[Partition],
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        let doing = "find due traces in Redis";
        let request = |home: &Partition| {
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command.arg(self.keys.timers(*home)).arg("-inf").arg(now.millis()).arg("LIMIT").arg(0).arg(limit);
            Request { home: *home, commands: vec![command] }
        };
        let answers = self.send(doing, partitions.iter().map(request).collect()).await?;
        self.known(doing, partitions, answers, keys::Keys::timers).await
    }

    pub(in super::super) async fn ended(
        &self,
        partitions: &[Partition],
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<TraceId>, Error> {
        let doing = "find ended traces in Redis";
        let request = |home: &Partition| {
            let mut command = redis::cmd("ZRANGEBYSCORE");
            command
                .arg(self.keys.ended(*home))
                .arg("-inf")
                .arg(until.millis())
                .arg("LIMIT")
                .arg(0)
                .arg(limit);
            Request { home: *home, commands: vec![command] }
        };
        let answers = self.send(doing, partitions.iter().map(request).collect()).await?;
        self.known(doing, partitions, answers, keys::Keys::ended).await
    }

    /// Parses the traces in the lists of partitions. An entry that is not a trace, which only a
    /// stranger writes, is removed from its list: it would stay at the head for ever. A key of
    /// another type does not block the lists of other partitions.
    async fn known(
        &self,
        doing: &'static str,
        partitions: &[Partition],
        answers: Vec<Vec<RedisResult<Value>>>,
        list: fn(&keys::Keys, Partition) -> String,
    ) -> Result<Vec<TraceId>, Error> {
        let (mut traces, mut strays) = (Vec::new(), Vec::new());
        for (home, answer) in partitions.iter().zip(answers.into_iter().flatten()) {
            let members: Vec<Vec<u8>> = match answer {
                Ok(answer) => decode(doing, answer)?,
                Err(error) if error.code() == Some(WRONG_TYPE) => {
                    self.mend(&[*home]).await;
                    continue;
                }
                Err(error) => return Err(unavailable(doing)(error)),
            };
            let (mut known, mut others) = (Vec::new(), Vec::new());
            for member in members {
                match std::str::from_utf8(&member).ok().and_then(|text| text.parse().ok()) {
                    Some(trace) => known.push(trace),
                    None => others.push(member),
                }
            }
            traces.append(&mut known);
            if !others.is_empty() {
                tracing::warn!(partition = %home, count = others.len(), "removed invalid entries from a list of traces in Redis");
                strays.push(Request {
                    home: *home,
                    commands: vec![Cmd::zrem(list(&self.keys, *home), others)],
                });
            }
        }
        self.fetch(doing, strays).await?;
        Ok(traces)
    }

    pub(in super::super) async fn put_off(&self, trace: TraceId, until: Timestamp) -> Result<(), Error> {
        let home = self.keys.home(trace);
        let mut command = redis::cmd("ZADD");
        command.arg(self.keys.ended(home)).arg("XX").arg(until.millis()).arg(trace.to_string());
        let request = Request { home, commands: vec![command] };
        self.fetch("put off the removal of a trace in Redis", vec![request]).await.map(drop)
    }

    pub(in super::super) async fn remove(&self, trace: TraceId, version: u64) -> Result<bool, Error> {
        let doing = "remove a trace from Redis";
        let home = self.keys.home(trace);
        let command = |_: usize, by: By| {
            let mut command = script(&REMOVE, REMOVE_SOURCE, by);
            command.arg(6).arg(self.keys.trace(trace)).arg(self.keys.context(trace));
            command.arg(self.keys.timers(home)).arg(self.keys.runs(home)).arg(self.keys.ended(home));
            command.arg(self.keys.branches(trace)).arg(trace.to_string()).arg(version);
            command
        };
        let answer = self.run(doing, &[home], command).await?.pop().unwrap_or(Value::Nil);
        match decode::<String>(doing, answer)?.as_str() {
            "done" => Ok(true),
            "changed" => Ok(false),
            other => Err(corrupt(doing, other)),
        }
    }

    pub(in super::super) async fn add_branches(&self, of: TraceId, by: &[TraceId]) -> Result<(), Error> {
        let by: Vec<String> = by.iter().map(TraceId::to_string).collect();
        let request =
            Request { home: self.keys.home(of), commands: vec![Cmd::sadd(self.keys.branches(of), by)] };
        self.fetch("note a branch in Redis", vec![request]).await.map(drop)
    }

    pub(in super::super) async fn branches(&self, of: TraceId) -> Result<Vec<TraceId>, Error> {
        let doing = "list the branches of a trace in Redis";
        let request =
            Request { home: self.keys.home(of), commands: vec![Cmd::smembers(self.keys.branches(of))] };
        let mut branches = traces_of(doing, self.fetch(doing, vec![request]).await?)?;
        branches.sort_unstable();
        Ok(branches)
    }

    pub(in super::super) async fn versions(&self, traces: &[TraceId]) -> Result<Vec<u64>, Error> {
        let doing = "read the versions of traces in Redis";
        let request = |trace: &TraceId| {
            let commands = vec![Cmd::hget(self.keys.trace(*trace), keys::VERSION)];
            Request { home: self.keys.home(*trace), commands }
        };
        let answers = self.send(doing, traces.iter().map(request).collect()).await?;
        // An invalid version equals no expected version.
        let number = |answer: RedisResult<Value>| match answer {
            Ok(Value::Nil) => Ok(0),
            Ok(answer) => {
                let text = redis::from_redis_value::<String>(answer).ok();
                Ok(text.and_then(|text| keys::version(&text)).unwrap_or(UNREADABLE))
            }
            Err(error) if error.code() == Some(WRONG_TYPE) => Ok(UNREADABLE),
            Err(error) => Err(unavailable(doing)(error)),
        };
        answers.into_iter().flatten().map(number).collect()
    }

    pub(in super::super) async fn counters(&self, partitions: &[Partition]) -> Result<Vec<u64>, Error> {
        let doing = "read the counters of partitions in Redis";
        let request =
            |home: &Partition| Request { home: *home, commands: vec![Cmd::get(self.keys.counter(*home))] };
        let answers = self.send(doing, partitions.iter().map(request).collect()).await?;
        let counters: RedisResult<Vec<u64>> = answers.into_iter().flatten().map(reply::counter).collect();
        counters.map_err(unavailable(doing))
    }

    pub(in super::super) async fn fields(
        &self,
        traces: &[TraceId],
        fields: &[&str],
    ) -> Result<Vec<HashMap<String, String>>, Error> {
        let doing = "read fields of traces in Redis";
        let request = |trace: &TraceId| {
            let mut command = redis::cmd("HMGET");
            command.arg(self.keys.trace(*trace)).arg(fields);
            Request { home: self.keys.home(*trace), commands: vec![command] }
        };
        let answers = self.send(doing, traces.iter().map(request).collect()).await?;
        let named = |answer: redis::RedisResult<Value>| {
            // A trace that can't be read has no fields here, and the other traces are still read.
            let found: Vec<Option<String>> = match answer {
                Ok(answer) => decode(doing, answer).unwrap_or_default(),
                Err(error) if error.code() == Some(WRONG_TYPE) => Vec::new(),
                Err(error) => return Err(unavailable(doing)(error)),
            };
            let named =
                fields.iter().zip(found).filter_map(|(field, text)| Some(((*field).to_owned(), text?)));
            Ok(named.collect())
        };
        answers.into_iter().flatten().map(named).collect()
    }

    pub(in super::super) async fn delay(&self, trace: TraceId, until: Timestamp) -> Result<(), Error> {
        let home = self.keys.home(trace);
        let mut command = redis::cmd("ZADD");
        command.arg(self.keys.timers(home)).arg("XX").arg(until.millis()).arg(trace.to_string());
        let request = Request { home, commands: vec![command] };
        self.fetch("delay a timer in Redis", vec![request]).await.map(drop)
    }
}

/// A timer as the scripts read it.
fn timer(at: Option<Timestamp>, keeps_earlier: bool) -> String {
    let mark = if keeps_earlier { "<" } else { "" };
    at.map_or_else(String::new, |at| format!("{mark}{}", at.millis()))
}

/// Adds the names and texts of the changes that set a text.
fn set(command: &mut Cmd, changes: &[(String, Option<String>)]) {
    for (name, text) in changes {
        if let Some(text) = text {
            command.arg(name).arg(text);
        }
    }
}

/// Adds the names of the changes that delete.
fn delete(command: &mut Cmd, changes: &[(String, Option<String>)]) {
    for (name, _) in changes.iter().filter(|(_, text)| text.is_none()) {
        command.arg(name);
    }
}

/// All traces that the answers list.
pub(super) fn traces_of(doing: &'static str, answers: Vec<Vec<Value>>) -> Result<Vec<TraceId>, Error> {
    let mut traces = Vec::new();
    for answer in answers.into_iter().flatten() {
        for member in decode::<Vec<String>>(doing, answer)? {
            traces.push(reply::trace(doing, &member)?);
        }
    }
    Ok(traces)
}

pub(super) fn script(script: &Script, source: &str, by: By) -> Cmd {
    let mut command = Cmd::new();
    match by {
        By::Hash => command.arg("EVALSHA").arg(script.get_hash()),
        By::Source => command.arg("EVAL").arg(source),
    };
    command
}
