//! The credentials of this process for the servers, and the certificates that it trusts. Each is an
//! option and a variable. A secret is never an argument, because every user of the machine can see
//! those: it comes from a file or a variable.

use std::path::{Path, PathBuf};

use anyhow::Context;
use bus::Login;
use domain::tls::Tls;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Credentials (each also by its variable)")]
pub(crate) struct Credentials {
    /// A file with the token for the server of TRELLIS_URL; the variable TRELLIS_TOKEN may have the token instead.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "TRELLIS_TOKEN_FILE")]
    token_file: Option<String>,
    /// A credentials file for NATS (JWT and nkey).
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "NATS_CREDS")]
    nats_creds: Option<String>,
    /// A file with the seed of an nkey for NATS, as `trellis auth` writes it.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "NATS_NKEY_FILE")]
    nats_nkey_file: Option<String>,
    /// The NATS user. Its password is in --nats-password-file or NATS_PASSWORD.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME", env = "NATS_USER")]
    nats_user: Option<String>,
    /// A file with the password of the NATS user.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "NATS_PASSWORD_FILE")]
    nats_password_file: Option<String>,
    /// A file with a token for NATS; the variable NATS_TOKEN may have the token instead.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "NATS_TOKEN_FILE")]
    nats_token_file: Option<String>,
    /// The prefix of the subjects on which this user receives answers.
    #[arg(long, global = true, hide_short_help = true, value_name = "PREFIX", env = "NATS_INBOX")]
    inbox: Option<String>,
    /// The prefix of JetStream's subjects, if it is in another account of the server.
    #[arg(long, global = true, hide_short_help = true, value_name = "PREFIX", env = "NATS_JS_API")]
    js_api: Option<String>,
    /// `required`: refuse a connection to NATS without TLS.
    #[arg(long, global = true, hide_short_help = true, value_name = "WHETHER", env = "NATS_TLS")]
    #[arg(num_args = 0..=1, default_missing_value = REQUIRED, require_equals = true)]
    tls: Option<String>,
    /// The CA certificate of NATS (PEM); by default, the CAs of the system.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "NATS_CA")]
    nats_ca: Option<String>,
    /// The client certificate for NATS (PEM); --nats-key has its key.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "NATS_CERT")]
    nats_cert: Option<String>,
    /// The key of the client certificate for NATS (PEM).
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "NATS_KEY")]
    nats_key: Option<String>,
    /// The Redis user. Its password is in --redis-password-file or REDIS_PASSWORD.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME", env = "REDIS_USER")]
    redis_user: Option<String>,
    /// A file with the password of the Redis user.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "REDIS_PASSWORD_FILE")]
    redis_password_file: Option<String>,
    /// The CA certificate of Redis (PEM); by default, the CAs of the system.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "REDIS_CA")]
    redis_ca: Option<String>,
    /// The client certificate for Redis (PEM); --redis-key has its key.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "REDIS_CERT")]
    redis_cert: Option<String>,
    /// The key of the client certificate for Redis (PEM).
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE", env = "REDIS_KEY")]
    redis_key: Option<String>,
}

const REQUIRED: &str = "required";

impl Credentials {
    pub(crate) fn nats(&self) -> anyhow::Result<Login> {
        let user = given(&self.nats_user);
        let password = secret(&self.nats_password_file, "NATS_PASSWORD")?;
        if user.is_some() != password.is_some() {
            anyhow::bail!(
                "a user of NATS needs a name and a password, and only one of them is given\n\nhint: set NATS_USER, and \
                 NATS_PASSWORD_FILE or NATS_PASSWORD"
            );
        }
        Ok(Login {
            creds: file(&self.nats_creds),
            nkey: file(&self.nats_nkey_file),
            user,
            password,
            token: secret(&self.nats_token_file, "NATS_TOKEN")?,
        })
    }

    /// The token for a Trellis server.
    pub(crate) fn token(&self) -> anyhow::Result<Option<String>> {
        secret(&self.token_file, "TRELLIS_TOKEN")
    }

