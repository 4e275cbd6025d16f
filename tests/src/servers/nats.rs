//! A NATS server with JetStream.

use std::{
    ffi::OsString,
    fs,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::process::{DATA, Place, Process, Program, Settings};

static NATS: Program = Program {
    name: "nats-server",
    place: Place::Variable("TRELLIS_NATS_SERVER"),
    arguments,
    greeting: (b"", &[b"INFO "]),
};

#[derive(Debug)]
pub struct NatsServer(Process);

impl NatsServer {
    /// Starts a server with the default settings. A power cut may lose recently acknowledged
    /// writes; a killed process loses none.
    pub fn start() -> NatsServer {
        NatsServer::start_with("", "")
    }

    /// Starts a server that syncs every write to disk before it answers, as a deployment should.
    pub fn start_synced() -> NatsServer {
        NatsServer::start_with("sync_interval: always", "")
    }

    /// Starts a server with more settings, for JetStream and for the server.
    pub fn start_with(jetstream: &str, server: &str) -> NatsServer {
        NatsServer(Process::start(&NATS, vec![jetstream.to_owned(), server.to_owned()]))
    }

    /// Starts a server on its own disk of this size. It syncs every write.
    pub fn start_on_disk(megabytes: u64) -> NatsServer {
        // By default, JetStream uses three quarters of the disk, and reserves the maximum size of
        // every stream.
        let settings = vec!["sync_interval: always, max_file_store: 8GB".to_owned(), String::new()];
        NatsServer(Process::start_on(&NATS, settings, Some(megabytes)))
    }

    /// One server for all tests of this process that run at the same time. It ends with the last of
    /// them.
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
        format!("nats://127.0.0.1:{}", self.port())
    }
}

impl Deref for NatsServer {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.0
    }
}

impl DerefMut for NatsServer {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.0
    }
}

/// nats-server reads most settings only from a file.
fn arguments(settings: &Settings) -> Vec<OsString> {
    let [jetstream, server] = settings.extra.as_slice() else { panic!("two kinds of settings") };
    let (port, store) = (settings.port, settings.dir.join(DATA));
    fs::create_dir_all(&store).expect("the test created the directory");
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\nserver_name: \"test-{port}\"\nmax_payload: 1MB\n\
         jetstream {{\n  store_dir: \"{}\"\n  {jetstream}\n}}\n{server}\n",
        store.display()
    );
    let file = settings.dir.join("nats.conf");
    fs::write(&file, text).expect("the test created the directory");
    vec!["--config".into(), file.into()]
}
