//! The program of a server, in its own sandbox and with its own environment. Stores the end of its
//! standard error for error messages. After `end` all of its processes have ended.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::agent::Resources;
use tokio::{
    io::AsyncReadExt,
    process::{ChildStderr, ChildStdin, ChildStdout},
    task::JoinHandle,
};

use crate::{
    files::workspace::{private, remove},
    sandbox::{
        Helper, LaunchedSandbox, Policy, Sandbox, absolute, make_absolute_if_readable, plain_environment,
        readable_message,
    },
    secret::{Redactor, variable},
    settings::McpServer,
};

/// The limits of a server, unless the settings have others. It lives as long as its worker, so its
/// processor time is not limited.
const RESOURCES: Resources = Resources {
    memory_bytes: 1 << 30,
    cpu_seconds: u64::MAX,
    file_bytes: 256 << 20,
    open_files: 1024,
    processes: 64,
};
/// Runtimes such as node reserve much more memory than they use.
const ADDRESS_SPACE_PER_MEMORY: u64 = 32;
/// The most bytes of its own directory.
const DIRECTORY_BYTES: u64 = 1 << 30;
/// The longest time for a program to end by itself once its input is closed.
const END_GRACE: Duration = Duration::from_secs(2);
/// The bytes of its standard error that are read without a pause.
const ERRORS_AT_ONCE: usize = 64 << 10;
const ERRORS_PAUSE: Duration = Duration::from_millis(10);
const TAIL_BYTES: usize = 2048;
const TAIL_LINES: usize = 10;

/// The environment in which programs of servers start.
#[derive(Debug, Clone)]
pub(in crate::tool) struct Confinement {
    /// `None` if no executable for the sandbox is configured.
    pub(in crate::tool) sandbox: Option<Sandbox>,
    /// Each server has its own directory beneath this one.
    pub(in crate::tool) directory: PathBuf,
}

#[derive(Debug)]
pub(super) struct Process {
    helper: Helper,
    tail: Tail,
    reading: JoinHandle<()>,
}

/// The end of a program's standard error, without its secrets.
#[derive(Debug, Clone, Default)]
pub(super) struct Tail {
    kept: Arc<Mutex<KeptOutput>>,
    secrets: Redactor,
}

#[derive(Debug, Default)]
struct KeptOutput {
    bytes: Vec<u8>,
    /// True if there was more before `bytes`.
    is_cut: bool,
}

impl Process {
    pub(super) async fn start(
        name: &str,
        settings: &McpServer,
        secrets: &Redactor,
        confinement: &Confinement,
    ) -> Result<(Self, (ChildStdout, ChildStdin)), String> {
        let sandbox = confinement.sandbox.as_ref();
        let sandbox =
            sandbox.ok_or("this worker can't run programs: no executable for the sandbox is configured")?;
        let directory = empty_directory(&confinement.directory.join("mcp").join(name))
            .map_err(|error| format!("its directory could not be created: {error}"))?;
        let launched = sandbox.launch(policy(settings, directory)?, None).await;
        let LaunchedSandbox { helper, input, output, errors, read, report } =
            launched.map_err(|error| error.to_string())?;
        tracing::debug!(server = name, ?report, "an MCP server starts in its sandbox");
        let tail = Tail { secrets: secrets.clone(), ..Tail::default() };
        tail.keep(&read);
        let reading = tokio::spawn(tail.clone().read(errors));
        Ok((Process { helper, tail, reading }, (output, input)))
    }

    pub(super) fn tail(&self) -> Tail {
        self.tail.clone()
    }

    /// Waits a moment for the program to end by itself, since its input is closed, then ends all its processes. Returns
    /// its exit status and the last lines of its standard error.
    pub(super) async fn end(mut self) -> String {
        let ended = match tokio::time::timeout(END_GRACE, self.helper.wait()).await {
            Ok(ended) => ended,
            Err(_) => {
                tracing::debug!("a server did not end by itself");
                self.helper.terminate();
                self.helper.ended().await
            }
        };
        // The pipe ends with the last process that has it open.
        let _ = tokio::time::timeout(END_GRACE, &mut self.reading).await;
        self.reading.abort();
        format!(" ({ended}){}", self.tail.last_lines())
    }
}

fn policy(settings: &McpServer, directory: PathBuf) -> Result<Policy, String> {
    let mut env = plain_environment(&directory);
    for name in &settings.env_from {
        env.insert(name.clone(), variable(name)?);
    }
    env.extend(settings.env.clone());
    let may_read: Vec<String> = settings.reads.iter().chain(&settings.writes).cloned().collect();
    let resources = settings.resources.clone().unwrap_or(RESOURCES);
    let paths = |paths: &[String]| paths.iter().map(|path| absolute(path).into()).collect();
    Ok(Policy {
        command: settings.command.iter().map(|word| make_absolute_if_readable(word, &may_read)).collect(),
        workspace: directory,
        env,
        reads: paths(&settings.reads),
        writes: paths(&settings.writes),
        network: settings.network,
        requires: settings.requires.clone(),
        address_space_bytes: resources.memory_bytes.saturating_mul(ADDRESS_SPACE_PER_MEMORY),
        resources,
        workspace_bytes: DIRECTORY_BYTES,
    })
}

/// Creates a directory that only this user can read, with one for temporary files in it. Files that
/// an earlier process of the server left there are removed, without following a link.
fn empty_directory(path: &Path) -> std::io::Result<PathBuf> {
    remove(path)?;
    private().recursive(true).create(path.join("tmp"))?;
    path.canonicalize()
}

impl Tail {
    async fn read(self, mut stderr: ChildStderr) {
        let (mut buffer, mut read) = ([0; 1024], 0);
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            self.keep(&buffer[..count]);
            read += count;
            // Faster output waits in the program.
            if read >= ERRORS_AT_ONCE {
                read = 0;
                tokio::time::sleep(ERRORS_PAUSE).await;
            }
        }
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes.extend_from_slice(bytes);
        let surplus = kept.bytes.len().saturating_sub(TAIL_BYTES + self.secrets.longest());
        kept.bytes.drain(..surplus);
        kept.is_cut |= surplus > 0;
    }

    /// The last lines with a heading, or an empty text.
    pub(super) fn last_lines(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = self.secrets.tail(&kept.bytes, kept.is_cut);
        let lines: Vec<String> =
            text.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(readable_message).collect();
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
