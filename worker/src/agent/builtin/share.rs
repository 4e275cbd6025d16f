//! `share`: writes a value into the shared store, then returns the keys and values that it may read
//! (C).

use domain::{ContextKey, Json, wire::Verdict};
use serde_json::{Map, Value, json};

use super::parameters::{InvalidParameter, Parameters};
use crate::{
    agent::{
        run::Run,
        verdict::{completed, failed},
    },
    attempt::shared_store::Read,
};

/// The most keys whose values the result shows.
const MAX_SHOWN: usize = 100;

pub(super) async fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, InvalidParameter> {
    let own = ContextKey::new(&format!("{}.note", run.work().child_id)).expect("an id, a dot and letters");
    let key = parameters.get_or("key", own)?;
    let value = parameters.get_or("value", Json::from(run.work().goal.as_str()))?;
    if let Err(message) = run.attempt.write_value(key, value).await {
        return Ok(failed(message));
    }
    let keys = match run.attempt.list_keys().await {
        Ok((keys, _)) => keys,
        Err(message) => return Ok(failed(message)),
    };
    let mut read = Map::new();
    for key in keys.iter().take(MAX_SHOWN) {
        // Other agents write meanwhile, so a listed key may now be missing or forbidden.
        match run.attempt.read_value(key.clone()).await {
            Read::Value(found) => {
                read.insert(key.to_string(), found.value.value().clone());
            }
            Read::Absent | Read::Refused(_) => {}
        }
    }
    Ok(completed(Json::from(json!({"keys": keys, "read": Value::Object(read)}))))
}
