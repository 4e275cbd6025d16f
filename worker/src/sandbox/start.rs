//! Programs as the worker has them: started in their sandbox, heard line by line, and ended, all of them,
//! when whoever runs one lets go of it.

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

use super::handoff::{Handoff, MARK, Policy, VARIABLE, Word};
use crate::files::workspace::Workspace;

/// The longest line that is read.
pub(crate) const LINE: usize = 1 << 20;
/// What of its standard error is kept: the end.
const TAIL: usize = 64 << 10;
const CHUNK: usize = 16 << 10;

/// How a worker starts programs.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    /// The `trellis` binary.
    pub(crate) helper: PathBuf,
    /// Layers the operator has switched off.
    pub(crate) without: BTreeSet<Layer>,
    /// Those that nobody runs any more, and that have not ended yet.
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
    /// Nothing of it has run.
    #[error("the profile requires layers of the sandbox that are not to be had here: {}", missing(.0, .1))]
    Missing(SandboxReport, BTreeSet<Layer>),
}

fn missing(report: &SandboxReport, requires: &BTreeSet<Layer>) -> String {
    let named = report.missing.iter().filter(|missing| requires.contains(&missing.layer)).map(|missing| {
        let layer = serde_json::to_value(missing.layer).expect("a unit variant");
        format!("{} ({})", layer.as_str().unwrap_or_default(), missing.reason)
    });
    named.collect::<Vec<_>>().join(", ")
}

/// What a program does.
#[derive(Debug)]
pub(crate) enum Event {
    /// One line of its standard output, with its line feed if it had one.
    Line(Vec<u8>),
    /// It wrote more than [`LINE`] bytes with no line feed.
    TooLong,
    Ended(ExitStatus),
}

/// A program in its sandbox. Dropped, it is told to end, and everything it started with it: those that do
/// not within two seconds are killed. Its workspace stays until then.
#[derive(Debug)]
pub(crate) struct Program {
    /// None once it is left to end by itself.
    child: Option<Child>,
    workspace: Arc<Workspace>,
    ending: TaskTracker,
    input: Option<ChildStdin>,
    waiting: Vec<u8>,
    /// Its standard input ends behind what is waiting.
    told_all: bool,
    output: Option<ChildStdout>,
    heard: Vec<u8>,
    complaints: Option<ChildStderr>,
    /// The end of what it said on its standard error.
    tail: Vec<u8>,
    pub(crate) report: SandboxReport,
}

impl Sandbox {
    pub(crate) fn new(helper: PathBuf, without: BTreeSet<Layer>) -> Self {
        Sandbox { helper, without, ending: TaskTracker::new() }
    }

    /// Waits until nothing is left of any program. Comes when none is started any more.
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
        // The helper follows the thread that starts it: this one has to be one that stays, which those of
        // a runtime do, and those for blocking work do not.
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
        let (input, output, complaints) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let report = SandboxReport { applied: Vec::new(), missing: Vec::new() };
        let mut program = Program {
            child: Some(child),
            workspace,
            ending: self.ending.clone(),
            input,
            waiting: Vec::new(),
            told_all: false,
            output,
            heard: Vec::new(),
            complaints,
            tail: Vec::new(),
            report,
        };
        match program.first_word().await {
            Some(Word::Ready(report)) => program.report = report,
            Some(Word::Refused(report)) => return Err(NotStarted::Missing(report, requires)),
            Some(Word::Broken(why)) => return Err(NotStarted::Broken(why)),
            Some(Word::Exceeded(_)) | None => {
                let said = String::from_utf8_lossy(&program.tail);
                let helper = self.helper.display();
                return Err(NotStarted::Broken(format!("`{helper} sandbox` said {:?}", said.trim())));
            }
        }
        Ok(program)
    }
}

impl Program {
    /// What the helper says before the program runs: the first line.
    async fn first_word(&mut self) -> Option<Word> {
        while !self.tail.contains(&b'\n') && self.complaints.is_some() {
            read(&mut self.complaints, &mut self.tail).await;
        }
        let end = self.tail.iter().position(|byte| *byte == b'\n')?;
        let word = word(&self.tail[..end])?;
        self.tail.drain(..=end);
        Some(word)
    }

