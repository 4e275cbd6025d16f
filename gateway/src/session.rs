//! Sessions of browsers. A client that sends a valid token receives a cookie, which replaces the
//! token for half a day. The server stores no sessions: the cookie has the name of the token and
//! the time of its end, signed by a secret of the server, and it ends with its token. Besides,
//! one-time codes sign in, so that a link can open the page without a token in it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use axum::http::{HeaderMap, HeaderValue, header};
use domain::{
    Timestamp, digest,
    signature::{Secret, signatures},
};
use host::random::Random;
use tokio::time::Instant;

use crate::token::{TokenHolder, Tokens, is_equal};

/// The lifetime of a session.
const SECONDS: u64 = 12 * 3600;
/// The lifetime of a code, and the most codes of one caller.
const CODE_WITHIN: Duration = Duration::from_secs(600);
const MOST_CODES: usize = 8;

#[derive(Debug)]
pub(crate) struct Sessions {
    secret: Secret,
    /// The name of the cookie. Browsers send cookies to all ports of a host, so each server of this
    /// machine needs its own name.
    cookie: String,
    /// A host name of this machine that others can't guess. Browsers do not send the cookie of this
    /// host to other servers of the machine.
    pub(crate) host: Option<String>,
    codes: Mutex<Vec<Code>>,
}

#[derive(Debug)]
struct Code {
    sha256: String,
    known: TokenHolder,
    until: Instant,
}

impl Sessions {
    /// Sessions of a server with its own token survive a restart, as the token does, because the
    /// secret is derived from it. `is_local`: only this machine can reach the server.
    pub(crate) fn new(owner: Option<&str>, is_local: bool) -> Self {
        let secret = owner.map_or_else(fresh_secret, |token| Secret::of(&format!("sessions of {token}")));
        let digest = digest::sha256(signatures(std::slice::from_ref(&secret), "cookie", 0, b""));
        let host = owner.filter(|_| is_local).map(|_| format!("trellis-{}.localhost", &digest[8..24]));
        Sessions { secret, cookie: format!("trellis_{}", &digest[..8]), host, codes: Mutex::default() }
    }

    /// The value of `Set-Cookie` that begins a session. It has no path, so it applies to the folder
    /// of the page, and a proxy may serve the page under any prefix.
    pub(crate) fn begin(&self, known: &TokenHolder, now: Timestamp, is_secure: bool) -> Option<HeaderValue> {
        let until = now.millis() / 1000 + SECONDS;
        let value = format!("{}.{until}.{}", known.caller.name, self.code(known, until));
        let secure = if is_secure { "; Secure" } else { "" };
        let cookie = format!("{}={value}; Max-Age={SECONDS}; HttpOnly; SameSite=Strict{secure}", self.cookie);
        HeaderValue::try_from(cookie).ok()
    }

    /// The value of `Set-Cookie` that ends a session.
    pub(crate) fn end(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(format!("{}=; Max-Age=0; HttpOnly; SameSite=Strict", self.cookie)).ok()
    }

    /// The token holder whose session cookie the request has.
    pub(crate) fn find(&self, tokens: &Tokens, headers: &HeaderMap, now: Timestamp) -> Option<TokenHolder> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut values = cookies
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().strip_prefix(self.cookie.as_str())?.strip_prefix('='));
        // Another server of this machine may have set a cookie of the same name.
        values.find_map(|value| {
            let mut parts = value.rsplitn(3, '.');
            let (code, until, name) = (parts.next()?, parts.next()?.parse::<u64>().ok()?, parts.next()?);
            if until <= now.millis() / 1000 {
                return None;
            }
            let is_its = |known: &TokenHolder| is_equal(self.code(known, until).as_bytes(), code.as_bytes());
            let known = tokens.named(name).into_iter().find(is_its)?;
            Some(known.until(Timestamp::from_millis(until * 1000)))
        })
    }

    fn code(&self, known: &TokenHolder, until: u64) -> String {
        let secrets = std::slice::from_ref(&self.secret);
        digest::sha256(signatures(secrets, &known.caller.name, until, known.digest().as_bytes()))
    }

    /// A code that signs in once, within ten minutes.
    pub(crate) fn code_for(&self, known: TokenHolder) -> String {
        let code = format!("{:032x}", Random::System.bits());
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        codes.retain(|code| code.until > now);
        let is_own = |code: &Code| code.known.caller.name == known.caller.name;
        if codes.iter().filter(|code| is_own(code)).count() >= MOST_CODES
            && let Some(oldest) = codes.iter().position(is_own)
        {
            codes.remove(oldest);
        }
        codes.push(Code { sha256: digest::sha256(&code), known, until: now + CODE_WITHIN });
        code
    }

    /// The token holder that the code signs in. The code is removed, so it is valid once.
    pub(crate) fn redeem(&self, code: &str) -> Option<TokenHolder> {
        let sha256 = digest::sha256(code);
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let place = codes.iter().position(|code| code.sha256 == sha256 && code.until > now)?;
        Some(codes.remove(place).known).filter(|known| !known.ends.is_cancelled())
    }
}

fn fresh_secret() -> Secret {
    Secret::from_bits([Random::System.bits(), Random::System.bits()])
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use tokio_util::sync::CancellationToken;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    async fn tokens(owner: &str) -> Tokens {
        Tokens::read(None, Some(owner), &CancellationToken::new()).await.unwrap().unwrap()
    }

    fn sent(set: &HeaderValue) -> HeaderMap {
        let value = set.to_str().unwrap().split(';').next().unwrap().to_owned();
        let name = value.split('=').next().unwrap();
        let cookies = format!("theme=dark; {name}=of.another.server; {value}");
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(cookies).unwrap())])
    }

    #[tokio::test]
    async fn a_session_is_its_tokens_and_ends_with_it_and_after_half_a_day() {
        let (sessions, owner) = (Sessions::new(Some("secret"), true), tokens("secret").await);
        let known = owner.find("secret").unwrap();
        let cookie = sent(&sessions.begin(&known, NOW, false).unwrap());
        let name = |sessions: &Sessions, tokens: &Tokens, at| {
            sessions.find(tokens, &cookie, at).map(|known| known.caller.name)
        };
        assert_eq!(name(&sessions, &owner, NOW).as_deref(), Some("local"));
        assert_eq!(
            name(&Sessions::new(Some("secret"), true), &owner, NOW).as_deref(),
            Some("local"),
            "restarted"
        );
        assert_eq!(name(&sessions, &owner, NOW.plus_millis(12 * 3_600_000)), None, "too late");
        assert_eq!(name(&sessions, &tokens("another").await, NOW), None, "the token was changed");
        assert_eq!(
            name(&Sessions::new(None, true), &owner, NOW),
            None,
            "a session of another server is invalid"
        );
        let shown = sessions.begin(&known, NOW, true).unwrap();
        let shown = shown.to_str().unwrap();
        assert!(shown.contains("HttpOnly; SameSite=Strict; Secure") && !shown.contains("secret"), "{shown}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_code_signs_in_once_and_not_for_long() {
        let (sessions, owner) = (Sessions::new(Some("secret"), true), tokens("secret").await);
        let known = owner.find("secret").unwrap();
        let code = sessions.code_for(known.clone());
        assert!(sessions.redeem("another").is_none());
        assert!(sessions.redeem(&code).is_some());
        assert!(sessions.redeem(&code).is_none(), "twice");
        let late = sessions.code_for(known);
        tokio::time::advance(CODE_WITHIN).await;
        assert!(sessions.redeem(&late).is_none());
    }
}
