//! What Redis keeps for a deployment as a whole: coordinators, partition count, the time.

use std::collections::BTreeMap;

use redis::{Cmd, Value};
use shared::Timestamp;

use super::{
    super::{Correction, Durability, Error, Member, Members, StoreTime, record::SILENT_MS},
    Redis,
    reply::{corrupt, decode},
    unavailable,
};

/// How many corrections of the clock are kept. Only the last counts.
const CORRECTIONS_KEPT: u64 = 8;

impl Redis {
    pub(in super::super) async fn time(&self) -> Result<StoreTime, Error> {
        let doing = "read the correction of the clock in Redis";
        let answer = self.one(doing, Cmd::hgetall(self.keys.clock())).await?;
        let corrections: BTreeMap<u64, i64> = decode(doing, answer)?;
        let latest = corrections.last_key_value();
        let correction = latest.map(|(number, ahead_ms)| Correction { number: *number, ahead_ms: *ahead_ms });
        // The correction comes first: one that is stored meanwhile is seen at the next reading.
        Ok(StoreTime { read: self.now().await?, correction: correction.unwrap_or_default() })
    }

    /// The first of a number is kept, and the last few.
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

    /// Two round trips, because the arithmetic is done here: a heartbeat a few milliseconds old does no
    /// harm. A heartbeat from the future counts as expired: the clock was set back since.
    pub(in super::super) async fn heartbeat(
        &self,
        coordinator: &Member,
        ttl_ms: u64,
    ) -> Result<Members, Error> {
        let doing = "mark a coordinator alive in Redis";
        let now = self.now().await?.millis();
        let key = self.keys.coordinators();
        let mut beat = redis::pipe();
        beat.zadd(&key, coordinator.to_string(), now).ignore();
        beat.cmd("ZREMRANGEBYSCORE")
            .arg(&key)
            .arg("-inf")
            .arg(format!("({}", now.saturating_sub(SILENT_MS)))
            .ignore();
        beat.cmd("ZREMRANGEBYSCORE")
            .arg(&key)
            .arg(format!("({}", now.saturating_add(ttl_ms)))
            .arg("+inf")
            .ignore();
        beat.cmd("ZRANGE").arg(&key).arg(0).arg(-1).arg("WITHSCORES");
        let mut answers = self.link.transact(beat).await.map_err(unavailable(doing))?;
        let found: Vec<(String, u64)> = decode(doing, answers.pop().unwrap_or_default())?;
        let mut members = Members { alive: Vec::new(), silent: Vec::new() };
        for (member, beaten) in found {
            let is_alive = beaten.saturating_add(ttl_ms) >= now;
            let into = if is_alive { &mut members.alive } else { &mut members.silent };
            into.push(member.parse().map_err(|_| corrupt(doing, &member))?);
        }
        members.alive.sort_unstable();
        members.silent.sort_unstable();
        Ok(members)
    }

    pub(in super::super) async fn leave(&self, coordinator: &Member) -> Result<(), Error> {
        let command = Cmd::zrem(self.keys.coordinators(), coordinator.to_string());
        self.one("deregister a coordinator in Redis", command).await?;
        Ok(())
    }

    /// The count that holds from now on: the first one given.
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

    /// A setting that the user may not read is none; a server that does not answer is an error.
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

    /// A command without a key. In a cluster it goes to the node of the coordinators' key, so that the time
    /// comes from one node.
    async fn ask(&self, doing: &'static str, command: Cmd) -> Result<Value, Error> {
        self.link.ask(command, &self.keys.coordinators()).await.map_err(unavailable(doing))
    }

    /// A command with one key.
    pub(super) async fn one(&self, doing: &'static str, command: Cmd) -> Result<Value, Error> {
        let answers = self.link.send(vec![vec![command]]).await.map_err(unavailable(doing))?;
        let answer = answers.into_iter().flatten().next();
        answer.ok_or_else(|| corrupt(doing, "nothing"))?.map_err(unavailable(doing))
    }
}
