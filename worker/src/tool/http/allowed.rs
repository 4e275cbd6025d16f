//! The hosts that an operator allows, in the form of the settings: `example.org`,
//! `example.org:8080`, `*.example.org`.

use std::net::IpAddr;

use reqwest::Url;

/// An allowed host, or all subdomains of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AllowedHost {
    host: String,
    subdomains: bool,
    /// `None` for the default port of the scheme.
    port: Option<u16>,
}

impl AllowedHost {
    pub(super) fn parse(entry: &str) -> Option<Self> {
        let (subdomains, rest) = match entry.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, entry),
        };
        // An IPv6 address contains colons, and is written in brackets.
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
            Some(_) | None => (rest, None),
        };
        // Normalized as in a URL: lowercase, other scripts encoded.
        let url = Url::parse(&format!("http://{host}/")).ok()?;
        let plain = !host.is_empty() && !host.contains(['/', '@', '?', '#', '*', ' ', '\\']);
        let host = url.host_str().filter(|_| plain && url.port().is_none())?.to_owned();
        Some(AllowedHost { host, subdomains, port })
    }

    /// Returns true if the entry names a port. A secret may be sent without https only to such an
    /// entry.
    pub(super) fn names_port(&self) -> bool {
        self.port.is_some()
    }

    /// The port that the entry names.
    pub(super) fn port(&self) -> Option<u16> {
        self.port
    }

    /// The address of the entry; `None` if the entry is a name.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        host.parse::<IpAddr>().ok().filter(|_| !self.subdomains).map(|address| address.to_canonical())
    }

    pub(super) fn matches(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let host_fits = match self.subdomains {
            true => host.strip_suffix(&self.host).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            false => host == self.host,
        };
        // A URL has no port if it is the default of its scheme.
        let port_fits = match self.port {
            None => url.port().is_none(),
            Some(port) => url.port_or_known_default() == Some(port),
        };
        host_fits && port_fits
    }
}

impl std::fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.subdomains { "*." } else { "" }, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_matches_only_the_allowed_hosts() {
        let cases = [
            ("example.org", "https://example.org/x", true),
            ("example.org", "http://EXAMPLE.org:80/", true),
            ("example.org", "http://example.org:8080/", false),
            ("example.org", "https://example.org.evil.net/", false),
            ("example.org", "https://www.example.org/", false),
            ("example.org:8080", "http://example.org:8080/", true),
            ("example.org:443", "https://example.org/", true),
            ("*.example.org", "https://a.b.example.org/", true),
            ("*.example.org", "https://example.org/", false),
            ("*.example.org", "https://evilexample.org/", false),
            ("127.0.0.1", "http://127.1/", true),
            ("[::1]:80", "http://[::1]/", true),
        ];
        for (entry, url, expected) in cases {
            let allowed = AllowedHost::parse(entry).unwrap();
            assert_eq!(allowed.matches(&Url::parse(url).unwrap()), expected, "{entry} {url}");
        }
        for entry in ["", "http://example.org", "example.org/x", "u@example.org", "*", "example.org:x"] {
            assert_eq!(AllowedHost::parse(entry), None, "{entry}");
        }
    }
}
