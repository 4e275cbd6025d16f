//! The settings file of a worker: models, prices, tools, workspaces. Used by `worker`, and by the worker inside `run`
//! and `dev`.

use std::path::PathBuf;

use shared::decode;

use crate::{
    input::file::{Unusable, read_value},
    terminal::ending::Ending,
};

#[derive(Debug, clap::Args)]
pub(crate) struct WorkerConfig {
    /// The worker's settings (models and their prices, tools, workspaces): TOML, YAML or JSON.
    #[arg(long, value_name = "FILE", env = "TRELLIS_WORKER_CONFIG")]
    config: Option<PathBuf>,
}

impl WorkerConfig {
    /// The checked settings; or, if they are not valid, the ending, after the mistakes were printed.
    pub(crate) fn read(&self) -> Result<worker::Settings, Ending> {
        let Some(path) = self.config.as_ref().filter(|path| !path.as_os_str().is_empty()) else {
            return Ok(worker::Settings::default());
        };
        let settings = read_value(path).and_then(|value| {
            let settings: worker::Settings = decode::value(&value).map_err(Unusable::Wrong)?;
            settings.check().map_err(Unusable::Wrong).map(|()| settings)
        });
        settings.map_err(|unusable| unusable.explain_as(path, "a valid settings file of a worker"))
    }
}
