//! Records who requested changes that only administrators may make (S7). For a run, the record is
//! an event of the run. For agents, schedules, kept graphs, workers and policies it is a message
//! that is stored before the change is made. The policy of workers is recorded when they first
//! claim with it.
//!
//! A second delivery is harmless: the same request of the same administrator within a few seconds
//! is one record.

use std::sync::Arc;

use bus::{Bus, Message, Outgoing, PublishError, REQUEST_INFO};
use domain::{
    Timestamp, WorkerId,
    agent_policy::AgentPolicy,
    digest,
    id::PoolName,
    span::Headers,
    subject::{Action, Audited, Filter, Subject},
    time::millis,
    wire::{AdminRecord, Asker, BY_HEADER, POLICY_HEADER, Query},
    wording,
};
use serde::Deserialize;

use crate::{
    Config,
    loops::Handles,
    policy::{PolicyAnnouncement, is_change},
};

/// Equal requests within this time are one record.
const SAME_FOR_MS: u64 = 10_000;
/// The most bytes of a name in a record.
const MAX_BYTES: usize = 200;

/// The server's statement of who sent a message.
#[derive(Deserialize)]
struct RequestInfo {
    #[serde(rename = "acc")]
    account: String,
    user: Option<String>,
    name: Option<String>,
}

/// The sender of a message: from the server's statement if that can be trusted, otherwise from the
/// sender's own.
pub(crate) fn asker(handles: &Handles, headers: &Headers) -> Option<Asker> {
    let info = headers.get(REQUEST_INFO).filter(|_| handles.config.trust_request_info);
    let info = info.and_then(|info| serde_json::from_str::<RequestInfo>(info).ok());
    let cut = |text: String| wording::cut(text, MAX_BYTES);
    if let Some(RequestInfo { account, user, name }) = info {
        return Some(Asker::Server { account: cut(account), user: user.map(cut), name: name.map(cut) });
    }
    headers.get(BY_HEADER).map(|by| Asker::Claimed(cut(by.clone())))
}

/// Stores the record of a query that only an administrator may send.
pub(crate) async fn keep(handles: &Handles, query: &Query, message: &Message) -> Result<(), PublishError> {
    let Some((action, asked, names)) = about(query) else { return Ok(()) };
    let (at, by) = (handles.clock.now(), asker(handles, &message.headers));
    let digest = Some(digest::sha256(&message.payload));
    let record = AdminRecord { at, asked: asked.to_owned(), names, by, digest };
    handles.bus.publish(outgoing(Audited::Asked(action), &record)).await.map(drop)
}

/// Stores the options of this coordinator if they differ from the last record: the policy of a
/// deployment changes by the options of its coordinators.
pub(crate) async fn keep_policy(handles: &Handles) -> Result<(), PublishError> {
    let what = Audited::Policy;
    let names = policy(&handles.config);
    // If the last record can't be read, this one is stored in any case.
    let last = handles.bus.last(&Filter::One(Subject::Audit(what))).await.ok().flatten();
    let last = last.and_then(|last| serde_json::from_slice::<AdminRecord>(&last.payload).ok());
    if last.is_some_and(|last| last.names == names) {
        return Ok(());
    }
    let by = Some(Asker::Claimed(handles.config.id.to_string()));
    let record =
        AdminRecord { at: handles.clock.now(), asked: what.name().to_owned(), names, by, digest: None };
    handles.bus.publish(outgoing(what, &record)).await.map(drop)
}

/// The policy for all runs; of long values only the digest.
fn policy(config: &Config) -> Vec<String> {
    let digest = |value: serde_json::Result<Vec<u8>>| {
        digest::short_sha256(value.expect("settings have string keys only"))
    };
    let cost =
        config.settings.maximum.max_cost_usd.map_or_else(|| "none".to_owned(), |cost| cost.to_string());
    let agents = config.agent_policy.as_ref().map(AgentPolicy::digest);
    vec![
        format!("max_cost_usd {cost}"),
        format!("retention_ms {}", millis(config.retention)),
        format!("settings {}", digest(serde_json::to_vec(&config.settings))),
        format!("agent_policy {}", agents.as_deref().unwrap_or("none")),
    ]
}

