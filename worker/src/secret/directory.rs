//! A directory of secrets with one file for each secret, named after its variable. It is read once,
//! before the worker starts.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::Path, sync::OnceLock};

use super::file;

/// The most files of a directory.
const MAX_FILES: usize = 1_000;
/// Permissions that the directory should not have: any for others, and writing for its group.
const TOO_OPEN: u32 = 0o027;

/// The values that were read. Set once, before the worker starts.
static READ: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Reads a directory of secrets for this process. Returns warnings about it, or all of its errors.
/// Neither contains a part of a value.
pub fn read_secrets(directory: &Path) -> Result<Vec<String>, Vec<String>> {
    let (values, doubts) = read(directory)?;
    let _ = READ.set(values);
    Ok(doubts)
}

/// The value of the file with this name.
pub(super) fn value(name: &str) -> Option<String> {
    READ.get()?.get(name).cloned()
}

/// All names and values. Each value is a secret, even if no setting uses it.
pub(super) fn all() -> impl Iterator<Item = (String, String)> {
    READ.get().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone()))
}

/// Names and values.
type Values = BTreeMap<String, String>;

/// Warnings or errors, one sentence each.
type Warnings = Vec<String>;

fn read(directory: &Path) -> Result<(Values, Warnings), Warnings> {
    let shown = directory.display();
    let unreadable = |error: std::io::Error| vec![format!("{shown}: can't be read: {error}")];
    let mut doubts = Vec::new();
    let mode = fs::metadata(directory).map_err(unreadable)?.mode() & 0o777;
    if mode & TOO_OPEN != 0 {
        doubts.push(format!(
            "{shown}: other users can read or change this directory of secrets (mode {mode:03o}); set its mode to 750 or less"
        ));
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        match name.to_str() {
            // Kubernetes and editors create hidden files there.
            Some(name) if name.starts_with('.') => {}
            Some(name) if is_variable(name) => names.push(name.to_owned()),
            Some(_) | None => doubts.push(format!(
                "{shown}/{}: not used, because it is not named like a variable, such as OPENAI_API_KEY",
                name.display()
            )),
        }
        if names.len() + doubts.len() > MAX_FILES {
            return Err(vec![format!("{shown}: it has more than {MAX_FILES} files")]);
        }
    }
    names.sort();
    let (mut values, mut wrong) = (BTreeMap::new(), Vec::new());
    for name in names {
        match file::file(&directory.join(&name)) {
            Ok(value) if value.trim().is_empty() => wrong.push(format!("{shown}/{name}: the file is empty")),
            Ok(value) => {
                if !file::is_recognised(value.trim()) {
                    doubts.push(format!(
                        "{shown}/{name}: too short or too plain to be found in texts, so it is not redacted"
                    ));
                }
                values.insert(name, value);
            }
            Err(why) => wrong.push(why),
        }
    }
    doubts.sort();
    if wrong.is_empty() { Ok((values, doubts)) } else { Err(wrong) }
}

/// Returns true if the name of a file is valid for a variable. A name without a capital letter is
/// rarely a variable, and more often a mistake.
fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(plain) && name.bytes().any(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Directory(std::path::PathBuf);

    impl Directory {
        fn new(name: &str, mode: u32) -> Self {
            let path = std::env::temp_dir().join(format!("trellis-secrets-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            Directory(path)
        }

        fn write(&self, name: &str, value: &str) {
            let path = self.0.join(name);
            fs::write(&path, value).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn s8_a_directory_of_secrets_is_read_by_the_names_of_variables() {
        let directory = Directory::new("good", 0o700);
        directory.write("OPENAI_API_KEY", "sk-0123456789\n");
        directory.write("GITHUB_TOKEN", "ghp-0123456789");
        directory.write(".hidden", "not-read-0123");
        let (values, doubts) = read(&directory.0).unwrap();
        assert_eq!(doubts, [] as [&str; 0]);
        let values: Vec<(&str, &str)> = values.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(values, [("GITHUB_TOKEN", "ghp-0123456789"), ("OPENAI_API_KEY", "sk-0123456789")]);
    }

    /// proves: warnings do not stop the start, and no warning contains a value.
    #[test]
    fn s8_a_directory_of_secrets_that_others_see_is_warned_of() {
        for (mode, is_told) in [(0o755, true), (0o770, true), (0o702, true), (0o750, false), (0o500, false)] {
            let directory = Directory::new(&format!("mode-{mode:o}"), mode);
            let (_, doubts) = read(&directory.0).unwrap();
            assert_eq!(doubts.iter().any(|doubt| doubt.contains("mode")), is_told, "{mode:o}: {doubts:?}");
        }
        let directory = Directory::new("doubts", 0o700);
        directory.write("SHORT_KEY", "k3y-x");
        directory.write("openai", "sk-0123456789");
        let (values, doubts) = read(&directory.0).unwrap();
        assert_eq!(values.len(), 1);
        assert!(doubts.iter().any(|doubt| doubt.contains("SHORT_KEY: too short")), "{doubts:?}");
        assert!(doubts.iter().any(|doubt| doubt.contains("openai: not used")), "{doubts:?}");
        assert!(!doubts.concat().contains("k3y-x") && !doubts.concat().contains("sk-01"), "{doubts:?}");
    }

    #[test]
    fn s8_all_problems_of_a_directory_of_secrets_are_reported_at_once() {
        let directory = Directory::new("bad", 0o700);
        directory.write("EMPTY_KEY", " \n");
        directory.write("LARGE_KEY", &"x".repeat((64 << 10) + 1));
        directory.write("GOOD_KEY", "sk-0123456789");
        fs::create_dir(directory.0.join("A_DIRECTORY")).unwrap();
        let wrong = read(&directory.0).unwrap_err();
        for (says, of) in
            [("EMPTY_KEY", "is empty"), ("LARGE_KEY", "65536 bytes"), ("A_DIRECTORY", "not a regular file")]
        {
            assert!(wrong.iter().any(|one| one.contains(says) && one.contains(of)), "{says} {of}: {wrong:?}");
        }
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        for path in [directory.0.join("none"), directory.0.join("GOOD_KEY")] {
            let wrong = read(&path).unwrap_err();
            assert!(wrong[0].contains("can't be read"), "{wrong:?}");
        }
    }
}
