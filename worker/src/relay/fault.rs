//! Why an answer was not passed on, or not as a whole.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{StatusCode, header::HeaderMap};

use super::frames::TooMuch;

/// Why there is no whole answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// Another status than success, with the beginning of its body.
    #[error("it answered {status}")]
    Status { status: StatusCode, headers: Box<HeaderMap>, body: String },
    /// The request was not sent, or there was no answer to it.
    #[error("no answer")]
    Http(#[source] reqwest::Error),
    /// The body ended before its end.
    #[error("the answer broke off")]
    Broken(#[source] reqwest::Error),
    #[error("the answer is encoded (`content-encoding`), which was not asked for")]
    Encoded,
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    #[error("no complete answer within {0:?}")]
    Late(Duration),
    /// The library closed its side, or asked for what is not served here.
    #[error("the library closed its connection")]
    Local(#[source] std::io::Error),
}

/// The last fault of a relay that goes on after one.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastFault(Arc<Mutex<Option<String>>>);

impl LastFault {
    pub(super) fn set(&self, fault: &Fault) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(domain::wording::with_causes(fault));
    }

    /// A fault that another found, in its words.
    pub(crate) fn tell(&self, why: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
