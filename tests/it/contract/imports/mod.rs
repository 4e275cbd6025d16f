//! Which file of a crate names items of which other file, read from the sources with `syn`. Two tests hold
//! the result: imports have no circle, and they only go down the layers of a crate.
//!
//! An edge A → B means: A names an item that B defines. A re-export (`pub use`, `pub(crate) use`) is a façade:
//! a path through it counts as naming the defining file, and the re-export itself is no edge. `mod x;` is no edge.
//! Test modules do not count. Not seen: inherent methods of a type that stand in another file than the type.

mod circles;
mod layers;
mod module_tree;
mod names;
mod planted;

use std::collections::{BTreeMap, BTreeSet};

use module_tree::Crate;

/// Sources by path below `src/`, with `/` between folders.
type Sources = BTreeMap<String, String>;

/// For each file and each file it imports from: the names that tie them.
type Imports = BTreeMap<(String, String), BTreeSet<String>>;

fn imports(sources: &Sources) -> Imports {
    names::imports(&Crate::parse(sources))
}

/// The sources of a crate of this workspace.
fn read(crate_name: &str) -> Sources {
    let root = super::boundaries::root().join(crate_name).join("src");
    let found = super::boundaries::sources(&format!("{crate_name}/src"));
    let below = |path: &std::path::Path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    found.into_iter().map(|(path, text)| (below(&path), text)).collect()
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
