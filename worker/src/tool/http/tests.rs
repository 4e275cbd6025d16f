//! Calls to a server on loopback whose answer depends on the path.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use host::internet::LookUp;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{Arguments, Getter};
use crate::{
    secret::{GivenSecrets, Redactor, Values, tests::Files},
    settings::Http,
    tool::call::Output,
};

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
                    path if path.starts_with("/echo") => {
                        answer("200 OK", "content-type: text/plain", &request)
                    }
                    path if path.starts_with("/long") => {
                        let said = request.split("x-key: ").nth(1).and_then(|rest| rest.lines().next());
                        let text = format!("{}{}", "x".repeat(990), said.unwrap_or_default());
                        answer("200 OK", "content-type: text/plain", &text)
                    }
                    "/text" => answer("200 OK", "content-type: text/plain", "hello"),
                    "/image" => answer("200 OK", "content-type: image/png", "not a text"),
                    "/gone" => answer("404 Not Found", "content-type: text/plain", "nothing here"),
                    "/large" => answer("200 OK", "content-type: text/plain", &"x".repeat(100_000)),
                    "/gzip" => answer("200 OK", "content-type: text/plain\r\ncontent-encoding: gzip", "x"),
                    "/loop" => answer("302 Found", "location: /loop", ""),
                    "/redirect" => answer("302 Found", "location: text", ""),
                    // A redirect to the address in the path. Another host name leads to this same
                    // server, which would answer.
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
    Getter::new(&Http { allow, max_bytes: Some(1000) }, &BTreeMap::new(), Redactor::default())
        .unwrap()
        .unwrap()
}

/// Makes a request without secrets.
async fn get(getter: &Getter, url: &str) -> Output {
    let work = tests::script::work("child", "echo", serde_json::json!({}));
    let given = GivenSecrets { values: &Values::default(), work: &work, tool: "http.get" };
    getter.fetch(Arguments { url: url.into(), headers: BTreeMap::new() }, given).await
}

#[tokio::test]
async fn http_get_reads_only_from_allowed_hosts_also_after_a_redirect() {
    let port = server().await;
    let getter = getter(&[&format!("127.0.0.1:{port}")]);
    let here = format!("http://127.0.0.1:{port}");
    let fetch = async |path: &str| get(&getter, &format!("{here}{path}")).await;
    assert_eq!(fetch("/text").await, Ok("hello".into()));
    assert_eq!(fetch("/redirect").await, Ok("hello".into()));

    let elsewhere = format!("http://localhost:{port}/text");
    for refused in [get(&getter, &elsewhere).await, fetch(&format!("/{elsewhere}")).await] {
        let refused = refused.unwrap_err();
        assert!(refused.starts_with(&format!("`localhost:{port}` is not allowed")), "{refused}");
    }
    let refused = fetch("/file:///etc/passwd").await.unwrap_err();
    assert!(refused.contains("neither http nor https"), "{refused}");
    let refused = get(&getter, &format!("http://me:secret@127.0.0.1:{port}/text")).await.unwrap_err();
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
    let fetch = async |path: &str| get(&getter, &format!("http://127.0.0.1:{port}{path}")).await;
    assert_eq!(
        fetch("/large").await,
        Ok(format!("{}\n[cut here: only 1000 bytes are read]", "x".repeat(1000)))
    );
    assert_eq!(fetch("/image").await, Ok("[200 OK: not text, but image/png of 10 bytes]".into()));
    assert_eq!(fetch("/gone").await, Err("404 Not Found\n\nnothing here".into()));
    let refused = get(&getter, "http://127.0.0.1:1/").await.unwrap_err();
    assert!(refused.contains("is not allowed"), "{refused}");
}

#[test]
fn http_get_is_not_offered_if_no_host_is_allowed() {
    assert!(Getter::new(&Http::default(), &BTreeMap::new(), Redactor::default()).unwrap().is_none());
    let wrong = Http { allow: vec!["http://a".into(), "a.org".into(), "b/c".into()], max_bytes: None };
    let problems = Getter::new(&wrong, &BTreeMap::new(), Redactor::default()).unwrap_err();
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["http.allow[0]", "http.allow[2]"]);
}

