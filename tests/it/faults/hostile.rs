//! A malicious provider and malicious servers of tools, and the memory that they cost a worker.
//! `TRELLIS_ATTACK_ALONE=1` gives every attack a separate worker, so that each figure is separate
//! too.

use std::process::Command;

use domain::wire::EndStatus;
use serde_json::{Value, json};
use trellis_tests::{
    processes::{Processes, Shape},
    servers::{Attack, HostileServer},
};

/// The most memory that one attack, or all of them in sequence, may cost a worker.
const MOST_MIB: u64 = 64;
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
/// The tool of every server.
const TOOL: &str = "echo";

/// The attacks of a provider.
const PROVIDER: [&str; 11] = [
    "bomb",
    "error-bomb",
    "frame",
    "values",
    "error",
    "headers",
    "comments",
    "drip",
    "pieces",
    "calls",
    "usages",
];
/// The attacks of a program that serves tools, made when its tool is called.
const PROGRAM: [&str; 13] = [
    "line",
    "lines",
    "objects",
    "text",
    "huge",
    "deep",
    "questions",
    "long-ids",
    "notices",
    "errors",
    "unasked",
    "many-tools",
    "pages",
];
/// The attacks of a server of tools over HTTP, made when its tool is called.
const OVER_HTTP: [&str; 5] = ["web-body", "web-event", "web-events", "web-objects", "web-text"];

/// A server of tools through pipes; its argument selects the attack.
const SERVER: &str = r#"
import json, os, sys
mode, out = sys.argv[1], sys.stdout.buffer
def raw(*pieces):
    try:
        for piece in pieces: out.write(piece)
        out.flush()
    except OSError: os._exit(0)
def say(**message): raw(json.dumps({"jsonrpc": "2.0", **message}).encode(), b"\n")
def endless(piece):
    while True: raw(piece)
def result(id, inner): return b'{"jsonrpc":"2.0","id":%d,"result":{"content":[%s]}}\n' % (id, inner)
def text(size): return b'{"type":"text","text":"%s"}' % (b"x" * size)
def tool(name, **schema): return {"name": name, "inputSchema": {"type": "object", **schema}}
waiting, page = None, 0
for line in sys.stdin:
    asked = json.loads(line)
    id, method = asked.get("id"), asked.get("method")
    if id is None: continue
    if method == "initialize":
        say(id=id, result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "x", "version": "1"}})
    elif method == "tools/list" and waiting is not None:
        page += 1
        if mode == "many-tools": say(id=id, result={"tools": [tool("t%d" % n) for n in range(10000)]})
        else: say(id=id, result={"tools": [tool("p%dt%d" % (page, n), enum=[{"a": {}}] * 6000) for n in range(3)], "nextCursor": "x"})
        if page == 1: say(id=waiting, result={"content": []})
    elif method == "tools/list": say(id=id, result={"tools": [tool("echo")]})
    elif method != "tools/call": say(id=id, result={})
    elif mode == "line": endless(b"x" * 65536)
    elif mode == "lines": endless(b"{}\n" * 1000)
    elif mode == "objects": raw(result(id, b",".join([b'{"":{}}'] * 16000)))
    elif mode == "text": raw(result(id, text((4 << 20) - 200)))
    elif mode == "huge": raw(result(id, text(100 << 20)))
    elif mode == "deep": raw(b"[" * 100000, b"\n", result(id, text(5)))
    elif mode == "questions":
        n = 0
        while True:
            n += 1
            say(id=n, method="ping")
    elif mode == "long-ids":
        while True: raw(b'{"jsonrpc":"2.0","method":"ping","id":"', os.urandom(8).hex().encode(), b"i" * (1 << 20), b'"}\n')
    elif mode == "notices": endless(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n' * 100)
    elif mode == "errors":
        while True: os.write(2, b"e" * 65536)
    elif mode == "unasked": endless(result(12345678, text(1 << 20)))
    else:
        waiting = id
        say(method="notifications/tools/list_changed")
"#;

/// The peak memory of a process, in MiB.
fn peak_mib(pid: u32) -> u64 {
    mib(pid, "VmHWM:")
}

fn mib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

fn answer(delta: &Value) -> Attack {
    let said = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3}});
    Attack::once(format!("{OK}\r\ndata: {said}\n\ndata: [DONE]\n\n"))
}

fn says(text: &str) -> Attack {
    answer(&json!({"content": text}))
}

/// The provider's reaction to a task of this name.
fn attack(name: &str) -> Attack {
    let long = "x".repeat(64 << 10);
    let piece = |delta: Value| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
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
        "pieces" => Attack::endless(&format!("{OK}\r\n"), &piece(json!({"content": long}))),
        "calls" => {
            let call = |index: usize| json!({"index": index, "id": index.to_string(), "function": {"name": "t", "arguments": "{}"}});
            let calls = (0..200).map(|index| piece(json!({"tool_calls": [call(index)]}))).collect::<String>();
            Attack::endless(&format!("{OK}\r\n"), &calls)
        }
        "usages" => {
            let many: Vec<Value> = vec![json!({"": {}}); 16_000];
            let usage = format!("data: {}\n\n", json!({"choices": [], "usage": {"prompt_tokens": many}}));
            Attack::endless(&format!("{OK}\r\n"), &usage)
        }
        _ => says("well"),
    }
}

