//! Our dependencies satisfy `deny.toml`: licences, sources, versions. Advisories need cargo-deny
//! and its database, which scripts/test uses where they are installed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> Value {
    toml::from_str(&std::fs::read_to_string(root().join(path)).unwrap()).unwrap()
}

fn rules() -> Value {
    read("deny.toml")
}

/// The metadata that Cargo reports for the workspace in a directory, with the crates built on this
/// platform.
pub(super) fn metadata(directory: &Path) -> Value {
    let host = Command::new("rustc").arg("-vV").output().unwrap();
    let host = String::from_utf8(host.stdout).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", host]);
    let output = cargo.current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The crates built on this platform, including the workspace's own.
fn crates() -> Vec<Value> {
    serde_json::from_value(metadata(&root())["packages"].take()).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> BTreeSet<&'a str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| text(if field.is_empty() { entry } else { &entry[field] }))
        .collect()
}

/// Returns whether allowed licences satisfy an expression such as `(MIT OR Apache-2.0) AND ISC`.
/// `/` is an old way to write `OR`.
fn allowed(expression: &str, allow: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let met = either(&mut words, allow);
    met && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>, allow: &BTreeSet<&str>) -> bool {
    let mut met = both(words, allow);
    while words.next_if_eq(&"OR").is_some() {
        met |= both(words, allow);
    }
    met
}

fn both(words: &mut Words<'_>, allow: &BTreeSet<&str>) -> bool {
    let mut met = one(words, allow);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allow);
    }
    met
}

fn one(words: &mut Words<'_>, allow: &BTreeSet<&str>) -> bool {
    match words.next() {
        Some("(") => {
            let met = either(words, allow);
            met & (words.next() == Some(")"))
        }
        Some(licence) if words.next_if_eq(&"WITH").is_some() => {
            let exception = words.next().unwrap_or_default();
            allow.contains(format!("{licence} WITH {exception}").as_str())
        }
        Some(licence) => allow.contains(licence),
        None => false,
    }
}

#[test]
fn licence_expressions_are_read_as_their_authors_mean_them() {
    let allow = BTreeSet::from(["MIT", "ISC", "A WITH x"]);
    for yes in
        ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND ISC", "A WITH x", "MIT OR A WITH y"]
    {
        assert!(allowed(yes, &allow), "{yes}");
    }
    for no in [
        "",
        "GPL-3.0",
        "GPL-3.0 AND MIT",
        "A WITH y",
        "A",
        "(MIT",
        "MIT)",
        "MIT ISC",
        "MIT OR ISC AND (GPL-3.0)x",
    ] {
        assert!(!allowed(no, &allow), "{no}");
    }
}

#[test]
fn every_crate_has_an_allowed_licence() {
    let rules = rules();
    let allow = list(&rules["licenses"]["allow"], "");
    let crates = crates();
    let refused: Vec<String> = crates
        .iter()
        .filter(|package| !allowed(text(&package["license"]), &allow))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(crates.len() > 100 && refused.is_empty(), "{refused:#?}");
}

/// Each crate has a checksum: the built sources are the reviewed ones, whichever server delivers
/// them.
#[test]
fn every_crate_comes_from_the_registry_with_a_checksum() {
    let lock = read("Cargo.lock");
    for package in lock["package"].as_array().unwrap() {
        let Some(source) = package.get("source") else {
            assert!(text(&package["name"]).starts_with("trellis"), "{package}: not in this workspace");
            continue;
        };
        assert!(text(source).starts_with("registry+"), "{package}");
        assert_eq!(text(&package["checksum"]).len(), 64, "{package}");
    }
}

#[test]
fn no_crate_is_built_twice_or_forbidden_unless_listed() {
    let (rules, crates) = (rules(), crates());
    let bans = &rules["bans"];
    let forbidden = list(&bans["deny"], "crate");
    let mut versions: BTreeMap<&str, Vec<(Vec<u64>, String)>> = BTreeMap::new();
    for package in &crates {
        let name = text(&package["name"]);
        assert!(!forbidden.contains(name), "{name} is forbidden");
        let version = text(&package["version"]).split('+').next().unwrap();
        let numbers = version.split(['.', '-']).filter_map(|number| number.parse().ok()).collect();
        versions.entry(name).or_default().push((numbers, format!("{name}@{version}")));
    }
    let earlier = versions.values_mut().flat_map(|versions| {
        versions.sort();
        let newest = versions.len() - 1;
        versions[..newest].iter().map(|(_, version)| version.as_str())
    });
    assert_eq!(
        earlier.collect::<BTreeSet<_>>(),
        list(&bans["skip"], "crate"),
        "the versions other than the newest"
    );
}
