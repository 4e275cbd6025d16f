//! Failures of a cluster as a command reports them: the text, a hint, and the type that selects the
//! exit code.

use std::fmt;

use bus::{PublishError, RequestError, role};
use domain::subject::Namespace;

use crate::cluster::connect::REQUEST;

/// A server or coordinator could not be reached. It has its own exit code.
#[derive(Debug)]
pub(crate) struct Unreachable(pub(crate) String);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// The server refused a call because these credentials lack the permission.
#[derive(Debug)]
pub(crate) struct Denied(String);

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Denied {}

/// Adds the hint to an error of the cluster's client. Other errors are returned unchanged.
pub(crate) fn explained(error: impl Into<anyhow::Error>) -> anyhow::Error {
    match error.into().downcast::<client::Error>() {
        Ok(error) => of_client(error),
        Err(error) => error,
    }
}

fn of_client(error: client::Error) -> anyhow::Error {
    if let Some(denied) = error.denied() {
        return denied_hint(denied);
    }
    match error {
        client::Error::Request { what, is_over_http, source } => no_answer(what, is_over_http, &source),
        client::Error::Publish(error) => not_stored(&error),
        client::Error::Bus(error) => unreachable(&error),
        client::Error::NoRun(_) => anyhow::anyhow!(
            "{error}\n\nhint: `trellis runs list` shows the newest; logs are kept for a limited time"
        ),
        client::Error::NoJournal(missing) => anyhow::anyhow!("{missing}\n\nhint: {}", missing.hint()),
        client::Error::NotAuthentic { .. } => {
            anyhow::anyhow!("{error}\n\nhint: check that it is the key of this deployment")
        }
        client::Error::Message(_)
        | client::Error::Answer { .. }
        | client::Error::OtherAnswer(_)
        | client::Error::Event(_)
        | client::Error::Outcome(_)
        | client::Error::Entry(_)
        | client::Error::Expired(_)
        | client::Error::NotBegun(_)
        | client::Error::LogEnded
        | client::Error::Interrupted(_) => error.into(),
    }
}

fn no_answer(what: &str, is_over_http: bool, error: &RequestError) -> anyhow::Error {
    let why = match error {
        RequestError::NoResponders => format!("no coordinator listens for {what}"),
        RequestError::TimedOut => format!("no coordinator answered {what} within {} s", REQUEST.as_secs()),
        RequestError::Denied(denied) => return denied_hint(denied),
        RequestError::Other(why) => format!("could not send {what}: {why}"),
    };
    let hint = match is_over_http {
        true => {
            "check the address (TRELLIS_URL) and the token (TRELLIS_TOKEN_FILE); `trellis doctor` checks the server"
        }
        false => {
            "check that a coordinator runs (`trellis coordinator`) in the same --namespace; `trellis doctor` checks each \
                server"
        }
    };
    Unreachable(format!("{why}\n\nhint: {hint}")).into()
}

fn not_stored(error: &PublishError) -> anyhow::Error {
    Unreachable(format!("{error}\n\nhint: `trellis doctor` checks each server")).into()
}

/// The hint for a server that can't reserve the storage of a deployment's streams.
pub(crate) const MORE_ROOM: &str = "give nats-server a larger disk, or a larger `max_file_store` in its jetstream block (without one it takes three quarters of \
     what is free on the disk), or give smaller sizes to `trellis provision`: --max-log-bytes, --max-queue-bytes, \
     --max-journal-bytes, --max-output-bytes";

/// Turns an error of the bus into the error that ends the command, with a hint. Its type selects
/// the exit code: "cannot connect", or "refused" if the server denied permission.
pub(crate) fn unreachable(error: &bus::Error) -> anyhow::Error {
    let hint = match error {
        bus::Error::Connect { .. } => connecting_hint(&error.to_string()),
        bus::Error::Unreached { .. } => {
            "check that `trellis dev` or `trellis gateway` runs there, and the token (TRELLIS_TOKEN_FILE)"
        }
        bus::Error::TooOld { .. } => "install a newer nats-server; its streams and data stay",
        bus::Error::Mismatch { .. } => {
            "another version or configuration created it; change it with the `nats` tool, or use another --namespace"
        }
        bus::Error::NoRoom { .. } => MORE_ROOM,
        bus::Error::Lower { .. } => {
            "give the options of the deployment, or --allow-lower if its oldest messages or replicas may be deleted"
        }
        bus::Error::TooLarge { .. } => {
            "Trellis stores no objects of that size: find the program that stored it"
        }
        bus::Error::Denied(denied) => return denied_hint(denied),
        bus::Error::Failed { .. } => "`trellis doctor` checks each server",
    };
    Unreachable(format!("{error}\n\nhint: {hint}")).into()
}

/// The hint for a failed connection, chosen by words in the NATS client's message.
fn connecting_hint(said: &str) -> &'static str {
    let said = said.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if says(&["authorization", "nkey", "seed", "credentials"]) {
        "give the key of a user that the server knows: NATS_NKEY_FILE (a file that ends in .nk) or NATS_CREDS, as `trellis auth` wrote it"
    } else if says(&["certificate", "unknownissuer", "tls"]) {
        "set NATS_CA to the CA certificate of the server, and NATS_CERT and NATS_KEY if the server requires a client \
                certificate"
    } else {
        "check that nats-server runs there with JetStream (`nats-server -js`); `trellis doctor` checks each server"
    }
}

/// The error for a missing permission, with the roles that have it.
fn denied_hint(denied: &bus::Denied) -> anyhow::Error {
    let as_others = denied.subject.strip_prefix('$');
    let is_for_others = |call: &str| !role::who_may_send(&Namespace::default(), call).is_empty();
    let hint = match denied.action {
        bus::Action::Publish if denied.subject.contains(".STREAM.CREATE.") => {
            "the streams do not exist yet: run `trellis provision` with the provisioner's key, then repeat this command".to_owned()
        }
        bus::Action::Publish if as_others.is_some_and(is_for_others) => format!(
            "set NATS_JS_API={}, as `trellis auth` wrote it for every role but the coordinator's and the provisioner's",
            role::CALLS_OF_OTHERS
        ),
        bus::Action::Subscribe if denied.subject.starts_with("_INBOX") => {
            "answers arrive in an inbox of this user: set NATS_INBOX, as `trellis auth` wrote it".to_owned()
        }
        bus::Action::Publish | bus::Action::Subscribe => {
            // In a deployment with a namespace, the namespace precedes the subject.
            let subject = denied.subject.as_str();
            let rest = subject.split_once('.').map_or(subject, |(_, rest)| rest);
            let may = match denied.action {
                bus::Action::Publish => {
                    let may = role::who_may_send(&Namespace::default(), subject);
                    if may.is_empty() { role::who_may_send(&Namespace::default(), rest) } else { may }
                }
                bus::Action::Subscribe => role::who_may_read(subject).or_else(|| role::who_may_read(rest)).unwrap_or_default(),
            };
            let may: Vec<&str> = may.iter().map(|kind| kind.name()).collect();
            let who = if may.is_empty() {
                "of a role with that permission".to_owned()
            } else {
                format!("of a role with that permission: {}", may.join(", "))
            };
            format!(
                "use credentials {who} (on NATS: NATS_NKEY_FILE, NATS_INBOX and NATS_JS_API, as `trellis auth` wrote them; over HTTP: \
                 TRELLIS_TOKEN_FILE)"
            )
        }
    };
    Denied(format!("{denied}\n\nhint: {hint}")).into()
}
