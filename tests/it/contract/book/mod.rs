//! The documents are a book that builds, whose links have targets, and whose commands do what the
//! book promises.
//!
//! The first word after the backticks of a fence selects the treatment of its block. A fence
//! without a word contains no commands.
//!
//! | fence | action of the test |
//! |---|---|
//! | `sh` | runs the block as a script: every command of it must succeed |
//! | `console` | runs each command after `$ ` (`> ` continues it), and compares its output with the lines below, if there are any |
//! | `… exit=3` | the same, if the last command of the block must exit with code 3 |
//! | `yaml file=a.yaml`, `toml file=…` | writes the block to the file |
//! | other words (`text`, `json`, …) | nothing |
//!
//! - `…` within a line of output matches any text, and a line of `…` matches any lines. The number
//!   of spaces is ignored.
//! - `<!-- not run: WHY -->` on the line above a block: the block is only shown.
//! - `<!-- run: COMMANDS -->`: commands that readers do not see, such as waiting for a server
//!   (`eventually COMMAND`). They must succeed.
//! - `<!-- servers: nats redis -->`: the page has these servers at their usual addresses.
//!
//! One shell runs the blocks of a page in their order, in a fresh directory with the examples,
//! which is also the home. Addresses of this machine on a page, such as 127.0.0.1:7420, are
//! replaced by free ones. `cargo run --` is replaced by the built program. To run one page:
//! `-- book::commands::http`.

mod built;
mod commands;
mod links;
mod page;
mod reference;

use std::{
    fs,
    path::{Path, PathBuf},
};

use trellis_tests::processes::repository;

fn file(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every page, from the top of the repository: those of the book, and those beside it.
fn pages() -> Vec<String> {
    let beside =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(str::to_owned);
    beside.into_iter().chain(beneath("docs", "md")).collect()
}

/// The files of a folder with this ending, from the top of the repository.
fn beneath(folder: &str, ending: &str) -> Vec<String> {
    fn walk(path: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                walk(&entry, found);
            } else {
                found.push(entry);
            }
        }
    }
    let mut found = Vec::new();
    walk(&repository().join(folder), &mut found);
    let named = found.into_iter().filter(|path| path.extension().is_some_and(|found| found == ending));
    let from_top = |path: PathBuf| path.strip_prefix(repository()).unwrap().to_string_lossy().into_owned();
    let mut paths: Vec<String> = named.map(from_top).collect();
    paths.sort();
    paths
}