    /// Has this written to its standard input, as it reads.
    pub(crate) fn tell(&mut self, line: &[u8]) {
        if self.input.is_some() {
            self.waiting.extend_from_slice(line);
            self.waiting.push(b'\n');
        }
    }

    /// Its standard input ends behind what it has been told.
    pub(crate) fn told_all(&mut self) {
        self.told_all = true;
    }

    /// The next thing it does. Nothing is lost if this is dropped.
    pub(crate) async fn event(&mut self) -> Event {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                return Event::Line(self.heard.drain(..=end).collect());
            }
            if self.heard.len() > LINE {
                return Event::TooLong;
            }
            if self.output.is_none() && !self.heard.is_empty() {
                return Event::Line(std::mem::take(&mut self.heard));
            }
            if self.told_all && self.waiting.is_empty() {
                self.input = None;
            }
            let (writes, reads) = (self.input.is_some() && !self.waiting.is_empty(), self.output.is_some());
            let complains = self.complaints.is_some();
            tokio::select! {
                () = read(&mut self.output, &mut self.heard), if reads => {}
                () = read(&mut self.complaints, &mut self.tail), if complains => {
                    let over = self.tail.len().saturating_sub(TAIL);
                    self.tail.drain(..over);
                }
                () = write(&mut self.input, &mut self.waiting), if writes => {}
                status = wait(&mut self.child), if !reads && !complains => return Event::Ended(status),
            }
        }
    }

    /// Waits until nothing of it is left; what it says meanwhile is nobody's.
    pub(crate) async fn drain(&mut self) {
        loop {
            self.heard.clear();
            if let Event::Ended(_) = self.event().await {
                return;
            }
        }
    }

    /// Asks it to end.
    pub(crate) fn terminate(&mut self) {
        // While it is not waited for, the number is nobody else's.
        if let Some(pid) = self.child.as_ref().and_then(Child::id).and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }

    /// Why the sandbox ended it, if it did.
    pub(crate) fn exceeded(&self) -> Option<String> {
        self.tail.split(|byte| *byte == b'\n').find_map(|line| match word(line)? {
            Word::Exceeded(what) => Some(what),
            Word::Ready(_) | Word::Refused(_) | Word::Broken(_) => None,
        })
    }

    /// Why it could not be run at all, if it could not.
    pub(crate) fn broken(&self) -> Option<String> {
        self.tail.split(|byte| *byte == b'\n').find_map(|line| match word(line)? {
            Word::Broken(why) => Some(why),
            Word::Ready(_) | Word::Refused(_) | Word::Exceeded(_) => None,
        })
    }

    /// The last of what it said on its standard error.
    pub(crate) fn last_words(&self, lines: usize) -> String {
        let text = String::from_utf8_lossy(&self.tail);
        let said: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        said[said.len().saturating_sub(lines)..].join("\n")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.terminate();
        // A runtime that is no more waits for nothing: the helper follows its worker.
        if let (Some(mut child), Ok(runtime)) = (self.child.take(), Handle::try_current())
            && child.id().is_some()
        {
            let workspace = self.workspace.clone();
            self.ending.spawn_on(
                async move {
                    if let Err(error) = child.wait().await {
                        tracing::warn!(%error, "a program can't be waited for");
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

fn word(line: &[u8]) -> Option<Word> {
    serde_json::from_slice(line.strip_prefix(MARK.as_bytes())?).ok()
}

/// Some more of a stream; none is left of it when it ends. Nothing is lost if this is dropped.
async fn read(stream: &mut Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(open) = stream else { return };
    into.reserve(CHUNK);
    if !matches!(open.read_buf(into).await, Ok(read) if read > 0) {
        *stream = None;
    }
}

/// Some more of what is to be said. A program that does not listen is told nothing.
async fn write(stream: &mut Option<ChildStdin>, from: &mut Vec<u8>) {
    let Some(open) = stream else { return };
    match open.write(from).await {
        Ok(written) => {
            from.drain(..written);
        }
        Err(_) => *stream = None,
    }
}
