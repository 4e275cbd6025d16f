//! The stolen credential of a worker (S6), on servers that enforce the roles. Its holder sends
//! every permitted message, and tries forbidden ones, about the runs of another pool, whose ids it
//! knows. The books of those runs are as if nothing had been sent.
//!
//! `TRELLIS_ATTACK_SECONDS` sets the duration, `TRELLIS_ATTACK_SEED` selects the attack; the test
//! prints both.

use std::time::Duration;

use async_nats::HeaderMap;
use bus::{Bus, Connect, Login, Nats, Topology};
use domain::{
    TraceId, Usd,
    subject::{Filter, Namespace, Partition},
    wire::{EndStatus, Outcome},
};
use serde_json::{Value, json};
use tokio::time::Instant;
use trellis_tests::cluster::eventually;
use world::dice::Dice;

use super::roles::{Made, Running, Tried, trellis};

/// The calls of each run of the other pool, and the cost of each.
const CALLS: u64 = 15;
const CENTS: u64 = 1;
const VICTIMS: usize = 3;

#[expect(clippy::disallowed_methods, reason = "the environment sets the kind and the duration of the attack")]
fn number(variable: &str) -> Option<u64> {
    let said = std::env::var(variable).ok()?;
    Some(said.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// One message: its subject, its headers, and its body.
fn hostile(dice: &mut Dice, trace: TraceId) -> (String, HeaderMap, Value) {
    let partition = Partition::of(trace, Topology::default().partitions);
    let lease = json!({"child_id": "root", "attempt": 1 + dice.below(2), "token": "guessed"});
    let call = format!("call-{}", 1 + dice.roll() % CALLS);
    let usd = [0, 1, 900_000][dice.below(3)];
    let amount = json!({"cost_usd": usd, "tokens": 7});
    // Mostly the thief's own pool, sometimes the pool of the victims.
    let pool = if dice.below(5) == 0 { "gpu" } else { "default" };
    let token = format!("token-{}", dice.below(50));
    let asks = [
        json!({"claim": {"child_id": "root", "worker_id": "thief", "token": token}}),
        json!({"tick": {"lease": lease}}),
        json!({"hold": {"lease": lease, "call_id": call, "amount": amount}}),
        json!({"settle": {"lease": lease, "call_id": call, "amount": amount}}),
        json!({"release": {"lease": lease, "call_id": call}}),
        json!({"forfeit": {"lease": lease, "call_id": call}}),
        json!({"resume": {"lease": lease, "settled": [{"call_id": call, "amount": amount}]}}),
        json!({"context_set": {"lease": lease, "key": "root.k", "value": 1}}),
    ];
    let ask = asks[dice.below(asks.len())].clone();
    let verdict =
        [json!({"completed": {"inline": "mine"}}), json!({"failed": {"kind": "agent", "message": "no"}})];
    let verdict = verdict[dice.below(2)].clone();
    let mut headers = HeaderMap::new();
    match dice.below(10) {
        0..=4 => (format!("agent.ask.{pool}.{partition}"), headers, json!({"trace_id": trace, "ask": ask})),
        5 => {
            // The id of the genuine message, if it were made only of public data.
            headers.insert("Nats-Msg-Id", format!("{trace}.root.1.result"));
            let report = json!({"trace_id": trace, "report": {"lease": lease, "verdict": verdict}});
            (format!("agent.result.{pool}.{partition}.{trace}.root"), headers, report)
        }
        6 => {
            headers.insert("Nats-Msg-Id", format!("{trace}.root.{call}.cost"));
            let cost = json!({"trace_id": trace, "lease": lease, "call_id": call, "amount": amount});
            (format!("agent.cost.{pool}.{partition}.{trace}.root"), headers, cost)
        }
        7 => {
            headers.insert("Nats-Rollup", "all");
            (format!("$O.AGENT_OUTPUTS.M.{}", dice.below(9)), headers, json!({"deleted": true}))
        }
        8 => {
            headers.insert("Trellis-Object", format!("overflow/x.{}", "0".repeat(64)));
            (format!("agent.result.default.{partition}.{trace}.root"), headers, json!({}))
        }
        _ => {
            let forbidden = [
                format!("agent.event.{trace}.root"),
                format!("agent.outcome.{trace}.root"),
                format!("agent.stop.{trace}"),
                "agent.admin.raise".into(),
                "agent.cancel".into(),
                "agent.steer".into(),
                "JS.API.STREAM.PURGE.AGENT_EVENT".into(),
                "$O.AGENT_CORE.M.x".into(),
            ];
            let to = forbidden[dice.below(forbidden.len())].clone();
            (to, headers, json!({"trace_id": trace, "raise": {"child_id": "root", "max_cost_usd": 500_000}}))
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s6_a_stolen_credential_of_a_worker_changes_nothing_of_other_pools() {
    let made = Made::init();
    let (nats, redis) = (made.nats(), made.redis());
    let environment = |who: &str| made.connected(who, &nats, &redis);
    let as_role = |who: &str, arguments: &[&str]| trellis(arguments, &environment(who));
    let sizes = ["--max-log-bytes", "64MiB", "--max-queue-bytes", "32MiB"];
    let provisioned = as_role("provisioner", &[&["provision"], &sizes[..]].concat());
    assert!(provisioned.ends_with("exit Some(0)"), "{provisioned}");
    let coordinator = [&["coordinator", "--id", "c1", "--pools", "default,gpu"], &sizes[..]].concat();
    let _coordinator = Running::start("c1", &made.0, &coordinator, &environment("coordinator"));
    let config = made.path("worker.json");
    std::fs::write(config, json!({"workspaces": made.path("workspaces")}).to_string()).unwrap();
    let worker = ["worker", "--id", "w1", "--pool", "gpu", "--slots", "8", "--config", config];
    let _worker = Running::start("w1", &made.0, &worker, &environment("worker-gpu"));
    eventually("the worker is listed", async || as_role("observer", &["workers", "list"]).contains("w1"))
        .await;
    let profiles = made.path("agents.json");
    let theirs = json!([{"agent_id": "theirs", "kind": "builtin", "builtin": "spend", "pool": "gpu"}]);
    std::fs::write(profiles, theirs.to_string()).unwrap();
    let applied = as_role("admin", &["agents", "apply", profiles]);
    assert!(applied.ends_with("exit Some(0)"), "{applied}");

    let seconds = number("TRELLIS_ATTACK_SECONDS").unwrap_or(4);
    let pause = (seconds * 1000 / CALLS).max(50);
    let file = made.path("task.json");
    let task = json!({"goal": "work", "agent_id": "theirs", "max_cost_usd": 1, "timeout_ms": 0,
        "inputs": {"usd": format!("0.0{CENTS}"), "calls": CALLS, "ms": pause}});
    std::fs::write(file, task.to_string()).unwrap();
    let submit = || {
        let said = as_role("client", &["submit", file]);
        let trace = said.lines().find_map(|line| line.strip_prefix("trace_id "));
        trace.unwrap_or_else(|| panic!("{said}")).parse::<TraceId>().unwrap()
    };
    let victims: Vec<TraceId> = (0..VICTIMS).map(|_| submit()).collect();

    let thief = Tried::connect(&made, &nats, "worker-default").await;
    let inbox = thief.client.new_inbox();
    let seed = number("TRELLIS_ATTACK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("TRELLIS_ATTACK_SEED={seed} TRELLIS_ATTACK_SECONDS={seconds}");
    let (until, mut sent) = (Instant::now() + Duration::from_secs(seconds), 0_u64);
    let mut dice = Dice::new(seed);
    while Instant::now() < until {
        for _ in 0..20 {
            let trace = victims[dice.below(VICTIMS)];
            let (to, headers, body) = hostile(&mut dice, trace);
            let sending = thief.client.publish_with_reply_and_headers(
                to,
                inbox.clone(),
                headers,
                body.to_string().into(),
            );
            sending.await.unwrap();
            sent += 1;
        }
        thief.client.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(sent > 100, "{sent}");

    let mut to = Connect::new(nats.url(), Namespace::default(), "observer");
    to.login = Login { nkey: Some(made.path("keys/observer.nk").into()), ..Login::default() };
    (to.inbox, to.js_api) = (Some("_INBOX_observer".into()), Some("JS.API".into()));
    let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
    for trace in victims {
        let outcome = async || {
            let stored = bus.read(&Filter::OutcomesOf(trace)).await.unwrap();
            stored.first().map(|stored| serde_json::from_slice::<Outcome>(&stored.payload).unwrap())
        };
        eventually("the run ends", async || outcome().await.is_some()).await;
        let outcome = outcome().await.unwrap();
        assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
        let budget = &outcome.context.budget;
        assert_eq!(budget.spent.cost_usd, Usd::from_cents(CALLS * CENTS), "{budget:#?}");
        assert_eq!((budget.held.cost_usd, budget.disputed.cost_usd), (Usd::ZERO, Usd::ZERO), "{budget:#?}");
        assert_eq!(outcome.context.attempts, 1);
    }
}
