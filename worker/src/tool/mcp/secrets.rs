//! The secrets of a server: the values of its environment, its token, and the worker's secrets that
//! it may get. They are replaced by their names in every text from a server or about it, because
//! such texts go to models, journals and logs.

use crate::{
    secret::{Redactor, Values, variable},
    settings::McpServer,
};

/// Shorter values of an environment, such as `1` or `debug`, are not secret and occur in many texts.
const MIN_SECRET_BYTES: usize = 6;

/// The redactor for the secrets of a server.
pub(super) fn redactor(settings: &McpServer, values: &Values) -> Redactor {
    let from_worker = settings.env_from.iter().filter_map(|name| Some((name.clone(), variable(name).ok()?)));
    let from_settings = settings.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    let environment = from_worker.chain(from_settings).filter(|(_, value)| value.len() >= MIN_SECRET_BYTES);
    let token = settings.token_env.iter().filter_map(|name| Some((name.clone(), variable(name).ok()?)));
    let own = environment.chain(token).map(|(name, value)| (name, value.trim().to_owned()));
    Redactor::new(own.chain(values.pairs()))
}
