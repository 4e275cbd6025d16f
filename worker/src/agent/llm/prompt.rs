//! The first messages of an agent (I1): its role, its task, its declared inputs. Its tools are sent with each call. Of
//! its parent's messages it gets only the categories that the spawn names in `share` (W3).

use serde_json::{Map, Value};
use shared::wire::{Execute, ShareCategory};

use super::window::{Category, Window};
use crate::model::Message;

/// The window of a context before its first step.
pub(crate) fn first_window(work: &Execute) -> Window {
    let mut window = Window::default();
    for shared in &work.shared_messages {
        window.add_shareable(shared.category, shared.content.clone());
    }
    window.add_shareable(ShareCategory::System, role(work));
    if let Some(schema) = &work.output_schema {
        let instruction =
            format!("Your final answer must be only JSON that matches this schema:\n{}", schema.value());
        window.add(Category::System, vec![Message::System(instruction)]);
    }
    window.add(Category::System, vec![Message::User(task(work))]);
    if !work.inputs.is_empty() {
        let inputs: Map<String, Value> =
            work.inputs.iter().map(|(key, value)| (key.to_string(), value.value().clone())).collect();
        window.add_shareable(ShareCategory::Context, format!("Inputs:\n{:#}", Value::Object(inputs)));
    }
    window
}

/// The task, which is never shared with children.
fn task(work: &Execute) -> String {
    format!("Your task: {}", work.goal)
}

fn role(work: &Execute) -> String {
    match (&work.agent.system_prompt, &work.agent.description) {
        (Some(prompt), _) => prompt.clone(),
        (None, Some(description)) => format!("You are `{}`: {description}", work.agent.agent_id),
        (None, None) => format!("You are `{}`.", work.agent.agent_id),
    }
}
