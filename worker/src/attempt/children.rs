//! Children of a context: asking for one. Whether it may exist is decided by the coordinator; a refusal is
//! an observation for the agent.

use shared::{
    ChildId, digest,
    graph::TaskGraph,
    wire::{Answer, Ask, ChildSpawn, SharedMessage, Spawn},
};

use super::Attempt;

/// The child that is asked for: one agent, or a graph.
#[derive(Debug)]
pub(crate) enum Child {
    Agent(Box<Spawn>),
    Graph(Box<TaskGraph>),
}

#[derive(Debug)]
pub(crate) enum Spawned {
    Child(ChildId),
    /// Why not, in words for the agent.
    Refused(String),
}

impl Attempt {
    /// Asks for a child, with what it is shown of the caller's window (W3). Asked twice with the same id and
    /// content, it is the same child.
    pub(crate) async fn spawn(&self, child: Child, shared_messages: Vec<SharedMessage>) -> Spawned {
        let (spawn, graph) = match child {
            Child::Agent(spawn) => (Some(*spawn), None),
            Child::Graph(graph) => (None, Some(*graph)),
        };
        let spawn = ChildSpawn { lease: self.token(), spawn, graph, shared_messages };
        let answer = self.ask(Ask::Spawn(Box::new(spawn))).await;
        let Answer::Spawned { child_id } = answer else {
            return Spawned::Refused(answer.into_refusal("spawn").to_text());
        };
        Spawned::Child(child_id)
    }
}

/// The id of a child, the same at every attempt, so that a spawn that is asked again is the same spawn.
pub(crate) fn child_id(parent: &ChildId, suffix: &str) -> ChildId {
    let name = format!("{parent}-{suffix}");
    ChildId::new(&name).unwrap_or_else(|_| {
        let digits = digest::short_sha256(&name);
        ChildId::new(&format!("child-{digits}")).expect("letters, a dash and hex digits")
    })
}
