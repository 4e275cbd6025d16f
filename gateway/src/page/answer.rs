//! How the page answers: as a document that a browser shows and may run nothing in but our script; and what it shows instead of what somebody may
//! not see, or has to sign in for.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{Markup, html};
use trace::{Phase, Status, Trace};

use super::shell;
use crate::{
    call::Call,
    live_runs::Run,
    problem::{ApiResult, ProblemDetails},
    routes::{is_known, tagged},
};

/// Where the page's script and style are.
pub(crate) const ASSETS: &str = "/assets/";
/// Where a session begins.
pub(crate) const SIGN_IN: &str = "/sign-in";

/// Nothing but the script and style of this server counts, and nobody else may show the page within theirs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'self'; frame-ancestors 'none'";

/// Where on the page a request was, if it was for the page.
#[derive(Debug)]
pub(crate) struct Place {
    base: String,
    is_page: bool,
}

impl Place {
    pub(crate) fn of(request: &Request) -> Self {
        let path = request.uri().path();
        let reads = matches!(*request.method(), Method::GET | Method::HEAD) || path == SIGN_IN;
        Place { base: base(path), is_page: reads && !is_api(path) && wants_html(request.headers()) }
    }
}

fn is_api(path: &str) -> bool {
    path.starts_with("/v1/") || path.ends_with(".json") || path.ends_with("/live")
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.contains("text/html")
}

/// From a path to the folder that all links count from: with it they hold behind any prefix.
pub(crate) fn base(path: &str) -> String {
    match path.matches('/').count() {
        0 | 1 => "./".into(),
        depth => "../".repeat(depth - 1),
    }
}

/// A refusal, as a page if a browser is to show it.
pub(crate) fn refused(problem: Box<ProblemDetails>, place: Place) -> Response {
    if !place.is_page {
        return problem.into_response();
    }
    let (status, told) = (problem.status(), problem.told());
    let asks_to_sign_in = status == StatusCode::UNAUTHORIZED;
    let body = if asks_to_sign_in { sign_in(told) } else { wrong(told) };
    let title = if asks_to_sign_in { "sign in" } else { "not shown" };
    let mut response = document(status, shell::bare(&place.base, title, &body));
    response.headers_mut().extend(problem.headers());
    response
}

fn wrong((detail, hint): (&str, Option<&str>)) -> Markup {
    html! {
        main id="main" class="alone" {
            h1 { "This can't be shown" }
            p { (detail) }
            @if let Some(hint) = hint { p class="hint" { (hint) } }
            p { a href="./" { "All runs" } }
        }
    }
}

fn sign_in((detail, hint): (&str, Option<&str>)) -> Markup {
    html! {
        main id="main" class="alone" {
            h1 { "Sign in to Trellis" }
            // A link of `trellis page` has a code, which the script sends.
            form method="post" action="sign-in" id="sign-in" {
                label for="token" { "Token" }
                input type="password" id="token" name="token" autocomplete="off" required;
                button type="submit" { "Sign in" }
            }
            p class="hint" {
                "`trellis page` prints a link that signs in. The token of a `trellis dev` is in the file `token` of its directory; \
                 for a gateway, `trellis gateway token` makes one."
            }
            @if detail != "a token is needed" {
                p class="wrong" role="alert" { (detail) @if let Some(hint) = hint { ": " (hint) } }
            }
        }
    }
}

/// An answer that is a page.
pub(super) fn document(status: StatusCode, page: Markup) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let mut response = (status, headers, page.0).into_response();
    // No page of another origin shares a process with it, or gets hold of its window.
    let own = HeaderValue::from_static("same-origin");
    for name in ["cross-origin-opener-policy", "cross-origin-resource-policy"] {
        response.headers_mut().insert(HeaderName::from_static(name), own.clone());
    }
    response
}

/// Ends the session of a browser.
pub(super) async fn sign_out(call: Call) -> ApiResult {
    let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, "./")]).into_response();
    response.headers_mut().extend(call.sessions.end().map(|cookie| (header::SET_COOKIE, cookie)));
    Ok(response)
}

/// A page of somebody who is signed in.
pub(super) fn page(call: &Call, title: &str, here: shell::Here, body: &Markup) -> ApiResult {
    Ok(document(StatusCode::OK, shell::whole(call, title, here, body)))
}

/// The tag of a view that is made from all that is stored of a run: with the same tag it is the same. None while the run goes on by itself.
#[derive(Debug)]
pub(super) struct Tag(Option<String>);

impl Tag {
    pub(super) async fn of(run: &Run) -> ApiResult<Self> {
        let version = run.look(|state| (!is_at_work(state.trace())).then(|| state.version())).await?;
        Ok(Tag(version.map(|(chain, version)| format!("\"{chain}-{version}\""))))
    }

    /// The answer to whoever has the view already.
    pub(super) fn known(&self, call: &Call) -> Option<Response> {
        let tag = self.0.as_deref().filter(|tag| is_known(call, tag))?;
        Some(tagged(StatusCode::NOT_MODIFIED.into_response(), tag))
    }

    pub(super) fn on(&self, response: Response) -> Response {
        match &self.0 {
            Some(tag) => tagged(response, tag),
            None => response,
        }
    }
}

/// Whether an agent is at work, or in a queue: what it does grows with time, without an event.
fn is_at_work(trace: &Trace) -> bool {
    trace.contexts().iter().any(|node| match &node.status {
        Status::Submitted { .. } | Status::Working(Phase::Queued { .. } | Phase::Running { .. }) => true,
        Status::Working(Phase::Waiting { .. } | Phase::Steps)
        | Status::InputRequired { .. }
        | Status::Paused { .. }
        | Status::Ended(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_count_from_the_folder_of_the_page() {
        for (path, from) in
            [("/", "./"), ("/questions", "./"), ("/runs/x", "../"), ("/runs/x/contexts/y", "../../../")]
        {
            assert_eq!(base(path), from, "{path}");
        }
    }
}
