//! The whole result of a context: as it is in the log, or from the object store if it was too large for that.

use anyhow::{Context, bail};
use bus::Bus;
use domain::{
    Json, digest,
    wire::{ContextOutcome, ObjectReference, Payload},
};
use serde_json::Value;

use crate::cluster::connect::unreachable;

pub(crate) async fn whole(bus: &Bus, result: &Payload) -> anyhow::Result<Json> {
    match result {
        Payload::Inline(value) => Ok(value.clone()),
        Payload::Reference(reference) => fetch(bus, reference).await,
    }
}

/// The same of an outcome; none if it has none.
pub(crate) async fn of_outcome(bus: &Bus, context: &ContextOutcome) -> anyhow::Result<Option<Json>> {
    match (&context.result, &context.result_object) {
        (Some(value), _) => Ok(Some(value.clone())),
        (None, Some(reference)) => fetch(bus, reference).await.map(Some),
        (None, None) => Ok(None),
    }
}

/// What is stored is not trusted: its checksum is compared.
async fn fetch(bus: &Bus, reference: &ObjectReference) -> anyhow::Result<Json> {
    let ObjectReference { object, sha256, .. } = reference;
    let found = bus.get_content(object, sha256).await.map_err(|error| unreachable(&error))?;
    let bytes = found.with_context(|| {
        format!(
            "the result is no longer stored (`{object}`)\n\nhint: large results are kept for a limited time"
        )
    })?;
    if digest::sha256(&bytes) != *sha256 {
        bail!("the object `{object}` is not the result that was stored: its checksum differs");
    }
    let value: Value = serde_json::from_slice(&bytes).context("the stored result is no JSON")?;
    Ok(Json::from(value))
}
