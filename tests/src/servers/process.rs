//! A server process of a test: started, killed, paused, started again with what it had on disk.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use nix::{
    sys::{
        signal::{self, Signal},
        wait::{self, WaitPidFlag, WaitStatus},
    },
    unistd::Pid,
};

/// Between two looks at a starting server, and how many: three minutes at the least, to bound a hang.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 9_000;
/// A port found free may be taken before the server has it.
const PORTS: u32 = 5;

/// How a server is started and spoken to.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) arguments: fn(&Settings) -> Vec<OsString>,
    /// What is said first, and what the answer of a server that is ready may begin with, all as long.
    pub(super) greeting: (&'static [u8], &'static [&'static [u8]]),
}

/// Where a program is.
#[derive(Debug)]
pub(super) enum Place {
    /// Where this environment variable says, else where `scripts/servers` put it.
    Variable(&'static str),
    /// An interpreter of this name, on the PATH.
    Path(&'static str),
}

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) dir: PathBuf,
    pub(super) port: u16,
    /// As the test gave them.
    pub(super) extra: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Process {
    program: &'static Program,
    settings: Settings,
    child: Option<Child>,
}

impl Process {
    pub(super) fn start(program: &'static Program, extra: Vec<String>) -> Process {
        let mut tried = String::new();
        for _ in 0..PORTS {
            let settings = Settings { dir: fresh_dir(program.name), port: free_port(), extra: extra.clone() };
            let mut process = Process { program, settings, child: None };
            match process.run() {
                Ok(()) => return process,
                Err(log) => tried = log,
            }
        }
        panic!("{} did not start {PORTS} times; the last log:\n{tried}", program.name);
    }

    pub(super) fn port(&self) -> u16 {
        self.settings.port
    }

    pub(super) fn dir(&self) -> &Path {
        &self.settings.dir
    }

    /// As a crash of the process: nothing is flushed.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
        }
    }

    /// As an operator stops it: it may finish and flush.
    pub(super) fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        if let Some(mut child) = self.child.take() {
            child.wait().expect("the child is ours");
        }
    }

    /// With the same port and directory.
    pub(super) fn restart(&mut self) {
        self.kill();
        if let Err(log) = self.run() {
            panic!("{} did not start again; its log ends:\n{log}", self.program.name);
        }
    }

    /// Connections stay open and nobody answers: what a hung host looks like.
    pub(super) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        // The signal is sent before it has arrived at every thread.
        let stopped = wait::waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED));
        assert!(matches!(stopped, Ok(WaitStatus::Stopped(..))), "{}: {stopped:?}", self.program.name);
    }

    pub(super) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        signal::kill(self.pid(), signal).expect("the child is ours");
    }

    pub(super) fn pid(&self) -> Pid {
        let child = self.child.as_ref().expect("the server runs");
        Pid::from_raw(i32::try_from(child.id()).expect("a pid fits"))
    }

    /// Until it answers. If it does not, the end of its log.
    fn run(&mut self) -> Result<(), String> {
        let log = self.settings.dir.join("log");
        let file = File::options().create(true).append(true).open(&log).expect("the directory is ours");
        let path = locate(self.program);
        let child = Command::new(&path)
            .args((self.program.arguments)(&self.settings))
            .current_dir(&self.settings.dir)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file can be shared"))
            .stderr(file)
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{} did not start: {error}", path.display()));
        for _ in 0..LOOKS {
            if child.try_wait().expect("the child is ours").is_some() {
                return Err(tail(&log));
            }
            if answers(self.settings.port, self.program.greeting) {
                self.child = Some(child);
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        child.kill().expect("the child is ours");
        child.wait().expect("the child is ours");
        Err(tail(&log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // What is left in the system's temporary directory is not worth a panic in a drop.
        let _ = fs::remove_dir_all(&self.settings.dir);
    }
}

fn locate(program: &Program) -> PathBuf {
    match program.place {
        Place::Variable(variable) => installed(variable, &Path::new("bin").join(program.name)),
        Place::Path(interpreter) => interpreter.into(),
    }
}

/// Where the environment says, else beneath where `scripts/servers` puts things.
pub fn installed(variable: &str, beneath: &Path) -> PathBuf {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools").join(beneath));
    assert!(
        path.exists(),
        "there is no {}\n\nhint: run scripts/servers once, or set {variable}",
        path.display()
    );
    path
}

fn answers(port: u16, (hello, welcomes): (&[u8], &[&[u8]])) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, LOOK * 10) else { return false };
    let mut answer = vec![0; welcomes.first().map_or(0, |welcome| welcome.len())];
    stream.set_read_timeout(Some(LOOK * 50)).is_ok()
        && stream.write_all(hello).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && welcomes.contains(&answer.as_slice())
}

/// Beneath those that the kernel gives to whoever connects: while a server is down, nobody else gets its
/// port. The nodes of a Redis cluster take the port 10,000 above theirs as well.
pub fn free_port() -> u16 {
    const PORTS: Range<u16> = 10_000..20_000;
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Processes that look at the same time begin at different places.
    let first = std::process::id().wrapping_mul(7919);
    loop {
        let tried = first.wrapping_add(TRIED.fetch_add(1, Ordering::Relaxed));
        let above = u16::try_from(tried % u32::from(PORTS.end - PORTS.start)).expect("less than the range");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, PORTS.start + above)).is_ok() {
            return PORTS.start + above;
        }
    }
}

fn fresh_dir(name: &str) -> PathBuf {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("trellis-{name}-{}-{number}", std::process::id()));
    // Of a process that had this id before.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("the temporary directory can be written");
    dir
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
