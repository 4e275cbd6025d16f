//! The first messages of an agent (I1): its role, its id and permissions, its task, its declared
//! inputs. Its tools and its output schema are sent with each call. Of its parent's messages it
//! gets only the categories that the spawn names in `share` (W3).

use domain::wire::{Execute, ShareCategory};

use super::{
    inputs,
    window::{Category, Window},
};
use crate::{
    model::Message,
    secret::Values,
    tool::{FS_WRITE, READ_CONTEXT, WRITE_CONTEXT, may_call},
};

/// The prompt does not mention a ceiling of this many tokens or more.
const MANY_TOKENS: u64 = 10_000_000;

/// The window of a context before its first step.
pub(crate) fn first_window(work: &Execute, secrets: &Values) -> Window {
    let mut window = Window::default();
    for shared in &work.shared_messages {
        window.add_shareable(shared.category, shared.content.clone());
    }
    window.add_shareable(ShareCategory::System, role(work));
    let mut own = format!("{}\n{}", place(work), limits(work));
    own.extend(secrets.describe(work).map(|secrets| format!("\n{secrets}")));
    window.add(Category::System, vec![Message::System(own)]);
    window.add(Category::System, vec![Message::User(task(work))]);
    inputs::show(&mut window, work);
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

/// Its id, where its result goes, and the keys of the shared store that it may use (C).
fn place(work: &Execute) -> String {
    let id = &work.child_id;
    let mut text = format!("Your id is `{id}`.");
    if let Some(key) = &work.output_to {
        text.push_str(&format!(" Your result is stored under the key `{key}`."));
    }
    if may_call(work, READ_CONTEXT) {
        let keys = if work.agent.reads_all_context { "every key".into() } else { readable(work) };
        text.push_str(&format!(" `{READ_CONTEXT}` reads {keys}."));
    }
    if may_call(work, WRITE_CONTEXT) {
        let own = work.output_to.as_ref().map(|key| format!("`{key}` and ")).unwrap_or_default();
        text.push_str(&format!(" `{WRITE_CONTEXT}` writes {own}keys that begin with `{id}.`."));
    }
    text
}

/// The limits that it can reach, in one line (L).
fn limits(work: &Execute) -> String {
    let limits = &work.limits;
    let mut parts = vec![format!("{} tokens in an answer", limits.max_tokens_per_step)];
    if work.tools.as_ref().is_none_or(|tools| !tools.is_empty()) {
        parts.push(format!("{} steps (tool calls and invalid answers)", limits.max_steps));
    }
    if may_call(work, FS_WRITE) {
        let (files, bytes) = (limits.max_output_files, limits.max_output_size_bytes);
        parts.push(format!("{files} files with {bytes} bytes together in outputs/"));
    }
    let tokens = work.budget.limit.tokens;
    if tokens.count() < MANY_TOKENS {
        parts.push(format!("{tokens} tokens in all calls together"));
    }
    format!("Your limits: {}.", parts.join(", "))
}

fn readable(work: &Execute) -> String {
    let keys = work.inputs.keys().chain(&work.output_to).map(|key| format!("`{key}`"));
    let own = format!("keys that begin with `{}.`", work.child_id);
    match keys.collect::<Vec<String>>().join(", ") {
        none if none.is_empty() => own,
        keys => format!("{keys} and {own}"),
    }
}
