//! The store that the agents of a trace share (C). Who may read and write what is the coordinator's to
//! say; an absent value and a null are told apart.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use shared::{ContextKey, Json};

use super::{Invocation, Said, arguments};
use crate::agent::Read;

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

pub(super) async fn read(invocation: Invocation<'_>) -> Said {
    let ReadArguments { key } = arguments::read(invocation)?;
    let run = invocation.run;
    let Some(key) = key else {
        return run.keys().await.map(|keys| json!({"keys": keys}).to_string());
    };
    match run.get(key.clone()).await {
        Read::Value(found) => Ok(json!({
            "key": key, "found": true, "value": found.value, "writer": found.writer, "version": found.version,
        })
        .to_string()),
        Read::Absent => Ok(json!({"key": key, "found": false}).to_string()),
        Read::Refused(why) => Err(why),
    }
}

pub(super) async fn write(invocation: Invocation<'_>) -> Said {
    let WriteArguments { key, value } = arguments::read(invocation)?;
    invocation.run.set(key.clone(), value).await?;
    Ok(format!("wrote `{key}`"))
}
