//! The state of a whole deployment in Redis: coordinators, partition count, clock.

use std::collections::BTreeMap;

use domain::Timestamp;
use redis::{Cmd, RedisError, RedisResult, Value};

use super::{
    super::{Correction, Durability, Error, Member, Members, StoreTime, record::SILENT_MS},
    Redis, WRONG_TYPE,
    reply::{corrupt, decode, number_in},
    unavailable,
};

/// How many corrections of the clock are kept. Only the last is valid.
const CORRECTIONS_KEPT: u64 = 8;

impl Redis {
    pub(in super::super) async fn time(&self) -> Result<StoreTime, Error> {
        let doing = "read the correction of the clock in Redis";
        let key = self.keys.clock();
        let answer = self.unless_strange(&key, self.link.ask(Cmd::hgetall(&key), &key).await).await;
        let corrections: Vec<(Vec<u8>, Vec<u8>)> = match answer.map_err(unavailable(doing))? {
            Some(answer) => decode(doing, answer)?,
            None => Vec::new(),
        };
        // An invalid entry is ignored: only a stranger writes it.
        let read = |(number, ahead_ms): &(Vec<u8>, Vec<u8>)| {
            Some(Correction { number: number_in(number)?, ahead_ms: number_in(ahead_ms)? })
        };
        let correction = corrections.iter().filter_map(read).max_by_key(|correction| correction.number);
        // The correction is read first: a correction that is stored in between is seen at the next
        // reading.
        Ok(StoreTime { read: self.now().await?, correction: correction.unwrap_or_default() })
    }

    /// Redis keeps the first correction of a number, and only the last few numbers.
    pub(in super::super) async fn correct_time(&self, correction: Correction) -> Result<(), Error> {
        let doing = "correct the clock in Redis";
        let key = self.keys.clock();
        let mut correct = redis::pipe();
        correct.hset_nx(&key, correction.number, correction.ahead_ms).ignore();
        correct.hdel(&key, correction.number.saturating_sub(CORRECTIONS_KEPT)).ignore();
        self.link.transact(correct).await.map_err(unavailable(doing))?;
        Ok(())
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        let doing = "read the time of Redis";
        let (seconds, micros): (u64, u64) = decode(doing, self.ask(doing, redis::cmd("TIME")).await?)?;
        Ok(Timestamp::from_millis(seconds.saturating_mul(1000).saturating_add(micros / 1000)))
    }

    /// Takes two round trips, because the arithmetic is done here: a heartbeat that is a few
    /// milliseconds old does no harm. A heartbeat more than `ttl_ms` in the future is removed: the
    /// clock was set back since.
    pub(in super::super) async fn heartbeat(
        &self,
        coordinator: &Member,
        ttl_ms: u64,
    ) -> Result<Members, Error> {
        let doing = "mark a coordinator alive in Redis";
        let now = self.now().await?.millis();
        let key = self.keys.coordinators();
        let beat = self.unless_strange(&key, self.beat(coordinator, &key, now, ttl_ms).await).await;
        let answers = match beat.map_err(unavailable(doing))? {
            Some(answers) => answers,
            None => self.beat(coordinator, &key, now, ttl_ms).await.map_err(unavailable(doing))?,
        };
        let found: Vec<(Vec<u8>, f64)> = decode(doing, answers.into_iter().next_back().unwrap_or_default())?;
        let (mut members, mut strays) = (Members { alive: Vec::new(), silent: Vec::new() }, Vec::new());
        for (member, beaten) in found {
            let Some(parsed) = std::str::from_utf8(&member).ok().and_then(|text| text.parse().ok()) else {
                strays.push(member);
                continue;
            };
            // Milliseconds are far below 2^53.
            let is_alive = beaten >= now.saturating_sub(ttl_ms) as f64;
            let into = if is_alive { &mut members.alive } else { &mut members.silent };
            into.push(parsed);
        }
        if !strays.is_empty() {
            // An invalid entry that stayed would be in every answer.
            tracing::warn!(
                count = strays.len(),
                "removed invalid entries from the coordinator list in Redis"
            );
            self.one(doing, Cmd::zrem(&key, strays)).await?;
        }
        members.alive.sort_unstable();
        members.silent.sort_unstable();
        Ok(members)
    }