    /// The files that contain secrets, each with the variable that could hold its value instead.
    pub(crate) fn secret_files(&self) -> Vec<(String, PathBuf)> {
        let all = [
            ("TRELLIS_TOKEN", &self.token_file),
            ("NATS_CREDS", &self.nats_creds),
            ("NATS_NKEY", &self.nats_nkey_file),
            ("NATS_PASSWORD", &self.nats_password_file),
            ("NATS_TOKEN", &self.nats_token_file),
            ("NATS_KEY", &self.nats_key),
            ("REDIS_PASSWORD", &self.redis_password_file),
            ("REDIS_KEY", &self.redis_key),
        ];
        all.into_iter().filter_map(|(name, path)| Some((name.to_owned(), file(path)?))).collect()
    }

    pub(crate) fn nats_tls(&self) -> anyhow::Result<Tls> {
        let required = match given(&self.tls).as_deref() {
            None => false,
            Some(REQUIRED) => true,
            Some(other) => {
                anyhow::bail!("`{other}` is not a setting of TLS\n\nhint: use --tls, or NATS_TLS={REQUIRED}")
            }
        };
        let certificate = certificate(&self.nats_cert, &self.nats_key, "NATS")?;
        Ok(Tls { required, ca: file(&self.nats_ca), certificate })
    }

    pub(crate) fn js_api(&self) -> Option<String> {
        given(&self.js_api)
    }

    /// The prefix of our inbox. It becomes part of subjects, so only plain tokens are accepted.
    pub(crate) fn inbox(&self) -> anyhow::Result<Option<String>> {
        let inbox = given(&self.inbox);
        let plain = |prefix: &String| {
            let token = |token: &str| {
                !token.is_empty()
                    && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
            };
            prefix.split('.').all(token) && !domain::subject::is_reserved(prefix)
        };
        match &inbox {
            Some(prefix) if !plain(prefix) => anyhow::bail!(
                "`{prefix}` is not a valid prefix of an inbox\n\nhint: use letters, digits, `_` and `-`, such as _INBOX_me"
            ),
            Some(_) | None => Ok(inbox),
        }
    }

    pub(crate) fn redis(&self) -> anyhow::Result<coordinator::store::Login> {
        Ok(coordinator::store::Login {
            user: given(&self.redis_user),
            password: secret(&self.redis_password_file, "REDIS_PASSWORD")?,
            tls: Tls {
                required: false,
                ca: file(&self.redis_ca),
                certificate: certificate(&self.redis_cert, &self.redis_key, "REDIS")?,
            },
        })
    }
}

/// Rejects an address with a password if it was given as an argument: every user of the machine can
/// see it there.
pub(crate) fn check_argument(url: &str, option: &str, variable: &str) -> anyhow::Result<()> {
    let logged_in = url.split(',').any(|server| worker::without_login(server).1.is_some());
    let as_argument = |word: std::ffi::OsString| {
        let word = word.to_string_lossy().into_owned();
        word == url || word.strip_prefix(option).is_some_and(|rest| rest.strip_prefix('=') == Some(url))
    };
    if logged_in && std::env::args_os().skip(1).any(as_argument) {
        anyhow::bail!(
            "the address in {option} contains a login, which all users of this machine can see in the list of \
                processes\n\nhint: set {variable}, or give the login by a file: see `trellis help connection`"
        );
    }
    Ok(())
}

/// The value of an option. An empty variable is treated as unset, because shells and compose files
/// unset variables that way.
fn given(option: &Option<String>) -> Option<String> {
    option.clone().filter(|value| !value.is_empty())
}

fn file(option: &Option<String>) -> Option<PathBuf> {
    given(option).map(PathBuf::from)
}

/// Reads a secret from its file, or else from its variable.
fn secret(path: &Option<String>, variable: &str) -> anyhow::Result<Option<String>> {
    if let Some(path) = given(path) {
        let text = std::fs::read_to_string(Path::new(&path)).with_context(|| format!("can't read {path}"))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            anyhow::bail!("{path} is empty\n\nhint: write the secret as its only line");
        }
        return Ok(Some(text.to_owned()));
    }
    let value = worker::own_variable(variable);
    let is_set = || std::env::var_os(variable).is_some_and(|value| !value.is_empty());
    if value.is_none() && is_set() {
        anyhow::bail!("the variable {variable} is not text");
    }
    Ok(value)
}

fn certificate(
    certificate: &Option<String>,
    key: &Option<String>,
    server: &str,
) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
    match (file(certificate), file(key)) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => anyhow::bail!(
            "a certificate needs its key, and only one of them is given\n\nhint: set {server}_CERT and {server}_KEY"
        ),
    }
}