/// The model's reaction: an attack of its own, a call of a server's tool, or a normal answer.
fn model(request: &str) -> Attack {
    let is_task = |name: &&str| request.contains(&format!("Your task: {name}."));
    if let Some(name) = PROVIDER.into_iter().find(is_task) {
        return attack(name);
    }
    match PROGRAM.into_iter().chain(OVER_HTTP).find(is_task) {
        Some(name) if !request.contains("\"role\":\"tool\"") => {
            let function = json!({"name": format!("{name}_{TOOL}"), "arguments": "{}"});
            answer(
                &json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}),
            )
        }
        _ => says("well"),
    }
}

/// A server of tools over HTTP whose path selects the attack.
fn over_http(request: &str) -> Attack {
    let Some((_, message)) = request.split_once("\r\n\r\n").filter(|_| request.starts_with("POST")) else {
        return Attack::once("HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n");
    };
    let asked: Value = serde_json::from_str(message).unwrap_or_default();
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let result = match asked["method"].as_str() {
        Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": "1"}}),
        Some("tools/list") => json!({"tools": [{"name": TOOL, "inputSchema": {"type": "object"}}]}),
        Some("tools/call") => {
            let id = &asked["id"];
            let mode = OVER_HTTP.into_iter().find(|mode| request.starts_with(&format!("POST /{mode} ")));
            let notice = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n";
            match mode {
                Some("web-body") => return Attack::endless(&format!("{json}\r\n\""), &"x".repeat(64 << 10)),
                Some("web-event") => {
                    return Attack::endless(&format!("{OK}\r\ndata: \""), &"x".repeat(64 << 10));
                }
                Some("web-events") => return Attack::endless(&format!("{OK}\r\n"), &notice.repeat(100)),
                Some("web-objects") => json!({"content": vec![json!({"": {}}); 16_000]}),
                _ => {
                    let text = json!({"jsonrpc": "2.0", "id": id, "result": {"content": [
                        {"type": "text", "text": "x".repeat((4 << 20) - 200)}]}});
                    return Attack::once(format!("{OK}\r\ndata: {text}\n\n"));
                }
            }
        }
        _ => return Attack::once("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"),
    };
    let body = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}).to_string();
    Attack::once(format!("{json}content-length: {}\r\n\r\n{body}", body.len()))
}

/// proves: every attack of a provider or a server of tools takes a bounded amount of memory and
/// time and ends only its own call, and the same worker completes the next run.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes a minute of two processors: scripts/test faults"]
async fn s5_a_hostile_provider_costs_a_worker_bounded_memory_and_time() {
    let provider = HostileServer::start(model).await;
    let web = HostileServer::start(over_http).await;
    let programs =
        PROGRAM.map(|mode| (mode, json!({"command": ["python3", "-c", SERVER, mode], "timeout_ms": 3000})));
    let webs = OVER_HTTP.map(|mode| {
        (mode, json!({"url": format!("http://127.0.0.1:{}/{mode}", web.port()), "timeout_ms": 3000}))
    });
    let servers: serde_json::Map<String, Value> =
        programs.into_iter().chain(webs).map(|(mode, settings)| (mode.to_owned(), settings)).collect();
    let worker = json!({
        "providers": {"test": {"protocol": "openai", "base_url": format!("http://127.0.0.1:{}/v1", provider.port())}},
        "prices": {"test/model": {"input": "1", "output": "2"}},
        "mcp": servers,
    });
    let settings = json!({"limits": {"max_retries_total": 0}});
    let mut cluster = Processes::start_as(|| Shape { worker, settings, ..Shape::new(1, 1) }).await;
    let tools: Vec<String> =
        PROGRAM.into_iter().chain(OVER_HTTP).map(|mode| format!("{mode}:{TOOL}")).collect();
    cluster.apply(json!([{"agent_id": "one", "kind": "llm", "model": "test/model", "tools": tools}])).await;
    let is_alone = std::env::var_os("TRELLIS_ATTACK_ALONE").is_some();
    let mut idle = rested(&mut cluster).await;
    println!("idle: {idle} MiB");
    let mut before = idle;
    for goal in PROVIDER.into_iter().chain(PROGRAM).chain(OVER_HTTP) {
        if is_alone {
            cluster.kill("w1");
            cluster.run("w1");
            cluster.all_there().await;
            idle = rested(&mut cluster).await;
            before = idle;
        }
        let status = run(&cluster, goal).await;
        let pid = cluster.pid("w1");
        let peak = peak_mib(pid);
        println!(
            "| {goal} | {status:?} | {} | {peak} | {} |",
            peak.saturating_sub(before),
            mib(pid, "RssAnon:")
        );
        before = peak;
        let is_expected = match PROVIDER.contains(&goal) {
            true => matches!(status, EndStatus::Failed | EndStatus::TimedOut),
            // The agent gets the error and continues.
            false => status == EndStatus::Completed,
        };
        assert!(is_expected, "{goal}: {status:?}");
        let rose = peak.saturating_sub(idle);
        assert!(rose < MOST_MIB, "{goal}: the worker took {rose} MiB more than idle, which were {idle} MiB");
    }
    assert_eq!(run(&cluster, "nothing").await, EndStatus::Completed);
    assert!(cluster.is_running("w1"));
}

/// The peak of a worker that has completed a run, with everything loaded.
async fn rested(cluster: &mut Processes) -> u64 {
    assert_eq!(run(cluster, "nothing").await, EndStatus::Completed);
    peak_mib(cluster.pid("w1"))
}

async fn run(cluster: &Processes, goal: &str) -> EndStatus {
    let asked =
        json!({"goal": format!("{goal}."), "agent_id": "one", "max_cost_usd": 1, "timeout_ms": 30_000});
    let run = cluster.begin(asked).await;
    cluster.check(&[run]).await;
    cluster.outcome(run).await.context.status
}
