//! A provider and servers of tools that mean harm, and what they cost a worker's memory.

use std::process::Command;

use serde_json::json;
use shared::wire::EndStatus;
use trellis_tests::{
    processes::{Processes, Shape},
    servers::{Attack, HostileServer},
};

/// Far less than what an attack wants, and more than a call may take.
const MOST_MIB: u64 = 128;
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";

/// The most memory that a process has had, in MiB.
fn peak_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

fn answer(text: &str) -> Attack {
    let said = json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3}});
    Attack::once(format!("{OK}\r\ndata: {said}\n\ndata: [DONE]\n\n"))
}

/// What the provider does about a task of this name.
fn attack(name: &str) -> Attack {
    let long = "x".repeat(64 << 10);
    match name {
        "bomb" => {
            let zeros = "head -c 268435456 /dev/zero | gzip -1";
            let zeros = Command::new("sh").args(["-c", zeros]).output().unwrap().stdout;
            let head = format!("{OK}content-encoding: gzip\r\ncontent-length: {}\r\n\r\n", zeros.len());
            Attack::once([head.as_bytes(), &zeros].concat())
        }
        "error-bomb" => {
            let zeros = "head -c 268435456 /dev/zero | gzip -1";
            let zeros = Command::new("sh").args(["-c", zeros]).output().unwrap().stdout;
            let head = "HTTP/1.1 400 Bad\r\ncontent-encoding: gzip\r\n\r\n";
            Attack::once([head.as_bytes(), &zeros].concat())
        }
        "frame" => Attack::endless(&format!("{OK}\r\ndata: "), &long),
        "values" => Attack::endless(&format!("{OK}\r\ndata: {{\"a\": ["), &"{\"\":1},".repeat(1000)),
        "error" => Attack::endless("HTTP/1.1 400 Bad\r\n\r\n", &long),
        "headers" => Attack::endless("HTTP/1.1 200 OK\r\n", &format!("x: {long}\r\n")),
        "comments" => Attack::endless(&format!("{OK}\r\n"), &": x\n\n".repeat(1000)),
        "drip" => Attack::drip(&format!("{OK}\r\n"), ": x\n\n"),
        _ => answer("well"),
    }
}

/// proves: no attack of a provider or of a server of tools takes more than a bounded amount of memory and time, each ends its own call
/// only, and the same worker completes the next run.
#[tokio::test(flavor = "multi_thread")]
async fn s5_a_hostile_provider_costs_a_worker_bounded_memory_and_time() {
    const ATTACKS: [&str; 8] =
        ["bomb", "error-bomb", "frame", "values", "error", "headers", "comments", "drip"];
    let server = HostileServer::start(|request| {
        let name = ATTACKS.iter().find(|name| request.contains(&format!("Your task: {name}.")));
        attack(name.copied().unwrap_or_default())
    })
    .await;
    let hello = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}"#;
    let endless = format!("read a; echo '{hello}'; read a; cat /dev/zero | tr '\\0' x");
    let price = json!({"input": "1", "output": "2"});
    let worker = json!({
        "providers": {"test": {"protocol": "openai", "base_url": format!("http://127.0.0.1:{}/v1", server.port())}},
        "prices": {"test/model": price},
        "mcp": {"endless": {"command": ["sh", "-c", endless]}},
    });
    let settings = json!({"limits": {"max_retries_total": 0}});
    let mut cluster = Processes::start_as(|| Shape { worker, settings, ..Shape::new(1, 1) }).await;
    let agent = json!({"agent_id": "one", "kind": "llm", "model": "test/model", "tools": ["fs.read"]});
    cluster.apply(json!([agent])).await;
    let pid = cluster.pid("w1");
    let run = async |goal: &str| {
        let asked =
            json!({"goal": format!("{goal}."), "agent_id": "one", "max_cost_usd": 1, "timeout_ms": 20_000});
        let run = cluster.begin(asked).await;
        cluster.check(&[run]).await;
        cluster.outcome(run).await.context.status
    };
    assert_eq!(run("nothing").await, EndStatus::Completed);
    let idle = peak_mib(pid);
    let mut before = idle;
    for goal in ATTACKS {
        let status = run(goal).await;
        assert!(matches!(status, EndStatus::Failed | EndStatus::TimedOut), "{goal}: {status:?}");
        let peak = peak_mib(pid);
        println!(
            "{goal}: {status:?}, the worker's peak rose by {} MiB to {peak} MiB",
            peak.saturating_sub(before)
        );
        before = peak;
    }
    assert_eq!(run("nothing").await, EndStatus::Completed);
    assert!(cluster.is_running("w1"));
    let rose = peak_mib(pid).saturating_sub(idle);
    assert!(rose < MOST_MIB, "the worker took {rose} MiB more than idle, which were {idle} MiB");
}
