//! Graphs that are stored under names and used by name (G18) on whole clusters: in memory and on
//! servers.

use std::time::Duration;

use coordinator::store::{self, Store};
use domain::{
    TraceId,
    span::Headers,
    subject::{Action, Filter, Subject},
    wire::{EndStatus, GraphShown, Outcome, QueryAnswer, Refusal, SubmitAnswer, TickOutcome},
};
use serde_json::{Value, json};
use trellis_tests::cluster::{Client, Cluster, SOON, eventually, name, signed};

use super::ground::{Ground, config, query};

fn two_coordinators(ground: &Ground) -> Cluster {
    let both = ["one", "other"].map(|id| coordinator::Config { id: name(id), ..config() });
    let worker = worker::Config::new(name("worker"));
    Cluster::start(ground.bus.clone(), ground.store.clone(), both.into(), vec![worker])
}

/// Waits until a coordinator answers.
async fn up(cluster: &Cluster) {
    cluster.client.run(json!({"goal": "is anybody there?"})).await;
}

fn facts(task: &str) -> Value {
    json!({
        "input_schema": {"required": ["topic"], "properties": {"topic": {"type": "string"}}}, "output": "found",
        "steps": [{"id": "find", "agent_id": "echo", "task_description": task, "input_from": ["topic"], "output_to": "found"}],
    })
}

/// A graph that waits for a human before it uses another.
fn user(reference: &str) -> Value {
    json!({"child_id": "root", "inputs": {"subject": "ants"}, "steps": [
        {"id": "begin", "approve": {"who": "anybody"}},
        {"id": "first", "use": reference, "with": {"topic": "subject"}, "output_to": "about"},
    ]})
}

fn at_once(reference: &str) -> Value {
    json!({"child_id": "root", "inputs": {"subject": "ants"}, "steps": [
        {"id": "first", "use": reference, "with": {"topic": "subject"}, "output_to": "about"}]})
}

async fn put(client: &Client, name: &str, graph: &Value) -> (u64, bool) {
    match query(client, json!({"put_graph": {"name": name, "graph": graph}})).await {
        QueryAnswer::GraphKept { version, unchanged, .. } => (version, unchanged),
        answer => panic!("{answer:?}"),
    }
}

async fn refusal(client: &Client, asked: Value) -> Refusal {
    match query(client, asked).await {
        QueryAnswer::Refused(refusal) => refusal,
        answer => panic!("{answer:?}"),
    }
}

async fn show(client: &Client, asked: Value) -> GraphShown {
    match query(client, json!({"graph": asked})).await {
        QueryAnswer::Graph(shown) => *shown,
        answer => panic!("{answer:?}"),
    }
}

async fn not_taken(client: &Client, message: Value) -> Refusal {
    match client.submit(message).await {
        SubmitAnswer::Refused(refusal) => refusal,
        SubmitAnswer::Accepted(accepted) => panic!("{accepted:?}"),
    }
}

/// The name and version of the last step's graph, and its output.
fn used(outcome: &Outcome) -> (Option<String>, Value) {
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let step = outcome.graph.as_ref().unwrap().steps.last().unwrap();
    (step.uses.as_ref().map(ToString::to_string), outcome.outputs["about"].value().clone())
}

async fn approve(client: &Client, trace_id: TraceId) -> Outcome {
    let answered = json!({"child_id": "begin", "question": 1, "answer": "approve"});
    let answer = json!({"answer": {"trace_id": trace_id, "answered": answered}});
    eventually("the submission is answered", async || {
        matches!(query(client, answer.clone()).await, QueryAnswer::Answered { .. })
    })
    .await;
    client.outcome(trace_id, &"root".parse().unwrap()).await
}

