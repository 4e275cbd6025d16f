//! The reference pages are complete: every command and option, every variable, every key of the
//! settings files, every error code, every event. `TRELLIS_WRITE_SCHEMAS=1` rewrites the generated
//! parts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use regex::Regex;
use serde_json::Value;
use trellis_tests::processes::{binary, repository};

use super::{beneath, file};

const CRATES: [&str; 7] = [
    "shared",
    "coordinator/core/src",
    "client/src",
    "coordinator/src",
    "worker/src",
    "gateway/src",
    "cli/src",
];
const BEGIN: &str = "<!-- from here on made by the program: TRELLIS_WRITE_SCHEMAS=1 scripts/test -->\n";

/// The sources of the product, without their tests.
fn sources() -> Vec<(String, String)> {
    let files = CRATES.iter().flat_map(|folder| beneath(folder, "rs"));
    let product = files.filter(|path| !path.contains("/tests/") && !path.ends_with("/tests.rs"));
    let without_tests =
        |text: String| text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
    product.map(|path| (path.clone(), without_tests(file(&path)))).collect()
}

/// Every first group of a pattern in a text.
fn all(pattern: &str, text: &str) -> BTreeSet<String> {
    Regex::new(pattern).unwrap().captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// The names in the first cells of the tables below a heading, up to the next heading of its level.
fn rows(page: &str, heading: &str) -> BTreeSet<String> {
    let (_, below) =
        page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let below = below.split("\n## ").next().unwrap_or_default();
    let cells = below.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| all("`([^`]+)`", cell)).collect()
}

#[test]
fn the_reference_of_the_command_line_is_that_of_the_program() {
    let made = std::env::temp_dir().join(format!("trellis-reference-{}", std::process::id()));
    let status = Command::new(binary()).args(["man", "--markdown"]).arg(&made).status().unwrap();
    assert!(status.success());
    for name in ["cli.md", "settings.md"] {
        let path = repository().join("docs/reference").join(name);
        let stored = fs::read_to_string(&path).unwrap();
        let (by_hand, _) = stored.split_once(BEGIN).expect("the mark before the generated part");
        let text = format!("{by_hand}{BEGIN}\n{}\n", fs::read_to_string(made.join(name)).unwrap().trim_end());
        if std::env::var_os("TRELLIS_WRITE_SCHEMAS").is_some() {
            fs::write(&path, &text).unwrap();
        } else {
            assert!(
                stored == text,
                "{} is out of date: run TRELLIS_WRITE_SCHEMAS=1 scripts/test",
                path.display()
            );
        }
    }
    fs::remove_dir_all(&made).unwrap();
}

