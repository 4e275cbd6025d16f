//! A `trellis dev`, or a `trellis gateway` before a cluster: the servers for browsers.

use std::ffi::OsString;

use super::process::{Place, Process, Program, Settings};

static TRELLIS: Program = Program {
    name: "trellis",
    place: Place::Built,
    arguments,
    greeting: (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", &[b"HTTP/1.1"]),
};

#[derive(Debug)]
pub struct Trellis(Process);

impl Trellis {
    /// Starts a process that has its own cluster in a directory.
    pub fn dev(words: &[&str]) -> Trellis {
        Self::start("dev", words)
    }

    /// Starts a gateway of the cluster on a NATS server.
    pub fn gateway(nats_url: &str, words: &[&str]) -> Trellis {
        Self::start("gateway", &[&["--nats-url", nats_url], words].concat())
    }

    fn start(command: &str, words: &[&str]) -> Trellis {
        let words = words.iter().map(|&word| word.to_owned());
        Trellis(Process::start(&TRELLIS, std::iter::once(command.to_owned()).chain(words).collect()))
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.0.port())
    }

    pub fn stop(&mut self) {
        self.0.stop();
    }

    /// Restarts the process with the same port and its stored data.
    pub fn restart(&mut self) {
        self.0.restart();
    }

    pub fn log(&self) -> String {
        self.0.log()
    }
}

fn arguments(settings: &Settings) -> Vec<OsString> {
    let [command, words @ ..] = settings.extra.as_slice() else { panic!("there is a command") };
    let mut all: Vec<OsString> = vec![command.into(), "--listen".into()];
    all.push(format!("127.0.0.1:{}", settings.port).into());
    if command == "dev" {
        all.extend(["--data".into(), settings.dir.join("data").into()]);
    }
    all.extend(words.iter().map(OsString::from));
    all
}
