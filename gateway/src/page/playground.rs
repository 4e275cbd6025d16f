//! The playground of a `trellis dev`: an editor that draws and checks a graph, shows its plan and
//! cost, and runs it. A run can be disturbed on purpose: a step can fail, and the worker can be
//! killed.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use domain::{
    AgentId, Usd,
    agent::AgentProfile,
    decode::{self, Format},
    graph::{
        self, Body, CriticalPath, Estimate, EstimateInputs, KnownAgents, Plan, StepEstimate, StepKind,
        TaskGraph,
    },
    problem::Problems,
    source_positions::Lines,
    subject::{Action, Subject},
};
use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{answer, card::sketch, layout::lay_out, shell::Here};
use crate::{
    blocking::blocking,
    call::{Call, json as json_answer},
    problem::{ApiResult, ProblemDetails},
    routes::profiles,
};

/// The initial text of the editor. Its agents are built in and spend no real money.
const EXAMPLE: &str = "\
name: playground
max_cost_usd: 1
mode: parallel
inputs: {calls: 5, ms: 1000, usd: 0.01}    # each agent below pays five calls of a second and a cent
steps:
  - id: ants
    agent_id: spend
    task_description: How do ants find food?
    input_from: [calls, ms, usd]
    output_to: ants
  - id: bees
    agent_id: spend
    task_description: How do bees find food?
    input_from: [calls, ms, usd]
    output_to: bees
  - id: compare
    agent_id: sleep
    task_description: What do both have in common?
    input_from: [ants, bees]
    fallback: {agent_id: echo, task_description: Nobody knows what they have in common.}
";
/// The example, as it is submitted.
pub(super) fn example() -> Value {
    decode::parse(EXAMPLE.as_bytes(), Format::Yaml).unwrap_or_default()
}

/// The agent of a step that should fail.
const FAILS: &str = "fail";
/// The most steps that are drawn.
const MOST_STEPS: usize = 200;

fn is_here(call: &Call) -> ApiResult<()> {
    let message = "only a `trellis dev` has a playground";
    if call.playground.is_some() { Ok(()) } else { Err(ProblemDetails::not_found("no_playground", message)) }
}

