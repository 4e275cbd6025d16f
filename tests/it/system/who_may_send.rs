//! Senders and trust (S6): workers act only for their pool, and a stored message that the server
//! resends to another subject is refused everywhere.

use bus::{Bus, Memory, REQUEST_INFO, Storage, Stream, Topology};
use domain::{
    ChildId, TraceId, Usd,
    span::Headers,
    subject::{Action, Filter, Partition, Subject, Topic},
    wire::{AdminRecord, Asker, BY_HEADER, DeadLetter, EndStatus},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Client, Cluster, SOON, eventually},
    processes::Processes,
    subjects::{admin_of, pool, query_of},
};

const REASON: &str = "copied it out of a stream";

fn home(trace: TraceId) -> Partition {
    Partition::of(trace, Topology::default().partitions)
}

async fn letters(client: &Client, subject: &str) -> Vec<DeadLetter> {
    let stored = client.bus.read(&Filter::Dead).await.unwrap();
    let letters = stored.iter().map(|stored| serde_json::from_slice::<DeadLetter>(&stored.payload).unwrap());
    letters.filter(|letter| letter.subject == subject).collect()
}

/// A reader of a stream chooses the subject to which the server sends the answer. Without the
/// check, an order stored as a journal entry would arrive as an administrator's, and raise the
/// ceiling.
#[tokio::test(flavor = "multi_thread")]
async fn s6_a_stored_message_that_the_server_sends_on_has_no_effect() {
    let cluster = Processes::start(1, 1).await;
    let spawn = json!({"goal": "x", "agent_id": "sleep", "inputs": {"ms": 4000}, "max_cost_usd": 1});
    let run = cluster.begin(spawn).await;
    cluster.until(run, "the agent runs", |trace| trace.root().is_some_and(|root| root.attempt() == 1)).await;
    let client = async_nats::connect(cluster.nats.url()).await.unwrap();
    let order = json!({"trace_id": run, "raise": {"child_id": "root", "max_cost_usd": 500}}).to_string();
    let entry = format!("agent.history.default.{run}.forged");
    // The stream has acknowledged it, so it is stored.
    client.request(entry.clone(), order.into()).await.unwrap();
    let asked = json!({"last_by_subj": entry}).to_string();
    let get = "$JS.API.DIRECT.GET.AGENT_HISTORY";
    client.publish_with_reply(get, "agent.admin.raise", asked.into()).await.unwrap();
    client.flush().await.unwrap();
    eventually("the message is refused", async || {
        !letters(&cluster.client, "agent.admin.raise").await.is_empty()
    })
    .await;
    let letter = letters(&cluster.client, "agent.admin.raise").await.remove(0);
    assert!(letter.refusal.message.contains(REASON), "{letter:?}");
    let limit = cluster.client.trace(run).await.root().unwrap().budget.ceilings.limit.cost_usd;
    assert_eq!(limit, Usd::from_cents(100));
    assert_eq!(cluster.outcome(run).await.context.status, EndStatus::Completed);
}

/// How a subject treats a refused message.
enum Door {
    /// A refused message becomes a dead letter.
    Kept,
    /// Every worker receives it: a refused message is answered.
    Answered,
    /// A hint that decides nothing.
    Hint,
    /// No message is acted on: the subject is read back as a log, or read by people.
    None,
}

