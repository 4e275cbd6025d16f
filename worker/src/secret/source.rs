//! The sources of values: a variable of the worker's environment, or a file. Each is read once,
//! when the worker starts.

use std::path::{Path, PathBuf};

use super::{
    address::{ADDRESSES, PASSWORDS, passwords},
    directory,
    file::{MAX_BYTES, MIN_BYTES, file, is_plain_word, is_recognised},
    handed,
};
use crate::settings::Secret;

/// The value of a secret, or the reason why it is missing. The reason never contains a part of the
/// value.
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
            Err(format!("{from} is a plain word, which also occurs in unrelated texts"))
        }
        MIN_BYTES..=MAX_BYTES if value.contains('\0') => Err(format!("{from} is not text")),
        MIN_BYTES..=MAX_BYTES => Ok(value.to_owned()),
        _ => Err(format!("{from} has more than {MAX_BYTES} bytes")),
    }
}

/// The value of a variable of the worker's environment. If it is not set, the value is in the file
/// that `NAME_FILE` names, or else in the file `NAME` of the directory of secrets. A value in a
/// file is in no environment, so no child can inherit it.
pub(crate) fn variable(name: &str) -> Result<String, String> {
    if let Some(value) = handed::variable(name) {
        return Ok(value);
    }
    if let Some(path) = handed::variable(&format!("{name}_FILE")) {
        return file(Path::new(&path));
    }
    directory::value(name)
        .ok_or_else(|| format!("the environment variable {name} is not set, or is not text"))
}

/// The credentials of this process's connections: the password of each address in its written and
/// its decoded form, other passwords, and the lines of these files and of a file of credentials.
pub(super) fn of_connections(files: &[(String, PathBuf)]) -> Vec<(String, String)> {
    let value = |name: &str| Some((name.to_owned(), variable(name).ok()?));
    let addresses = ADDRESSES.iter().filter_map(|name| value(name));
    let mut found: Vec<(String, String)> = addresses
        .flat_map(|(name, addresses)| {
            passwords(&addresses).into_iter().map(move |password| (name.clone(), password))
        })
        .collect();
    let passwords = PASSWORDS.iter().filter_map(|name| value(name));
    let credentials = handed::variable("NATS_CREDS").map(|path| ("NATS_CREDS".to_owned(), path.into()));
    // A file that can't be read is reported by the connection that uses it.
    let of_files = files.iter().cloned().chain(credentials);
    let of_files = of_files.filter_map(|(name, path)| Some((name, file(&path).ok()?)));
    for (name, text) in passwords.chain(of_files) {
        found.extend(secret_lines(&text).map(|line| (name.clone(), line.to_owned())));
    }
    found.sort();
    found.dedup();
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

/// The secrets in a text. A text of one line is one secret. In a text of several lines, as in files
/// of credentials and keys, short lines and the words around the secrets are left out.
fn secret_lines(text: &str) -> impl Iterator<Item = &str> {
    let is_one = text.trim().lines().count() == 1;
    let is_secret =
        move |line: &&str| is_one || line.len() >= MIN_BYTES && !line.starts_with('-') && !line.contains(' ');
    text.lines().map(str::trim).filter(is_secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: each line in a file of credentials or of a key is a secret, except for the frame; a
    /// password is a single secret.
    #[test]
    fn s8_the_secrets_of_a_file_of_credentials_are_its_lines() {
        for (text, secrets) in [
            ("correct horse battery", &["correct horse battery"][..]),
            ("-begins-with-a-dash\n", &["-begins-with-a-dash"]),
            (
                "-----BEGIN KEY-----\nMIIabcdef\nMIIghijkl\nab==\n-----END KEY-----\n",
                &["MIIabcdef", "MIIghijkl"],
            ),
            ("--- BEGIN ---\neyJ0eXAi\n--- END ---\nplease keep it\nSUAbcdef\n", &["eyJ0eXAi", "SUAbcdef"]),
        ] {
            assert_eq!(secret_lines(text).collect::<Vec<_>>(), secrets, "{text}");
        }
    }
}
