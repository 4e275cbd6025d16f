//! The helper, as the worker sees it. This module starts one for a program or a server and waits
//! for its first message. A dropped helper ends with all its processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use domain::{
    agent::{Layer, Resources},
    wire::SandboxReport,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    runtime::Handle,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_util::task::TaskTracker;

use super::{
    cgroup::{Cgroup, Cgroups},
    environment::plain,
    handoff::{Handoff, HelperMessage, Policy, VARIABLE},
    own_process::runs_as_root,
    watch,
};
use crate::{files::workspace::Workspace, settings::SandboxSettings};

/// The longest time for the end of a helper. After SIGTERM it ends its program within two seconds.
/// A helper that takes longer is killed itself, with its descendants.
const LONGEST_END: Duration = Duration::from_secs(4);
/// The most searches for its descendants, since new ones may start between two searches.
const MAX_SEARCHES: u32 = 10;

/// Starts programs for a worker.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    /// The executable that creates the sandbox: `<helper> sandbox`.
    helper: PathBuf,
    /// Layers the operator has switched off.
    without: BTreeSet<Layer>,
    /// Layers that every program needs, in addition to those of its profile. Only the operator can
    /// drop one, in the policy or by switching it off.
    requires: BTreeSet<Layer>,
    /// The cgroup for the cgroups of programs, or the reason why there is none.
    cgroups: Result<Cgroups, String>,
    /// Layers that this machine lacks. The first program finds them for all others.
    unable: Arc<Mutex<BTreeMap<Layer, String>>>,
    /// Waits for dropped programs that have not ended yet.
    ending: TaskTracker,
}

/// The reasons why a program was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStarted {
    #[error("the helper `{helper}` could not be started")]
    Helper {
        helper: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the sandbox could not be created: {0}")]
    Broken(String),
    /// The next start may succeed.
    #[error("the sandbox could not be created now: {0}")]
    Passing(String),
    /// The policy of a program is passed in one variable, whose size the kernel bounds.
    #[error(
        "the command and the environment of the program are too large\n\nhint: all its words, variables and secrets together must \
         stay below 128 KiB; hand over more in files"
    )]
    TooLarge,
    /// No code of the program has run.
    #[error(
        "layers of the sandbox are required that this worker can't apply: {}\n\nhint: an operator who accepts that lists them \
         in `sandbox.without` of the worker's settings; a layer that the profile itself requires stays required",
        required_and_missing(.0, .1)
    )]
    Missing(SandboxReport, BTreeSet<Layer>),
}

fn required_and_missing(report: &SandboxReport, requires: &BTreeSet<Layer>) -> String {
    let named = report.missing.iter().filter(|missing| requires.contains(&missing.layer)).map(|missing| {
        let layer = serde_json::to_value(missing.layer).expect("a unit variant");
        format!("{} ({})", layer.as_str().unwrap_or_default(), missing.reason)
    });
    named.collect::<Vec<_>>().join(", ")
}

/// The first process of a sandbox. On drop, every process in it gets SIGTERM, and SIGKILL two seconds later.
#[derive(Debug)]
pub(crate) struct Helper {
    /// `None` once a background task waits for its end.
    child: Option<Child>,
    /// Exists until all processes have ended.
    workspace: Option<Arc<Workspace>>,
    cgroup: Option<Cgroup>,
    ending: TaskTracker,
    /// The time at which it must have ended, once it has got SIGTERM.
    ends_until: Option<Instant>,
}

/// A sandbox with its layers applied, whose program begins.
#[derive(Debug)]
pub(crate) struct LaunchedSandbox {
    pub(crate) helper: Helper,
    pub(crate) input: ChildStdin,
    pub(crate) output: ChildStdout,
    pub(crate) errors: ChildStderr,
    /// The bytes of its standard error behind the helper's first message.
    pub(crate) read: Vec<u8>,
    pub(crate) report: SandboxReport,
}

impl Sandbox {
    pub(crate) fn new(helper: PathBuf, settings: &SandboxSettings, requires: &BTreeSet<Layer>) -> Self {
        let without = settings.without.clone();
        let cgroups = if without.contains(&Layer::Cgroup) {
            Err("switched off".to_owned())
        } else {
            Cgroups::find(settings.cgroup.as_deref())
        };
        let requires = requires.difference(&without).copied().collect();
        Sandbox { helper, without, requires, cgroups, unable: Arc::default(), ending: TaskTracker::new() }
    }

