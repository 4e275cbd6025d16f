//! Whether what a model said is an answer: text, or JSON that fits the schema that was asked for.

use serde_json::Value;
use shared::{
    Json,
    graph::OutputSchema,
    wire::{Execute, ModelStep},
};

/// The answer, or what to tell the model that gave none.
pub(super) fn judge(work: &Execute, step: &ModelStep) -> Result<Json, String> {
    let text = step.text.as_deref().unwrap_or_default().trim();
    if text.is_empty() {
        return Err("You said nothing. Give your answer, or call a tool.".into());
    }
    let Some(schema) = &work.output_schema else { return Ok(Json::from(text)) };
    let value: Value = serde_json::from_str(unfenced(text))
        .map_err(|error| format!("Your answer is not JSON: {error}. Answer with the JSON alone."))?;
    let value = Json::from(value);
    // A schema that is none was refused when the work was submitted.
    let Ok(schema) = OutputSchema::compile(schema) else { return Ok(value) };
    match schema.check(&value) {
        Ok(()) => Ok(value),
        Err(why) => {
            Err(format!("Your answer does not fit the schema: {why}. Answer again with the JSON alone."))
        }
    }
}

/// What stands between the fences models like to put around JSON.
fn unfenced(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner).trim())
}
