//! What a worker has for its agents: models and their prices, tools, and a place for workspaces. Made
//! once, shared by all attempts.

use std::path::PathBuf;

use shared::Problems;

use crate::{
    config::Config,
    model::Models,
    sandbox::{Sandbox, Secrets},
    tool::Toolbox,
};

#[derive(Debug)]
pub(crate) struct Equipment {
    pub(crate) models: Models,
    pub(crate) toolbox: Toolbox,
    pub(crate) workspaces: PathBuf,
    /// What programs are run in; none if there is no helper.
    pub(crate) sandbox: Option<Sandbox>,
    pub(crate) secrets: Secrets,
}

impl Equipment {
    pub(crate) async fn new(config: &Config) -> Result<Self, Problems> {
        let settings = &config.settings;
        settings.check()?;
        let own = || std::env::temp_dir().join(format!("trellis-{}", config.id));
        Ok(Equipment {
            models: Models::new(settings)?,
            toolbox: Toolbox::start(settings).await?,
            workspaces: settings.workspaces.clone().unwrap_or_else(own),
            sandbox: config
                .sandbox
                .clone()
                .map(|helper| Sandbox { helper, without: settings.sandbox.without.clone() }),
            secrets: Secrets::new(settings),
        })
    }
}