/// proves: versions are numbered from one, also across a deletion and on any coordinator; putting
/// an equal graph changes nothing; and a missing version is refused with the existing ones.
async fn changes_are_answered(ground: Ground) {
    let cluster = two_coordinators(&ground);
    let client = &cluster.client;
    up(&cluster).await;
    assert_eq!(put(client, "facts", &facts("one")).await, (1, false));
    for _ in 0..4 {
        assert_eq!(put(client, "facts", &facts("one")).await, (1, true));
    }
    assert_eq!(put(client, "facts", &facts("two")).await, (2, false));
    assert_eq!(
        put(client, "facts", &facts("one")).await,
        (3, false),
        "an earlier graph again is a new version"
    );
    assert_eq!(put(client, "other", &facts("one")).await, (1, false));

    let shown = show(client, json!({"name": "facts", "version": 2})).await;
    assert_eq!((shown.summary.version, shown.versions), (2, vec![3, 2, 1]));
    assert_eq!(shown.summary.needs, ["topic"]);
    assert_eq!(shown.graph.value()["steps"][0]["task_description"], json!("two"));
    let page = query(client, json!({"graphs": {"limit": 1}})).await;
    let QueryAnswer::Graphs { graphs, next } = page else { panic!("{page:?}") };
    let next = next.as_ref().map(|next| next.as_str());
    assert_eq!((graphs[0].name.as_str(), graphs[0].version, next), ("facts", 3, Some("facts")));
    let page = query(client, json!({"graphs": {"after": "facts"}})).await;
    let QueryAnswer::Graphs { graphs, next: None } = page else { panic!("{page:?}") };
    assert_eq!(graphs.iter().map(|graph| graph.name.as_str()).collect::<Vec<_>>(), ["other"]);

    for _ in 0..4 {
        assert_eq!(used(&client.run(at_once("facts")).await), (Some("facts@3".into()), json!("one")));
        assert_eq!(used(&client.run(at_once("facts@2")).await), (Some("facts@2".into()), json!("two")));
    }
    let refused = not_taken(client, at_once("fatcs")).await.to_text();
    assert!(refused.contains("steps[0].use: there is no graph `fatcs`"), "{refused}");
    assert!(refused.contains("did you mean `facts`?"), "{refused}");
    let refused = not_taken(client, at_once("facts@7")).await.to_text();
    assert!(refused.contains("there is no version 7 of the graph `facts`"), "{refused}");
    assert!(refused.contains("the versions that are kept: 3, 2, 1"), "{refused}");

    // A graph that uses graphs stores the versions that it was put with.
    let outer = json!({"inputs": {"subject": "bees"}, "output": "about", "steps": [
        {"id": "in", "use": "facts", "with": {"topic": "subject"}, "output_to": "about"}]});
    assert_eq!(put(client, "outer", &outer).await, (1, false));
    assert_eq!(put(client, "outer", &outer).await, (1, true));
    assert_eq!(show(client, json!({"name": "outer"})).await.summary.uses, ["facts@3"]);
    put(client, "facts", &facts("four")).await;
    assert_eq!(used(&client.run(at_once_of_outer()).await), (Some("outer@1".into()), json!("one")));
    assert_eq!(put(client, "outer", &outer).await, (2, false), "the name now means another version");
    assert_eq!(used(&client.run(at_once_of_outer()).await), (Some("outer@2".into()), json!("four")));
    let circle = json!({"steps": [{"id": "in", "use": "outer"}]});
    let refused = refusal(client, json!({"put_graph": {"name": "facts", "graph": circle}})).await.to_text();
    assert!(
        refused.contains("steps[0].use: the graphs use each other: facts → outer@2 → facts@4"),
        "{refused}"
    );

    // A deleted graph loses all its versions, and their numbers are not used again. A graph or run
    // that already uses it keeps it.
    let deleted = query(client, json!({"delete_graph": {"name": "facts"}})).await;
    assert!(matches!(deleted, QueryAnswer::GraphDeleted { .. }), "{deleted:?}");
    for _ in 0..3 {
        assert_eq!(query(client, json!({"delete_graph": {"name": "facts"}})).await, deleted);
    }
    for gone in ["facts", "facts@2", "facts@4"] {
        let refused = not_taken(client, at_once(gone)).await.to_text();
        assert!(refused.contains("the graph `facts` was deleted at "), "{refused}");
    }
    for asked in [json!({"graph": {"name": "facts"}}), json!({"graph": {"name": "facts", "version": 2}})] {
        assert!(refusal(client, asked).await.to_text().contains("was deleted at"));
    }
    let refused = refusal(client, json!({"delete_graph": {"name": "never"}})).await.to_text();
    assert!(refused.contains("there is no graph `never`"), "{refused}");
    assert_eq!(used(&client.run(at_once_of_outer()).await), (Some("outer@2".into()), json!("four")));
    assert_eq!(put(client, "facts", &facts("one")).await, (6, false), "the deletion was version 5");
    let refused = not_taken(client, at_once("facts@4")).await.to_text();
    assert!(refused.contains("the versions that are kept: 6"), "{refused}");
    let deep = (0..100).fold(json!(1), |value, _| json!([value]));
    let refused = refusal(
        client,
        json!({"put_graph": {"name": "deep", "graph": {"inputs": {"a": deep}, "steps": [
        {"id": "s", "agent_id": "echo", "task_description": "t"}]}}}),
    )
    .await
    .to_text();
    assert!(refused.contains("nests deeper than the 64 levels allowed"), "{refused}");
    assert_eq!(used(&client.run(at_once("facts")).await), (Some("facts@6".into()), json!("one")));
    let kept = ground.bus.read(&Filter::One(Subject::Kept("facts".parse().unwrap()))).await.unwrap();
    assert_eq!(kept.len(), 2, "the deletion and the later version remain");
    cluster.stop().await;
}

