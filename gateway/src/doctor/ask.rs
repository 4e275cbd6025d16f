//! A question to the coordinators, and why it has no answer.

use bus::ClientBus;
use client::Client;
use domain::wire::{Query, QueryAnswer};

/// Why a question to the coordinators has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotAsked {
    /// These credentials may not ask.
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
