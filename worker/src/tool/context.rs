//! `read_context` and `write_context`: the store that the agents of a trace share (C). The
//! coordinator decides which contexts may read and write a key. A missing value differs from null.

use domain::{ChildId, ContextKey, Json};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    arguments,
    call::{Invocation, Output},
    passage,
};
use crate::{
    attempt::shared_store::Read,
    files::tool_output::{self, PASSAGE_BYTES},
};

pub(crate) const READ: &str = tool_output::READ_CONTEXT_TOOL;
pub(super) const READ_DESCRIPTION: &str = "Reads one of your inputs or a value of the store that the agents of this request share; with no key, \
     lists the keys you may read. `found` is false if there is no such value; a value may be null. Read a long value \
     in passages, with `offset` and `length`, or a part of it with `pointer`.";
pub(crate) const WRITE: &str = domain::tool::WRITE_CONTEXT;
pub(super) const WRITE_DESCRIPTION: &str = "Writes a value into the store that the agents of this request share: under the key you were given \
     for your output, or a key that begins with your own id and a dot.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// The key to read; if absent, the keys that you may read are listed.
    #[serde(default)]
    key: Option<ContextKey>,
    /// A JSON pointer to a part of the value, such as `/rows/3/name`.
    #[serde(default)]
    pointer: Option<String>,
    /// The first byte to show, counted from 0, of the text (of the JSON, if it is not a text).
    #[serde(default)]
    offset: Option<usize>,
    /// The number of bytes to show; at most 16384.
    #[serde(default)]
    length: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    key: ContextKey,
    /// Any JSON value, including null.
    value: Json,
}

pub(super) async fn read(invocation: Invocation<'_>) -> Output {
    let ReadArguments { key, pointer, offset, length } = arguments::read(invocation)?;
    let attempt = invocation.attempt;
    let Some(key) = key else {
        let (mut keys, left_out) = attempt.list_keys().await?;
        keys.extend(attempt.work.inputs.keys().cloned());
        keys.sort_unstable();
        keys.dedup();
        return Ok(match left_out {
            0 => json!({"keys": keys}).to_string(),
            more => json!({"keys": keys, "more": more}).to_string(),
        });
    };
    let mut found = match attempt.read_value(key.clone()).await {
        Read::Value(found) => {
            FoundValue { value: found.value, writer: found.writer, version: Some(found.version) }
        }
        Read::Absent | Read::Refused(_) if attempt.work.inputs.contains_key(&key) => {
            // The key is an input of this context, and inputs are not in the store.
            FoundValue { value: attempt.work.inputs[&key].clone(), writer: None, version: None }
        }
        Read::Absent => return Ok(json!({"key": key, "found": false}).to_string()),
        Read::Refused(why) => return Err(why),
    };
    if let Some(pointer) = &pointer {
        found.value = passage::part(&found.value, &key, pointer)?;
    }
    if offset.is_some() || length.is_some() {
        return passage::cut_out(found.value.value(), offset.unwrap_or(0), length.unwrap_or(PASSAGE_BYTES));
    }
    let mut shown = json!({"key": key, "found": true, "value": found.value, "writer": found.writer, "version": found.version});
    if let Some(pointer) = pointer {
        shown["pointer"] = pointer.into();
    }
    Ok(shown.to_string())
}

/// A value and its writer.
struct FoundValue {
    value: Json,
    writer: Option<ChildId>,
    version: Option<u32>,
}

pub(super) async fn write(invocation: Invocation<'_>) -> Output {
    let WriteArguments { key, value } = arguments::read(invocation)?;
    invocation.attempt.write_value(key.clone(), value).await?;
    Ok(format!("wrote `{key}`"))
}
