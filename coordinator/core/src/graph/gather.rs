//! Builds the input for the synthesis of a graph's own agent (G6): each finding once, with the
//! agents that found it; for a race, the winner's finding. The agent gets only this text from its
//! steps.

use std::collections::HashMap;

use domain::{
    AgentId,
    limits::MAX_TEXT_BYTES,
    wire::{EndStatus, StepStatus, Text},
    wording,
};

use super::view::value_of;
use crate::{ContextNode, Ran, StepOf, Trace};

/// The most missing steps that are listed by name.
const MISSING_NAMED: usize = 50;

struct Finding {
    by: String,
    also: Vec<String>,
    text: String,
}

/// The goal of the synthesis: the graph's own task, followed by the findings.
pub(crate) fn synthesis_goal(trace: &Trace, graph: &ContextNode) -> Option<Text> {
    let (run, group) = trace.run_of(graph)?;
    let aggregate = group.aggregate.as_ref()?;
    let findings = findings(trace, graph);
    let missing: Vec<&str> = run
        .steps
        .iter()
        .zip(&group.steps)
        .filter(|(step, _)| run.progress.winner.is_none() && step.status != StepStatus::Succeeded)
        .map(|(_, step)| step.id.as_str())
        .collect();
    let mut head = aggregate.task.as_ref().map_or(String::new(), |task| format!("{task}\n\n"));
    head.push_str("Synthesize these findings:\n");
    let tail = match missing.as_slice() {
        [] => String::new(),
        missing if missing.len() > MISSING_NAMED => {
            let (named, more) = (missing[..MISSING_NAMED].join(", "), missing.len() - MISSING_NAMED);
            format!("\n\nMissing, with no result: {named} and {more} more")
        }
        missing => format!("\n\nMissing, with no result: {}", missing.join(", ")),
    };
    let room = MAX_TEXT_BYTES.saturating_sub(head.len() + tail.len()) / findings.len().max(1);
    let shown: Vec<String> = findings.iter().map(|finding| finding.show(room)).collect();
    let mut goal = format!("{head}{}{tail}", shown.join("\n\n"));
    goal.truncate(goal.floor_char_boundary(MAX_TEXT_BYTES));
    Text::new(goal).ok()
}

impl Finding {
    fn show(&self, room: usize) -> String {
        let also = match self.also.as_slice() {
            [] => String::new(),
            also => format!(" (also {})", also.join(", ")),
        };
        let shown = format!("{}{also}: {}", self.by, self.text);
        wording::cut(shown, room.saturating_sub("\n\n…".len()))
    }
}

fn findings(trace: &Trace, graph: &ContextNode) -> Vec<Finding> {
    let mut numbers: HashMap<Option<&AgentId>, u32> = HashMap::new();
    let run = graph.graph.as_deref();
    let winner = run.and_then(|run| Some((run, run.progress.winner?)));
    let counts_for = |of: StepOf| winner.is_none_or(|(run, winner)| run.place(of.step) == winner);
    let children = graph.children.iter().map(|child| trace.node(*child));
    let ran: Vec<&ContextNode> = children.filter(|node| node.identity.step.is_some_and(counts_for)).collect();
    let mut counts: HashMap<Option<&AgentId>, u32> = HashMap::new();
    ran.iter().for_each(|node| *counts.entry(node.spec.agent_id.as_ref()).or_default() += 1);
    let mut found: Vec<Finding> = Vec::new();
    let mut by_text: HashMap<String, usize> = HashMap::new();
    for node in &ran {
        let agent = node.spec.agent_id.as_ref();
        let number = numbers.entry(agent).or_default();
        *number += 1;
        let Some(end) = node.end().filter(|end| end.status == EndStatus::Completed) else { continue };
        if end.details.result.is_none() || !is_last_word(trace, graph, node) {
            continue;
        }
        let name = agent.map_or("Group".into(), title);
        let by = if counts[&agent] == 1 { name } else { format!("{name} {number}") };
        let text = value_of(end).to_text();
        match by_text.get(&text) {
            Some(first) => found[*first].also.push(by),
            None => {
                by_text.insert(text.clone(), found.len());
                found.push(Finding { by, also: Vec::new(), text });
            }
        }
    }
    found
}

/// Returns true for the last round of a loop, and for every context that is not a round.
fn is_last_word(trace: &Trace, graph: &ContextNode, node: &ContextNode) -> bool {
    let (Some((run, _)), Some(of)) = (trace.run_of(graph), node.identity.step) else { return false };
    let last = run.step(run.place(of.step)).contexts.last().map(|last| &trace.node(*last).id);
    !matches!(of.ran, Ran::Round(_)) || last == Some(&node.id)
}

fn title(agent: &AgentId) -> String {
    let mut letters = agent.as_str().chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