pub(super) async fn show(call: Call) -> ApiResult {
    is_here(&call)?;
    let body = html! {
        h1 { "Playground" }
        div class="playground" id="playground" {
            section class="editor" aria-label="The graph as text" {
                div class="actions" {
                    label for="open-file" { "Open " input type="file" id="open-file" accept=".yaml,.yml,.json"; }
                }
                label class="unseen" for="graph-text" { "A graph, as YAML or JSON" }
                textarea id="graph-text" spellcheck="false" rows="22" { (EXAMPLE) }
                div class="actions" {
                    button type="button" id="run-graph" { "Run" }
                    label { "and fail " select id="fail-step" { option value="" { "no step" } } }
                    @if call.may_send(&Subject::Admin(Action::Drain)) { button type="button" data-post="playground/kill"
                        data-ask="Kill the worker of this process in the middle of its work, as a power cut would? A new worker starts, and takes over the work when the lease of the old one expires, after about 10 seconds." {
                        "Kill the worker"
                    } }
                }
                p id="played" role="status" {}
            }
            section class="drawn" aria-label="The graph, checked" {
                div id="checked" aria-live="polite" {}
                header class="head" id="head" {}
                div class="graph" id="part" tabindex="0" role="region" aria-label="The graph" {}
            }
        }
    };
    answer::page(&call, "playground", Here::Playground, &body)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlaygroundForm {
    text: String,
    /// The step whose agent should fail.
    #[serde(default)]
    fail: Option<String>,
}

/// Checks the typed graph. Returns its mistakes with their lines, or its plan and the graph to
/// submit.
pub(super) async fn check(call: Call) -> ApiResult {
    is_here(&call)?;
    let typed: PlaygroundForm = serde_json::from_slice(&call.body).map_err(|error| {
        ProblemDetails::wrong("", format!("invalid request of the playground: {error}"), None)
    })?;
    let agents = profiles(&call).await?.agents;
    let told = blocking(move || told(&typed, &agents)).await?;
    json_answer(StatusCode::OK, &told)
}

fn told(typed: &PlaygroundForm, agents: &[AgentProfile]) -> Value {
    let text = typed.text.as_bytes();
    let format = if typed.text.trim_start().starts_with('{') { Format::Json } else { Format::Yaml };
    let lines = Lines::of(text, format);
    let refused = |problems: &Problems| json!({"checked": mistakes(problems, &lines).0, "graph": null, "drawn": "", "steps": []});
    let value = match decode::parse(text, format) {
        Ok(value) => value,
        Err(problems) => return refused(&problems),
    };
    let mut unknown = Problems::default();
    KnownAgents::new(agents.iter().map(|agent| agent.agent_id.clone())).check(&value, &mut unknown);
    match graph::read(text, format) {
        Err(mut problems) => {
            problems.extend(unknown);
            refused(&problems)
        }
        Ok((definition, plan)) => {
            let of_agents = plan.group(0).steps.iter().filter(|step| agent_of(step).is_some());
            let steps: Vec<&str> = of_agents.map(|step| step.id.as_str()).collect();
            json!({
                "checked": html! {
                    (mistakes(&unknown, &lines))
                    (planned(&definition, &plan, agents))
                }.0,
                "graph": if unknown.is_empty() { with_failure(value.clone(), typed.fail.as_deref()) } else { Value::Null },
                "drawn": drawn(&plan).0,
                "steps": steps,
            })
        }
    }
}

fn agent_of(step: &graph::Step) -> Option<&AgentId> {
    if let Body::Agent { agent_id, .. } = &step.body { Some(agent_id) } else { None }
}

/// The mistakes with their lines.
fn mistakes(problems: &Problems, lines: &Lines) -> Markup {
    html! {
        @if !problems.is_empty() {
            p class="mark bad" { "✕ " (domain::wording::count(problems.iter().count(), "mistake")) }
            ul class="plain mistakes" {
                @for problem in problems.iter() {
                    @let place = lines.find(&problem.path);
                    li {
                        @if let Some(place) = place {
                            button type="button" data-line=(place.line) { "line " (place.line) } " "
                        }
                        @if !problem.path.is_empty() { code { (problem.path) } " " }
                        span class="said" { (problem.message) }
                        @if let Some(hint) = &problem.hint { p class="hint" { (hint) } }
                    }
                }
            }
        }
    }
}

/// The graph to submit, with one step replaced by a failing one.
fn with_failure(mut graph: Value, step: Option<&str>) -> Value {
    let steps = graph.get_mut("steps").and_then(Value::as_array_mut);
    for one in steps.into_iter().flatten().filter(|one| step.is_some() && one["id"].as_str() == step) {
        if one.get("agent_id").is_some() {
            one["agent_id"] = json!(FAILS);
        }
    }
    graph
}

/// Its worst-case cost and its critical path.
fn planned(definition: &TaskGraph, plan: &Plan, agents: &[AgentProfile]) -> Markup {
    let ceilings: BTreeMap<AgentId, Usd> =
        agents.iter().filter_map(|agent| Some((agent.agent_id.clone(), agent.max_cost_usd?))).collect();
    let inputs = definition.filled_inputs();
    let estimate = Estimate::of(plan, &EstimateInputs { inputs: &inputs, profiles: &ceilings, items: None });
    let needs = estimate.needs(definition.closing_reserve_usd.unwrap_or_default());
    let path = CriticalPath::of(plan, &BTreeMap::new());
    html! {
        p class="mark good" { "✓ " (domain::wording::count(estimate.steps.len(), "step")) }
        dl class="facts" {
            dt { "Worst case" }
            dd {
                @match (needs, definition.max_cost_usd) {
                    (Some(needs), Some(budget)) if needs > budget => { (needs) " for all steps; the run stops at " (budget) },
                    (Some(needs), _) => (needs),
                    (None, Some(budget)) => { "bounded only by its budget of " (budget) },
                    (None, None) => "bounded only by the limits of the deployment: set max_cost_usd",
                }
            }
            dt { "Critical path" } dd { (path.steps.iter().map(|step| step.as_str()).collect::<Vec<_>>().join(" → ")) }
        }
        details {
            summary { "Each step" }
            table class="list" {
                thead { tr { @for name in ["Step", "Agent", "Runs", "At most"] { th scope="col" { (name) } } } }
                tbody { @for step in &estimate.steps { (line(step)) } }
            }
        }
    }
}

fn line(step: &StepEstimate) -> Markup {
    let runs = step.runs.map_or_else(|| "?".to_owned(), |runs| runs.to_string());
    html! {
        tr {
            th scope="row" { (step.id) }
            td data-name="Agent" {
                @match (&step.agent_id, step.kind) {
                    (Some(agent), _) => (agent),
                    (None, StepKind::Approve) => "a human",
                    (None, StepKind::Group | StepKind::Graph) => "a group of steps",
                    (None, StepKind::Agent) => "",
                }
            }
            td data-name="Runs" { (runs) @if step.has_fallback { " + fallback" } }
            td data-name="At most" { @match step.worst { Some(worst) => (worst), None => "the remaining budget" } }
        }
    }
}

/// The drawing of the graph before it runs.
fn drawn(plan: &Plan) -> Markup {
    let group = plan.group(0);
    if group.steps.len() > MOST_STEPS {
        return html! { p { "The graph has " (group.steps.len()) " steps, too many to draw." } };
    }
    lay_out(group, &sketch(plan, group, 0))
}

/// An empty request body.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Kills the worker of this process.
pub(super) async fn kill(call: Call) -> ApiResult {
    is_here(&call)?;
    if let Some(playground) = &call.playground {
        playground.kill_worker();
    }
    json_answer(StatusCode::ACCEPTED, &json!({"killed": true}))
}
