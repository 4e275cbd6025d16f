//! Requests a child of a context. The coordinator decides; the agent gets a refusal as an
//! observation.

use domain::{
    ChildId, digest,
    graph::TaskGraph,
    wire::{Answer, Ask, ChildSpawn, OutputFile, SharedMessage, Spawn},
};

use super::Attempt;

/// The requested child: one agent, or a graph.
#[derive(Debug)]
pub(crate) enum Child {
    Agent(Box<Spawn>),
    Graph(Box<TaskGraph>),
}

/// The state of the caller that a child gets a copy of: messages of its window (W3), and its files
/// (G10).
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) shared_messages: Vec<SharedMessage>,
    pub(crate) files: Vec<OutputFile>,
}

#[derive(Debug)]
pub(crate) enum SpawnOutcome {
    Child(ChildId),
    /// The reason, as text for the agent.
    Refused(String),
}

impl Attempt {
    /// Requests a child, with the caller's snapshot. A second request with the same id and content
    /// returns the same child. If only calls in flight leave too little for a grant, the request is
    /// repeated for a while.
    pub(crate) async fn spawn(&self, child: Child, snapshot: Snapshot) -> SpawnOutcome {
        let (spawn, graph) = match child {
            Child::Agent(spawn) => (Some(*spawn), None),
            Child::Graph(graph) => (None, Some(*graph)),
        };
        let Snapshot { shared_messages, files } = snapshot;
        let spawn = ChildSpawn { lease: self.token(), spawn, graph, shared_messages, files };
        let answer = self.ask_patiently(Ask::Spawn(Box::new(spawn))).await;
        let Answer::Spawned { child_id, .. } = answer else {
            return SpawnOutcome::Refused(answer.into_refusal("spawn").to_text());
        };
        SpawnOutcome::Child(child_id)
    }
}

/// The id of a child. It is the same in every attempt, so that a repeated spawn is the same spawn.
pub(crate) fn child_id(parent: &ChildId, suffix: &str) -> ChildId {
    let name = format!("{parent}-{suffix}");
    ChildId::new(&name).unwrap_or_else(|_| {
        let digits = digest::short_sha256(&name);
        ChildId::new(&format!("child-{digits}")).expect("letters, a dash and hex digits")
    })
}