fn at_once_of_outer() -> Value {
    json!({"child_id": "root", "steps": [{"id": "first", "use": "outer", "output_to": "about"}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_changes_of_kept_graphs_are_answered_in_memory() {
    changes_are_answered(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_changes_of_kept_graphs_are_answered_on_servers() {
    changes_are_answered(Ground::on_servers().await).await;
}

/// proves: coordinators that put concurrently never give two graphs the same number, and one graph
/// that is put many times concurrently gets one version. No more than 64 versions are stored.
async fn many_at_once(ground: Ground) {
    let cluster = two_coordinators(&ground);
    let client = &cluster.client;
    up(&cluster).await;
    let graphs: Vec<Value> = (0..8).map(|number| facts(&format!("task {number}"))).collect();
    let puts = futures_util::future::join_all(graphs.iter().map(|graph| put(client, "busy", graph))).await;
    let mut versions: Vec<u64> = puts.iter().map(|(version, _)| *version).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=8).collect::<Vec<_>>());
    for (graph, (version, _)) in graphs.iter().zip(&puts) {
        let shown = show(client, json!({"name": "busy", "version": version})).await;
        assert_eq!(
            shown.graph.value()["steps"][0]["task_description"],
            graph["steps"][0]["task_description"]
        );
    }
    let same = facts("the same");
    let puts = futures_util::future::join_all((0..8).map(|_| put(client, "calm", &same))).await;
    assert!(puts.iter().all(|(version, _)| *version == 1), "{puts:?}");
    assert_eq!(puts.iter().filter(|(_, unchanged)| !unchanged).count(), 1, "{puts:?}");
    for number in 9..=70 {
        assert_eq!(put(client, "busy", &facts(&format!("task {number}"))).await, (number, false));
    }
    let shown = show(client, json!({"name": "busy"})).await;
    assert_eq!((shown.versions.len(), shown.versions.last()), (64, Some(&7)));
    let refused = not_taken(client, at_once("busy@6")).await.to_text();
    assert!(
        refused.contains("the versions that are kept: 70, 69,") && refused.contains("down to 7"),
        "{refused}"
    );
    assert_eq!(used(&client.run(at_once("busy@7")).await).0, Some("busy@7".into()));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_many_puts_at_once_in_memory() {
    many_at_once(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_many_puts_at_once_on_servers() {
    many_at_once(Ground::on_servers().await).await;
}

/// proves: a run keeps the graphs it began with, across a later version, a deletion, a lost store,
/// and a second delivery of its submission; and so does its rerun.
#[tokio::test(flavor = "multi_thread")]
async fn g18_a_run_keeps_its_graphs_when_their_names_change() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let client = &cluster.client;
    up(&cluster).await;
    put(client, "facts", &facts("one")).await;
    let trace_id: TraceId = "ab".repeat(16).parse().unwrap();
    let mut message = user("facts");
    message["trace_id"] = json!(trace_id);
    client.publish(Subject::Graph, &message).await;
    eventually("the run is admitted", async || ground.has(trace_id).await).await;

    put(client, "facts", &facts("two")).await;
    let accepted = client.accepted(message.clone()).await;
    assert_eq!(accepted.trace_id, trace_id, "the same run");
    query(client, json!({"delete_graph": {"name": "facts"}})).await;
    assert_eq!(client.accepted(message.clone()).await, accepted, "the same run");
    client.publish(Subject::Graph, &message).await;
    message["steps"][1]["use"] = json!("facts@1");
    assert_eq!(not_taken(client, message.clone()).await.code, "conflict");

    let Store::Memory(memory) = &ground.store else { panic!("in memory") };
    memory.restore(store::Memory::new(config().topology.partitions).snapshot());
    let outcome = approve(client, trace_id).await;
    assert_eq!(used(&outcome), (Some("facts@1".into()), json!("one")));
    let dead = ground.bus.read(&Filter::One(Subject::Dead("graph".parse().unwrap()))).await.unwrap();
    assert!(dead.is_empty(), "the second delivery became a dead letter: {dead:?}");

    let again = json!({"rerun": {"trace_id": trace_id, "from": ["first"]}, "child_id": "root"});
    let again = client.accepted(again).await;
    let outcome = approve(client, again.trace_id).await;
    assert_eq!(used(&outcome), (Some("facts@1".into()), json!("one")));
    cluster.stop().await;
}

/// proves: an amend may use names, and a tick uses the latest version of its time.
#[tokio::test(flavor = "multi_thread")]
async fn g18_amends_and_schedules_use_names() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let client = &cluster.client;
    up(&cluster).await;
    put(client, "facts", &facts("one")).await;

    let run = client.accepted(user("facts")).await;
    put(client, "facts", &facts("two")).await;
    let mut wanted = serde_json::to_value(
        client.trace(run.trace_id).await.definition_of(&"root".parse().unwrap()).unwrap().2,
    )
    .unwrap();
    wanted["steps"][1]["use"] = json!("facts");
    wanted["steps"][1].as_object_mut().unwrap().retain(|field, _| field != "graph" && field != "latest");
    let amend =
        json!({"amend": {"trace_id": run.trace_id, "amend": {"id": "mine", "revision": 0, "graph": wanted}}});
    for _ in 0..2 {
        let answer = query(client, amend.clone()).await;
        assert!(matches!(answer, QueryAnswer::Amended { revision: 1, .. }), "{answer:?}");
        put(client, "facts", &facts("three")).await;
    }
    wanted["steps"][1]["use"] = json!("nobody");
    let wrong = json!({"amend": {"trace_id": run.trace_id, "amend": {"id": "other", "revision": 1, "graph": wanted}}});
    let refused = refusal(client, wrong).await.to_text();
    assert!(refused.contains("steps[1].use: there is no graph `nobody`"), "{refused}");
    assert_eq!(used(&approve(client, run.trace_id).await), (Some("facts@2".into()), json!("two")));

    let schedule = |reference: &str| {
        json!({"put_schedule": {"schedule": {"name": "often", "cron": "@every 1s",
        "overlap": "queue", "task": at_once(reference)}}})
    };
    let refused = refusal(client, schedule("fact")).await.to_text();
    assert!(refused.contains("task.steps[0].use: there is no graph `fact`"), "{refused}");
    assert!(refused.contains("did you mean `facts`?"), "{refused}");
    let kept = query(client, schedule("facts")).await;
    assert!(matches!(kept, QueryAnswer::ScheduleKept { .. }), "{kept:?}");
    let ticks = async || match query(client, json!({"schedule": {"name": "often"}})).await {
        QueryAnswer::Schedule(shown) => shown.ticks,
        answer => panic!("{answer:?}"),
    };
    let last = async |outcome: TickOutcome| {
        let ticks = ticks().await;
        ticks.iter().find(|tick| tick.record.outcome == outcome).map(|tick| tick.record.clone())
    };
    let ran = async |version: &str| {
        let Some(trace_id) = last(TickOutcome::Submitted).await.and_then(|tick| tick.trace_id) else {
            return false;
        };
        let trace = client.trace(trace_id).await;
        let outcome = trace.root().and_then(|root| trace.graph_outcome(root));
        outcome.is_some_and(|of| of.steps[0].uses.as_ref().is_some_and(|uses| uses.as_str() == version))
    };
    eventually("a tick uses the third version", async || ran("facts@3").await).await;
    put(client, "facts", &facts("four")).await;
    eventually("a tick uses the fourth", async || ran("facts@4").await).await;
    query(client, json!({"delete_graph": {"name": "facts"}})).await;
    let refused = async || {
        let refused = last(TickOutcome::Refused).await.and_then(|tick| tick.reason);
        refused.is_some_and(|reason| reason.contains("the graph `facts` was deleted at"))
    };
    eventually("a tick is refused, with the reason", refused).await;
    query(client, json!({"delete_schedule": {"name": "often"}})).await;
    cluster.stop().await;
}

/// proves: while the log can't be read, a request is answered as unavailable, and a published
/// submission waits until the log is readable.
#[tokio::test(flavor = "multi_thread")]
async fn g18_a_log_that_can_not_be_read_loses_nothing() {
    let ground = Ground::on_servers().await;
    let cluster = ground.start(config());
    let client = &cluster.client;
    up(&cluster).await;
    let raw = async_nats::jetstream::new(async_nats::connect(ground.nats_url()).await.unwrap());
    raw.delete_stream("AGENT_GRAPH").await.unwrap();
    assert_eq!(not_taken(client, at_once("facts")).await.code, Refusal::unavailable().code);
    for asked in [
        json!({"put_graph": {"name": "facts", "graph": facts("one")}}),
        json!({"graph": {"name": "facts"}}),
        json!({"graphs": {}}),
    ] {
        assert_eq!(refusal(client, asked).await.code, Refusal::unavailable().code);
    }
    let trace_id: TraceId = "cd".repeat(16).parse().unwrap();
    let mut message = at_once("facts");
    message["trace_id"] = json!(trace_id);
    client.publish(Subject::Graph, &message).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!ground.has(trace_id).await);
    ground.bus.set_up(&config().topology).await.unwrap();
    put(client, "facts", &facts("one")).await;
    let outcome = client.outcome(trace_id, &"root".parse().unwrap()).await;
    assert_eq!(used(&outcome), (Some("facts@1".into()), json!("one")));
    // A recreated log may have other graphs under the same numbers. The test itself writes one.
    raw.delete_stream("AGENT_GRAPH").await.unwrap();
    ground.bus.set_up(&config().topology).await.unwrap();
    let version = json!({"version": 1, "graph": facts("another")});
    Client { bus: signed(&ground.bus) }.publish(Subject::Kept("facts".parse().unwrap()), &version).await;
    assert_eq!(used(&client.run(at_once("facts@1")).await), (Some("facts@1".into()), json!("another")));
    cluster.stop().await;
}

/// proves: a submission that uses names writes nothing to their log, and all mistakes of a put
/// graph are reported at once, with their places.
#[tokio::test(flavor = "multi_thread")]
async fn g18_stored_graphs_are_checked_and_used_ones_are_only_read() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let client = &cluster.client;
    up(&cluster).await;
    put(client, "facts", &facts("one")).await;
    let end = ground.bus.end(&Filter::AllKept).await.unwrap();
    for _ in 0..20 {
        client.run(at_once("facts")).await;
    }
    assert_eq!(ground.bus.end(&Filter::AllKept).await.unwrap(), end);

    let wrong = json!({"trace_id": "ab".repeat(16), "labels": {"a": "b"}, "must_fit": true, "nonsense": 1, "steps": [
        {"id": "a", "use": "fact", "output_to": "x"},
        {"id": "b", "use": "facts@9"},
        {"id": "c", "use": "./facts.yaml"},
        {"id": "d", "use": "facts", "with": {"topic": {"value": 7}}},
        {"id": "d", "agent_id": "echo", "task_description": "t", "input_from": ["nowhere"], "when": "1 +"},
        {"id": "mine", "use": "mine"},
    ]});
    let refused = refusal(client, json!({"put_graph": {"name": "mine", "graph": wrong}})).await;
    insta::assert_snapshot!(refused.to_text());
    let large = json!({"steps": (0..8).map(|number| json!({"id": format!("s{number}"), "agent_id": "echo",
        "task_description": "x".repeat(40_000)})).collect::<Vec<_>>()});
    let refused = refusal(client, json!({"put_graph": {"name": "large", "graph": large}})).await.to_text();
    assert!(refused.contains("more than the 262144 allowed"), "{refused}");
    // Written by hand: a typed query can't contain such a name.
    let misnamed = json!({"put_graph": {"name": "a/b", "graph": facts("one")}}).to_string();
    let subject = Subject::Admin(Action::Graphs);
    let answer = client.bus.request(&subject, &Headers::new(), misnamed.into(), SOON).await.unwrap();
    let QueryAnswer::Refused(refused) = serde_json::from_slice(&answer).unwrap() else {
        panic!("{answer:?}")
    };
    assert!(refused.to_text().contains("put_graph.name"), "{refused:?}");
    cluster.stop().await;
}

/// The output of a command in the cluster, and its exit code.
fn trellis(nats: &str, arguments: &[&str]) -> String {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = std::process::Command::new(trellis_tests::processes::binary());
    let output =
        command.args(arguments).env_clear().env("NATS_URL", nats).current_dir(examples).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
}

/// proves: the commands store, list, show and delete, check, plan, rehearse and run the example;
/// and a mistake that only the cluster can detect is shown with its line.
#[tokio::test(flavor = "multi_thread")]
async fn g18_the_command_line_keeps_and_uses_graphs() {
    let ground = Ground::on_servers().await;
    let cluster = ground.start(config());
    up(&cluster).await;
    let agents = ["researcher", "checker", "writer"]
        .map(|name| json!({"agent_id": name, "kind": "builtin", "builtin": "echo"}));
    query(&cluster.client, json!({"apply_agents": {"agents": agents}})).await;
    let nats = ground.nats_url();
    let trellis = async |arguments: &[&str]| {
        let (nats, arguments) =
            (nats.clone(), arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        tokio::task::spawn_blocking(move || {
            trellis(&nats, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .await
        .unwrap()
    };
    let example = "examples/kept/compare.yaml";
    let said = trellis(&["graphs", "list"]).await;
    assert!(said.contains("no graphs are stored yet") && said.contains("graphs apply"), "{said}");
    for command in [&["graphs", "check", example][..], &["submit", example]] {
        let said = trellis(command).await;
        assert!(said.contains("there is no graph `facts`") && said.ends_with("exit Some(3)"), "{said}");
        assert!(
            said.contains("line 8") || said.contains(":8:"),
            "the message does not name the line: {said}"
        );
    }
    assert_eq!(trellis(&["graphs", "apply", "examples/facts.yaml"]).await, "facts: version 1\nexit Some(0)");
    assert_eq!(
        trellis(&["graphs", "apply", "examples/facts.yaml"]).await,
        "facts: unchanged, version 1\nexit Some(0)"
    );
    let shown = trellis(&["graphs", "show", "facts@1", "-o", "json"]).await;
    let shown: Value = serde_json::from_str(shown.strip_suffix("exit Some(0)").unwrap()).unwrap();
    assert_eq!((&shown["version"], &shown["graph"]["output"]), (&json!(1), &json!("checked")));
    let said = trellis(&["graphs", "apply", "examples/brief.yaml"]).await;
    assert_eq!(said, "brief: version 1\nexit Some(0)", "the graph contains its files");
    let said = trellis(&["graphs", "apply", example, "--name", "both"]).await;
    assert_eq!(said, "both: version 1\nexit Some(0)");
    let said = trellis(&["graphs", "list"]).await;
    let row = said.lines().find(|line| line.starts_with("both")).unwrap();
    assert!(row.ends_with("facts@1"), "{said}");

    let said = trellis(&["graphs", "check", example]).await;
    assert!(said.contains("ok, 5 steps, 2 groups") && said.ends_with("exit Some(0)"), "{said}");
    for command in [&["graphs", "plan", example][..], &["graphs", "rehearse", example]] {
        let said = trellis(command).await;
        assert!(said.contains("find") && said.ends_with("exit Some(0)"), "{said}");
    }
    let said = trellis(&["submit", example, "--wait", "-o", "json"]).await;
    assert!(said.ends_with("exit Some(0)"), "{said}");
    let said = trellis(&["runs", "show", "@last"]).await;
    assert_eq!(said.matches("uses facts@1").count(), 2, "{said}");
    let said = trellis(&["receipt", "@last"]).await;
    assert_eq!(said.matches("uses facts@1").count(), 2, "{said}");
    let said = trellis(&["runs", "graph", "@last"]).await;
    assert!(said.contains("\"use\": \"facts@1\"") && said.contains("\"latest\": true"), "{said}");
    let said = trellis(&["graphs", "delete", "facts"]).await;
    assert!(said.starts_with("facts: deleted at ") && said.ends_with("exit Some(0)"), "{said}");
    let said = trellis(&["graphs", "show", "facts"]).await;
    assert!(said.contains("was deleted at") && said.ends_with("exit Some(3)"), "{said}");
    let said = trellis(&["runs", "rerun", "@last", "--from", "first"]).await;
    assert!(said.ends_with("exit Some(0)"), "{said}");
    cluster.stop().await;
}
