//! Checks the text of a model's answer: any text, or JSON that matches the required schema.

use domain::{
    Json,
    graph::OutputSchema,
    wire::{Execute, ModelStep},
};
use serde_json::Value;

/// Returns the answer, or a message for the model that describes the error.
pub(super) fn judge(work: &Execute, step: &ModelStep) -> Result<Json, String> {
    if !step.unoffered.is_empty() {
        let tools = step.unoffered.join("`, `");
        return Err(format!("You called `{tools}`, and you have no tools. Give your answer as text."));
    }
    let text = step.text.as_deref().unwrap_or_default().trim();
    if text.is_empty() {
        return Err("Your answer is empty. Give your answer, or call a tool.".into());
    }
    let Some(schema) = &work.output_schema else { return Ok(Json::from(text)) };
    let value: Value = serde_json::from_str(without_fence(text))
        .map_err(|error| format!("Your answer is not JSON: {error}. Answer only with JSON."))?;
    let value = Json::from(value);
    // An invalid schema was already rejected when the work was submitted.
    let Ok(schema) = OutputSchema::compile(schema) else { return Ok(value) };
    match schema.check(&value) {
        Ok(()) => Ok(value),
        Err(why) => {
            Err(format!("Your answer does not match the schema: {why}. Answer again, only with JSON."))
        }
    }
}

/// The JSON without the code fence that models often put around it.
fn without_fence(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner).trim())
}
