//! Finding runs (G17) over the bus: every filter against a naive one on ten thousand runs; pages
//! while runs arrive; the index after a rebuild and after the end of a retention.

use std::time::Duration;

use bus::RequestError;
use coordinator::store::{Find, Replaces, Store, Write};
use domain::{
    TraceId,
    span::Headers,
    subject::{Subject, Topic},
    wire::{QueryAnswer, RunSummary, RunsQuery},
};
use serde_json::{Value, json};
use trace::Trace;
use trellis_tests::{
    cluster::{Client, Cluster, SOON, eventually, lenient_keys, name},
    subjects::query_of,
};
use world::{World, cents};

use super::ground::{Ground, config, query};

/// A run in one of many states.
fn run(number: u64) -> World {
    let mut world = World::new();
    world.trace = Trace::new(
        TraceId::from_u128(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
            .unwrap(),
    );
    world.now = domain::Timestamp::from_millis(1_700_000_000_000 + number / 3);
    let agent = ["default", "writer", "critic"][(number % 3) as usize];
    let mut spawn = json!({"goal": "g", "child_id": "root", "agent_id": agent, "labels": {"n": format!("{}", number % 11)}});
    if number.is_multiple_of(5) {
        spawn["thread_id"] = json!(format!("t{}", number % 20));
    }
    if number.is_multiple_of(1000) {
        spawn["labels"]["rare"] = json!("yes");
    }
    world.submit(spawn).unwrap();
    if !number.is_multiple_of(4) {
        let lease = world.claim("root");
        world.pay(&lease, "c", cents(number % 50)).unwrap();
        match number % 4 {
            1 => world.complete(&lease, "done").map(drop).unwrap(),
            2 if number % 8 == 2 => world.ask_human(&lease, "Which?").map(drop).unwrap(),
            2 => {}
            _ => world.cancel(None).map(drop).unwrap(),
        }
    }
    world
}

async fn put(ground: &Ground, worlds: impl Iterator<Item = World>) {
    let mut writes = Vec::new();
    for mut world in worlds {
        let changes = world.trace.take_changes();
        writes.push(Write {
            trace_id: world.trace.id(),
            expected: 0,
            stamp: None,
            version: 1,
            replaces: Replaces::Nothing,
            fields: changes.fields,
            values: changes.values,
            outbox: None,
            cleared: Vec::new(),
            timer: None,
            keeps_earlier_timer: false,
            ended_at: None,
            opened_at: world.trace.root().map(|root| root.identity.started_at),
            profiles: None,
            index: changes.index,
        });
    }
    ground.store.commit(&writes).await.unwrap();
}

/// One page, and the start of the next one.
async fn page(client: &Client, asked: &Value) -> (Vec<RunSummary>, Option<String>) {
    let answer = query(client, json!({"runs": asked})).await;
    let QueryAnswer::Runs { runs, next, .. } = answer else { panic!("{answer:?}") };
    (runs, next.map(|next| next.to_string()))
}

/// All pages.
async fn all(client: &Client, mut asked: Value, limit: u32) -> Vec<RunSummary> {
    asked["limit"] = json!(limit);
    let mut found = Vec::new();
    loop {
        let (runs, next) = page(client, &asked).await;
        assert!(runs.len() <= limit as usize);
        found.extend(runs);
        let Some(next) = next else { return found };
        asked["after"] = json!(next);
    }
}

/// proves: the index against `RunsQuery::matches` on every run. A missing term would lose runs
/// silently.
#[tokio::test(flavor = "multi_thread")]
async fn g17_every_filter_finds_of_ten_thousand_runs_what_a_naive_one_finds() {
    let ground = Ground::in_memory();
    put(&ground, (1..=10_000).map(run)).await;
    let cluster = start(&ground, config()).await;
    let client = &cluster.client;
    let everything = all(client, json!({}), 500).await;
    assert_eq!(everything.len(), 10_000);
    let order: Vec<_> = everything.iter().map(|run| (run.started_at, run.trace_id)).collect();
    assert!(order.windows(2).all(|two| two[0] > two[1]), "newest first, each once");
    let middle = everything[5_000].started_at;
    let one = everything[77].trace_id.to_string();
    let filters = [
        json!({"labels": {"n": "7"}}),
        json!({"labels": {"n": "7", "rare": "yes"}}),
        json!({"labels": {"n": "none"}}),
        json!({"thread_id": "t15"}),
        json!({"status": ["completed"]}),
        json!({"status": ["submitted", "cancelled", "input_required"]}),
        json!({"agent_id": "critic"}),
        json!({"waiting_for_human": true}),
        json!({"waiting_for_human": false, "agent_id": "writer"}),
        json!({"min_cost_usd": 0.30}),
        json!({"min_cost_usd": 0.10, "max_cost_usd": 0.12, "status": ["working", "completed"]}),
        json!({"max_cost_usd": 0}),
        json!({"since": middle}),
        json!({"until": middle, "labels": {"rare": "yes"}}),
        json!({"since": middle.millis() - 100, "until": middle.millis() + 100, "agent_id": "default"}),
        json!({"agent_id": "writer", "thread_id": "t5", "status": ["completed", "working"], "labels": {"n": "3"}}),
        json!({"prefix": &one[..5]}),
        json!({"prefix": one}),
    ];
    let mut empty = 0;
    for filter in filters {
        let asked: RunsQuery = serde_json::from_value(filter.clone()).unwrap();
        let naive: Vec<TraceId> =
            everything.iter().filter(|run| asked.matches(run)).map(|run| run.trace_id).collect();
        let found: Vec<TraceId> =
            all(client, filter.clone(), 500).await.iter().map(|run| run.trace_id).collect();
        assert!(found == naive, "{filter}: {} runs, not {}", found.len(), naive.len());
        let (first, next) = page(
            client,
            &json!({"limit": 3})
                .as_object()
                .map(|limit| {
                    let mut first = filter.clone();
                    first.as_object_mut().unwrap().extend(limit.clone());
                    first
                })
                .unwrap(),
        )
        .await;
        assert_eq!(
            first.iter().map(|run| run.trace_id).collect::<Vec<_>>(),
            naive[..naive.len().min(3)],
            "{filter}"
        );
        assert_eq!(next.is_some(), naive.len() > 3, "{filter}: a next page has runs");
        empty += usize::from(naive.is_empty());
    }
    assert_eq!(empty, 1, "not exactly one filter finds no run");
    let answer = query(client, json!({"runs": {"labels": {"n": "none"}}})).await;
    let QueryAnswer::Runs { unfiltered, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(unfiltered, Some(10_000));
    cluster.stop().await;
}

/// proves: `page` continues after the last run, regardless of newer ones.
#[tokio::test(flavor = "multi_thread")]
async fn g17_pages_stay_as_they_are_while_runs_arrive() {
    let ground = Ground::in_memory();
    put(&ground, (1..=100).map(run)).await;
    let cluster = start(&ground, config()).await;
    let before = all(&cluster.client, json!({}), 500).await;
    let (mut asked, mut found, mut arrived) = (json!({"limit": 9}), Vec::new(), 100);
    loop {
        let (runs, next) = page(&cluster.client, &asked).await;
        found.extend(runs);
        put(&ground, (arrived + 1..=arrived + 5).map(run)).await;
        arrived += 5;
        let Some(next) = next else { break };
        asked["after"] = json!(next);
    }
    assert_eq!(found, before);
    cluster.stop().await;
}

/// An ended run and a run that asks, both with a label.
async fn two_runs(client: &Client) -> (TraceId, TraceId) {
    let ended = client.run(json!({"goal": "done?", "labels": {"team": "a"}})).await.trace_id;
    let asking = client.accepted(json!({"goal": "which?", "agent_id": "ask", "labels": {"team": "a"}})).await;
    let asking = asking.trace_id;
    eventually("the run is found as a waiting one", async || {
        found(client, json!({"waiting_for_human": true})).await == [asking]
    })
    .await;
    (ended, asking)
}

/// Starts a coordinator and a worker, and waits until a coordinator answers.
async fn start(ground: &Ground, config: coordinator::Config) -> Cluster {
    start_on(ground, ground.store.clone(), config).await
}

async fn start_on(ground: &Ground, store: Store, config: coordinator::Config) -> Cluster {
    // These runs were put into the store without a code.
    let config = coordinator::Config { keys: lenient_keys(), ..config };
    let (bus, worker) = (ground.bus.clone(), worker::Config::new(name("worker")));
    let cluster = Cluster::start(bus.clone(), store, vec![config], vec![worker]);
    eventually("a coordinator answers", async || {
        let asked = bus
            .request(&Subject::Query(Topic::Coordinators), &Headers::new(), "\"coordinators\"".into(), SOON)
            .await;
        !matches!(asked, Err(RequestError::NoResponders))
    })
    .await;
    cluster
}

async fn found(client: &Client, asked: Value) -> Vec<TraceId> {
    page(client, &asked).await.0.iter().map(|run| run.trace_id).collect()
}

/// proves: a rebuilt trace is listed again. Without `mark_all_changed` of the index it would not be
/// found any more.
#[tokio::test(flavor = "multi_thread")]
async fn g17_a_store_that_lost_everything_lists_its_rebuilt_runs_again() {
    let ground = Ground::in_memory();
    let cluster = start(&ground, config()).await;
    let (ended, asking) = two_runs(&cluster.client).await;
    cluster.stop().await;
    let cluster = start_on(&ground, Ground::in_memory().store, config()).await;
    eventually("both runs are listed again", async || {
        found(&cluster.client, json!({"labels": {"team": "a"}})).await == [asking, ended]
    })
    .await;
    assert_eq!(found(&cluster.client, json!({"status": ["completed"]})).await, [ended]);
    assert_eq!(found(&cluster.client, json!({"waiting_for_human": true})).await, [asking]);
    assert_eq!(found(&cluster.client, json!({"prefix": &ended.to_string()[..8]})).await, [ended]);
    cluster.stop().await;
}

/// proves: `remove.lua` removes the entries with the run.
async fn g17_the_entries_of_a_run_go_with_its_retention(ground: Ground) {
    let cluster = start(&ground, config()).await;
    let (ended, asking) = two_runs(&cluster.client).await;
    assert_eq!(found(&cluster.client, json!({"labels": {"team": "a"}})).await, [asking, ended]);
    cluster.stop().await;
    let cluster =
        start(&ground, coordinator::Config { retention: Duration::from_millis(1), ..config() }).await;
    eventually("its state is removed", async || !ground.has(ended).await).await;
    for filter in
        [json!({}), json!({"labels": {"team": "a"}}), json!({"min_cost_usd": 0}), json!({"since": 0})]
    {
        assert_eq!(found(&cluster.client, filter).await, [asking]);
    }
    let term = Find { terms: vec![vec!["status:completed".into()]], ..Find::newest(9) };
    assert_eq!(ground.store.find(&term).await.unwrap(), []);
    assert_eq!(ground.store.with_prefix(&ended.to_string(), 9).await.unwrap(), []);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g17_the_entries_of_a_run_go_with_its_retention_in_memory() {
    g17_the_entries_of_a_run_go_with_its_retention(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g17_the_entries_of_a_run_go_with_its_retention_on_servers() {
    g17_the_entries_of_a_run_go_with_its_retention(Ground::on_servers().await).await;
}

/// proves: open questions come from the waiting runs, with the asking context and the time.
#[tokio::test(flavor = "multi_thread")]
async fn g17_pending_lists_the_open_questions_of_all_runs_in_pages() {
    let ground = Ground::in_memory();
    let cluster = start(&ground, config()).await;
    let client = &cluster.client;
    let mut asking = Vec::new();
    for number in 0..3 {
        asking.push(
            client.accepted(json!({"goal": format!("which {number}?"), "agent_id": "ask"})).await.trace_id,
        );
    }
    client.run(json!({"goal": "nothing to ask"})).await;
    let pending = async |asked: Value| {
        let answer = query(client, json!({"pending": asked})).await;
        let QueryAnswer::Pending { questions, next, left_out: 0 } = answer else { panic!("{answer:?}") };
        (questions, next)
    };
    eventually("all agents ask their questions", async || pending(json!({})).await.0.len() == 3).await;
    let (first, next) = pending(json!({"limit": 2})).await;
    let (rest, end) = pending(json!({"limit": 2, "after": next.unwrap()})).await;
    assert_eq!((first.len(), rest.len(), end), (2, 1, None));
    let mut listed: Vec<TraceId> =
        first.iter().chain(&rest).map(|pending| pending.question.trace_id).collect();
    assert!(first.iter().all(|pending| pending.question.number == 1 && pending.question.path.len() == 1));
    assert!(first.iter().all(|pending| pending.asked_at.millis() > 0));
    listed.sort_unstable();
    asking.sort_unstable();
    assert_eq!(listed, asking);
    client
        .publish(
            Subject::Input,
            &json!({"trace_id": asking[0], "answered": {"child_id": "root", "question": 1, "answer": "this"}}),
        )
        .await;
    eventually("one question is answered", async || pending(json!({})).await.0.len() == 2).await;
    cluster.stop().await;
}

#[derive(Debug)]
struct SlowLoads;

impl host::simulated_network::Link for SlowLoads {
    fn carry(&self, what: host::simulated_network::Crossing<'_>, arrive: host::simulated_network::Arrive) {
        let is_load = what == host::simulated_network::Crossing::ToStore("load traces");
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(if is_load { 100 } else { 0 })).await;
            arrive();
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g17_a_slow_query_keeps_no_submission_waiting() {
    let ground = Ground::in_memory();
    // `run` asks a human for these numbers.
    put(&ground, (1..=100).map(|n| run(8 * n + 2))).await;
    let Store::Memory(memory) = ground.store.clone() else { panic!() };
    let slow = Store::Memory(memory.behind(std::sync::Arc::new(SlowLoads)));
    let cluster = start_on(&ground, slow, config()).await;
    let bus = ground.bus.clone();
    let pending = tokio::spawn({
        let bus = bus.clone();
        async move {
            let asked = r#"{"pending": {"limit": 100}}"#;
            bus.request(&query_of(&asked), &Headers::new(), asked.into(), Duration::from_secs(60)).await
        }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let submit = r#"{"goal": "x"}"#;
    let answer = bus.request(&Subject::Submit, &Headers::new(), submit.into(), Duration::from_secs(2)).await;
    assert!(answer.is_ok(), "a submission waited for a query: {answer:?}");
    pending.await.unwrap().unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g17_the_forms_of_questions_count_towards_the_size_of_an_answer() {
    let ground = Ground::in_memory();
    let cluster = start(&ground, config()).await;
    let choices: Vec<String> = (0..8).map(|n| format!("{n:03}{}", "c".repeat(990))).collect();
    let items: Vec<u32> = (0..20).collect();
    let ask = json!({"id": "ok", "approve": {"who": "w", "choices": choices}, "for_each": "items"});
    let steps = json!([{"id": "all", "for_each": "items", "steps": [ask]}]);
    cluster.client.accepted(json!({"inputs": {"items": items}, "steps": steps})).await;
    eventually("all agents ask their questions", async || {
        let QueryAnswer::Pending { questions, left_out, .. } =
            query(&cluster.client, json!({"pending": {}})).await
        else {
            panic!()
        };
        questions.len() + left_out as usize == 400
    })
    .await;
    let asked = r#"{"pending": {}}"#;
    let answer = ground.bus.request(&query_of(&asked), &Headers::new(), asked.into(), SOON).await.unwrap();
    assert!(answer.len() < 2 << 20, "{} bytes", answer.len());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g17_an_answer_about_a_prefix_has_about_a_mebibyte() {
    let ground = Ground::in_memory();
    let begins_alike = |n: u128| {
        let mut world = World::new();
        world.trace = Trace::new(TraceId::from_u128((0xabcd_u128 << 112) + n + 1).unwrap());
        world.submit(json!({"goal": "g".repeat(60_000), "child_id": "root"})).unwrap();
        world
    };
    put(&ground, (0..500).map(begins_alike)).await;
    let cluster = start(&ground, config()).await;
    let asked = r#"{"runs": {"prefix": "abcd", "limit": 500}}"#;
    let answer = ground.bus.request(&query_of(&asked), &Headers::new(), asked.into(), SOON).await.unwrap();
    assert!(answer.len() < 2 << 20, "{} bytes", answer.len());
    cluster.stop().await;
}
