//! Paths of a profile. They are relative to the worker's directory, while a program runs in its
//! workspace.

use std::path::{Component, Path, PathBuf};

use super::program::SYSTEM_PATHS;

/// Makes a path in a command absolute if it is beneath a path that the profile allows to read: by
/// its text, or as an existing file. A word such as `python3` or `-u` is beneath `.` only if a file
/// with that name exists.
pub(crate) fn make_absolute_if_readable(word: &str, reads: &[String]) -> String {
    let is_written_so = |read: &String| Path::new(word).starts_with(read);
    let whole = absolute(word);
    let leaves = Path::new(word).components().any(|part| part == Component::ParentDir);
    let is_there = |read: &String| {
        !leaves && Path::new(&whole).starts_with(without_dots(read)) && Path::new(&whole).exists()
    };
    let beneath =
        reads.iter().filter(|read| !read.is_empty()).any(|read| is_written_so(read) || is_there(read));
    if beneath { whole } else { word.to_owned() }
}

/// Returns true if the sandbox lets a program read a file, for a profile with these paths.
pub(crate) fn may_read(file: &str, reads: &[String]) -> bool {
    let file = without_dots(file);
    let listed =
        reads.iter().filter(|read| !read.is_empty()).any(|read| file.starts_with(without_dots(read)));
    listed || SYSTEM_PATHS.iter().any(|system| file.starts_with(system))
}

/// An absolute path without a `.` at its end.
fn without_dots(path: &str) -> PathBuf {
    Path::new(&absolute(path)).components().collect()
}

pub(crate) fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_owned(), |path| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i4_a_file_of_the_workers_directory_is_found_beneath_a_dot() {
        // Tests run in the directory of their package.
        let reads = [".".to_owned()];
        let found = make_absolute_if_readable("Cargo.toml", &reads);
        assert!(found.ends_with("/Cargo.toml") && Path::new(&found).is_file(), "{found}");
        for word in ["python3", "-u", "nothing.py", "../Cargo.toml"] {
            assert_eq!(make_absolute_if_readable(word, &reads), word);
        }
        assert_eq!(make_absolute_if_readable("Cargo.toml", &["src".to_owned()]), "Cargo.toml");
        assert!(make_absolute_if_readable("src/gone.py", &["src".to_owned()]).starts_with('/'));
    }
}
