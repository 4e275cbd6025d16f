//! The commands about agents (N7) on real servers, and the exit codes of refused commands.

use std::process::Command;

use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, eventually},
    processes::binary,
    servers::{NatsServer, RedisServer},
};

/// The output of a command, and its exit code.
struct Said {
    out: String,
    error: String,
    code: Option<i32>,
}

fn trellis(nats: &NatsServer, arguments: &[&str]) -> Said {
    let output = Command::new(binary()).args(arguments).env_clear().env("NATS_URL", nats.url()).output();
    let output = output.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { out: text(&output.stdout), error: text(&output.stderr), code: output.status.code() }
}

fn file(name: &str, agents: &Value) -> String {
    let file = std::env::temp_dir().join(format!("trellis-{}-{name}.json", std::process::id()));
    std::fs::write(&file, agents.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

/// proves: an invalid message does not prevent reading the other records. With the key only records
/// signed by coordinators are shown; without the key the output says that the records are
/// unverified.
#[tokio::test(flavor = "multi_thread")]
async fn s7_the_admin_log_is_verified_and_no_message_ends_it() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let cluster = Cluster::on(&nats, &redis).await;
    cluster.client.accepted(json!({"goal": "it is up"})).await;
    let writer = file("writer", &json!([{"agent_id": "writer", "kind": "builtin", "builtin": "echo"}]));
    assert_eq!(trellis(&nats, &["agents", "apply", &writer]).code, Some(0));
    let client = async_nats::connect(nats.url()).await.unwrap();
    let stream = async_nats::jetstream::new(client);
    let forged = json!({"at": 1, "asked": "delete_agent", "names": ["forged"], "by": {"claimed": "bob"}});
    for text in ["no record".to_owned(), forged.to_string()] {
        stream.publish("agent.audit.apply", text.into()).await.unwrap().await.unwrap();
    }
    let unverified = trellis(&nats, &["admin-log"]);
    assert_eq!(unverified.code, Some(0), "{}", unverified.error);
    for part in ["apply_agents", "writer", "forged"] {
        assert!(unverified.out.contains(part), "{part}: {}", unverified.out);
    }
    assert!(unverified.error.contains("not verified"), "{}", unverified.error);
    assert!(unverified.error.contains("not records: 1 message"), "{}", unverified.error);
    let key = file("key", &Value::Null);
    std::fs::write(&key, trellis_tests::cluster::KEY).unwrap();
    let verified = trellis(&nats, &["admin-log", "--log-key-file", &key]);
    assert_eq!(verified.code, Some(0), "{}", verified.error);
    assert!(verified.out.contains("writer") && !verified.out.contains("forged"), "{}", verified.out);
    assert!(verified.error.contains("signed them: 2 messages"), "{}", verified.error);
    assert!(!verified.error.contains("not verified"), "{}", verified.error);
    cluster.stop_with_refusals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n7_profiles_are_applied_shown_compared_and_deleted() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let cluster = Cluster::on(&nats, &redis).await;
    cluster.client.accepted(json!({"goal": "it is up"})).await;
    let said = |arguments: &[&str]| trellis(&nats, arguments);
    let writer = |description: &str| json!([{"agent_id": "writer", "kind": "builtin", "builtin": "echo", "description": description}]);
    let (one, two) = (file("one", &writer("one")), file("two", &writer("two")));

    let new = said(&["agents", "diff", &one]);
    assert!(new.code == Some(1) && new.out.starts_with("writer (new in "), "{}{}", new.out, new.error);
    assert_eq!(said(&["agents", "apply", &one]).out, "writer: version 1\n");
    assert_eq!(said(&["agents", "apply", &one]).out, "writer: unchanged, version 1\n");
    assert_eq!(said(&["agents", "diff", &one]).code, Some(0));
    let changes = said(&["agents", "diff", &two]);
    assert_eq!(changes.code, Some(1));
    assert!(changes.out.contains("  - description: \"one\"\n  + description: \"two\"\n"), "{}", changes.out);
    assert_eq!(said(&["agents", "apply", &two]).out, "writer: version 2\n");
    let same = said(&["agents", "diff", "writer"]).out;
    assert!(same.starts_with("writer (version 1 and version 2)\n"), "{same}");
    assert_eq!(said(&["agents", "diff", "writer", "2", "2"]).code, Some(0));
    assert_eq!(said(&["agents", "diff", "writer", "2", "9"]).code, Some(3));

    let listed = said(&["agents", "list"]).out;
    let line = listed.lines().find(|line| line.starts_with("writer")).unwrap();
    assert_eq!(line.split_whitespace().take(3).collect::<Vec<_>>(), ["writer", "2", "builtin"]);
    let first = said(&["agents", "show", "writer", "--version", "1"]);
    assert!(first.error.contains("writer: version 1, applied at 20"), "{}", first.error);
    assert!(first.error.contains("stored versions: 2 1"), "{}", first.error);
    let again = file("again", &serde_json::from_str(&first.out).unwrap());
    assert_eq!(
        said(&["agents", "apply", &again]).out,
        "writer: version 3\n",
        "the shown profile can be applied"
    );

    let run = cluster.client.accepted(json!({"goal": "hello", "agent_id": "writer"})).await;
    let trace = run.trace_id.to_string();
    cluster.client.outcome(run.trace_id, &run.child_id).await;
    let described = said(&["runs", "show", &trace]).out;
    assert!(described.contains("writer v3"), "{described}");

    let deleted = said(&["agents", "delete", "writer"]);
    assert!(deleted.code == Some(0) && deleted.out.starts_with("writer: deleted at 20"), "{}", deleted.error);
    assert_eq!(said(&["agents", "delete", "writer"]).out, deleted.out, "a second delete changes nothing");
    let unknown = said(&["submit", "--goal", "x", "--agent", "writer"]);
    assert!(unknown.code == Some(3) && unknown.error.contains("it was deleted at 20"), "{}", unknown.error);
    assert_eq!(said(&["agents", "show", "writer"]).code, Some(3));
    assert_eq!(said(&["agents", "show", "writer", "--version", "2"]).code, Some(0), "its versions remain");
    let refused = said(&["agents", "delete", "default"]);
    assert!(refused.code == Some(3) && refused.error.contains("hint: apply another"), "{}", refused.error);
    cluster.stop().await;
}

/// A program that calls the command line learns from the exit code that nothing happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_cancel_or_delete_has_an_exit_code_of_its_own() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let cluster = Cluster::on(&nats, &redis).await;
    let said = |arguments: &[&str]| trellis(&nats, arguments);
    let ended = cluster.client.accepted(json!({"goal": "hello"})).await;
    cluster.client.outcome(ended.trace_id, &ended.child_id).await;
    let late = said(&["runs", "cancel", &ended.trace_id.to_string()]);
    assert_eq!(late.code, Some(3), "{}{}", late.out, late.error);
    assert!(late.error.contains("nothing was cancelled: the run had ended as completed"), "{}", late.error);
    let json = said(&["runs", "cancel", &ended.trace_id.to_string(), "-o", "json"]);
    let answer: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&answer["taken"], json.code), (&json!(false), Some(3)));

    let live = cluster.client.accepted(json!({"goal": "which?", "agent_id": "ask"})).await;
    let trace = live.trace_id.to_string();
    eventually("the agent runs", async || {
        cluster.client.trace(live.trace_id).await.root().unwrap().attempt() > 0
    })
    .await;
    let refused = said(&["runs", "delete", &trace, "--yes"]);
    assert_eq!(refused.code, Some(3), "{}{}", refused.out, refused.error);
    let cancelled = said(&["runs", "cancel", &trace]);
    assert_eq!((cancelled.out, cancelled.code), (format!("{trace}: the run is cancelled\n"), Some(0)));
    assert_eq!(said(&["runs", "cancel", &trace]).code, Some(0), "the run is already cancelled");
    assert_eq!(said(&["runs", "delete", &trace, "--yes"]).code, Some(0));
    cluster.stop().await;
}
