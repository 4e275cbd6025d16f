//! Starts the program of a profile in its sandbox, or chooses the verdict of a context whose
//! program can't be started.

use std::sync::Arc;

use domain::wire::{SandboxReport, Verdict};

use super::message::Start;
use crate::{
    agent::{
        run::Run,
        verdict::{failed, retryable},
    },
    files::workspace::Workspace,
    sandbox::{NotStarted, Policy, Program, absolute, make_absolute_if_readable},
};

/// The size limit of a workspace: the limit of its outputs times the factor, but at least this many
/// bytes.
const MIN_WORKSPACE_BYTES: u64 = 256 << 20;
const WORKSPACE_PER_OUTPUT: u64 = 16;

/// Starts the program, or returns the verdict of a context whose program can't be started.
pub(super) async fn start(
    run: &Run<'_>,
    workspace: &Arc<Workspace>,
    start: &Start<'_>,
) -> Result<Program, (Verdict, Option<SandboxReport>)> {
    let Some(sandbox) = &run.resources.sandbox else {
        return Err((
            failed("this worker can't run programs: no executable for the sandbox is configured".into()),
            None,
        ));
    };
    let policy = policy(run, workspace, start).map_err(|verdict| (verdict, None))?;
    Program::start(sandbox, policy, workspace.clone()).await.map_err(|error| match error {
        NotStarted::Helper { source, .. } => {
            (retryable(format!("the sandbox could not be created: {source}")), None)
        }
        NotStarted::Passing(_) => (retryable(error.to_string()), None),
        NotStarted::Broken(_) | NotStarted::TooLarge => (failed(error.to_string()), None),
        NotStarted::Missing(ref report, _) => (failed(error.to_string()), Some(report.clone())),
    })
}

fn policy(run: &Run<'_>, workspace: &Workspace, start: &Start<'_>) -> Result<Policy, Verdict> {
    let (work, profile) = (run.work(), &run.work().agent);
    let path = workspace.path().canonicalize();
    let path = path.map_err(|error| retryable(format!("the workspace could not be found: {error}")))?;
    let start = serde_json::to_vec_pretty(start).expect("plain fields");
    let prepared = workspace.make_temporary().and_then(|()| workspace.write_task(&start));
    prepared.map_err(|error| retryable(format!("the workspace could not be written: {error}")))?;
    let env = run.resources.own_variables.environment(&profile.env_from, &profile.env, &path);
    let mut env = env.map_err(|secret| failed(secret.to_string()))?;
    env.extend(run.resources.secrets.environment(work));
    env.extend(run.attempt.traceparent().map(|value| ("TRACEPARENT".to_owned(), value)));
    Ok(Policy {
        command: profile.command.iter().map(|word| make_absolute_if_readable(word, &profile.reads)).collect(),
        workspace: path,
        env,
        reads: profile.reads.iter().map(|path| absolute(path).into()).collect(),
        writes: Vec::new(),
        network: profile.network,
        requires: profile.requires.clone(),
        resources: profile.resources.clone(),
        address_space_bytes: profile.resources.memory_bytes,
        workspace_bytes: MIN_WORKSPACE_BYTES
            .max(work.limits.max_output_size_bytes.saturating_mul(WORKSPACE_PER_OUTPUT)),
    })
}
