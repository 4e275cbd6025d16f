//! Hostile paths, queries, headers and bodies: every answer is a problem that names the mistake,
//! and never a server error.

use reqwest::Method;
use serde_json::json;

use super::{Front, bounds::raw, problem, tokens::ROUTES, told};

#[tokio::test(flavor = "multi_thread")]
async fn hostile_paths_are_refused_in_words() {
    let front = Front::start().await;
    let long = "a".repeat(5000);
    let zeros = format!("/v1/runs/{}", "0".repeat(32));
    for path in [
        "//",
        "/v1",
        "/v1/",
        "/v1/runs/",
        "/v2/runs",
        "/v1/runs/../agents",
        "/v1/runs/%2e%2e%2fagents",
        "/v1/runs/%00",
        "/v1/runs/%ff",
        "/v1/runs/%",
        "/v1/runs/%zz",
        "/v1/runs/*",
        "/v1/runs/>",
        "/v1/runs/a.b",
        "/v1/runs/0AF7651916CD43DD8448EB211C80319C",
        "/v1/runs/%E2%82%AC",
        &zeros,
        &format!("/v1/runs/{long}"),
        "/v1/agents/a.b",
        "/v1/agents/%2F",
        "/v1/agents/*",
        "/v1/schedules/%0d%0aset-cookie:x",
        "/v1/graphs/$JS",
        "/v1/dead/*/1",
        "/v1/dead/cancel/-1",
        "/v1/dead/cancel/1e9",
        "/v1/dead/cancel/99999999999999999999999",
        "/v1/dead/cancel/0",
        "/v1/runs?limit=-1",
        "/v1/runs?%ff=%ff",
        "/v1/runs?a[]=1&&&=",
        "/v1/runs?after=9-9",
        "/v1/agents/default?version=-1",
        "/v1/agents/default?version=18446744073709551616",
        "/v1/agents/default?version=77",
        "/v1/healthz",
        "/healthz/",
        "/%68ealthz",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let answer = raw(front.address, request.as_bytes()).await;
        let status: u16 = answer
            .split(' ')
            .nth(1)
            .unwrap_or_default()
            .parse()
            .unwrap_or_else(|_| panic!("{path}: {answer}"));
        assert!((400..500).contains(&status), "{path}: {answer}");
        // Bytes that are not a request are refused before a problem can be written.
        if status == 400 && answer.contains("content-length: 0") {
            continue;
        }
        assert!(
            answer.contains("application/problem+json") && answer.contains("\"code\":"),
            "{path}: {answer}"
        );
        assert!(!answer.to_ascii_lowercase().contains("\r\nset-cookie"), "{path}: {answer}");
    }
    for (method, path, _) in ROUTES {
        let path = path.replace("{number}", "1").replace("{sequence}", "1");
        let bad = path.split('/').map(|part| if part.starts_with('{') { "%00" } else { part });
        let bad = bad.collect::<Vec<_>>().join("/");
        if bad == path {
            continue;
        }
        let asked = front.ask(method.parse().unwrap(), &bad).json(&json!({}));
        let status = asked.send().await.unwrap().status().as_u16();
        assert!((400..500).contains(&status), "{method} {bad}: {status}");
    }
    for method in ["TRACE", "PATCH", "CONNECT", "PROPFIND", "QUERY"] {
        let request = format!("{method} /v1/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let answer = raw(front.address, request.as_bytes()).await;
        let refused =
            answer.starts_with("HTTP/1.1 405") && answer.to_ascii_lowercase().contains("\r\nallow: ");
        assert!(
            refused || answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 404"),
            "{method}: {answer}"
        );
    }
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_bodies_are_refused_in_words() {
    let front = Front::start().await;
    let deep = "[".repeat(200_000);
    let nested = format!("{{\"goal\": {}1{}}}", "{\"a\":".repeat(5000), "}".repeat(5000));
    let many =
        format!("{{\"goal\": \"x\"{}}}", (0..20_000).map(|n| format!(",\"f{n}\": {n}")).collect::<String>());
    let bodies: Vec<Vec<u8>> = [
        "",
        " ",
        "null",
        "3",
        "\"x\"",
        "[]",
        "[{}]",
        "{",
        "{}",
        "{\"goal\"",
        "{\"goal\": 1e400}",
        "{\"goal\": \"\"}",
        "{\"goal\": \"x\", \"goal\": \"y\"}",
        "{\"goal\": \"x\", \"trace_id\": \"*\"}",
        "{\"goal\": \"\\ud800\"}",
        "{\"goal\": \"x\", \"trace_id\": null, \"trace_id\": 1}",
        "{\"steps\": []}",
        "{\"steps\": {}, \"rerun\": 1}",
        "{\"rerun\": {\"trace_id\": \"0af7651916cd43dd8448eb211c80319c\"}}",
        "{\"goal\": \"x\", \"reply_to\": \"$JS.API\"}",
        "{\"goal\": \"x\", \"max_cost_usd\": 1e308}",
        "{\"goal\": \"x\", \"child_id\": \"a.b\"}",
        "nonsense",
        &deep,
        &nested,
        &many,
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .chain([vec![0xff, 0xfe], b"{\"goal\": \"\xff\"}".to_vec(), vec![0; 1000]])
    .collect();
    // A drain waits for the workers' answers and reads no body; a sign-in code is created for any
    // body.
    let taken = |(method, path, _): &&(&str, &str, u8)| {
        ["POST", "PUT"].contains(method) && !path.ends_with("/drain") && !path.ends_with("/sign-in-codes")
    };
    for (method, path, _) in ROUTES.iter().filter(taken) {
        let path = path.replace("{trace}", "0af7651916cd43dd8448eb211c80319c").replace("{number}", "1");
        let path = path
            .split('/')
            .map(|part| if part.starts_with('{') { "x" } else { part })
            .collect::<Vec<_>>()
            .join("/");
        for body in &bodies {
            let asked = front.ask(method.parse().unwrap(), &path).header("content-type", "application/json");
            let answer = asked.body(body.clone()).send().await.unwrap();
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            let status = answer.status().as_u16();
            // A cancel may come before its run.
            let fine = path.ends_with("/cancel") && status == 202;
            assert!(fine || (400..500).contains(&status), "{method} {path} {shown}: {status}");
            if !fine {
                told(answer, status).await;
            }
        }
    }
    let told = problem(
        front.post("/v1/runs", &json!({"goal": "", "agent_idd": "x", "max_cost_usd": -1})),
        422,
        "malformed",
    )
    .await;
    let paths: Vec<&str> =
        told["problems"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths.len(), 3, "{told}");
    assert!(told["problems"].to_string().contains("did you mean `agent_id`?"), "{told}");
    let empty = front.ask(Method::POST, "/v1/runs").header("content-type", "application/json");
    problem(empty, 400, "malformed").await;
    front.stop().await;
}
