//! The default names of coordinators, workers, and users of the command line.

use domain::WorkerId;
use uuid::Uuid;

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default()
}

/// `<user>@<host>`: the sender in an administrator's messages (S7).
pub(crate) fn user() -> String {
    let named = ["USER", "LOGNAME"].into_iter().find_map(std::env::var_os);
    let user = named.map_or_else(|| "somebody".into(), |user| user.to_string_lossy().into_owned());
    let plain =
        |text: &str| -> String { text.trim().chars().filter(char::is_ascii_graphic).take(64).collect() };
    format!("{}@{}", plain(&user), plain(&host()))
}

/// `<host>-<pid>-<random>`. Characters that an id can't have are replaced.
pub(crate) fn fresh(fallback: &str) -> WorkerId {
    let host = host();
    let host: String =
        host.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
    let host = host.trim_matches('-');
    let host = if host.is_empty() { fallback } else { host };
    let random = Uuid::new_v4().simple().to_string();
    WorkerId::new(&format!("{host}-{}-{}", std::process::id(), &random[..6]))
        .expect("letters, digits and dashes")
}
