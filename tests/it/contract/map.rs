//! Every path that ARCHITECTURE.md, CONTRIBUTING.md and README.md name exists, and the map in
//! ARCHITECTURE.md has a line for every folder of sources. A line of the map begins with one or
//! more folders (`a/ b/`), followed by their purpose. A line without indentation names folders from
//! the root; an indented line names folders beneath the one above. The folder of a line without
//! indentation covers the files in it, the folder of an indented line everything beneath it.

use std::{collections::BTreeSet, fs, path::Path};

/// Folders whose sources the map covers.
const CODE: [&str; 7] = ["shared", "client", "coordinator", "worker", "gateway", "cli", "tests"];
/// The first folder of a path from the root.
const ROOTS: [&str; 12] = [
    "shared/",
    "client/",
    "coordinator/",
    "worker/",
    "gateway/",
    "cli/",
    "tests/",
    "docs/",
    "examples/",
    "scripts/",
    "deploy/",
    ".github/",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn exists(path: &str) -> bool {
    root().join(path).exists()
}

/// Every folder that contains a source file, from the root.
fn folders() -> BTreeSet<String> {
    fn walk(path: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|ending| ending == "rs" || ending == "lua") {
                let folder = entry.strip_prefix(root()).unwrap().parent().unwrap();
                found.insert(format!("{}/", folder.display()));
            }
        }
    }
    let mut found = BTreeSet::new();
    CODE.iter().for_each(|directory| walk(&root().join(directory), &mut found));
    found
}

/// The folders that the map names, each with a flag: it covers everything beneath it.
fn mapped(map: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut above = String::new();
    for line in map.lines().filter(|line| !line.is_empty()) {
        let names: Vec<&str> = line.split_whitespace().take_while(|word| word.ends_with('/')).collect();
        let indented = line.starts_with(' ');
        if !indented {
            above = names.first().copied().unwrap_or_default().to_owned();
        }
        let base = if indented { above.as_str() } else { "" };
        found.extend(names.iter().map(|name| (format!("{base}{name}"), indented)));
    }
    found
}

/// Folders that no line of the map covers.
fn uncovered<'a>(map: &str, folders: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let lines = mapped(map);
    let covered = |folder: &str| {
        lines.iter().any(|(name, beneath)| folder == name || (*beneath && folder.starts_with(name.as_str())))
    };
    folders.into_iter().filter(|folder| !covered(folder)).cloned().collect()
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn expand(name: &str) -> Vec<String> {
    let parts = name.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match parts {
        Some((before, (choices, after))) => {
            choices.split(',').map(|choice| format!("{before}{choice}{after}")).collect()
        }
        None => vec![name.to_owned()],
    }
}

/// Missing paths in a text: paths from the root, and `.rs` files in backticks, which are relative
/// to a directory of the path before them.
fn missing(text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut before = String::new();
    let word_end = |c: char| c.is_whitespace() || "`()[]\"'|;".contains(c);
    for word in text.split(word_end).map(|word| word.trim_end_matches([',', '.', ':'])) {
        for path in expand(word).into_iter().filter(|path| !path.contains(['*', '<', '…'])) {
            let full = ROOTS.iter().any(|root| path.starts_with(root));
            let relative = !full && path.ends_with(".rs");
            let above = Path::new(&before).ancestors().skip(1);
            let beneath = |directory: &Path| directory.join(&path).to_string_lossy().into_owned();
            let resolved = match (full, relative) {
                (true, _) => Some(path.clone()).filter(|path| exists(path)),
                (false, true) => above.map(beneath).find(|path| exists(path)),
                (false, false) => continue,
            };
            found.extend(resolved.is_none().then(|| path.clone()));
            if full || resolved.is_some() {
                before = resolved.unwrap_or(path);
            }
        }
    }
    found
}

/// The text of ARCHITECTURE.md without its map, and the map.
fn architecture() -> (String, String) {
    let page = file("ARCHITECTURE.md");
    let (before, rest) = page.split_once("\n## Map\n").expect("a map in ARCHITECTURE.md");
    let (_, rest) = rest.split_once("\n```\n").expect("the map begins");
    let (map, after) = rest.split_once("\n```\n").expect("the map ends");
    (format!("{before}{after}"), map.to_owned())
}

#[test]
fn every_path_in_the_documents_exists() {
    let (text, map) = architecture();
    let texts = [
        ("ARCHITECTURE.md", text),
        ("README.md", file("README.md")),
        ("CONTRIBUTING.md", file("CONTRIBUTING.md")),
    ];
    let mut wrong: Vec<String> = Vec::new();
    for (name, text) in texts {
        wrong.extend(missing(&text, exists).iter().map(|path| format!("{name}: {path}")));
    }
    let gone = mapped(&map).into_iter().filter(|(path, _)| !exists(path));
    wrong.extend(gone.map(|(path, _)| format!("the map: {path}")));
    assert!(wrong.is_empty(), "missing paths:\n{}", wrong.join("\n"));
}

#[test]
fn the_map_has_a_line_for_every_folder() {
    let (_, map) = architecture();
    let missing = uncovered(&map, &folders());
    assert!(missing.is_empty(), "not in the map of ARCHITECTURE.md:\n{}", missing.join("\n"));
}

#[test]
fn the_architecture_fits_two_hundred_lines() {
    assert!(file("ARCHITECTURE.md").lines().count() <= 200);
}

/// The reader itself, on a small map and text.
#[test]
fn a_planted_gap_is_found() {
    let map = "a/src/   things\n  one/ two/   more\nb/ c/   folders";
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let covered = of(&["a/src/", "a/src/one/", "a/src/two/deep/", "b/", "c/"]);
    assert_eq!(uncovered(map, &covered), of(&[]));
    let gaps = of(&["a/src/three/", "b/deep/", "d/"]);
    assert_eq!(uncovered(map, &gaps), gaps);

    let exists = |path: &str| ["docs/a.md", "cli/src/command/run.rs", "cli/src/main.rs"].contains(&path);
    assert_eq!(missing("see [it](docs/a.md), `cli/src/command/run.rs` and `main.rs`.", exists), of(&[]));
    assert_eq!(
        missing("`docs/b.md`; `cli/src/command/{run,gone}.rs`", exists),
        of(&["docs/b.md", "cli/src/command/gone.rs"])
    );
    assert_eq!(missing("`cli/src/main.rs` then `lost.rs`", exists), of(&["lost.rs"]));
}
