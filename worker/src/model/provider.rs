//! Providers: which one serves a model, its address and its key. Keys are read once, from variables
//! or files. No key is ever shown: not by `Debug`, not in an error, not in a log.

use std::{collections::BTreeMap, fmt, time::Duration};

use domain::{Problems, id::ModelName};
use genai::{
    Client, ModelIden, ServiceTarget,
    adapter::AdapterKind,
    resolver::{AuthData, Endpoint},
};
use host::internet;

use super::{price::NoProvider, request::Error, scripted, written_name};
use crate::{
    relay, secret,
    settings::{self, Protocol, Settings},
};

/// The providers that need no settings, and their protocols.
const BUILT_IN: [(&str, Protocol); 4] = [
    ("openai", Protocol::Openai),
    ("anthropic", Protocol::Anthropic),
    ("gemini", Protocol::Gemini),
    ("ollama", Protocol::Ollama),
];
/// The limit for connecting. Nothing has been sent yet when it is exceeded.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Common servers close an idle connection after five seconds. A call on a connection that is just
/// closing has an unknown end, so connections are dropped earlier.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

#[derive(Debug)]
pub(super) struct Providers {
    /// Makes requests and reads answers. It reaches only relays.
    client: Client,
    /// Reaches the providers.
    http: reqwest::Client,
    by_name: BTreeMap<String, ProviderConfig>,
}

/// One provider, as the settings and the environment describe it.
#[derive(Debug)]
struct ProviderConfig {
    protocol: Protocol,
    base_url: Option<String>,
    key: Key,
    /// The name in the price table of the provider whose prices it charges.
    priced_as: Option<String>,
}

#[derive(Debug, Clone)]
enum Key {
    None,
    Value(Secret),
    /// The environment variable that should hold the key.
    Missing(String),
}

#[derive(Clone)]
pub(super) struct Secret(String);

/// The provider, model and key of one call.
#[derive(Debug)]
pub(super) struct Route<'a> {
    pub(super) client: &'a Client,
    pub(super) http: &'a reqwest::Client,
    pub(super) provider: &'a str,
    pub(super) protocol: Protocol,
    /// The name of the model at the provider.
    pub(super) model: &'a str,
    base_url: Option<&'a str>,
    key: Option<Secret>,
}

impl Providers {
    pub(super) fn new(settings: &Settings) -> Result<Self, Problems> {
        // Without this the client panics even for a plain http address. The error means that it is
        // installed already.
        rustls::crypto::ring::default_provider().install_default().ok();
        let mut problems = Problems::default();
        let mut by_name: BTreeMap<String, ProviderConfig> = BUILT_IN
            .into_iter()
            .map(|(name, protocol)| {
                let provider =
                    settings::Provider { protocol, base_url: None, key_env: None, priced_as: None };
                (name.to_owned(), ProviderConfig::new(&provider))
            })
            .collect();
        for (name, provider) in &settings.providers {
            let path = format!("providers.{name}");
            if name.is_empty() || name.contains('/') || name == scripted::NAME {
                problems.add(&path, "a provider's name must not be empty, contain a slash or be `scripted`: models are named `<provider>/<model>`", None);
            }
            if let Some(problem) = provider.base_url.as_deref().and_then(base_url_problem) {
                problems.add(
                    format!("{path}.base_url"),
                    problem,
                    Some("such as http://127.0.0.1:8080/v1/".into()),
                );
            }
            by_name.insert(name.clone(), ProviderConfig::new(provider));
        }
        // No redirects: they would send the key to another server.
        let http = internet::strict_client()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build()
            .map_err(|error| Problems::one("", format!("the HTTP client can't be built: {error}"), None))?;
        let local = relay::local_client().build();
        let local = local.map_err(|error| {
            Problems::one("", format!("the HTTP client of models can't be built: {error}"), None)
        })?;
        let client = Client::builder().with_reqwest(local).build().map_err(|error| {
            Problems::one("", format!("the client for models can't be built: {error}"), None)
        })?;
        problems.or(Providers { client, http, by_name })
    }

    /// The provider and the key for this model.
    pub(super) fn route<'a>(&'a self, model: &'a ModelName) -> Result<Route<'a>, Error> {
        let Some((provider, configured, name)) = self.find(model) else {
            return Err(Error::refused(self.no_provider(model).to_string()));
        };
        let key = match &configured.key {
            Key::None => None,
            Key::Value(key) => Some(key.clone()),
            Key::Missing(variable) => {
                return Err(Error::refused(format!(
                    "`{provider}` needs a key, and the environment variable {variable} is not set for this worker (nor {variable}_FILE)"
                )));
            }
        };
        Ok(Route {
            client: &self.client,
            http: &self.http,
            provider,
            protocol: configured.protocol,
            model: name,
            base_url: configured.base_url.as_deref(),
            key,
        })
    }