    /// Waits until every program has ended. Must be called after the last start of a program.
    pub(crate) async fn ended(&self) {
        self.ending.close();
        self.ending.wait().await;
    }

    /// Creates a sandbox, and starts the program of the policy in it.
    pub(crate) async fn launch(
        &self,
        mut policy: Policy,
        workspace: Option<Arc<Workspace>>,
    ) -> Result<LaunchedSandbox, NotStarted> {
        policy.requires.extend(&self.requires);
        loop {
            let (mut launched, handoff) = self.spawn(policy, workspace.clone())?;
            let written = match launched.first_message().await {
                Some(HelperMessage::Ready(report)) => {
                    launched.report = report;
                    return Ok(launched);
                }
                Some(HelperMessage::Unable(layer, reason)) if !handoff.unable.contains_key(&layer) => {
                    tracing::warn!(?layer, reason, "this machine lacks a layer of the sandbox");
                    self.unable.lock().unwrap_or_else(PoisonError::into_inner).insert(layer, reason);
                    policy = handoff.policy;
                    continue;
                }
                Some(HelperMessage::Refused(report)) => {
                    return Err(NotStarted::Missing(report, handoff.policy.requires));
                }
                Some(HelperMessage::Passing(why)) => return Err(NotStarted::Passing(why)),
                Some(HelperMessage::Broken(why) | HelperMessage::Unable(_, why)) => {
                    return Err(NotStarted::Broken(why));
                }
                Some(HelperMessage::Exceeded(_)) | None => {
                    String::from_utf8_lossy(&launched.read).trim().to_owned()
                }
            };
            let helper = self.helper.display();
            return Err(NotStarted::Broken(format!("unexpected output of `{helper} sandbox`: {written:?}")));
        }
    }

    /// Finds the layers that this machine has, with a program that does nothing, in an empty
    /// directory.
    pub(super) async fn layers(&self, directory: PathBuf) -> Result<SandboxReport, NotStarted> {
        let policy = Policy {
            command: vec!["true".to_owned()],
            env: plain(&directory),
            workspace: directory,
            reads: Vec::new(),
            writes: Vec::new(),
            network: false,
            requires: BTreeSet::new(),
            resources: Resources::default(),
            address_space_bytes: Resources::default().memory_bytes,
            workspace_bytes: Resources::default().file_bytes,
        };
        match self.launch(policy, None).await {
            Ok(mut launched) => {
                launched.helper.ended().await;
                Ok(launched.report)
            }
            Err(NotStarted::Missing(report, _)) => Ok(report),
            Err(error) => Err(error),
        }
    }

    fn spawn(
        &self,
        policy: Policy,
        workspace: Option<Arc<Workspace>>,
    ) -> Result<(LaunchedSandbox, Handoff), NotStarted> {
        let made = self.cgroups.as_ref().map_err(String::clone).and_then(|all| all.make(&policy.resources));
        let (cgroup, no_cgroup) = match made {
            Ok(cgroup) => (Some(cgroup), String::new()),
            Err(reason) => (None, reason),
        };
        let handoff = Handoff {
            cgroup: cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()).ok_or(no_cgroup),
            without: self.without.clone(),
            unable: self.unable.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            report: SandboxReport { applied: Vec::new(), missing: Vec::new() },
            parent: i32::try_from(std::process::id()).expect("a process id fits"),
            mapped: false,
            runs_as_root: runs_as_root(),
            own_proc: false,
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
            .map_err(|source| {
                if source.kind() == io::ErrorKind::ArgumentListTooLong {
                    return NotStarted::TooLarge;
                }
                NotStarted::Helper { helper: self.helper.clone(), source }
            })?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let helper =
            Helper { child: Some(child), workspace, cgroup, ending: self.ending.clone(), ends_until: None };
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(NotStarted::Broken("it has no pipes".into()));
        };
        let report = handoff.report.clone();
        Ok((LaunchedSandbox { helper, input, output, errors, read: Vec::new(), report }, handoff))
    }
}

