//! The reasons why an answer was not passed on, or only in part.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{StatusCode, header::HeaderMap};

use super::frames::TooMuch;

/// The reason why there is no whole answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// A status other than success, with the beginning of its body.
    #[error("it answered {status}")]
    Status { status: StatusCode, headers: Box<HeaderMap>, body: String },
    /// The request was not sent, or got no answer.
    #[error("no answer")]
    Http(#[source] reqwest::Error),
    /// The body broke off before its end.
    #[error("the answer broke off")]
    Broken(#[source] reqwest::Error),
    #[error("the answer has an encoding (`content-encoding`) that was not requested")]
    Encoded,
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    #[error("no complete answer within {0:?}")]
    Late(Duration),
    /// The library closed its side, or sent a request that the relay does not serve.
    #[error("the library closed its connection")]
    Local(#[source] std::io::Error),
}

/// The last fault of a relay that continues after faults.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastFault(Arc<Mutex<Option<String>>>);

impl LastFault {
    pub(super) fn set(&self, fault: &Fault) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(domain::wording::with_causes(fault));
    }

    /// Sets a fault that other code found, as its text.
    pub(crate) fn tell(&self, why: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    pub(crate) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
