//! Foreign writes to logs and stores (S3), on whole clusters: coordinators read back only data that
//! coordinators wrote; other data is refused and reported.

use bus::{Bus, Outgoing, StoredMessage, keys::Keys};
use coordinator::store::{CommitOutcome, OutboxKey, Record, Replaces, Write};
use domain::{
    Timestamp, TraceId, Usd,
    span::Headers,
    subject::{Action, Filter, Subject},
    wire::{EndStatus, QueryAnswer},
};
use serde_json::{Value, json};
use trace::{LoggedEvents, Status, Trace};
use trellis_tests::{
    checker,
    cluster::{Client, Cluster, KEY, eventually, lenient_keys, name},
};

use super::ground::{Ground, config, query};

const ONE: Usd = Usd::from_nanos(1_000_000_000);

/// A run of one dollar that waits for an answer.
async fn asking(client: &Client) -> TraceId {
    let spawn = json!({"goal": "go on?", "agent_id": "ask", "child_id": "root", "max_cost_usd": 1});
    let run = client.accepted(spawn).await.trace_id;
    eventually("the agent asks a question", async || {
        let trace = client.trace(run).await;
        trace.root().is_some_and(|root| matches!(root.status, Status::InputRequired { .. }))
    })
    .await;
    run
}

/// Answers the question. Returns the ceiling of the run.
async fn answered(client: &Client, run: TraceId) -> Usd {
    let answer = json!({"child_id": "root", "question": 1, "answer": "yes"});
    client.publish(Subject::Input, &json!({"trace_id": run, "answered": answer})).await;
    let outcome = client.outcome(run, &"root".parse().unwrap()).await;
    assert_eq!(outcome.context.status, EndStatus::Completed);
    outcome.context.budget.limit.cost_usd
}

/// An event as a coordinator would log it, after everything in the log of the run.
async fn forged(bus: &Bus, run: TraceId, event: Value) -> Outgoing {
    let log = bus.read(&Filter::EventsOf(run)).await.unwrap();
    let read = |payload: &[u8]| serde_json::from_slice::<LoggedEvents>(payload).unwrap();
    let last = log.iter().map(|stored| read(&stored.payload)).max_by_key(LoggedEvents::last_version).unwrap();
    let (version, after) = (last.last_version() + 1, last.commit().made);
    let made = after.plus_millis(1);
    let message = json!({
        "trace_id": run, "child_id": "root", "version": version, "at": made, "events": [event],
        "commit": {"first": version, "last": version, "made": made, "after": after},
    });
    Outgoing {
        subject: Subject::Event(run, "root".parse().unwrap()),
        id: Some(format!("{run}.{version}-{}.event", made.millis())),
        headers: Headers::new(),
        payload: serde_json::to_vec(&message).unwrap().into(),
        expect_last: None,
    }
}

fn raised() -> Value {
    json!({"type": "raised", "child_id": "root", "limit": {"cost_usd": 500_000, "tokens": 1_000_000_000}})
}

/// The dead letters about unauthentic data.
async fn letters(bus: &Bus) -> Vec<Value> {
    let all = bus.read(&Filter::Dead).await.unwrap();
    let all = all.iter().map(|stored| serde_json::from_slice::<Value>(&stored.payload).unwrap());
    all.filter(|letter| letter["refusal"]["code"] == "not_authentic").collect()
}

