//! The OpenAPI 3.1 document, generated from the table of routes and the types of the messages.

use std::collections::BTreeMap;

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    parameter::{header, part},
    problem::{PROBLEM_JSON, ProblemDetails},
    route::{ResponseSpec, Route},
};

/// The path of the document.
pub(crate) const PATH: &str = "/openapi.json";

/// The reasons for which a request may fail, by status.
const REFUSALS: [(u16, &str); 15] = [
    (400, "The request is invalid; `problems` lists every mistake with its path."),
    (401, "The token is missing or unknown."),
    (403, "The roles of the token do not allow the request."),
    (404, "Not found."),
    (408, "The body arrived too slowly."),
    (409, "The request conflicts with the current state."),
    (413, "The body is too large."),
    (415, "The body is not JSON."),
    (421, "The server does not answer under this `Host`."),
    (422, "The request is readable but can't be done; `code` and `problems` give the reason."),
    (429, "Too many requests; retry after the time in `Retry-After`."),
    (500, "An unexpected failure of the gateway."),
    (502, "The answer of a coordinator does not match the request, or stored data is invalid."),
    (503, "The bus or the coordinators can't be reached; retry after the time in `Retry-After`."),
    (504, "No coordinator answered in time."),
];

pub(crate) fn document(table: &[Route]) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for route in table {
        let path = route.path.replace("{*", "{");
        let method = route.method.as_str().to_ascii_lowercase();
        paths.entry(path).or_default().insert(method, operation(route, &mut generator));
    }
    paths.entry(PATH.to_owned()).or_default().insert("get".into(), itself());
    let problem = generator.subschema_for::<ProblemDetails>();
    let refusal = |(status, about): (u16, &str)| {
        let answer = json!({"description": about, "content": {PROBLEM_JSON: {"schema": problem}}});
        (format!("Refused{status}"), answer)
    };
    let refusals: Map<String, Value> =
        REFUSALS.map(refusal).into_iter().chain(not_satisfiable(&problem)).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Trellis",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Runs of agents, with budgets.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "responses": refusals,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    })
}

/// The 416 answer, which only routes for files have.
fn not_satisfiable(problem: &schemars::Schema) -> Option<(String, Value)> {
    let content = json!({PROBLEM_JSON: {"schema": problem}});
    Some((
        "Refused416".into(),
        json!({"description": "The range begins after the end of the file.", "content": content}),
    ))
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut parameters: Vec<Value> = Vec::new();
    for name in route.parts() {
        parameters.push(json!({
            "name": name, "in": "path", "required": true, "schema": part(name)(generator),
        }));
    }
    for parameter in route.query {
        let one = (parameter.schema)(generator);
        let schema =
            if parameter.many { json!({"type": "array", "items": one, "maxItems": 16}) } else { json!(one) };
        parameters.push(json!({
            "name": parameter.name, "in": "query", "required": false, "description": parameter.about,
            "schema": schema,
        }));
    }
    for (name, about) in route.headers {
        parameters.push(json!({
            "name": name, "in": "header", "required": false, "description": about, "schema": header(name),
        }));
    }
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "description": description(route),
        "parameters": parameters,
        "responses": responses(route, generator),
    });
    if let Some(taken) = &route.taken {
        let schema = (taken.schema)(generator);
        operation["requestBody"] =
            json!({"required": taken.required, "content": {"application/json": {"schema": schema}}});
    }
    if route.open {
        operation["security"] = json!([]);
    }
    operation
}

fn description(route: &Route) -> String {
    if route.open {
        return "Needs no token.".into();
    }
    let kinds: Vec<String> = route.kinds().iter().map(|kind| format!("`{kind}`")).collect();
    format!("Roles: {}.", kinds.join(", "))
}

fn responses(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    for ResponseSpec { status, about, media } in &route.given {
        let entry = responses.entry(status.as_str()).or_insert_with(|| json!({"description": about}));
        if let Some((media, schema)) = media {
            entry["content"][*media] = json!({"schema": schema(generator)});
        }
    }
    let applies = |status: u16| match status {
        401 | 403 | 429 => !route.open,
        404 | 409 => !route.open,
        408 | 413 | 415 => route.taken.is_some(),
        _ => true,
    };
    for (status, _) in REFUSALS.into_iter().filter(|(status, _)| applies(*status)) {
        let reference = format!("#/components/responses/Refused{status}");
        responses.insert(status.to_string(), json!({"$ref": reference}));
    }
    if route.given.iter().any(|given| given.status == 206) {
        responses.insert("416".into(), json!({"$ref": "#/components/responses/Refused416"}));
    }
    Value::Object(responses)
}

fn itself() -> Value {
    let refused = |status: u16| json!({"$ref": format!("#/components/responses/Refused{status}")});
    json!({
        "operationId": "getDocument",
        "summary": "This document",
        "responses": {
            "200": {
                "description": "The document.",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            "400": refused(400), "401": refused(401), "403": refused(403), "421": refused(421), "429": refused(429),
        },
    })
}
