//! The bus of a cluster over HTTP. Every call is sent as JSON to a gateway, which makes the call on
//! its own bus. Only calls of clients are supported; coordinators and workers connect to the
//! servers themselves.

mod answer;
mod call;
mod client;
mod follow;
mod serve;

pub use call::{AsText, Base64Bytes, Call, Failure, Line, NAMESPACE, PATH};
pub use client::Http;
pub(super) use follow::{Follow, Subscription};
pub use serve::{Answer, answer};
