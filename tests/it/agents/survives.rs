//! A worker is killed at one point of a run and another continues: the assertions for every kind of
//! agent.

use domain::wire::{HistoryEntry, HistoryStep};
use serde_json::{Value, json};
use trellis_tests::servers::{INPUT_NANOS, ModelServer, OUTPUT_NANOS, Prompt, Reply};

use super::{check_bill, cluster, finished};

/// The cost of one model call.
pub(crate) const A_CALL: u64 = 100 * INPUT_NANOS + 20 * OUTPUT_NANOS;

/// A run of the agent `author`, which spawns one child.
pub(crate) struct Story {
    pub(crate) agents: Value,
    pub(crate) model: fn(&Prompt) -> Reply,
    pub(crate) result: Value,
    /// The number of model calls without a crash.
    pub(crate) calls: u64,
}

/// Runs the story with a worker that aborts at `point`, then with a second worker. `unseen` calls
/// were answered, but the answers were lost with the worker. Returns the root's journal.
pub(crate) async fn survives(story: Story, point: &str, unseen: u64) -> Vec<HistoryEntry> {
    let model = ModelServer::start(story.model).await;
    let mut cluster = cluster(1, &model, story.agents).await;
    cluster.stop("w1").await;
    cluster.run_with("w1", &["--crash-at", point]);
    let run = cluster.begin(json!({"goal": "write it down", "agent_id": "author"})).await;
    cluster.gone("w1").await;
    cluster.run("w1");
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["status"], "completed", "{point}: {outcome:#}");
    assert_eq!(outcome["result"], story.result, "{point}");
    check_bill(&model, &[&trace], unseen * A_CALL);
    let bill = model.bill();
    let calls = story.calls + unseen;
    assert_eq!(bill.len() as u64, calls, "{point}: a finished call was made again: {bill:#?}");
    assert_eq!(trace.contexts().len(), 2, "{point}: the run has one child");
    let journal = cluster.client.journal(run, &"root".parse().unwrap()).await;
    let results = count(&journal, |step| matches!(step, HistoryStep::Result(_)));
    assert_eq!(results, 1, "{point}: {journal:#?}");
    journal
}

pub(crate) fn count(journal: &[HistoryEntry], is: impl Fn(&HistoryStep) -> bool) -> usize {
    journal.iter().filter(|entry| is(&entry.step)).count()
}
