//! Which addresses an operator allows, as the settings spell them: `example.org`, `example.org:8080`,
//! `*.example.org`.

use reqwest::Url;

/// Hosts an operator allows: one, or all beneath one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    host: String,
    beneath: bool,
    /// The usual one of the scheme if none is named.
    port: Option<u16>,
}

impl Allowed {
    pub(super) fn read(entry: &str) -> Option<Self> {
        let (beneath, rest) = match entry.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, entry),
        };
        // An address of IPv6 has colons of its own and stands in brackets.
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
            Some(_) | None => (rest, None),
        };
        // As an address spells it: in small letters, other scripts encoded.
        let url = Url::parse(&format!("http://{host}/")).ok()?;
        let plain = !host.is_empty() && !host.contains(['/', '@', '?', '#', '*', ' ', '\\']);
        let host = url.host_str().filter(|_| plain && url.port().is_none())?.to_owned();
        Some(Allowed { host, beneath, port })
    }

    pub(super) fn fits(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let host_fits = match self.beneath {
            true => host.strip_suffix(&self.host).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            false => host == self.host,
        };
        // A port that is the usual one of its scheme is none in an address.
        let port_fits = match self.port {
            None => url.port().is_none(),
            Some(port) => url.port_or_known_default() == Some(port),
        };
        host_fits && port_fits
    }
}

impl std::fmt::Display for Allowed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.beneath { "*." } else { "" }, self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_fits_only_what_was_allowed() {
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
            let allowed = Allowed::read(entry).unwrap();
            assert_eq!(allowed.fits(&Url::parse(url).unwrap()), expected, "{entry} {url}");
        }
        for entry in ["", "http://example.org", "example.org/x", "u@example.org", "*", "example.org:x"] {
            assert_eq!(Allowed::read(entry), None, "{entry}");
        }
    }
}
