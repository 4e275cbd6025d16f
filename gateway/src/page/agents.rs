//! Agent profiles: their names, models, tools and ceilings.

use domain::{AgentProfile, agent::AgentKind, id::ToolName, wording::count};
use maud::{Markup, html};
use text::human_time;

use super::{answer, shell::Here};
use crate::{call::Call, problem::ApiResult, routes::profiles, types::Agents};

pub(super) async fn list(call: Call) -> ApiResult {
    let Agents { agents, versions } = profiles(&call).await?;
    let version = |agent: &AgentProfile| versions.get(&agent.agent_id).copied();
    let (applied, built_in): (Vec<_>, Vec<_>) = agents.iter().partition(|agent| version(agent).is_some());
    let body = html! {
        h1 { "Agents" }
        p class="state" { (count(applied.len(), "profile")) " applied · " (built_in.len()) " built in" }
        @if applied.is_empty() {
            section class="empty" {
                p { "No profile was applied yet. In a shell:" }
                pre { "trellis agents apply examples/agents.yaml" }
            }
        }
        ul class="cards" { @for agent in applied { (card(agent, version(agent))) } }
        @if !built_in.is_empty() {
            h2 { "Built in" }
            p class="hint" { "Every worker has these agents. They need no model, and are meant for first steps and tests." }
            ul class="cards small" { @for agent in built_in { (card(agent, None)) } }
        }
    };
    answer::page(&call, "agents", Here::Agents, &body)
}

fn card(agent: &AgentProfile, version: Option<u64>) -> Markup {
    let facts = facts(agent);
    let id = agent.agent_id.as_str();
    html! {
        li class="card" id={ "a-" (id) } {
            p class="from" {
                strong { (id) }
                span class="kind" { @match version { Some(version) => { (kind(agent.kind)) " · version " (version) }, None => "built in" } }
                a href={ "./?agent_id=" (id) } { "Runs" span class="unseen" { " of " (id) } }
                a href={ "v1/agents/" (id) } { "JSON" span class="unseen" { " of " (id) } }
            }
            @if let Some(about) = &agent.description { p class="said" { (about) } }
            @if !facts.is_empty() { dl class="facts" { @for (name, told) in facts { dt { (name) } dd { (told) } } } }
            @if let Some(prompt) = &agent.system_prompt {
                details { summary { "System prompt" span class="unseen" { " of " (id) } } pre { (prompt) } }
            }
        }
    }
}

fn kind(kind: AgentKind) -> &'static str {
    match kind {
        AgentKind::Builtin => "uses a built-in agent",
        AgentKind::Llm => "model",
        AgentKind::Command => "program",
    }
}

/// The settings that the profile contains.
fn facts(agent: &AgentProfile) -> Vec<(&'static str, String)> {
    let model = agent.model.as_ref().map(|model| match &agent.fallback_model {
        Some(other) => format!("{model}, or {other} when the budget is low"),
        None => model.to_string(),
    });
    let tools = agent.tools.as_ref().map(|tools| match tools.len() {
        0 => "none".to_owned(),
        _ => tools.iter().map(ToolName::as_str).collect::<Vec<_>>().join(", "),
    });
    // A model without a list has all tools of its parent. Agents of other kinds show no tools.
    let tools =
        tools.or_else(|| (agent.kind == AgentKind::Llm).then(|| "all tools of its parent".to_owned()));
    let ceilings = [
        agent.max_cost_usd.map(|usd| usd.to_string()),
        agent.max_tokens.map(|tokens| format!("{tokens} tokens")),
        agent.timeout_ms.filter(|ms| *ms > 0).map(human_time::age),
        agent.closing_reserve_usd.map(|usd| format!("{usd} of it reserved for a last report")),
    ];
    let ceilings: Vec<String> = ceilings.into_iter().flatten().collect();
    let facts = [
        ("Built-in", agent.builtin.clone().filter(|builtin| builtin != agent.agent_id.as_str())),
        ("Command", (!agent.command.is_empty()).then(|| agent.command.join(" "))),
        ("Model", model),
        ("Tools", tools),
        ("At most", (!ceilings.is_empty()).then(|| ceilings.join(", "))),
        ("Pool", agent.pool.as_ref().map(ToString::to_string)),
    ];
    facts.into_iter().filter_map(|(name, told)| Some((name, told?))).collect()
}

#[cfg(test)]
mod tests {
    use domain::AgentId;

    use super::*;

    #[test]
    fn the_text_of_a_profile_stays_text() {
        let hostile = "<img src=x onerror=alert(1)>";
        let agent = AgentProfile {
            description: Some(hostile.into()),
            system_prompt: Some(hostile.into()),
            command: vec![hostile.into()],
            ..AgentProfile::builtin(AgentId::new("echo").expect("an id"), hostile)
        };
        let shown = card(&agent, Some(3)).0;
        assert_eq!(shown.matches("&lt;img src=x onerror=alert(1)&gt;").count(), 4, "{shown}");
        assert!(!shown.contains("<img") && shown.contains("version 3"), "{shown}");
    }
}
