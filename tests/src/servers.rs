//! A real nats-server of our own: its own port and directory, killed when it is dropped.

use std::{
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};

#[derive(Debug)]
pub struct NatsServer {
    child: Child,
    port: u16,
    directory: PathBuf,
    arguments: &'static [&'static str],
}

impl NatsServer {
    /// The binary is named by `TRELLIS_NATS_SERVER`, or is on the path.
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&[])
    }

    pub fn start_with(arguments: &'static [&'static str]) -> anyhow::Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("trellis-nats-{}-{number}", std::process::id()));
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = spawn(port, &directory, arguments)?;
        Ok(NatsServer { child, port, directory, arguments })
    }

    /// One for all tests of a process that run at the same time; it goes with the last of them.
    pub fn shared() -> anyhow::Result<Arc<Self>> {
        static SHARED: Mutex<Weak<NatsServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// As `kill -9`: nothing is written down any more.
    pub fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// On the same port, with what it had written down.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.kill();
        self.child = spawn(self.port, &self.directory, self.arguments)?;
        Ok(())
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

fn spawn(port: u16, directory: &Path, arguments: &[&str]) -> anyhow::Result<Child> {
    #[expect(clippy::disallowed_methods, reason = "a test has no main that could read it")]
    let binary = std::env::var("TRELLIS_NATS_SERVER").unwrap_or_else(|_| "nats-server".into());
    let mut child = Command::new(&binary)
        .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"])
        .arg(directory)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting `{binary}`; TRELLIS_NATS_SERVER names another"))?;
    for _ in 0..200 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(child);
        }
        if let Some(status) = child.try_wait()? {
            bail!("nats-server ended at its start: {status}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().ok();
    child.wait().ok();
    bail!("nats-server does not listen")
}
