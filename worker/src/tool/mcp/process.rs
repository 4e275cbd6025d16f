//! The program of a server: in a process group of its own, with an environment of its own, its errors
//! read so that its last words are known. Nothing of the group outlives `end`.

use std::{
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

use super::{environment::variable, secrets::Secrets};
use crate::settings::McpServer;

/// A plain one; the settings may name another.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// How long a program may take to end by itself once its input is closed.
const GRACE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
const TAIL_BYTES: usize = 2048;
const TAIL_LINES: usize = 10;

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Pid,
    tail: Tail,
    reading: JoinHandle<()>,
}

/// The end of what a program wrote to its standard error, without what it must not tell.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    kept: Arc<Mutex<Kept>>,
    secrets: Secrets,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    /// There was more before.
    is_cut: bool,
}

impl Process {
    pub(super) fn start(
        settings: &McpServer,
        secrets: &Secrets,
    ) -> Result<(Self, (ChildStdout, ChildStdin)), String> {
        let [program, arguments @ ..] = settings.command.as_slice() else {
            return Err("no command is named".into());
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("PATH", PATH).env("HOME", std::env::temp_dir());
        for name in &settings.env_from {
            command.env(name, variable(name)?);
        }
        command.envs(&settings.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own group, so that all of it can be ended; killed on drop for a worker that unwinds.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("`{program}` can't be started: {error}"))?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let pipes = (child.stdout.take(), child.stdin.take(), child.stderr.take());
        let (Some(id), (Some(stdout), Some(stdin), Some(stderr))) = (id, pipes) else {
            return Err(format!("`{program}` ended at once"));
        };
        let tail = Tail { secrets: secrets.clone(), ..Tail::default() };
        let reading = tokio::spawn(tail.clone().read(stderr));
        Ok((Process { child, group: Pid::from_raw(id), tail, reading }, (stdout, stdin)))
    }

    pub(super) fn tail(&self) -> Tail {
        self.tail.clone()
    }

    /// Lets the program end by itself, whose input is closed by now, and ends what is left of its group.
    pub(super) async fn end(mut self) -> String {
        let waited = tokio::time::timeout(GRACE, async {
            while !self.is_dead() {
                tokio::time::sleep(LOOK).await;
            }
        });
        if waited.await.is_err() {
            tracing::debug!(group = %self.group, "a server did not end by itself");
        }
        // Its leader is not reaped yet, so that nobody else can have the group's number.
        let _ = killpg(self.group, Signal::SIGKILL);
        let ended = self.child.wait().await;
        // With the group gone, its last words are there to be read; unless somebody left the group and
        // holds the pipe.
        let _ = tokio::time::timeout(GRACE, &mut self.reading).await;
        self.reading.abort();
        let how = ended.map(|status| format!(" ({status})")).unwrap_or_default();
        format!("{how}{}", self.tail.told())
    }

    /// Whether the leader has ended; it is left to be reaped.
    fn is_dead(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        !matches!(waitid(Id::Pid(self.group), flags), Ok(WaitStatus::StillAlive))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // For one that was not ended: the leader is killed on drop, the others here. Once it was reaped
        // its number may be another's.
        if self.child.id().is_some() {
            let _ = killpg(self.group, Signal::SIGKILL);
        }
    }
}

impl Tail {
    async fn read(self, mut stderr: ChildStderr) {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.bytes.extend_from_slice(&buffer[..count]);
            let surplus = kept.bytes.len().saturating_sub(TAIL_BYTES + self.secrets.longest());
            kept.bytes.drain(..surplus);
            kept.is_cut |= surplus > 0;
        }
    }

    /// The last lines, or nothing.
    pub(super) fn told(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = self.secrets.redact(String::from_utf8_lossy(&kept.bytes).into_owned());
        if kept.is_cut {
            // It may begin with the rest of a secret, which is not found as one.
            text.drain(..text.ceil_char_boundary(self.secrets.longest()));
        }
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        match lines.as_slice() {
            [] => String::new(),
            lines => {
                format!("\nits last words:\n{}", lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
            }
        }
    }
}
