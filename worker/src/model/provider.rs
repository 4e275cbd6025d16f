//! Providers: which one a model's name means, where it is and with what key it is called. Keys are read
//! from the environment once and are never shown: not by `Debug`, not in an error, not in a log.

use std::{collections::BTreeMap, fmt, time::Duration};

use genai::{
    Client, ModelIden, ServiceTarget,
    adapter::AdapterKind,
    resolver::{AuthData, Endpoint},
};
use shared::{Problems, id::ModelName};

use super::{request::Error, scripted};
use crate::settings::{self, Protocol, Settings};

/// Who is there without being told, and the variable with the key.
const BUILT_IN: [(&str, Protocol); 4] = [
    ("openai", Protocol::Openai),
    ("anthropic", Protocol::Anthropic),
    ("gemini", Protocol::Gemini),
    ("ollama", Protocol::Ollama),
];
/// Connecting, which is before anything was sent.
const CONNECT: Duration = Duration::from_secs(10);
/// Common servers close an idle connection after five seconds. One that is reused as it closes makes a
/// call of unknown end.
const IDLE: Duration = Duration::from_secs(4);

#[derive(Debug)]
pub(super) struct Providers {
    client: Client,
    known: BTreeMap<String, Known>,
}

#[derive(Debug)]
struct Known {
    protocol: Protocol,
    base_url: Option<String>,
    key: Key,
    /// Whose prices of the table are its.
    priced_as: Option<String>,
}

#[derive(Debug, Clone)]
enum Key {
    None,
    Is(Secret),
    /// The variable that should hold it.
    Missing(String),
}

#[derive(Clone)]
pub(super) struct Secret(String);

/// Where one call goes.
#[derive(Debug)]
pub(super) struct Route<'a> {
    pub(super) client: &'a Client,
    pub(super) provider: &'a str,
    pub(super) protocol: Protocol,
    /// As the provider spells it.
    pub(super) model: &'a str,
    base_url: Option<&'a str>,
    key: Option<Secret>,
}

impl Providers {
    pub(super) fn new(settings: &Settings) -> Result<Self, Problems> {
        // Without it even a plain http address panics. Somebody may have been here before.
        rustls::crypto::ring::default_provider().install_default().ok();
        let mut problems = Problems::default();
        let mut known: BTreeMap<String, Known> = BUILT_IN
            .into_iter()
            .map(|(name, protocol)| {
                let provider =
                    settings::Provider { protocol, base_url: None, key_env: None, priced_as: None };
                (name.to_owned(), Known::new(&provider))
            })
            .collect();
        for (name, provider) in &settings.providers {
            let path = format!("providers.{name}");
            if name.is_empty() || name.contains('/') || name == scripted::NAME {
                problems.add(&path, "this name can't be told from others before the slash of a model", None);
            }
            if let Some(wrong) = provider.base_url.as_deref().and_then(wrong_with) {
                problems.add(
                    format!("{path}.base_url"),
                    wrong,
                    Some("such as http://127.0.0.1:8080/v1/".into()),
                );
            }
            known.insert(name.clone(), Known::new(provider));
        }
        // No redirects: they would carry the key to whoever is named there.
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .tcp_nodelay(true)
            .build()
            .map_err(|error| Problems::one("", format!("there is no HTTP client: {error}"), None))?;
        let client = Client::builder()
            .with_reqwest(http)
            .build()
            .map_err(|error| Problems::one("", format!("there is no client for models: {error}"), None))?;
        problems.or(Providers { client, known })
    }

    /// Who serves this model, and with what key.
    pub(super) fn route<'a>(&'a self, model: &'a ModelName) -> Result<Route<'a>, Error> {
        let Some((provider, known, name)) = self.find(model) else {
            let names: Vec<&str> = self.known.keys().map(String::as_str).collect();
            return Err(Error::refused(format!(
                "there is no provider for `{model}`\n\nhint: write `<provider>/<model>`; the providers are {}",
                names.join(", ")
            )));
        };
        let key = match &known.key {
            Key::None => None,
            Key::Is(key) => Some(key.clone()),
            Key::Missing(variable) => {
                return Err(Error::refused(format!(
                    "`{provider}` needs a key, and {variable} is not set where this worker runs"
                )));
            }
        };
        Ok(Route {
            client: &self.client,
            provider,
            protocol: known.protocol,
            model: name,
            base_url: known.base_url.as_deref(),
            key,
        })
    }

