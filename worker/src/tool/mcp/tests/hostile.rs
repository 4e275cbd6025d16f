//! Hostile tool servers (S5): they cost bounded memory and time, and other servers continue to
//! work.

use std::time::Duration;

use serde_json::json;
use tests::servers::{Attack, HostileServer};
use tokio::time::Instant;

use super::{McpServer, call, program, start};

/// The answer to the first request of a client.
pub(super) const HELLO: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}"#;
const NO_TOOLS: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}"#;

/// A program that greets the client, and then runs these commands.
fn greets(then: &str) -> McpServer {
    let script = format!("read a; echo '{HELLO}'; read a; {then}");
    McpServer {
        command: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        timeout_ms: Some(2_000),
        ..program(&[])
    }
}

/// The reason why the server's first start failed.
async fn why_down(settings: McpServer) -> String {
    let servers = start("bad", settings);
    servers.ready(|_| true).await;
    let said = call(&servers, "bad:x", json!({})).await.unwrap_err();
    servers.stop().await;
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn s5_a_server_of_tools_that_writes_without_end_is_ended() {
    for (then, says) in [
        ("read a; cat /dev/zero | tr '\\0' x", "larger than 4 MiB"),
        ("read a; printf '{\"a\":['; yes '1,' | tr -d '\\n'", "values"),
        (
            "while read a; do n=${a#*\\\"id\\\":}; n=${n%%,*}; echo '{\"jsonrpc\":\"2.0\",\"id\":'$n',\"result\":{\"tools\":[],\"nextCursor\":\"again\"}}'; done",
            "pages",
        ),
    ] {
        let begun = Instant::now();
        let said = why_down(greets(then)).await;
        assert!(said.contains(says), "{then}: {said}");
        assert!(begun.elapsed() < Duration::from_secs(50), "{then}");
    }
}

/// proves: output that is neither an answer nor a message has no effect, and a call ends at its
/// limit.
#[tokio::test(flavor = "multi_thread")]
async fn s5_a_server_of_tools_that_talks_past_its_client_is_bounded_in_time() {
    let deep = "[".repeat(50_000);
    let tool =
        r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}}"#;
    for then in [
        format!("read a; echo '{tool}'; cat > /dev/null"),
        format!("read a; echo '{tool}'; yes '{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}}'"),
        format!("read a; echo '{deep}'; echo '{tool}'; yes ''"),
        format!("read a; printf '\\377\\376\\n'; echo '{tool}'; cat > /dev/null"),
    ] {
        let servers = start("bad", greets(&then));
        servers.ready(|_| true).await;
        let begun = Instant::now();
        let said = call(&servers, "bad:x", json!({})).await.unwrap_err();
        assert!(said.contains("did not answer within 2000 ms"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(40));
        servers.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s5_tools_are_offered_with_bounded_descriptions_and_schemas() {
    let script = "read a; printf '%s' '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[{\"name\":\"long\",\"inputSchema\":{\"type\":\"object\"},\"description\":\"'; \
         head -c 200000 /dev/zero | tr '\\0' d; printf '%s' '\"},{\"name\":\"large\",\"inputSchema\":{\"type\":\"object\",\"title\":\"'; \
         head -c 200000 /dev/zero | tr '\\0' t; echo '\"}}]}}'; cat > /dev/null";
    let servers = start("bad", greets(script));
    servers.ready(|_| true).await;
    let offered: Vec<(String, usize)> =
        servers.specs().iter().map(|spec| (spec.name.to_string(), spec.description.len())).collect();
    assert_eq!(offered, [("bad:long".to_owned(), (8 << 10) + '…'.len_utf8())]);
    servers.stop().await;
}

/// proves: the same over HTTP, for bodies, compressed bodies and redirects; a good server beside
/// them works.
#[tokio::test(flavor = "multi_thread")]
async fn s5_a_server_of_tools_over_http_is_bounded() {
    let long = "x".repeat(64 << 10);
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    for (attack, says) in [
        (Attack::endless(&format!("{json}\r\n"), &long), "larger than 4 MiB"),
        (
            Attack::endless("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ", &long),
            "larger than 4 MiB",
        ),
        (
            Attack::endless("HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\n\r\n", &long),
            "larger than 4 MiB",
        ),
        (Attack::once(format!("{json}content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc")), "encoding"),
        (
            Attack::once("HTTP/1.1 307 Away\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"),
            "307",
        ),
        (Attack::endless(&format!("{json}\r\n{{\"a\":["), &"{},".repeat(1000)), "values"),
    ] {
        let server = HostileServer::start(move |_| attack.clone()).await;
        let settings = McpServer {
            command: Vec::new(),
            url: Some(format!("http://127.0.0.1:{}/mcp", server.port())),
            ..program(&[])
        };
        let said = why_down(settings).await;
        assert!(said.contains(says), "{says}: {said}");
    }
    let bad = start("bad", greets("cat /dev/zero | tr '\\0' x"));
    let servers = start("good", greets(&format!("read a; echo '{NO_TOOLS}'; cat > /dev/null")));
    servers.ready(|_| true).await;
    let said = call(&servers, "good:x", json!({})).await.unwrap_err();
    assert!(said.contains("has no tool `x`"), "{said}");
    servers.stop().await;
    bad.stop().await;
}
