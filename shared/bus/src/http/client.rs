//! A client's handle to the bus of a gateway.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use domain::{
    span::Headers,
    subject::{Filter, Namespace, Subject},
    time::millis,
    wording::with_causes,
};
use reqwest::{
    StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    answer::{Lines, unreached},
    call::{Base64Bytes, Call, Failure, Line, NAMESPACE, PATH},
};
use crate::{
    error::{Error, PublishError, RequestError},
    fill::{Backlog, Fill},
    message::{Outgoing, Position, PublishReceipt, StoredMessage},
    topology::Consumer,
};

/// The timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest silence of a server before the connection fails. A server without data sends a line
/// every 15 s.
pub(super) const SILENCE: Duration = Duration::from_secs(45);
/// The time that a server may take beyond the timeout of a call.
const GRACE: Duration = Duration::from_secs(5);
/// The largest answer that is read into memory.
const MAX_ANSWER_BYTES: usize = 2 << 30;
/// The most bytes of an error page that are read.
const MAX_PROBLEM_BYTES: usize = 64 << 10;

#[derive(Clone)]
pub struct Http {
    client: reqwest::Client,
    pub(super) url: Arc<str>,
    token: Option<HeaderValue>,
    namespace: Namespace,
}

impl fmt::Debug for Http {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Http {
    /// A gateway by its address, such as `http://127.0.0.1:7420`, with the token that identifies
    /// this client.
    pub fn new(url: &str, token: Option<&str>, namespace: Namespace) -> Result<Self, Error> {
        let unusable = |reason: String| Error::Unreached { url: url.to_owned(), reason };
        let parsed =
            reqwest::Url::parse(url).map_err(|error| unusable(format!("not an address: {error}")))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(unusable("the address must begin with http:// or https://".into()));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            let reason = "the address must not contain a login; put the token into a file".into();
            return Err(Error::Unreached { url: parsed.host_str().unwrap_or_default().to_owned(), reason });
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(unusable("the address must not contain `?` or `#`".into()));
        }
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::none());
        let host = parsed.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
            builder = builder.no_proxy();
        }
        if parsed.scheme() == "http" {
            // Plain HTTP needs no certificate authorities, and the machine may have none.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| unusable(with_causes(&error)))?;
        let token = token.map(|token| HeaderValue::from_str(&format!("Bearer {token}"))).transpose();
        let mut token = token.map_err(|_| unusable("the token has invalid characters".into()))?;
        if let Some(token) = &mut token {
            token.set_sensitive(true);
        }
        Ok(Http { client, url: parsed.as_str().trim_end_matches('/').into(), token, namespace })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// A one-time code that signs the owner of this client's token in to the gateway's page, and
    /// the host name to open the page under. Without a code the page needs no sign-in.
    pub async fn sign_in_code(&self) -> Result<(Option<String>, Option<String>), Error> {
        let doing = "creating a sign-in code for the page";
        let mut request = self.client.post(format!("{}/v1/sign-in-codes", self.url));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        let answer = request.send().await.map_err(|error| self.failed(doing)(unreached(&error)))?;
        if !answer.status().is_success() {
            return Err(self.failed(doing)(refused(answer).await));
        }
        let strange = |reason: String| Error::Failed { doing: doing.into(), reason };
        let body: Value = answer.json().await.map_err(|error| strange(with_causes(&error)))?;
        let field = |name: &str| body[name].as_str().map(str::to_owned);
        Ok((field("code"), field("host")))
    }

    pub(in super::super) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Makes a call. Its answer arrives line by line.
    pub(super) async fn call(&self, call: &Call) -> Result<Lines, Failure> {
        let body = serde_json::to_vec(call).map_err(|error| Failure::Other(error.to_string()))?;
        let mut request = self.client.post(format!("{}{PATH}", self.url)).body(body);
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.clone());
        }
        if self.namespace != Namespace::default() {
            request = request.header(NAMESPACE, self.namespace.to_string());
        }
        let answer = request.send().await.map_err(|error| unreached(&error))?;
        if answer.status().is_success() {
            return Ok(Lines::new(answer));
        }
        Err(refused(answer).await)
    }

    /// Collects the lines of an answer that ends.
    async fn all<T>(&self, call: &Call, read: impl Fn(Line) -> Option<T>) -> Result<Vec<T>, Failure> {
        let mut lines = self.call(call).await?;
        let mut all = Vec::new();
        while let Some(line) = lines.next().await? {
            if lines.bytes() > MAX_ANSWER_BYTES {
                return Err(Failure::Refused("the server's answer has no end".into()));
            }
            all.push(
                read(line)
                    .ok_or_else(|| Failure::Other("the server's answer does not fit the call".into()))?,
            );
        }
        Ok(all)
    }

    async fn one<T>(&self, call: &Call, read: impl Fn(Line) -> Option<T>) -> Result<T, Failure> {
        let mut all = self.all(call, read).await?;
        all.pop().ok_or_else(|| Failure::Other("the server's answer is empty".into()))
    }

    fn failed(&self, doing: &'static str) -> impl Fn(Failure) -> Error + '_ {
        move |failure| failure.while_doing(doing, &self.url)
    }

    pub(in super::super) async fn publish(&self, message: Outgoing) -> Result<PublishReceipt, PublishError> {
        let published = |line| {
            let Line::Published { sequence, duplicate } = line else { return None };
            Some(PublishReceipt { sequence, duplicate })
        };
        Ok(self.one(&Call::publish(message), published).await?)
    }

    pub(in super::super) async fn request(
        &self,
        subject: &Subject,
        headers: &Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        let (subject, headers) = (subject.clone(), headers.clone());
        let call =
            Call::Request { subject, headers, payload: Base64Bytes(payload), timeout_ms: millis(timeout) };
        let answer = tokio::time::timeout(timeout + GRACE, self.one(&call, Line::bytes)).await;
        Ok(answer.unwrap_or(Err(Failure::TimedOut))?)
    }

    pub(in super::super) async fn gather(
        &self,
        subject: &Subject,
        payload: Bytes,
        wait: Duration,
    ) -> Result<Vec<Bytes>, Error> {
        let call =
            Call::Gather { subject: subject.clone(), payload: Base64Bytes(payload), wait_ms: millis(wait) };
        let answers = tokio::time::timeout(wait + GRACE, self.all(&call, Line::bytes)).await;
        answers.unwrap_or(Err(Failure::TimedOut)).map_err(self.failed("asking all listeners"))
    }

    pub(in super::super) async fn read(&self, filter: &Filter) -> Result<Vec<StoredMessage>, Error> {
        let call = Call::Read { filter: filter.clone() };
        self.all(&call, Line::stored).await.map_err(self.failed("reading what is stored"))
    }

    pub(in super::super) async fn last(&self, filter: &Filter) -> Result<Option<StoredMessage>, Error> {
        let call = Call::Last { filter: filter.clone() };
        let mut last = self.all(&call, Line::stored).await.map_err(self.failed("reading what is stored"))?;
        Ok(last.pop())
    }

    pub(in super::super) async fn subjects(&self, filter: &Filter) -> Result<Vec<Subject>, Error> {
        let call = Call::Subjects { filter: filter.clone() };
        let subject = |line| if let Line::Subject(subject) = line { Some(subject.0) } else { None };
        self.all(&call, subject).await.map_err(self.failed("listing subjects"))
    }

    pub(in super::super) async fn end(&self, filter: &Filter) -> Result<Position, Error> {
        let call = Call::End { filter: filter.clone() };
        self.one(&call, Line::position).await.map_err(self.failed("finding the end of a log"))
    }

    pub(in super::super) async fn delete_message(
        &self,
        subject: &Subject,
        sequence: u64,
    ) -> Result<(), Error> {
        let call = Call::DeleteMessage { subject: subject.clone(), sequence };
        self.done(&call, "removing a message").await
    }

    async fn done(&self, call: &Call, doing: &'static str) -> Result<(), Error> {
        self.all(call, |_| Some(())).await.map(drop).map_err(self.failed(doing))
    }

    pub(in super::super) async fn get_content(
        &self,
        name: &str,
        sha256: &str,
    ) -> Result<Option<Bytes>, Error> {
        let call = Call::Object { name: name.to_owned(), sha256: Some(sha256.to_owned()) };
        let parts = self.all(&call, Line::bytes).await.map_err(self.failed("reading an object"))?;
        match parts.as_slice() {
            [] => Ok(None),
            [whole] => Ok(Some(whole.clone())),
            parts => {
                let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
                parts.iter().for_each(|part| whole.extend_from_slice(part));
                Ok(Some(whole.freeze()))
            }
        }
    }

    pub(in super::super) async fn backlog(&self, consumer: &Consumer) -> Result<Backlog, Error> {
        let call = Call::Backlog { consumer: consumer.clone() };
        self.one(&call, Line::backlog).await.map_err(self.failed("asking about a queue"))
    }

    pub(in super::super) async fn fill(&self) -> Result<Vec<Fill>, Error> {
        self.all(&Call::Fill, Line::fill).await.map_err(self.failed("asking how full the storage is"))
    }

    pub(in super::super) async fn ping(&self) -> Result<Duration, Error> {
        let asked = Instant::now();
        self.done(&Call::Ping, "asking the server").await?;
        Ok(asked.elapsed())
    }
}

/// The reason why a server rejected a call: its own error message, if it has one in a known form,
/// or its HTTP status.
async fn refused(mut answer: reqwest::Response) -> Failure {
    let status = answer.status();
    let mut page = BytesMut::new();
    while let Ok(Some(part)) = answer.chunk().await {
        page.extend_from_slice(&part);
        if page.len() > MAX_PROBLEM_BYTES {
            break;
        }
    }
    if let Ok(Line::Failed(failure)) = serde_json::from_slice(&page) {
        return failure;
    }
    let problem: Value = serde_json::from_slice(&page).unwrap_or_default();
    let said = problem["detail"].as_str().or(problem["title"].as_str());
    let why =
        said.map_or_else(|| format!("it answers {status}: it may not be a Trellis server"), str::to_owned);
    let later = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    if later { Failure::Unreached(why) } else { Failure::Refused(why) }
}
