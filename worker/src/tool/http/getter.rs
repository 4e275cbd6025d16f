//! `http.get`: reads a text from a web address. It reads only from hosts that the operator allows,
//! even after a redirect. It connects only to addresses of the internet, or to those that the
//! operator lists (S5). It never sends cookies, and sends a secret only to the hosts that may have
//! it (S8).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use domain::{Problems, id::SecretName, wording::with_causes};
use host::internet::{self, LookUp, Resolver};
use reqwest::{
    Client, Response, Url,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::allowed::AllowedHost;
use crate::{
    secret::{GivenSecrets, Redactor},
    settings::{Http, Secret},
    tool::{
        arguments,
        call::{Invocation, Output},
    },
};

pub(in crate::tool) const NAME: &str = domain::tool::HTTP_GET;
pub(in crate::tool) const DESCRIPTION: &str = "Reads a text from a web address. Only some hosts are allowed.";

const MAX_HEADERS: usize = 20;
/// Headers that set the target of a request, its transport or its sender.
const NOT_SET: [&str; 8] =
    ["host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "cookie"];
const MAX_REDIRECTS: usize = 5;
/// The limit for the whole call, with redirects and the body.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a body that are read, unless the settings have another limit.
const DEFAULT_MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tool) struct Arguments {
    /// An address that begins with http:// or https://.
    pub(super) url: String,
    /// Headers of the request, by name. They are not sent on to another host.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
}

/// A request, with the secrets in it.
struct Request {
    url: Url,
    headers: HeaderMap,
    used: BTreeSet<SecretName>,
}

#[derive(Debug)]
pub(in crate::tool) struct Getter {
    /// A client for each port, since the listed addresses differ by port.
    clients: BTreeMap<u16, Client>,
    allowed: Vec<AllowedHost>,
    max_bytes: u64,
    /// The hosts to which each secret may be sent.
    hosts: BTreeMap<SecretName, Vec<AllowedHost>>,
    redactor: Redactor,
}

impl Getter {
    /// Returns `None` if the settings allow no host. The tool is then not offered.
    pub(in crate::tool) fn new(
        settings: &Http,
        secrets: &BTreeMap<SecretName, Secret>,
        redactor: Redactor,
    ) -> Result<Option<Self>, Problems> {
        Self::looking_up(settings, secrets, redactor, &internet::by_system())
    }

    pub(super) fn looking_up(
        settings: &Http,
        secrets: &BTreeMap<SecretName, Secret>,
        redactor: Redactor,
        look_up: &LookUp,
    ) -> Result<Option<Self>, Problems> {
        let mut problems = Problems::default();
        let allowed = hosts("http.allow", &settings.allow, &mut problems);
        let hosts = secrets.iter().map(|(name, secret)| {
            (name.clone(), hosts(&format!("secrets.{name}.hosts"), &secret.hosts, &mut problems))
        });
        let hosts = hosts.collect();
        problems.or(())?;
        if allowed.is_empty() {
            return Ok(None);
        }
        let ports: BTreeSet<u16> = allowed.iter().filter_map(AllowedHost::port).chain([80, 443]).collect();
        let clients: Result<_, _> =
            ports.into_iter().map(|port| Ok((port, client(port, &allowed, look_up)?))).collect();
        let clients = clients.map_err(|error: reqwest::Error| {
            Problems::one("http", format!("the HTTP client can't be built: {}", with_causes(&error)), None)
        })?;
        let max_bytes = settings.max_bytes.unwrap_or(DEFAULT_MAX_BYTES);
        Ok(Some(Getter { clients, allowed, max_bytes, hosts, redactor }))
    }

    pub(in crate::tool) async fn get(&self, invocation: Invocation<'_>, given: GivenSecrets<'_>) -> Output {
        let mut arguments: Arguments = arguments::read(invocation)?;
        let traceparent = invocation.attempt.traceparent();
        arguments.headers.extend(traceparent.map(|value| ("traceparent".to_owned(), value)));
        self.fetch(arguments, given).await
    }

    pub(super) async fn fetch(&self, arguments: Arguments, given: GivenSecrets<'_>) -> Output {
        let request = self.request(arguments, given)?;
        match tokio::time::timeout(TIMEOUT, self.follow(request)).await {
            Ok(output) => output,
            Err(_) => Err(format!("no complete answer within {} s", TIMEOUT.as_secs())),
        }
    }

    /// Builds the request with its secrets. Returns an error unless the host may have all of them.
    fn request(
        &self,
        Arguments { url, headers }: Arguments,
        given: GivenSecrets<'_>,
    ) -> Result<Request, String> {
        let filled = given.fill_url(&url)?;
        let address =
            Url::parse(&filled.text).map_err(|error| format!("`{url}` is not an address: {error}"))?;
        if headers.len() > MAX_HEADERS {
            return Err(format!(
                "a request has at most {MAX_HEADERS} headers, and these are {}",
                headers.len()
            ));
        }
        let mut request = Request { url: address, headers: HeaderMap::new(), used: filled.used };
        for (name, value) in headers {
            let header = HeaderName::from_bytes(name.as_bytes());
            let header = header.map_err(|_| format!("`{name}` is not the name of a header"))?;
            if NOT_SET.contains(&header.as_str()) || header.as_str().starts_with("proxy-") {
                return Err(format!("the header `{name}` can't be set"));
            }
            let filled = given.fill(&value)?;
            let mut value = HeaderValue::from_str(&filled.text)
                .map_err(|_| format!("the value of the header `{name}` can't be sent"))?;
            value.set_sensitive(true);
            request.headers.insert(header, value);
            request.used.extend(filled.used);
        }
        self.check(&request.url)?;
        for secret in &request.used {
            self.check_secret(secret, &request.url)?;
        }
        Ok(request)
    }

    /// S8: without a port in the settings, a secret is sent only by https.
    fn check_secret(&self, secret: &SecretName, url: &Url) -> Result<(), String> {
        let hosts = self.hosts.get(secret).map(Vec::as_slice).unwrap_or_default();
        let is_allowed = |allowed: &&AllowedHost| {
            allowed.matches(url) && (url.scheme() == "https" || allowed.names_port())
        };
        if hosts.iter().any(|allowed| is_allowed(&allowed)) {
            return Ok(());
        }
        let hosts: Vec<String> = hosts.iter().map(AllowedHost::to_string).collect();
        let to = url.origin().ascii_serialization();
        Err(format!(
            "the secret `{secret}` may not be sent to `{to}`: nothing was sent\n\nhint: the hosts that may have it are {} (https, \
             unless the settings name a port)",
            hosts.join(", ")
        ))
    }

    async fn follow(&self, Request { mut url, mut headers, used: _ }: Request) -> Output {
        let first = url.origin();
        for _ in 0..=MAX_REDIRECTS {
            self.check(&url)?;
            if url.origin() != first {
                headers.clear();
                if self.redactor.finds_in(url.as_str()) {
                    let to = url.origin().ascii_serialization();
                    return Err(format!(
                        "it redirects to `{to}` with a secret in the address: nothing was sent there"
                    ));
                }
            }
            let client = url.port_or_known_default().and_then(|port| self.clients.get(&port));
            let client = client.ok_or_else(|| format!("`{url}` has a port that is not allowed"))?;
            let answer = client.get(url.clone()).headers(headers.clone()).send().await;
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
        let hosts: Vec<String> = self.allowed.iter().map(AllowedHost::to_string).collect();
        Err(format!("`{host}{port}` is not allowed\n\nhint: the allowed hosts are {}", hosts.join(", ")))
    }

    async fn read(&self, url: &Url, mut answer: Response) -> Output {
        let status = answer.status();
        if answer.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(format!("{status}: the answer of `{url}` has an encoding that was not requested"));
        }
        let kind =
            answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_lowercase);
        if !kind.as_deref().is_none_or(is_text) {
            let size = answer.content_length().map_or("unknown size".into(), |size| format!("{size} bytes"));
            let note = format!("[{status}: not text, but {} of {size}]", kind.unwrap_or_default());
            return if status.is_success() { Ok(note) } else { Err(note) };
        }
        let max = usize::try_from(self.max_bytes).unwrap_or(usize::MAX);
        // The limit is extended by the longest form of a secret, so that a secret is found before
        // the text is cut.
        let most = max.saturating_add(self.redactor.longest());
        let (mut bytes, mut is_cut) = (Vec::new(), false);
        while !is_cut {
            let chunk = answer.chunk().await;
            let chunk = chunk.map_err(|error| {
                format!("the answer of `{url}` broke off: {}", with_causes(&error.without_url()))
            })?;
            let Some(chunk) = chunk else { break };
            let room = most - bytes.len();
            is_cut = chunk.len() > room;
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        is_cut |= bytes.len() > max;
        let mut text = self.redactor.text(decode(&bytes, kind.as_deref().unwrap_or_default()));
        if is_cut {
            text.truncate(text.floor_char_boundary(max));
            text.push_str(&format!("\n[cut here: only {max} bytes are read]"));
        }
        if status.is_success() { Ok(text) } else { Err(format!("{status}\n\n{text}")) }
    }
}

/// A client that connects only to the addresses that are allowed on this port. It follows no
/// redirects, so that the caller can check each address. It uses no proxy, since a proxy would look
/// up names itself.
fn client(port: u16, allowed: &[AllowedHost], look_up: &LookUp) -> reqwest::Result<Client> {
    let fits = |entry: &&AllowedHost| entry.port().map_or(matches!(port, 80 | 443), |own| own == port);
    let listed: BTreeSet<IpAddr> = allowed.iter().filter(fits).filter_map(AllowedHost::address).collect();
    let hint = "an operator can list its address itself in `http.allow`, besides the name";
    let resolver = Resolver { look_up: look_up.clone(), listed: Arc::new(listed), hint };
    let client = internet::strict_client().no_proxy().timeout(TIMEOUT).user_agent("trellis");
    client.dns_resolver(Arc::new(resolver)).build()
}

fn hosts(path: &str, entries: &[String], problems: &mut Problems) -> Vec<AllowedHost> {
    let mut allowed = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        match AllowedHost::parse(entry) {
            Some(entry) => allowed.push(entry),
            None => problems.add(
                format!("{path}[{index}]"),
                format!("`{entry}` is not a host"),
                Some("write it as `example.org`, `example.org:8080` or `*.example.org`".into()),
            ),
        }
    }
    allowed
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
