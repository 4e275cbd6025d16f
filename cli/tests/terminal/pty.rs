//! A program on a pseudo-terminal of a chosen size, and the content of its screen.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nix::{
    pty::{Winsize, openpty},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The number of checks for an expected state, and the pause between two checks: half a minute in
/// all.
const LOOKS: u32 = 3_000;
const PAUSE: Duration = Duration::from_millis(10);

/// A directory of a test, which is removed after it.
pub(crate) struct TestDirectory(pub(crate) PathBuf);

impl TestDirectory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trellis-terminal-{}-{number}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        std::fs::create_dir_all(path.join("data")).unwrap();
        TestDirectory(path)
    }

    /// `trellis` with a data directory within this one, and without servers.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        command.args(args).arg("--data").arg(self.0.join("data")).current_dir(root).stdin(Stdio::null());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("PAGER", "cat");
        command
    }

    /// Runs a command without a terminal, and returns its stdout, stderr and exit code.
    pub(crate) fn says(&self, args: &[&str]) -> (String, String, Option<i32>) {
        let output = self.command(args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    }

    /// Starts a command at a terminal of this size.
    pub(crate) fn at_terminal(&self, args: &[&str], columns: u16, lines: u16) -> Terminal {
        Terminal::start(self.command(args), columns, lines)
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A program whose stdin, stdout and stderr are a pseudo-terminal.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    said: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    pub(crate) fn start(mut command: Command, columns: u16, lines: u16) -> Self {
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let end = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        command.stdin(end(&pty.slave)).stdout(end(&pty.slave)).stderr(end(&pty.slave));
        let child = command.spawn().unwrap();
        // Only the program holds the other end now, so reading stops when the program has ended.
        drop((command, pty.slave));
        let said = Arc::new(Mutex::new(Vec::new()));
        let (mut screen, keyboard) = (File::from(pty.master.try_clone().unwrap()), File::from(pty.master));
        let shown = Arc::clone(&said);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                shown.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Terminal { child, keyboard, said, reader: Some(reader) }
    }

    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    /// Waits until a text is shown.
    pub(crate) fn until(&self, what: &str) {
        for _ in 0..LOOKS {
            if self.said().contains(what) {
                return;
            }
            thread::sleep(PAUSE);
        }
        panic!("no {what:?} in {}", self.said());
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        writeln!(self.keyboard, "{line}").unwrap();
    }

    /// Sends the signal of Ctrl-C.
    pub(crate) fn interrupt(&self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGINT).unwrap();
    }

    /// Waits for the end, and returns all output and the exit code.
    pub(crate) fn ended(mut self) -> (String, Option<i32>) {
        let mut ended: Option<ExitStatus> = None;
        for _ in 0..LOOKS {
            ended = self.child.try_wait().unwrap();
            if ended.is_some() {
                break;
            }
            thread::sleep(PAUSE);
        }
        let Some(status) = ended else {
            self.child.kill().ok();
            panic!("the program does not end: {}", self.said());
        };
        self.reader.take().unwrap().join().unwrap();
        (self.said().replace("\r\n", "\n"), status.code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
