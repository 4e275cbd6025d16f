//! Bad input end to end (f23, f25), in memory and on real processes and servers. Every subject
//! answers a bad message if it can, turns it into one dead letter, and handles the next message.
//! The mechanism: messages are decoded first; an undecodable one is stored as a dead letter and
//! acknowledged. Otherwise it would be redelivered for ever, and the dead letters here would grow.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use bus::{Bus, Outgoing, Stream, Topology};
use bytes::Bytes;
use domain::{
    ChildId, TraceId,
    span::Headers,
    subject::{Action, Filter, Partition, Subject, Topic},
    wire::{DeadLetter, EndStatus},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use trellis_tests::{
    cluster::{Client, Cluster, SOON},
    processes::Processes,
    servers::NatsServer,
    subjects::pool,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn trace() -> TraceId {
    TRACE.parse().unwrap()
}

fn home(trace: TraceId) -> Partition {
    Partition::of(trace, Topology::default().partitions)
}

/// A client of a cluster and the expected number of its dead letters, by kind.
struct Siege {
    client: Client,
    expected: BTreeMap<String, usize>,
}

impl Siege {
    async fn new(client: Client) -> Self {
        client.run(json!({"goal": "is anybody there?"})).await;
        Siege { client, expected: BTreeMap::new() }
    }

    fn bus(&self) -> &Bus {
        &self.client.bus
    }

    fn expect(&mut self, kind: &str) {
        *self.expected.entry(kind.into()).or_default() += 1;
    }

    /// Publishes a message that will become one dead letter of its kind.
    async fn publish(&mut self, subject: Subject, payload: impl Into<Bytes>) {
        self.expect(subject.kind());
        self.send(subject, payload).await;
    }

    async fn send(&self, subject: Subject, payload: impl Into<Bytes>) {
        // With an id, so that it can be sent again to a slow server.
        static SENT: AtomicU32 = AtomicU32::new(0);
        let id = Some(format!("hostile-{}", SENT.fetch_add(1, Ordering::Relaxed)));
        let message =
            Outgoing { subject, id, headers: Headers::new(), payload: payload.into(), expect_last: None };
        self.bus().publish(message).await.expect("the bus stores the message");
    }

    async fn ask(&self, subject: &Subject, payload: impl Into<Bytes>) -> Value {
        let asked = self.bus().request(subject, &Headers::new(), payload.into(), SOON).await;
        serde_json::from_slice(&asked.unwrap_or_else(|error| panic!("{subject}: {error}"))).unwrap()
    }

    /// Sends a request that is refused as malformed and becomes one dead letter.
    async fn refused(&mut self, subject: &Subject, what: &str, payload: impl Into<Bytes>) {
        self.expect(subject.kind());
        let answer = self.ask(subject, payload).await;
        let refusal = answer.get("refused").unwrap_or(&answer);
        assert_eq!(refusal["code"], "malformed", "{subject} {what}: {answer}");
    }

    async fn letters(&self) -> Vec<DeadLetter> {
        let stored = self.bus().read(&Filter::Dead).await.unwrap();
        stored.iter().map(|stored| serde_json::from_slice(&stored.payload).unwrap()).collect()
    }

    async fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for stored in self.bus().read(&Filter::Dead).await.unwrap() {
            let Subject::Dead(kind) = stored.subject else { panic!("{:?}", stored.subject) };
            *counts.entry(kind.to_string()).or_default() += 1;
        }
        counts
    }

    /// Asserts that a valid run completes, the dead letters are those expected, and all queues are
    /// empty.
    async fn stands(&self, after: &str) {
        let good = self.client.run(json!({"goal": "good", "agent_id": "spend"})).await;
        assert_eq!(good.context.status, EndStatus::Completed, "after {after}");
        let deadline = Instant::now() + SOON;
        while Instant::now() < deadline {
            let total: usize = self.counts().await.values().sum();
            if total >= self.expected.values().sum() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(self.counts().await, self.expected, "after {after}");
        for stream in [Stream::Intake, Stream::Execute, Stream::Report] {
            for filter in stream.filters() {
                let mut left = usize::MAX;
                while Instant::now() < deadline {
                    left = self.bus().read(&filter).await.unwrap().len();
                    if left == 0 {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                assert_eq!(left, 0, "{filter} still has messages after {after}");
            }
        }
    }
}

/// Payloads that are invalid on every subject.
fn junk() -> Vec<(&'static str, Vec<u8>)> {
    let deep = |open: &str, close: &str| (open.repeat(100_000) + &close.repeat(100_000)).into_bytes();
    let long_names: String = (0..14).map(|n| format!("\"{n}{}\": 1,", "x".repeat(60_000))).collect();
    let many_names: String = (0..20_000).map(|n| format!("\"unknown-{n}\": 1,")).collect();
    vec![
        ("nothing", Vec::new()),
        ("half a message", b"{\"goal\": \"x\"".to_vec()),
        ("deep arrays", deep("[", "]")),
        ("deep objects", deep("{\"ask\":", "}")),
        ("invalid UTF-8", b"{\"goal\": \"\xff\xfe\"}".to_vec()),
        ("NUL bytes", vec![0; 4096]),
        ("null", b"null".to_vec()),
        ("a number", b"1e999".to_vec()),
        ("not a number", b"NaN".to_vec()),
        ("wrong types", br#"{"goal": [], "trace_id": 7, "ask": 3, "child_id": {}, "steps": 1}"#.to_vec()),
        ("unknown fields", br#"{"surprise": true}"#.to_vec()),
        ("twice the same field", br#"{"goal": 1, "goal": 2, "trace_id": 1, "trace_id": 2}"#.to_vec()),
        ("an id that is a path", br#"{"trace_id": "../../etc", "child_id": "..", "report": {}}"#.to_vec()),
        ("an id with wildcards", br#"{"trace_id": "*.>", "child_id": "a.>"}"#.to_vec()),
        ("an id with a NUL", br#"{"trace_id": "0af7\u0000", "child_id": "\u0000"}"#.to_vec()),
        ("a long id", format!("{{\"trace_id\": \"{}\"}}", "a".repeat(100_000)).into_bytes()),
        ("long names", format!("{{{long_names} \"end\": 1}}").into_bytes()),
        ("many names", format!("{{{many_names} \"end\": 1}}").into_bytes()),
        ("a long text", format!("\"{}\"", "x".repeat(900_000)).into_bytes()),
    ]
}

/// Submissions with the right fields and hostile values.
fn bad_submissions() -> Vec<Value> {
    let mut all = Vec::new();
    let mut with = |field: &str, values: Vec<Value>| {
        all.extend(values.into_iter().map(|value| {
            let mut spawn = json!({"goal": "x"});
            spawn[field] = value;
            spawn
        }));
    };
    let ids = ["", ".", "..", "a.b", "*", ">", "a b", "a/b", "a\u{0}b", "-a", "é", &"a".repeat(65)];
    with("child_id", ids.iter().map(|id| json!(id)).collect());
    with("trace_id", ["", "0", &"0".repeat(32), &"A".repeat(32), "*", ">"].map(Value::from).into());
    let money = json!([-1, "-1", "NaN", "inf", "1e999", "", 1_000_001, {}, [], true, 1e-12, "0x10"]);
    with("max_cost_usd", money.as_array().unwrap().clone());
    with("max_tokens", vec![json!(-1), json!(1.5), json!(u64::MAX), json!("many")]);
    let subjects =
        ["agent.spawn", "agent.admin.raise", "x.agent.spawn", "$JS.API.STREAM.DELETE.AGENT_EVENT", "$SYS.x"];
    with("reply_to", subjects.map(Value::from).into());
    let shapes = [">", "a.*", "a.>", "", "a..b", ".", "a b", "a\r\nPUB agent.spawn 0", "é", &"a".repeat(300)];
    with("reply_to", shapes.map(Value::from).into());
    with("inputs", vec![json!({"a b": 1}), json!({"": 1}), json!([])]);
    with("output_schema", vec![json!({"type": 7}), json!("x")]);
    with("timeout_ms", vec![json!(-1)]);
    with("share", vec![json!(["dialog"])]);
    all
}

async fn besiege(client: Client) -> Siege {
    let mut siege = Siege::new(client).await;
    let child: ChildId = "root".parse().unwrap();
    let queues = [
        Subject::Spawn,
        Subject::Graph,
        Subject::Cancel,
        Subject::Input,
        Subject::Admin(Action::Raise),
        Subject::Admin(Action::Dispute),
        Subject::Execute("default".parse().unwrap()),
        Subject::Result(pool(), home(trace()), trace(), child.clone()),
        Subject::Cost(pool(), home(trace()), trace(), child.clone()),
    ];
    for subject in &queues {
        for (_, payload) in junk() {
            siege.publish(subject.clone(), payload).await;
        }
        // Above the largest readable message; where NATS accepts less, it is stored as an object.
        siege.publish(subject.clone(), vec![b'['; 9 * 1024 * 1024]).await;
    }
    siege.stands("junk in every queue").await;

    let requests = [Subject::Submit, Subject::Steer, Subject::Ask(pool(), home(trace()))].into_iter();
    let requests = requests.chain(Topic::ALL.map(Subject::Query));
    for subject in requests.chain(Action::REQUESTS.map(Subject::Admin)) {
        for (what, payload) in junk() {
            siege.refused(&subject, what, payload).await;
        }
    }
    siege.stands("junk in every request").await;

    // Broadcasts: a call is answered, nothing is stored, and the worker continues.
    for (what, payload) in junk() {
        let answer = siege.ask(&Subject::Worker, payload.clone()).await;
        assert_eq!(answer["code"], "malformed", "{what}: {answer}");
        siege.bus().broadcast(&Subject::Stop(trace()), &Headers::new(), payload.into()).await.unwrap();
    }
    siege.stands("junk in every broadcast").await;

    for spawn in bad_submissions() {
        siege.refused(&Subject::Submit, &spawn.to_string(), spawn.to_string()).await;
        siege.publish(Subject::Spawn, spawn.to_string()).await;
    }
    // Refused by the core: the caller gets the refusal, and nothing is stored.
    let senseless =
        [("agent_id", json!("nobody")), ("max_cost_usd", json!(0)), ("timeout_ms", json!(u64::MAX))];
    for (field, value) in senseless {
        let mut spawn = json!({"goal": "x"});
        spawn[field] = value;
        assert_eq!(siege.ask(&Subject::Submit, spawn.to_string()).await["code"], "malformed", "{spawn}");
        siege.publish(Subject::Spawn, spawn.to_string()).await;
    }
    siege.stands("hostile submissions").await;
    disagree(&mut siege).await;
    siege
}

/// Valid messages about things that do not exist.
async fn disagree(siege: &mut Siege) {
    let accepted =
        siege.client.accepted(json!({"goal": "x", "agent_id": "sleep", "inputs": {"ms": 3000}})).await;
    let (id, root) = (accepted.trace_id, accepted.child_id.clone());
    let running = |trace: &trace::Trace| trace.context(&root).is_some_and(|node| node.attempt() == 1);
    let runs = async {
        while !running(&siege.client.trace(id).await) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, runs).await.expect("the agents run");
    let lease = json!({"child_id": "root", "attempt": 1, "token": "not-the-token"});
    let result = |trace: TraceId, lease: &Value| {
        json!({"trace_id": trace, "report": {"lease": lease, "verdict": {"completed": {"inline": "mine"}}}})
            .to_string()
    };
    let cost = |trace: TraceId, lease: &Value, usd: Value| {
        json!({"trace_id": trace, "lease": lease, "call_id": "1-1", "amount": {"cost_usd": usd, "tokens": 1}})
            .to_string()
    };
    let (at_result, at_cost) = (
        Subject::Result(pool(), home(id), id, root.clone()),
        Subject::Cost(pool(), home(id), id, root.clone()),
    );
    // A token that is not the claim's.
    siege.publish(at_result.clone(), result(id, &lease)).await;
    siege.publish(at_cost.clone(), cost(id, &lease, json!(0.5))).await;
    // A trace and a context that are not the subject's.
    siege.publish(at_result.clone(), result(trace(), &lease)).await;
    siege.publish(at_cost.clone(), cost(trace(), &lease, json!(0.5))).await;
    let other = json!({"child_id": "other", "attempt": 1, "token": "t"});
    siege.publish(at_result.clone(), result(id, &other)).await;
    // An attempt and a context that never existed.
    let never = json!({"child_id": "root", "attempt": 7, "token": "t"});
    siege.send(at_result, result(id, &never)).await;
    siege.publish(Subject::Result(pool(), home(id), id, "other".parse().unwrap()), result(id, &other)).await;
    // Invalid amounts of money.
    for usd in [json!(-1), json!("NaN"), json!(1e300)] {
        siege.publish(at_cost.clone(), cost(id, &lease, usd)).await;
    }
    let delete_agent = json!({"delete_agent": {"agent_id": "default"}}).to_string();
    // A trace that does not exist.
    let stranger = json!({"trace_id": TRACE, "answered": {"child_id": "root", "question": 1, "answer": "x"}});
    siege.publish(Subject::Input, stranger.to_string()).await;
    let raise = json!({"trace_id": TRACE, "raise": {"child_id": "root", "max_cost_usd": 2}});
    siege.publish(Subject::Admin(Action::Raise), raise.to_string()).await;
    siege.publish(Subject::Admin(Action::Raise), json!({"trace_id": TRACE}).to_string()).await;
    // A message for another subject.
    siege.publish(Subject::Admin(Action::Restore), raise.to_string()).await;
    siege.refused(&Subject::Query(Topic::Runs), "a query about agents", "\"agents\"").await;
    siege.refused(&Subject::Steer, "what only an administrator may", delete_agent).await;
    // An ask in another trace's partition, and an ask about nothing.
    let tick = |trace: TraceId| json!({"trace_id": trace, "ask": {"tick": {"lease": lease}}}).to_string();
    let elsewhere = Partition::all(16).find(|partition| *partition != home(id)).unwrap();
    siege.refused(&Subject::Ask(pool(), elsewhere), "the wrong home", tick(id)).await;
    assert!(siege.ask(&Subject::Ask(pool(), home(trace())), tick(trace())).await["stop"].is_object());
    assert!(
        siege.ask(&Subject::Ask(pool(), home(id)), tick(id)).await["stop"].is_object(),
        "a stranger's tick"
    );
    // An execute message that no coordinator sent: its claim is answered `stop`, or its ask subject
    // is not ours.
    let mut forged = example_work();
    siege.send(Subject::Execute("default".parse().unwrap()), forged.to_string()).await;
    forged["report_to"]["ask"] = json!("$JS.API.STREAM.DELETE.AGENT_EVENT");
    siege.publish(Subject::Execute("default".parse().unwrap()), forged.to_string()).await;

    let outcome = siege.client.outcome(id, &root).await;
    let outcome = serde_json::to_value(&outcome).unwrap();
    assert_eq!(outcome["result"], json!("x"), "a result of another sender was accepted");
    assert_eq!(outcome["budget"]["spent"]["cost_usd"], json!(0.0), "a cost of another sender was booked");
    siege.stands("messages that are not true").await;
}

/// The execute message of docs/protocol.md, with a trace that does not exist.
fn example_work() -> Value {
    let page = include_str!("../../../docs/protocol.md");
    let text = page.split("```json execute\n").nth(1).unwrap().split("```").next().unwrap();
    let mut work: Value = serde_json::from_str(text).unwrap();
    work["trace_id"] = json!(TRACE);
    work["report_to"]["ask"] = json!(Subject::Ask(pool(), home(trace())).to_string());
    work
}

#[tokio::test(flavor = "multi_thread")]
async fn f23_f25_bad_input_on_every_subject_in_memory() {
    let cluster = Cluster::embedded();
    besiege(cluster.client.clone()).await;
    cluster.stop().await;
}

/// No process panics: the processes at the end are those of the beginning, and no loop was
/// restarted.
#[tokio::test(flavor = "multi_thread")]
async fn f23_f25_bad_input_on_every_subject_of_real_processes() {
    let mut cluster = Processes::start(1, 1).await;
    let began = [cluster.pid("c1"), cluster.pid("w1")];
    let mut siege = besiege(cluster.client.clone()).await;
    raw(&mut siege, &cluster.nats).await;
    assert!(cluster.is_running("c1") && cluster.is_running("w1"));
    assert_eq!([cluster.pid("c1"), cluster.pid("w1")], began);
    for name in ["c1", "w1"] {
        assert!(!cluster.log(name).contains("panicked"), "{name} panicked");
    }
}

/// Messages that only a raw NATS client can send.
async fn raw(siege: &mut Siege, nats: &NatsServer) {
    let client = async_nats::connect(nats.url()).await.unwrap();
    // A reply subject of ours or of the server: no answer is sent, and nothing is done.
    let hostile = [
        "agent.spawn",
        "agent.admin.raise",
        "$JS.API.STREAM.PURGE.AGENT_DEAD",
        "$JS.API.STREAM.DELETE.AGENT_EVENT",
    ];
    let ask = Subject::Ask(pool(), home(trace())).to_string();
    for reply in hostile {
        for (kind, subject) in
            [("submit", "agent.submit"), ("query", "agent.query.runs"), ("ask", ask.as_str())]
        {
            siege.expect(kind);
            client.publish_with_reply(subject.to_owned(), reply, "{}".into()).await.unwrap();
        }
        client.publish_with_reply("agent.query.agents", reply, "\"agents\"".into()).await.unwrap();
        client.publish_with_reply("agent.worker", reply, "\"describe\"".into()).await.unwrap();
    }
    client.flush().await.unwrap();
    siege.stands("replies to the subjects of others").await;

    // Subjects that are almost ours: in a stream they become dead letters; outside, the server
    // reports no stream.
    for subject in
        ["agent.result.a.p00.nothing.at-all", &format!("agent.cost.a.p00.{TRACE}.{}", "x".repeat(100))]
    {
        siege.expect("unknown");
        client.publish(subject.to_owned(), "{}".into()).await.unwrap();
    }
    client.publish("agent.stop.nothing", "{}".into()).await.unwrap();
    let nowhere = client.request(format!("agent.result.default.p99.{TRACE}.root"), "{}".into()).await;
    assert!(nowhere.is_err(), "a request to a missing partition was answered: {nowhere:?}");

    // A reference to a payload object that does not exist.
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Trellis-Object", "overflow/never-was");
    for (kind, subject) in [("submit", "agent.submit"), ("query", "agent.query.runs"), ("ask", ask.as_str())]
    {
        siege.expect(kind);
        let asked =
            client.request_with_headers(subject.to_owned(), headers.clone(), "{}".into()).await.unwrap();
        let answer: Value = serde_json::from_slice(&asked.payload).unwrap();
        assert_eq!(answer.get("refused").unwrap_or(&answer)["code"], "malformed", "{subject}: {answer}");
    }
    siege.expect("spawn");
    client.publish_with_headers("agent.spawn", headers, "{\"goal\": \"x\"}".into()).await.unwrap();
    client.flush().await.unwrap();
    siege.stands("subjects and headers that lead nowhere").await;
    let letters = siege.letters().await;
    assert!(letters.iter().all(|letter| letter.payload.len() <= 200), "letters have no content");
}
