//! `read_context` and `write_context`: the store that the agents of a trace share (C). The coordinator decides
//! who may read and write which key. An absent value differs from null.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use shared::{ContextKey, Json};

use super::{
    arguments,
    call::{Invocation, Output},
};
use crate::attempt::shared_store::Read;

pub(super) const READ: &str = shared::tool::READ_CONTEXT;
pub(super) const READ_DESCRIPTION: &str = "Reads a value of the store that the agents of this request share; with no key, lists the keys you \
     may read. `found` is false if there is no such value; a value may be null.";
pub(super) const WRITE: &str = shared::tool::WRITE_CONTEXT;
pub(super) const WRITE_DESCRIPTION: &str = "Writes a value into the store that the agents of this request share: under the key you were given \
     for your output, or a key that begins with your own id and a dot.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// With no key, the keys that may be read are listed.
    #[serde(default)]
    key: Option<ContextKey>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    key: ContextKey,
    /// Any JSON value, also null.
    value: Json,
}

pub(super) async fn read(invocation: Invocation<'_>) -> Output {
    let ReadArguments { key } = arguments::read(invocation)?;
    let attempt = invocation.attempt;
    let Some(key) = key else {
        return attempt.list_keys().await.map(|(keys, left_out)| match left_out {
            0 => json!({"keys": keys}).to_string(),
            more => json!({"keys": keys, "more": more}).to_string(),
        });
    };
    match attempt.read_value(key.clone()).await {
        Read::Value(found) => Ok(json!({
            "key": key, "found": true, "value": found.value, "writer": found.writer, "version": found.version,
        })
        .to_string()),
        Read::Absent => Ok(json!({"key": key, "found": false}).to_string()),
        Read::Refused(why) => Err(why),
    }
}

pub(super) async fn write(invocation: Invocation<'_>) -> Output {
    let WriteArguments { key, value } = arguments::read(invocation)?;
    invocation.attempt.write_value(key.clone(), value).await?;
    Ok(format!("wrote `{key}`"))
}
