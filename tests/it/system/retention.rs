//! The end of a run's retention: its journals and objects are removed, and then its state; data
//! that a branch still needs stays.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bus::{Bus, Memory};
use domain::{
    TraceId,
    subject::{Filter, Subject},
    wire::{Branch, DeadLetter, ObjectReference, Outcome, QueryAnswer},
};
use host::simulated_network::{Arrive, Crossing, Link};
use serde_json::json;
use trellis_tests::{
    cluster::{Client, Cluster, eventually},
    subjects::admin_of,
};

use super::ground::{Ground, config, query};

const AT_ONCE: Duration = Duration::from_millis(1);

fn kept_for(retention: Duration) -> coordinator::Config {
    coordinator::Config { retention, ..config() }
}

/// The number of journal entries and of objects.
async fn stored(bus: &Bus, trace: TraceId) -> (usize, usize) {
    let entries = bus.read(&Filter::HistoriesOf(trace)).await.unwrap();
    let objects = bus.objects(&ObjectReference::prefix_of_trace(trace)).await.unwrap();
    (entries.len(), objects.len())
}

/// Runs an agent that leaves a file and a large tool output, with a child.
async fn run_scribe(client: &Client) -> Outcome {
    client.run(json!({"goal": "is anybody there?"})).await;
    let (notes, nobody) = ("a note\n".repeat(400), "nobody");
    let script = json!([
        {"call": [{"tool": "fs.write", "arguments": {"path": "outputs/notes.txt", "content": notes}},
            {"tool": "fs.read", "arguments": {"path": "outputs/notes.txt"}},
            {"tool": "spawn", "arguments": {"goal": "help", "agent_id": "tree"}}]},
        {"say": "done"},
    ]);
    let agents = [
        json!({"agent_id": "scribe", "kind": "llm", "model": "scripted", "script": script}),
        json!({"agent_id": "waits", "kind": "llm", "model": "scripted", "pool": nobody, "script": script}),
    ];
    let applied = query(client, json!({"apply_agents": {"agents": agents}})).await;
    assert!(matches!(applied, QueryAnswer::Applied { .. }), "{applied:?}");
    client.run(json!({"goal": "write it down", "agent_id": "scribe"})).await
}

