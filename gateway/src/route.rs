//! A route: its path, the rights that it needs, its request and its answers. Both the router and
//! the OpenAPI document are generated from the routes, so that they can't differ.

use axum::http::{Method, StatusCode};
use bus::role::{Kind, hearers, senders};
use domain::subject::Subject;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;

use crate::{
    call::Call,
    config::Caller,
    parameter::{NONE, Parameter, SchemaOf, of},
    problem::{ApiResult, ProblemDetails},
};

pub(crate) type Handler = fn(Call) -> BoxFuture<'static, ApiResult>;

/// The action of a request on the bus. The tables of `bus::role` alone decide which roles may do
/// it.
#[derive(Debug, Clone)]
pub(crate) enum Need {
    Send(Subject),
    /// To receive it, or to read its stored messages.
    Hear(Subject),
}

impl Need {
    fn kinds(&self) -> &'static [Kind] {
        match self {
            Need::Send(subject) => senders(subject),
            Need::Hear(subject) => hearers(subject),
        }
    }
}

/// The body of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestBody {
    pub(crate) schema: SchemaOf,
    pub(crate) required: bool,
}

/// One successful answer of a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseSpec {
    pub(crate) status: StatusCode,
    pub(crate) about: &'static str,
    /// None: there is no body.
    pub(crate) media: Option<(&'static str, SchemaOf)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The name of the operation in the OpenAPI document.
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) needs: Vec<Need>,
    /// It needs no token.
    pub(crate) open: bool,
    pub(crate) query: &'static [Parameter],
    /// The headers that it reads, with their descriptions.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) taken: Option<RequestBody>,
    pub(crate) given: Vec<ResponseSpec>,
    pub(crate) handler: Handler,
}

impl Route {
    pub(crate) fn new(
        method: Method,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        handler: Handler,
    ) -> Self {
        let (needs, given) = (Vec::new(), Vec::new());
        Route {
            method,
            path,
            id,
            summary,
            needs,
            open: false,
            query: NONE,
            headers: &[],
            taken: None,
            given,
            handler,
        }
    }

    pub(crate) fn sends(mut self, subject: Subject) -> Self {
        self.needs.push(Need::Send(subject));
        self
    }

    pub(crate) fn hears(mut self, subject: Subject) -> Self {
        self.needs.push(Need::Hear(subject));
        self
    }

    pub(crate) fn open(self) -> Self {
        Route { open: true, ..self }
    }

    pub(crate) fn query(self, query: &'static [Parameter]) -> Self {
        Route { query, ..self }
    }

    pub(crate) fn headers(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Route { headers, ..self }
    }

    pub(crate) fn takes<T: JsonSchema>(self) -> Self {
        Route { taken: Some(RequestBody { schema: of::<T>, required: true }), ..self }
    }

    pub(crate) fn takes_schema(self, schema: SchemaOf) -> Self {
        Route { taken: Some(RequestBody { schema, required: true }), ..self }
    }

    pub(crate) fn may_take<T: JsonSchema>(self) -> Self {
        Route { taken: Some(RequestBody { schema: of::<T>, required: false }), ..self }
    }

    pub(crate) fn gives<T: JsonSchema>(self, status: StatusCode, about: &'static str) -> Self {
        self.gives_as(status, about, "application/json", of::<T>)
    }

    pub(crate) fn gives_as(
        mut self,
        status: StatusCode,
        about: &'static str,
        media: &'static str,
        schema: SchemaOf,
    ) -> Self {
        self.given.push(ResponseSpec { status, about, media: Some((media, schema)) });
        self
    }

    pub(crate) fn gives_nothing(mut self, status: StatusCode, about: &'static str) -> Self {
        self.given.push(ResponseSpec { status, about, media: None });
        self
    }

    /// The roles of which each alone is enough for this route.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let may = |kind: &Kind| self.needs.iter().all(|need| need.kinds().contains(kind));
        [Kind::Client, Kind::Observer, Kind::Admin].into_iter().filter(may).collect()
    }

    /// Rejects a caller that lacks the roles for one of the needs.
    pub(crate) fn admit(&self, caller: &Caller) -> ApiResult<()> {
        let may = |need: &Need| need.kinds().iter().any(|kind| caller.kinds.contains(kind));
        if self.needs.iter().all(may) {
            return Ok(());
        }
        let kinds: Vec<&str> = self.kinds().into_iter().map(Kind::name).collect();
        let message = format!(
            "`{}` may not do this: it needs the role {}\n\nhint: use a token with this role",
            caller.name,
            kinds.join(" or ")
        );
        Err(ProblemDetails::new(StatusCode::FORBIDDEN, "denied", message))
    }

    /// The names of the parameters in its path.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &'static str> {
        let named = |part: &'static str| part.strip_prefix('{')?.strip_suffix('}');
        self.path.split('/').filter_map(named).map(|name| name.trim_start_matches('*'))
    }
}
