//! A Redis server that syncs every write to disk before it answers.

use std::{
    ffi::OsString,
    ops::{Deref, DerefMut},
};

use super::process::{DATA, Place, Process, Program, Settings};

static REDIS: Program = Program {
    name: "redis-server",
    place: Place::Variable("TRELLIS_REDIS_SERVER"),
    arguments,
    greeting: (b"PING\r\n", &[b"+PONG", b"-NOAU"]),
};

/// The same program with a configuration file, which alone decides the persistence.
static CONFIGURED: Program = Program {
    name: "redis-server",
    place: Place::Variable("TRELLIS_REDIS_SERVER"),
    arguments: configured_arguments,
    greeting: (b"PING\r\n", &[b"+PONG", b"-NOAU"]),
};

/// The same program as a sentinel. It stores its state in its configuration file.
static SENTINEL: Program = Program {
    name: "redis-server",
    place: Place::Variable("TRELLIS_REDIS_SERVER"),
    arguments: sentinel_arguments,
    greeting: (b"PING\r\n", &[b"+PONG", b"-NOAU"]),
};

#[derive(Debug)]
pub struct RedisServer(Process);

impl RedisServer {
    pub fn start() -> RedisServer {
        RedisServer::start_with(&[])
    }

    /// Starts a server with more arguments, such as `["--maxmemory", "8mb"]`. They come last and
    /// override the others.
    pub fn start_with(extra: &[&str]) -> RedisServer {
        RedisServer(Process::start(&REDIS, extra.iter().map(|&word| word.to_owned()).collect()))
    }

    /// Starts a server with this configuration file. The arguments override its settings.
    pub fn start_from(configuration: &str, extra: &[&str]) -> RedisServer {
        let words = [&[configuration], extra].concat();
        RedisServer(Process::start(&CONFIGURED, words.into_iter().map(str::to_owned).collect()))
    }

    /// Starts a server on its own disk of this size.
    pub fn start_on_disk(extra: &[&str], megabytes: u64) -> RedisServer {
        let extra = extra.iter().map(|&word| word.to_owned()).collect();
        RedisServer(Process::start_on(&REDIS, extra, Some(megabytes)))
    }

    /// Starts a sentinel whose vote alone decides, after 5 s, that `master` is down.
    pub fn start_sentinel(name: &str, master: &RedisServer) -> RedisServer {
        RedisServer(Process::start(&SENTINEL, vec![name.to_owned(), master.port().to_string()]))
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }
}

impl Deref for RedisServer {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}

impl DerefMut for RedisServer {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.0
    }
}

/// The arguments for the server's address and the directory of its data.
fn place(settings: &Settings) -> Vec<OsString> {
    let data = settings.dir.join(DATA);
    std::fs::create_dir_all(&data).expect("the test created the directory");
    let mut arguments: Vec<OsString> = Vec::new();
    arguments.extend(["--bind", "127.0.0.1", "--port"].map(OsString::from));
    arguments.push(settings.port.to_string().into());
    arguments.push("--dir".into());
    arguments.push(data.into());
    arguments
}

fn arguments(settings: &Settings) -> Vec<OsString> {
    let mut arguments = place(settings);
    let durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no"];
    arguments.extend(durable.map(OsString::from));
    arguments.extend(settings.extra.iter().map(OsString::from));
    arguments
}

fn configured_arguments(settings: &Settings) -> Vec<OsString> {
    let (configuration, extra) = settings.extra.split_first().expect("a configuration file");
    let mut arguments = vec![configuration.into()];
    arguments.extend(place(settings));
    arguments.extend(extra.iter().map(OsString::from));
    arguments
}

fn sentinel_arguments(settings: &Settings) -> Vec<OsString> {
    let [name, master] = settings.extra.as_slice() else { panic!("a name and a port") };
    let (port, dir) = (settings.port, settings.dir.display());
    // A master is down after 5 s. A master that only waits for a core must not be replaced.
    let text = format!(
        "port {port}\nbind 127.0.0.1\ndir \"{dir}\"\nsentinel monitor {name} 127.0.0.1 {master} 1\n\
         sentinel down-after-milliseconds {name} 5000\nsentinel failover-timeout {name} 10000\n"
    );
    let file = settings.dir.join("sentinel.conf");
    std::fs::write(&file, text).expect("the test created the directory");
    vec![file.into(), "--sentinel".into()]
}
