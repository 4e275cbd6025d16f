//! Storage that fills up: new submissions are refused first, and existing runs continue.

use std::process::Command;

use bus::{Bus, Error, Fill, Outgoing, Storage, Stream, Topology};
use domain::{
    TraceId,
    span::Headers,
    subject::{Filter, Subject},
    wire::{DeadLetter, EndStatus, SubmitAnswer},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use trellis_tests::{
    cluster::{Client, eventually},
    processes::binary,
    servers::NatsServer,
};

use super::ground::{self, Ground};

const SIZE: i64 = 256 << 10;
const MARK: u64 = coordinator::MARK_PERCENT;

fn config() -> coordinator::Config {
    let mut config = ground::config();
    config.topology.max_journal_bytes = Some(SIZE);
    config.topology.max_object_bytes = Some(2 * SIZE);
    config
}

/// The journal of another run fills the stream up to the mark, but not completely.
const FILLER: u128 = 0xf111;

async fn fill_journals(bus: &Bus) {
    let subject = Subject::History(
        trellis_tests::subjects::pool(),
        TraceId::from_u128(FILLER).unwrap(),
        "root".parse().unwrap(),
    );
    while percent(bus, Storage::Stream(Stream::History)).await < MARK {
        let payload = vec![b'x'; 4096].into();
        let (subject, headers) = (subject.clone(), Headers::new());
        bus.publish(Outgoing { subject, id: None, headers, payload, expect_last: None }).await.unwrap();
    }
}

async fn percent(bus: &Bus, storage: Storage) -> u64 {
    let fills = bus.fill().await.unwrap();
    fills.iter().find(|fill| fill.storage == storage).map(Fill::percent).unwrap()
}

/// Waits until submissions are refused. Returns the refusal's text.
async fn refused(client: &Client) -> String {
    let said = std::sync::Mutex::new(String::new());
    eventually("submissions are refused", async || match client.submit(json!({"goal": "hello"})).await {
        SubmitAnswer::Refused(refusal) => {
            assert_eq!(refusal.code, "storage_full");
            *said.lock().unwrap() = refusal.message;
            true
        }
        SubmitAnswer::Accepted(_) => false,
    })
    .await;
    said.into_inner().unwrap()
}

async fn dead_letters(bus: &Bus) -> Vec<DeadLetter> {
    let letters = bus.read(&Filter::Dead).await.unwrap();
    letters.iter().map(|stored| serde_json::from_slice(&stored.payload).unwrap()).collect()
}

/// proves: the mark. Without it the last run is accepted, and fails after it has paid for a call.
async fn n6_nearly_full_storage_refuses_new_runs_and_lets_the_others_go_on(ground: Ground) {
    let cluster = ground.start(config());
    let (client, bus) = (&cluster.client, &ground.bus);
    let asking = client.accepted(json!({"goal": "which?", "agent_id": "ask", "child_id": "root"})).await;
    let root = asking.child_id;
    eventually("the agent asks a question", async || {
        !bus.read(&Filter::QuestionsOf(asking.trace_id)).await.unwrap().is_empty()
    })
    .await;
    fill_journals(bus).await;
    let said = refused(client).await;
    for part in ["AGENT_HISTORY", "--retention", "--max-journal-bytes", "trellis runs delete"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    // A published submission is not lost.
    let waiting = TraceId::from_u128(7).unwrap();
    let published = json!({"goal": "later", "trace_id": waiting, "child_id": "root"});
    client.publish(Subject::Spawn, &published).await;

    let answered = json!({"child_id": "root", "question": 1, "answer": "left"});
    let answer = json!({"trace_id": asking.trace_id, "answered": answered});
    client.publish(Subject::Input, &answer).await;
    let outcome = client.outcome(asking.trace_id, &root).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert!(!ground.has(waiting).await, "a coordinator read the intake meanwhile");

    bus.purge(&Filter::HistoriesOf(TraceId::from_u128(FILLER).unwrap())).await.unwrap();
    let outcome = client.outcome(waiting, &root).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    client.run(json!({"goal": "hello"})).await;
    assert!(dead_letters(bus).await.is_empty());

    let object = bytes::Bytes::from(vec![7; 32 << 10]);
    let mut number = 0;
    let error = loop {
        number += 1;
        match bus.put_object(&format!("t.x.{number}"), object.clone()).await {
            Ok(()) => assert!(number < 100, "the objects have a limit"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Failed { .. }), "{error:?}");
    let said = refused(client).await;
    assert!(said.contains("AGENT_OUTPUTS") && said.contains("--max-output-bytes"), "{said}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n6_nearly_full_storage_refuses_new_runs_in_memory() {
    n6_nearly_full_storage_refuses_new_runs_and_lets_the_others_go_on(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n6_nearly_full_storage_refuses_new_runs_on_servers() {
    n6_nearly_full_storage_refuses_new_runs_and_lets_the_others_go_on(Ground::on_servers().await).await;
}

/// proves: only a bounded number of submissions wait in the intake. If more of them were
/// unacknowledged than the server delivers, the cancel would never come.
#[tokio::test(flavor = "multi_thread")]
async fn n6_submissions_that_wait_for_room_do_not_keep_cancels_from_coming() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let (client, bus) = (&cluster.client, &ground.bus);
    let asking = client.accepted(json!({"goal": "which?", "agent_id": "ask", "child_id": "root"})).await;
    fill_journals(bus).await;
    refused(client).await;
    let payload = bytes::Bytes::from(serde_json::to_vec(&json!({"goal": "hello"})).unwrap());
    let (subject, headers) = (Subject::Spawn, Headers::new());
    let message = Outgoing { subject, id: None, headers, payload, expect_last: None };
    for stored in bus.send(vec![message; 20_100]).await.stored().await {
        stored.unwrap();
    }
    client.publish(Subject::Cancel, &json!({"trace_id": asking.trace_id})).await;
    let outcome = client.outcome(asking.trace_id, &asking.child_id).await;
    assert_eq!(outcome.context.status, EndStatus::Cancelled);
    let letters = dead_letters(bus).await;
    assert!(!letters.is_empty() && letters.iter().all(|letter| letter.refusal.code == "storage_full"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n6_health_shows_how_full_the_storage_is() {
    let ground = Ground::in_memory();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let cluster = ground.start(coordinator::Config { health: Some(free), ..config() });
    cluster.client.run(json!({"goal": "hello"})).await;
    fill_journals(&ground.bus).await;
    refused(&cluster.client).await;
    let mut stream = TcpStream::connect(free).await.unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "a full stream made the coordinator not ready: {answer}");
    for part in ["storage: AGENT_EVENT 0 %", "storage: AGENT_HISTORY 8", "no new runs: AGENT_HISTORY"] {
        assert!(answer.contains(part), "no {part} in {answer}");
    }
    cluster.stop().await;
}

/// proves: a server with too little storage for the streams is reported as such, with the reserved
/// sizes and the options that lower them.
#[tokio::test(flavor = "multi_thread")]
async fn n6_a_server_with_too_little_storage_is_reported_with_the_needed_size() {
    let nats = NatsServer::start_with("max_file_store: 800MB", "");
    let trellis = |arguments: &[&str]| {
        let output =
            Command::new(binary()).args(arguments).env_clear().env("NATS_URL", nats.url()).output().unwrap();
        let [said, told] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        (output.status.code(), said + &told)
    };
    let needed = domain::wording::size(Topology::default().reserved_bytes());
    let (code, said) = trellis(&["provision"]);
    assert_eq!(code, Some(5), "{said}");
    for says in [
        "nats-server refuses to reserve ",
        "of storage",
        needed.as_str(),
        "--max-log-bytes",
        "max_file_store",
    ] {
        assert!(said.contains(says), "{says}\nis not in\n{said}");
    }
    let (_, said) = trellis(&["doctor"]);
    assert!(said.contains(&format!("nats-server needs {needed} of storage for them")), "{said}");
    let small = ["--max-log-bytes", "16MiB", "--max-queue-bytes", "16MiB"];
    let (code, said) = trellis(&[&["provision"][..], &small].concat());
    assert_eq!(code, Some(0), "{said}");
    let (_, said) = trellis(&["doctor"]);
    assert!(said.contains(" reserved\n"), "{said}");
}
