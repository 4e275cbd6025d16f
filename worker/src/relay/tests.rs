//! A relay between a client and a server.

use std::{net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use host::internet::strict_client;

use super::{LastFault, Pipe, Relay, RequestSent, Upstream, local_client};

/// A server that answers every request with these bytes; its address.
async fn server(answer: &'static str) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

async fn relay(base: String) -> (Relay, String) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = strict_client().build().unwrap();
    let (longest, sent) = (Some(Duration::from_secs(60)), RequestSent::default());
    let upstream = Upstream { client, base, shape: None, passes_errors: true, longest, sent };
    let relay = Relay::open(upstream).await.unwrap();
    let address = relay.address().unwrap();
    (relay, address)
}

/// proves: a client that does not know the path of a relay gets no answer, and does not stop the
/// relay.
#[tokio::test]
async fn s5_a_relay_serves_only_its_library() {
    let to =
        server("HTTP/1.1 200 OK\r\nset-cookie: a=b\r\nmcp-session-id: 7\r\ncontent-length: 3\r\n\r\nyes")
            .await;
    let (relay, address) = relay(to).await;
    let origin = address.split('/').nth(2).unwrap().to_owned();
    tokio::spawn(relay.serve(LastFault::default()));
    for stranger in ["GET / HTTP/1.1\r\n\r\n", "GET /guess/x HTTP/1.1\r\n\r\n", "junk\r\n\r\n"] {
        let mut stream = TcpStream::connect(&origin).await.unwrap();
        stream.write_all(stranger.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty(), "{stranger}");
    }
    let answer = local_client().build().unwrap().get(format!("{address}x")).send().await.unwrap();
    assert_eq!(answer.headers().get("mcp-session-id").unwrap(), "7");
    assert!(answer.headers().get("set-cookie").is_none());
    assert_eq!(answer.text().await.unwrap(), "yes");
}

/// proves: connections that send nothing, or never end their head, delay neither a single exchange
/// nor a tool server. A flood of connections costs only its own clients their connection.
#[tokio::test]
async fn s5_strangers_do_not_delay_a_relay() {
    let to = server("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes").await;
    for serves in [false, true] {
        let (mut relaying, address) = relay(to.clone()).await;
        let origin = address.split('/').nth(2).unwrap().to_owned();
        let running = tokio::spawn(async move {
            match serves {
                true => relaying.serve(LastFault::default()).await,
                false => relaying.pass_on().await.unwrap(),
            }
        });
        let coming = async {
            let mut strangers = Vec::new();
            for at in 0..300 {
                let mut stranger = TcpStream::connect(&origin).await.unwrap();
                if at % 2 == 0 {
                    stranger.write_all(b"GET /0").await.unwrap();
                }
                strangers.push(stranger);
            }
            strangers
        };
        // If a relay stopped accepting, the system's own queue would fill, and a connection would
        // wait for minutes.
        let come = tokio::time::timeout(Duration::from_secs(20), coming).await;
        let _strangers =
            come.unwrap_or_else(|_| panic!("other connections are not accepted; serves: {serves}"));
        let asked = local_client().build().unwrap().get(format!("{address}x")).send();
        let answer = tokio::time::timeout(Duration::from_secs(4), asked).await;
        let answer = answer
            .unwrap_or_else(|_| panic!("the call waits for other connections; serves: {serves}"))
            .unwrap();
        assert_eq!(answer.text().await.unwrap(), "yes");
        running.abort();
    }
}

/// proves: if a server ends every stream at once, the library does not open streams at full speed.
#[tokio::test]
async fn s5_a_stream_to_listen_to_is_not_opened_without_a_pause() {
    let to = server(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 10\r\n\r\nretry: 0\n\n",
    )
    .await;
    let (relaying, address) = relay(to).await;
    tokio::spawn(relaying.serve(LastFault::default()));
    let client = local_client().build().unwrap();
    let begun = tokio::time::Instant::now();
    assert_eq!(client.get(&address).send().await.unwrap().text().await.unwrap(), "retry: 0\n\n");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    let begun = tokio::time::Instant::now();
    assert_eq!(client.post(&address).send().await.unwrap().text().await.unwrap(), "retry: 0\n\n");
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "a question is answered at once: {:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn s5_a_body_of_a_tool_server_is_bounded_and_a_redirect_is_not_followed() {
    let large: &'static str = Box::leak(
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{}", "x".repeat(5 << 20))
            .into_boxed_str(),
    );
    let (relaying, address) = relay(server(large).await).await;
    let last = LastFault::default();
    tokio::spawn(relaying.serve(last.clone()));
    let client = local_client().build().unwrap();
    assert!(client.get(&address).send().await.unwrap().bytes().await.is_err());
    assert_eq!(last.take().as_deref(), Some("a part of the answer is larger than 4 MiB"));

    let (relaying, address) = relay(
        server("HTTP/1.1 307 Away\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n").await,
    )
    .await;
    tokio::spawn(relaying.serve(LastFault::default()));
    let answer = client.get(&address).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().get("location")), (307, None));
}

/// proves: lines without a pause wait in the program, and none is lost. A line without an end ends
/// the pipe.
#[tokio::test(start_paused = true)]
async fn s5_lines_of_a_program_are_bounded() {
    let begun = tokio::time::Instant::now();
    let lines = "{}\n".repeat(50_000).into_bytes();
    let mut read = Vec::new();
    Pipe::new(lines.as_slice(), LastFault::default()).read_to_end(&mut read).await.unwrap();
    assert_eq!(read.len(), lines.len());
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());

    let begun = tokio::time::Instant::now();
    let long = format!("{}\n", "x".repeat(1 << 20)).repeat(80).into_bytes();
    let mut read = Vec::new();
    Pipe::new(long.as_slice(), LastFault::default()).read_to_end(&mut read).await.unwrap();
    assert_eq!(read.len(), long.len());
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());

    let (last, long) = (LastFault::default(), vec![b'x'; 5 << 20]);
    let failed = Pipe::new(long.as_slice(), last.clone()).read_to_end(&mut Vec::new()).await;
    assert!(failed.is_err());
    assert!(last.take().unwrap().contains("larger than 4 MiB"));
}