/// proves: finding 3. A forged event in the log of a live run changes nothing, even when a
/// coordinator starts again. The refusal is logged, counted and reported once, without the event's
/// content.
async fn a_forged_raise_changes_nothing(ground: Ground) {
    let cluster = ground.start(config());
    let run = asking(&cluster.client).await;
    cluster.stop().await;
    ground.bus.publish(forged(&ground.bus, run, raised()).await).await.unwrap();
    let cluster = ground.start(config());
    // The sweep has seen the event once this letter exists, or once it has made a commit from the
    // event.
    let looked =
        async || !letters(&ground.bus).await.is_empty() || cluster.client.trace(run).await.generation() > 0;
    eventually("the coordinator has read the log", looked).await;
    let letters = letters(&ground.bus).await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!((&letters[0]["trace_id"], &letters[0]["payload"]), (&json!(run), &json!("")));
    assert_eq!(answered(&cluster.client, run).await, ONE);
    assert_eq!(cluster.refused(), 1);
    cluster.stop_with_refusals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_a_forged_raise_in_the_log_changes_nothing_after_a_restart() {
    a_forged_raise_changes_nothing(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_a_forged_raise_in_the_log_of_real_servers_changes_nothing_after_a_restart() {
    a_forged_raise_changes_nothing(Ground::on_servers().await).await;
}

async fn record(ground: &Ground, run: TraceId) -> Record {
    ground.store.load(&[run]).await.unwrap().remove(0).record.unwrap()
}

/// Writes to the store, past the coordinators.
async fn tamper(ground: &Ground, run: TraceId, version: Option<u64>, fields: &[(&str, &str)]) {
    let expected = ground.store.versions(&[run]).await.unwrap()[0];
    let write = Write {
        version: version.unwrap_or(expected),
        fields: fields.iter().map(|(name, text)| ((*name).to_owned(), Some((*text).to_owned()))).collect(),
        ..plain(run, expected)
    };
    let done = ground.store.commit(&[write]).await.unwrap();
    assert!(matches!(done[..], [CommitOutcome::Done { .. }]), "{done:?}");
}

/// A write that changes only the timer, which is due.
fn plain(trace_id: TraceId, version: u64) -> Write {
    Write {
        trace_id,
        expected: version,
        stamp: None,
        version,
        replaces: Replaces::Nothing,
        fields: Vec::new(),
        values: Vec::new(),
        outbox: None,
        cleared: Vec::new(),
        timer: Some(Timestamp::from_millis(1)),
        keeps_earlier_timer: false,
        ended_at: None,
        opened_at: None,
        profiles: None,
        index: None,
    }
}

const DEAR: &str = r#"{"limit":{"cost_usd":500000,"tokens":1000000000}}"#;

/// proves: a run with a changed field in the store is rebuilt from its log, and continues
/// unchanged.
async fn a_changed_field_is_mended(ground: Ground, version: Option<u64>) {
    let cluster = ground.start(config());
    let run = asking(&cluster.client).await;
    cluster.stop().await;
    tamper(&ground, run, version, &[("l0", DEAR)]).await;
    let cluster = ground.start(config());
    assert_eq!(answered(&cluster.client, run).await, ONE);
    assert_eq!(cluster.refused(), 1);
    checker::check(&cluster.client, &cluster.store, &[run]).await;
    let stored = record(&ground, run).await;
    assert!(stored.version < 1_000, "the coordinator continued from a forged version: {}", stored.version);
    let trace = Trace::from_stored(run, stored.version, &stored.fields, &stored.values).unwrap();
    assert_eq!(trace.generation(), 1, "the trace was not rebuilt once");
    cluster.stop_with_refusals().await;
    // The commits since then are complete.
    let cluster = ground.start(config());
    cluster.client.run(json!({"goal": "is anybody there?"})).await;
    let snapshot = query(&cluster.client, json!({"snapshot": {"trace_id": run}})).await;
    assert!(matches!(snapshot, QueryAnswer::Snapshot { state: Some(_) }), "{snapshot:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_a_run_of_which_a_field_was_changed_is_rebuilt_from_its_log() {
    a_changed_field_is_mended(Ground::in_memory(), None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_a_run_that_was_changed_in_redis_is_rebuilt_from_its_log() {
    a_changed_field_is_mended(Ground::on_servers().await, None).await;
}

/// proves: a coordinator does not count up to a forged version.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_run_with_an_enormous_version_is_rebuilt_from_its_log() {
    a_changed_field_is_mended(Ground::in_memory(), Some(1 << 50)).await;
}

/// proves: one write to Redis does not stop a run whose log is complete. A missing seal, a seal by
/// an unknown key or a value that is not a trace lead to a rebuild, like a wrong seal, and the run
/// continues.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_run_that_a_stranger_made_unreadable_is_rebuilt_from_its_log() {
    let ground = Ground::on_servers().await;
    for words in [
        &["HDEL", "KEY", "seal"][..],
        &["HSET", "KEY", "seal", "00000000:00000000000000000000000000000000"],
        &["HSET", "KEY", "v", "01"],
        &["HDEL", "KEY", "v"],
        &["SET", "KEY", "text"],
    ] {
        let cluster = ground.start(config());
        let run = asking(&cluster.client).await;
        cluster.stop_with_refusals().await;
        ground.tell_redis(run, words).await;
        let cluster = ground.start(config());
        assert_eq!(answered(&cluster.client, run).await, ONE, "{words:?}");
        checker::check(&cluster.client, &cluster.store, &[run]).await;
        let stored = record(&ground, run).await;
        let trace = Trace::from_stored(run, stored.version, &stored.fields, &stored.values).unwrap();
        assert_eq!(trace.generation(), 1, "the trace was not rebuilt once: {words:?}");
        cluster.stop_with_refusals().await;
    }
}

/// proves: a deleted or paused schedule stays so for a coordinator that starts, however often its
/// earlier revisions and ticks are stored again; so does the last version of a kept graph. Both can
/// be put and changed afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn s3_deleted_data_stays_deleted_when_it_is_stored_again() {
    let ground = Ground::on_servers().await;
    let cluster = ground.start(config());
    let client = &cluster.client;
    client.run(json!({"goal": "is anybody there?"})).await;
    let schedule = |name: &str| json!({"put_schedule": {"schedule": {"name": name, "cron": "@every 366d", "task": {"goal": "go"}}}});
    let graph = |text: &str| json!({"put_graph": {"name": "facts", "graph": {"steps": [{"id": "a", "agent_id": "echo", "task_description": text}]}}});
    let ask = async |client: &Client, asked: Value| {
        let answer = query(client, asked.clone()).await;
        assert!(!matches!(answer, QueryAnswer::Refused(_)), "{asked}: {answer:?}");
    };
    for asked in [
        schedule("nightly"),
        schedule("daily"),
        json!({"pause_schedule": {"name": "daily"}}),
        json!({"resume_schedule": {"name": "daily"}}),
        json!({"run_schedule": {"name": "nightly", "id": "now"}}),
        graph("earlier"),
    ] {
        ask(client, asked).await;
    }
    let subjects = [
        Subject::Schedule("nightly".parse().unwrap()),
        Subject::Ticks("nightly".parse().unwrap()),
        Subject::Ticks("daily".parse().unwrap()),
        Subject::Kept("facts".parse().unwrap()),
    ];
    let mut earlier = Vec::new();
    for subject in &subjects {
        earlier.extend(ground.bus.read(&Filter::One(subject.clone())).await.unwrap());
    }
    for asked in [
        json!({"delete_schedule": {"name": "nightly"}}),
        json!({"pause_schedule": {"name": "daily"}}),
        graph("later"),
    ] {
        ask(client, asked).await;
    }
    cluster.stop_with_refusals().await;
    for StoredMessage { subject, headers, payload, .. } in earlier {
        for _ in 0..100 {
            let (id, headers, payload) = (None, headers.clone(), payload.clone());
            let copy = Outgoing { subject: subject.clone(), id, headers, payload, expect_last: None };
            ground.bus.send(vec![copy]).await.stored().await;
        }
    }
    let cluster = ground.start(config());
    let client = &cluster.client;
    client.run(json!({"goal": "is anybody there?"})).await;
    let nightly = query(client, json!({"schedule": {"name": "nightly"}})).await;
    assert!(matches!(nightly, QueryAnswer::Refused(_)), "the deleted schedule exists: {nightly:?}");
    let daily = query(client, json!({"schedule": {"name": "daily"}})).await;
    let QueryAnswer::Schedule(daily) = daily else { panic!("{daily:?}") };
    assert!(daily.summary.paused, "the paused schedule is not paused: {daily:?}");
    let facts = serde_json::to_string(&query(client, json!({"graph": {"name": "facts"}})).await).unwrap();
    assert!(facts.contains("later") && !facts.contains("earlier"), "{facts}");
    for asked in [
        schedule("nightly"),
        json!({"run_schedule": {"name": "nightly", "id": "again"}}),
        json!({"resume_schedule": {"name": "daily"}}),
        json!({"delete_schedule": {"name": "nightly"}}),
        graph("last"),
    ] {
        ask(client, asked).await;
    }
    cluster.stop_with_refusals().await;
}

/// proves: if neither store nor log are authentic, nothing is decided on the run, and requests
/// about it get the reason. Other runs continue.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_run_without_authentic_data_does_not_continue_and_shows_it() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let run = asking(&cluster.client).await;
    cluster.stop().await;
    tamper(&ground, run, None, &[("l0", DEAR)]).await;
    let message = forged(&ground.bus, run, raised()).await;
    ground.bus.purge(&Filter::EventsOf(run)).await.unwrap();
    ground.bus.publish(message).await.unwrap();
    let cluster = ground.start(config());
    cluster.client.run(json!({"goal": "others go on"})).await;
    let told = json!({"tell": {"trace_id": run, "told": {"child_id": "root", "id": "m1", "text": "are you there?"}}});
    for asked in [json!({"snapshot": {"trace_id": run}}), told] {
        let answer = query(&cluster.client, asked.clone()).await;
        let QueryAnswer::Refused(refusal) = answer else { panic!("{asked}: {answer:?}") };
        assert_eq!(refusal.code, "not_authentic", "{asked}: {refusal:?}");
    }
    assert!(
        record(&ground, run).await.fields["l0"].contains("500000"),
        "the record is unchanged, for an investigation"
    );
    cluster.stop_with_refusals().await;
}

/// proves: forged outboxes are not sent, and do not come back.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_forged_outbox_is_not_sent() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let run = asking(&cluster.client).await;
    cluster.stop().await;
    let message = forged(&ground.bus, run, raised()).await;
    let body: Value = serde_json::from_slice(&message.payload).unwrap();
    let version = &body["version"];
    let outbox = json!({"version": version, "made": body["at"], "at": body["at"], "effects": [],
        "events": [{"child_id": "root", "version": version, "body": body}]});
    let before = record(&ground, run).await;
    let key = OutboxKey { version: version.as_u64().unwrap(), made: 7 };
    let write = Write { outbox: Some((key, outbox.to_string())), ..plain(run, before.version) };
    ground.store.commit(&[write]).await.unwrap();
    let cluster = ground.start(config());
    eventually("the message is refused", async || cluster.refused() > 0).await;
    assert_eq!(answered(&cluster.client, run).await, ONE);
    eventually("the record is removed", async || !record(&ground, run).await.outbox.contains_key(&key)).await;
    checker::check(&cluster.client, &cluster.store, &[run]).await;
    cluster.stop_with_refusals().await;
}

/// proves: graphs, profiles and schedules that a stranger stored in their logs are ignored, and can
/// be put afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn s3_forged_graphs_profiles_and_schedules_are_ignored() {
    let ground = Ground::on_servers().await;
    let cluster = ground.start(config());
    let client = &cluster.client;
    client.run(json!({"goal": "is anybody there?"})).await;
    let agent = |description: &str| json!({"agent_id": "writer", "kind": "builtin", "builtin": "echo", "description": description});
    let graph = |text: &str| json!({"steps": [{"id": "a", "agent_id": "echo", "task_description": text}]});
    let schedule = |goal: &str| json!({"name": "nightly", "cron": "@every 366d", "task": {"goal": goal}});
    let stranger = Client { bus: ground.bus.clone() };
    let forge = async |number: u64| {
        let profile = json!({"version": number, "profile": agent("forged")});
        stranger.publish(Subject::Profile("writer".parse().unwrap()), &profile).await;
        let kept = json!({"version": number, "graph": graph("forged")});
        stranger.publish(Subject::Kept("facts".parse().unwrap()), &kept).await;
        let nightly = json!({"revision": number, "at": 1, "schedule": schedule("forged")});
        stranger.publish(Subject::Schedule("nightly".parse().unwrap()), &nightly).await;
    };
    let shown = async || {
        let asked = [
            json!({"agent": {"agent_id": "writer"}}),
            json!({"graph": {"name": "facts"}}),
            json!({"schedule": {"name": "nightly"}}),
        ];
        let mut all = String::new();
        for asked in asked {
            all += &serde_json::to_string(&query(client, asked).await).unwrap();
        }
        all
    };
    forge(1).await;
    let nothing = shown().await;
    assert!(!nothing.contains("forged"), "{nothing}");
    for asked in [
        json!({"apply_agents": {"agents": [agent("ours")]}}),
        json!({"put_graph": {"name": "facts", "graph": graph("ours")}}),
        json!({"put_schedule": {"schedule": schedule("ours")}}),
    ] {
        let answer = query(client, asked.clone()).await;
        assert!(!matches!(answer, QueryAnswer::Refused(_)), "{asked}: {answer:?}");
    }
    forge(2).await;
    let all = shown().await;
    assert!(!all.contains("forged"), "{all}");
    assert!(all.matches("ours").count() >= 3, "{all}");
    cluster.stop_with_refusals().await;
    let cluster = ground.start(config());
    cluster.client.run(json!({"goal": "is anybody there?", "agent_id": "writer"})).await;
    cluster.stop_with_refusals().await;
}

