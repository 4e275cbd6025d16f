//! What a worker has for its agents: models and their prices, tools, and a place for workspaces. Made
//! once, shared by all attempts.

use std::path::PathBuf;

use shared::Problems;

use crate::{
    config::Config,
    files::worker_directory::Premises,
    model::Models,
    sandbox::{Sandbox, Secrets},
    tool::Toolbox,
};

#[derive(Debug)]
pub(crate) struct Equipment {
    pub(crate) models: Models,
    pub(crate) toolbox: Toolbox,
    /// Beneath it every attempt has a directory of its own.
    pub(crate) workspaces: PathBuf,
    /// Keeps them this worker's.
    _premises: Premises,
    /// What programs are run in; none if there is no helper.
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) secrets: Secrets,
}

impl Equipment {
    pub(crate) async fn new(config: &Config) -> Result<Self, Problems> {
        let settings = &config.settings;
        settings.check()?;
        let premises = Premises::open(settings.workspaces.as_deref(), &config.id).map_err(|error| {
            let hint = "name a directory this user may write to";
            Problems::one("workspaces", error.to_string(), Some(hint.to_owned()))
        })?;
        Ok(Equipment {
            models: Models::new(settings)?,
            toolbox: Toolbox::start(settings).await?,
            workspaces: premises.path().to_owned(),
            _premises: premises,
            sandbox: config
                .sandbox
                .clone()
                .map(|helper| Sandbox::new(helper, settings.sandbox.without.clone())),
            secrets: Secrets::new(settings),
        })
    }
}
