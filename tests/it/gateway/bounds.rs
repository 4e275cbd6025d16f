//! Bounds on a client: it can't use another host name or another origin, send too much, too slowly
//! or too often.

use std::{net::SocketAddr, time::Duration};

use gateway::Config;
use reqwest::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use trellis_tests::cluster::{Cluster, SOON};

use super::{Front, config, problem, told};

/// The answer to these bytes, until the server closes.
pub(super) async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("the server closes");
    // A server that has answered may close while more bytes arrive.
    drop(read);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_has_a_name_lead_here_is_not_answered() {
    let hosts = vec!["Trellis.example.com".into()];
    let front = Front::with(Config { hosts, ..config() }, Cluster::embedded()).await;
    let port = front.address.port();
    for good in [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1",
        "127.9.9.9:80",
        "[::1]:5",
        "trellis.example.com:443",
        "localhost.",
    ] {
        let answer = front.get("/v1/agents").header("host", good).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{good}");
    }
    let own = format!("evil.example:{port}");
    for bad in [
        "evil.example",
        &own,
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.1.2.3",
        "x@localhost",
        "a b",
        "[::2]",
    ] {
        for path in ["/v1/agents", "/healthz", "/openapi.json"] {
            problem(front.get(path).header("host", bad), 421, "host").await;
        }
    }
    let none = raw(front.address, b"GET /v1/agents HTTP/1.1\r\nconnection: close\r\n\r\n").await;
    assert!(none.starts_with("HTTP/1.1 400") && none.contains("problem+json"), "{none}");
    let two =
        b"GET /v1/agents HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert!(raw(front.address, two).await.starts_with("HTTP/1.1 400"));
    let other = b"GET http://evil.example/v1/agents HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert!(raw(front.address, other).await.starts_with("HTTP/1.1 421"));
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_may_ask_only_if_it_is_named() {
    let origins = vec!["https://app.example.com".into()];
    let front = Front::with(Config { origins, ..config() }, Cluster::embedded()).await;
    let own = format!("http://{}", front.address);
    let answer = front.get("/v1/agents").header("origin", own).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().keys().all(|name| !name.as_str().starts_with("access-control")));
    let named = "https://app.example.com";
    let answer = front.get("/v1/agents").header("origin", named).send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), answer.headers()["access-control-allow-origin"].to_str().unwrap()),
        (200, named)
    );
    assert_eq!(answer.headers()["vary"], "Origin");
    let asked = front.ask(Method::OPTIONS, "/v1/runs").header("origin", named);
    let answer = asked.header("access-control-request-method", "POST").send().await.unwrap();
    assert_eq!(answer.status(), 204);
    assert!(answer.headers()["access-control-allow-headers"].to_str().unwrap().contains("authorization"));
    for bad in [
        "https://evil.example",
        "null",
        "http://app.example.com",
        "https://app.example.com.evil.example",
        "http://localhost:1",
        "",
    ] {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            let asked = front.ask(method.clone(), "/v1/runs").header("origin", bad);
            let answer = asked.header("access-control-request-method", "POST").send().await.unwrap();
            assert!(
                answer.headers().keys().all(|name| !name.as_str().starts_with("access-control")),
                "{bad}"
            );
            assert_eq!(told(answer, 403).await["code"], "origin", "{method} {bad}");
        }
    }
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_too_slow_and_too_often_is_refused() {
    let mut config = config();
    config.limits.body_bytes = 1000;
    config.limits.head_bytes = 8192;
    config.limits.head_within = Duration::from_millis(300);
    config.limits.body_within = Duration::from_millis(300);
    let front = Front::with(config, Cluster::embedded()).await;
    problem(front.post("/v1/runs", &json!({"goal": "x".repeat(1000)})), 413, "too_large").await;
    let body = "x".repeat(1001);
    let chunked = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n{body}\r\n"
    );
    let answer = raw(front.address, chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("too_large"), "{answer}");
    let slow = "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{";
    let answer = raw(front.address, slow.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("slow_body"), "{answer}");
    for half in ["", "GET /v1/ru", "GET /v1/runs HTTP/1.1\r\nhost: local"] {
        let answer = raw(front.address, half.as_bytes()).await;
        assert!(!answer.contains("200 OK"), "a request with {half:?} was answered: {answer}");
    }
    let head = format!("GET /v1/runs HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(9000));
    let answer = raw(front.address, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let typed = front.ask(Method::POST, "/v1/runs").header("content-type", "text/plain").body("{}");
    problem(typed, 415, "media_type").await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_get_the_time_of_the_next_one() {
    let mut config = config();
    (config.limits.per_second, config.limits.burst) = (1, 3);
    let front = Front::with(config, Cluster::embedded()).await;
    let mut refused = None;
    for _ in 0..20 {
        let answer = front.get("/v1/agents").send().await.unwrap();
        if answer.status() != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("one of twenty requests is refused");
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(told(refused, 429).await["code"], "too_many_requests");
    assert_eq!(front.get("/healthz").send().await.unwrap().status(), 200, "health requests are not limited");
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_can_not_be_guessed_at_full_speed() {
    let mut config = config();
    (config.limits.per_second, config.limits.burst) = (1, 3);
    let front = Front::with(Config { token: Some("t".into()), ..config }, Cluster::embedded()).await;
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(front.get("/v1/agents").bearer_auth("x").send().await.unwrap().status().as_u16());
    }
    assert!(statuses.starts_with(&[401]) && statuses.contains(&429), "{statuses:?}");
    let known = front.get("/v1/agents").bearer_auth("t").send().await.unwrap();
    assert_eq!(known.status(), 200, "wrong tokens do not limit a user with a valid token");
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_connections_are_served_at_once_than_allowed() {
    let mut config = config();
    config.limits.connections = 2;
    config.limits.head_within = Duration::from_secs(120);
    let front = Front::with(config, Cluster::embedded()).await;
    let ask = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut open = Vec::new();
    let mut answer = [0; 12];
    for _ in 0..2 {
        let mut stream = TcpStream::connect(front.address).await.unwrap();
        stream.write_all(ask).await.unwrap();
        stream.read_exact(&mut answer).await.unwrap();
        open.push(stream);
    }
    let mut third = TcpStream::connect(front.address).await.unwrap();
    third.write_all(ask).await.unwrap();
    assert!(
        timeout(Duration::from_millis(300), third.read_exact(&mut answer)).await.is_err(),
        "the third connection waits"
    );
    open.pop();
    timeout(SOON, third.read_exact(&mut answer)).await.expect("the third connection is served").unwrap();
    drop((open, third));
    front.stop().await;
}
