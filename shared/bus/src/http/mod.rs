//! The bus of a cluster that is reached over HTTP: every call is carried as JSON to a gateway, which makes it on its own bus. Only what
//! clients do is carried; coordinators and workers need the servers themselves.

mod answer;
mod call;
mod client;
mod follow;
mod serve;

pub use call::{AsText, Base64Bytes, Call, Failure, Line, NAMESPACE, PATH};
pub use client::Http;
pub(super) use follow::{Follow, Subscription};
pub use serve::{Answer, answer};
