//! `share`: writes into the shared context store, and shows what it may read there (C).

use serde_json::{Map, Value, json};
use shared::{ContextKey, Json, wire::Verdict};

use super::parameters::{Bad, Parameters};
use crate::{
    agent::{
        run::Run,
        verdict::{completed, failed},
    },
    attempt::shared_store::Read,
};

/// It shows no more keys than these.
const SHOWN: usize = 100;

pub(super) async fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, Bad> {
    let own = ContextKey::new(&format!("{}.note", run.work().child_id)).expect("an id, a dot and letters");
    let key = parameters.get_or("key", own)?;
    let value = parameters.get_or("value", Json::from(run.work().goal.as_str()))?;
    if let Err(message) = run.attempt.write_value(key, value).await {
        return Ok(failed(message));
    }
    let keys = match run.attempt.list_keys().await {
        Ok(keys) => keys,
        Err(message) => return Ok(failed(message)),
    };
    let mut read = Map::new();
    for key in keys.iter().take(SHOWN) {
        // Listed, it may be gone or forbidden all the same: others write meanwhile.
        match run.attempt.read_value(key.clone()).await {
            Read::Value(found) => {
                read.insert(key.to_string(), found.value.value().clone());
            }
            Read::Absent | Read::Refused(_) => {}
        }
    }
    Ok(completed(Json::from(json!({"keys": keys, "read": Value::Object(read)}))))
}
