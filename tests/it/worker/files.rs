//! Workspaces, journals, outputs and checkpoints of running agents: in one process, and on real
//! servers with the command line.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

use bus::{Bus, Connect, Nats};
use coordinator::store::{Redis, Store};
use domain::{
    ChildId, TraceId,
    span::Headers,
    subject::{Filter, Subject},
    wire::{EndStatus, HistoryEntry, HistoryStep, ObjectReference, Outcome, ResultStep, ToolOutput},
};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Client, Cluster, eventually, name},
    servers::{NatsServer, RedisServer},
    subjects::admin_of,
};
use world::id;

/// A cluster whose worker keeps its workspaces in a directory of the test, deleted at the end.
struct Site {
    cluster: Cluster,
    root: PathBuf,
}

impl Site {
    async fn in_one_process() -> Self {
        let bus = Bus::Memory(bus::Memory::new(Default::default()));
        let partitions = coordinator::Config::new(name("coordinator")).topology.partitions;
        Self::start(bus, Store::Memory(coordinator::store::Memory::new(partitions))).await
    }

    async fn on(nats: &NatsServer, redis: &RedisServer) -> Self {
        let to = Connect::new(nats.url(), Default::default(), "test");
        let bus = Bus::Nats(Nats::connect(&to).await.unwrap());
        let partitions = coordinator::Config::new(name("coordinator")).topology.partitions;
        let store = Redis::connect(&redis.url(), Default::default(), partitions).await.unwrap();
        Self::start(bus, Store::Redis(store)).await
    }

    async fn start(bus: Bus, store: Store) -> Self {
        let root = std::env::temp_dir().join(format!("trellis-files-{}", uuid::Uuid::new_v4().simple()));
        let mut worker = worker::Config::new(name("worker"));
        worker.settings.workspaces = Some(root.clone());
        let coordinator = coordinator::Config::new(name("coordinator"));
        let cluster = Cluster::start(bus, store, vec![coordinator], vec![worker]);
        let site = Site { cluster, root };
        site.client().run(json!({"goal": "is anybody there?"})).await;
        site.apply(scribe()).await;
        site
    }

    fn client(&self) -> &Client {
        &self.cluster.client
    }

    async fn apply(&self, agent: Value) {
        self.client().apply(json!([agent])).await;
    }

    async fn journal(&self, trace: TraceId, child: &ChildId) -> Vec<HistoryEntry> {
        self.client().journal(trace, child).await
    }

    /// The number of remaining workspaces.
    fn left(&self) -> usize {
        let marker = |entry: &std::fs::DirEntry| entry.file_name() == ".trellis-worker";
        let there = std::fs::read_dir(self.root.join("worker.worker")).unwrap().map(Result::unwrap);
        there.filter(|entry| !marker(entry)).count()
    }

    async fn stop(self) {
        self.cluster.stop().await;
        assert_eq!(std::fs::read_dir(&self.root).unwrap().count(), 0, "an ended worker leaves no files");
        std::fs::remove_dir(&self.root).unwrap();
    }
}

/// Writes two files, reads the large one, and ends. Its journal: 1 model, 2 and 3 tools, 4 model, 5
/// tool (its output is stored as an object), 6 model, 7 result.
fn scribe() -> Value {
    let notes = "a note\n".repeat(400);
    json!({"agent_id": "scribe", "kind": "llm", "model": "scripted", "script": [
        {"call": [
            {"tool": "fs.write", "arguments": {"path": "outputs/report.md", "content": "{goal}"}},
            {"tool": "fs.write", "arguments": {"path": "outputs/deep/notes.txt", "content": notes}},
        ], "usage": {"input_tokens": 1000, "output_tokens": 100}},
        {"call": [{"tool": "fs.read", "arguments": {"path": "outputs/deep/notes.txt"}}],
            "usage": {"input_tokens": 1000, "output_tokens": 100}},
        {"say": "done", "usage": {"input_tokens": 1000, "output_tokens": 100}},
    ]})
}

fn result(entries: &[HistoryEntry]) -> &ResultStep {
    match &entries.last().unwrap().step {
        HistoryStep::Result(step) => step,
        other => panic!("{other:?}"),
    }
}

fn calls(entries: &[HistoryEntry]) -> usize {
    entries.iter().filter(|entry| matches!(entry.step, HistoryStep::Model(_))).count()
}

