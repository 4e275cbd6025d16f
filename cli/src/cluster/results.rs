//! The whole result of a context: from the log, or from the object store if it was too large for
//! the log.

use anyhow::{Context, bail};
use client::{Client, Content};
use domain::{
    Json,
    wire::{ContextOutcome, ObjectReference, Payload},
};
use serde_json::Value;

pub(crate) async fn whole(client: &Client, result: &Payload) -> anyhow::Result<Json> {
    match result {
        Payload::Inline(value) => Ok(value.clone()),
        Payload::Reference(reference) => fetch(client, reference).await,
    }
}

/// The whole result of an outcome; `None` if the outcome has no result.
pub(crate) async fn of_outcome(client: &Client, context: &ContextOutcome) -> anyhow::Result<Option<Json>> {
    match (&context.result, &context.result_object) {
        (Some(value), _) => Ok(Some(value.clone())),
        (None, Some(reference)) => fetch(client, reference).await.map(Some),
        (None, None) => Ok(None),
    }
}

async fn fetch(client: &Client, reference: &ObjectReference) -> anyhow::Result<Json> {
    let object = &reference.object;
    let bytes = match client.content(reference).await? {
        Content::Stored(bytes) => bytes,
        Content::Expired => bail!(
            "the result is no longer stored (`{object}`)\n\nhint: large results are kept for a limited time"
        ),
        Content::Altered => {
            bail!("the object `{object}` is not the result that was stored: its checksum differs")
        }
    };
    let value: Value = serde_json::from_slice(&bytes).context("the stored result is not JSON")?;
    Ok(Json::from(value))
}
