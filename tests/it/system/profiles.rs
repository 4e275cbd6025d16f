//! Agent profiles (N7): versions, two copies of which either may be lost, and runs that never use
//! an earlier version than the acknowledged one.

use std::time::Duration;

use bus::{Bus, Connect, Nats, Outgoing};
use coordinator::store::{self, Store};
use domain::{
    AgentId, TraceId,
    span::Headers,
    subject::{Filter, Subject},
    wire::{QueryAnswer, SubmitAnswer},
};
use serde_json::{Value, json};
use trace::Trace;
use trellis_tests::{
    cluster::{Client, Cluster, SOON, eventually, lenient_keys, name, signed},
    processes::fresh_trace,
    servers::{NatsServer, RedisServer},
    subjects::query_of,
};

use super::ground::{Ground, config, query};

/// A coordinator that after its start compares nothing by itself.
fn alone(id: &str) -> coordinator::Config {
    let hour = Duration::from_secs(3600);
    coordinator::Config { id: name(id), heartbeat: hour, heartbeat_ttl: 2 * hour, ..config() }
}

fn agent(id: &str, description: &str) -> Value {
    json!({"agent_id": id, "kind": "builtin", "builtin": "echo", "description": description})
}

/// Waits until this many coordinators are running.
async fn up(cluster: &Cluster, coordinators: usize) {
    let asked = serde_json::to_vec(&json!("coordinators")).unwrap();
    let there = async || {
        let bus = &cluster.client.bus;
        let answer = bus.request(&query_of(&asked), &Headers::new(), asked.clone().into(), SOON).await;
        let answer = answer.ok().and_then(|answer| serde_json::from_slice(&answer).ok());
        matches!(answer, Some(QueryAnswer::Coordinators { coordinators: there, .. }) if there.len() == coordinators)
    };
    eventually("the coordinators are up", there).await;
}

/// The answer to `apply`: versions, and the unchanged agents.
async fn apply(client: &Client, agents: Value) -> (Value, Value) {
    let answer = query(client, json!({"apply_agents": {"agents": agents}})).await;
    let QueryAnswer::Applied { versions, unchanged, .. } = answer else { panic!("{answer:?}") };
    (json!(versions), json!(unchanged))
}

/// The agents that were applied, with their versions.
async fn versions(client: &Client) -> Value {
    let answer = query(client, json!("agents")).await;
    let QueryAnswer::Agents { versions, .. } = answer else { panic!("{answer:?}") };
    json!(versions)
}

async fn refusal(client: &Client, asked: Value) -> String {
    match query(client, asked).await {
        QueryAnswer::Refused(refusal) => refusal.to_text(),
        answer => panic!("{answer:?}"),
    }
}

async fn stored(ground: &Ground, trace_id: TraceId) -> Trace {
    let record = ground.store.load(&[trace_id]).await.unwrap().pop().unwrap().record.unwrap();
    Trace::from_stored(trace_id, record.version, &record.fields, &record.values).unwrap()
}

async fn version_of(ground: &Ground, trace_id: TraceId) -> Option<u64> {
    let trace = stored(ground, trace_id).await;
    trace.snapshot(trace.root().unwrap()).profile_version
}

async fn every_run_uses_what_was_applied(ground: Ground) {
    let both = vec![alone("one"), alone("other")];
    let cluster = Cluster::start(ground.bus.clone(), ground.store.clone(), both, vec![]);
    up(&cluster, 2).await;
    let client = &cluster.client;
    for round in 1..=15_u64 {
        apply(client, json!([agent("writer", &format!("{round}"))])).await;
        // Any coordinator may take these runs.
        for _ in 0..4 {
            let accepted = client.accepted(json!({"goal": "hello", "agent_id": "writer"})).await;
            assert_eq!(version_of(&ground, accepted.trace_id).await, Some(round), "a request");
        }
        for _ in 0..2 {
            let trace_id = fresh_trace();
            let spawn = json!({"goal": "hello", "agent_id": "writer", "trace_id": trace_id});
            client.publish(Subject::Spawn, &spawn).await;
            eventually("the run is admitted", async || ground.has(trace_id).await).await;
            assert_eq!(version_of(&ground, trace_id).await, Some(round), "the published profile");
        }
    }
    cluster.stop().await;
}

