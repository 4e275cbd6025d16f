//! Sessions of browsers. Whoever has shown a token gets a cookie that stands for it, for half a day. Nothing is kept of it: the cookie says whose
//! it is and until when, with a code that only this process can make, and it ends with its token. And codes that sign in once, so that a link
//! can open the page and no token has to be in it.

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

/// How long a session lasts.
const SECONDS: u64 = 12 * 3600;
/// How long a code may be used, and how many somebody has at most.
const CODE_WITHIN: Duration = Duration::from_secs(600);
const MOST_CODES: usize = 8;

#[derive(Debug)]
pub(crate) struct Sessions {
    secret: Secret,
    /// The name of the cookie: another server of this machine, whose port a browser does not look at, has another.
    cookie: String,
    /// A name of this machine that nobody else can guess: no other server of it is sent the cookie of a page under that name.
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
    /// Those of a server with a token of its own outlast it, as the token does.
    /// `is_local`: only this machine reaches it.
    pub(crate) fn new(owner: Option<&str>, is_local: bool) -> Self {
        let secret = owner.map_or_else(fresh_secret, |token| Secret::of(&format!("sessions of {token}")));
        let digest = digest::sha256(signatures(std::slice::from_ref(&secret), "cookie", 0, b""));
        let host = owner.filter(|_| is_local).map(|_| format!("trellis-{}.localhost", &digest[8..24]));
        Sessions { secret, cookie: format!("trellis_{}", &digest[..8]), host, codes: Mutex::default() }
    }

    /// The value of `Set-Cookie` that begins a session. Without a path: it counts below the folder of the page that set it, so that the page may
    /// stand behind any prefix.
    pub(crate) fn begin(&self, known: &TokenHolder, now: Timestamp, is_secure: bool) -> Option<HeaderValue> {
        let until = now.millis() / 1000 + SECONDS;
        let value = format!("{}.{until}.{}", known.caller.name, self.code(known, until));
        let secure = if is_secure { "; Secure" } else { "" };
        let cookie = format!("{}={value}; Max-Age={SECONDS}; HttpOnly; SameSite=Strict{secure}", self.cookie);
        HeaderValue::try_from(cookie).ok()
    }

    /// The value that ends it.
    pub(crate) fn end(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(format!("{}=; Max-Age=0; HttpOnly; SameSite=Strict", self.cookie)).ok()
    }

    /// Whose session a request is of.
    pub(crate) fn find(&self, tokens: &Tokens, headers: &HeaderMap, now: Timestamp) -> Option<TokenHolder> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut values = cookies
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().strip_prefix(self.cookie.as_str())?.strip_prefix('='));
        // Another server of this machine may have set one of the same name.
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

    /// Whom a code signs in: it counts once.
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
        assert_eq!(name(&Sessions::new(None, true), &owner, NOW), None, "another server made it");
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