const MAX_DIGEST_BYTES: usize = 64;
/// The most tries to append a record after those that were read.
const MAX_TRIES: usize = 8;

/// Stores that workers of a pool claim with another policy, once for each policy: the policy of
/// workers changes with their options, one worker after the other. A claim without a valid policy
/// header has no record.
pub(crate) fn keep_worker_policy(
    handles: &Arc<Handles>,
    pool: &PoolName,
    worker: &WorkerId,
    headers: &Headers,
) {
    let is_digest = |text: &&String| {
        (1..=MAX_DIGEST_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let Some(policy) = headers.get(POLICY_HEADER).filter(is_digest) else { return };
    let told = handles.worker_policies.seen(pool, policy, handles.clock.now());
    if told == PolicyAnnouncement::Already {
        return;
    }
    let (own, pool, policy, worker) = (handles.clone(), pool.clone(), policy.clone(), worker.to_string());
    handles.beside_others(async move {
        let names = vec![format!("pool {pool}"), format!("policy {policy}")];
        if let Err(error) = keep_change(&own.bus, told, names, worker, own.clock.now()).await {
            tracing::warn!(%error, "the record of a worker's policy could not be stored; its next claim tries again");
            own.worker_policies.forget(&pool, &policy);
        }
    });
}

/// Stores the record of a policy if it is a change among the stored records. A record that another
/// coordinator appends meanwhile is read before the next try.
async fn keep_change(
    bus: &Bus,
    told: PolicyAnnouncement,
    names: Vec<String>,
    worker: String,
    at: Timestamp,
) -> Result<(), String> {
    let what = Audited::WorkerPolicy;
    let by = Some(Asker::Claimed(worker));
    let record = AdminRecord { at, asked: what.name().to_owned(), names, by, digest: None };
    for _ in 0..MAX_TRIES {
        let stored = bus.read_unjudged(&Filter::One(Subject::Audit(what))).await;
        let stored = stored.map_err(|error| error.to_string())?;
        let last = stored.last().map_or(0, |last| last.sequence);
        let earlier = stored.iter().filter_map(|one| serde_json::from_slice(&one.payload).ok());
        if !is_change(told, &record.names, &earlier.collect::<Vec<_>>(), at) {
            return Ok(());
        }
        match bus.publish(Outgoing { expect_last: Some(last), ..outgoing(what, &record) }).await {
            Ok(_) => return Ok(()),
            Err(PublishError::WrongSequence) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("other processes keep changing the record".to_owned())
}

fn outgoing(what: Audited, record: &AdminRecord) -> Outgoing {
    let bucket = Timestamp::from_millis(record.at.millis() / SAME_FOR_MS);
    // The record of a policy is the same for all workers that claim with it.
    let by = record.by.clone().filter(|_| what != Audited::WorkerPolicy);
    let same = AdminRecord { at: bucket, by, ..record.clone() };
    let same = serde_json::to_vec(&same).expect("string keys only");
    Outgoing {
        subject: Subject::Audit(what),
        id: Some(format!("audit.{}", digest::short_sha256(&same))),
        headers: Headers::new(),
        payload: serde_json::to_vec(record).expect("a message has string keys only").into(),
        expect_last: None,
    }
}

/// The action, the request and its subjects, for a query that only an administrator may send.
fn about(query: &Query) -> Option<(Action, &'static str, Vec<String>)> {
    let one = |name: &dyn std::fmt::Display| vec![name.to_string()];
    Some(match query {
        Query::ApplyAgents { agents } => {
            let names = agents.iter().map(|agent| agent.agent_id.to_string()).collect();
            (Action::Apply, "apply_agents", names)
        }
        Query::DeleteAgent { agent_id } => (Action::Apply, "delete_agent", one(agent_id)),
        Query::PutSchedule { schedule, .. } => {
            let name = schedule.value().get("name").and_then(|name| name.as_str()).unwrap_or_default();
            (Action::Schedules, "put_schedule", vec![wording::cut(name.to_owned(), MAX_BYTES)])
        }
        Query::DeleteSchedule { name } => (Action::Schedules, "delete_schedule", one(name)),
        Query::PauseSchedule { name } => (Action::Schedules, "pause_schedule", one(name)),
        Query::ResumeSchedule { name } => (Action::Schedules, "resume_schedule", one(name)),
        Query::RunSchedule { name, .. } => (Action::Schedules, "run_schedule", one(name)),
        Query::PutGraph { name, .. } => (Action::Graphs, "put_graph", one(name)),
        Query::DeleteGraph { name } => (Action::Graphs, "delete_graph", one(name)),
        Query::Drain(drain) => (Action::Drain, "drain", one(&drain.worker_id)),
        Query::Runs(_)
        | Query::Pending(_)
        | Query::Agents
        | Query::Agent { .. }
        | Query::Coordinators
        | Query::Branches { .. }
        | Query::Snapshot { .. }
        | Query::Tell { .. }
        | Query::Answer { .. }
        | Query::Amend { .. }
        | Query::Schedules { .. }
        | Query::Schedule { .. }
        | Query::Graphs { .. }
        | Query::Graph { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use bus::Memory;
    use domain::wire::Drain;
    use host::simulated_network::{Arrive, Crossing, Link};

    use super::*;

    /// Every message arrives a little later.
    #[derive(Debug)]
    struct Late;

    impl Link for Late {
        fn carry(&self, _what: Crossing<'_>, arrive: Arrive) {
            tokio::spawn(async move {
                tokio::task::yield_now().await;
                arrive();
            });
        }
    }

    /// proves: coordinators that store records at the same time are bounded like one that stores
    /// them in turn.
    #[tokio::test]
    async fn s7_policies_that_are_stored_at_once_are_bounded_together() {
        let bus = Bus::Memory(Memory::new(Default::default()).behind(Arc::new(Late)));
        let names = |number: u32| vec!["pool a".to_owned(), format!("policy {number:x}")];
        let at = Timestamp::from_millis(1);
        for _ in 0..3 {
            let all = (0..40)
                .map(|number| keep_change(&bus, PolicyAnnouncement::Unknown, names(number), "w".into(), at));
            futures_util::future::join_all(all).await;
        }
        let stored = bus.read_unjudged(&Filter::One(Subject::Audit(Audited::WorkerPolicy))).await.unwrap();
        assert_eq!(stored.len(), 16);
    }

    #[test]
    fn s7_the_same_request_is_one_record_for_ten_seconds_and_other_content_is_another() {
        let record = |at: u64, digest: &str| AdminRecord {
            at: Timestamp::from_millis(at),
            asked: "put_graph".into(),
            names: vec!["facts".into()],
            by: None,
            digest: Some(digest.into()),
        };
        let id = |record: &AdminRecord| outgoing(Audited::Asked(Action::Graphs), record).id;
        let first = id(&record(SAME_FOR_MS, "a"));
        assert_eq!(id(&record(SAME_FOR_MS + 1, "a")), first);
        assert_ne!(id(&record(SAME_FOR_MS + 1, "b")), first);
        assert_ne!(id(&record(2 * SAME_FOR_MS, "a")), first);
    }

    #[test]
    fn s7_every_query_for_administrators_has_a_record_and_no_other() {
        let name = || "nightly".parse().unwrap();
        let graph = || "facts".parse().unwrap();
        let queries = [
            Query::ApplyAgents { agents: Vec::new() },
            Query::DeleteAgent { agent_id: "a".parse().unwrap() },
            Query::PutSchedule { schedule: serde_json::json!({"name": "n"}).into(), revision: None },
            Query::DeleteSchedule { name: name() },
            Query::PauseSchedule { name: name() },
            Query::ResumeSchedule { name: name() },
            Query::RunSchedule { name: name(), id: "id".parse().unwrap() },
            Query::PutGraph { name: graph(), graph: serde_json::json!({}).into() },
            Query::DeleteGraph { name: graph() },
            Query::Drain(Drain { worker_id: "w1".parse().unwrap() }),
            Query::Agents,
            Query::Coordinators,
            Query::Schedule { name: name() },
        ];
        for query in &queries {
            let recorded = about(query).map(|(action, ..)| Subject::Admin(action));
            let subject = Subject::of_query(query);
            let expected = matches!(subject, Subject::Admin(_)).then_some(subject);
            assert_eq!(recorded, expected, "{query:?}");
        }
    }
}
