//! What a worker has for its agents: models and their prices, tools, a sandbox, and a directory for workspaces.
//! Made once and shared by all attempts.

use std::path::Path;

use shared::Problems;

use crate::{
    config::Config,
    files::worker_directory::WorkerDirectory,
    model::Models,
    sandbox::{Sandbox, WorkerSecrets},
    tool::Toolbox,
};

#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) models: Models,
    pub(crate) toolbox: Toolbox,
    directory: WorkerDirectory,
    /// The sandbox of programs; None if no executable for it is configured.
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) secrets: WorkerSecrets,
}

impl Resources {
    pub(crate) async fn new(config: &Config) -> Result<Self, Problems> {
        let settings = &config.settings;
        settings.check()?;
        let directory =
            WorkerDirectory::open(settings.workspaces.as_deref(), &config.id).map_err(|error| {
                let hint = "set it to a directory that this user can write to";
                Problems::one("workspaces", error.to_string(), Some(hint.to_owned()))
            })?;
        let helper = config.sandbox.clone();
        Ok(Resources {
            models: Models::new(settings)?.simulated_by(config.simulated_provider.clone()),
            toolbox: Toolbox::start(settings).await?,
            directory,
            sandbox: helper.map(|helper| Sandbox::new(helper, settings.sandbox.without.clone())),
            secrets: WorkerSecrets::new(settings),
        })
    }

    /// The directory beneath which every attempt has a workspace of its own.
    pub(crate) fn workspaces(&self) -> &Path {
        self.directory.path()
    }
}
