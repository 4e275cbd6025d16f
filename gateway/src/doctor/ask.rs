//! Sends a query to the coordinators and returns the answer, or the reason of its absence.

use bus::ClientBus;
use client::Client;
use domain::wire::{Query, QueryAnswer};

/// The reasons for which a query has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAsked {
    /// The credentials do not allow the query.
    Denied,
    Failed,
}

pub(super) async fn ask(bus: &ClientBus, query: &Query) -> Result<QueryAnswer, NotAsked> {
    let reply = Client::new(bus.clone(), "doctor").query_once(query).await;
    let reply = reply.map_err(|error| match error.denied() {
        Some(_) => NotAsked::Denied,
        None => NotAsked::Failed,
    });
    reply.map(|reply| reply.unwrap_or_else(QueryAnswer::Refused))
}
