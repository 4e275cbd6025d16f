//! The checks that every request passes before its handler runs: its `Host`, so that a web page
//! can't reach the server under a DNS name of its own; its `Origin`; its token; and its rate.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

use host::clock::Clock;
use tokio::time::timeout;

use crate::{
    last_request::LastRequest,
    page,
    problem::ProblemDetails,
    rate::{Rate, Who},
    session::Sessions,
    token::{TokenHolder, Tokens},
};

/// Methods and headers that a page of another allowed origin may send, and response headers that it
/// may read.
const METHODS: &str = "GET, HEAD, POST, PUT, DELETE";
const SENT: &str =
    "authorization, content-type, idempotency-key, if-none-match, if-range, last-event-id, range";
const READ: &str = "accept-ranges, content-disposition, content-range, etag, location, retry-after";
/// The longest body of the sign-in form.
const MAX_FORM_BYTES: usize = 4096;
/// How many seconds a browser may cache the answer to a preflight.
const REMEMBERED: &str = "600";

/// The paths that need no token. Health checks are open to every client, and so are the assets of
/// the page, which `page::ASSETS` names.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) hosts: Vec<String>,
    pub(crate) origins: Vec<String>,
    /// None: every client that can connect has all rights.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) everybody: TokenHolder,
    pub(crate) sessions: Arc<Sessions>,
    /// The most time for the body of a sign-in form to arrive.
    pub(crate) form_within: Duration,
    pub(crate) rate: Rate,
    pub(crate) seen: LastRequest,
}

type Refused = Box<ProblemDetails>;

/// Passes an allowed request to its handler, and answers a rejected one itself.
pub(crate) async fn pass(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    door.seen.now();
    let other_origin = match door.host(&request).and_then(|host| door.origin(&request, &host)) {
        Ok(other) => other,
        Err(refused) => return finished(refused.into_response(), None),
    };
    let response = match &other_origin {
        Some(_) if is_preflight(&request) => preflight(),
        Some(_) => door.admit(request, next, false).await.unwrap_or_else(IntoResponse::into_response),
        None => {
            let place = page::Place::of(&request);
            let admitted = door.admit(request, next, true).await;
            admitted.unwrap_or_else(|refused| page::refused(refused, place))
        }
    };
    finished(response, other_origin)
}

impl Door {
    /// The host that the request is for, in lowercase. Rejects a missing, repeated or foreign one.
    fn host(&self, request: &Request) -> Result<String, Refused> {
        let mut named = request.headers().get_all(header::HOST).iter();
        let (Some(host), None) = (named.next(), named.next()) else {
            let message = "a request needs one `Host` header";
            return Err(ProblemDetails::new(StatusCode::BAD_REQUEST, "host", message));
        };
        let host = host.to_str().unwrap_or_default();
        let of_target = request.uri().authority().map(Authority::as_str);
        let ends = request.extensions().get::<Ends>().copied();
        match [Some(host), of_target].into_iter().flatten().find(|host| !self.is_ours(host, ends)) {
            None => Ok(host.to_ascii_lowercase()),
            Some(_) => {
                let message = "this server does not answer under this name\n\nhint: use its address, or start it with `--host NAME`";
                Err(ProblemDetails::new(StatusCode::MISDIRECTED_REQUEST, "host", message))
            }
        }
    }

