//! The command line's output about lowered ceilings (B17) and disputed charges (B18), on real
//! servers.

use std::process::Command;

use bus::{Bus, Connect, Nats};
use coordinator::store::{Redis, Store};
use domain::{TraceId, Usd};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, eventually, name},
    processes::binary,
    servers::{NatsServer, RedisServer},
    subjects::admin_of,
};

#[tokio::test(flavor = "multi_thread")]
async fn b17_b18_the_command_line_shows_lowered_limits_and_decides_disputes() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let to = Connect::new(nats.url(), Default::default(), "test");
    let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
    let mut config = coordinator::Config::new(name("coordinator"));
    config.settings.maximum.max_cost_usd = Some(Usd::from_cents(50));
    let store = Redis::connect(&redis.url(), Default::default(), config.topology.partitions).await.unwrap();
    let worker = worker::Config::new(name("worker"));
    let cluster = Cluster::start(bus, Store::Redis(store), vec![config], vec![worker]);
    let said = |arguments: &[&str]| {
        let output = Command::new(binary()).args(arguments).env_clear().env("NATS_URL", nats.url()).output();
        let output = output.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!("{}{} exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
    };

    let submitted = said(&["submit", "--goal", "hello", "--max-cost-usd", "1000"]);
    assert!(
        submitted.contains("max_cost_usd is 0.5, not 1000.0: the deployment allows no more"),
        "{submitted}"
    );
    let trace = submitted.lines().find_map(|line| line.strip_prefix("trace_id ")).unwrap().to_owned();
    let id: TraceId = trace.parse().unwrap();
    cluster.client.outcome(id, &"root".parse().unwrap()).await;
    let described = said(&["runs", "show", &trace]);
    assert!(described.contains("limits of root: max_cost_usd is 0.5, not 1000.0"), "{described}");

    let charge = |key: &str, usd: f64| {
        json!({"trace_id": trace, "charge": {"child_id": "root", "key": key, "by": "accounts",
            "amount": {"cost_usd": usd}}})
    };
    for control in [charge("invoice", 2.0), charge("mistake", 7.0)] {
        cluster.client.publish(admin_of(&control), &control).await;
    }
    eventually("both charges are disputed", async || {
        cluster.client.trace(id).await.root().unwrap().disputes.len() == 2
    })
    .await;
    let listed = said(&["budgets", "disputes", &trace]);
    for part in ["charge invoice", "$1.50", "charge mistake", "$7.00", "accounts", "open", "exit Some(0)"] {
        assert!(listed.contains(part), "no {part} in {listed}");
    }
    let described = said(&["runs", "show", &trace]);
    assert!(described.contains(&format!("trellis budgets accept {trace}/root 1")), "{described}");
    assert!(described.contains("$0.50 of $0.50 (and $8.50 disputed)"), "{described}");

    let accepted = said(&["budgets", "accept", &format!("{trace}/root"), "1"]);
    assert!(accepted.contains("overspent") && accepted.contains("$1.50"), "{accepted}");
    let dropped = said(&["budgets", "drop", &trace, "root", "2"]);
    assert!(dropped.ends_with("exit Some(0)"), "{dropped}");
    let again = said(&["budgets", "drop", &trace, "root", "1"]);
    assert!(again.contains("decided otherwise before") && again.ends_with("exit Some(3)"), "{again}");
    let unknown = said(&["budgets", "drop", &trace, "root", "9"]);
    assert!(unknown.contains("no disputed charge number 9"), "{unknown}");
    let listed: Value = serde_json::from_str(
        said(&["budgets", "disputes", &trace, "-o", "json"]).trim_end_matches(" exit Some(0)"),
    )
    .unwrap();
    assert_eq!(
        (&listed[0]["dispute"]["decision"], &listed[1]["dispute"]["decision"]),
        (&json!("accepted"), &json!("dropped"))
    );
    cluster.stop().await;
}
