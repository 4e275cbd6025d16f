//! How a server is trusted, and how it may trust us: the files of TLS, for NATS and Redis alike. Plain values.

use std::path::PathBuf;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// No connection without it, whatever the server offers.
    pub required: bool,
    /// Who signs the server's certificate; without it, whoever the system trusts.
    pub ca: Option<PathBuf>,
    /// Our own certificate and its key, for a server that asks for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
}