async fn object(bus: &Bus, reference: &ObjectReference) -> Vec<u8> {
    bus.get_object(&reference.object).await.unwrap().unwrap().to_vec()
}

async fn run_scribe(site: &Site, more: Value) -> (Outcome, Vec<HistoryEntry>) {
    let mut message = json!({"goal": "write it down", "agent_id": "scribe"});
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let outcome = site.client().run(message).await;
    let entries = site.journal(outcome.trace_id, &outcome.context.child_id).await;
    (outcome, entries)
}

#[tokio::test(flavor = "multi_thread")]
async fn i3_outputs_are_in_the_object_store_and_the_workspace_is_gone() {
    let site = Site::in_one_process().await;
    let (outcome, entries) = run_scribe(&site, json!({})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let client = site.client();
    let bus = &client.bus;
    let numbers: Vec<u32> = entries.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
    let outputs = &result(&entries).outputs;
    let paths: Vec<&str> = outputs.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["deep/notes.txt", "report.md"]);
    assert_eq!(object(bus, &outputs[1].object).await, b"write it down");
    assert_eq!(object(bus, &outputs[0].object).await, "a note\n".repeat(400).as_bytes());
    let HistoryStep::Tool(read) = &entries[4].step else { panic!("{entries:#?}") };
    let ToolOutput::Offloaded { path, preview, object: reference } = &read.output else { panic!("{read:?}") };
    assert_eq!(path, "outputs/tools/step_005.txt");
    assert!(preview.len() < 400 && preview.contains("2800 bytes in 400 lines"), "{preview}");
    assert_eq!(object(bus, reference).await, "a note\n".repeat(400).as_bytes());
    eventually("the workspace is removed", async || site.left() == 0).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l_a_file_past_a_limit_is_refused_by_its_name_and_the_result_is_kept() {
    let site = Site::in_one_process().await;
    for (limit, max, refused) in [("max_output_files", 1, 3), ("max_output_size_bytes", 1000, 3)] {
        let (outcome, entries) = run_scribe(&site, json!({"limits": {limit: max}})).await;
        assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
        let HistoryStep::Tool(write) = &entries[refused - 1].step else { panic!("{entries:#?}") };
        let ToolOutput::Inline(text) = &write.output else { panic!("{write:?}") };
        assert!(write.is_error && text.contains(limit) && text.contains("hint:"), "{write:?}");
        let paths: Vec<&str> = result(&entries).outputs.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["report.md"]);
    }
    // A replaced file is counted once.
    site.apply(json!({"agent_id": "rewriter", "kind": "llm", "model": "scripted", "script": [
        {"call": [
            {"tool": "fs.write", "arguments": {"path": "outputs/a", "content": "1234567890"}},
            {"tool": "fs.write", "arguments": {"path": "outputs/a", "content": "0987654321"}},
            {"tool": "fs.write", "arguments": {"path": "beside/b", "content": "not counted"}},
        ]},
        {"say": "done"},
    ]}))
    .await;
    let limits = json!({"max_output_files": 1, "max_output_size_bytes": 10});
    let outcome = site.client().run(json!({"goal": "x", "agent_id": "rewriter", "limits": limits})).await;
    let entries = site.journal(outcome.trace_id, &outcome.context.child_id).await;
    let failed = |entry: &&HistoryEntry| matches!(&entry.step, HistoryStep::Tool(step) if step.is_error);
    assert_eq!(entries.iter().filter(failed).count(), 0, "{entries:#?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w5_a_branch_begins_with_what_was_done_and_pays_only_for_the_rest() {
    let site = Site::in_one_process().await;
    let (first, before) = run_scribe(&site, json!({})).await;
    let from = json!({"trace_id": first.trace_id, "child_id": first.context.child_id, "step": 5});
    let (second, entries) = run_scribe(&site, json!({"branch_from": from, "goal": "another"})).await;
    assert_eq!(second.context.status, EndStatus::Completed, "{second:#?}");
    let HistoryStep::Branched { copies, .. } = &entries[0].step else { panic!("{entries:#?}") };
    assert_eq!((*copies, calls(&entries)), (5, 3));
    let spent = |outcome: &Outcome| outcome.context.budget.spent.cost_usd.nanos();
    assert_eq!(3 * spent(&second), spent(&first), "one of three calls is made");
    // The workspace is filled again with the files that the copied steps wrote.
    let client = site.client();
    let bus = &client.bus;
    let outputs = &result(&entries).outputs;
    assert_eq!(outputs.len(), 2);
    assert_eq!(object(bus, &outputs[1].object).await, b"write it down");
    // The branch has a separate copy of the stored output: the original may be deleted.
    let prefix = ObjectReference::prefix(second.trace_id, &second.context.child_id);
    let HistoryStep::Tool(read) = &entries[5].step else { panic!("{entries:#?}") };
    let ToolOutput::Offloaded { object: own, .. } = &read.output else { panic!("{read:?}") };
    assert!(own.object.starts_with(&prefix), "{own:?}");
    assert_eq!(
        site.journal(first.trace_id, &first.context.child_id).await,
        before,
        "the journal of the source is unchanged"
    );
    // New outputs have names that no copied output has.
    let (own, entries) = run_scribe(&site, branch_of(&first, 4)).await;
    let HistoryStep::Tool(read) = &entries[5].step else { panic!("{entries:#?}") };
    let ToolOutput::Offloaded { path, .. } = &read.output else { panic!("{read:?}") };
    assert_eq!(*path, format!("outputs/tools/step_006_{}.txt", own.trace_id));

    let from = json!({"trace_id": first.trace_id, "child_id": first.context.child_id, "step": 8});
    let (third, _) = run_scribe(&site, json!({"branch_from": from})).await;
    let error = third.context.error.as_ref().unwrap();
    assert!(error.message.contains("no step 8") && third.context.attempts == 1, "{third:#?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w5_copying_that_was_cut_off_is_completed_by_the_next_attempt() {
    let site = Site::in_one_process().await;
    let (first, source) = run_scribe(&site, json!({})).await;
    let (whole, expected) = run_scribe(&site, branch_of(&first, 5)).await;
    // The journal of an attempt that was killed after the second copy.
    let trace: TraceId = "0af7651916cd43dd8448eb211c80319c".parse().unwrap();
    for entry in &expected[..3] {
        let cut_off = HistoryEntry { trace_id: trace, ..entry.clone() };
        let subject =
            Subject::History(trellis_tests::subjects::pool(), trace, whole.context.child_id.clone());
        site.client().publish(subject, &serde_json::to_value(&cut_off).unwrap()).await;
    }
    let mut more = branch_of(&first, 5);
    more["trace_id"] = json!(trace);
    let (again, entries) = run_scribe(&site, more).await;
    assert_eq!(again.context.status, EndStatus::Completed, "{again:#?}");
    let tools = |entries: &[HistoryEntry]| {
        let ids = entries.iter().filter_map(|entry| match &entry.step {
            HistoryStep::Tool(step) => Some(step.id.clone()),
            HistoryStep::Model(step) => {
                Some(step.call_id.to_string()).filter(|id| id.starts_with("branched"))
            }
            _ => None,
        });
        ids.collect::<Vec<_>>()
    };
    assert_eq!(tools(&entries), tools(&expected), "each step is in the journal once, in order");
    assert_eq!(tools(&entries).len(), 5);
    assert_eq!(entries.len(), expected.len());
    assert_eq!(source.len(), 7);
    assert_eq!(again.context.budget.spent, whole.context.budget.spent);
    site.stop().await;
}

fn branch_of(outcome: &Outcome, step: u32) -> Value {
    let from = json!({"trace_id": outcome.trace_id, "child_id": outcome.context.child_id, "step": step});
    json!({"branch_from": from})
}

#[tokio::test(flavor = "multi_thread")]
async fn w5_a_restored_agent_continues_from_that_step_and_records_it_once() {
    let site = Site::in_one_process().await;
    site.apply(json!({"agent_id": "asker", "kind": "llm", "model": "scripted", "script": [
        {"call": [{"tool": "fs.write", "arguments": {"path": "outputs/a", "content": "a"}}]},
        {"call": [{"tool": "fs.write", "arguments": {"path": "outputs/b", "content": "b"}},
            {"tool": "ask_human", "arguments": {"question": "Go on?"}}]},
        {"call": [{"tool": "ask_human", "arguments": {"question": "How?"}}]},
        {"say": "{last}"},
    ]}))
    .await;
    let client = site.client();
    let accepted = client.accepted(json!({"goal": "ask", "agent_id": "asker"})).await;
    let (trace, root) = (accepted.trace_id, accepted.child_id.clone());
    let asks = async || !client.bus.read(&Filter::QuestionsOf(trace)).await.unwrap().is_empty();
    eventually("the agent asks a question", asks).await;
    let restore = json!({"trace_id": trace, "restore": {"child_id": root, "number": 1, "to": 2}});
    client.publish(admin_of(&restore), &restore).await;
    client.publish(admin_of(&restore), &restore).await;
    let asks_again = async || client.bus.read(&Filter::QuestionsOf(trace)).await.unwrap().len() > 1;
    eventually("the agent asks again", asks_again).await;
    let answer = |trace: TraceId, question: u32, answer: &str| json!({"trace_id": trace, "answered": {"child_id": root, "question": question, "answer": answer}});
    client.publish(Subject::Input, &answer(trace, 2, "yes")).await;
    let asks_more = async || client.bus.read(&Filter::QuestionsOf(trace)).await.unwrap().len() > 2;
    eventually("the agent asks the other question", asks_more).await;
    client.publish(Subject::Input, &answer(trace, 3, "slowly")).await;
    let outcome = client.outcome(trace, &root).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let entries = site.journal(trace, &root).await;
    let restores: Vec<u32> = entries
        .iter()
        .filter_map(|entry| match entry.step {
            HistoryStep::Restored { to, .. } => Some(to),
            _ => None,
        })
        .collect();
    assert_eq!(restores, [2], "{entries:#?}");
    assert_eq!(outcome.context.result.as_ref().unwrap().value(), "slowly");
    assert_eq!(calls(&entries), 5, "the second call was made and paid twice");
    assert_eq!(outcome.context.retries, 0);
    assert_eq!(result(&entries).outputs.len(), 2);
    // A branch copies the first answer with its steps, and asks its own questions after them.
    let asked = entries
        .iter()
        .find(|entry| matches!(&entry.step, HistoryStep::Tool(step) if step.tool.as_str() == "ask_human"));
    let from = json!({"trace_id": trace, "child_id": root, "step": asked.unwrap().number});
    let again = client.accepted(json!({"goal": "ask", "agent_id": "asker", "branch_from": from})).await;
    let trace = again.trace_id;
    let asks = async || !client.bus.read(&Filter::QuestionsOf(trace)).await.unwrap().is_empty();
    eventually("the branch asks", asks).await;
    client.publish(Subject::Input, &answer(trace, 1, "mine")).await;
    let outcome = client.outcome(trace, &again.child_id).await;
    assert_eq!(outcome.context.result.as_ref().unwrap().value(), "mine", "{outcome:#?}");
    site.stop().await;
}

fn asker() -> Value {
    json!({"agent_id": "waiter", "kind": "llm", "model": "scripted", "script": [
        {"call": [{"tool": "fs.write", "arguments": {"path": "outputs/a", "content": "a"}}]},
        {"call": [{"tool": "ask_human", "arguments": {"question": "Go on?"}}]},
        {"say": "{last}"},
    ]})
}

/// Runs the asker until it waits for an answer.
async fn asked(site: &Site) -> (TraceId, ChildId) {
    site.apply(asker()).await;
    let client = site.client();
    let accepted = client.accepted(json!({"goal": "ask", "agent_id": "waiter"})).await;
    let trace = accepted.trace_id;
    let asks = async || !client.bus.read(&Filter::QuestionsOf(trace)).await.unwrap().is_empty();
    eventually("the agent asks a question", asks).await;
    (trace, accepted.child_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn w5_an_agent_whose_journal_is_gone_does_not_begin_anew() {
    let site = Site::in_one_process().await;
    let (trace, root) = asked(&site).await;
    let client = site.client();
    client
        .bus
        .purge(&Filter::One(Subject::History(trellis_tests::subjects::pool(), trace, root.clone())))
        .await
        .unwrap();
    let answer = json!({"trace_id": trace, "answered": {"child_id": root, "question": 1, "answer": "yes"}});
    client.publish(Subject::Input, &answer).await;
    let outcome = client.outcome(trace, &root).await;
    let error = outcome.context.error.as_ref().unwrap_or_else(|| panic!("{outcome:#?}"));
    assert!(error.message.contains("0 of 3 entries are left"), "{error:?}");
    assert_eq!(outcome.context.attempts, 2, "the first attempt was parked, and the second was the last");
    site.stop().await;
}

/// Runs the scribe on a journal that already has entries.
async fn on_a_journal_with(site: &Site, trace: &str, payload: Vec<u8>) -> Outcome {
    let trace: TraceId = trace.parse().unwrap();
    let subject = Subject::History(trellis_tests::subjects::pool(), trace, id("root"));
    let message = bus::Outgoing {
        subject,
        id: None,
        headers: Headers::new(),
        payload: payload.into(),
        expect_last: None,
    };
    site.client().bus.publish(message).await.unwrap();
    let message = json!({"goal": "write it down", "agent_id": "scribe", "trace_id": trace, "child_id": "root",
        "limits": {"max_retries_total": 0}});
    site.client().run(message).await
}

fn began(trace: &str, number: u32, attempt: u32) -> Value {
    json!({"trace_id": trace, "child_id": "root", "number": number, "attempt": attempt, "at": 1,
        "step": {"began": {"worker_id": "another"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn t5_a_journal_that_never_can_be_used_ends_the_attempt_and_says_why() {
    let site = Site::in_one_process().await;
    let traces = ["1a", "2a", "3a"].map(|end| format!("0af7651916cd43dd8448eb211c8031{end}"));
    let late = serde_json::to_vec(&began(&traces[0], 3, 1)).unwrap();
    let newer = json!({"trace_id": traces[1], "child_id": "root", "number": 1, "attempt": 1, "at": 1,
        "step": {"dreamt": {}}});
    let cases = [
        (late, "entry 1 is missing, the next is 3"),
        (serde_json::to_vec(&newer).unwrap(), "this worker can't interpret entry 1"),
        (Vec::new(), "is damaged"),
    ];
    for (trace, (payload, why)) in traces.iter().zip(cases) {
        let outcome = on_a_journal_with(&site, trace, payload).await;
        let error = outcome.context.error.as_ref().unwrap_or_else(|| panic!("{outcome:#?}"));
        assert!(error.message.contains(why), "{error:?}");
        assert_eq!(outcome.context.attempts, 1);
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n9_an_entry_with_unknown_fields_is_read() {
    let site = Site::in_one_process().await;
    let trace = "0af7651916cd43dd8448eb211c80315a";
    let mut newer = began(trace, 1, 1);
    newer["mood"] = json!("good");
    newer["step"]["began"]["mood"] = json!("better");
    let outcome = on_a_journal_with(&site, trace, serde_json::to_vec(&newer).unwrap()).await;
    assert!(outcome.context.error.is_none(), "{outcome:#?}");
    site.stop().await;
}

/// An attempt is stopped between its claim and its first read of the journal, and resumed too late.
#[tokio::test(flavor = "multi_thread")]
async fn t5_a_journal_is_never_taken_from_a_later_attempt() {
    let site = Site::in_one_process().await;
    let trace = "0af7651916cd43dd8448eb211c80314a";
    let later = serde_json::to_vec(&began(trace, 1, 2)).unwrap();
    on_a_journal_with(&site, trace, later).await;
    let entries = site.journal(trace.parse().unwrap(), &id("root")).await;
    assert!(entries.iter().all(|entry| entry.attempt >= 2), "{entries:#?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i3_an_agent_that_hands_over_leaves_its_files() {
    let site = Site::in_one_process().await;
    site.apply(json!({"agent_id": "boss", "kind": "llm", "model": "scripted", "script": [
        {"call": [{"tool": "fs.write", "arguments": {"path": "outputs/plan", "content": "p"}}]},
        {"call": [{"tool": "delegate", "arguments": {"goal": "all of it", "agent_id": "scribe"}}]},
    ]}))
    .await;
    let outcome = site.client().run(json!({"goal": "lead", "agent_id": "boss"})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    assert_eq!(outcome.context.result.as_ref().unwrap().value(), "done");
    let entries = site.journal(outcome.trace_id, &outcome.context.child_id).await;
    let outputs = &result(&entries).outputs;
    assert_eq!(outputs.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["plan"]);
    site.stop().await;
}

/// The child begins with copies of the caller's files; so does a branch of it.
#[tokio::test(flavor = "multi_thread")]
async fn g10_delegate_hands_over_the_files_in_outputs() {
    let site = Site::in_one_process().await;
    let write = |path: &str, content: &str| json!({"tool": "fs.write", "arguments": {"path": path, "content": content}});
    let read = json!({"tool": "fs.read", "arguments": {"path": "outputs/a/plan"}});
    let tight = json!({"goal": "too much", "agent_id": "tight"});
    site.apply(
        json!({"agent_id": "tight", "kind": "builtin", "builtin": "echo", "limits": {"max_output_files": 1}}),
    )
    .await;
    site.apply(json!({"agent_id": "heir", "kind": "llm", "model": "scripted", "script": [
        {"call": [read, write("outputs/more", "m")]}, {"say": "{inputs.asked} plan: {last}"},
        {"say": "again: {last}"},
    ]}))
    .await;
    site.apply(json!({"agent_id": "boss", "kind": "llm", "model": "scripted", "script": [
        {"call": [write("outputs/a/plan", "p"), write("outputs/b", "bb"), write("scratch", "mine")]},
        {"call": [{"tool": "delegate", "arguments": tight}]},
        {"call": [{"tool": "delegate", "arguments": {"goal": "all of it", "agent_id": "heir"}}]},
    ]}))
    .await;
    let outcome = site.client().run(json!({"goal": "lead", "agent_id": "boss"})).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let entries = site.journal(outcome.trace_id, &outcome.context.child_id).await;
    let refused = serde_json::to_string(&entries).unwrap();
    assert!(refused.contains("2 files in outputs/ are handed over, and the child may have 1"), "{refused}");

    let trace = site.client().trace(outcome.trace_id).await;
    let heir = trace.contexts().last().unwrap().id.clone();
    let entries = site.journal(outcome.trace_id, &heir).await;
    let HistoryStep::Received { files } = &entries[0].step else { panic!("{entries:#?}") };
    assert_eq!(files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["a/plan", "b"]);
    let own = ObjectReference::prefix(outcome.trace_id, &heir);
    assert!(
        files.iter().all(|file| file.object.object.starts_with(&own)),
        "the files are not copies: {files:#?}"
    );
    let outputs: Vec<&str> = result(&entries).outputs.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(outputs, ["a/plan", "b", "more"], "the files are outputs of the heir");
    let tool = entries
        .iter()
        .find_map(|entry| if let HistoryStep::Tool(step) = &entry.step { Some(step) } else { None });
    assert_eq!(tool.unwrap().output, ToolOutput::Inline("p".into()), "the tool reads the written file");

    let from = json!({"trace_id": outcome.trace_id, "child_id": heir, "step": 1});
    let branch = site.client().run(json!({"goal": "again", "agent_id": "heir", "branch_from": from})).await;
    let entries = site.journal(branch.trace_id, &branch.context.child_id).await;
    let own = ObjectReference::prefix(branch.trace_id, &branch.context.child_id);
    let text = serde_json::to_string(&entries).unwrap();
    assert!(text.contains(&format!("{own}1.received/a/plan")), "{text}");
    assert_eq!(result(&entries).outputs.len(), 3, "{entries:#?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i3_the_outputs_of_a_cancelled_run_report_its_end_and_no_files() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let site = Site::on(&nats, &redis).await;
    let (trace, root) = asked(&site).await;
    let name = trace.to_string();
    let before = said(&trellis(&nats, &["outputs", &name]));
    assert!(before.contains("has not ended yet"), "{before}");
    site.client().publish(Subject::Cancel, &json!({"trace_id": trace})).await;
    site.client().outcome(trace, &root).await;
    let after = said(&trellis(&nats, &["outputs", &name]));
    assert!(after.contains("ended as cancelled, and its files were not collected"), "{after}");
    let followed = said(&trellis(&nats, &["history", &name, "--follow"]));
    assert!(followed.contains("fs.write") && followed.contains("exit Some(0)"), "{followed}");
    site.stop().await;
}

/// `trellis` with the addresses of these servers.
fn trellis(nats: &NatsServer, arguments: &[&str]) -> Output {
    let own = std::env::current_exe().unwrap();
    let binary = own.parent().unwrap().parent().unwrap().join("trellis");
    Command::new(binary).args(arguments).env_clear().env("NATS_URL", nats.url()).output().unwrap()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{} exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn w6_history_and_outputs_are_read_from_anywhere_until_they_are_deleted() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let site = Site::on(&nats, &redis).await;
    let (kept, _) = run_scribe(&site, json!({})).await;
    let (outcome, _) = run_scribe(&site, json!({"child_id": "writer"})).await;
    let trace = outcome.trace_id.to_string();
    let ask = |arguments: &[&str]| {
        let (nats, arguments) = (&nats, arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        trellis(nats, &arguments)
    };
    let history = said(&ask(&["history", &trace]));
    for part in ["model", "scripted", "fs.write", "result", "completed", "2 files", "1100"] {
        assert!(history.contains(part), "no {part} in {history}");
    }
    let whole = said(&ask(&["history", &format!("{trace}/writer"), "--step", "1"]));
    assert!(whole.contains("calls fs.write") && whole.contains("report.md"), "{whole}");
    let followed = said(&ask(&["history", &trace, "writer", "--follow"]));
    assert!(followed.contains("completed") && followed.contains("exit Some(0)"), "{followed}");
    let nobody = said(&ask(&["history", &trace, "nobody"]));
    assert!(nobody.contains("`writer`") && nobody.contains("exit Some(2)"), "{nobody}");
    let listed = said(&ask(&["outputs", &trace]));
    assert!(listed.contains("13  report.md") || listed.contains("13     report.md"), "{listed}");
    assert_eq!(ask(&["outputs", &trace, "--get", "report.md"]).stdout, b"write it down");
    let directory = site.root.with_extension("saved");
    let directory_name = directory.to_str().unwrap().to_owned();
    let saved = ask(&["outputs", &trace, "--save", &directory_name]);
    assert!(saved.status.success(), "{}", said(&saved));
    assert_eq!(std::fs::read(directory.join("report.md")).unwrap(), b"write it down");
    assert!(directory.join("deep/notes.txt").exists());
    let again = ask(&["outputs", &trace, "--save", &directory_name]);
    assert!(!again.status.success(), "an existing file is not overwritten");
    std::fs::remove_dir_all(&directory).unwrap();

    let deleted = said(&ask(&["runs", "delete", &trace, "--yes"]));
    assert!(deleted.contains("is deleted"), "{deleted}");
    let client = site.client();
    let bus = &client.bus;
    let prefix = ObjectReference::prefix(outcome.trace_id, &outcome.context.child_id);
    eventually("its journal and objects are gone", async || {
        client.journal(outcome.trace_id, &id("writer")).await.is_empty()
            && bus.objects(&prefix).await.unwrap().is_empty()
    })
    .await;
    assert!(
        !client.journal(kept.trace_id, &kept.context.child_id).await.is_empty(),
        "the entries of the other run remain"
    );
    let others = ObjectReference::prefix(kept.trace_id, &kept.context.child_id);
    assert_eq!(bus.objects(&others).await.unwrap().len(), 3);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i4_a_hostile_journal_writes_nothing_outside_the_directory_that_was_named() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let site = Site::on(&nats, &redis).await;
    let client = site.client();
    let bus = &client.bus;
    let outcome = site.client().run(json!({"goal": "nothing"})).await;
    bus.put_object("evil", b"evil"[..].into()).await.unwrap();
    let sha256 = "4b2a2b8ad3dbf8b4d8d9e4e0f3a0a5b8c07e8d6c9b1f6a1a2b3c4d5e6f708192";
    let object = json!({"object": "evil", "size_bytes": 4, "sha256": sha256});
    for path in ["../escaped", "/tmp/escaped", "a/../../escaped", ""] {
        let entry = json!({"trace_id": outcome.trace_id, "child_id": "root", "number": 1, "attempt": 1, "at": 1,
            "step": {"result": {"verdict": {"completed": {"inline": "x"}},
                "outputs": [{"path": path, "object": object}]}}});
        site.client()
            .publish(Subject::History(trellis_tests::subjects::pool(), outcome.trace_id, id("root")), &entry)
            .await;
        let directory = site.root.with_extension("hostile");
        let output = trellis(
            &nats,
            &["outputs", &outcome.trace_id.to_string(), "--save", directory.to_str().unwrap()],
        );
        assert!(said(&output).contains("nothing was written"), "{path}: {}", said(&output));
        assert!(!directory.exists() && !directory.with_file_name("escaped").exists(), "{path}");
    }
    let output = trellis(&nats, &["outputs", &outcome.trace_id.to_string(), "--get", ""]);
    assert!(said(&output).contains("checksum"), "{}", said(&output));
    site.stop().await;
}
