//! Imports of a crate go to the same layer or to one beneath it. The tables are the layers: edit them here.

use std::fmt::Write as _;

use super::{Sources, listed, module_tree::Crate, names, read};

/// The layers of a crate, top first. A layer is a row of names: folders (`command`) and files (`main.rs`, also
/// `store/keys.rs`). A longer name goes before a shorter one: `store/keys.rs` may stand in another layer than `store`.
type Layers = &'static [&'static [&'static str]];

const SHARED: Layers = &[
    &["lib.rs"],
    &["role.rs"],
    &["bus", "telemetry", "health.rs"],
    &["subject.rs", "schedule"],
    &["webhook", "journal_text.rs", "prompt_text.rs"],
    &["wire"],
    &["graph", "lines.rs"],
    &["decode.rs"],
    &["schema.rs"],
    &["agent_policy.rs"],
    &["agent.rs"],
    &["check.rs"],
    &["json_schema.rs"],
    &[
        "limits.rs",
        "set_limit.rs",
        "ladder.rs",
        "labels.rs",
        "secrets.rs",
        "terms.rs",
        "usage.rs",
        "sandbox.rs",
        "tool.rs",
    ],
    &["signature.rs"],
    &["clock.rs", "crash.rs", "disk", "keys.rs", "link.rs", "random.rs"],
    &[
        "money.rs",
        "id.rs",
        "json.rs",
        "depth.rs",
        "time.rs",
        "problem.rs",
        "digest.rs",
        "text.rs",
        "when.rs",
        "tls.rs",
        "internet.rs",
    ],
];

const COORDINATOR: Layers = &[
    &["lib.rs"],
    &["run.rs", "rehearsal.rs"],
    &["inbound", "ownership"],
    &["shard"],
    &["audit.rs"],
    &["branches.rs", "dead_letter.rs", "earlier.rs", "spans.rs", "tick.rs", "webhooks.rs"],
    &["handles.rs", "directory.rs", "health.rs"],
    &["policy.rs", "profile_log.rs", "schedules.rs", "kept.rs"],
    &["epoch.rs", "clock.rs", "config.rs", "crash.rs", "removal.rs", "room.rs", "trouble.rs", "sealed"],
    &["store"],
    &["trace", "schedule"],
];

const WORKER: Layers = &[
    &["lib.rs"],
    &["service", "price_table.rs"],
    &["delivery"],
    &["agent"],
    &["billing"],
    &["check"],
    &["tool"],
    &["journal"],
    &["sandbox"],
    &["files"],
    &["model"],
    &["attempt"],
    &["secret"],
    &["relay"],
    &["config.rs"],
    &["crash.rs", "error.rs", "retry.rs", "settings.rs", "simulated_provider.rs"],
];

const GATEWAY: Layers = &[
    &["lib.rs"],
    &["server.rs"],
    &["router.rs", "door.rs"],
    &["page"],
    &["routes", "carried.rs", "openapi.rs"],
    &["route.rs", "sse.rs"],
    &["call.rs", "types.rs"],
    &["watched.rs"],
    &["doctor", "today.rs"],
    &["cluster.rs"],
    &["blocking.rs", "dead_letter.rs", "session.rs", "streams.rs"],
    &["parameter.rs", "problem.rs", "token.rs"],
    &["config.rs", "patience.rs", "range.rs", "rate.rs", "saw.rs", "seen.rs"],
];

const CLI: Layers = &[&["main.rs"], &["command"], &["input"], &["terminal"], &["cluster"]];

/// One line for each import that goes up, each file without a layer, and each name of the table that no file has.
fn breaches(crate_name: &str, layers: &[&[&str]], sources: &Sources) -> String {
    let mut text = String::new();
    let parsed = Crate::parse(sources);
    let files = || parsed.files.iter().map(|file| file.path.as_str());
    for path in files().filter(|path| layer(layers, path).is_none()) {
        writeln!(text, "{crate_name}/{path}: stands in no layer; name it or its folder in the table")
            .unwrap();
    }
    for name in layers.iter().copied().flatten().filter(|name| !files().any(|path| covers(name, path))) {
        writeln!(text, "{crate_name}: the table names `{name}`, and there is no such file or folder")
            .unwrap();
    }
    for ((from, to), names) in &names::imports(&parsed) {
        if let (Some(above), Some(beneath)) = (layer(layers, from), layer(layers, to))
            && above > beneath
        {
            writeln!(text, "{crate_name}/{from} → {to} goes up: {}", listed(names)).unwrap();
        }
    }
    text
}

/// The number of a file's layer, the top one being 0.
fn layer(layers: &[&[&str]], path: &str) -> Option<usize> {
    let named =
        layers.iter().enumerate().flat_map(|(number, names)| names.iter().map(move |name| (number, *name)));
    named.filter(|(_, name)| covers(name, path)).max_by_key(|(_, name)| name.len()).map(|(number, _)| number)
}

fn covers(name: &str, path: &str) -> bool {
    path == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))
}

#[test]
fn imports_of_a_crate_only_go_down_its_layers() {
    let tables = [
        ("shared", SHARED),
        ("coordinator", COORDINATOR),
        ("worker", WORKER),
        ("gateway", GATEWAY),
        ("cli", CLI),
    ];
    let found = tables.map(|(name, layers)| breaches(name, layers, &read(name)));
    assert!(found.concat().is_empty(), "\n{}", found.concat());
}

#[test]
fn an_upward_import_a_file_without_a_layer_and_a_stale_name_are_found() {
    let sources = super::planted::sources(&[
        ("lib.rs", "mod top; mod ground; mod stray;"),
        ("top/mod.rs", "use crate::ground::below; pub fn above() { below() }"),
        ("ground.rs", "pub fn below() { crate::top::above() }"),
        ("stray.rs", ""),
    ]);
    let layers: &[&[&str]] = &[&["lib.rs"], &["top"], &["ground.rs"], &["gone"]];
    let found = breaches("planted", layers, &sources);
    assert_eq!(
        found,
        "planted/stray.rs: stands in no layer; name it or its folder in the table\n\
         planted: the table names `gone`, and there is no such file or folder\n\
         planted/ground.rs → top/mod.rs goes up: above\n"
    );
}
