//! A Redis that syncs every write to disk before it answers.

use std::ffi::OsString;

use super::process::{Process, Program, Settings};

static REDIS: Program = Program {
    name: "redis-server",
    variable: "TRELLIS_REDIS_SERVER",
    arguments,
    greeting: (b"PING\r\n", &[b"+PONG", b"-NOAU"]),
};

const DATA: &str = "data";

#[derive(Debug)]
pub struct RedisServer(Process);

impl RedisServer {
    pub fn start() -> RedisServer {
        RedisServer::start_with(&[])
    }

    /// With settings that come last and so win, as on the command line: `["--maxmemory", "8mb"]`.
    pub fn start_with(extra: &[&str]) -> RedisServer {
        RedisServer(Process::start(&REDIS, extra.iter().map(|&word| word.to_owned()).collect()))
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.0.port())
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// With the same port and what is on disk.
    pub fn restart(&mut self) {
        self.0.restart();
    }

    /// SIGSTOP.
    pub fn pause(&self) {
        self.0.pause();
    }

    pub fn resume(&self) {
        self.0.resume();
    }

    /// Kills it, deletes its data and starts it again.
    pub fn wipe(&mut self) {
        self.0.kill();
        std::fs::remove_dir_all(self.0.dir().join(DATA)).expect("the directory is ours");
        self.0.restart();
    }
}

fn arguments(settings: &Settings) -> Vec<OsString> {
    let data = settings.dir.join(DATA);
    std::fs::create_dir_all(&data).expect("the directory is ours");
    let mut arguments: Vec<OsString> = Vec::new();
    arguments.extend(["--bind", "127.0.0.1", "--port"].map(OsString::from));
    arguments.push(settings.port.to_string().into());
    arguments.push("--dir".into());
    arguments.push(data.into());
    let durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no"];
    arguments.extend(durable.map(OsString::from));
    arguments.extend(settings.extra.iter().map(OsString::from));
    arguments
}
