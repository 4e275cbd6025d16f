//! Calls to a server on loopback whose answer depends on the path.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::Getter;
use crate::settings::Http;

/// Starts a server that runs until the test ends, and returns its port.
async fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let count = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..count]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let answer = match path.as_str() {
                    "/text" => answer("200 OK", "content-type: text/plain", "hello"),
                    "/image" => answer("200 OK", "content-type: image/png", "not a text"),
                    "/gone" => answer("404 Not Found", "content-type: text/plain", "nothing here"),
                    "/large" => answer("200 OK", "content-type: text/plain", &"x".repeat(100_000)),
                    "/loop" => answer("302 Found", "location: /loop", ""),
                    "/redirect" => answer("302 Found", "location: text", ""),
                    // A redirect to the path as an address; another host name leads to this same server, which would answer.
                    path => answer("302 Found", &format!("location: {}", &path[1..]), ""),
                };
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    port
}

fn answer(status: &str, header: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{header}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn getter(allow: &[&str]) -> Getter {
    rustls::crypto::ring::default_provider().install_default().ok();
    let allow = allow.iter().map(|entry| (*entry).to_owned()).collect();
    Getter::new(&Http { allow, max_bytes: Some(1000) }).unwrap().unwrap()
}

#[tokio::test]
async fn http_get_reads_only_from_allowed_hosts_also_after_a_redirect() {
    let port = server().await;
    let getter = getter(&[&format!("127.0.0.1:{port}")]);
    let here = format!("http://127.0.0.1:{port}");
    let fetch = async |path: &str| getter.fetch(&format!("{here}{path}")).await;
    assert_eq!(fetch("/text").await, Ok("hello".into()));
    assert_eq!(fetch("/redirect").await, Ok("hello".into()));

    let elsewhere = format!("http://localhost:{port}/text");
    for refused in [getter.fetch(&elsewhere).await, fetch(&format!("/{elsewhere}")).await] {
        let refused = refused.unwrap_err();
        assert!(refused.starts_with(&format!("`localhost:{port}` is not allowed")), "{refused}");
    }
    let refused = fetch("/file:///etc/passwd").await.unwrap_err();
    assert!(refused.contains("neither http nor https"), "{refused}");
    let refused = getter.fetch(&format!("http://me:secret@127.0.0.1:{port}/text")).await.unwrap_err();
    assert!(
        refused.contains("must not contain a user or a password") && !refused.contains("secret"),
        "{refused}"
    );
    let refused = fetch(&format!("/http://me:secret@127.0.0.1:{port}/text")).await.unwrap_err();
    assert!(refused.contains("must not contain a user or a password"), "{refused}");
    assert_eq!(fetch("/loop").await, Err("more than 5 redirects".into()));
}

#[tokio::test]
async fn http_get_cuts_a_long_text_and_only_names_other_content() {
    let port = server().await;
    let getter = getter(&[&format!("127.0.0.1:{port}")]);
    let fetch = async |path: &str| getter.fetch(&format!("http://127.0.0.1:{port}{path}")).await;
    assert_eq!(
        fetch("/large").await,
        Ok(format!("{}\n[cut here: only 1000 bytes are read]", "x".repeat(1000)))
    );
    assert_eq!(fetch("/image").await, Ok("[200 OK: not text, but image/png of 10 bytes]".into()));
    assert_eq!(fetch("/gone").await, Err("404 Not Found\n\nnothing here".into()));
    let refused = getter.fetch("http://127.0.0.1:1/").await.unwrap_err();
    assert!(refused.contains("is not allowed"), "{refused}");
}

#[test]
fn http_get_is_not_offered_if_no_host_is_allowed() {
    assert!(Getter::new(&Http::default()).unwrap().is_none());
    let wrong = Http { allow: vec!["http://a".into(), "a.org".into(), "b/c".into()], max_bytes: None };
    let problems = Getter::new(&wrong).unwrap_err();
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["http.allow[0]", "http.allow[2]"]);
}
