//! Webhooks for outcomes and questions (X9): over real HTTP, through crashes, and without deleted
//! content.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU16, Ordering::SeqCst},
    },
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode, Uri},
    response::IntoResponse,
};
use bus::Bus;
use coordinator::store::{Memory, Store};
use domain::{Timestamp, signature::Secret, subject::Subject};
use host::{
    random::Random,
    webhook::{Sender, WebhookError, Webhooks},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use trellis_tests::{
    cluster::{Cluster, eventually, name},
    directory::Directory,
    processes::{Processes, Shape},
};

fn fresh_secret() -> Secret {
    Secret::from_bits([Random::System.bits(), Random::System.bits()])
}

/// A message as a receiver gets it.
#[derive(Debug, Clone)]
struct Told {
    path: String,
    headers: HeaderMap,
    body: Value,
    raw: Bytes,
}

impl Told {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A server that accepts messages, or answers with another status.
struct Receiver {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    all: Arc<Mutex<Vec<Told>>>,
}

impl Receiver {
    async fn start() -> Self {
        let (status, all) = (Arc::new(AtomicU16::new(204)), Arc::new(Mutex::new(Vec::new())));
        let (answers, keeps) = (status.clone(), all.clone());
        let take = move |uri: Uri, headers: HeaderMap, raw: Bytes| async move {
            let is_refused = raw.windows(6).any(|bytes| bytes == b"poison");
            let status = if is_refused { 422 } else { answers.load(SeqCst) };
            let status = StatusCode::from_u16(status).unwrap();
            let body = serde_json::from_slice(&raw).unwrap_or_default();
            let told = Told { path: uri.path().to_owned(), headers, body, raw };
            keeps.lock().unwrap_or_else(PoisonError::into_inner).push(told);
            (status, [("location", "/elsewhere")]).into_response()
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(take);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Receiver { address, status, all }
    }

    fn answers(&self, status: u16) {
        self.status.store(status, SeqCst);
    }

    fn at(&self, path: &str) -> Vec<Told> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|told| told.path == path).cloned().collect()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

fn file(directory: &Directory, webhooks: &Value) -> PathBuf {
    fs::create_dir_all(directory.path()).unwrap();
    let path = directory.path().join("webhooks.yaml");
    fs::write(&path, json!({"webhooks": webhooks}).to_string()).unwrap();
    path
}

fn cluster(directory: &Directory, webhooks: &Value) -> Cluster {
    let mut coordinator = coordinator::Config::new(name("coordinator"));
    coordinator.webhooks = Webhooks::read(&file(directory, webhooks)).unwrap();
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let store = Store::Memory(Memory::new(coordinator.topology.partitions));
    Cluster::start(bus, store, vec![coordinator], vec![worker::Config::new(name("worker"))])
}

#[tokio::test(flavor = "multi_thread")]
async fn x9_outcomes_and_questions_are_sent_with_a_signature_of_each_secret() {
    let (receiver, directory) = (Receiver::start().await, Directory::fresh());
    let secrets = [fresh_secret(), fresh_secret()];
    let all = json!([
        {"name": "all", "url": receiver.url("/all"), "internal": true, "secrets": secrets},
        {"name": "every", "url": receiver.url("/every"), "internal": true, "secrets": [fresh_secret()], "contexts": "all", "on": ["outcome"]},
        {"name": "docs", "url": receiver.url("/docs"), "internal": true, "secrets": [fresh_secret()], "labels": {"team": "docs"}}]);
    let cluster = cluster(&directory, &all);
    let client = &cluster.client;
    let steps = json!([{"id": "write", "agent_id": "echo", "task_description": "a text"}, {"id": "release", "approve": {"who": "the owner", "question": "Good?"}}]);
    let run = client.accepted(json!({"child_id": "book", "steps": steps})).await;
    eventually("the webhook receives the question", async || receiver.at("/all").len() == 1).await;
    let asked = &receiver.at("/all")[0];
    assert_eq!(asked.body["type"], "question");
    assert_eq!(asked.body["data"]["question"], "Good?");
    assert_eq!(asked.header("webhook-id"), format!("{}.release.question.1.0", run.trace_id));
    let answer = json!({"trace_id": run.trace_id, "answered": {"child_id": "release", "question": 1, "answer": "yes"}});
    client.publish(Subject::Input, &answer).await;
    eventually("the webhooks receive all outcomes", async || {
        receiver.at("/all").len() == 2 && receiver.at("/every").len() == 3
    })
    .await;
    let ended = receiver.at("/all").remove(1);
    assert_eq!(ended.body["type"], "outcome");
    assert_eq!(ended.body["timestamp"], ended.body["data"]["ended_at"]);
    assert_eq!(
        (&ended.body["data"]["child_id"], &ended.body["data"]["status"]),
        (&json!("book"), &json!("completed"))
    );
    let (id, time) = (ended.header("webhook-id"), ended.header("webhook-timestamp"));
    let signed = domain::signature::signatures(&secrets, id, time.parse().unwrap(), &ended.raw);
    assert_eq!(ended.header("webhook-signature"), signed);
    assert_eq!(signed.split(' ').count(), 2, "one signature for each secret");
    // Only runs with its labels.
    let labelled = client.run(json!({"goal": "x", "agent_id": "echo", "labels": {"team": "docs"}})).await;
    eventually("the webhook receives the run with the label", async || receiver.at("/docs").len() == 1).await;
    assert_eq!(receiver.at("/docs")[0].body["data"]["trace_id"], json!(labelled.trace_id));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x9_an_unreachable_webhook_gets_its_messages_later_under_the_same_id_and_delays_no_other() {
    let (away, there, directory) = (Receiver::start().await, Receiver::start().await, Directory::fresh());
    away.answers(503);
    let one = |name: &str, at: &Receiver| json!({"name": name, "url": at.url("/"), "internal": true, "secrets": [fresh_secret()]});
    let cluster = cluster(&directory, &json!([one("away", &away), one("there", &there)]));
    for _ in 0..20 {
        cluster.client.run(json!({"goal": "x", "agent_id": "echo"})).await;
    }
    eventually("the other webhook receives its messages", async || there.at("/").len() == 20).await;
    assert!(
        (1..20).contains(&away.at("/").len()),
        "messages to a failing webhook were not sent one at a time: {}",
        away.at("/").len()
    );
    let first = away.at("/")[0].header("webhook-id").to_owned();
    away.answers(200);
    let tried = away.at("/").len();
    let taken = || {
        let all = away.at("/").split_off(tried);
        all.iter().map(|told| told.header("webhook-id").to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    eventually("the webhook receives all messages later", async || taken().len() == 20).await;
    assert!(taken().contains(&first), "a retry has the id of the first try");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x9_a_message_that_is_refused_for_itself_keeps_no_other_waiting() {
    let (receiver, directory) = (Receiver::start().await, Directory::fresh());
    let all =
        json!([{"name": "one", "url": receiver.url("/"), "internal": true, "secrets": [fresh_secret()]}]);
    let cluster = cluster(&directory, &all);
    cluster.client.run(json!({"goal": "poison", "agent_id": "echo"})).await;
    eventually("the webhook refused the message", async || receiver.at("/").len() == 1).await;
    for number in 1..=20 {
        cluster.client.run(json!({"goal": "fine", "agent_id": "echo"})).await;
        let fine = || receiver.at("/").iter().filter(|told| told.body["data"]["result"] == "fine").count();
        // The webhook is not paused: each run is sent before the next ends.
        eventually("the webhook receives another message", async || fine() == number).await;
    }
    eventually("the message is sent again", async || {
        let all = receiver.at("/");
        all.iter().filter(|told| told.body["data"]["result"] == "poison").count() > 1
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x9_the_file_is_read_again_and_one_that_is_wrong_changes_nothing() {
    let (receiver, directory) = (Receiver::start().await, Directory::fresh());
    let one = |path: &str| json!({"name": path.trim_start_matches('/'), "url": receiver.url(path), "internal": true, "secrets": [fresh_secret()]});
    let cluster = cluster(&directory, &json!([one("/first")]));
    file(&directory, &json!([one("/first"), one("/second")]));
    eventually("the new webhook receives a message", async || {
        cluster.client.run(json!({"goal": "x", "agent_id": "echo"})).await;
        !receiver.at("/second").is_empty()
    })
    .await;
    file(&directory, &json!([{"name": "wrong"}]));
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    let before = (receiver.at("/first").len(), receiver.at("/second").len());
    cluster.client.run(json!({"goal": "x", "agent_id": "echo"})).await;
    eventually("both webhooks receive a message", async || {
        receiver.at("/first").len() > before.0 && receiver.at("/second").len() > before.1
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x9_a_webhook_gets_no_content_that_was_deleted_meanwhile() {
    let (receiver, directory) = (Receiver::start().await, Directory::fresh());
    receiver.answers(500);
    let all =
        json!([{"name": "one", "url": receiver.url("/"), "internal": true, "secrets": [fresh_secret()]}]);
    let cluster = cluster(&directory, &all);
    let run = cluster.client.run(json!({"goal": "a private word", "agent_id": "echo"})).await;
    eventually("the message was sent", async || !receiver.at("/").is_empty()).await;
    let tried = receiver.at("/").len();
    assert_eq!(receiver.at("/")[0].body["data"]["result"], "a private word");
    let delete = json!({"trace_id": run.trace_id, "delete": {"outside": {"known": []}}});
    cluster.client.publish(Subject::Admin(domain::subject::Action::Delete), &delete).await;
    let outcome = domain::subject::Filter::OutcomesOf(run.trace_id);
    eventually("the content is deleted", async || {
        let stored = cluster.client.bus.read(&outcome).await.unwrap();
        stored.iter().all(|stored| !String::from_utf8_lossy(&stored.payload).contains("private"))
    })
    .await;
    let after = receiver.at("/").len();
    receiver.answers(200);
    eventually("the webhook receives the message", async || receiver.at("/").len() > after).await;
    let told = receiver.at("/").split_off(tried.max(after));
    assert!(told.iter().all(|told| !told.body.to_string().contains("private")), "{told:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x9_after_a_kill_another_coordinator_sends_the_message() {
    let (receiver, directory) = (Receiver::start().await, Directory::fresh());
    receiver.answers(503);
    let all =
        json!([{"name": "one", "url": receiver.url("/"), "internal": true, "secrets": [fresh_secret()]}]);
    let path = file(&directory, &all).display().to_string();
    let environment = vec![("TRELLIS_WEBHOOKS".to_owned(), path)];
    let mut cluster =
        Processes::start_as(|| Shape { coordinators_environment: environment, ..Shape::new(2, 1) }).await;
    let run = cluster.begin(json!({"child_id": "root", "goal": "x", "agent_id": "echo"})).await;
    cluster.outcome(run).await;
    eventually("the message was sent", async || !receiver.at("/").is_empty()).await;
    cluster.kill("c1");
    let tried = receiver.at("/").len();
    receiver.answers(200);
    eventually("the webhook receives the message", async || receiver.at("/").len() > tried).await;
    let told = receiver.at("/").pop().unwrap();
    assert_eq!(told.header("webhook-id"), format!("{run}.root.outcome"));
    assert_eq!(told.body["data"]["result"], "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn x9_no_redirect_is_followed_and_no_internal_name_is_connected_to() {
    let (receiver, directory) = (Receiver::start().await, Directory::fresh());
    let port = receiver.address.port();
    let webhooks = Webhooks::read(&file(
        &directory,
        &json!([
            {"name": "redirects", "url": receiver.url("/from"), "internal": true, "secrets": [fresh_secret()]},
            {"name": "internal", "url": format!("https://localhost:{port}/"), "secrets": [fresh_secret()]}]),
    ))
    .unwrap()
    .now();
    let sender = Sender::new().unwrap();
    receiver.answers(307);
    let now = Timestamp::from_millis(1_000);
    let redirected = sender.send(&webhooks[0], "one", now, b"{}".to_vec()).await;
    assert_eq!(redirected, Err(WebhookError::Redirect(307)));
    assert_eq!((receiver.at("/from").len(), receiver.at("/elsewhere").len()), (1, 0));
    let Err(WebhookError::Unreachable(why)) = sender.send(&webhooks[1], "two", now, b"{}".to_vec()).await
    else {
        panic!("an internal name must not be connected to");
    };
    assert!(why.contains("internal network"), "{why}");
    assert_eq!(receiver.at("/").len(), 0);
}