#[tokio::test]
async fn n7_every_run_uses_what_was_applied_in_memory() {
    every_run_uses_what_was_applied(Ground::in_memory()).await;
}

#[tokio::test]
async fn n7_every_run_uses_what_was_applied_on_servers() {
    every_run_uses_what_was_applied(Ground::on_servers().await).await;
}

/// A submission reads no profile and no revision: the commit that it makes anyway compares them.
#[tokio::test]
async fn n7_a_submission_asks_the_store_for_nothing_more() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let to = Connect::new(nats.url(), Default::default(), "test");
    let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
    let store = store::Redis::connect(&redis.url(), Default::default(), config().topology.partitions).await;
    let cluster = Cluster::start(bus, Store::Redis(store.unwrap()), vec![alone("one")], vec![]);
    up(&cluster, 1).await;
    apply(&cluster.client, json!([agent("writer", "1")])).await;
    let client = redis::Client::open(redis.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut reads = async || -> Vec<String> {
        let said: String = redis::cmd("INFO").arg("commandstats").query_async(&mut connection).await.unwrap();
        let calls = said.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(",").next());
        calls.filter(|calls| calls.starts_with("hget")).map(ToOwned::to_owned).collect()
    };
    let before = reads().await;
    for _ in 0..30 {
        cluster.client.accepted(json!({"goal": "hello", "agent_id": "writer"})).await;
    }
    assert_eq!(reads().await, before);
    cluster.stop().await;
}

/// A refusal commits nothing, so no commit can find that its profile is not the latest.
#[tokio::test]
async fn n7_no_run_is_refused_by_an_earlier_profile() {
    let ground = Ground::in_memory();
    let both = vec![alone("one"), alone("other")];
    let cluster = Cluster::start(ground.bus.clone(), ground.store.clone(), both, vec![]);
    up(&cluster, 2).await;
    let mut reads = agent("reader", "");
    for round in 0..10 {
        reads["tools"] = json!(["fs.read"]);
        reads["description"] = json!(format!("{round}"));
        apply(&cluster.client, json!([reads])).await;
        reads["tools"] = json!(["fs.read", "fs.write"]);
        apply(&cluster.client, json!([reads])).await;
        for _ in 0..4 {
            let asked = json!({"goal": "hello", "agent_id": "reader", "tools": ["fs.write"]});
            cluster.client.accepted(asked).await;
        }
    }
    cluster.stop().await;
}

#[tokio::test]
async fn n7_every_change_is_a_version_and_an_equal_profile_is_not() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    up(&cluster, 1).await;
    let client = &cluster.client;
    let first = apply(client, json!([agent("a", "1"), agent("b", "1")])).await;
    assert_eq!(first, (json!({"a": 1, "b": 1}), json!([])));
    let again = apply(client, json!([agent("a", "1"), agent("b", "2")])).await;
    assert_eq!(again, (json!({"a": 1, "b": 2}), json!(["a"])));
    assert_eq!(versions(client).await, json!({"a": 1, "b": 2}));
    let shown = query(client, json!({"agent": {"agent_id": "b", "version": 1}})).await;
    let QueryAnswer::Agent(shown) = shown else { panic!("{shown:?}") };
    assert_eq!(json!(shown.agent)["description"], "1");
    assert_eq!((shown.version, shown.versions.clone()), (Some(1), vec![2, 1]));
    let unknown = refusal(client, json!({"agent": {"agent_id": "b", "version": 7}})).await;
    assert!(unknown.contains("no version 7"), "{unknown}");
    for version in 3..=80 {
        apply(client, json!([agent("b", &version.to_string())])).await;
    }
    let kept = query(client, json!({"agent": {"agent_id": "b"}})).await;
    let QueryAnswer::Agent(kept) = kept else { panic!("{kept:?}") };
    assert_eq!((kept.versions.len(), kept.versions[0], kept.versions[63]), (64, 80, 17), "the last 64");
    let twice =
        refusal(client, json!({"apply_agents": {"agents": [agent("a", "1"), agent("a", "2")]}})).await;
    assert!(twice.contains("`a` is given twice"), "{twice}");
    cluster.stop().await;
}