    /// A literal address is ours if it is a loopback address, the address that the connection reached,
    /// or listed; a name only if it is `localhost` or listed. So a name of an attacker that resolves
    /// to this machine (DNS rebinding) is rejected.
    fn is_ours(&self, host: &str, ends: Option<Ends>) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        if host.contains('@') {
            return false;
        }
        let name = authority.host();
        let name = name.strip_suffix('.').unwrap_or(name);
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let address = address.to_canonical();
            let is_local = ends.is_some_and(|ends| ends.local.to_canonical() == address);
            return address.is_loopback() || is_local || self.is_listed(name);
        }
        name.eq_ignore_ascii_case("localhost") || self.is_listed(name)
    }

    fn is_listed(&self, name: &str) -> bool {
        self.hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
    }

    /// The `Origin` of the request if it is another origin that the configuration allows; none if
    /// it is our own or absent. Rejects every other origin.
    fn origin(&self, request: &Request, host: &str) -> Result<Option<HeaderValue>, Refused> {
        let mut named = request.headers().get_all(header::ORIGIN).iter();
        let origin = match (named.next(), named.next()) {
            (None, _) => return Ok(None),
            (Some(origin), None) => origin,
            (Some(_), Some(_)) => return Err(foreign()),
        };
        let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let own = ["http://", "https://"].iter().any(|scheme| text.strip_prefix(scheme) == Some(host));
        if own {
            return Ok(None);
        }
        let listed =
            self.origins.iter().any(|listed| listed.trim_end_matches('/').eq_ignore_ascii_case(&text));
        if listed { Ok(Some(origin.clone())) } else { Err(foreign()) }
    }

    /// Checks the token or session and the rate, then runs the handler. `is_ours`: the request does
    /// not come from a page of another origin.
    async fn admit(&self, mut request: Request, next: Next, is_ours: bool) -> Result<Response, Refused> {
        let path = request.uri().path();
        if OPEN.contains(&path) || path.starts_with(page::ASSETS) {
            return Ok(next.run(request).await);
        }
        let too_many = |wait| ProblemDetails::too_many(wait, self.rate.per_second);
        let address =
            request.extensions().get::<Ends>().map_or(Who::Others, |ends| Who::Address(ends.remote));
        let (known, who) = match &self.tokens {
            None => (self.everybody.clone(), address),
            Some(_) if is_ours && path == page::SIGN_IN && request.method() == Method::POST => {
                // Sign-in attempts are limited by address, so that tokens can't be guessed quickly.
                self.rate.take(address).map_err(too_many)?;
                return self.sign_in(request).await;
            }
            Some(tokens) => match self.known(tokens, &request, is_ours) {
                Ok(known) => {
                    let who = Who::Token(known.caller.name.clone());
                    (known, who)
                }
                Err(refused) => {
                    self.rate.take(address).map_err(too_many)?;
                    return Err(refused);
                }
            },
        };
        self.rate.take(who).map_err(too_many)?;
        request.extensions_mut().insert(known.caller.clone());
        request.extensions_mut().insert(known);
        Ok(next.run(request).await)
    }

    /// The holder of the token in the `Authorization` header; without that header, the holder of
    /// the page's session.
    fn known(&self, tokens: &Tokens, request: &Request, is_ours: bool) -> Result<TokenHolder, Refused> {
        let headers = request.headers();
        if is_ours
            && !headers.contains_key(header::AUTHORIZATION)
            && is_of_the_page(request)
            && let Some(known) = self.sessions.find(tokens, headers, Clock::Machine.now())
        {
            return Ok(known);
        }
        known(tokens, headers)
    }

    /// Begins a session for a client that sends a valid token, or a code that was made for one.
    async fn sign_in(&self, request: Request) -> Result<Response, Refused> {
        let (parts, body) = request.into_parts();
        // Browsers send the `Origin` with every form, so a form without one does not come from the
        // page.
        if !parts.headers.contains_key(header::ORIGIN) {
            return Err(foreign());
        }
        let body = timeout(self.form_within, axum::body::to_bytes(body, MAX_FORM_BYTES)).await;
        let Ok(Ok(body)) = body else {
            return Err(ProblemDetails::wrong("", "the form is too large or arrived too slowly", None));
        };
        let given = |name: &str| {
            let mut fields = form_urlencoded::parse(&body);
            fields.find(|(of, _)| of == name).map(|(_, value)| value.trim().to_owned())
        };
        let by_token = given("token").and_then(|token| self.tokens.as_ref()?.find(&token));
        let known = by_token.or_else(|| given("code").and_then(|code| self.sessions.redeem(&code)));
        let Some(known) = known else {
            let message = match given("code") {
                Some(_) => {
                    "this link was already used, or is more than ten minutes old\n\nhint: `trellis page` prints a new link; or sign in with a token"
                }
                None => "unknown token\n\nhint: it may have been removed from the token file",
            };
            return Err(ProblemDetails::new(StatusCode::UNAUTHORIZED, "unauthenticated", message));
        };
        let forwarded = parts.headers.get("x-forwarded-proto");
        let is_secure = forwarded.is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"));
        let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "./")]).into_response();
        let cookie = self.sessions.begin(&known, Clock::Machine.now(), is_secure);
        response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
        Ok(response)
    }
}

/// True if the browser reports that the request comes from the page itself, or that its user opened
/// the address. A request that changes something must have an `Origin`, and the door has already
/// rejected foreign ones.
fn is_of_the_page(request: &Request) -> bool {
    let headers = request.headers();
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    // `same-site` includes images and links of another server on this machine, so it is rejected
    // too.
    !matches!(site, Some(b"cross-site" | b"same-site")) && (reads || headers.contains_key(header::ORIGIN))
}

fn known(tokens: &Tokens, headers: &HeaderMap) -> Result<TokenHolder, Refused> {
    let refused = |challenge: &str, message: &str| {
        ProblemDetails::new(StatusCode::UNAUTHORIZED, "unauthenticated", message)
            .with_header(header::WWW_AUTHENTICATE, challenge)
    };
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let token = match (given.next(), given.next()) {
        (Some(given), None) => given.to_str().ok().and_then(|given| {
            let (scheme, token) = given.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        }),
        (_, _) => None,
    };
    let Some(token) = token else {
        let message = "a token is needed\n\nhint: send it as `Authorization: Bearer TOKEN`; a `trellis dev` stores its token in the file `token` of its directory, and `trellis gateway token` makes one for a gateway";
        return Err(refused("Bearer realm=\"trellis\"", message));
    };
    tokens.find(token).ok_or_else(|| {
        let message = "unknown token\n\nhint: it may have been removed from the token file";
        refused("Bearer realm=\"trellis\", error=\"invalid_token\"", message)
    })
}

fn foreign() -> Refused {
    let message =
        "requests from pages of this origin are not allowed\n\nhint: start the server with `--origin URL`";
    ProblemDetails::new(StatusCode::FORBIDDEN, "origin", message)
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

fn preflight() -> Response {
    let allowed = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, SENT),
        (header::ACCESS_CONTROL_MAX_AGE, REMEMBERED),
    ];
    (StatusCode::NO_CONTENT, allowed).into_response()
}

/// Adds the headers that every answer has, including the answers of the door itself.
fn finished(mut response: Response, other_origin: Option<HeaderValue>) -> Response {
    let headers = response.headers_mut();
    let mut default = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    default(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    // The answer depends on the caller and may change with the next request.
    default(header::CACHE_CONTROL, "private, no-cache");
    if let Some(origin) = other_origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(READ));
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    response
}
