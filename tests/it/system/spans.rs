//! The spans of a cluster of processes, as a collector receives them: whole trees, even after
//! crashes (X4, X6); all of a trace or nothing (X5); an unavailable collector changes nothing (X6);
//! and no content (X4).

use std::{collections::BTreeSet, path::Path, time::Duration};

use domain::{TraceId, span::Headers, subject::Subject, wire::SubmitAnswer};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{SOON, eventually},
    processes::{Processes, Shape},
    servers::{
        Collector, ModelServer, Prompt, Received, Reply, Rotel, check_tree, drawn, exporting_to, installed,
    },
};

/// A cluster that exports to the collector, with further variables for all its processes.
async fn cluster(
    collector: &Collector,
    coordinators: usize,
    workers: usize,
    more: &[(&str, &str)],
) -> Processes {
    exporting(collector.environment(), Shape::new, (coordinators, workers), more).await
}

async fn exporting(
    mut environment: Vec<(String, String)>,
    shape: impl FnOnce(usize, usize) -> Shape,
    (coordinators, workers): (usize, usize),
    more: &[(&str, &str)],
) -> Processes {
    environment.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Processes::start_as(|| Shape {
        environment: environment.clone(),
        coordinators_environment: environment,
        ..shape(coordinators, workers)
    })
    .await
}

fn contexts(spans: &[Received]) -> Vec<&Received> {
    let is_context = |name: &str| name.starts_with("invoke_workflow ") || name.starts_with("invoke_agent ");
    spans.iter().filter(|span| is_context(&span.name)).collect()
}

/// The spans of a run once it has this many contexts and no more spans arrive.
async fn whole(collector: &Collector, run: TraceId, count: usize) -> Vec<Received> {
    let trace = run.to_string();
    eventually("all contexts are exported", async || contexts(&collector.of(&trace)).len() >= count).await;
    // Leaves come within a second of their end, from other processes.
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let spans = collector.of(&trace);
        if spans.len() == before {
            return spans;
        }
        before = spans.len();
    }
}

