//! Requests a child of a context. The coordinator decides whether it may exist; a refusal is an observation for the
//! agent.

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

/// What a child gets of its caller, as it is now: messages of its window (W3), and its files (G10).
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
    /// Requests a child, with what it gets of its caller. A second request with the same id
    /// and content returns the same child. A grant for which only calls in flight leave too little is asked for again.
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

/// The id of a child, the same at every attempt, so that a repeated spawn is the same spawn.
pub(crate) fn child_id(parent: &ChildId, suffix: &str) -> ChildId {
    let name = format!("{parent}-{suffix}");
    ChildId::new(&name).unwrap_or_else(|_| {
        let digits = digest::short_sha256(&name);
        ChildId::new(&format!("child-{digits}")).expect("letters, a dash and hex digits")
    })
}
