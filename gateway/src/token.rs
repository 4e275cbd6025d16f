//! The tokens that may send requests. A file has one line per token, with its SHA-256 only, and is
//! read again when it changes. If it can't be read then, the present tokens stay valid. No part of
//! a token or of the file is ever logged.

use std::{
    hint::black_box,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use bus::role::Kind;
use domain::{Timestamp, digest};
use host::random::Random;
use tokio_util::sync::CancellationToken;

use crate::config::Caller;

/// The interval at which the file is read.
const LOOK: Duration = Duration::from_secs(1);
/// The largest file, and the most bytes of a name.
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_NAME_BYTES: usize = 64;
/// The roles that a token can have.
const ROLES: [Kind; 3] = [Kind::Client, Kind::Observer, Kind::Admin];
/// The name of the caller that has the token of [`crate::config::Config::token`], and of every
/// caller of a server without tokens.
const OWNER: &str = "local";

/// The reasons for which tokens can't be read or made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("can't read the token file {}: {reason}\n\nhint: `trellis gateway token` makes a line of the file", .path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error(
        "{} line {line}: {reason}\n\nhint: a line is `NAME ROLES SHA256`, as `trellis gateway token` makes it; the roles are client, observer and admin, separated by commas", .path.display()
    )]
    Line { path: PathBuf, line: usize, reason: &'static str },
    #[error(
        "invalid name of a token: {0:?}\n\nhint: use up to 64 letters, digits, dots, dashes and underscores"
    )]
    Name(String),
    #[error("a token can't have the role `{0}`\n\nhint: the roles are client, observer and admin")]
    Role(Kind),
    #[error("a token needs a role\n\nhint: use client, observer or admin")]
    NoRole,
}

/// A new random token of 244 bits, which can't be guessed.
pub fn fresh() -> String {
    let random = Random::System;
    format!("trellis_{:032x}{:032x}", random.bits(), random.bits())
}

/// The line of a token for the file: its name, its roles, and its SHA-256. The token itself is not
/// in it.
pub fn line(name: &str, kinds: &[Kind], token: &str) -> Result<String, Error> {
    if !is_name(name) {
        return Err(Error::Name(name.chars().take(MAX_NAME_BYTES).collect()));
    }
    if let Some(other) = kinds.iter().find(|kind| !ROLES.contains(kind)) {
        return Err(Error::Role(*other));
    }
    let roles: Vec<&str> = ROLES.iter().filter(|kind| kinds.contains(kind)).map(|kind| kind.name()).collect();
    if roles.is_empty() {
        return Err(Error::NoRole);
    }
    Ok(format!("{name} {} {}", roles.join(","), digest::sha256(token)))
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_plain)
}

/// A caller with a valid token, until the token is removed from the file or the server stops.
#[derive(Debug, Clone)]
pub(crate) struct TokenHolder {
    pub(crate) caller: Caller,
    pub(crate) ends: CancellationToken,
    /// The end of a session; none for a token.
    pub(crate) until: Option<Timestamp>,
    sha256: String,
}

impl TokenHolder {
    /// True for every caller of a server without tokens, and for the token of the server itself.
    pub(crate) fn is_owner(&self) -> bool {
        self.caller.name == OWNER
    }

    /// The same holder in a session that ends at `until`.
    pub(crate) fn until(self, until: Timestamp) -> Self {
        TokenHolder { until: Some(until), ..self }
    }

    /// The SHA-256 of the token, which distinguishes tokens of the same name.
    pub(crate) fn digest(&self) -> &str {
        &self.sha256
    }

    fn is_same(&self, other: &TokenHolder) -> bool {
        self.caller == other.caller && self.sha256 == other.sha256
    }
}

/// All valid tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    path: Option<PathBuf>,
    owner: Option<TokenHolder>,
    all: RwLock<Arc<Vec<TokenHolder>>>,
    stop: CancellationToken,
}

impl Tokens {
    /// None: there are no tokens, and every client that can connect has all rights.
    pub(crate) async fn read(
        path: Option<PathBuf>,
        owner: Option<&str>,
        stop: &CancellationToken,
    ) -> Result<Option<Self>, Error> {
        if path.is_none() && owner.is_none() {
            return Ok(None);
        }
        let owner = owner.map(|token| TokenHolder { sha256: digest::sha256(token), ..everybody(stop) });
        let all = match &path {
            Some(path) => parse(path, &contents(path).await?, stop)?,
            None => Vec::new(),
        };
        Ok(Some(Tokens { path, owner, all: RwLock::new(Arc::new(all)), stop: stop.clone() }))
    }

    /// The holder of this token.
    pub(crate) fn find(&self, token: &str) -> Option<TokenHolder> {
        let sha256 = digest::sha256(token);
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut found = None;
        // Compares all tokens, also after a match, so that the time reveals nothing.
        for known in all.iter().chain(&self.owner) {
            if is_equal(known.sha256.as_bytes(), sha256.as_bytes()) {
                found = Some(known.clone());
            }
        }
        found
    }

    /// The holder of the server's own token.
    pub(crate) fn owner(&self) -> Option<TokenHolder> {
        self.owner.clone()
    }

