//! A submission gets all its ids before it is sent, so that a second delivery is the same run.

use domain::{
    ChildId, TraceId,
    graph::TaskGraph,
    subject::Subject,
    wire::{Rerun, Spawn, SubmitAnswer},
};
use uuid::Uuid;

use crate::{Client, Error};

/// A submission with all its ids. A second delivery has the same ids, so that no agent runs twice.
#[derive(Debug, Clone)]
pub enum Submission {
    Spawn(Box<Spawn>),
    Graph(Box<TaskGraph>),
    Rerun(Box<Rerun>),
}

impl Submission {
    pub fn spawn(mut spawn: Spawn) -> Self {
        let named = spawn.agent_id.as_ref().map_or("root", |agent| agent.as_str());
        spawn.child_id.get_or_insert_with(|| ChildId::new(named).expect("the two grammars are one"));
        spawn.trace_id.get_or_insert_with(fresh_trace);
        Submission::Spawn(Box::new(spawn))
    }

    pub fn graph(mut graph: TaskGraph) -> Self {
        let named = graph.name.as_ref().map_or("graph", |name| name.as_str());
        graph.child_id.get_or_insert_with(|| ChildId::new(named).expect("the two grammars are one"));
        graph.trace_id.get_or_insert_with(fresh_trace);
        Submission::Graph(Box::new(graph))
    }

    fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        match self {
            Submission::Spawn(spawn) => serde_json::to_vec(spawn),
            Submission::Graph(graph) => serde_json::to_vec(graph),
            Submission::Rerun(rerun) => serde_json::to_vec(rerun),
        }
    }
}

/// An id for a new run.
pub fn fresh_trace() -> TraceId {
    TraceId::from_u128(Uuid::new_v4().as_u128()).expect("a version is not all zeros")
}

impl Client {
    /// Submits; the answer is sent after the commit. A repeated submission is the same run.
    pub async fn submit(&self, submission: &Submission) -> Result<SubmitAnswer, Error> {
        self.submit_json(submission.to_bytes().map_err(Error::Message)?).await
    }

    /// Submits a message in JSON. Without a `trace_id` a second delivery is another run.
    pub async fn submit_json(&self, message: Vec<u8>) -> Result<SubmitAnswer, Error> {
        self.request_again(&Subject::Submit, message, "the submission").await
    }
}