#[test]
fn every_variable_is_in_the_settings() {
    let page = file("docs/reference/settings.md");
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    let mut texts = sources();
    let folders = [
        "scripts/servers",
        "scripts/test",
        "scripts/book",
        "scripts/package",
        "docker-compose.yml",
        "Dockerfile",
    ];
    texts.extend(folders.map(|path| (path.to_owned(), file(path))));
    for (path, text) in texts {
        let ours = all(r"\b(TRELLIS_[A-Z0-9_]*[A-Z0-9])\b", &text);
        let read = all(r#"get\("([A-Z][A-Z0-9_]+)"\)"#, &text);
        let options = all(r#"env = "([A-Z][A-Z0-9_]+)""#, &text);
        named.extend(ours.into_iter().chain(read).chain(options).map(|name| (name, path.clone())));
    }
    assert!(named.len() > 40, "{named:?}");
    let missing: Vec<String> = named
        .iter()
        .filter(|(name, _)| !page.contains(&format!("`{name}`")))
        .map(|(name, path)| format!("{name} of {path}"))
        .collect();
    assert!(missing.is_empty(), "not in docs/reference/settings.md:\n{}", missing.join("\n"));
}

/// The keys of a settings file, each by its path, without tables that have keys themselves. `NAME`
/// replaces names that the author of the file chooses.
fn keys(schema: &Value) -> BTreeSet<String> {
    fn walk(whole: &Value, at: &Value, path: &str, found: &mut BTreeSet<String>) {
        let choices = at["anyOf"].as_array().into_iter().flatten();
        for one in std::iter::once(at).chain(choices) {
            let target = one["$ref"].as_str().and_then(|path| path.rsplit('/').next());
            let one = target.map_or(one, |name| &whole["$defs"][name]);
            for (name, inner) in one["properties"].as_object().into_iter().flatten() {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let before = found.len();
                walk(whole, inner, &path, found);
                if found.len() == before {
                    found.insert(path);
                }
            }
            let patterns = one["patternProperties"].as_object().into_iter().flatten().map(|(_, inner)| inner);
            let others = one.get("additionalProperties").filter(|inner| inner.is_object());
            for inner in patterns.chain(others) {
                walk(whole, inner, &format!("{path}.NAME"), found);
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(schema, schema, "", &mut found);
    found
}

#[test]
fn every_key_of_the_settings_files_is_described() {
    let page = file("docs/reference/files.md");
    let of_worker = keys(&domain::schema::of::<worker::Settings>());
    let of_deployment = keys(&domain::schema::of::<domain::limits::Settings>());
    for (keys, some) in
        [(&of_worker, "mcp.NAME.resources.cpu_seconds"), (&of_deployment, "maximum.limits.max_steps")]
    {
        assert!(keys.len() > 25 && keys.contains(some), "{keys:?}");
    }
    for (heading, keys) in
        [("The settings of a worker", &of_worker), ("The settings of a deployment", &of_deployment)]
    {
        let told = rows(&page, heading);
        let missing: Vec<&String> = keys.difference(&told).collect();
        // A table may have a row too.
        let is_table = |row: &str| keys.iter().any(|key| key.starts_with(&format!("{row}.")));
        let unknown: Vec<&String> = told.difference(keys).filter(|row| !is_table(row.as_str())).collect();
        assert!(
            missing.is_empty() && unknown.is_empty(),
            "{heading} in docs/reference/files.md: missing {missing:?}, unknown {unknown:?}"
        );
    }
    let defaults = serde_json::to_value(domain::limits::Settings::default()).unwrap();
    for key in &of_deployment {
        let default = defaults.pointer(&format!("/{}", key.replace('.', "/"))).and_then(Value::as_u64);
        let row = page.lines().find(|line| line.starts_with(&format!("| `{key}` |"))).unwrap_or_default();
        let told = row.split(" | ").nth(1).unwrap_or_default();
        assert!(
            default.is_none_or(|default| told == format!("`{default}`")),
            "the default of {key} is {default:?}, and docs/reference/files.md says {told}"
        );
    }
}

/// The codes that a source uses for refusals and problems.
fn codes(path: &str, text: &str) -> BTreeSet<String> {
    let mut found = all(r#"\bRefusal::new\(\s*"([a-z_]+)""#, text);
    found.extend(all(r#"(?:not_found|conflict)\(\s*"([a-z_]+)""#, text));
    found.extend(all(r#"StatusCode::[A-Z_]+,\s*"([a-z_]+)""#, text));
    found.extend(all(r#": &str = "([a-z]+_conflict)";"#, text));
    if path.ends_with("refusal.rs") {
        found.extend(all(r#"=> \("([a-z_]+)", "[A-Za-z0-9]+"\)"#, text));
        found.extend(all(r#"Self::new\("([a-z_]+)","#, text));
    }
    if path == "gateway/src/problem.rs" {
        let (_, table) = text.split_once("fn status_of").unwrap();
        found.extend(all(r#""([a-z_]+)""#, table.split("_ => ").next().unwrap()));
    }
    found
}

#[test]
fn every_code_of_an_error_says_what_to_do() {
    let page = file("docs/reference/errors.md");
    let sources = sources();
    let known: BTreeSet<String> = sources.iter().flat_map(|(path, text)| codes(path, text)).collect();
    assert!(known.len() > 80, "{} codes: {known:?}", known.len());
    assert_eq!(
        rows(&page, "Codes"),
        known,
        "the table of codes in docs/reference/errors.md, and the codes of the sources"
    );
    // The patterns above do not find a code that is created in another way.
    let by_name =
        Regex::new(r"(?:ProblemDetails::new|Self::new)\(\s*StatusCode::[A-Z_]+,\s*([^\s,]+)").unwrap();
    for (path, text) in &sources {
        // The one place that passes a code on.
        for found in by_name.captures_iter(text).filter(|found| &found[1] != "code") {
            assert!(found[1].starts_with('"'), "{path}: this test can't read the code {}", &found[1]);
        }
    }

    let text =
        |path: &str| sources.iter().find(|(name, _)| name == path).map(|(_, text)| text.as_str()).unwrap();
    let kinds = all(r#"FailureKind::[A-Za-z]+ => "([a-z_]+)""#, text("shared/domain/src/wire/report.rs"));
    assert!(kinds.len() > 8, "{kinds:?}");
    assert_eq!(rows(&page, "Kinds of failures"), kinds);
    let ends = all(r#"EndStatus::[A-Za-z]+ => "([a-z_]+)""#, text("shared/domain/src/wire/outcome.rs"));
    assert_eq!(rows(&page, "How a context ends"), ends);
    let ending = text("cli/src/terminal/ending.rs");
    let mut exits = all(r"Ending::[A-Za-z]+ => ([0-9]+),", ending);
    exits.extend(all(r"[A-Z_]+: u8 = ([0-9]+);", ending));
    assert_eq!(rows(&page, "Exit codes"), exits);
}

#[test]
fn every_event_is_described_with_its_fields() {
    let page = file("docs/reference/events.md");
    let schema = domain::schema::of::<trace::Event>();
    let kinds = schema["oneOf"].as_array().unwrap();
    let mut wrong = Vec::new();
    let mut named = BTreeSet::new();
    for kind in kinds {
        let name = kind["properties"]["type"]["const"].as_str().unwrap();
        named.insert(name.to_owned());
        let inner = kind["$ref"].as_str().map(|path| &schema["$defs"][path.rsplit('/').next().unwrap()]);
        let fields = |of: &Value| {
            of["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone())
                .collect::<BTreeSet<_>>()
        };
        let mut fields: BTreeSet<String> =
            fields(kind).into_iter().chain(inner.map(fields).unwrap_or_default()).collect();
        fields.remove("type");
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap_or_default();
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let told = all("`([^`]+)`", cell);
        if told != fields {
            wrong.push(format!("{name} has {fields:?}, and its row {told:?}"));
        }
    }
    assert!(wrong.is_empty(), "docs/reference/events.md:\n{}", wrong.join("\n"));
    let rows = all("(?m)^\\| `([a-z_]+)` \\|", &page);
    assert_eq!(rows, named, "rows of events that do not exist");
}
