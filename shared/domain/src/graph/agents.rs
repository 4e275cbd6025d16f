//! Checks the agents that a graph names against the known agents.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    AgentId,
    agent::BUILTINS,
    problem::{Problems, nearest},
    source_positions::{element, field},
};

/// The known agents.
#[derive(Debug)]
pub struct KnownAgents {
    names: BTreeSet<AgentId>,
    may_be_more: bool,
}

impl KnownAgents {
    /// Adds the agents of every deployment to these.
    pub fn new(agents: impl IntoIterator<Item = AgentId>) -> Self {
        let mut names: BTreeSet<AgentId> = agents.into_iter().collect();
        names.insert(AgentId::default_agent());
        names.extend(BUILTINS.iter().filter_map(|name| AgentId::new(name).ok()));
        KnownAgents { names, may_be_more: false }
    }

    /// Allows further agents. Then only a name that is close to a known one is a mistake.
    #[must_use]
    pub fn or_more(self) -> Self {
        KnownAgents { may_be_more: true, ..self }
    }

    /// Adds a problem for each unknown agent. The graph may have other mistakes.
    pub fn check(&self, graph: &Value, problems: &mut Problems) {
        self.within(graph, "", problems);
    }

    /// Checks a graph, or a step of one.
    fn within(&self, graph: &Value, at: &str, problems: &mut Problems) {
        self.name(graph.get("agent_id"), &field(at, "agent_id"), problems);
        for name in ["fallback", "undo"] {
            let at = field(at, name);
            match graph.get(name) {
                Some(Value::Object(task)) => {
                    self.name(task.get("agent_id"), &field(&at, "agent_id"), problems)
                }
                other => self.name(other, &at, problems),
            }
        }
        if let Some(used) = graph.get("graph") {
            self.within(used, &field(at, "graph"), problems);
        }
        let steps = graph.get("steps").and_then(Value::as_array);
        for (number, step) in steps.into_iter().flatten().enumerate() {
            self.within(step, &element(&field(at, "steps"), number), problems);
        }
    }

    fn name(&self, agent: Option<&Value>, at: &str, problems: &mut Problems) {
        let Some(name) = agent.and_then(Value::as_str) else { return };
        // An invalid name is reported when the definition is decoded.
        let Ok(id) = AgentId::new(name) else { return };
        if !self.names.contains(&id) {
            let hint = match nearest(name, self.names.iter().map(AgentId::as_str)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None if self.may_be_more => return,
                None => "apply its profile first, with `trellis agents apply`".into(),
            };
            problems.add(at, format!("there is no agent `{name}`"), Some(hint));
        }
    }
}