#[tokio::test]
async fn n7_a_deleted_agent_is_unknown_and_its_runs_keep_it() {
    let ground = Ground::in_memory();
    let both = vec![alone("one"), alone("other")];
    let cluster = Cluster::start(ground.bus.clone(), ground.store.clone(), both, vec![]);
    up(&cluster, 2).await;
    let client = &cluster.client;
    apply(client, json!([agent("writer", "1")])).await;
    let before = client.accepted(json!({"goal": "before", "agent_id": "writer"})).await;
    let delete = json!({"delete_agent": {"agent_id": "writer"}});
    let (first, second) = (query(client, delete.clone()).await, query(client, delete).await);
    assert!(matches!(first, QueryAnswer::Deleted { .. }), "{first:?}");
    assert_eq!(first, second, "deleting twice is harmless");
    for _ in 0..6 {
        let answer = client.submit(json!({"goal": "after", "agent_id": "writer"})).await;
        let SubmitAnswer::Refused(refused) = answer else { panic!("{answer:?}") };
        assert!(refused.to_text().contains("it was deleted at 20"), "{refused:?}");
    }
    assert_eq!(version_of(&ground, before.trace_id).await, Some(1));
    assert_eq!(versions(client).await, json!({}));
    for name in ["default", "echo"] {
        let refused = refusal(client, json!({"delete_agent": {"agent_id": name}})).await;
        assert!(refused.contains("can't be deleted") && refused.contains("agents apply"), "{refused}");
    }
    let refused = refusal(client, json!({"delete_agent": {"agent_id": "never"}})).await;
    assert!(refused.contains("there is no agent `never`"), "{refused}");
    let back = apply(client, json!([agent("writer", "1")])).await;
    assert_eq!(back, (json!({"writer": 3}), json!([])), "the deletion was version 2");
    cluster.stop().await;
}

/// Redis is wiped while no coordinator runs: only the log has the profiles.
#[tokio::test]
async fn n7_profiles_outlive_the_store() {
    let (nats, mut redis) = (NatsServer::start(), RedisServer::start());
    let cluster = Cluster::on(&nats, &redis).await;
    up(&cluster, 1).await;
    apply(&cluster.client, json!([agent("a", "1")])).await;
    apply(&cluster.client, json!([agent("a", "2"), agent("default", "mine"), agent("gone", "1")])).await;
    query(&cluster.client, json!({"delete_agent": {"agent_id": "gone"}})).await;
    cluster.stop().await;
    redis.wipe();
    redis.restart();
    let cluster = Cluster::on(&nats, &redis).await;
    up(&cluster, 1).await;
    assert_eq!(versions(&cluster.client).await, json!({"a": 2, "default": 1}));
    let agents = cluster.store.agents().await.unwrap();
    assert_eq!(agents.versions, [("a".into(), 2), ("default".into(), 1), ("gone".into(), 2)].into());
    cluster.stop().await;
}

/// A running coordinator finds the loss at its next heartbeat; a profile applied meanwhile gets a
/// later version.
#[tokio::test]
async fn n7_profiles_outlive_a_wipe_under_a_running_coordinator() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    up(&cluster, 1).await;
    for round in 1..=3 {
        apply(&cluster.client, json!([agent("a", &round.to_string())])).await;
    }
    let shared = ground.store.clone();
    let Store::Memory(memory) = &shared else { panic!("in memory") };
    memory.restore(store::Memory::new(config().topology.partitions).snapshot());
    let restored = async || shared.agents().await.unwrap().versions == [("a".to_owned(), 3)].into();
    eventually("the store has the profiles again", restored).await;
    assert!(shared.agents_revision().await.unwrap() > 3, "no revision is used twice");
    cluster.stop().await;
}

