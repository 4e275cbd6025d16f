//! Checks that run outside of the worker: a program in a sandbox, or a tool of an MCP server. Every
//! failure denies.

use std::{path::Path, sync::Arc};

use domain::{agent::Resources, check::ProgramCheck};

use super::{
    answer::{self, CheckRequest},
    content::{Content, ContentDecision},
    rule::{Kind, Rule},
};
use crate::{
    attempt::Attempt,
    files::workspace::Workspace,
    sandbox::{Event, Policy, Program, Sandbox, WorkerSecrets, absolute, make_absolute_if_readable},
    tool::Toolbox,
};

/// The most bytes that a program may write.
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// The size limit of the directory that a program runs in.
const WORKSPACE_BYTES: u64 = 64 << 20;
/// The number of last lines of standard error that a reason shows.
const SHOWN_ERROR_LINES: usize = 3;

/// The parts of the worker that checks use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outside<'a> {
    pub(crate) toolbox: &'a Toolbox,
    pub(crate) sandbox: Option<&'a Sandbox>,
    pub(crate) secrets: &'a WorkerSecrets,
    /// The directory in which programs get a directory each, never the workspace of the agent.
    pub(crate) directory: &'a Path,
}

impl Outside<'_> {
    /// The decision of a program or an MCP tool; `None` for other kinds of checks.
    pub(super) async fn judge(
        &self,
        attempt: &Attempt,
        rule: &Rule,
        asked: &CheckRequest<'_>,
        content: &Content,
    ) -> Option<ContentDecision> {
        let answered = match &rule.kind {
            Kind::Program(program) => {
                tokio::time::timeout(rule.timeout, self.run(attempt, program, asked)).await
            }
            Kind::Mcp(tool) => {
                let arguments = serde_json::to_value(asked).expect("plain fields");
                let call = async {
                    // The tool of a server may have any effect, so the lease must be valid.
                    attempt.lease.live().await;
                    self.toolbox.call_server(tool, &arguments).await
                };
                tokio::time::timeout(rule.timeout, call).await
            }
            Kind::Forbidden(_)
            | Kind::Allowed(_)
            | Kind::MaxBytes(_)
            | Kind::Schema(_)
            | Kind::PerMinute(_)
            | Kind::MaxCost(_)
            | Kind::Approval(_)
            | Kind::Unusable(_) => return None,
        };
        Some(match answered {
            Ok(Ok(answer)) => answer::read(&answer, content),
            Ok(Err(why)) => ContentDecision::failed(format!("it failed: {why}")),
            Err(_) => {
                ContentDecision::failed(format!("it did not answer within {} ms", rule.timeout.as_millis()))
            }
        })
    }

    /// Runs a program on one line of JSON, and returns its output. The program ends when the future
    /// is dropped.
    async fn run(
        &self,
        attempt: &Attempt,
        program: &ProgramCheck,
        asked: &CheckRequest<'_>,
    ) -> Result<String, String> {
        let sandbox = self.sandbox.ok_or("this worker can't run programs")?;
        let workspace = Workspace::create(self.directory, attempt.trace_id(), attempt.child_id())
            .map_err(|error| format!("its directory could not be created: {error}"))?;
        let policy = self.policy(program, &workspace)?;
        let mut running =
            Program::start(sandbox, policy, Arc::new(workspace)).await.map_err(|error| error.to_string())?;
        running.send_line(&serde_json::to_vec(asked).expect("plain fields"));
        running.close_input();
        let mut written: Vec<u8> = Vec::new();
        let status = loop {
            match running.event().await {
                Event::Line(line) => written.extend(line),
                Event::TooLong => return Err("it wrote a line that is too long".into()),
                Event::Ended(status) => break status,
            }
            if written.len() > MAX_ANSWER_BYTES {
                return Err(format!("it wrote more than {MAX_ANSWER_BYTES} bytes"));
            }
        };
        if let Some(why) = running.exceeded().or_else(|| running.broken()) {
            return Err(why);
        }
        if !status.success() {
            let errors = running.last_error_lines(SHOWN_ERROR_LINES, self.toolbox.redactor());
            return Err(format!("it ended with {status}: {errors}"));
        }
        Ok(String::from_utf8_lossy(&written).into_owned())
    }

    fn policy(&self, program: &ProgramCheck, workspace: &Workspace) -> Result<Policy, String> {
        let path = workspace.path().canonicalize().map_err(|error| error.to_string())?;
        workspace.make_temporary().map_err(|error| error.to_string())?;
        let env = self
            .secrets
            .environment(&program.env_from, &program.env, &path)
            .map_err(|secret| secret.to_string())?;
        let command = program.command.iter().map(|word| make_absolute_if_readable(word, &program.reads));
        Ok(Policy {
            command: command.collect(),
            workspace: path,
            env,
            reads: program.reads.iter().map(|path| absolute(path).into()).collect(),
            writes: Vec::new(),
            network: program.network,
            requires: program.requires.clone(),
            address_space_bytes: Resources::default().memory_bytes,
            resources: Resources::default(),
            workspace_bytes: WORKSPACE_BYTES,
        })
    }
}
