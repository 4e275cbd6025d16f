//! A question to the coordinators, and why it has no answer.

use bus::{Bus, RequestError};
use domain::{
    span::Headers,
    subject::Subject,
    wire::{Query, QueryAnswer},
};

use crate::cluster;

/// Why a question to the coordinators has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAsked {
    /// These credentials may not ask.
    Denied,
    Failed,
}

pub(super) async fn ask(bus: &Bus, query: &Query) -> Result<QueryAnswer, NotAsked> {
    let payload = serde_json::to_vec(query).map_err(|_| NotAsked::Failed)?;
    let asked =
        bus.request(&Subject::of_query(query), &Headers::new(), payload.into(), cluster::REQUEST).await;
    let answer = asked.map_err(|error| match error {
        RequestError::Denied(_) => NotAsked::Denied,
        RequestError::TimedOut | RequestError::NoResponders | RequestError::Other(_) => NotAsked::Failed,
    })?;
    serde_json::from_slice(&answer).map_err(|_| NotAsked::Failed)
}