    /// Writes the heartbeat, drops old ones, and reads the rest.
    async fn beat(&self, coordinator: &Member, key: &str, now: u64, ttl_ms: u64) -> RedisResult<Vec<Value>> {
        let mut beat = redis::pipe();
        beat.zadd(key, coordinator.to_string(), now).ignore();
        beat.cmd("ZREMRANGEBYSCORE")
            .arg(key)
            .arg("-inf")
            .arg(format!("({}", now.saturating_sub(SILENT_MS)))
            .ignore();
        beat.cmd("ZREMRANGEBYSCORE")
            .arg(key)
            .arg(format!("({}", now.saturating_add(ttl_ms)))
            .arg("+inf")
            .ignore();
        beat.cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES");
        self.link.transact(beat).await
    }

    /// Returns the answer, or none if the key has another type than coordinators give it. Only a
    /// stranger writes such a key; it is removed, so that it does not block the coordinators.
    pub(super) async fn unless_strange<T>(
        &self,
        key: &str,
        answer: RedisResult<T>,
    ) -> RedisResult<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_of_another_type(&error) => {
                tracing::warn!(key, "removed a key with an invalid type from Redis");
                self.link.ask(Cmd::del(key), key).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(in super::super) async fn leave(&self, coordinator: &Member) -> Result<(), Error> {
        let command = Cmd::zrem(self.keys.coordinators(), coordinator.to_string());
        self.one("deregister a coordinator in Redis", command).await?;
        Ok(())
    }

    /// Returns the partition count that is valid from now on: the first that a coordinator gave.
    pub(in super::super) async fn settle_partitions(&self, count: u16) -> Result<u16, Error> {
        let doing = "read or set the partition count in Redis";
        let key = self.keys.partitions();
        let mut settle = redis::pipe();
        settle.set_nx(&key, count).ignore().get(&key);
        let mut answers = self.link.transact(settle).await.map_err(unavailable(doing))?;
        decode(doing, answers.pop().unwrap_or_default())
    }

    pub(in super::super) async fn ping(&self) -> Result<(), Error> {
        self.ask("ping Redis", redis::cmd("PING")).await?;
        Ok(())
    }

    /// A setting that the user may not read is returned as none; a server that does not answer is
    /// an error.
    pub(in super::super) async fn durability(&self) -> Result<Durability, Error> {
        let doing = "read the settings of Redis";
        let mut info = redis::cmd("INFO");
        let info: String = decode(doing, self.ask(doing, info.arg("server").clone()).await?)?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(Durability {
            version: version.map(|version| version.trim().to_owned()),
            appendonly: self.setting("appendonly").await?,
            appendfsync: self.setting("appendfsync").await?,
            maxmemory_policy: self.setting("maxmemory-policy").await?,
        })
    }

    async fn setting(&self, name: &str) -> Result<Option<String>, Error> {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        match self.link.ask(command, &self.keys.coordinators()).await {
            Ok(answer) => Ok(redis::from_redis_value::<BTreeMap<String, String>>(answer)
                .ok()
                .and_then(|mut settings| settings.remove(name))),
            Err(error) if error.is_io_error() => Err(unavailable("read the settings of Redis")(error)),
            Err(_) => Ok(None),
        }
    }

    /// Sends a command without a key. In a cluster it goes to the node of the coordinators' key, so
    /// that the time comes from one node.
    async fn ask(&self, doing: &'static str, command: Cmd) -> Result<Value, Error> {
        self.link.ask(command, &self.keys.coordinators()).await.map_err(unavailable(doing))
    }

    /// Sends a command with one key.
    pub(super) async fn one(&self, doing: &'static str, command: Cmd) -> Result<Value, Error> {
        let answers = self.link.send(vec![vec![command]]).await.map_err(unavailable(doing))?;
        let answer = answers.into_iter().flatten().next();
        answer.ok_or_else(|| corrupt(doing, "nothing"))?.map_err(unavailable(doing))
    }
}

/// Checks the error of one command, or the errors within a transaction.
fn is_of_another_type(error: &RedisError) -> bool {
    let of_all = || error.clone().into_server_errors();
    error.code() == Some(WRONG_TYPE)
        || of_all().is_some_and(|errors| errors.iter().any(|(_, error)| error.code() == WRONG_TYPE))
}
