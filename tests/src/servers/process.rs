//! A server process of a test: started, killed, paused, and restarted with its data.

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

use super::disk::Disk;
use crate::processes::binary;

/// The pause between two checks of a starting server, and the number of checks: three minutes, to
/// bound a hang.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 9_000;
/// The number of ports to try: a free port may be taken before the server binds it.
const PORTS: u32 = 5;

/// The folder of a server's data, below its directory.
pub(super) const DATA: &str = "data";

/// How a server is started and checked.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) arguments: fn(&Settings) -> Vec<OsString>,
    /// The bytes to send, and the possible first bytes of a ready server's answer, all of one
    /// length.
    pub(super) greeting: (&'static [u8], &'static [&'static [u8]]),
}

/// The location of the program.
#[derive(Debug)]
pub(super) enum Place {
    /// The path in this environment variable, or else the installation of `scripts/servers`.
    Variable(&'static str),
    /// An interpreter of this name on the PATH.
    Path(&'static str),
    /// The `trellis` binary.
    Built,
}

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) dir: PathBuf,
    pub(super) port: u16,
    /// Arguments of the test.
    pub(super) extra: Vec<String>,
    /// The disk of the data, if it is not in a plain folder.
    pub(super) disk: Option<Disk>,
}

#[derive(Debug)]
pub struct Process {
    program: &'static Program,
    settings: Settings,
    child: Option<Child>,
}

impl Process {
    pub(super) fn start(program: &'static Program, extra: Vec<String>) -> Process {
        Self::start_on(program, extra, None)
    }

    /// Starts the program with its data on a disk of this size in megabytes, or in a plain folder.
    pub(super) fn start_on(program: &'static Program, extra: Vec<String>, disk: Option<u64>) -> Process {
        let mut tried = String::new();
        for _ in 0..PORTS {
            let dir = fresh_dir(program.name);
            let disk = disk.map(|size| {
                Disk::create(&dir, &dir.join(DATA), size)
                    .expect("the test has checked that disks are allowed")
            });
            let settings = Settings { dir, port: free_port(), extra: extra.clone(), disk };
            let mut process = Process { program, settings, child: None };
            match process.run() {
                Ok(()) => return process,
                Err(log) => tried = log,
            }
        }
        panic!("{} did not start {PORTS} times; the last log:\n{tried}", program.name);
    }

    pub fn port(&self) -> u16 {
        self.settings.port
    }

    /// The directory with all files of the server.
    pub fn directory(&self) -> &Path {
        &self.settings.dir
    }

    /// The log of the server so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.settings.dir.join("log")).unwrap_or_default()
    }

    /// Sends SIGKILL, like a crash of the process: nothing is flushed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the test started the process");
            child.wait().expect("the test started the process");
        }
    }

    /// Sends SIGTERM, like an operator: the server may finish and flush. Waits until it has ended.
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        if let Some(mut child) = self.child.take() {
            child.wait().expect("the test started the process");
        }
    }

    /// Restarts the server with the same port and directory.
    pub fn restart(&mut self) {
        self.kill();
        if let Err(log) = self.run() {
            panic!("{} did not start again; its log ends:\n{log}", self.program.name);
        }
    }

    /// Sends SIGSTOP: connections stay open and requests get no answer, as with a hung host.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        // The signal is sent, but may not have reached every thread yet.
        let stopped = wait::waitpid(self.nix_pid(), Some(WaitPidFlag::WUNTRACED));
        assert!(matches!(stopped, Ok(WaitStatus::Stopped(..))), "{}: {stopped:?}", self.program.name);
    }

    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills the server, deletes its data and restarts it.
    pub fn wipe(&mut self) {
        self.kill();
        fs::remove_dir_all(self.settings.dir.join(DATA)).expect("the test created the directory");
        self.restart();
    }

    /// Copies the current files of the server to a new directory.
    pub fn back_up(&self, to: &Path) {
        copy_all(&self.settings.dir.join(DATA), to);
    }

    /// Kills the server, replaces its data by a copy of the backup, and restarts it.
    pub fn restore(&mut self, from: &Path) {
        self.kill();
        let data = self.settings.dir.join(DATA);
        fs::remove_dir_all(&data).expect("the test created the directory");
        copy_all(from, &data);
        self.restart();
    }

    /// Fills the disk of the server. The restart of the server frees it again.
    pub fn fill_disk(&self) {
        self.disk().fill(self.pid());
    }

    /// Cuts the power of the disk, so that unsynced writes are lost, and kills the server.
    pub fn cut_power(&mut self) {
        // The server is paused first, so that it can't acknowledge a write that the disk did not
        // take.
        self.pause();
        self.disk().cut_power(self.pid());
        self.kill();
    }

    fn disk(&self) -> &Disk {
        self.settings.disk.as_ref().expect("a server that was started on a disk")
    }

    fn signal(&self, signal: Signal) {
        signal::kill(self.nix_pid(), signal).expect("the test started the process");
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    fn nix_pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.pid()).expect("a pid fits"))
    }

    /// Starts the server and waits until it answers. The error is the end of its log.
    #[allow(
        clippy::disallowed_methods,
        reason = "a server starts in real time, even if the clock of the test is paused"
    )]
    fn run(&mut self) -> Result<(), String> {
        let log = self.settings.dir.join("log");
        let file =
            File::options().create(true).append(true).open(&log).expect("the test created the directory");
        let (mut path, mut arguments) = (locate(self.program), (self.program.arguments)(&self.settings));
        if let Some(disk) = &self.settings.disk {
            (path, arguments) = disk.start(path, arguments);
        }
        let mut command = Command::new(&path);
        if let Place::Built = self.program.place {
            command.env_clear();
        }
        // A `trellis dev` ends when its stdin closes, so stdin is a pipe.
        let child = command
            .args(arguments)
            .current_dir(&self.settings.dir)
            .stdin(Stdio::piped())
            .stdout(file.try_clone().expect("a file can be shared"))
            .stderr(file)
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{} did not start: {error}", path.display()));
        for _ in 0..LOOKS {
            if child.try_wait().expect("the test started the process").is_some() {
                return Err(tail(&log));
            }
            if answers(self.settings.port, self.program.greeting) {
                self.child = Some(child);
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        child.kill().expect("the test started the process");
        child.wait().expect("the test started the process");
        Err(tail(&log))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // Remaining files in the temporary directory must not cause a panic in a drop.
        let _ = fs::remove_dir_all(&self.settings.dir);
    }
}

fn locate(program: &Program) -> PathBuf {
    match program.place {
        Place::Variable(variable) => installed(variable, &Path::new("bin").join(program.name)),
        Place::Path(interpreter) => interpreter.into(),
        Place::Built => binary(),
    }
}

/// The path in the environment variable, or else a path below the folder of `scripts/servers`.
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

/// The full path of `node` on the PATH. A sandbox has its own PATH, without the folder of
/// `scripts/servers`.
pub fn node() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).find_map(|folder| folder.join("node").canonicalize().ok());
    found.expect("node is in the PATH, or eval \"$(scripts/servers)\" puts it there")
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

/// A port below the kernel's range for outgoing connections, so that no connection takes a server's
/// port while the server is down. The nodes of a Redis cluster also use the port 10,000 above
/// theirs.
pub fn free_port() -> u16 {
    const PORTS: Range<u16> = 10_000..20_000;
    static TRIED: AtomicU32 = AtomicU32::new(0);
    // Processes that search at the same time begin at different ports.
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
    // An earlier process may have had the same id.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("the temporary directory can be written");
    dir
}

/// Copies a directory with all its content.
fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the temporary directory can be written");
    for entry in fs::read_dir(from)
        .expect("the file exists")
        .map(|entry| entry.expect("the directory can be read").path())
    {
        let copy = to.join(entry.file_name().expect("an entry has a name"));
        if entry.is_dir() {
            copy_all(&entry, &copy);
        } else {
            fs::copy(&entry, copy).expect("the temporary directory can be written");
        }
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
