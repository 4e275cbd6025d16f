//! Connections to other parties' servers (S5): the addresses that are allowed, and a client that
//! connects to no others.
//!
//! Allowed are public addresses of the internet, and those that an operator lists. A name is looked
//! up here, and the connection uses only the addresses that were checked. A second look-up with
//! another result therefore has no effect.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, OnceLock},
};

use futures_util::future::BoxFuture;
use reqwest::{
    Client, ClientBuilder,
    dns::{Addrs, Name, Resolve, Resolving},
    header::{ACCEPT_ENCODING, HeaderMap, HeaderValue},
    redirect::Policy,
};

use domain::wording::with_causes;

/// A client for other parties' servers. It follows no redirect and accepts no compressed answer. If
/// the system has no certificate authorities, it trusts no TLS server.
pub fn strict_client() -> ClientBuilder {
    if has_authorities() { plain_client() } else { plain_client().tls_certs_only([]) }
}

/// Returns true if the system has certificate authorities. If not, the consequences are logged
/// once.
fn has_authorities() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let built = Client::builder().build();
        if let Err(error) = &built {
            tracing::warn!(
                error = with_causes(error),
                "this machine has no CA certificates, so no model, tool, page or webhook can be reached over https. Install them (on \
                 Debian: ca-certificates), or name a file of them in SSL_CERT_FILE"
            );
        }
        built.is_ok()
    })
}

/// Like [`strict_client`], but the caller chooses the authorities.
pub fn plain_client() -> ClientBuilder {
    let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
    Client::builder().redirect(Policy::none()).no_gzip().default_headers(headers).tcp_nodelay(true)
}

/// Looks up the addresses of a name.
pub type LookUp = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Looks names up as the system does.
pub fn by_system() -> LookUp {
    Arc::new(|name| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

/// Looks names up for one port, and removes addresses that are not allowed.
pub struct Resolver {
    pub look_up: LookUp,
    /// The addresses that the operator lists for this port.
    pub listed: Arc<BTreeSet<IpAddr>>,
    /// The way for an operator to list an address, for the error message.
    pub hint: &'static str,
}

#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the name has no address")]
    NoAddress,
    #[error("the name belongs to an internal network (hint: {0})")]
    Internal(&'static str),
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (found, listed, hint) =
            ((self.look_up)(name.as_str().to_owned()), self.listed.clone(), self.hint);
        Box::pin(async move {
            let found = found.await?;
            if found.is_empty() {
                return Err(Refusal::NoAddress.into());
            }
            let may = |address: &IpAddr| is_global(*address) || listed.contains(&address.to_canonical());
            let checked: Vec<SocketAddr> =
                found.into_iter().filter(may).map(|address| SocketAddr::new(address, 0)).collect();
            if checked.is_empty() {
                return Err(Refusal::Internal(hint).into());
            }
            Ok(Box::new(checked.into_iter()) as Addrs)
        })
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("listed", &self.listed).finish_non_exhaustive()
    }
}

/// Returns true if the address belongs to a machine on the public internet, according to the
/// registries of special addresses.
pub fn is_global(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_global_v4(address),
        IpAddr::V6(address) => is_global_v6(address),
    }
}

fn is_global_v4(address: Ipv4Addr) -> bool {
    !matches!(
        address.octets(),
        // This network, private addresses, loopback, link-local, multicast and reserved addresses.
        [0 | 10 | 127 | 224.., ..] | [169, 254, ..] | [172, 16..=31, ..] | [192, 168, ..]
        // Between a provider and its customers (CGNAT), protocol assignments, 6to4 relays,
        // benchmarks, documentation.
        | [100, 64..=127, ..] | [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _]
    )
}

fn is_global_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // Protocol assignments (Teredo, ORCHID, benchmarks), documentation, 6to4, documentation
        // again.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Only 2000::/3 is assigned to machines. Loopback, NAT64, unique local, link-local and
        // multicast addresses are outside it.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_only_addresses_of_the_internet_are_global() {
        for global in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "128.0.0.1",
            "169.253.1.1",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.1.1",
            "198.17.1.1",
            "198.20.1.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2001:200::1",
            "3ffe::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_global(global.parse().unwrap()), "{global}");
        }
        for internal in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_global(internal.parse().unwrap()), "{internal}");
        }
    }
}