/// Looks up every name as these addresses, with the next list at each lookup.
fn says(addresses: &[&[&str]]) -> LookUp {
    let addresses: Vec<Vec<IpAddr>> =
        addresses.iter().map(|all| all.iter().map(|one| one.parse().unwrap()).collect()).collect();
    let asked = Arc::new(AtomicUsize::new(0));
    Arc::new(move |_| {
        let turn = asked.fetch_add(1, Ordering::Relaxed).min(addresses.len() - 1);
        let found = addresses[turn].clone();
        Box::pin(async move { Ok(found) })
    })
}

/// proves: a name of an address in an internal network is not connected to, unless the settings
/// list that address for that port. The same is true after a redirect, and for a second lookup of
/// the name.
#[tokio::test]
async fn s5_http_get_connects_only_to_addresses_of_the_internet_or_that_are_listed() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let (port, other) = (server().await, server().await);
    let (named, listed) = (format!("name.example:{port}"), format!("127.0.0.1:{port}"));
    let other_listed = format!("127.0.0.1:{other}");
    let fetch = async |allow: &[&str], addresses: &[&[&str]], path: &str| {
        let allow = allow.iter().map(|entry| (*entry).to_owned()).collect();
        let http = Http { allow, max_bytes: None };
        let getter = Getter::looking_up(&http, &BTreeMap::new(), Redactor::default(), &says(addresses));
        get(&getter.unwrap().unwrap(), &format!("http://name.example:{port}{path}")).await
    };
    for internal in [
        &["127.0.0.1"][..],
        &["::ffff:127.0.0.1"],
        &["169.254.169.254"],
        &["10.0.0.1", "fd00::1", "64:ff9b::7f00:1", "2002:7f00:1::", "0.0.0.0", "::1"],
    ] {
        let refused = fetch(&[&named], &[internal], "/text").await.unwrap_err();
        assert!(refused.contains("internal network") && refused.contains("hint"), "{internal:?}: {refused}");
        assert!(!internal.iter().any(|address| refused.contains(address)), "{refused}");
    }
    let refused = fetch(&[&named], &[&[]], "/text").await.unwrap_err();
    assert!(refused.contains("has no address"), "{refused}");
    // The address is listed for this port. Another address, or another port of it, is not enough.
    assert_eq!(fetch(&[&named, &listed], &[&["127.0.0.1"]], "/text").await, Ok("hello".into()));
    assert_eq!(fetch(&[&named, &listed], &[&["10.0.0.1", "127.0.0.1"]], "/text").await, Ok("hello".into()));
    for elsewhere in ["127.0.0.2", &other_listed] {
        let refused = fetch(&[&named, elsewhere], &[&["127.0.0.1"]], "/text").await.unwrap_err();
        assert!(refused.contains("internal network"), "{elsewhere}: {refused}");
    }
    // The name is looked up again for another connection, and has another address by then.
    let away = format!("/http://name.example:{port}/text");
    let refused = fetch(&[&named, &listed], &[&["127.0.0.1"], &["10.0.0.1"]], &away).await.unwrap_err();
    assert!(refused.contains("internal network"), "{refused}");
}

#[tokio::test]
async fn s5_http_get_takes_no_encoded_answer() {
    let port = server().await;
    let getter = getter(&[&format!("127.0.0.1:{port}")]);
    let refused = get(&getter, &format!("http://127.0.0.1:{port}/gzip")).await.unwrap_err();
    assert!(refused.contains("encoding"), "{refused}");
    let asked = get(&getter, &format!("http://127.0.0.1:{port}/echo")).await.unwrap();
    assert!(asked.contains("accept-encoding: identity"), "{asked}");
}

