//! Paths of a profile: they are relative to the worker's directory, and a program runs in its workspace.

use std::path::Path;

/// Makes a path in a command absolute if it is beneath a path that the profile allows to read.
pub(crate) fn make_absolute_if_readable(word: &str, reads: &[String]) -> String {
    let beneath = reads.iter().any(|read| !read.is_empty() && Path::new(word).starts_with(read));
    if beneath { absolute(word) } else { word.to_owned() }
}

pub(crate) fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.to_string_lossy().into_owned())
}