/// A coordinator without keys, and a worker. `Cluster` can't be used: it gives every coordinator
/// keys.
async fn without_keys<T>(ground: &Ground, then: impl AsyncFnOnce(&Client) -> T) -> T {
    let stop = tokio_util::sync::CancellationToken::new();
    let (bus, store) = (ground.bus.clone(), ground.store.clone());
    let unsigned = tokio::spawn(coordinator::run(config(), bus, store, stop.clone().cancelled_owned()));
    let worker = worker::Config::new(name("worker"));
    let first = Cluster::start(ground.bus.clone(), ground.store.clone(), vec![], vec![worker]);
    first.client.run(json!({"goal": "is anybody there?"})).await;
    let done = then(&first.client).await;
    stop.cancel();
    unsigned.await.unwrap().unwrap();
    first.stop().await;
    done
}

/// proves: a run that a coordinator with other keys or none has continued is not reset to its last
/// signed state, neither by the store nor by the log alone. It is not worked on, and requests about
/// it get the reason. A coordinator that trusts those keys finds everything.
async fn a_run_that_another_wrote_is_left_alone(ground: Ground) {
    let cluster = ground.start(config());
    let runs = [asking(&cluster.client).await, asking(&cluster.client).await];
    cluster.stop().await;
    without_keys(&ground, async |client| {
        for run in runs {
            assert_eq!(answered(client, run).await, ONE);
        }
    })
    .await;
    let before = record(&ground, runs[0]).await;
    // The store has lost this run.
    assert!(ground.store.remove(runs[1], record(&ground, runs[1]).await.version).await.unwrap());
    let cluster = ground.start(config());
    cluster.client.run(json!({"goal": "others go on"})).await;
    for run in runs {
        let told = json!({"tell": {"trace_id": run, "told": {"child_id": "root", "id": "m1", "text": "are you there?"}}});
        let answer = query(&cluster.client, told).await;
        let QueryAnswer::Refused(refusal) = answer else { panic!("{answer:?}") };
        assert_eq!(refusal.code, "not_authentic", "{refusal:?}");
    }
    assert_eq!(record(&ground, runs[0]).await, before);
    assert!(!ground.has(runs[1]).await, "a run was rebuilt from the rest of its log");
    cluster.stop_with_refusals().await;
    let lenient = coordinator::Config { keys: lenient_keys(), ..config() };
    let cluster = ground.start(lenient);
    let client = &cluster.client;
    client.run(json!({"goal": "is anybody there?"})).await;
    for run in runs {
        eventually("the run has ended", async || {
            let told = json!({"tell": {"trace_id": run, "told": {"child_id": "root", "id": "m1", "text": "are you there?"}}});
            matches!(query(client, told).await, QueryAnswer::Refused(refusal) if refusal.code == "ended")
        })
        .await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_a_run_that_a_coordinator_without_keys_wrote_is_not_taken_back() {
    a_run_that_another_wrote_is_left_alone(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_a_run_that_a_coordinator_without_keys_wrote_to_servers_is_not_taken_back() {
    a_run_that_another_wrote_is_left_alone(Ground::on_servers().await).await;
}

/// proves: unchanged data is signed again, so that a deployment can begin to use a key, rotate it
/// twice and drop the first ones: profiles, schedules, graphs with all their versions, and waiting
/// runs all survive.
async fn everything_outlives_its_key(ground: Ground) {
    const KEYS: [&str; 3] = [
        KEY,
        "0202020202020202020202020202020202020202020202020202020202020202",
        "0303030303030303030303030303030303030303030303030303030303030303",
    ];
    let agent = |id: &str| json!({"agent_id": id, "kind": "builtin", "builtin": "echo"});
    let graph = |text: &str| json!({"steps": [{"id": "a", "agent_id": "echo", "task_description": text}]});
    let run = without_keys(&ground, async |client| {
        for asked in [
            json!({"apply_agents": {"agents": [agent("writer"), agent("gone")]}}),
            json!({"delete_agent": {"agent_id": "gone"}}),
            json!({"put_graph": {"name": "facts", "graph": graph("first")}}),
            json!({"put_graph": {"name": "facts", "graph": graph("second")}}),
            json!({"put_schedule": {"schedule": {"name": "nightly", "cron": "@every 366d", "task": {"goal": "go"}}}}),
            json!({"run_schedule": {"name": "nightly", "id": "now"}}),
        ] {
            let answer = query(client, asked.clone()).await;
            assert!(!matches!(answer, QueryAnswer::Refused(_)), "{asked}: {answer:?}");
        }
        asking(client).await
    })
    .await;
    let parse = |keys: &[&str]| Keys::parse(&keys.join("\n")).unwrap();
    let lenient = Some(parse(&KEYS[..1]).accepting_unsigned());
    let rounds = [
        (lenient, 0),
        (Some(parse(&KEYS[..1])), 0),
        (Some(parse(&[KEYS[1], KEYS[0]])), 1),
        (Some(parse(&KEYS[1..2])), 1),
        (Some(parse(&[KEYS[2], KEYS[1]])), 2),
        (Some(parse(&KEYS[2..])), 2),
    ];
    let last = rounds.len() - 1;
    for (number, (keys, first)) in rounds.into_iter().enumerate() {
        let cluster = ground.start(coordinator::Config { keys, ..config() });
        let signer = parse(&[KEYS[first]]).signing().id().to_owned();
        let strict = ground.bus.clone().with_keys(parse(&[KEYS[first]]));
        eventually("all messages are signed with the first key", async || {
            let subjects = [
                Subject::Profile("writer".parse().unwrap()),
                Subject::Profile("gone".parse().unwrap()),
                Subject::Schedule("nightly".parse().unwrap()),
                Subject::Ticks("nightly".parse().unwrap()),
            ];
            let mut are_signed = strict.read(&Filter::AllKept).await.unwrap().len() == 2;
            for subject in subjects {
                let filter = Filter::One(subject);
                let stored = ground.bus.last(&filter).await.unwrap();
                are_signed &= stored.is_some() && strict.last(&filter).await.unwrap() == stored;
            }
            let seal = ground.store.fields(&[run], &["seal"]).await.unwrap().remove(0);
            let profiles = ground.store.agents().await.unwrap().profiles;
            are_signed
                && seal.get("seal").is_some_and(|seal| seal.starts_with(&signer))
                && profiles.len() == 2
                && profiles.values().all(|text| text.starts_with(&signer))
        })
        .await;
        let client = &cluster.client;
        client.run(json!({"goal": "is anybody there?", "agent_id": "writer"})).await;
        let shown =
            async |asked: Value| serde_json::to_value(query(client, asked).await).unwrap().to_string();
        let gone = shown(json!({"agent": {"agent_id": "gone"}})).await;
        assert!(
            gone.contains("deleted") || gone.contains("unknown") || gone.contains("no agent"),
            "{number}: {gone}"
        );
        for (version, text) in [(1, "first"), (2, "second")] {
            let graph = shown(json!({"graph": {"name": "facts", "version": version}})).await;
            assert!(graph.contains(text), "{number}: {graph}");
        }
        let schedule = shown(json!({"schedule": {"name": "nightly"}})).await;
        assert!(schedule.contains("366d") && schedule.contains("\"runs\":1"), "{number}: {schedule}");
        if number == last {
            assert_eq!(answered(client, run).await, ONE);
            checker::check(client, &cluster.store, &[]).await;
        }
        cluster.stop_with_refusals().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_unchanged_data_outlives_the_keys_that_signed_it() {
    everything_outlives_its_key(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_unchanged_data_on_servers_outlives_the_keys_that_signed_it() {
    everything_outlives_its_key(Ground::on_servers().await).await;
}

/// proves: a list in the store that names a live run among the ended ones removes nothing of the
/// run.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_live_run_that_is_listed_as_ended_keeps_its_journal() {
    let ground = Ground::on_servers().await;
    let retention = std::time::Duration::from_secs(1);
    let cluster = ground.start(coordinator::Config { retention, ..config() });
    let run = asking(&cluster.client).await;
    let journal = Filter::HistoriesOf(run);
    cluster
        .client
        .publish(
            Subject::History(domain::PoolName::default_pool(), run, "root".parse().unwrap()),
            &json!({"step": 1}),
        )
        .await;
    ground.list_as_ended(run).await;
    eventually("the run is checked, and postponed", async || ground.ended_score(run).await > 1).await;
    assert_eq!(ground.bus.read(&journal).await.unwrap().len(), 1);
    ground.bus.purge(&journal).await.unwrap();
    assert_eq!(answered(&cluster.client, run).await, ONE);
    cluster.stop().await;
}

/// proves: an authentic run with a forged outbox can still be queried.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_run_with_a_forged_outbox_is_still_shown() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let run = asking(&cluster.client).await;
    let version = record(&ground, run).await.version;
    let outbox = Some((OutboxKey { version: 1, made: 7 }, "{}".to_owned()));
    let write = Write { outbox, timer: None, ..plain(run, version) };
    assert!(matches!(ground.store.commit(&[write]).await.unwrap()[..], [CommitOutcome::Done { .. }]));
    let snapshot = query(&cluster.client, json!({"snapshot": {"trace_id": run}})).await;
    assert!(matches!(snapshot, QueryAnswer::Snapshot { state: Some(_) }), "{snapshot:?}");
    cluster.stop_with_refusals().await;
}

/// proves: the messages of a removed run, stored again by a stranger, create no run once they are
/// older than the log's retention. A run that only the store has lost is rebuilt from the same
/// messages.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_removed_run_does_not_begin_again_by_messages_that_are_stored_again() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let run = asking(&cluster.client).await;
    cluster.stop().await;
    let kept = ground.bus.read(&Filter::EventsOf(run)).await.unwrap();
    let age = std::time::Duration::from_secs(2);
    tokio::time::sleep(age).await;
    for (keep_logs, is_there) in [(age, false), (config().topology.keep_logs, true)] {
        let ground = Ground::in_memory();
        for stored in &kept {
            let StoredMessage { subject, id, headers, payload, .. } = stored.clone();
            ground.bus.publish(Outgoing { subject, id, headers, payload, expect_last: None }).await.unwrap();
        }
        let mut config = config();
        config.topology.keep_logs = keep_logs;
        let cluster = ground.start(config);
        let client = &cluster.client;
        client.run(json!({"goal": "is anybody there?"})).await;
        let told = json!({"tell": {"trace_id": run, "told": {"child_id": "root", "id": "m1", "text": "are you there?"}}});
        let answer = query(client, told).await;
        let refused = matches!(&answer, QueryAnswer::Refused(refusal) if refusal.code == "no_trace");
        assert_eq!((refused, ground.has(run).await), (!is_there, is_there), "{keep_logs:?}: {answer:?}");
        cluster.stop().await;
    }
}

/// proves: a deleted run leaves no content in its log, not even in unauthentic messages.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_deleted_run_leaves_no_content_that_is_not_authentic() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let client = &cluster.client;
    let run = client.accepted(json!({"goal": "a private goal", "child_id": "root"})).await.trace_id;
    client.outcome(run, &"root".parse().unwrap()).await;
    let event = json!({"type": "forged", "goal": "a private goal"});
    ground.bus.publish(forged(&ground.bus, run, event).await).await.unwrap();
    let logged = async || {
        let log = ground.bus.read(&Filter::EventsOf(run)).await.unwrap();
        log.iter().any(|stored| String::from_utf8_lossy(&stored.payload).contains("a private goal"))
    };
    assert!(logged().await);
    client
        .publish(
            Subject::Admin(Action::Delete),
            &json!({"trace_id": run, "delete": {"force": true, "outside": "unknown"}}),
        )
        .await;
    eventually("all of its data is deleted", async || !logged().await).await;
    cluster.stop_with_refusals().await;
}

/// proves: a deployment with live runs begins to use a key, changes to the next, and drops the
/// first: no run is affected.
#[tokio::test(flavor = "multi_thread")]
async fn s3_a_deployment_with_live_runs_begins_to_use_a_key_and_rotates_it() {
    const LATER: &str = "0202020202020202020202020202020202020202020202020202020202020202";
    let ground = Ground::in_memory();
    let with = |keys: Option<Keys>| {
        let config = coordinator::Config { keys, ..config() };
        ground.start(config)
    };
    let three = async |client: &Client| [asking(client).await, asking(client).await, asking(client).await];
    let runs = without_keys(&ground, three).await;

    let cluster = with(lenient_keys());
    assert_eq!(answered(&cluster.client, runs[0]).await, ONE);
    let live = asking(&cluster.client).await;
    eventually("waiting messages are signed", async || {
        let fields = ground.store.fields(&runs[1..], &["seal"]).await.unwrap();
        fields.iter().all(|fields| fields.contains_key("seal"))
    })
    .await;
    cluster.stop().await;
    let rotated = || Keys::parse(&format!("{LATER}\n{KEY}")).unwrap();
    let cluster = with(Some(rotated().accepting_unsigned()));
    assert_eq!(answered(&cluster.client, runs[1]).await, ONE);
    cluster.stop().await;
    let cluster = with(Some(rotated()));
    assert_eq!(answered(&cluster.client, live).await, ONE);
    let later = asking(&cluster.client).await;
    let signer = rotated().signing().id().to_owned();
    eventually("waiting messages are signed with the first key", async || {
        let fields = ground.store.fields(&runs[2..], &["seal"]).await.unwrap();
        fields.iter().all(|fields| fields.get("seal").is_some_and(|seal| seal.starts_with(&signer)))
    })
    .await;
    // The record of the policy that was stored without a key is refused, and stored anew.
    cluster.stop_with_refusals().await;
    let cluster = with(Some(Keys::parse(LATER).unwrap()));
    assert_eq!(answered(&cluster.client, later).await, ONE);
    // This run was signed again while it waited.
    assert_eq!(answered(&cluster.client, runs[2]).await, ONE);
    cluster.stop().await;
}
