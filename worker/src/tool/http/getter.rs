//! `http.get`: reads a text from a web address, only from hosts that the operator allows, also after a redirect. It
//! never sends cookies or credentials.

use std::time::Duration;

use reqwest::{
    Client, Response, Url,
    header::{CONTENT_TYPE, LOCATION},
    redirect::Policy,
};
use schemars::JsonSchema;
use serde::Deserialize;
use shared::{Problems, text::with_causes};

use super::allowed::Allowed;
use crate::{
    settings::Http,
    tool::{
        arguments,
        call::{Invocation, Output},
    },
};

pub(in crate::tool) const NAME: &str = shared::tool::HTTP_GET;
pub(in crate::tool) const DESCRIPTION: &str = "Reads a text from a web address. Only some hosts are allowed.";

const MAX_REDIRECTS: usize = 5;
/// For the whole call, with redirects and the body.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a body that are read, unless the settings say otherwise.
const DEFAULT_MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tool) struct Arguments {
    /// An address that begins with http:// or https://.
    url: String,
}

#[derive(Debug)]
pub(in crate::tool) struct Getter {
    client: Client,
    allowed: Vec<Allowed>,
    max_bytes: u64,
}

impl Getter {
    /// None if the settings allow no host: then the tool is not offered.
    pub(in crate::tool) fn new(settings: &Http) -> Result<Option<Self>, Problems> {
        if settings.allow.is_empty() {
            return Ok(None);
        }
        let mut problems = Problems::default();
        let mut allowed = Vec::new();
        for (index, entry) in settings.allow.iter().enumerate() {
            match Allowed::parse(entry) {
                Some(entry) => allowed.push(entry),
                None => problems.add(
                    format!("http.allow[{index}]"),
                    format!("`{entry}` is not a host"),
                    Some("write it as `example.org`, `example.org:8080` or `*.example.org`".into()),
                ),
            }
        }
        problems.or(())?;
        // Redirects are followed here, so that each address is checked.
        let client =
            Client::builder().redirect(Policy::none()).timeout(TIMEOUT).user_agent("trellis").build();
        let client = client.map_err(|error| {
            Problems::one("http", format!("the HTTP client can't be built: {}", with_causes(&error)), None)
        })?;
        Ok(Some(Getter { client, allowed, max_bytes: settings.max_bytes.unwrap_or(DEFAULT_MAX_BYTES) }))
    }

    pub(in crate::tool) async fn get(&self, invocation: Invocation<'_>) -> Output {
        let Arguments { url } = arguments::read(invocation)?;
        self.fetch(&url).await
    }

    pub(super) async fn fetch(&self, url: &str) -> Output {
        let url = Url::parse(url).map_err(|error| format!("`{url}` is not an address: {error}"))?;
        match tokio::time::timeout(TIMEOUT, self.follow(url)).await {
            Ok(output) => output,
            Err(_) => Err(format!("no complete answer within {} s", TIMEOUT.as_secs())),
        }
    }

    async fn follow(&self, mut url: Url) -> Output {
        for _ in 0..=MAX_REDIRECTS {
            self.check(&url)?;
            let answer = self.client.get(url.clone()).send().await;
            let answer = answer.map_err(|error| {
                format!("the request to `{url}` failed: {}", with_causes(&error.without_url()))
            })?;
            let to = answer.headers().get(LOCATION).filter(|_| answer.status().is_redirection());
            let Some(to) = to else { return self.read(&url, answer).await };
            let to = String::from_utf8_lossy(to.as_bytes());
            url = url
                .join(&to)
                .map_err(|error| format!("`{url}` redirects to `{to}`, which is not an address: {error}"))?;
        }
        Err(format!("more than {MAX_REDIRECTS} redirects"))
    }

    fn check(&self, url: &Url) -> Result<(), String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`{url}` is neither http nor https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("an address must not contain a user or a password".into());
        }
        if self.allowed.iter().any(|allowed| allowed.matches(url)) {
            return Ok(());
        }
        let host = url.host_str().unwrap_or_default();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let hosts: Vec<String> = self.allowed.iter().map(Allowed::to_string).collect();
        Err(format!("`{host}{port}` is not allowed\n\nhint: the allowed hosts are {}", hosts.join(", ")))
    }

    async fn read(&self, url: &Url, mut answer: Response) -> Output {
        let status = answer.status();
        let kind =
            answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_lowercase);
        if !kind.as_deref().is_none_or(is_text) {
            let size = answer.content_length().map_or("unknown size".into(), |size| format!("{size} bytes"));
            let note = format!("[{status}: not text, but {} of {size}]", kind.unwrap_or_default());
            return if status.is_success() { Ok(note) } else { Err(note) };
        }
        let max = usize::try_from(self.max_bytes).unwrap_or(usize::MAX);
        let (mut bytes, mut is_cut) = (Vec::new(), false);
        while !is_cut {
            let chunk = answer.chunk().await;
            let chunk = chunk.map_err(|error| {
                format!("the answer of `{url}` broke off: {}", with_causes(&error.without_url()))
            })?;
            let Some(chunk) = chunk else { break };
            let room = max - bytes.len();
            is_cut = chunk.len() > room;
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        let mut text = decode(&bytes, kind.as_deref().unwrap_or_default());
        if is_cut {
            text.push_str(&format!("\n[cut here: only {max} bytes are read]"));
        }
        if status.is_success() { Ok(text) } else { Err(format!("{status}\n\n{text}")) }
    }
}

fn is_text(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let names = ["application/json", "application/xml", "application/javascript", "application/yaml"];
    kind.starts_with("text/")
        || names.contains(&kind)
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || kind.ends_with("+yaml")
        || kind == "application/x-ndjson"
}

/// Decodes UTF-8, or Latin-1 if the answer declares it. Invalid bytes become replacement characters.
fn decode(bytes: &[u8], kind: &str) -> String {
    if kind.contains("charset=iso-8859-1") || kind.contains("charset=latin1") {
        return bytes.iter().copied().map(char::from).collect();
    }
    String::from_utf8_lossy(bytes).into_owned()
}
