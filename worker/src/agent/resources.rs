//! The parts of a worker that all its attempts share: models and their prices, tools, a sandbox,
//! and a directory for workspaces.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use domain::{
    Problems,
    agent_policy::AgentPolicy,
    wire::{Execute, FailureKind, Verdict},
};

use super::verdict;

use crate::{
    config::Config,
    files::worker_directory::WorkerDirectory,
    model::Models,
    sandbox::{Sandbox, WorkerSecrets, absolute},
    secret::Values,
    tool::Toolbox,
};

#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) models: Models,
    pub(crate) toolbox: Toolbox,
    directory: WorkerDirectory,
    /// The sandbox of programs; `None` if no executable for it is configured.
    pub(crate) sandbox: Option<Sandbox>,
    /// Variables of the worker's environment that a profile can't name for its program.
    pub(crate) own_variables: WorkerSecrets,
    /// The secrets that agents name (S8).
    pub(crate) secrets: Arc<Values>,
    /// The rules for the profiles that this worker runs.
    policy: AgentPolicy,
    /// Coordinators compare the policies of workers by this digest.
    pub(crate) policy_digest: String,
}

impl Resources {
    pub(crate) async fn new(config: &Config) -> Result<Self, Problems> {
        let mut settings = config.settings.clone();
        settings.mcp.retain(|server, _| config.policy.allows_server(server));
        let settings = &settings;
        settings.check()?;
        let directory =
            WorkerDirectory::open(settings.workspaces.as_deref(), &config.id).map_err(|error| {
                let hint = "set it to a directory that this user can write to";
                Problems::one("workspaces", error.to_string(), Some(hint.to_owned()))
            })?;
        let sandbox = config.sandbox.clone();
        let sandbox = sandbox.map(|helper| Sandbox::new(helper, &settings.sandbox, &config.policy.requires));
        let secrets = Arc::new(Values::read(settings, &config.secret_files));
        let hidden = secrets.redactor().clone();
        if !hidden.is_empty() {
            telemetry::hide(move |line| hidden.bytes(line).into_owned());
        }
        Ok(Resources {
            models: Models::new(settings)?.simulated_by(config.simulated_provider.clone()),
            toolbox: Toolbox::start(settings, secrets.clone(), sandbox.clone(), directory.path()).await?,
            directory,
            sandbox,
            own_variables: WorkerSecrets::new(settings),
            secrets,
            policy: config.policy.clone(),
            policy_digest: config.policy.digest(),
        })
    }

    /// The reason why this worker refuses an agent: its policy does not allow the agent, or a
    /// secret is missing. A refused agent is not retried on any worker, since all workers of a pool
    /// are expected to have the same policy and secrets.
    pub(super) fn refusal(&self, work: &Execute) -> Option<Verdict> {
        let mut refused = self.policy.refuses(&work.agent, &meant);
        if let Some(model) = work.model.as_ref().filter(|model| !self.policy.allows_model(model))
            && work.agent.model.as_ref() != Some(model)
        {
            refused.add("model", format!("the model `{model}` is not allowed"), None);
        }
        if let Err(refused) = refused.or(()) {
            let message = format!("the policy of this worker does not allow this agent:\n{refused}");
            return Some(verdict::failed_as(FailureKind::Refused, message));
        }
        self.secrets.refusal(work).map(verdict::failed)
    }

    /// The directory that contains one workspace for each attempt.
    pub(crate) fn workspaces(&self) -> &Path {
        self.directory.path()
    }
}

/// The file that a path of a profile or a policy names, with links followed.
fn meant(path: &str) -> PathBuf {
    let absolute = PathBuf::from(absolute(path));
    absolute.canonicalize().unwrap_or(absolute)
}
