//! mdBook builds the book without a warning; its pages need no network, and no link in them is
//! dead.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use regex::Regex;
use trellis_tests::{processes::repository, servers::installed};

#[derive(Debug, Default)]
struct Html {
    /// The targets of links and of loaded files.
    links: Vec<String>,
    /// The files that a browser loads by itself.
    loaded: Vec<String>,
    ids: BTreeSet<String>,
}

fn read(path: &Path) -> Html {
    let text = fs::read_to_string(path).unwrap();
    let all = |pattern: &str| -> Vec<String> {
        Regex::new(pattern)
            .unwrap()
            .captures_iter(&text)
            .map(|found| found[1].replace("&amp;", "&"))
            .collect()
    };
    let mut loaded = all(r#"\ssrc="([^"]*)""#);
    loaded.extend(all(r#"<link [^>]*href="([^"]*)""#));
    Html {
        links: all(r#"\s(?:href|src)="([^"]*)""#),
        loaded,
        ids: all(r#"\sid="([^"]*)""#).into_iter().collect(),
    }
}

/// All mistakes in the pages of a built book.
fn wrong(book: &Path) -> Vec<String> {
    fn walk(path: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { walk(&entry, found) } else { found.push(entry) }
        }
    }
    let mut files = Vec::new();
    walk(book, &mut files);
    let is = |path: &&PathBuf, ending: &str| path.extension().is_some_and(|found| found == ending);
    let pages: BTreeMap<PathBuf, Html> =
        files.iter().filter(|path| is(path, "html")).map(|path| (path.clone(), read(path))).collect();
    let mut wrong = Vec::new();
    for (path, page) in &pages {
        let name = path.strip_prefix(book).unwrap().display();
        let foreign = |link: &&String| link.contains("://") || link.starts_with("//");
        wrong.extend(page.loaded.iter().filter(foreign).map(|link| format!("{name} loads {link}")));
        // 404.html is shown for pages at any depth, and print.html contains every page.
        if ["404.html", "print.html"].contains(&name.to_string().as_str()) {
            continue;
        }
        for link in page.links.iter().filter(|link| !link.contains(':') && !link.starts_with("//")) {
            let (to, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = if to.is_empty() { path.clone() } else { path.parent().unwrap().join(to) };
            let Ok(to) = to.canonicalize() else {
                wrong.push(format!("{name}: {link}: there is no such file"));
                continue;
            };
            let there = anchor.is_empty() || pages.get(&to).is_none_or(|page| page.ids.contains(anchor));
            wrong.extend((!there).then(|| format!("{name}: {link}: there is no such place")));
        }
    }
    let styles = files.iter().filter(|path| is(path, "css"));
    let outside = Regex::new(r#"(?:url\(|@import)\s*["']?(?:https?:)?//"#).unwrap();
    let fetching = styles.filter(|path| outside.is_match(&fs::read_to_string(path).unwrap()));
    wrong.extend(fetching.map(|path| format!("{} loads from elsewhere", path.display())));
    wrong
}

#[test]
fn mdbook_builds_the_book_without_a_warning_and_nothing_in_it_is_dead() {
    let book = std::env::temp_dir().join(format!("trellis-book-{}", std::process::id()));
    let _ = fs::remove_dir_all(&book);
    let mut command = Command::new(repository().join("scripts/book"));
    command.arg(&book).env("TRELLIS_MDBOOK", installed("TRELLIS_MDBOOK", Path::new("bin/mdbook")));
    // A proxy that does not exist, so that every download fails.
    let nowhere =
        ["http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:9"));
    let output = command.envs(nowhere).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    assert!(book.join("index.html").exists() && book.join("tutorial.html").exists());
    let book = book.canonicalize().unwrap();
    let found = wrong(&book);
    assert!(found.is_empty(), "{}", found.join("\n"));

    // A planted mistake is found.
    fs::write(
        book.join("planted.html"),
        r##"<a href="none.html"></a><a href="index.html#none"></a><img src="https://x.y/z.png">"##,
    )
    .unwrap();
    assert_eq!(wrong(&book).len(), 3);
    fs::remove_dir_all(&book).unwrap();
}
