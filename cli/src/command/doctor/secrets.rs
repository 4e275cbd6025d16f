//! The checks of `trellis doctor` on secrets: whether other users of the machine can read their
//! files, and whether they cross a network unencrypted. No check reads a secret.

use std::{net::IpAddr, os::unix::fs::MetadataExt as _, path::PathBuf};

use gateway::doctor::{Findings, Level};

/// The mode bits that let users other than the owner read a file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// Reports files of keys, passwords and tokens that other users can read.
pub(super) fn files(files: &[(String, PathBuf)], findings: &mut Findings) {
    let is_open = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.mode() & READABLE_BY_OTHERS != 0)
    };
    for (name, path) in files.iter().filter(|(_, path)| is_open(path)) {
        let found = format!(
            "{} ({name}) can be read by other users of this machine, who could act as this one",
            path.display()
        );
        let hint = format!(
            "`chmod 600 {}`, and give the user another secret, if others may have read it",
            path.display()
        );
        findings.add("secret-files", Level::Warn, found, Some(&hint));
    }
}

/// Reports addresses beyond this machine that are used without TLS. NATS is not among them: the
/// server itself reports its encryption.
pub(super) fn plain_connections<'a>(
    urls: impl IntoIterator<Item = Option<&'a str>>,
    findings: &mut Findings,
) {
    for url in urls.into_iter().flatten().filter(|url| is_plain_and_far(url)) {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        let found = format!(
            "{scheme}://{host} is another machine, and without TLS: machines between can read logins and runs"
        );
        let hint = format!("use {scheme}s:// (docs/security.md), or an address of this machine");
        findings.add("tls", Level::Warn, found, Some(&hint));
    }
}

fn is_plain_and_far(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    if !matches!(scheme, "http" | "redis") {
        return false;
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn s2_a_file_of_a_secret_that_others_may_read_is_reported() {
        let directory = std::env::temp_dir().join(format!("trellis-doctor-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("client.nk");
        std::fs::write(&path, "secret").unwrap();
        for (mode, is_told) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let mut findings = Findings::default();
            files(&[("NATS_NKEY".into(), path.clone())], &mut findings);
            assert_eq!(findings.has("secret-files"), is_told, "{mode:o}");
        }
        let mut findings = Findings::default();
        files(&[("NATS_NKEY".into(), directory.join("none"))], &mut findings);
        assert!(!findings.has("secret-files"), "a missing one is reported where it is used");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn s1_an_address_beyond_this_machine_without_tls_is_reported() {
        for (url, is_told) in [
            ("redis://127.0.0.1:6379", false),
            ("redis://localhost:6379/0", false),
            ("redis://user:word@[::1]:6379", false),
            ("http://127.0.0.1:7420", false),
            ("redis://10.0.0.3:6379", true),
            ("redis://user:word@redis.internal:6379/0", true),
            ("rediss://redis.internal:6379", false),
            ("http://trellis.example.com", true),
            ("https://trellis.example.com", false),
        ] {
            let mut findings = Findings::default();
            plain_connections([Some(url), None], &mut findings);
            assert_eq!(findings.has("tls"), is_told, "{url}");
        }
    }
}
