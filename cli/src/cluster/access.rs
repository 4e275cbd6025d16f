//! The permissions that the servers enforce, written from the table of roles and from nothing else
//! (S1). For nats-server these are accounts with users by public key; for Redis, users by the hash
//! of their password. No output contains a secret.

use std::fmt::Write;

use bus::role::{Account, Import, Role, What, imports};
use coordinator::store;
use domain::{digest::sha256, subject::Namespace};

/// A user of the NATS server: its role and its public nkey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) role: Role,
    pub(crate) public: String,
}

/// The accounts of nats-server, as a file that its configuration includes.
pub(crate) fn nats(namespace: &Namespace, users: &[User]) -> String {
    let mut text = String::from(
        "# The permissions of users on this NATS server, written by `trellis auth`: change them by that command, then \
                reload the server\n# (`nats-server --signal reload`). This file has public keys only.\n\naccounts {\n",
    );
    let all = imports(namespace);
    for account in Account::ALL {
        let _ = writeln!(text, "  {} {{", account.name());
        if account == Account::Core {
            text.push_str("    jetstream: enabled\n");
        }
        let exports = exports(&all, account);
        if !exports.is_empty() {
            text.push_str("    exports: [\n");
            for line in &exports {
                let _ = writeln!(text, "      {line}");
            }
            text.push_str("    ]\n");
        }
        let taken: Vec<&Import> = all.iter().filter(|import| import.to == account).collect();
        if !taken.is_empty() {
            text.push_str("    imports: [\n");
            for import in taken {
                let (from, subject) = (import.from.name(), quoted(&import.subject));
                // With `share`, the server names the requester in a header, which no client can
                // forge. Subjects that begin with `$` go without: the server would answer for the
                // requester's account, which has no streams.
                let share = if import.subject.starts_with('$') { "" } else { ", share: true" };
                let to = import
                    .renamed
                    .as_ref()
                    .map_or_else(String::new, |name| format!(", to: {}", quoted(name)));
                let _ = match import.what {
                    What::Service { .. } => {
                        writeln!(
                            text,
                            "      {{ service: {{ account: {from}, subject: {subject} }}{to}{share} }}"
                        )
                    }
                    What::Stream => {
                        writeln!(text, "      {{ stream: {{ account: {from}, subject: {subject} }} }}")
                    }
                };
            }
            text.push_str("    ]\n");
        }
        text.push_str("    users: [\n");
        for user in users.iter().filter(|user| user.role.kind.account() == account) {
            let rights = user.role.rights(namespace);
            let list = |subjects: &[String]| {
                subjects.iter().map(|subject| quoted(subject)).collect::<Vec<_>>().join(", ")
            };
            let _ = writeln!(text, "      # {}", user.role.name);
            let _ = writeln!(text, "      {{ nkey: {}, permissions: {{", user.public);
            let _ = writeln!(text, "          publish: {{ allow: [{}] }}", list(&rights.publish));
            let _ = writeln!(text, "          subscribe: {{ allow: [{}] }} }} }}", list(&rights.subscribe));
        }
        text.push_str("    ]\n  }\n");
    }
    text.push_str("}\n");
    text
}

/// The services and streams that an account exports, each only to the accounts that import it.
fn exports(all: &[Import], account: Account) -> Vec<String> {
    let mut lines = Vec::new();
    let mut of: Vec<(&String, What)> = all
        .iter()
        .filter(|import| import.from == account)
        .map(|import| (&import.subject, import.what))
        .collect();
    of.sort();
    of.dedup();
    for (subject, what) in of {
        let takers = all
            .iter()
            .filter(|import| import.from == account && import.subject == *subject && import.what == what);
        let takers: Vec<&str> = takers.map(|import| import.to.name()).collect();
        let (subject, takers) = (quoted(subject), takers.join(", "));
        lines.push(match what {
            What::Service { streamed: true } => {
                format!("{{ service: {subject}, response_type: stream, accounts: [{takers}] }}")
            }
            What::Service { streamed: false } => format!("{{ service: {subject}, accounts: [{takers}] }}"),
            What::Stream => format!("{{ stream: {subject}, accounts: [{takers}] }}"),
        });
    }
    lines
}

fn quoted(subject: &str) -> String {
    format!("\"{subject}\"")
}

/// The user of connections without a login. It is off and has no password, so no client can be this
/// user. It needs all permissions, because Redis replays its append-only file as this user. Without
/// them, a restart drops each MULTI/EXEC and each script with several writes, and every commit with
/// them.
pub(crate) const DEFAULT_USER: &str = "user default off resetpass allkeys allchannels +@all";

/// The users of Redis: `default`; `coordinator` with its commands and keys; `doctor`, which reads
/// settings and the permissions of `default`, and makes the server read this file again.
pub(crate) fn redis(namespace: &Namespace, coordinator: &str, doctor: &str) -> String {
    let commands: Vec<String> = store::COMMANDS.iter().map(|command| format!("+{command}")).collect();
    format!(
        "{DEFAULT_USER}\n\
         user coordinator on resetpass #{} resetkeys {} resetchannels -@all {}\n\
         user doctor on resetpass #{} resetkeys resetchannels -@all +ping +info +config|get +acl|load +acl|getuser +cluster|slots +role\n",
        sha256(coordinator),
        store::key_patterns(namespace).map(|keys| format!("~{keys}")).join(" "),
        commands.join(" "),
        sha256(doctor),
    )
}
