//! The router, generated from the table of routes.

use std::sync::Arc;

use axum::{
    Router,
    extract::{FromRequestParts, RawPathParams, Request},
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{MethodFilter, on},
};
use bus::Bus;
use bytes::Bytes;
use client::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    bus_over_http,
    call::{self, Call},
    config::{Caller, Limits, Playground, TraceUrl},
    live_runs::LiveRuns,
    openapi, page,
    problem::{ApiResult, ProblemDetails},
    route::Route,
    routes,
    session::Sessions,
    streams::Streams,
    token::TokenHolder,
};

/// The shared state of all handlers.
#[derive(Debug, Clone)]
pub(crate) struct AppState {
    pub(crate) client: Client,
    pub(crate) limits: Limits,
    pub(crate) streams: Arc<Streams>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) watched: Arc<LiveRuns>,
    pub(crate) trace_url: Option<TraceUrl>,
    pub(crate) playground: Option<Playground>,
}

pub(crate) fn router(means: &AppState, bus: Bus) -> Router {
    let table = routes::table();
    let document = Bytes::from(openapi::document(&table).to_string());
    let mut router = Router::new().route(
        openapi::PATH,
        on(
            MethodFilter::GET,
            move || async move { ([(header::CONTENT_TYPE, "application/json")], document) },
        ),
    );
    // The pages are for browsers, so their routes are not in the OpenAPI document.
    for route in table.into_iter().chain(page::table()) {
        let filter = MethodFilter::try_from(route.method.clone()).expect("the table has plain methods");
        let (path, route) = (route.path, Arc::new(route));
        let means = means.clone();
        let handler = move |request: Request| async move {
            let place = page::Place::of(&request);
            let answered = answer(&route, means, request).await;
            answered.unwrap_or_else(|problem| page::refused(problem, place))
        };
        router = router.route(path, on(filter, handler));
    }
    let AppState { limits, streams, .. } = means.clone();
    let carry = move |request: Request| bus_over_http::carry(bus, limits, streams, request);
    router = router.route(bus::http::PATH, on(MethodFilter::POST, carry));
    router.fallback(unknown).method_not_allowed_fallback(not_allowed)
}

async fn answer(route: &Route, means: AppState, request: Request) -> ApiResult {
    let AppState { client, limits, streams, sessions, watched, trace_url, playground } = means;
    let (mut parts, body) = request.into_parts();
    let known = parts.extensions.remove::<TokenHolder>();
    let (caller, ends) = match known.clone() {
        Some(known) => (known.caller, known.ends),
        None => (Caller { name: String::new(), kinds: Vec::new() }, CancellationToken::new()),
    };
    route.admit(&caller)?;
    let (here, base) = (parts.uri.path().trim_start_matches('/').to_owned(), page::base(parts.uri.path()));
    let path = RawPathParams::from_request_parts(&mut parts, &()).await;
    let path = path.map_err(|error| ProblemDetails::wrong("path", error.to_string(), None))?;
    let path = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let query = call::parameters(parts.uri.query(), route.query)?;
    let body = match &route.taken {
        Some(taken) => call::body(&parts.headers, body, taken.required, &limits).await?,
        // Read the unused body too: a client that is still sending may not read the answer.
        None => {
            call::whole(&parts.headers, body, &limits).await?;
            Bytes::new()
        }
    };
    // The token may have been removed while the body arrived.
    if ends.is_cancelled() {
        return Err(ProblemDetails::no_more());
    }
    (route.handler)(Call {
        client: client.sent_by(caller.name.as_str()),
        caller,
        limits,
        streams,
        sessions,
        watched,
        trace_url,
        playground,
        known,
        headers: parts.headers,
        path,
        here,
        base,
        query,
        body,
        ends,
    })
    .await
}

async fn unknown(request: Request) -> Response {
    let message = "this path does not exist\n\nhint: /openapi.json lists all paths";
    page::refused(ProblemDetails::not_found("no_route", message), page::Place::of(&request))
}

async fn not_allowed(method: Method) -> Response {
    let message =
        format!("this path does not have the method {method}\n\nhint: the header `Allow` lists its methods");
    ProblemDetails::new(StatusCode::METHOD_NOT_ALLOWED, "method", message).into_response()
}
