//! The TLS settings of a connection to NATS or Redis: how the client verifies the server, and which
//! certificate it presents. Plain values.

use std::path::PathBuf;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// If true, the connection fails unless it uses TLS, even if the server accepts plain
    /// connections.
    pub required: bool,
    /// The certificate authority that signs the server's certificate. Without it, the system's
    /// authorities are trusted.
    pub ca: Option<PathBuf>,
    /// The client's certificate and its key, for a server that requires one.
    pub certificate: Option<(PathBuf, PathBuf)>,
}