impl LaunchedSandbox {
    /// The helper's first message, written before the program runs.
    async fn first_message(&mut self) -> Option<HelperMessage> {
        while !self.read.contains(&b'\n') {
            if !matches!(self.errors.read_buf(&mut self.read).await, Ok(read) if read > 0) {
                break;
            }
        }
        let end = self.read.iter().position(|byte| *byte == b'\n')?;
        let message = HelperMessage::parse(&self.read[..end])?;
        self.read.drain(..=end);
        Some(message)
    }
}

impl Helper {
    /// Sends SIGTERM to the helper, which passes it on to the program, and kills it two seconds later.
    pub(crate) fn terminate(&mut self) {
        // The process id can't be reused before the child has been waited for.
        if let Some(pid) = self.child.as_ref().and_then(pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            self.ends_until.get_or_insert(Instant::now() + LONGEST_END);
        }
    }

    /// Waits until the helper is late, and kills it. Never returns if it has not got SIGTERM.
    /// Cancel safe.
    async fn kill_if_late(&mut self) {
        match self.ends_until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
        self.ends_until = None;
        if let Some(child) = &self.child {
            kill_with_descendants(child);
        }
    }

    /// Returns true if the kernel killed it because it exceeded its memory limit.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        self.cgroup.as_ref().is_some_and(Cgroup::ran_out_of_memory)
    }

    /// Waits until every process of the sandbox has ended. Cancel safe.
    pub(crate) async fn wait(&mut self) -> ExitStatus {
        match &mut self.child {
            Some(child) => child.wait().await.unwrap_or_default(),
            None => ExitStatus::default(),
        }
    }

    /// Like [`Helper::wait`], but kills a helper that is late after SIGTERM. Cancel safe.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        if let Some(until) = self.ends_until {
            if let Ok(status) = timeout_at(until, self.wait()).await {
                return status;
            }
            self.kill_if_late().await;
        }
        self.wait().await
    }

    /// Returns its end, once its output `is_complete`. Before that, returns only after a late
    /// helper was killed. Cancel safe.
    pub(super) async fn next(&mut self, is_complete: bool) -> Option<ExitStatus> {
        if is_complete {
            return Some(self.ended().await);
        }
        self.kill_if_late().await;
        None
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.terminate();
        // Without a runtime no task can wait, and the helper ends with its worker.
        let Ok(runtime) = Handle::try_current() else { return };
        let (child, workspace, cgroup) = (self.child.take(), self.workspace.take(), self.cgroup.take());
        let running = child.filter(|child| child.id().is_some());
        if running.is_none() && cgroup.is_none() {
            return;
        }
        self.ending.spawn_on(
            async move {
                if let Some(mut child) = running
                    && let Err(error) = ended(&mut child).await
                {
                    tracing::warn!(%error, "waiting for a program failed");
                }
                drop(workspace);
                if let Some(cgroup) = cgroup {
                    cgroup.remove().await;
                }
            },
            &runtime,
        );
    }
}

fn pid(child: &Child) -> Option<i32> {
    child.id().and_then(|pid| i32::try_from(pid).ok())
}

/// Waits for the end of a helper that has got SIGTERM.
async fn ended(child: &mut Child) -> io::Result<ExitStatus> {
    if let Ok(status) = timeout(LONGEST_END, child.wait()).await {
        return status;
    }
    kill_with_descendants(child);
    child.wait().await
}

/// Kills a helper that does not end, for example because it was stopped. In a pid namespace all
/// processes end with it. Without one, its descendants have to be found while it is still their
/// ancestor.
fn kill_with_descendants(child: &Child) {
    let Some(helper) = pid(child) else { return };
    tracing::warn!(helper, "a sandbox did not end its program, and is killed");
    for _ in 0..MAX_SEARCHES {
        let found = watch::descendants(helper).unwrap_or_default();
        if found.is_empty() {
            break;
        }
        for descendant in found {
            let _ = kill(Pid::from_raw(descendant), Signal::SIGKILL);
        }
    }
    let _ = kill(Pid::from_raw(helper), Signal::SIGKILL);
}
