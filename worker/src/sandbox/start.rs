//! Programs from the worker's side: starts one in its sandbox, reads its output line by line, and ends it with all
//! its processes when it is dropped.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use shared::{agent::Layer, wire::SandboxReport};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    runtime::Handle,
};
use tokio_util::task::TaskTracker;

use super::handoff::{Handoff, HelperMessage, MESSAGE_PREFIX, Policy, VARIABLE};
use crate::files::workspace::Workspace;

/// The longest line that a program may write.
pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;
/// How much of the end of its standard error is kept.
const STDERR_TAIL_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 16 << 10;

/// How a worker starts programs.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    /// The executable that makes the sandbox: `<helper> sandbox`.
    pub(crate) helper: PathBuf,
    /// Layers the operator has switched off.
    pub(crate) without: BTreeSet<Layer>,
    /// Waits for programs that were dropped and have not ended yet.
    ending: TaskTracker,
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStarted {
    #[error("the helper `{helper}` could not be started")]
    Helper {
        helper: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the sandbox could not be made: {0}")]
    Broken(String),
    /// No code of the program has run.
    #[error("the profile requires layers of the sandbox that this worker can't apply: {}", required_and_missing(.0, .1))]
    Missing(SandboxReport, BTreeSet<Layer>),
}

fn required_and_missing(report: &SandboxReport, requires: &BTreeSet<Layer>) -> String {
    let named = report.missing.iter().filter(|missing| requires.contains(&missing.layer)).map(|missing| {
        let layer = serde_json::to_value(missing.layer).expect("a unit variant");
        format!("{} ({})", layer.as_str().unwrap_or_default(), missing.reason)
    });
    named.collect::<Vec<_>>().join(", ")
}

/// The next thing a program did.
#[derive(Debug)]
pub(crate) enum Event {
    /// One line of its standard output, with its line feed if it had one.
    Line(Vec<u8>),
    /// It wrote more than [`MAX_LINE_BYTES`] without a line feed.
    TooLong,
    Ended(ExitStatus),
}

/// A program in its sandbox. On drop, it and every process it started get SIGTERM, and SIGKILL two seconds later.
/// Its workspace stays until they have ended.
#[derive(Debug)]
pub(crate) struct Program {
    /// None once a background task waits for its end.
    child: Option<Child>,
    workspace: Arc<Workspace>,
    ending: TaskTracker,
    input: Option<ChildStdin>,
    /// What is still to be written to its standard input.
    unwritten: Vec<u8>,
    /// Whether its standard input is closed after `unwritten`.
    input_complete: bool,
    output: Option<ChildStdout>,
    /// What it wrote to its standard output, not yet returned as a line.
    unread: Vec<u8>,
    errors: Option<ChildStderr>,
    /// The end of its standard error.
    stderr_tail: Vec<u8>,
    pub(crate) report: SandboxReport,
}

impl Sandbox {
    pub(crate) fn new(helper: PathBuf, without: BTreeSet<Layer>) -> Self {
        Sandbox { helper, without, ending: TaskTracker::new() }
    }

    /// Waits until every program has ended. Call it once no more programs are started.
    pub(crate) async fn ended(&self) {
        self.ending.close();
        self.ending.wait().await;
    }

    pub(crate) async fn start(
        &self,
        policy: Policy,
        workspace: Arc<Workspace>,
    ) -> Result<Program, NotStarted> {
        let requires = policy.requires.clone();
        let handoff = Handoff {
            without: self.without.clone(),
            report: SandboxReport { applied: Vec::new(), missing: Vec::new() },
            parent: i32::try_from(std::process::id()).expect("a process id fits"),
            mapped: false,
            policy,
        };
        // The helper is killed when the thread that started it ends (`PR_SET_PDEATHSIG`). A runtime's worker threads
        // live as long as the runtime; its threads for blocking work do not.
        let mut child = Command::new(&self.helper)
            .arg("sandbox")
            .env_clear()
            .env(VARIABLE, serde_json::to_string(&handoff).expect("plain fields"))
            .current_dir(Path::new("/"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| NotStarted::Helper { helper: self.helper.clone(), source })?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let report = SandboxReport { applied: Vec::new(), missing: Vec::new() };
        let mut program = Program {
            child: Some(child),
            workspace,
            ending: self.ending.clone(),
            input,
            unwritten: Vec::new(),
            input_complete: false,
            output,
            unread: Vec::new(),
            errors,
            stderr_tail: Vec::new(),
            report,
        };
        match program.first_message().await {
            Some(HelperMessage::Ready(report)) => program.report = report,
            Some(HelperMessage::Refused(report)) => return Err(NotStarted::Missing(report, requires)),
            Some(HelperMessage::Broken(why)) => return Err(NotStarted::Broken(why)),
            Some(HelperMessage::Exceeded(_)) | None => {
                let written = String::from_utf8_lossy(&program.stderr_tail);
                let helper = self.helper.display();
                return Err(NotStarted::Broken(format!("`{helper} sandbox` wrote {:?}", written.trim())));
            }
        }
        Ok(program)
    }
}

impl Program {
    /// The helper's first message, written before the program runs.
    async fn first_message(&mut self) -> Option<HelperMessage> {
        while !self.stderr_tail.contains(&b'\n') && self.errors.is_some() {
            read(&mut self.errors, &mut self.stderr_tail).await;
        }
        let end = self.stderr_tail.iter().position(|byte| *byte == b'\n')?;
        let message = parse_message(&self.stderr_tail[..end])?;
        self.stderr_tail.drain(..=end);
        Some(message)
    }

    /// Queues a line for its standard input; [`Program::event`] writes it.
    pub(crate) fn send_line(&mut self, line: &[u8]) {
        if self.input.is_some() {
            self.unwritten.extend_from_slice(line);
            self.unwritten.push(b'\n');
        }
    }

    /// Closes its standard input after the lines already queued.
    pub(crate) fn close_input(&mut self) {
        self.input_complete = true;
    }

    /// Waits for the next event. Cancel safe: a dropped call loses nothing.
    pub(crate) async fn event(&mut self) -> Event {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                return Event::Line(self.unread.drain(..=end).collect());
            }
            if self.unread.len() > MAX_LINE_BYTES {
                return Event::TooLong;
            }
            if self.output.is_none() && !self.unread.is_empty() {
                return Event::Line(std::mem::take(&mut self.unread));
            }
            if self.input_complete && self.unwritten.is_empty() {
                self.input = None;
            }
            let (writes, reads) = (self.input.is_some() && !self.unwritten.is_empty(), self.output.is_some());
            let reads_errors = self.errors.is_some();
            tokio::select! {
                () = read(&mut self.output, &mut self.unread), if reads => {}
                () = read(&mut self.errors, &mut self.stderr_tail), if reads_errors => {
                    let over = self.stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES);
                    self.stderr_tail.drain(..over);
                }
                () = write(&mut self.input, &mut self.unwritten), if writes => {}
                status = wait(&mut self.child), if !reads && !reads_errors => return Event::Ended(status),
            }
        }
    }

    /// Waits until it has ended with all its processes, and discards its output.
    pub(crate) async fn drain(&mut self) {
        loop {
            self.unread.clear();
            if let Event::Ended(_) = self.event().await {
                return;
            }
        }
    }

    /// Sends SIGTERM to the helper, which passes it on to the program.
    pub(crate) fn terminate(&mut self) {
        // The process id can't be reused before the child has been waited for.
        if let Some(pid) = self.child.as_ref().and_then(Child::id).and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }

    /// Which limit it exceeded, if the sandbox killed it for that.
    pub(crate) fn exceeded(&self) -> Option<String> {
        self.stderr_tail.split(|byte| *byte == b'\n').find_map(|line| match parse_message(line)? {
            HelperMessage::Exceeded(reason) => Some(reason),
            HelperMessage::Ready(_) | HelperMessage::Refused(_) | HelperMessage::Broken(_) => None,
        })
    }

    /// Why the program could not be started, if it could not.
    pub(crate) fn broken(&self) -> Option<String> {
        self.stderr_tail.split(|byte| *byte == b'\n').find_map(|line| match parse_message(line)? {
            HelperMessage::Broken(why) => Some(why),
            HelperMessage::Ready(_) | HelperMessage::Refused(_) | HelperMessage::Exceeded(_) => None,
        })
    }

    /// The last lines of its standard error.
    pub(crate) fn last_error_lines(&self, lines: usize) -> String {
        let text = String::from_utf8_lossy(&self.stderr_tail);
        let all: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.terminate();
        // Without a runtime nothing can wait, and the helper ends with its worker.
        if let (Some(mut child), Ok(runtime)) = (self.child.take(), Handle::try_current())
            && child.id().is_some()
        {
            let workspace = self.workspace.clone();
            self.ending.spawn_on(
                async move {
                    if let Err(error) = child.wait().await {
                        tracing::warn!(%error, "waiting for a program failed");
                    }
                    drop(workspace);
                },
                &runtime,
            );
        }
    }
}

async fn wait(child: &mut Option<Child>) -> ExitStatus {
    match child {
        Some(child) => child.wait().await.unwrap_or_default(),
        None => ExitStatus::default(),
    }
}

fn parse_message(line: &[u8]) -> Option<HelperMessage> {
    serde_json::from_slice(line.strip_prefix(MESSAGE_PREFIX.as_bytes())?).ok()
}

/// Reads some more of a stream, and sets it to None at its end. Cancel safe.
async fn read(stream: &mut Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(open) = stream else { return };
    into.reserve(READ_BYTES);
    if !matches!(open.read_buf(into).await, Ok(read) if read > 0) {
        *stream = None;
    }
}

/// Writes some more of the queued input. A program that closed its input gets no more.
async fn write(stream: &mut Option<ChildStdin>, from: &mut Vec<u8>) {
    let Some(open) = stream else { return };
    match open.write(from).await {
        Ok(written) => {
            from.drain(..written);
        }
        Err(_) => *stream = None,
    }
}
