//! The program of a server, in its own process group and with its own environment. Keeps the end of its standard error
//! for error messages. After `end` no process of the group is left.

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

use super::{environment::variable, secrets::ServerSecrets};
use crate::settings::McpServer;

/// The default; the settings may set another.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// How long a program may take to end by itself once its input is closed.
const END_GRACE: Duration = Duration::from_secs(2);
/// The time between two checks whether it has ended.
const CHECK_EVERY: Duration = Duration::from_millis(20);
const TAIL_BYTES: usize = 2048;
const TAIL_LINES: usize = 10;

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    group: Pid,
    tail: Tail,
    reading: JoinHandle<()>,
}

/// The end of a program's standard error, without its secrets.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    kept: Arc<Mutex<Kept>>,
    secrets: ServerSecrets,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    /// Whether there was more before `bytes`.
    is_cut: bool,
}

impl Process {
    pub(super) fn start(
        settings: &McpServer,
        secrets: &ServerSecrets,
    ) -> Result<(Self, (ChildStdout, ChildStdin)), String> {
        let [program, arguments @ ..] = settings.command.as_slice() else {
            return Err("the settings give no command".into());
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("PATH", PATH).env("HOME", std::env::temp_dir());
        for name in &settings.env_from {
            command.env(name, variable(name)?);
        }
        command.envs(&settings.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own process group, so that all its processes can be killed; `kill_on_drop` for a worker that panics.
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

    /// Waits a moment for the program to end by itself, since its input is closed, then kills its process group. Returns
    /// its exit status and the last lines of its standard error.
    pub(super) async fn end(mut self) -> String {
        let waited = tokio::time::timeout(END_GRACE, async {
            while !self.is_dead() {
                tokio::time::sleep(CHECK_EVERY).await;
            }
        });
        if waited.await.is_err() {
            tracing::debug!(group = %self.group, "a server did not end by itself");
        }
        // The group's leader is not reaped yet, so its number can't belong to another group.
        let _ = killpg(self.group, Signal::SIGKILL);
        let ended = self.child.wait().await;
        // The pipe ends when the group has ended, unless a process that left the group still holds it.
        let _ = tokio::time::timeout(END_GRACE, &mut self.reading).await;
        self.reading.abort();
        let how = ended.map(|status| format!(" ({status})")).unwrap_or_default();
        format!("{how}{}", self.tail.last_lines())
    }

    /// Whether the group's leader has ended. Does not reap it.
    fn is_dead(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        !matches!(waitid(Id::Pid(self.group), flags), Ok(WaitStatus::StillAlive))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // If `end` was not called: `kill_on_drop` kills the leader, this kills the others. After the leader was reaped
        // the number may belong to another group.
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

    /// The last lines with a heading, or an empty text.
    pub(super) fn last_lines(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = self.secrets.redact(String::from_utf8_lossy(&kept.bytes).into_owned());
        if kept.is_cut {
            // The text may begin with the rest of a secret, which `redact` does not recognize.
            text.drain(..text.ceil_char_boundary(self.secrets.longest()));
        }
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        match lines.as_slice() {
            [] => String::new(),
            lines => {
                format!(
                    "\nits last error output:\n{}",
                    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
                )
            }
        }
    }
}
