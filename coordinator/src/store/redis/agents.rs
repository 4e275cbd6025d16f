//! The agent profiles in Redis: texts, versions, and a revision that is copied to every partition.

use std::{collections::BTreeMap, sync::LazyLock};

use redis::{Cmd, Script};

use super::{
    super::{AgentVersion, Agents, Error, keys},
    Redis, Request, is_no_script,
    reply::{corrupt, decode},
    traces::{By, script},
    unavailable,
};

static AGENTS: LazyLock<Script> = LazyLock::new(|| Script::new(AGENTS_SOURCE));
const AGENTS_SOURCE: &str = include_str!("../agents.lua");

impl Redis {
    pub(in super::super) async fn agents(&self) -> Result<Agents, Error> {
        let doing = "load agent profiles from Redis";
        let mut load = redis::pipe();
        load.hgetall(self.keys.agents()).hgetall(self.keys.agent_versions());
        let answers = self.link.transact(load).await.map_err(unavailable(doing))?;
        let [profiles, versions] =
            <[_; 2]>::try_from(answers).map_err(|answers| corrupt(doing, &format!("{answers:?}")))?;
        let mut profiles: BTreeMap<String, String> = decode(doing, profiles)?;
        let revision = profiles.remove(keys::REVISION).unwrap_or_else(|| "0".to_owned());
        let revision = revision.parse().map_err(|_| corrupt(doing, &revision))?;
        Ok(Agents { revision, profiles, versions: decode(doing, versions)? })
    }

    pub(in super::super) async fn agents_revision(&self) -> Result<u64, Error> {
        let doing = "read the revision of the agent profiles in Redis";
        let answer = self.one(doing, Cmd::hget(self.keys.agents(), keys::REVISION)).await?;
        Ok(decode::<Option<u64>>(doing, answer)?.unwrap_or(0))
    }

    /// If the process dies between the two writes, the partitions have an earlier revision. No
    /// caller has received the new revision yet, and a coordinator that compares revisions finds
    /// it.
    pub(in super::super) async fn apply_agents(
        &self,
        versions: &[AgentVersion],
        at_least: u64,
    ) -> Result<u64, Error> {
        let doing = "store agent profiles in Redis";
        let command = |by: By| {
            let mut command = script(&AGENTS, AGENTS_SOURCE, by);
            command.arg(2).arg(self.keys.agents()).arg(self.keys.agent_versions());
            command.arg(keys::REVISION).arg(at_least);
            for AgentVersion { agent_id, version, profile, again } in versions {
                command.arg(agent_id).arg(version).arg(profile.as_deref().unwrap_or_default());
                command.arg(if *again { "1" } else { "" });
            }
            command
        };
        let run = async |by: By| {
            let answers = self.link.send(vec![vec![command(by)]]).await.map_err(unavailable(doing))?;
            answers.into_iter().flatten().next().ok_or_else(|| corrupt(doing, "nothing"))
        };
        let answer = match run(By::Hash).await? {
            Err(error) if is_no_script(&error) => run(By::Source).await?,
            answer => answer,
        };
        let revision: u64 = decode(doing, answer.map_err(unavailable(doing))?)?;
        let raise = |home| {
            let mut command = redis::cmd("ZADD");
            command.arg(self.keys.agents_seen(home)).arg("GT").arg(revision).arg("revision");
            Request { home, commands: vec![command] }
        };
        self.fetch(doing, self.keys.homes().map(raise).collect()).await?;
        Ok(revision)
    }
}
