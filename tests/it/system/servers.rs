//! The test servers start, can be killed, and come back.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use trellis_tests::{
    cluster::SOON,
    servers::{NatsServer, RedisServer},
};

/// Returns whether the server sends something.
fn speaks(port: u16, hello: &[u8]) -> bool {
    says(port, hello, SOON)
}

/// Returns whether the server sends nothing for a moment.
fn is_silent(port: u16, hello: &[u8]) -> bool {
    !says(port, hello, Duration::from_millis(300))
}

fn says(port: u16, hello: &[u8], within: Duration) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    stream.set_read_timeout(Some(within)).unwrap();
    stream.write_all(hello).unwrap();
    stream.read_exact(&mut [0; 4]).is_ok()
}

#[test]
fn a_nats_server_dies_stops_and_comes_back_on_its_port() {
    for mut server in [NatsServer::start(), NatsServer::start_synced()] {
        let port = server.port();
        assert_eq!(server.url(), format!("nats://127.0.0.1:{port}"));
        server.pause();
        assert!(is_silent(port, b""), "a stopped server accepts connections without an answer");
        server.resume();
        assert!(speaks(port, b""));
        server.kill();
        assert!(is_silent(port, b""));
        server.restart();
        assert!(speaks(port, b""));
        server.wipe();
        assert!(speaks(port, b""));
        drop(server);
        assert!(is_silent(port, b""));
    }
}

#[test]
fn a_redis_server_is_gone_with_its_handle() {
    let server = RedisServer::start();
    let port = server.port();
    assert!(speaks(port, b"PING\r\n"));
    drop(server);
    assert!(is_silent(port, b"PING\r\n"));
}
