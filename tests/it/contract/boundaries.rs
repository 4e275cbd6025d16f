//! Invariants about the sources: which part of the code must not use which library, function or word.

use std::path::{Path, PathBuf};

pub(super) fn sources(under: &str) -> Vec<(PathBuf, String)> {
    fn walk(path: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&entry).unwrap();
                found.push((entry, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(under), &mut found);
    assert!(!found.is_empty(), "nothing under {under}");
    found
}

pub(super) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The first line of code, without comments, that contains one of the words.
fn breach<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.into_iter().find(|line| words.iter().any(|word| line.contains(word)))
}

#[test]
fn the_core_has_no_io_clock_or_randomness() {
    let words = [
        "async ",
        ".await",
        "tokio",
        "std::fs",
        "std::net",
        "std::io",
        "std::env",
        "std::thread",
        "SystemTime",
        "Instant",
        "rand::",
        "uuid",
        "println!",
        "async_nats",
        "redis::",
    ];
    for (path, text) in sources("coordinator/src/trace") {
        assert_eq!(breach(&text, &words), None, "in {}", path.display());
    }
}

#[test]
fn shared_depends_on_neither_coordinator_nor_worker_nor_they_on_each_other() {
    let dependencies = |name: &str| std::fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
    for (who, whom) in [
        ("shared", "coordinator"),
        ("shared", "worker"),
        ("coordinator", "worker"),
        ("worker", "coordinator"),
    ] {
        let manifest = dependencies(who);
        let listed = manifest.lines().any(|line| line.starts_with(whom));
        assert!(!listed, "{who} depends on {whom}");
    }
}

#[test]
fn subjects_are_written_in_one_file() {
    for crate_name in ["shared/src", "coordinator/src", "worker/src", "cli/src"] {
        for (path, text) in sources(crate_name) {
            let product = text.split("#[cfg(test)]").next().unwrap_or(&text);
            if !path.ends_with("subject.rs") {
                assert_eq!(breach(product, &["\"agent."]), None, "in {}", path.display());
            }
        }
    }
}

#[test]
fn each_library_of_the_worker_is_known_in_one_place() {
    let homes = [
        ("genai::", &["model"][..]),
        ("genai_prices", &["model"]),
        ("reqwest::", &["model", "http", "mcp"]),
        ("rmcp::", &["mcp"]),
        ("landlock::", &["sandbox"]),
        ("seccompiler::", &["sandbox"]),
    ];
    for (path, text) in sources("worker/src") {
        for (word, homes) in homes {
            let at_home = path.components().any(|part| homes.iter().any(|home| part.as_os_str() == *home));
            assert!(at_home || breach(&text, &[word]).is_none(), "{word} in {}", path.display());
        }
    }
}

/// B3: a paid call is made behind a hold, so it is made in one place.
#[test]
fn b3_models_are_called_in_one_place() {
    for (path, text) in sources("worker/src") {
        let allowed =
            path.components().any(|part| part.as_os_str() == "model" || part.as_os_str() == "billing");
        if !allowed {
            assert_eq!(breach(&text, &["models.complete("]), None, "in {}", path.display());
        }
    }
}

#[test]
fn only_the_store_knows_redis() {
    for crate_name in ["shared/src", "coordinator/src", "worker/src", "cli/src"] {
        for (path, text) in sources(crate_name) {
            if !path.components().any(|part| part.as_os_str() == "store") {
                assert_eq!(breach(&text, &["redis::"]), None, "in {}", path.display());
            }
        }
    }
}

#[test]
fn opentelemetry_and_the_clocks_are_known_in_one_place_each() {
    for crate_name in ["shared/src", "coordinator/src", "worker/src", "cli/src"] {
        for (path, text) in sources(crate_name) {
            let shown = path.display().to_string();
            if !shown.contains("shared/src/telemetry") {
                assert_eq!(breach(&text, &["opentelemetry::", "opentelemetry_"]), None, "in {shown}");
            }
            if !shown.contains("shared/src/clock.rs") {
                assert_eq!(breach(&text, &["CLOCK_", "ClockId"]), None, "in {shown}");
            }
        }
    }
}

/// What the simulation runs depends on nothing but its seed: random numbers come from one place, and `select!` does not
/// choose by chance.
#[test]
fn nothing_that_is_simulated_chooses_by_chance() {
    for crate_name in ["shared/src", "coordinator/src", "worker/src"] {
        for (path, text) in sources(crate_name) {
            let shown = path.display().to_string();
            let product = text.split("#[cfg(test)]").next().unwrap_or(&text);
            if !shown.contains("shared/src/random.rs") && !shown.contains("/tests") {
                assert_eq!(breach(product, &["new_v4(", "now_v7(", "RandomState"]), None, "in {shown}");
            }
            // What needs servers or programs is not simulated.
            if !["bus/nats", "tool/mcp", "worker/src/sandbox"].iter().any(|real| shown.contains(real)) {
                let chance =
                    product.split("select! {").skip(1).find(|body| !body.trim_start().starts_with("biased;"));
                assert_eq!(chance, None, "in {shown}");
            }
        }
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    for crate_name in
        ["shared/src", "coordinator/src", "worker/src", "cli/src", "tests/src", "tests/it", "tests/benches"]
    {
        for (path, text) in sources(crate_name) {
            assert!(text.starts_with("//!"), "{} does not open with //!", path.display());
        }
    }
}

#[test]
fn the_code_has_no_todos() {
    for crate_name in ["shared/src", "coordinator/src", "worker/src", "cli/src"] {
        for (path, text) in sources(crate_name) {
            assert_eq!(
                breach(&text, &["todo!", "unimplemented!", "FIXME", "#[ignore"]),
                None,
                "in {}",
                path.display()
            );
        }
    }
}

/// I4: a program may replace any file of its workspace by a link. Only the workspace opens files beneath it, without
/// following links; the bare path is for the sandbox alone, which mounts it.
#[test]
fn i4_only_the_sandbox_gets_the_bare_path_of_a_workspace() {
    for (path, text) in sources("worker/src") {
        let product = text.split("#[cfg(test)]").next().unwrap_or(&text);
        let starts_programs = path.ends_with("agent/command/launch.rs") || path.ends_with("check/outside.rs");
        if !starts_programs && !path.ends_with("workspace/tests.rs") {
            assert_eq!(breach(product, &["workspace.path()"]), None, "in {}", path.display());
        }
    }
}