    /// The provider of the price table and the model there. None if its prices are nobody's but its own.
    pub(super) fn priced_as<'a>(&'a self, model: &'a ModelName) -> Option<(&'a str, &'a str)> {
        let (_, known, name) = self.find(model)?;
        Some((known.priced_as.as_deref()?, name))
    }

    fn find<'a>(&'a self, model: &'a ModelName) -> Option<(&'a str, &'a Known, &'a str)> {
        let (provider, name) = match model.as_str().split_once('/') {
            Some(split) => split,
            None => (inferred(model.as_str())?, model.as_str()),
        };
        let (provider, known) = self.known.get_key_value(provider)?;
        Some((provider, known, name))
    }
}

/// Whose a model is by the look of its name.
fn inferred(model: &str) -> Option<&'static str> {
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

fn wrong_with(base_url: &str) -> Option<&'static str> {
    let Ok(url) = reqwest::Url::parse(base_url) else { return Some("this is no address") };
    if !matches!(url.scheme(), "http" | "https") {
        Some("an address begins with http:// or https://")
    } else if url.password().is_some() || !url.username().is_empty() {
        Some("a key has no place in an address: name a variable in `key_env`")
    } else {
        None
    }
}

impl Known {
    fn new(provider: &settings::Provider) -> Self {
        // Whoever names no address means the provider itself, with its usual key and its prices.
        let own = provider.base_url.is_none();
        let usual = if own { usual_variable(provider.protocol) } else { None };
        let variable = provider.key_env.as_deref().or(usual);
        let priced_as =
            provider.priced_as.as_deref().or(if own { in_table(provider.protocol) } else { None });
        Known {
            protocol: provider.protocol,
            // Paths are joined to it.
            base_url: provider.base_url.as_ref().map(|url| format!("{}/", url.trim_end_matches('/'))),
            key: variable.map_or(Key::None, Key::read),
            priced_as: priced_as.map(str::to_owned),
        }
    }
}

fn usual_variable(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Openai => Some("OPENAI_API_KEY"),
        Protocol::Anthropic => Some("ANTHROPIC_API_KEY"),
        Protocol::Gemini => Some("GEMINI_API_KEY"),
        Protocol::Ollama => None,
    }
}

/// What the price table calls whoever speaks this protocol at home.
fn in_table(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Openai => Some("openai"),
        Protocol::Anthropic => Some("anthropic"),
        Protocol::Gemini => Some("google"),
        Protocol::Ollama => None,
    }
}

impl Key {
    #[expect(clippy::disallowed_methods, reason = "keys are read once, when a worker starts")]
    fn read(variable: &str) -> Key {
        match std::env::var(variable) {
            Ok(key) if !key.trim().is_empty() => Key::Is(Secret(key.trim().to_owned())),
            Ok(_) | Err(_) => Key::Missing(variable.to_owned()),
        }
    }
}

impl Route<'_> {
    /// As the client wants to be told. Where no address is given it knows the provider's own.
    pub(super) async fn target(&self) -> Result<ServiceTarget, Error> {
        let model = ModelIden::new(self.adapter(), self.model);
        // A server without keys still gets a header; the client has no way to leave it out.
        let auth = AuthData::from_single(self.key.as_ref().map_or("none", |key| &key.0));
        if let Some(base_url) = self.base_url {
            return Ok(ServiceTarget { endpoint: Endpoint::from_owned(base_url), auth, model });
        }
        let usual = self.client.resolve_service_target(model).await;
        let usual = usual.map_err(|error| Error::refused(self.redact(error.to_string())))?;
        Ok(ServiceTarget { auth, ..usual })
    }

    /// The key where the protocol itself has no place for one.
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

    /// Some providers answer a bad key with the key.
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