    /// The provider and the model in the price table; `None` if the table's prices do not apply.
    pub(super) fn priced_as<'a>(&'a self, model: &'a ModelName) -> Option<(&'a str, &'a str)> {
        let (_, configured, name) = self.find(model)?;
        Some((configured.priced_as.as_deref()?, name))
    }

    pub(super) fn names<'a>(&'a self, model: &'a ModelName) -> Option<(&'a str, &'a str)> {
        self.find(model).map(|(provider, _, name)| (provider, name))
    }

    /// Returns an error if no provider serves this model.
    pub(super) fn missing(&self, model: &ModelName) -> Option<NoProvider> {
        self.find(model).is_none().then(|| self.no_provider(model))
    }

    fn no_provider(&self, model: &ModelName) -> NoProvider {
        let names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        NoProvider { model: model.clone(), known: names.join(", ") }
    }

    fn find<'a>(&'a self, model: &'a ModelName) -> Option<(&'a str, &'a ProviderConfig, &'a str)> {
        let (provider, name) = match model.as_str().split_once('/') {
            Some(split) => split,
            None => (infer_provider(model.as_str())?, model.as_str()),
        };
        let (provider, configured) = self.by_name.get_key_value(provider)?;
        Some((provider, configured, name))
    }
}

/// The provider of a model whose name contains no provider, by the beginning of the name.
fn infer_provider(model: &str) -> Option<&'static str> {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| model.starts_with(prefix));
    if begins(&["gpt-", "chatgpt-", "o1", "o3", "o4"]) {
        Some("openai")
    } else if begins(&["claude-"]) {
        Some("anthropic")
    } else if begins(&["gemini-"]) {
        Some("gemini")
    } else {
        None
    }
}

fn base_url_problem(base_url: &str) -> Option<&'static str> {
    let Ok(url) = reqwest::Url::parse(base_url) else { return Some("not a URL") };
    if !matches!(url.scheme(), "http" | "https") {
        Some("must begin with http:// or https://")
    } else if url.password().is_some() || !url.username().is_empty() {
        Some("must not contain a user or a password; name the variable with the key in `key_env`")
    } else {
        None
    }
}

impl ProviderConfig {
    fn new(provider: &settings::Provider) -> Self {
        // Without an address, the settings mean the provider's own service, with its default key
        // variable and its prices.
        let own = provider.base_url.is_none();
        let default_variable = if own { provider.protocol.key_variable() } else { None };
        let variable = provider.key_env.as_deref().or(default_variable);
        let priced_as =
            provider.priced_as.as_deref().or(if own { name_in_price_table(provider.protocol) } else { None });
        ProviderConfig {
            protocol: provider.protocol,
            // The client appends paths to the address.
            base_url: provider.base_url.as_ref().map(|url| format!("{}/", url.trim_end_matches('/'))),
            key: variable.map_or(Key::None, Key::read),
            priced_as: priced_as.map(str::to_owned),
        }
    }
}

/// The provider's name in the price table.
fn name_in_price_table(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Openai => Some("openai"),
        Protocol::Anthropic => Some("anthropic"),
        Protocol::Gemini => Some("google"),
        Protocol::Ollama => None,
    }
}

impl Key {
    fn read(variable: &str) -> Key {
        match secret::variable(variable) {
            Ok(key) if !key.trim().is_empty() => Key::Value(Secret(key.trim().to_owned())),
            Ok(_) | Err(_) => Key::Missing(variable.to_owned()),
        }
    }
}

impl Route<'_> {
    /// The address to which the client appends paths: the provider's own if the settings have none.
    pub(super) async fn base_url(&self) -> Result<String, Error> {
        if let Some(base_url) = self.base_url {
            return Ok(base_url.to_owned());
        }
        let default = self.client.resolve_service_target(self.model()).await;
        let default = default.map_err(|error| Error::refused(self.redact(error.to_string())))?;
        Ok(default.endpoint.base_url().to_owned())
    }

    /// The target in the client's types, at this address.
    pub(super) fn target(&self, address: String) -> ServiceTarget {
        // The client always sends a key header, even to a server that needs no key.
        let auth = AuthData::from_single(self.key.as_ref().map_or("none", |key| &key.0));
        ServiceTarget { endpoint: Endpoint::from_owned(address), auth, model: self.model() }
    }

    fn model(&self) -> ModelIden {
        ModelIden::new(self.adapter(), written_name::for_client(self.protocol, self.model))
    }

    /// The key as an extra header, for a protocol without a header for keys.
    pub(super) fn bearer(&self) -> Option<String> {
        match (self.protocol, &self.key) {
            (Protocol::Ollama, Some(key)) => Some(format!("Bearer {}", key.0)),
            (Protocol::Ollama | Protocol::Openai | Protocol::Anthropic | Protocol::Gemini, _) => None,
        }
    }

    fn adapter(&self) -> AdapterKind {
        match self.protocol {
            Protocol::Openai => AdapterKind::OpenAI,
            Protocol::Anthropic => AdapterKind::Anthropic,
            Protocol::Gemini => AdapterKind::Gemini,
            Protocol::Ollama => AdapterKind::Ollama,
        }
    }

    /// Removes the key from a text, since some providers repeat a bad key in their answer.
    pub(super) fn redact(&self, text: String) -> String {
        match &self.key {
            Some(key) => text.replace(&key.0, "[key]"),
            None => text,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}
