//! Where values come from: a variable of the worker's environment, or a file. Each is read once, when the worker starts.

use std::{
    fs::OpenOptions,
    io::{Error, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use nix::libc;

use super::handed;
use crate::settings::Secret;

/// A shorter value would occur in texts that have nothing to do with it.
const MIN_BYTES: usize = 8;
const MAX_BYTES: usize = 8 * 1024;
/// A shorter value of nothing but small letters may be a word.
const MIN_WORD_BYTES: usize = 16;
/// The most bytes of a file: one of credentials has several values.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Permissions that a file with secrets should not give: all of others, and all but reading of its group.
const TOO_OPEN: u32 = 0o037;

/// The value of a secret, or why there is none. The reason never has a part of it.
pub(super) fn read(secret: &Secret) -> Result<String, String> {
    let (text, from) = match (&secret.env, &secret.file) {
        (Some(name), _) => (variable(name)?, format!("the environment variable {name}")),
        (None, Some(path)) => (file(path)?, format!("the file {}", path.display())),
        (None, None) => return Err("its settings name neither `env` nor `file`".into()),
    };
    let value = text.trim();
    match value.len() {
        0 => Err(format!("{from} is empty")),
        1..MIN_BYTES => {
            Err(format!("{from} has fewer than {MIN_BYTES} bytes, which is too short to be recognised"))
        }
        MIN_BYTES..=MAX_BYTES if is_plain_word(value) => {
            Err(format!("{from} is a plain word, which occurs in texts that have nothing to do with it"))
        }
        MIN_BYTES..=MAX_BYTES if value.contains('\0') => Err(format!("{from} is not text")),
        MIN_BYTES..=MAX_BYTES => Ok(value.to_owned()),
        _ => Err(format!("{from} has more than {MAX_BYTES} bytes")),
    }
}

/// The text of a file, without the line feed at its end.
fn file(path: &Path) -> Result<String, String> {
    let text = read_file(path);
    text.map_err(|error| format!("the file {} can't be read: {error}", path.display()))
}

fn read_file(path: &Path) -> Result<String, Error> {
    // A pipe without a writer must not hold up the start.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Error::other("it is not a regular file"));
    }
    let mode = metadata.mode() & 0o777;
    if mode & TOO_OPEN != 0 {
        let (path, mode) = (path.display(), format!("{mode:03o}"));
        tracing::warn!(%path, mode, "others may read this file with a secret, or change it; give it the mode 640 or less");
    }
    let mut text = String::new();
    if file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_FILE_BYTES {
        return Err(Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// Variables that hold what a connection is secured by, or name its file with `_FILE` behind them.
const PASSWORDS: [&str; 4] = ["NATS_PASSWORD", "NATS_TOKEN", "NATS_NKEY", "REDIS_PASSWORD"];

/// The directory with a file for each secret, named after its variable.
const DIRECTORY: &str = "TRELLIS_SECRETS_DIR";

/// The value of a variable of the worker's environment. If it is not set, that of the file that `NAME_FILE` names, or else of the file
/// `NAME` in the directory of secrets: a value in a file is in no environment, and no child can inherit it.
pub(crate) fn variable(name: &str) -> Result<String, String> {
    if let Some(value) = handed::variable(name) {
        return Ok(value);
    }
    if let Some(path) = handed::variable(&format!("{name}_FILE")) {
        return file(Path::new(&path));
    }
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if let Some(directory) = handed::variable(DIRECTORY).filter(|_| is_plain) {
        let path = Path::new(&directory).join(name);
        if path.exists() {
            return file(&path);
        }
    }
    Err(format!("the environment variable {name} is not set, or is not text"))
}

/// What the worker's connections are secured by: the password of each address, as it is written and as it is meant, other
/// passwords, and the lines of a file of credentials.
pub(super) fn of_connections() -> Vec<(String, String)> {
    let value = |name: &str| Some((name.to_owned(), variable(name).ok()?));
    let addresses = ["NATS_URL", "REDIS_URL"].iter().filter_map(|name| value(name));
    let mut found: Vec<(String, String)> = addresses
        .flat_map(|(name, addresses)| {
            passwords(&addresses).into_iter().map(move |password| (name.clone(), password))
        })
        .collect();
    found.extend(PASSWORDS.iter().filter_map(|name| value(name)));
    let credentials =
        handed::variable("NATS_CREDS").and_then(|path| file(Path::new(&path)).ok()).unwrap_or_default();
    let lines =
        credentials.lines().map(str::trim).filter(|line| !line.starts_with('-') && !line.contains(' '));
    found.extend(lines.map(|line| ("NATS_CREDS".to_owned(), line.to_owned())));
    found.retain(|(name, secret)| {
        let is_recognised = is_recognised(secret);
        if !is_recognised && !secret.is_empty() {
            tracing::warn!(
                variable = name,
                "a password is too plain to be found in texts, and is not redacted: use a longer one"
            );
        }
        is_recognised
    });
    found
}

/// The passwords in addresses that are separated by commas.
fn passwords(addresses: &str) -> Vec<String> {
    let of = |address: &str| {
        let authority = address.split_once("://")?.1.split(['/', '?']).next()?;
        let (user, _) = authority.rsplit_once('@')?;
        // A user without a password is a token.
        let secret = user.split_once(':').map_or(user, |(_, password)| password);
        Some([secret.to_owned(), decoded(secret)])
    };
    addresses.split(',').filter_map(of).flatten().collect()
}

/// A part of an address without its escapes.
fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let digits =
            behind.get(..2).filter(|_| *first == b'%').and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether a value is found in texts without finding others: it is long enough, and no plain word. A password such as `children` is also
/// the name of a field, and messages without it could not be read.
pub(super) fn is_recognised(value: &str) -> bool {
    (MIN_BYTES..=MAX_BYTES).contains(&value.len()) && !is_plain_word(value)
}

fn is_plain_word(value: &str) -> bool {
    value.len() < MIN_WORD_BYTES && value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: a password is known as it is written and as it is meant; a word that messages themselves have is none.
    #[test]
    fn s8_passwords_of_connections_are_known_in_both_forms() {
        let addresses = "nats://me:p%40ss%2Fword1@h:1,nats://h:2,tls://Tok3n-abc@h,nats://me:children@h,nats://me:short@h";
        let mut found = passwords(addresses);
        assert_eq!(found.len(), 8);
        found.retain(|secret| is_recognised(secret));
        assert_eq!(found, ["p%40ss%2Fword1", "p@ss/word1", "Tok3n-abc", "Tok3n-abc"]);
        assert!(!is_recognised("children") && !is_recognised("max_cost_usd"));
        assert!(is_recognised("correct horse battery") && is_recognised("hunter2hunter2"));
    }

    /// proves: one line feed at the end is no part of a value, everything else is; and no file is read without a bound.
    #[test]
    fn s8_a_file_of_a_secret_is_read_within_bounds() {
        let directory = std::env::temp_dir().join(format!("trellis-source-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("value");
        for (written, read) in [
            ("a b", "a b"),
            ("a b\n", "a b"),
            (" a\r\n", " a"),
            ("a\n\n", "a\n"),
            ("a\nb\n", "a\nb"),
            ("", ""),
        ] {
            std::fs::write(&path, written).unwrap();
            assert_eq!(file(&path).as_deref(), Ok(read), "{written:?}");
        }
        std::fs::write(&path, "x".repeat((64 << 10) + 1)).unwrap();
        nix::unistd::mkfifo(&directory.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, why) in [
            (path.as_path(), "more than 65536 bytes"),
            (&directory, "not a regular file"),
            (&directory.join("pipe"), "not a regular file"),
            (Path::new("/dev/zero"), "not a regular file"),
            (&directory.join("none"), "No such file"),
        ] {
            let error = file(path).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