fn nanos(span: &Received, name: &str) -> u64 {
    span.attributes.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// Asserts that the costs in the spans add up to the cost in the root span.
fn check_costs(spans: &[Received]) {
    let root = contexts(spans).into_iter().find(|span| {
        let parents: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
        !parents.contains(span.parent.as_str())
    });
    let root = root.expect("a root");
    let own: u64 = contexts(spans).iter().map(|span| nanos(span, "trellis.cost.own_nanos")).sum();
    assert_eq!(
        own,
        nanos(root, "trellis.cost.subtree_nanos"),
        "the sum of the own costs is the cost of the tree"
    );
    let settled: u64 = spans
        .iter()
        .filter(|span| span.name == "settle")
        .map(|span| nanos(span, "trellis.budget.amount_nanos"))
        .sum();
    let told = |wanted: &str| -> u64 {
        let events = spans.iter().flat_map(|span| &span.events).filter(|(name, _)| name == wanted);
        events.filter_map(|(_, attributes)| attributes.get("trellis.budget.amount_nanos")?.as_u64()).sum()
    };
    let sum = settled + told("trellis.budget.forfeited") + told("trellis.budget.charged");
    assert_eq!(sum, own, "settled, forfeited and charged: {}", drawn(spans));
}

#[tokio::test(flavor = "multi_thread")]
async fn x4_a_graph_is_one_tree_from_the_request_to_the_last_call() {
    let collector = Collector::start().await;
    let cluster = cluster(&collector, 1, 1, &[]).await;
    let run = cluster
        .begin(json!({"name": "report", "thread_id": "t-1", "steps": [
            {"id": "pay", "agent_id": "spend", "task_description": "the goal nobody may see"},
            {"id": "never", "agent_id": "echo", "task_description": "x", "when": "false", "depends_on": ["pay"]},
            {"id": "then", "agent_id": "echo", "task_description": "y", "depends_on": ["pay"]},
        ]}))
        .await;
    cluster.client.outcome(run, &"report".parse().unwrap()).await;
    let spans = whole(&collector, run, 3).await;
    check_tree(&spans, None);
    check_costs(&spans);
    assert_eq!(
        drawn(&spans),
        "\
invoke_workflow report [trellis.step.skipped]
  invoke_agent echo
    attempt echo
    queue wait
  invoke_agent spend
    attempt spend
      hold [trellis.budget.held]
      settle
    queue wait
  process agent.graph
"
    );
    for span in &spans {
        assert_eq!(span.attributes.get("gen_ai.conversation.id"), Some(&json!("t-1")), "{}", span.name);
        assert!(
            span.resource.contains_key("service.version")
                && span.resource.contains_key("service.instance.id")
        );
    }
    assert!(!collector.has("nobody may see"));
}

#[tokio::test(flavor = "multi_thread")]
async fn x6_a_lost_attempt_has_a_span_and_what_it_forfeited() {
    let collector = Collector::start().await;
    let mut cluster = cluster(&collector, 1, 2, &[]).await;
    let inputs = json!({"usd": 0.02, "hold_usd": 0.05, "ms": 4000});
    let run = cluster.begin(json!({"goal": "pay", "agent_id": "spend", "inputs": inputs})).await;
    let held = |trace: &trace::Trace| trace.root().is_some_and(|root| root.calls.has_open());
    cluster.until(run, "in a paid call", held).await;
    let worker = cluster.client.trace(run).await.root().unwrap().attempts[0].worker_id.to_string();
    cluster.kill(&worker);
    cluster.outcome(run).await;
    let spans = whole(&collector, run, 1).await;
    check_tree(&spans, None);
    check_costs(&spans);
    let attempts: Vec<&Received> = spans.iter().filter(|span| span.name == "attempt spend").collect();
    let lost: Vec<&&Received> =
        attempts.iter().filter(|span| span.error.as_deref() == Some("worker_lost")).collect();
    assert_eq!((attempts.len(), lost.len()), (2, 1), "{}", drawn(&spans));
    assert_eq!(lost[0].attributes["trellis.worker_id"], json!(worker));
    assert_eq!(lost[0].attributes["error.type"], "worker_lost");
    assert_eq!(
        lost[0].events.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["trellis.budget.forfeited"]
    );
    // The second wait begins at the expiry of the lease, not at the first submission.
    let waits: Vec<&Received> = spans.iter().filter(|span| span.name == "queue wait").collect();
    assert_eq!(waits.len(), 2);
    assert!(waits.iter().any(|wait| wait.start + 50_000_000 >= lost[0].end), "{waits:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn x6_no_span_of_a_context_is_lost_with_its_coordinators() {
    let collector = Collector::start().await;
    let mut cluster = cluster(&collector, 2, 1, &[]).await;
    collector.refuse(true);
    let run = cluster
        .begin(
            json!({"goal": "grow", "agent_id": "tree", "inputs": {"depth": 2, "width": 3, "leaf": "echo"}}),
        )
        .await;
    cluster.outcome(run).await;
    for name in cluster.names("c") {
        cluster.kill(&name);
    }
    collector.refuse(false);
    assert!(contexts(&collector.of(&run.to_string())).is_empty());
    for name in cluster.names("c") {
        cluster.run(&name);
    }
    let spans = whole(&collector, run, 13).await;
    check_tree(&spans, None);
    assert_eq!(contexts(&spans).len(), 13);
    // A context that waited for children is linked to them, and they to the call that spawned them.
    let waits: Vec<&Received> = spans.iter().filter(|span| span.name == "wait children").collect();
    assert_eq!(waits.iter().map(|wait| wait.links.len()).collect::<Vec<_>>(), [3; 4]);
    assert_eq!(spans.iter().filter(|span| span.name == "execute_tool spawn").count(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn x4_waits_denials_and_cancels_have_spans_without_errors() {
    let collector = Collector::start().await;
    let cluster = cluster(&collector, 1, 1, &[]).await;
    let asks = cluster.begin(json!({"goal": "well?", "agent_id": "ask"})).await;
    cluster.until(asks, "asked", |trace| trace.root().is_some_and(|root| root.asks())).await;
    let answered = json!({"child_id": "root", "question": 1, "answer": "yes"});
    let answer = json!({"trace_id": asks, "answered": answered});
    cluster.tell(Subject::Input, &answer).await;
    cluster.outcome(asks).await;
    let spans = whole(&collector, asks, 1).await;
    check_tree(&spans, None);
    let expected = "\
invoke_agent ask
  attempt ask
  attempt ask
  execute_tool ask_human
  process agent.spawn
  queue wait
  queue wait
  wait human
";
    assert_eq!(drawn(&spans), expected);

    let poor = json!({"goal": "pay", "agent_id": "spend", "max_cost_usd": 0.01, "inputs": {"usd": 0.02}});
    let denied = cluster.begin(poor).await;
    cluster.outcome(denied).await;
    let spans = whole(&collector, denied, 1).await;
    check_tree(&spans, None);
    let hold = spans.iter().find(|span| span.name == "hold").expect("a hold");
    assert_eq!(hold.error, None);
    let (name, told) = &hold.events[0];
    assert_eq!(name, "trellis.budget.denied");
    assert_eq!(
        (&told["trellis.budget.scope"], &told["trellis.budget.dimension"]),
        (&json!("root"), &json!("cost"))
    );
    assert_eq!(told["trellis.budget.limit_usd"], json!(0.01));

    let slow = cluster.begin(json!({"goal": "z", "agent_id": "sleep", "inputs": {"ms": 600_000}})).await;
    cluster.until(slow, "running", |trace| trace.root().is_some_and(|root| root.attempt() == 1)).await;
    cluster.cancel(slow).await;
    cluster.outcome(slow).await;
    let spans = whole(&collector, slow, 1).await;
    check_tree(&spans, None);
    assert!(spans.iter().all(|span| span.error.is_none()), "{}", drawn(&spans));
    let root = contexts(&spans)[0];
    assert_eq!(root.attributes["trellis.status"], "cancelled");
}

/// Sends a submission with a trace context. Returns its trace.
async fn submit(cluster: &Processes, traceparent: Option<String>) -> TraceId {
    let headers: Headers = traceparent.map(|value| ("traceparent".to_owned(), value)).into_iter().collect();
    let payload = json!({"goal": "hello", "agent_id": "spend"}).to_string();
    let asked = cluster.client.bus.request(&Subject::Submit, &headers, payload.into(), SOON).await.unwrap();
    match serde_json::from_slice(&asked).unwrap() {
        SubmitAnswer::Accepted(accepted) => {
            cluster.client.outcome(accepted.trace_id, &accepted.child_id).await;
            accepted.trace_id
        }
        SubmitAnswer::Refused(refusal) => panic!("{refusal:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x5_a_trace_is_exported_whole_or_not_at_all() {
    let collector = Collector::start().await;
    let sampler = [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.5")];
    let cluster = cluster(&collector, 2, 2, &sampler).await;
    let mut runs = Vec::new();
    for _ in 0..40 {
        runs.push(submit(&cluster, None).await);
    }
    let caller = |trace: &str, flags: &str| Some(format!("00-{trace}-00f067aa0ba902b7-{flags}"));
    let (on, off) = ("4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737");
    let followed = submit(&cluster, caller(on, "01")).await;
    let silent = submit(&cluster, caller(off, "00")).await;
    // The caller's trace id is in use: the next run gets a new one, linked to it.
    let linked = submit(&cluster, caller(on, "01")).await;
    assert_eq!((followed.to_string(), silent.to_string()), (on.to_owned(), off.to_owned()));
    let spans = whole(&collector, linked, 1).await;
    let root = contexts(&spans)[0];
    assert_eq!((root.parent.as_str(), &root.links[..]), ("", &["00f067aa0ba902b7".to_owned()][..]));
    let spans = whole(&collector, followed, 1).await;
    check_tree(&spans, Some("00f067aa0ba902b7"));
    assert!(collector.of(off).is_empty());
    let mut exported = 0;
    for run in runs {
        let spans = collector.of(&run.to_string());
        if !spans.is_empty() {
            exported += 1;
            check_tree(&spans, None);
            assert_eq!(spans.len(), 6, "{}", drawn(&spans));
        }
    }
    assert!((5..=35).contains(&exported), "{exported} of 40");
}

#[tokio::test(flavor = "multi_thread")]
async fn x6_an_unreachable_collector_stops_nothing_and_is_logged_in_few_lines() {
    let collector = Collector::start().await;
    let mut cluster = cluster(&collector, 1, 1, &[("OTEL_BSP_EXPORT_TIMEOUT", "300")]).await;
    collector.refuse(true);
    for _ in 0..20 {
        let run = cluster.begin(json!({"goal": "hello", "agent_id": "spend"})).await;
        cluster.outcome(run).await;
    }
    eventually("the export was tried", async || collector.requests() > 4).await;
    for name in ["c1", "w1"] {
        let told = |said: &str| said.lines().filter(|line| line.contains("the collector of spans")).count();
        eventually("the failure is logged", async || told(&cluster.log(name)) > 0).await;
        let said = cluster.log(name);
        let lines = told(&said);
        assert!((1..=3).contains(&lines), "{name}: {lines} lines\n{said}");
    }
    collector.hang();
    let run = cluster.begin(json!({"goal": "hello", "agent_id": "spend"})).await;
    cluster.outcome(run).await;
    cluster.stop("w1").await;
    cluster.stop("c1").await;
}

/// proves: spans that waited while the collector was unavailable are sent in parts of an acceptable
/// size, and a part that is always refused does not block the others.
#[tokio::test(flavor = "multi_thread")]
async fn x6_a_collector_that_accepts_only_small_requests_gets_the_waiting_spans() {
    let collector = Collector::start().await;
    let cluster = cluster(&collector, 1, 1, &[]).await;
    collector.refuse(true);
    // The children sleep, so that the root waits for them: its wait has the links.
    let wait =
        json!({"goal": "grow", "agent_id": "tree", "inputs": {"depth": 1, "width": 40, "leaf": "sleep"}});
    let large = cluster.begin(wait.clone()).await;
    cluster.outcome(large).await;
    collector.refuse_above(2_000);
    collector.refuse(false);
    let children = || {
        let spans = collector.of(&large.to_string());
        spans.iter().filter(|span| span.name == "invoke_agent sleep").count()
    };
    eventually("the spans of all children arrive", async || children() == 40).await;
    // The wait of the root has links to all of them, and is too large for this collector. The other
    // spans of its message arrive.
    let of_root = |name: &str| collector.of(&large.to_string()).iter().any(|span| span.name == name);
    eventually("the span of the root arrives", async || of_root("invoke_agent tree")).await;
    let small = cluster.begin(json!({"goal": "hello", "agent_id": "echo"})).await;
    cluster.outcome(small).await;
    eventually("spans of other runs are still exported", async || {
        !collector.of(&small.to_string()).is_empty()
    })
    .await;
    assert!(!of_root("wait children"), "the collector rejects the wait of the root");
}

#[tokio::test(flavor = "multi_thread")]
async fn x4_a_wide_tree_arrives_whole() {
    let asked = std::env::var_os("TRELLIS_FAN_OUT").and_then(|text| text.to_string_lossy().parse().ok());
    let width: usize = asked.unwrap_or(200);
    let collector = Collector::start().await;
    let cluster = cluster(&collector, 2, 2, &[]).await;
    let inputs = json!({"depth": 1, "width": width, "leaf": "spend", "usd": 0.001});
    let run = cluster.begin(json!({"goal": "grow", "agent_id": "tree", "inputs": inputs})).await;
    cluster.outcome(run).await;
    let spans = whole(&collector, run, width + 1).await;
    check_tree(&spans, None);
    check_costs(&spans);
    // For each child: its context, the call that spawned it, its wait, its attempt, a hold and a
    // settle.
    assert_eq!(spans.iter().filter(|span| span.name == "attempt spend").count(), width);
    assert_eq!(spans.iter().filter(|span| span.name == "settle").count(), width);
}

/// A provider that refuses once, then calls a tool, then answers; each with a distinct word.
async fn talkative() -> ModelServer {
    let refused = std::sync::atomic::AtomicBool::new(false);
    ModelServer::start(move |prompt: &Prompt| {
        let said = |text: &str| Reply {
            text: text.into(),
            input_tokens: 100,
            output_tokens: 20,
            ..Reply::default()
        };
        if !refused.swap(true, std::sync::atomic::Ordering::SeqCst) {
            return Reply { status: Some(503), ..said("CANARY-PROVIDER") };
        }
        match prompt.turn() {
            0 => {
                let arguments = json!({"path": "outputs/a.txt", "content": "CANARY-FILE"});
                Reply { calls: vec![("fs_write".into(), arguments)], ..said("CANARY-THOUGHT") }
            }
            _ => said("CANARY-ANSWER"),
        }
    })
    .await
}

/// Every attribute name in OpenTelemetry's conventions, as the text of its Python package.
fn conventions() -> String {
    let package = installed("TRELLIS_CONVENTIONS", Path::new("conventions"));
    let attributes = package.join("opentelemetry/semconv/_incubating/attributes");
    let read = |name: &str| std::fs::read_to_string(attributes.join(name)).unwrap();
    ["gen_ai_attributes.py", "messaging_attributes.py"].map(read).concat()
}

/// proves: a third-party collector accepts the spans, over HTTP with gzip and over gRPC, and
/// forwards whole trees; the names are those of the conventions; the provider receives the trace
/// id; no span or log contains a text of users or providers.
async fn through_rotel(protocol: &str, more: &[(&str, &str)]) -> (Collector, Vec<Received>, String) {
    let collector = Collector::start().await;
    let rotel = Rotel::start(&collector);
    let url = if protocol == "grpc" { rotel.grpc_url() } else { rotel.http_url() };
    let model = talkative().await;
    let worker = model.settings();
    let shape = |coordinators, workers| Shape { worker, ..Shape::new(coordinators, workers) };
    let cluster = exporting(exporting_to(&url, protocol), shape, (1, 1), more).await;
    let agent = json!({"agent_id": "writer", "kind": "llm", "model": "test/model", "tools": ["fs.write"]});
    cluster.apply(json!([agent])).await;
    let run =
        cluster.begin(json!({"goal": "CANARY-GOAL", "agent_id": "writer", "thread_id": "session"})).await;
    let ended = cluster.outcome(run).await;
    assert_eq!(ended.context.status, domain::wire::EndStatus::Completed, "{ended:?}");
    let spans = whole(&collector, run, 1).await;
    check_tree(&spans, None);
    check_costs(&spans);
    let attempt = spans.iter().find(|span| span.name == "attempt writer").expect("an attempt");
    let told = format!("00-{run}-{}-01", attempt.id);
    assert!(model.traceparents().iter().all(|header| *header == told), "{:?}", model.traceparents());
    assert_eq!(model.traceparents().len(), 3);
    let logs = format!("{}{}", cluster.log("c1"), cluster.log("w1"));
    (collector, spans, logs)
}

#[tokio::test(flavor = "multi_thread")]
async fn x4_a_foreign_collector_gets_whole_trees_with_the_names_of_the_conventions_over_http() {
    let (collector, spans, logs) =
        through_rotel("http/protobuf", &[("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")]).await;
    assert_eq!(
        drawn(&spans),
        "\
invoke_agent writer
  attempt writer
    chat model [trellis.call.failed]
    chat model
    execute_tool fs.write
    hold [trellis.budget.held]
    hold [trellis.budget.held]
    hold [trellis.budget.held]
    release
    settle
    settle
  process agent.spawn
  queue wait
"
    );
    let conventions = conventions();
    for key in spans.iter().flat_map(|span| span.attributes.keys()) {
        let ours = key.starts_with("trellis.") || key == "error.type" || key == "gen_ai.usage.cost";
        assert!(ours || conventions.contains(&format!("\"{key}\"")), "{key} is not in the conventions");
    }
    let chat = spans.iter().find(|span| span.name == "chat model" && !span.events.is_empty()).unwrap();
    let of = |name: &str| &chat.attributes[name];
    assert_eq!((of("gen_ai.provider.name"), of("gen_ai.request.model")), (&json!("test"), &json!("model")));
    assert_eq!(
        (of("gen_ai.usage.input_tokens"), of("gen_ai.usage.output_tokens")),
        (&json!(100), &json!(20))
    );
    assert_eq!(of("gen_ai.response.finish_reasons"), &json!(["tool_call"]));
    assert_eq!((of("trellis.cost.nanos"), of("gen_ai.usage.cost")), (&json!(140_000), &json!(0.00014)));
    assert!(!collector.has("CANARY"), "content is in a span");
    assert!(!logs.contains("CANARY"), "{logs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn x4_a_foreign_collector_gets_whole_trees_over_grpc_and_content_only_if_asked() {
    let asked = [("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")];
    let (collector, spans, _) = through_rotel("grpc", &asked).await;
    for word in ["CANARY-GOAL", "CANARY-FILE", "CANARY-THOUGHT", "CANARY-ANSWER"] {
        assert!(collector.has(word), "{word}: {}", drawn(&spans));
    }
    assert!(!collector.has("CANARY-PROVIDER"));
}