    /// All holders of this name: while a token is being replaced, two tokens have it.
    pub(crate) fn named(&self, name: &str) -> Vec<TokenHolder> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner).clone();
        all.iter().chain(&self.owner).filter(|known| known.caller.name == name).cloned().collect()
    }

    /// Reads the file again whenever it changes. Never returns.
    pub(crate) async fn follow(&self) {
        let Some(path) = &self.path else { return std::future::pending().await };
        // The first read is always applied: the file may have changed since the start.
        let mut seen = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let read = contents(path).await;
            if read.as_ref().ok() == seen.as_ref() {
                continue;
            }
            seen = read.as_ref().ok().cloned();
            match read.and_then(|text| parse(path, &text, &self.stop)) {
                Ok(all) => self.replace(all),
                Err(error) => {
                    tracing::warn!(%error, "the token file could not be read again; the previous tokens stay valid");
                }
            }
        }
    }

    fn replace(&self, new: Vec<TokenHolder>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        // An unchanged holder keeps its `ends`, so that its open streams continue.
        let kept = |known: TokenHolder| all.iter().find(|old| old.is_same(&known)).cloned().unwrap_or(known);
        let new: Vec<TokenHolder> = new.into_iter().map(kept).collect();
        let is_gone = |old: &&TokenHolder| !new.iter().any(|known| known.is_same(old));
        let gone: Vec<&TokenHolder> = all.iter().filter(is_gone).collect();
        if !gone.is_empty() || new.len() != all.len() {
            tracing::info!(tokens = new.len(), "the token file was read again");
        }
        // Open streams of a removed token end here.
        gone.into_iter().for_each(|old| old.ends.cancel());
        *all = Arc::new(new);
    }
}

/// The caller of a server without tokens: it has all roles.
pub(crate) fn everybody(stop: &CancellationToken) -> TokenHolder {
    let caller = Caller { name: OWNER.into(), kinds: ROLES.to_vec() };
    TokenHolder { caller, ends: stop.child_token(), until: None, sha256: String::new() }
}

async fn contents(path: &Path) -> Result<String, Error> {
    let unreadable = |reason: String| Error::Unreadable { path: path.to_owned(), reason };
    let about = tokio::fs::metadata(path).await.map_err(|error| unreadable(error.to_string()))?;
    if about.len() > MAX_FILE_BYTES {
        return Err(unreadable(format!("the file has more than {MAX_FILE_BYTES} bytes")));
    }
    let read = tokio::fs::read(path).await.map_err(|error| unreadable(error.to_string()))?;
    String::from_utf8(read).map_err(|_| unreadable("the file is not UTF-8".into()))
}

fn parse(path: &Path, text: &str, stop: &CancellationToken) -> Result<Vec<TokenHolder>, Error> {
    let mut all = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let known =
            parsed(line).map_err(|reason| Error::Line { path: path.to_owned(), line: number, reason })?;
        all.push(TokenHolder { ends: stop.child_token(), ..known });
    }
    Ok(all)
}

fn parsed(line: &str) -> Result<TokenHolder, &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, roles, sha256] = words[..] else {
        return Err(
            "the line does not have three words: a name, roles separated by commas, and the SHA-256 of the token",
        );
    };
    if !is_name(name) {
        return Err("the name has other characters than letters, digits, dots, dashes and underscores");
    }
    if name == OWNER {
        return Err("the name is reserved for callers without a token");
    }
    let role = |text: &str| ROLES.into_iter().find(|kind| kind.name() == text);
    let kinds: Option<Vec<Kind>> = roles.split(',').map(role).collect();
    let kinds = kinds.ok_or("a role is not client, observer or admin")?;
    if sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("the last word is not a SHA-256 in hexadecimal digits");
    }
    let caller = Caller { name: name.to_owned(), kinds };
    Ok(TokenHolder {
        caller,
        ends: CancellationToken::new(),
        until: None,
        sha256: sha256.to_ascii_lowercase(),
    })
}

/// Compares in constant time, independent of the place of the first difference.
pub(crate) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differ = one
        .iter()
        .zip(other)
        .fold(one.len() ^ other.len(), |differ, (a, b)| black_box(differ | usize::from(a ^ b)));
    differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back_and_the_token_is_not_in_it() {
        let token = fresh();
        assert_ne!(token, fresh());
        let line = line("ci-1", &[Kind::Admin, Kind::Client], &token).unwrap();
        assert!(line.starts_with("ci-1 client,admin ") && !line.contains(&token), "{line}");
        let known = parsed(&line).unwrap();
        assert_eq!(known.caller, Caller { name: "ci-1".into(), kinds: vec![Kind::Client, Kind::Admin] });
        assert_eq!(known.sha256, digest::sha256(&token));
        assert!(super::line("a b", &[Kind::Client], &token).is_err());
        assert!(super::line("a", &[Kind::Worker], &token).is_err());
        assert!(super::line("a", &[], &token).is_err());
    }

    #[test]
    fn a_mistake_in_a_line_is_reported_without_its_content() {
        let good = digest::sha256("x");
        for bad in [
            format!("secretname {good}"),
            format!("secret/name client {good}"),
            format!("secretname worker {good}"),
            format!("secretname client, {good}"),
            "secretname client abc".into(),
            format!("secretname client {good} more"),
        ] {
            let text = format!("# a comment\n\nfine client {good}\n{bad}\n");
            let error = parse(Path::new("tokens"), &text, &CancellationToken::new()).unwrap_err().to_string();
            assert!(error.contains("line 4") && error.contains("hint: "), "{error}");
            assert!(!error.contains("secret") && !error.contains(&good), "{error}");
        }
    }

    #[test]
    fn hashes_are_equal_or_not() {
        assert!(is_equal(b"abc", b"abc"));
        for other in [&b"abd"[..], b"ab", b"abcd", b""] {
            assert!(!is_equal(b"abc", other));
        }
    }
}
