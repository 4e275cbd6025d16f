//! No two files of a crate import each other, directly or over others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::{Imports, imports, listed, read};

/// Each set of files in which every file reaches every other: each holds at least one circle.
pub(super) fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let mut beneath: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in imports.keys() {
        beneath.entry(from).or_default().insert(to);
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        beneath.keys().map(|from| (*from, reachable(from, &beneath))).collect();
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (from, reached) in &reach {
        let back = |to: &&&str| reach.get(**to).is_some_and(|reached| reached.contains(from));
        let circle: BTreeSet<String> = reached.iter().filter(back).map(|file| (*file).to_owned()).collect();
        if !circle.is_empty() {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn reachable<'a>(from: &str, beneath: &BTreeMap<&str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(file) = open.pop() {
        for next in beneath.get(file).into_iter().flatten() {
            if reached.insert(*next) {
                open.push(next);
            }
        }
    }
    reached
}

/// Each circle with its files and, for each import between them, the names that tie it.
fn describe(crate_name: &str, imports: &Imports) -> String {
    let mut text = String::new();
    for circle in circles(imports) {
        writeln!(text, "{crate_name}: {} files import each other in a circle:", circle.len()).unwrap();
        for ((from, to), names) in imports {
            if circle.contains(from) && circle.contains(to) {
                writeln!(text, "  {from} → {to}: {}", listed(names)).unwrap();
            }
        }
    }
    text
}

#[test]
fn no_files_of_a_crate_import_each_other_in_a_circle() {
    let found: String = ["shared", "coordinator", "worker", "gateway", "cli"]
        .map(|name| describe(name, &imports(&read(name))))
        .concat();
    assert!(found.is_empty(), "\n{found}");
}
