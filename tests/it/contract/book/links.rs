//! Every link of a page leads to an existing file and heading; every page of docs/ is in the book.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::Regex;
use serde_json::Value;
use trellis_tests::processes::repository;

use super::{file, page::Page, pages};

/// The links of a page: each with its line and target.
fn targets(page: &Page) -> Vec<(usize, String)> {
    static LINK: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\]\(([^()\s]*(?:\([^()]*\))?[^()\s]*)\)").unwrap());
    let of = |(line, text): &(usize, String)| {
        LINK.captures_iter(text).map(|found| (*line, found[1].to_owned())).collect::<Vec<_>>()
    };
    page.prose.iter().flat_map(of).collect()
}

/// All mistakes in the links of a page at `path`.
fn dead(path: &str, page: &Page, has: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for (line, target) in targets(page) {
        if ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
            continue;
        }
        let (to, anchor) =
            target.split_once('#').map_or((target.as_str(), None), |(to, anchor)| (to, Some(anchor)));
        let to = if to.is_empty() { Some(path.to_owned()) } else { beneath_top(folder, to) };
        let there = to.as_ref().filter(|to| repository().join(to).exists());
        match (there, anchor) {
            (None, _) => wrong.push(format!("{path}:{line}: {target}: there is no such file")),
            (Some(to), Some(anchor)) if !has(to, anchor) => {
                wrong.push(format!("{path}:{line}: {target}: there is no such heading"));
            }
            (Some(_), _) => {}
        }
    }
    wrong
}

/// Resolves a path relative to a folder. Returns it from the top of the repository.
fn beneath_top(folder: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in to.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let read: BTreeMap<String, Page> =
        pages().into_iter().map(|path| (path.clone(), Page::read(&file(&path)))).collect();
    let has = |to: &str, anchor: &str| match to.strip_suffix(".json") {
        Some(_) => serde_json::from_str::<Value>(&file(to)).unwrap().pointer(anchor).is_some(),
        None => read.get(to).is_some_and(|page| page.anchors.contains(anchor)),
    };
    let wrong: Vec<String> = read.iter().flat_map(|(path, page)| dead(path, page, has)).collect();
    let links: usize = read.values().map(|page| targets(page).len()).sum();
    assert!(links > 200, "only {links} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_in_the_book() {
    let summary = Page::read(&file("docs/SUMMARY.md"));
    let listed: Vec<String> =
        targets(&summary).into_iter().map(|(_, target)| format!("docs/{target}")).collect();
    let missing: Vec<String> = super::beneath("docs", "md")
        .into_iter()
        .filter(|path| path != "docs/SUMMARY.md" && !listed.contains(path))
        .collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md: {missing:?}");
}

#[test]
fn a_planted_dead_link_is_found() {
    let page = Page::read(
        "# Here\n[a](#here) [b](#there) [c](SECURITY.md) [d](docs/none.md) [e](SECURITY.md#no-such)\n`[f](none)` [g](https://x.y)\n",
    );
    let found = dead("README.md", &page, |to, anchor| to == "README.md" && page.anchors.contains(anchor));
    let expected = ["#there", "docs/none.md", "SECURITY.md#no-such"];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    assert!(found.iter().zip(expected).all(|(found, target)| found.contains(target)), "{found:?}");
}