/// The door of each subject. The match makes a new subject choose one.
fn door(subject: &Subject) -> Door {
    match subject {
        Subject::Spawn
        | Subject::Graph
        | Subject::Cancel
        | Subject::Input
        | Subject::Submit
        | Subject::Steer
        | Subject::Query(_)
        | Subject::Execute(_)
        | Subject::Ask(..)
        | Subject::Result(..)
        | Subject::Cost(..) => Door::Kept,
        Subject::Drain | Subject::Worker => Door::Answered,
        Subject::Admin(_) => Door::Kept,
        Subject::Stop(_) => Door::Hint,
        Subject::Event(..)
        | Subject::Outcome(..)
        | Subject::Question(..)
        // Read only by coordinators that export spans, or have webhooks.
        | Subject::Span(..)
        | Subject::Webhook(..)
        | Subject::History(..)
        | Subject::Stream(..)
        | Subject::Dead(_)
        | Subject::Audit(_)
        | Subject::Profile(_)
        | Subject::Schedule(_)
        | Subject::Ticks(_)
        | Subject::Kept(_) => Door::None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s6_every_subject_refuses_messages_that_the_server_forwarded() {
    let cluster = Cluster::embedded();
    let client = &cluster.client;
    let spawn = json!({"goal": "x", "agent_id": "sleep", "inputs": {"ms": 600_000}});
    let run = client.accepted(spawn).await;
    let (trace, root): (TraceId, ChildId) = (run.trace_id, run.child_id.clone());
    eventually("the agent runs", async || client.trace(trace).await.root().unwrap().attempt() == 1).await;
    let others = [
        Subject::Spawn,
        Subject::Graph,
        Subject::Cancel,
        Subject::Input,
        Subject::Submit,
        Subject::Steer,
        Subject::Worker,
        Subject::Drain,
        Subject::Execute(pool()),
        Subject::Ask(pool(), home(trace)),
        Subject::Result(pool(), home(trace), trace, root.clone()),
        Subject::Cost(pool(), home(trace), trace, root.clone()),
        Subject::Stop(trace),
    ];
    let all = others.into_iter().chain(Topic::ALL.map(Subject::Query)).chain(Action::ALL.map(Subject::Admin));
    let cancel = json!({"trace_id": trace}).to_string();
    for header in ["Nats-Stream", "Nats-Subject", "Nats-Sequence"] {
        let headers: Headers = [(header.to_owned(), "1".to_owned())].into();
        for subject in all.clone() {
            let payload = cancel.clone().into();
            match door(&subject) {
                Door::Kept => {
                    let had = letters(client, &subject.to_string()).await.len();
                    client.bus.broadcast(&subject, &headers, payload).await.unwrap();
                    let name = subject.to_string();
                    eventually(&name, async || letters(client, &name).await.len() > had).await;
                    let letter = letters(client, &name).await.pop().unwrap();
                    assert!(letter.refusal.message.contains(REASON), "{subject}: {letter:?}");
                }
                Door::Answered => {
                    let answer = client.bus.request(&subject, &headers, payload, SOON).await.unwrap();
                    let answer: Value = serde_json::from_slice(&answer).unwrap();
                    assert!(answer["message"].as_str().unwrap().contains(REASON), "{subject}: {answer}");
                }
                Door::Hint => client.bus.broadcast(&subject, &headers, payload).await.unwrap(),
                Door::None => unreachable!("{subject} accepts no messages"),
            }
        }
    }
    assert!(client.trace(trace).await.root().unwrap().is_live(), "the cancels had no effect");
    cluster.stop().await;
}

/// A worker's asks and reports with a valid lease of the attempt, sent on the subject of another
/// pool.
#[tokio::test(flavor = "multi_thread")]
async fn s6_a_message_on_another_pools_subject_is_refused_and_stored() {
    let cluster = Cluster::embedded();
    let client = &cluster.client;
    let spawn = json!({"goal": "x", "agent_id": "sleep", "inputs": {"ms": 2_000}, "max_cost_usd": 1});
    let run = client.accepted(spawn).await;
    let (trace, root) = (run.trace_id, run.child_id.clone());
    eventually("the agent runs", async || client.trace(trace).await.root().unwrap().attempt() == 1).await;
    let stolen: domain::PoolName = "stolen".parse().unwrap();
    let lease = json!({"child_id": root, "attempt": 1, "token": "guessed"});
    let asks = [
        json!({"claim": {"child_id": root, "worker_id": "thief", "token": "new"}}),
        json!({"tick": {"lease": lease}}),
        json!({"hold": {"lease": lease, "call_id": "c", "amount": {"cost_usd": 1, "tokens": 1}}}),
        json!({"settle": {"lease": lease, "call_id": "c", "amount": {"cost_usd": 1, "tokens": 1}}}),
        json!({"context_list": {"lease": lease}}),
        json!({"context_get": {"lease": lease, "key": "facts"}}),
        json!({"part": {"lease": lease, "part": {"answer": 1}}}),
    ];
    for ask in asks {
        let payload = json!({"trace_id": trace, "ask": ask}).to_string();
        let subject = Subject::Ask(stolen.clone(), home(trace));
        let answer = client.bus.request(&subject, &Headers::new(), payload.into(), SOON).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["refused"]["code"], "other_pool", "{ask}: {answer}");
    }
    let cost =
        json!({"trace_id": trace, "lease": lease, "call_id": "c", "amount": {"cost_usd": 1, "tokens": 1}});
    let result = json!({"trace_id": trace,
        "report": {"lease": lease, "verdict": {"completed": {"inline": "mine"}}}});
    let at = |report: fn(domain::PoolName, Partition, TraceId, ChildId) -> Subject| {
        report(stolen.clone(), home(trace), trace, root.clone())
    };
    for (subject, message) in [(at(Subject::Cost), cost), (at(Subject::Result), result)] {
        client.publish(subject.clone(), &message).await;
        let name = subject.to_string();
        eventually("the message is stored", async || letters(client, &name).await.len() == 1).await;
        assert_eq!(letters(client, &name).await[0].refusal.code, "other_pool");
    }
    let outcome = client.outcome(trace, &root).await;
    assert_eq!((outcome.context.status, outcome.context.attempts), (EndStatus::Completed, 1));
    assert_eq!(outcome.context.budget.spent.cost_usd, Usd::from_cents(0));
    cluster.stop().await;
}

/// All records except the policy that a coordinator was started with.
async fn records(client: &Client) -> Vec<AdminRecord> {
    let mut records = all_records(client).await;
    records.retain(|record| record.asked != "policy");
    records
}

async fn all_records(client: &Client) -> Vec<AdminRecord> {
    let stored = client.bus.read(&Filter::Audits).await.unwrap();
    stored.iter().map(|stored| serde_json::from_slice(&stored.payload).unwrap()).collect()
}

/// Sends a request with these headers; every answer leaves a record.
async fn ask(client: &Client, query: &Value, headers: &Headers) -> Value {
    let payload = query.to_string();
    let answer = client.bus.request(&query_of(&payload), headers, payload.into(), SOON).await.unwrap();
    serde_json::from_slice(&answer).unwrap()
}

fn claims(by: &str) -> Headers {
    [(BY_HEADER.to_owned(), by.to_owned())].into()
}

#[tokio::test(flavor = "multi_thread")]
async fn s7_actions_of_an_administrator_are_recorded_with_the_sender() {
    let cluster = Cluster::embedded();
    let client = &cluster.client;
    client.run(json!({"goal": "is anybody there?"})).await;
    let schedule = json!({"name": "nightly", "cron": "0 3 * * *", "task": {"goal": "x"}});
    let agent = json!({"agent_id": "helper", "kind": "builtin", "builtin": "echo"});
    let steps = json!({"steps": [{"id": "a", "agent_id": "default", "task_description": "x"}]});
    let asked = [
        (json!({"apply_agents": {"agents": [agent]}}), "helper"),
        (json!({"put_schedule": {"schedule": schedule}}), "nightly"),
        (json!({"pause_schedule": {"name": "nightly"}}), "nightly"),
        (json!({"resume_schedule": {"name": "nightly"}}), "nightly"),
        (json!({"run_schedule": {"name": "nightly", "id": "now"}}), "nightly"),
        (json!({"delete_schedule": {"name": "nightly"}}), "nightly"),
        (json!({"put_graph": {"name": "facts", "graph": steps}}), "facts"),
        (json!({"delete_graph": {"name": "facts"}}), "facts"),
        (json!({"drain": {"worker_id": "nobody"}}), "nobody"),
        (json!({"delete_agent": {"agent_id": "helper"}}), "helper"),
    ];
    for (query, name) in &asked {
        let answer = ask(client, query, &claims("alice@desk")).await;
        assert!(answer.get("refused").is_none(), "{query}: {answer}");
        let last = records(client).await.pop().unwrap();
        let (what, _) = query.as_object().unwrap().iter().next().unwrap();
        assert_eq!((&last.asked, &last.names), (what, &vec![(*name).to_owned()]));
        assert_eq!(last.by, Some(Asker::Claimed("alice@desk".into())));
        assert_eq!(last.by.unwrap().to_string(), "alice@desk (claimed)");
    }
    let all = records(client).await.len();
    // A repeated request is one record; from another sender it is another; the sender may be
    // missing.
    ask(client, &asked[9].0, &claims("alice@desk")).await;
    assert_eq!(records(client).await.len(), all);
    ask(client, &asked[9].0, &Headers::new()).await;
    assert_eq!(records(client).await.last().unwrap().by, None);
    // Reads leave no record.
    ask(client, &json!("agents"), &claims("alice@desk")).await;
    assert_eq!(records(client).await.len(), all + 1);
    cluster.stop().await;
}

/// A record contains the digest of the request, so that one of two successive requests about one
/// name can't hide the other. Messages of clients about runs are in another log, and so do not push
/// records out.
#[tokio::test(flavor = "multi_thread")]
async fn s7_a_record_has_the_digest_of_its_request_and_a_log_of_its_own() {
    let cluster = Cluster::embedded();
    let client = &cluster.client;
    client.run(json!({"goal": "is anybody there?"})).await;
    let before = records(client).await.len();
    let put = |text: &str| json!({"put_graph": {"name": "facts", "graph": {"steps": [{"id": "a", "agent_id": "default", "task_description": text}]}}});
    for text in ["harmless", "harmful", "harmful"] {
        ask(client, &put(text), &claims("alice@desk")).await;
    }
    let all = records(client).await;
    let digests: Vec<_> = all[before..].iter().map(|record| record.digest.clone().unwrap()).collect();
    let expected = ["harmless", "harmful"].map(|text| domain::digest::sha256(put(text).to_string()));
    assert_eq!(digests, expected);
    let fills = client.bus.fill().await.unwrap();
    let audit = fills.iter().find(|fill| fill.storage == Storage::Stream(Stream::Audit)).unwrap();
    assert!(audit.bytes > 0 && audit.max_bytes.is_some(), "{audit:?}");
    cluster.stop().await;
}

/// The server's information about a sender is used only where it is trustworthy: within one account
/// any client can forge it.
#[tokio::test(flavor = "multi_thread")]
async fn s7_the_servers_statement_of_a_sender_is_used_only_with_the_option_for_it() {
    for trusted in [false, true] {
        let mut config = coordinator::Config::new("c1".parse().unwrap());
        config.trust_request_info = trusted;
        let bus = Bus::Memory(Memory::new(Default::default()));
        let memory = coordinator::store::Memory::new(config.topology.partitions);
        let store = coordinator::store::Store::Memory(memory);
        let worker = worker::Config::new("w1".parse().unwrap());
        let cluster = Cluster::start(bus, store, vec![config], vec![worker]);
        let client = &cluster.client;
        client.run(json!({"goal": "is anybody there?"})).await;
        let mut headers = claims("mallory");
        let info = json!({"acc": "ADMIN", "user": "alice", "name": "trellis", "rtt": 7}).to_string();
        headers.insert(REQUEST_INFO.to_owned(), info);
        ask(client, &json!({"delete_agent": {"agent_id": "nobody"}}), &headers).await;
        let user = Some("alice".to_owned());
        let server = Asker::Server { account: "ADMIN".into(), user, name: Some("trellis".into()) };
        let expected = if trusted { server } else { Asker::Claimed("mallory".into()) };
        assert_eq!(records(client).await.pop().unwrap().by, Some(expected));
        cluster.stop().await;
    }
}

/// A request about a run is an event of the run, through the durable queue.
#[tokio::test(flavor = "multi_thread")]
async fn s7_a_raise_is_an_event_with_its_sender() {
    let cluster = Cluster::embedded();
    let client = &cluster.client;
    let spawn = json!({"goal": "x", "agent_id": "sleep", "inputs": {"ms": 2_000}, "max_cost_usd": 1});
    let run = client.accepted(spawn).await;
    let control = json!({"trace_id": run.trace_id, "raise": {"child_id": run.child_id, "max_cost_usd": 2}});
    let message = bus::Outgoing {
        subject: admin_of(&control),
        id: None,
        headers: claims("alice@desk"),
        payload: control.to_string().into(),
        expect_last: None,
    };
    client.bus.publish(message).await.unwrap();
    let raised = async || {
        let stored = client.bus.read(&Filter::EventsOf(run.trace_id)).await.unwrap();
        let text: String = stored.iter().map(|stored| String::from_utf8_lossy(&stored.payload)).collect();
        text.contains(r#""by":{"claimed":"alice@desk"}"#)
    };
    eventually("the event names the sender", raised).await;
    client.outcome(run.trace_id, &run.child_id).await;
    cluster.stop().await;
}

/// The options of coordinators change a policy: a coordinator that starts with another policy
/// leaves a record, one with the same policy none.
#[tokio::test(flavor = "multi_thread")]
async fn s7_a_changed_policy_is_recorded_once() {
    let bus = Bus::Memory(Memory::new(Default::default()));
    let (coordinators, nothing) = (Subject::Query(Topic::Coordinators), Headers::new());
    let mut policies = Vec::new();
    for (place, cents) in [100, 100, 500].into_iter().enumerate() {
        let mut config = coordinator::Config::new(format!("c{place}").parse().unwrap());
        config.settings.maximum.max_cost_usd = Some(Usd::from_cents(cents));
        let memory = coordinator::store::Memory::new(config.topology.partitions);
        let store = coordinator::store::Store::Memory(memory);
        let cluster = Cluster::start(bus.clone(), store, vec![config], Vec::new());
        let answer = || cluster.client.bus.request(&coordinators, &nothing, r#""coordinators""#.into(), SOON);
        eventually("the coordinator answers", async || answer().await.is_ok()).await;
        policies = all_records(&cluster.client).await;
        cluster.stop().await;
    }
    let shown = |record: &AdminRecord| (record.by.clone().unwrap().to_string(), record.names[0].clone());
    let shown: Vec<_> = policies.iter().map(shown).collect();
    let expected = [("c0 (claimed)", "max_cost_usd $1.00"), ("c2 (claimed)", "max_cost_usd $5.00")];
    assert_eq!(shown, expected.map(|(by, policy)| (by.to_owned(), policy.to_owned())));
}

/// proves: a dead letter contains the reason, the size and a digest of its message, and none of its
/// content.
#[tokio::test(flavor = "multi_thread")]
async fn s2_a_dead_letter_has_no_content_of_what_was_refused() {
    let cluster = Processes::start(1, 1).await;
    let client = &cluster.client;
    let canary = format!("PRIVATE-{}", domain::digest::short_sha256(b"canary"));
    let message =
        json!({"goal": canary, "inputs": {"of": canary}, "max_cost_usd": -1, "trace_id": 7}).to_string();
    for subject in [
        Subject::Spawn,
        Subject::Graph,
        Subject::Cancel,
        Subject::Submit,
        Subject::Ask(pool(), Partition::new(0).unwrap()),
    ] {
        let name = subject.to_string();
        client.bus.broadcast(&subject, &Headers::new(), message.clone().into()).await.unwrap();
        eventually(&name, async || !letters(client, &name).await.is_empty()).await;
        let letter = letters(client, &name).await.remove(0);
        let told =
            format!("({} bytes, SHA-256 {})", message.len(), domain::digest::sha256(message.as_bytes()));
        assert_eq!(letter.payload, told, "{name}");
        assert!(!serde_json::to_string(&letter).unwrap().contains(&canary), "{name}: {letter:?}");
    }
}