#[tokio::test]
async fn n7_profiles_outlive_the_log() {
    let ground = Ground::on_servers().await;
    let cluster = ground.start(config());
    up(&cluster, 1).await;
    apply(&cluster.client, json!([agent("a", "1")])).await;
    apply(&cluster.client, json!([agent("a", "2")])).await;
    cluster.stop().await;
    ground.bus.purge(&Filter::Profiles).await.unwrap();
    let cluster = ground.start(config());
    up(&cluster, 1).await;
    assert_eq!(apply(&cluster.client, json!([agent("a", "2")])).await, (json!({"a": 2}), json!(["a"])));
    assert_eq!(apply(&cluster.client, json!([agent("a", "3")])).await, (json!({"a": 3}), json!([])));
    cluster.stop().await;
}

/// The log is full: a profile that it can't store is not applied.
#[tokio::test]
async fn n7_a_profile_that_the_log_rejects_is_not_applied() {
    let ground = Ground::in_memory();
    let mut small = config();
    small.topology.max_log_bytes = 4_000;
    let cluster = ground.start(small);
    up(&cluster, 1).await;
    apply(&cluster.client, json!([agent("a", "1")])).await;
    let large = agent("a", &"x".repeat(5_000));
    let refused = refusal(&cluster.client, json!({"apply_agents": {"agents": [large]}})).await;
    assert!(refused.contains("could not be written to the log") && refused.contains("full"), "{refused}");
    assert!(refused.contains("hint: delete unused agents"), "{refused}");
    assert_eq!(versions(&cluster.client).await, json!({"a": 1}));
    assert_eq!(ground.store.agents().await.unwrap().versions, [("a".into(), 1)].into());
    cluster.stop().await;
}

/// Accepts the data that this test writes to the store without a code.
fn lenient() -> coordinator::Config {
    coordinator::Config { keys: lenient_keys(), ..config() }
}

/// Writes a version as a coordinator of a newer release does: its profile has a field that this one
/// does not know.
async fn write_newer(ground: &Ground, id: &str, version: u64, in_log: bool, in_store: bool) {
    let mut profile = agent(id, "newer");
    profile["field_of_a_newer_version"] = json!(true);
    let subject = Subject::Profile(AgentId::new(id).unwrap());
    let last = ground.bus.last(&Filter::One(subject.clone())).await.unwrap();
    if in_log {
        let payload = serde_json::to_vec(&json!({"version": version, "profile": profile})).unwrap().into();
        let expect_last = Some(last.map_or(0, |last| last.sequence));
        let message = Outgoing { subject, id: None, headers: Headers::new(), payload, expect_last };
        signed(&ground.bus).publish(message).await.unwrap();
    }
    if in_store {
        let profile = Some(profile.to_string());
        let written = store::AgentVersion { agent_id: id.into(), version, profile, again: false };
        ground.store.apply_agents(&[written], 0).await.unwrap();
    }
}

/// Asserts that a submission with the agent is refused, because a newer release wrote its profile.
async fn assert_refused_as_newer(client: &Client, id: &str, version: u64) {
    let says = format!("version {version} of `{id}` was written by a newer version of Trellis");
    let answer = client.submit(json!({"goal": "hello", "agent_id": id})).await;
    let SubmitAnswer::Refused(refused) = answer else { panic!("{answer:?}") };
    let shown = refusal(client, json!({"agent": {"agent_id": id}})).await;
    for text in [refused.to_text(), shown] {
        assert!(text.contains(&says) && text.contains("upgrade every coordinator"), "{text}");
    }
}