/// proves: a secret reaches the hosts that may have it, in a header and escaped in an address, and
/// no other host: not by a redirect, not by a host name that contains the secret, and not without
/// the port or https that the settings require.
#[tokio::test]
async fn s8_http_get_sends_a_secret_only_to_hosts_that_may_have_it() {
    let (port, other) = (server().await, server().await);
    let (here, there) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{other}"));
    let files = Files::new(&[("KEY", "top&secret/12345")]);
    let with = |hosts: &[&str]| {
        let mut settings = files.settings(|secret| {
            secret.tools = vec!["http.get".into()];
            secret.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        });
        settings.http.max_bytes = Some(1000);
        settings.http.allow = ["127.0.0.1", "localhost"]
            .iter()
            .flat_map(|host| [port, other].map(|port| format!("{host}:{port}")))
            .collect();
        settings
    };
    let work = Files::work(&["KEY"]);
    let call = async |hosts: &[&str], url: &str, header: &str| {
        rustls::crypto::ring::default_provider().install_default().ok();
        let settings = with(hosts);
        let values = Values::read(&settings, &[]);
        let getter =
            Getter::new(&settings.http, &settings.secrets, values.redactor().clone()).unwrap().unwrap();
        let headers = BTreeMap::from([("X-Key".to_owned(), header.to_owned())]);
        let given = GivenSecrets { values: &values, work: &work, tool: "http.get" };
        getter.fetch(Arguments { url: url.into(), headers }, given).await
    };
    let to_here: &[&str] = &[&format!("127.0.0.1:{port}")];
    // The server answers with the request that it got. The answer has the names in place of the
    // values.
    let echoed =
        call(to_here, &format!("{here}/echo?k={{{{secret:KEY}}}}&l=1"), "a {{secret:KEY}} b").await.unwrap();
    assert!(echoed.contains("GET /echo?k=[KEY]&l=1 HTTP"), "the value is not escaped: {echoed}");
    assert!(echoed.contains("x-key: a [KEY] b"), "{echoed}");

    let refused = call(to_here, &format!("{there}/echo"), "{{secret:KEY}}").await.unwrap_err();
    assert!(refused.contains("may not be sent to") && refused.contains("nothing was sent"), "{refused}");
    let refused = call(&["127.0.0.1"], &format!("{here}/echo"), "{{secret:KEY}}").await.unwrap_err();
    assert!(refused.contains("https"), "another port without https was allowed: {refused}");
    let refused = call(to_here, "http://{{secret:KEY}}.localhost/echo", "x").await.unwrap_err();
    assert!(refused.contains("in the path or the query"), "{refused}");
    for header in ["Host", "cookie", "Proxy-Authorization", "a b"] {
        let settings = with(to_here);
        let values = Values::read(&settings, &[]);
        let getter =
            Getter::new(&settings.http, &settings.secrets, values.redactor().clone()).unwrap().unwrap();
        let headers = BTreeMap::from([(header.to_owned(), "x".to_owned())]);
        let given = GivenSecrets { values: &values, work: &work, tool: "http.get" };
        let refused =
            getter.fetch(Arguments { url: format!("{here}/echo"), headers }, given).await.unwrap_err();
        assert!(refused.contains(header), "{refused}");
    }

    // Another port is another host: the redirect drops the headers, and a secret in the address
    // stops it.
    let echoed = call(to_here, &format!("{here}/{there}/echo"), "{{secret:KEY}}").await.unwrap();
    assert!(echoed.contains("GET /echo") && !echoed.to_lowercase().contains("x-key"), "{echoed}");
    let refused = call(to_here, &format!("{here}/{there}/echo?k={{{{secret:KEY}}}}"), "x").await.unwrap_err();
    assert!(refused.contains("with a secret in the address"), "{refused}");
    let echoed = call(to_here, &format!("{here}/{here}/echo"), "{{secret:KEY}}").await.unwrap();
    assert!(echoed.contains("x-key: [KEY]"), "a redirect to the same host lost the secret: {echoed}");

    // The answer is cut within the value, and no part of the value is left.
    let cut = call(to_here, &format!("{here}/long"), "{{secret:KEY}}").await.unwrap();
    assert!(cut.contains("[cut here") || cut.ends_with("[KEY]"), "{cut}");
    assert!(!cut.contains("top&"), "{cut}");
}
