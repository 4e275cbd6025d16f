//! Rules about the sources that neither the compiler nor a lint can check. The crates check the
//! layers, and `clippy.toml` the functions that a crate may not call.

use std::path::{Path, PathBuf};

/// The sources of the product.
const CRATES: [&str; 7] = [
    "shared",
    "coordinator/core/src",
    "client/src",
    "coordinator/src",
    "worker/src",
    "gateway/src",
    "cli/src",
];

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
fn subjects_are_written_in_one_folder() {
    for crate_name in CRATES {
        for (path, text) in sources(crate_name) {
            let product = text.split("#[cfg(test)]").next().unwrap_or(&text);
            if !path.components().any(|part| part.as_os_str() == "subject") {
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
        ("reqwest::", &["model", "relay", "http", "mcp"]),
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

/// A simulation depends on its seed alone: `select!` polls its branches in order. `clippy.toml`
/// forbids random numbers.
#[test]
fn nothing_that_is_simulated_chooses_by_chance() {
    for crate_name in CRATES {
        for (path, text) in sources(crate_name) {
            let shown = path.display().to_string();
            let product = text.split("#[cfg(test)]").next().unwrap_or(&text);
            // These need servers, programs or a person, and are not simulated.
            let real = ["bus/src/nats", "tool/mcp", "worker/src/sandbox", "cli/src", "gateway/src"];
            if !real.iter().any(|real| shown.contains(real)) {
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
        CRATES.into_iter().chain(["coordinator/core/world", "tests/src", "tests/it", "tests/benches"])
    {
        for (path, text) in sources(crate_name) {
            assert!(text.starts_with("//!"), "{} does not open with //!", path.display());
        }
    }
}

/// I4: a program may replace any file of its workspace by a link. Only the workspace opens files
/// beneath it, and follows no links. The bare path is only for the sandbox, which mounts it.
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

/// S5: a separate client would follow redirects, decompress, and buffer without a bound.
#[test]
fn s5_clients_for_others_servers_are_made_in_one_place() {
    let words = ["Client::builder(", "Client::new(", "reqwest::get(", "ClientTransport::from_"];
    for (path, text) in sources("worker/src") {
        let product = text.split("#[cfg(test)]").next().unwrap_or(&text);
        let is_relay = path.components().any(|part| part.as_os_str() == "relay");
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        // The client of models uses a client of the relay.
        let is_models = path.ends_with("model/provider.rs") && product.contains("with_reqwest(local)");
        if !is_relay && !is_test && !is_models {
            assert_eq!(breach(product, &words), None, "in {}", path.display());
        }
    }
}

/// Names of fields with foreign text: of users, providers, agents, programs and servers of tools.
const OF_OTHERS: [&str; 12] = [
    "message", "why", "reason", "problems", "refusal", "text", "goal", "panic", "prompt", "payload", "said",
    "failure",
];
/// Fields of such a name that contain our own text.
const OURS: [(&str, &str); 7] = [
    ("gateway/src/problem.rs", "reason"),
    ("shared/bus/src/memory/listeners.rs", "text"),
    ("coordinator/src/shard/load.rs", "reason"),
    ("shared/bus/src/keys.rs", "reason"),
    ("shared/bus/src/keys.rs", "why"),
    ("worker/src/sandbox/helper.rs", "reason"),
    ("worker/src/secret/values.rs", "why"),
];

/// The fields of every log line at a default level: `name = value`, `%name`, `?name` or `name`.
fn logged(text: &str) -> Vec<String> {
    let mut fields = Vec::new();
    for level in ["tracing::info!(", "tracing::warn!(", "tracing::error!("] {
        for (at, _) in text.match_indices(level) {
            let (mut depth, mut quoted, mut field, mut last) = (1, false, String::new(), ' ');
            for c in text[at + level.len()..].chars() {
                match c {
                    '"' if last != '\\' => quoted = !quoted,
                    _ if quoted => {}
                    '(' | '{' | '[' => depth += 1,
                    ')' | '}' | ']' => depth -= 1,
                    _ => {}
                }
                last = c;
                if depth == 0 {
                    break;
                }
                if c == ',' && depth == 1 && !quoted {
                    fields.push(std::mem::take(&mut field));
                } else if !quoted && c != '"' {
                    field.push(c);
                }
            }
            fields.push(field);
        }
    }
    fields
}

/// Returns the matching name if a field contains foreign text, judged by the field's name or by the
/// name of its value.
fn is_of_others(field: &str) -> Option<&'static str> {
    let (name, shown) = field.split_once('=').unwrap_or((field, field));
    let last = |text: &str| {
        text.trim().trim_start_matches(['%', '?', '&']).rsplit(['.', ' ']).next().map(str::to_owned)
    };
    OF_OTHERS
        .into_iter()
        .find(|word| last(name).as_deref() == Some(word) || last(shown).as_deref() == Some(word))
}

/// S2: at the default levels a log has only our own words, names and numbers. Foreign text is
/// logged at DEBUG.
#[test]
fn s2_logs_that_are_shown_by_default_have_no_text_of_others() {
    assert_eq!(is_of_others("message = refusal.message"), Some("message"));
    assert_eq!(is_of_others(" %problems"), Some("problems"));
    assert_eq!(is_of_others("code = refusal.code"), None);
    assert_eq!(
        logged("tracing::warn!(a = f(b, c), %why, \"x, {}\", e.message);"),
        ["a = f(b, c)", " %why", " ", " e.message"]
    );
    let mut found = Vec::new();
    for crate_name in CRATES {
        for (path, text) in sources(crate_name) {
            let path = path.strip_prefix(root()).unwrap().display().to_string();
            let product = text.split("#[cfg(test)]").next().unwrap_or(&text);
            for field in logged(product) {
                if let Some(word) = is_of_others(&field)
                    && !OURS.contains(&(path.as_str(), word))
                {
                    found.push(format!("{path}: {}", field.trim()));
                }
            }
        }
    }
    assert!(found.is_empty(), "log the text at DEBUG, and its code or kind here:\n{}", found.join("\n"));
}
/// I4: no other code of the worker opens files by path, so that none is opened through a link that
/// a program made. The named places open only files that no program can have replaced.
#[test]
fn i4_files_are_opened_by_their_paths_in_named_places_only() {
    let named = [
        // The directories that hold workspaces, and their removal; not the files inside a
        // workspace.
        "worker/src/files/workspace.rs",
        "worker/src/files/worker_directory.rs",
        // The kernel's own files.
        "worker/src/sandbox/",
        // A file that the operator names in the settings.
        "worker/src/secret/source.rs",
    ];
    let words = [
        "fs::read",
        "fs::write",
        "fs::copy",
        "fs::create_dir",
        "fs::metadata",
        "File::",
        "OpenOptions",
        "tokio::fs",
    ];
    for (path, text) in sources("worker/src") {
        let shown = path.display().to_string();
        let product = text.split("#[cfg(test)]").next().unwrap_or(&text);
        let is_named = named.iter().any(|named| shown.contains(named)) || shown.contains("tests");
        assert!(is_named || breach(product, &words).is_none(), "{:?} in {shown}", breach(product, &words));
    }
}

/// The arguments of every macro call that begins like this, without quoted text.
fn arguments<'a>(text: &'a str, call: &'a str) -> impl Iterator<Item = String> + 'a {
    text.match_indices(call).map(move |(at, _)| {
        let (mut depth, mut quoted, mut escaped, mut found) = (1, false, false, String::new());
        for letter in text[at + call.len()..].chars() {
            match letter {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                _ if quoted => {}
                '(' => depth += 1,
                ')' if depth == 1 => break,
                ')' => depth -= 1,
                other => found.push(other),
            }
        }
        found
    })
}

#[test]
fn x8_no_field_of_a_log_line_is_called_message() {
    let named = |arguments: &str| {
        let names = arguments.split(',').map(|argument| argument.split('=').next().unwrap_or_default());
        names.map(|name| name.trim().trim_start_matches(['%', '?'])).any(|name| name == "message")
    };
    assert!(arguments("tracing::warn!(message = told, \"why\")", "tracing::warn!(").any(|call| named(&call)));
    assert!(arguments("tracing::debug!(%message)", "tracing::debug!(").any(|call| named(&call)));
    for crate_name in CRATES {
        for (path, text) in sources(crate_name) {
            for name in ["error", "warn", "info", "debug", "trace"] {
                for call in [format!("tracing::{name}!("), format!("tracing::{name}_span!(")] {
                    let wrong = arguments(&text, &call).find(|call| named(call));
                    assert_eq!(
                        wrong,
                        None,
                        "in {}: the key `message` is reserved for the text of the line",
                        path.display()
                    );
                }
            }
        }
    }
}
