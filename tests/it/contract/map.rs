//! Every path that ARCHITECTURE.md and README.md name exists, and the map in ARCHITECTURE.md covers every
//! source file. How the map is read: a line begins with names (`a/`, `b.rs`), then says what they are for.
//! - A line that is not indented names paths from the root. A single directory there opens a block; names on
//!   the indented lines below are beneath it.
//! - `trace/` covers everything beneath, as does the directory of a block without lines; `{a,b}.rs` names two
//!   files; after `trace/a.rs`, `b.rs` may lie beside it. `lib.rs`, `main.rs` and `mod.rs` need no line.

use std::{collections::BTreeSet, fs, path::Path};

/// Directories whose files the map must cover.
const CODE: [&str; 9] = [
    "shared/src",
    "coordinator/src",
    "worker/src",
    "gateway/src",
    "cli/src",
    "cli/tests",
    "tests/src",
    "tests/it",
    "tests/benches",
];
/// What a path from the root begins with.
const ROOTS: [&str; 11] = [
    "shared/",
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

/// Every source file, from the root.
fn sources() -> Vec<String> {
    fn walk(path: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                walk(&entry, found);
            } else if entry.extension().is_some_and(|ending| ending == "rs" || ending == "lua") {
                found.push(entry.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    let mut found = Vec::new();
    CODE.iter().for_each(|directory| walk(&root().join(directory), &mut found));
    found
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

/// A directory, or a file with an ending.
fn is_name(word: &str) -> bool {
    let ending = word.rsplit_once('.').map(|(_, ending)| ending);
    let file =
        ending.is_some_and(|ending| ["rs", "lua", "md", "toml", "yml", "yaml", "py"].contains(&ending));
    file || word.ends_with('/') || word == "Dockerfile"
}

/// What the map names, each as the paths it may stand for.
fn mapped(map: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut block: Option<(String, bool)> = None;
    for line in map.lines().filter(|line| !line.trim().is_empty()) {
        let names: Vec<&str> = line.split_whitespace().take_while(|word| is_name(word)).collect();
        let indented = line.starts_with(' ');
        if !indented {
            // A block that had no lines covers its directory.
            found.extend(block.take().filter(|(_, lines)| !lines).map(|(directory, _)| vec![directory]));
            if let [directory] = names.as_slice()
                && directory.ends_with('/')
            {
                block = Some(((*directory).to_owned(), false));
                continue;
            }
        }
        let base = block.as_ref().filter(|_| indented).map_or("", |(directory, _)| directory).to_owned();
        block = block.filter(|_| indented).map(|(directory, _)| (directory, true));
        let mut beside = String::new();
        for name in names.into_iter().flat_map(expand) {
            let (here, there) = (format!("{base}{name}"), format!("{base}{beside}{name}"));
            if let Some((directory, _)) = name.rsplit_once('/') {
                beside = format!("{directory}/");
            }
            found.push(vec![there, here]);
        }
    }
    found.extend(block.filter(|(_, lines)| !lines).map(|(directory, _)| vec![directory]));
    found
}

/// Files that no name of the map covers.
fn uncovered(map: &str, files: &[String]) -> Vec<String> {
    let names: BTreeSet<String> = mapped(map).into_iter().flatten().collect();
    let covered = |file: &String| {
        let folder = names.iter().any(|name| name.ends_with('/') && file.starts_with(name.as_str()));
        let root = ["/lib.rs", "/main.rs", "/mod.rs"].iter().any(|name| file.ends_with(name));
        folder || root || names.contains(file)
    };
    files.iter().filter(|file| !covered(file)).cloned().collect()
}

/// Paths in a text that lead nowhere: those from the root, and `.rs` files in backticks, which are named from
/// a directory of the path before them.
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

/// The text of ARCHITECTURE.md before its map, the map, and what follows.
fn architecture() -> (String, String, String) {
    let page = file("ARCHITECTURE.md");
    let (before, rest) = page.split_once("\n## Map\n\n```\n").expect("a map in ARCHITECTURE.md");
    let (map, after) = rest.split_once("\n```\n").expect("the map ends");
    (before.to_owned(), map.to_owned(), after.to_owned())
}

#[test]
fn every_path_in_the_documents_exists() {
    let (before, map, after) = architecture();
    let mut wrong: Vec<String> = Vec::new();
    for (name, text) in [("ARCHITECTURE.md", before + &after), ("README.md", file("README.md"))] {
        wrong.extend(missing(&text, exists).iter().map(|path| format!("{name}: {path}")));
    }
    let gone = mapped(&map).into_iter().filter(|paths| !paths.iter().any(|path| exists(path)));
    wrong.extend(gone.map(|paths| format!("the map: {}", paths.join(" or "))));
    assert!(wrong.is_empty(), "there is no\n{}", wrong.join("\n"));
}

#[test]
fn the_map_covers_every_source_file() {
    let (_, map, _) = architecture();
    let missing = uncovered(&map, &sources());
    assert!(missing.is_empty(), "not in the map of ARCHITECTURE.md:\n{}", missing.join("\n"));
}

#[test]
fn the_architecture_fits_two_hundred_lines() {
    assert!(file("ARCHITECTURE.md").lines().count() <= 200);
}

/// The reader itself, on a small map and text.
#[test]
fn a_planted_gap_is_found() {
    let map =
        "a/src/\n  one.rs two.rs   things\n  deep/{x,y}.rs z.rs  more\n  all/   a folder\nb/src/   no lines";
    let files = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let there = [
        "a/src/one.rs",
        "a/src/deep/y.rs",
        "a/src/deep/z.rs",
        "a/src/all/in/it.rs",
        "b/src/q.rs",
        "a/src/lib.rs",
    ];
    assert_eq!(uncovered(map, &files(&there)), files(&[]));
    let gaps = files(&["a/src/three.rs", "a/src/deep/w.rs", "c/src/q.rs"]);
    assert_eq!(uncovered(map, &gaps), gaps);

    let exists = |path: &str| ["docs/a.md", "cli/src/command/run.rs", "cli/src/main.rs"].contains(&path);
    assert_eq!(missing("see [it](docs/a.md), `cli/src/command/run.rs` and `main.rs`.", exists), files(&[]));
    assert_eq!(
        missing("`docs/b.md`; `cli/src/command/{run,gone}.rs`", exists),
        files(&["docs/b.md", "cli/src/command/gone.rs"])
    );
    assert_eq!(missing("`cli/src/main.rs` then `lost.rs`", exists), files(&["lost.rs"]));
}
