//! `trellis receipt`, `audit` and `events` on real servers: no findings on the examples, and
//! findings once the log was changed.

use std::process::Command;

use bus::{Outgoing, StoredMessage};
use domain::{TraceId, span::Headers, subject::Filter};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::Cluster,
    processes::binary,
    servers::{NatsServer, RedisServer},
};

/// A command line in a cluster.
struct Commands(String);

impl Commands {
    /// Returns stdout, stderr and the exit code.
    fn run(&self, arguments: &[&str]) -> (String, String, i32) {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(root).env_clear().env("NATS_URL", &self.0);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (stdout, stderr, _) = self.run(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}"))
    }

    /// Runs an example. Returns its trace.
    fn example(&self, name: &str) -> String {
        let file = format!("examples/{name}");
        let folder = file.rsplit_once('/').unwrap().0;
        let submitted = self.json(&["submit", &file, "--agents", &format!("{folder}/agents.yaml"), "--wait"]);
        submitted["trace_id"].as_str().unwrap_or_else(|| panic!("{submitted}")).to_owned()
    }

    /// The findings of an audit.
    fn findings(&self, trace: &str) -> (Vec<String>, i32) {
        let (stdout, stderr, code) = self.run(&["audit", trace, "--brief"]);
        assert!(stdout.contains(&format!("audit of {trace}")), "{stdout}{stderr}");
        (stderr.lines().filter_map(|line| line.strip_prefix("error: ")).map(str::to_owned).collect(), code)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b19_g12_receipts_and_audits_of_the_examples() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let cluster = Cluster::on(&nats, &redis).await;
    let commands = Commands(nats.url());
    let undone = "scenarios/13-undo.yaml";
    for example in ["research.yaml", "author-and-critic.yaml", "map-reduce.json", "race.yaml", undone] {
        let trace = commands.example(example);
        let (findings, code) = commands.findings(&trace);
        assert_eq!((findings, code), (vec![], 0), "{example}");
        let receipt = commands.json(&["receipt", &trace]);
        let spent = cluster.client.trace(trace.parse().unwrap()).await.root().unwrap().budget.spent;
        assert_eq!(receipt["receipt"]["total"], json!(spent), "{example}");
        let (csv, _, _) = commands.run(&["receipt", &trace, "-o", "csv"]);
        let column = csv.lines().next().unwrap().split(',').position(|name| name == "cost_usd").unwrap();
        // No cell before the costs contains a comma.
        let nanos = |cell: &str| -> i64 {
            let (whole, fraction) = cell.trim_start_matches('-').split_once('.').unwrap_or((cell, ""));
            let nanos = whole.parse::<i64>().unwrap_or(0) * 1_000_000_000
                + format!("{fraction:0<9}").parse::<i64>().unwrap();
            if cell.starts_with('-') { -nanos } else { nanos }
        };
        let costs = csv
            .lines()
            .skip(1)
            .filter_map(|line| line.split(',').nth(column))
            .filter(|cell| !cell.is_empty());
        assert_eq!(costs.map(nanos).sum::<i64>(), i64::try_from(spent.cost_usd.nanos()).unwrap(), "{csv}");
        let (md, _, code) = commands.run(&["receipt", &trace, "-o", "md"]);
        assert!(md.starts_with("# Receipt") && md.contains("| CONTEXT | AGENT |") && code == 0, "{md}");
        if example == undone {
            // A group is shown below its graph, and an undo names the undone step; its cost is in
            // the sums above.
            let (shown, _, _) = commands.run(&["receipt", &trace]);
            for row in ["\nundo  ", "\n  hotels  ", "\n    first-night  ", "\n  flight-undo  "] {
                assert!(shown.contains(row), "no {row:?} in\n{shown}");
            }
            let note = shown.lines().find(|line| line.starts_with("  flight-undo ")).unwrap();
            assert!(note.ends_with("  undoes flight") && !note.contains("  $0.00  $0.00  $0.00"), "{note}");
            let contexts = receipt["receipt"]["contexts"].as_array().unwrap();
            assert!(contexts.iter().any(|context| context["undoes"] == "second-night"), "{receipt:#}");
        }
    }
    let refused = commands.run(&["runs", "list", "-o", "csv"]);
    assert!(refused.1.contains("only `trellis receipt` prints csv and md") && refused.2 == 2, "{refused:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b19_an_audit_is_red_once_the_log_is_changed() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let cluster = Cluster::on(&nats, &redis).await;
    let commands = Commands(nats.url());
    let bus = cluster.client.bus.clone();
    let read =
        async |trace: &str| bus.read(&Filter::EventsOf(trace.parse::<TraceId>().unwrap())).await.unwrap();
    let settles = |stored: &&StoredMessage| String::from_utf8_lossy(&stored.payload).contains("\"settled\"");
    let again = |stored: &StoredMessage, payload: Vec<u8>| Outgoing {
        subject: stored.subject.clone(),
        // The server drops a second message with the same id.
        id: Some(format!("another-{}", stored.sequence)),
        headers: Headers::new(),
        payload: payload.into(),
        expect_last: None,
    };

    // The events of the command line: one settles a call.
    let trace = commands.example("research.yaml");
    let (events, _, code) = commands.run(&["events", &trace, "--type", "settled"]);
    assert!(
        events.lines().count() > 1 && events.lines().skip(1).all(|line| line.contains("settled")),
        "{events}"
    );
    assert_eq!(code, 0);
    let (lines, _, _) = commands.run(&["events", &trace, "--follow", "-o", "json"]);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["event"], &first["body"]["type"]), (&json!(1), &json!("opened")));

    // One event appears twice.
    let log = read(&trace).await;
    let one = log.iter().find(settles).unwrap();
    bus.publish(again(one, one.payload.to_vec())).await.unwrap();
    let (findings, code) = commands.findings(&trace);
    assert!(
        findings.iter().any(|what| what.starts_with("log: event") && what.contains("twice")),
        "{findings:?}"
    );
    assert_eq!(code, 1);

    // One event is missing.
    let trace = commands.example("research.yaml");
    let log = read(&trace).await;
    let one = log.iter().find(settles).unwrap();
    bus.delete_message(&one.subject, one.sequence).await.unwrap();
    let (findings, code) = commands.findings(&trace);
    assert!(
        findings.iter().any(|what| what.starts_with("log: events") && what.contains("missing")),
        "{findings:?}"
    );
    assert_eq!(code, 1);

    // One cent is changed.
    let trace = commands.example("research.yaml");
    let log = read(&trace).await;
    let one = log.iter().find(settles).unwrap();
    let mut message: Value = serde_json::from_slice(&one.payload).unwrap();
    let events = message["events"].as_array_mut().unwrap().iter_mut();
    for event in events.filter(|event| event["type"] == "settled") {
        event["amount"]["cost_usd"] = json!(0.0123);
    }
    bus.publish(again(one, serde_json::to_vec(&message).unwrap())).await.unwrap();
    bus.delete_message(&one.subject, one.sequence).await.unwrap();
    let (findings, code) = commands.findings(&trace);
    assert!(findings.iter().any(|what| what.starts_with("store: the root has spent")), "{findings:?}");
    assert!(
        findings.iter().any(|what| what.starts_with("journal:") && what.contains("but $0.0123 and")),
        "{findings:?}"
    );
    assert_eq!(code, 1);
    cluster.stop().await;
}
