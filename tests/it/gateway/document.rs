//! The OpenAPI document is complete, it has every route, and Schemathesis finds no difference to
//! the server.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
};

use gateway::Config;
use serde_json::{Value, json};
use tokio::process::Command;
use trellis_tests::cluster::Cluster;

use super::{
    Front, config,
    tokens::{ROLES, ROUTES},
};

/// Every reference in a value.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_has_every_route_and_all_that_it_refers_to() {
    let front = Front::start().await;
    let document = front.value("/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 30, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads elsewhere"));
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let mut operations = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            operations.insert((method.to_ascii_uppercase(), path.clone()));
            for status in ["400", "421"] {
                assert!(operation["responses"].get(status).is_some(), "{method} {path} {status}");
            }
            let parts = path.matches('{').count();
            let named = operation["parameters"].as_array().map_or(0, |all| {
                all.iter()
                    .filter(|parameter| parameter["in"] == "path" && parameter["required"] == json!(true))
                    .count()
            });
            assert_eq!(parts, named, "{method} {path}");
        }
    }
    let mut expected: BTreeSet<(String, String)> =
        ROUTES.iter().map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    expected.remove(&("GET".to_owned(), "/nothing".to_owned()));
    expected.extend(["/healthz", "/readyz"].map(|path| ("GET".to_owned(), path.to_owned())));
    assert_eq!(operations, expected);
    front.stop().await;
}

/// The documentation page lists every route with its roles.
#[test]
fn the_page_lists_every_route_with_the_roles_that_may() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/http.md")).unwrap();
    for (method, path, allowed) in ROUTES.iter().filter(|(_, path, _)| *path != "/nothing") {
        let may = ROLES.iter().filter(|(_, bit)| allowed & bit != 0).map(|(kind, _)| kind.name());
        let (begins, ends) = (format!("| `{method}` | `{path}` |"), may.collect::<Vec<_>>().join(", "));
        let row = page
            .lines()
            .find(|line| line.starts_with(&begins))
            .unwrap_or_else(|| panic!("{begins} is missing"));
        assert!(row.ends_with(&format!("| {ends} |")), "{row}: {ends}");
    }
    let rows = page.lines().filter(|line| {
        ["GET", "POST", "PUT", "DELETE"].iter().any(|method| line.starts_with(&format!("| `{method}` |")))
    });
    assert_eq!(
        rows.count(),
        ROUTES.len() - 1 + 2,
        "the table has other routes than these, /healthz and /readyz"
    );
}

/// proves: the server behaves as the document describes, for generated requests, valid and invalid
/// ones.
#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_nothing_that_the_document_does_not_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let named = std::env::var_os("TRELLIS_SCHEMATHESIS_PYTHONPATH").map(PathBuf::from);
    let path = named.unwrap_or_else(|| root.join(".tools/schemathesis"));
    assert!(
        path.join("schemathesis").is_dir(),
        "there is no schemathesis at {}\n\nhint: run scripts/servers once, or set TRELLIS_SCHEMATHESIS_PYTHONPATH",
        path.display()
    );
    let front = Front::with(Config { token: Some("secret".into()), ..config() }, Cluster::embedded()).await;
    let mut command = Command::new("python3");
    command
        .arg("-B")
        .args(["-m", "schemathesis.cli", "--config-file"])
        .arg(root.join("tests/it/gateway/schemathesis.toml"));
    command.args(["run", &front.url("/openapi.json"), "--header", "Authorization: Bearer secret"]);
    command.args(["--checks", "all", "--max-examples", "20", "--seed", "1", "--generation-database", "none"]);
    command.args(["--phases", "fuzzing,stateful", "--request-timeout", "60", "--no-color"]);
    command.env("PYTHONPATH", path).current_dir(std::env::temp_dir()).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.expect("python3 runs");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    front.stop().await;
}
