//! What connections are secured by: which variables have it, and the passwords in addresses.

/// Variables that hold what a connection or a log is secured by, or name its file with `_FILE` behind them.
pub(super) const PASSWORDS: [&str; 5] =
    ["NATS_PASSWORD", "NATS_TOKEN", "NATS_NKEY", "REDIS_PASSWORD", "TRELLIS_LOG_KEY"];

/// Variables with addresses, which may have a login.
pub(super) const ADDRESSES: [&str; 2] = ["NATS_URL", "REDIS_URL"];

/// The passwords in addresses that are separated by commas.
pub(super) fn passwords(addresses: &str) -> Vec<String> {
    let of = |address: &str| {
        let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next()?;
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

#[cfg(test)]
mod tests {
    use super::{super::file::is_recognised, *};

    /// proves: a password is known as it is written and as it is meant; a word that messages themselves have is none.
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
