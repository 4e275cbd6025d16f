//! The name of a coordinator or worker that was given none.

use shared::WorkerId;
use uuid::Uuid;

/// `<host>-<pid>-<random>`, with every character that an id can't have replaced.
pub(crate) fn fresh(fallback: &str) -> WorkerId {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String =
        host.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let host = host.trim_matches('-');
    let host = if host.is_empty() { fallback } else { host };
    let random = Uuid::new_v4().simple().to_string();
    WorkerId::new(&format!("{host}-{}-{}", std::process::id(), &random[..6]))
        .expect("letters, digits and dashes")
}