/// proves: the retention loop. Without it nothing of the run is ever removed.
async fn w6_all_that_a_run_stored_goes_with_its_retention(ground: Ground) {
    let cluster = ground.start(config());
    let ended = run_scribe(&cluster.client).await.trace_id;
    let asking = cluster.client.accepted(json!({"goal": "which?", "agent_id": "ask"})).await;
    eventually("the agent asks a question", async || {
        let filter = Filter::QuestionsOf(asking.trace_id);
        !ground.bus.read(&filter).await.unwrap().is_empty()
    })
    .await;
    let (entries, objects) = stored(&ground.bus, ended).await;
    assert!(entries >= 4 && objects == 2, "{entries} entries and {objects} objects");
    assert!(ground.has(ended).await);
    cluster.stop().await;

    // A shorter retention also applies to runs that ended earlier.
    let cluster = ground.start(kept_for(AT_ONCE));
    eventually("its state is removed", async || !ground.has(ended).await).await;
    assert_eq!(
        stored(&ground.bus, ended).await,
        (0, 0),
        "the journal and the objects are removed before the state"
    );
    assert!(ground.has(asking.trace_id).await, "a live run remains");
    let QueryAnswer::Runs { runs, .. } = query(&cluster.client, json!({"runs": {}})).await else { panic!() };
    assert!(runs.iter().all(|run| run.trace_id != ended), "{runs:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w6_all_that_a_run_stored_goes_with_its_retention_in_memory() {
    w6_all_that_a_run_stored_goes_with_its_retention(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w6_all_that_a_run_stored_goes_with_its_retention_on_servers() {
    w6_all_that_a_run_stored_goes_with_its_retention(Ground::on_servers().await).await;
}

/// proves: the log of a deleted run is rewritten without its texts.
async fn w6_a_deleted_run_leaves_its_costs_and_no_words(ground: Ground) {
    let cluster = ground.start(config());
    let client = &cluster.client;
    client.run(json!({"goal": "is anybody there?"})).await;
    let words = "these words are to be deleted";
    let kept = client.run(json!({"goal": words})).await.trace_id;
    let steps = json!([{"agent_id": "echo", "task_description": words}, {"agent_id": "spend", "task_description": words}]);
    let graph = json!({"child_id": "root", "mode": "parallel", "steps": steps, "max_cost_usd": 1});
    let run = client.run(graph).await;
    let logs = |id| [Filter::EventsOf(id), Filter::OutcomesOf(id), Filter::QuestionsOf(id)];
    let told = async |id| {
        let mut told = 0;
        for log in logs(id) {
            let stored = ground.bus.read(&log).await.unwrap();
            told += stored.iter().filter(|s| String::from_utf8_lossy(&s.payload).contains(words)).count();
        }
        told
    };
    assert!(told(run.trace_id).await >= 4);
    let before = client.trace(run.trace_id).await;
    let delete = json!({"trace_id": run.trace_id, "delete": {"outside": {"known": []}}});
    client.publish(admin_of(&delete), &delete).await;
    eventually("the content is deleted", async || told(run.trace_id).await == 0).await;
    let after = client.trace(run.trace_id).await;
    let (before, after) = (before.root().unwrap(), after.root().unwrap());
    assert!(after.lifecycle.deleted && after.budget == before.budget && after.children == before.children);
    let outcome = client.outcome(run.trace_id, &after.id).await;
    assert_eq!((outcome.context.status, outcome.context.budget), (run.context.status, run.context.budget));
    assert!(told(kept).await > 0, "the content of other runs remains");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w6_a_deleted_run_leaves_its_costs_and_no_words_in_memory() {
    w6_a_deleted_run_leaves_its_costs_and_no_words(Ground::in_memory()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w6_a_deleted_run_leaves_its_costs_and_no_words_on_servers() {
    w6_a_deleted_run_leaves_its_costs_and_no_words(Ground::on_servers().await).await;
}

/// A link that drops every request to remove a journal.
#[derive(Debug, Default)]
struct NoPurge(AtomicUsize);

impl Link for NoPurge {
    fn carry(&self, what: Crossing<'_>, arrive: Arrive) {
        match what {
            Crossing::ToBus("purge a log") => drop(self.0.fetch_add(1, Ordering::SeqCst)),
            Crossing::ToBus(_) | Crossing::FromBus(_) | Crossing::ToStore(_) | Crossing::FromStore(_) => {
                arrive();
            }
        }
    }
}

/// proves: the state is removed last. Otherwise the journal that the dead coordinator left would
/// never be found.
#[tokio::test(flavor = "multi_thread")]
async fn w6_a_removal_that_was_cut_off_is_done_by_the_next_coordinator() {
    let memory = Memory::new(Default::default());
    let ground = Ground::on(memory.clone());
    let cluster = ground.start(config());
    let ended = run_scribe(&cluster.client).await.trace_id;
    cluster.stop().await;
    let link = Arc::new(NoPurge::default());
    let cut_off = Bus::Memory(memory.behind(link.clone()));
    let cluster = Cluster::start(cut_off, ground.store.clone(), vec![kept_for(AT_ONCE)], vec![]);
    eventually("the coordinator tries to remove the journal", async || link.0.load(Ordering::SeqCst) > 0)
        .await;
    cluster.stop().await;
    assert!(
        ground.has(ended).await && stored(&ground.bus, ended).await.0 > 0,
        "the state remains as long as the journal"
    );
    let cluster = ground.start(kept_for(AT_ONCE));
    eventually("its state is removed", async || !ground.has(ended).await).await;
    assert_eq!(stored(&ground.bus, ended).await, (0, 0));
    cluster.stop().await;
}

async fn refusals(client: &Client, trace: TraceId) -> Vec<DeadLetter> {
    let letters = client.bus.read(&Filter::Dead).await.unwrap();
    let letters = letters.iter().map(|stored| serde_json::from_slice(&stored.payload).unwrap());
    letters.filter(|letter: &DeadLetter| letter.trace_id == Some(trace)).collect()
}

/// proves: branches are recorded before they are admitted, and both the guarded delete and the end
/// of the retention look them up.
#[tokio::test(flavor = "multi_thread")]
async fn w6_entries_that_a_branch_has_not_copied_yet_are_neither_deleted_nor_removed() {
    let ground = Ground::in_memory();
    let cluster = ground.start(config());
    let origin = run_scribe(&cluster.client).await;
    let (ended, child_id) = (origin.trace_id, origin.context.child_id);
    let from = json!({"trace_id": ended, "child_id": child_id, "step": 2});
    // No worker takes it, so it copies nothing.
    let branch = json!({"goal": "again", "agent_id": "waits", "branch_from": from});
    let branch = cluster.client.accepted(branch).await;
    let done = json!({"goal": "again", "agent_id": "scribe", "branch_from": from});
    cluster.client.run(done).await;
    let expected = [Branch { trace_id: branch.trace_id, from: child_id, taken: false }];
    let known = query(&cluster.client, json!({"branches": {"trace_id": ended}})).await;
    assert_eq!(known, QueryAnswer::Branches { branches: expected.into() });
    let delete = json!({"trace_id": ended, "delete": {"outside": {"known": []}}});
    cluster.client.publish(admin_of(&delete), &delete).await;
    eventually("the delete is refused", async || !refusals(&cluster.client, ended).await.is_empty()).await;
    let refused = refusals(&cluster.client, ended).await.remove(0).refusal;
    assert_eq!(refused.code, "guarded");
    assert!(refused.message.contains(&branch.trace_id.to_string()), "{refused:?}");
    let before = stored(&ground.bus, ended).await;
    cluster.stop().await;

    // The removal of another run shows that the retention loop has run.
    let cluster = ground.start(kept_for(AT_ONCE));
    let other = cluster.client.run(json!({"goal": "hello"})).await.trace_id;
    eventually("another run is removed", async || !ground.has(other).await).await;
    assert_eq!((ground.has(ended).await, stored(&ground.bus, ended).await), (true, before));
    let cancel = json!({"trace_id": branch.trace_id});
    cluster.client.publish(Subject::Cancel, &cancel).await;
    eventually("the ended run is removed", async || !ground.has(ended).await).await;
    assert_eq!(stored(&ground.bus, ended).await, (0, 0));
    cluster.stop().await;
}
