//! The answers of the page: documents in which a browser runs only our own script. A rejected
//! request is answered with a page too, for example with the sign-in form.

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

/// The folder of the page's script and style.
pub(crate) const ASSETS: &str = "/assets/";
/// The path that begins a session.
pub(crate) const SIGN_IN: &str = "/sign-in";

/// Only the script and style of this server are allowed, and no other site may embed the page in a
/// frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; base-uri 'self'; frame-ancestors 'none'";

/// The place of a request on the page, and whether its answer is a page.
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

/// The relative path to the folder that all links start from. With it, links also work behind a
/// proxy with a path prefix.
pub(crate) fn base(path: &str) -> String {
    match path.matches('/').count() {
        0 | 1 => "./".into(),
        depth => "../".repeat(depth - 1),
    }
}

/// A rejection, as a page if a browser shows it.
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
            // A link of `trellis page` contains a code, which the script submits.
            form method="post" action="sign-in" id="sign-in" {
                label for="token" { "Token" }
                input type="password" id="token" name="token" autocomplete="off" required;
                button type="submit" { "Sign in" }
            }
            p class="hint" {
                "`trellis page` prints a sign-in link. A `trellis dev` stores its token in the file `token` of its directory; \
                 for a gateway, `trellis gateway token` makes one."
            }
            @if detail != "a token is needed" {
                p class="wrong" role="alert" { (detail) @if let Some(hint) = hint { ": " (hint) } }
            }
        }
    }
}

/// An answer that is an HTML page.
pub(super) fn document(status: StatusCode, page: Markup) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let mut response = (status, headers, page.0).into_response();
    // Isolates the page: pages of other origins neither share its process nor get a handle of its
    // window.
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

/// A page for a signed-in caller.
pub(super) fn page(call: &Call, title: &str, here: shell::Here, body: &Markup) -> ApiResult {
    Ok(document(StatusCode::OK, shell::whole(call, title, here, body)))
}

/// The `ETag` of a view that depends only on the events of a run. None while an agent works,
/// because then the view changes with time alone.
#[derive(Debug)]
pub(super) struct Tag(Option<String>);

impl Tag {
    pub(super) async fn of(run: &Run) -> ApiResult<Self> {
        let version = run.look(|state| (!is_at_work(state.trace())).then(|| state.version())).await?;
        Ok(Tag(version.map(|(chain, version)| format!("\"{chain}-{version}\""))))
    }

    /// The answer for a browser that has the view already.
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

/// True if an agent runs or is in a queue: its elapsed time grows without an event.
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