/// An unreadable profile is still the latest: no earlier one, with its higher ceiling, comes back.
#[tokio::test]
async fn n7_a_profile_of_a_newer_version_counts_and_can_be_replaced() {
    let ground = Ground::on_servers().await;
    let mut cluster = ground.start(lenient());
    up(&cluster, 1).await;
    // Written to both copies, or to one; then the other copy gets it too.
    let kept = [("both", true, true), ("logged", true, false), ("stored", false, true)];
    for (id, in_log, in_store) in kept {
        apply(&cluster.client, json!([agent(id, "1")])).await;
        cluster.client.accepted(json!({"goal": "hello", "agent_id": id})).await;
        write_newer(&ground, id, 2, in_log, in_store).await;
    }
    // A running coordinator, then a starting one.
    for _ in 0..2 {
        versions(&cluster.client).await;
        for (id, ..) in kept {
            assert_refused_as_newer(&cluster.client, id, 2).await;
        }
        cluster.stop().await;
        cluster = ground.start(lenient());
        up(&cluster, 1).await;
    }
    let client = &cluster.client;
    for (id, ..) in kept {
        let text = &ground.store.agents().await.unwrap().profiles[id];
        assert!(text.contains("field_of_a_newer_version"), "{text}");
        let subject = Subject::Profile(AgentId::new(id).unwrap());
        let logged = ground.bus.read(&Filter::One(subject)).await.unwrap();
        assert_eq!(logged.len(), 2, "the newer one of `{id}` is written once");

        assert_eq!(apply(client, json!([agent(id, "3")])).await, (json!({id: 3}), json!([])));
        let accepted = client.accepted(json!({"goal": "hello", "agent_id": id})).await;
        assert_eq!(version_of(&ground, accepted.trace_id).await, Some(3));
        write_newer(&ground, id, 4, true, true).await;
        let deleted = query(client, json!({"delete_agent": {"agent_id": id}})).await;
        assert!(matches!(deleted, QueryAnswer::Deleted { .. }), "{deleted:?}");
        assert_eq!(apply(client, json!([agent(id, "6")])).await, (json!({id: 6}), json!([])));
    }
    cluster.stop().await;
}

/// Returns whether a profile fits into the log.
async fn fits(client: &Client, profile: Value) -> bool {
    match query(client, json!({"apply_agents": {"agents": [profile]}})).await {
        QueryAnswer::Applied { .. } => true,
        QueryAnswer::Refused(refused) => {
            assert!(refused.to_text().contains("trellis agents delete"), "{refused:?}");
            false
        }
        answer => panic!("{answer:?}"),
    }
}

async fn a_full_log_makes_room(ground: Ground) {
    let mut small = config();
    small.topology.max_log_bytes = 8_000;
    let cluster = ground.start(small);
    up(&cluster, 1).await;
    let client = &cluster.client;
    // Earlier versions make room for the next.
    for round in 1..=20_u64 {
        let long = agent("a", &format!("{round:01000}"));
        assert_eq!(apply(client, json!([long])).await.0, json!({"a": round}));
    }
    // A first version can't make room. The versions of a deleted agent are removed.
    let mut fillers = 0;
    while fits(client, agent(&format!("filler{fillers}"), &"x".repeat(200))).await {
        fillers += 1;
    }
    let delete = async |id: &str| {
        let deleted = query(client, json!({"delete_agent": {"agent_id": id}})).await;
        assert!(matches!(deleted, QueryAnswer::Deleted { .. }), "{deleted:?}");
    };
    delete("a").await;
    assert!(fits(client, agent("b", &"x".repeat(900))).await, "the versions of a deleted agent are removed");
    // Not one byte is left, and no agent has an earlier version.
    while fits(client, agent(&format!("filler{fillers}"), &"x".repeat(200))).await {
        fillers += 1;
    }
    for length in (0..300).rev() {
        if fits(client, agent("last", &"x".repeat(length))).await {
            break;
        }
    }
    let before = versions(client).await;
    let id = if before.get("last").is_some() { "last" } else { "b" };
    delete(id).await;
    let mut after = before;
    after.as_object_mut().unwrap().remove(id);
    assert_eq!(versions(client).await, after, "no other agent is removed");
    cluster.stop().await;
    // A starting coordinator has the same versions.
    let cluster = ground.start(config());
    up(&cluster, 1).await;
    assert_eq!(versions(&cluster.client).await, after);
    cluster.stop().await;
}

#[tokio::test]
async fn n7_a_full_log_of_profiles_makes_room_in_memory() {
    a_full_log_makes_room(Ground::in_memory()).await;
}

#[tokio::test]
async fn n7_a_full_log_of_profiles_makes_room_on_servers() {
    a_full_log_makes_room(Ground::on_servers().await).await;
}
