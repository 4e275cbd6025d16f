//! The credentials of connections: the variables that contain them, and the passwords in addresses.

use percent_encoding::percent_decode_str;

/// Variables with the credential of a connection or a log. With `_FILE` appended, they name a file
/// that contains it.
pub(super) const PASSWORDS: [&str; 6] =
    ["NATS_PASSWORD", "NATS_TOKEN", "NATS_NKEY", "REDIS_PASSWORD", "TRELLIS_LOG_KEY", "TRELLIS_TOKEN"];

/// Variables with addresses, which may contain a login.
pub(super) const ADDRESSES: [&str; 2] = ["NATS_URL", "REDIS_URL"];

/// An address without its login, and the login.
pub fn without_login(address: &str) -> (String, Option<&str>) {
    let (scheme, rest) = address.split_at(address.find("://").map_or(0, |at| at + "://".len()));
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => (format!("{scheme}{}", &rest[at + 1..]), Some(&rest[..at])),
        None => (address.to_owned(), None),
    }
}

/// The passwords in addresses that are separated by commas.
pub(super) fn passwords(addresses: &str) -> Vec<String> {
    let of = |address| {
        let (_, login) = without_login(address);
        let login = login?;
        // A user without a password is a token.
        let secret = login.split_once(':').map_or(login, |(_, password)| password);
        Some([secret.to_owned(), decoded(secret)])
    };
    addresses.split(',').filter_map(of).flatten().collect()
}

/// A part of an address without its escapes.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{super::file::is_recognised, *};

    #[test]
    fn s8_an_address_without_its_login_is_the_same_server() {
        for (with, without, login) in [
            ("redis://me:secret@host:6379/0", "redis://host:6379/0", Some("me:secret")),
            ("redis://host:6379", "redis://host:6379", None),
            ("b:2", "b:2", None),
            ("me:p@ss@b:2", "b:2", Some("me:p@ss")),
            ("nats://token@h?name=a@b", "nats://h?name=a@b", Some("token")),
            ("nats://h?name=a@b", "nats://h?name=a@b", None),
            ("unix:///run/redis@1.sock", "unix:///run/redis@1.sock", None),
        ] {
            assert_eq!(without_login(with), (without.to_owned(), login));
        }
    }

    /// proves: a password is recognised in its written and in its decoded form; a word that
    /// messages contain is not a password.
    #[test]
    fn s8_passwords_of_connections_are_known_in_both_forms() {
        let addresses = "nats://me:p%40ss%2Fword1@h:1,nats://h:2,tls://Tok3n-abc@h,nats://me:children@h,nats://me:short@h,me:n0-Scheme@h";
        let mut found = passwords(addresses);
        assert_eq!(found.len(), 10);
        found.retain(|secret| is_recognised(secret));
        let known = ["p%40ss%2Fword1", "p@ss/word1", "Tok3n-abc", "Tok3n-abc", "n0-Scheme", "n0-Scheme"];
        assert_eq!(found, known);
        assert!(!is_recognised("children") && !is_recognised("max_cost_usd"));
        assert!(is_recognised("correct horse battery") && is_recognised("hunter2hunter2"));
    }
}
