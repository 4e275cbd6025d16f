//! A NATS server with JetStream.

use std::{
    ffi::OsString,
    fs,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::process::{Place, Process, Program, Settings};

static NATS: Program = Program {
    name: "nats-server",
    place: Place::Variable("TRELLIS_NATS_SERVER"),
    arguments,
    greeting: (b"", &[b"INFO "]),
};

const STORE: &str = "jetstream";

#[derive(Debug)]
pub struct NatsServer(Process);

impl NatsServer {
    /// As the server is by default: what it acknowledged in the last moments a power cut may take, a
    /// killed process may not.
    pub fn start() -> NatsServer {
        NatsServer::start_with("", "")
    }

    /// Syncs every write to disk before it answers, as a deployment should.
    pub fn start_synced() -> NatsServer {
        NatsServer::start_with("sync_interval: always", "")
    }

    /// With more settings of its JetStream, and of the server itself.
    pub fn start_with(jetstream: &str, server: &str) -> NatsServer {
        NatsServer(Process::start(&NATS, vec![jetstream.to_owned(), server.to_owned()]))
    }

    /// One for all tests of a process that run at the same time; it goes with the last of them.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<NatsServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start());
            *shared = Arc::downgrade(&server);
            server
        })
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.0.port())
    }

    pub fn pid(&self) -> u32 {
        self.0.pid().as_raw().unsigned_abs()
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.0.kill();
    }

    /// SIGTERM, and waits until it has gone.
    pub fn stop(&mut self) {
        self.0.stop();
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

    /// Kills it, deletes its streams and starts it again.
    pub fn wipe(&mut self) {
        self.0.kill();
        fs::remove_dir_all(self.0.dir().join(STORE)).expect("the directory is ours");
        self.0.restart();
    }
}

/// It takes most settings from a file only.
fn arguments(settings: &Settings) -> Vec<OsString> {
    let [jetstream, server] = settings.extra.as_slice() else { panic!("two kinds of settings") };
    let (port, store) = (settings.port, settings.dir.join(STORE));
    fs::create_dir_all(&store).expect("the directory is ours");
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\nserver_name: \"test-{port}\"\nmax_payload: 1MB\n\
         jetstream {{\n  store_dir: \"{}\"\n  {jetstream}\n}}\n{server}\n",
        store.display()
    );
    let file = settings.dir.join("nats.conf");
    fs::write(&file, text).expect("the directory is ours");
    vec!["--config".into(), file.into()]
}
