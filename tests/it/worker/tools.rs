//! The tools of agents in a running cluster: a scripted model calls them, and the journal has their
//! outputs.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bus::Bus;
use domain::{
    ChildId, TraceId,
    subject::{Filter, Subject},
    wire::{Acceptance, EndStatus, HistoryEntry, HistoryStep, ToolOutput, ToolStep},
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trellis_tests::{
    cluster::{Client, Cluster, SOON, name},
    processes::{Processes, Shape, binary},
    servers::{installed, node},
};

/// One coordinator and one worker in memory, with these worker settings and agents.
async fn cluster(settings: Value, agents: Value) -> Cluster {
    rustls::crypto::ring::default_provider().install_default().ok();
    let coordinator = coordinator::Config::new(name("coordinator"));
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let store = coordinator::store::Memory::new(coordinator.topology.partitions);
    let store = coordinator::store::Store::Memory(store);
    let settings = serde_json::from_value(settings).unwrap();
    let sandbox = Some(binary());
    let worker = worker::Config { settings, sandbox, ..worker::Config::new(name("worker")) };
    let cluster = Cluster::start(bus, store, vec![coordinator], vec![worker]);
    // A completed run shows that the coordinator runs.
    cluster.client.run(json!({"goal": "hello"})).await;
    cluster.client.apply(json!(agents)).await;
    cluster
}

/// An agent that makes these calls, one each turn, and then returns the last output.
fn agent(agent_id: &str, calls: &[(&str, Value)]) -> Value {
    let turn = |(tool, arguments): &(&str, Value)| json!({"call": [{"tool": tool, "arguments": arguments}]});
    let mut script: Vec<Value> = calls.iter().map(turn).collect();
    script.push(json!({"say": "{last}"}));
    json!({"agent_id": agent_id, "kind": "llm", "model": "scripted", "script": script})
}

fn with_tools(mut agent: Value, tools: &[&str]) -> Value {
    agent["tools"] = json!(tools);
    agent
}

async fn journal(client: &Client, trace_id: TraceId, child_id: &ChildId) -> Vec<ToolStep> {
    let stored = client
        .bus
        .read(&Filter::One(Subject::History(trellis_tests::subjects::pool(), trace_id, child_id.clone())))
        .await
        .unwrap();
    let entries =
        stored.iter().map(|stored| serde_json::from_slice::<HistoryEntry>(&stored.payload).unwrap());
    let tools = entries.filter_map(|entry| match entry.step {
        HistoryStep::Tool(step) => Some(*step),
        _ => None,
    });
    tools.collect()
}

/// The outputs of an agent's tool calls, in order.
async fn calls(client: &Client, agent_id: &str) -> (Acceptance, Vec<ToolStep>) {
    let accepted = client.accepted(json!({"goal": "try it", "agent_id": agent_id})).await;
    let outcome = client.outcome(accepted.trace_id, &accepted.child_id).await;
    assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    let steps = journal(client, accepted.trace_id, &accepted.child_id).await;
    (accepted, steps)
}

fn said(step: &ToolStep) -> &str {
    assert!(!step.is_error, "{step:?}");
    text(step)
}

fn error(step: &ToolStep) -> &str {
    assert!(step.is_error, "{step:?}");
    text(step)
}

fn text(step: &ToolStep) -> &str {
    match &step.output {
        ToolOutput::Inline(text) => text,
        ToolOutput::Offloaded { preview, .. } => preview,
    }
}

fn value(step: &ToolStep) -> Value {
    serde_json::from_str(said(step)).unwrap()
}

#[tokio::test]
async fn i5_a_tool_outside_the_set_is_refused_at_the_call() {
    // A permitted tool in between: two answers in a row without any permitted tool would end the
    // agent.
    let list = || ("fs.list", json!({"path": "outputs"}));
    let tried = [
        ("fs.write", json!({"path": "outputs/a.txt", "content": "a"})),
        list(),
        ("fs.raed", json!({"path": "outputs/a.txt"})),
        list(),
        ("teleport", json!({})),
        list(),
        ("http.get", json!({"url": "http://127.0.0.1/"})),
        list(),
    ];
    let limited = with_tools(agent("limited", &tried), &["fs.read", "fs.list", "http.get"]);
    let cluster = cluster(json!({}), json!([limited])).await;
    let (_, steps) = calls(&cluster.client, "limited").await;
    let [written, _, misspelt, _, unknown, _, reached, listed] = &steps[..] else { panic!("{steps:#?}") };
    assert!(error(written).contains("`fs.write` is not among the tools of this context"));
    assert_eq!(written.tool.as_str(), "fs.write");
    assert!(error(misspelt).contains("did you mean `fs.read`?"), "{misspelt:?}");
    assert!(error(unknown).contains("its tools are fs.read, fs.list"), "{unknown:?}");
    assert!(
        error(reached).contains("there is no tool `http.get`"),
        "a tool without allowed hosts exists: {reached:?}"
    );
    assert_eq!(said(listed), "`outputs` is empty", "a file was written");
    cluster.stop().await;
}

#[tokio::test]
async fn i5_a_child_has_no_tool_its_parent_lacks_even_if_its_profile_lists_it() {
    let write = ("fs.write", json!({"path": "outputs/a.txt", "content": "a"}));
    let child = with_tools(agent("child", &[write]), &["fs.write", "fs.read"]);
    let spawn = ("spawn", json!({"goal": "write", "agent_id": "child"}));
    let parent = with_tools(agent("parent", &[spawn]), &["spawn", "fs.read"]);
    let cluster = cluster(json!({}), json!([child, parent])).await;
    let (accepted, steps) = calls(&cluster.client, "parent").await;
    assert!(said(&steps[0]).contains("`fs.write` is not among the tools of this context"), "{steps:?}");
    let trace = cluster.client.trace(accepted.trace_id).await;
    let child = trace.contexts()[1].id.clone();
    let steps = journal(&cluster.client, accepted.trace_id, &child).await;
    assert!(error(&steps[0]).contains("`fs.write` is not among the tools"), "{steps:?}");
    cluster.stop().await;
}

#[tokio::test]
async fn i2_a_spawn_is_one_step_with_its_note_and_the_result_alone() {
    let goal = "say this back to whoever asked you, and not a word more than that";
    let tried = [
        ("spawn", json!({"goal": goal, "agent_id": "echo"})),
        ("spawn", json!({"goal": "fail", "agent_id": "fail", "inputs": {"retryable": false}})),
        // P: the same agent with the same goal is a cycle.
        ("spawn", json!({"goal": "try it", "agent_id": "parent"})),
        ("spawn", json!({"agent_id": "no dots.allowed", "gaol": "x", "timeout_ms": "soon"})),
    ];
    let cluster = cluster(json!({}), json!([agent("parent", &tried)])).await;
    let (accepted, steps) = calls(&cluster.client, "parent").await;
    assert_eq!(steps.iter().map(|step| step.tool.as_str()).collect::<Vec<_>>(), ["agent:spawn"; 4]);
    let trace = cluster.client.trace(accepted.trace_id).await;
    let children: Vec<_> = trace.contexts().iter().skip(1).map(|node| node.id.clone()).collect();
    assert_eq!(children.len(), 2, "a refused spawn made a child");

    assert_eq!(said(&steps[0]), goal);
    let shown: String = goal.chars().take(50).collect();
    assert_eq!(steps[0].note.as_deref(), Some(&*format!("Spawned {} with goal: {shown}...", children[0])));
    assert_eq!(error(&steps[1]), format!("`{}` failed: failed as requested", children[1]));
    assert!(steps[1].note.as_deref().unwrap().ends_with(" with goal: fail..."), "{:?}", steps[1]);
    assert!(error(&steps[2]).starts_with("no child was started: an ancestor, "), "{:?}", steps[2]);
    let wrong = error(&steps[3]);
    for mistake in ["agent_id: ", "gaol", "did you mean `goal`?", "timeout_ms: "] {
        assert!(wrong.contains(mistake), "{mistake} is not in the message: {wrong}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn i2_two_spawns_of_one_turn_run_together_and_each_is_answered() {
    let call = |goal: &str| json!({"tool": "spawn", "arguments": {"goal": goal, "agent_id": "echo"}});
    let script = json!([{"call": [call("one"), call("two")]}, {"say": "both"}]);
    let both = json!({"agent_id": "both", "kind": "llm", "model": "scripted", "script": script});
    let cluster = cluster(json!({}), json!([both])).await;
    let (_, steps) = calls(&cluster.client, "both").await;
    assert_eq!(steps.iter().map(said).collect::<Vec<_>>(), ["one", "two"]);
    cluster.stop().await;
}

#[tokio::test]
async fn w3_a_spawn_copies_what_it_names_and_nothing_else() {
    let spawn =
        |goal: &str, share: Value| ("spawn", json!({"goal": goal, "agent_id": "echo", "share": share}));
    let tried = [
        spawn("one", json!([])),
        spawn("two", json!(["system"])),
        spawn("three", json!(["system", "context"])),
        spawn("four", json!(["dialog"])),
    ];
    let mut parent = agent("parent", &tried);
    parent["system_prompt"] = json!("the parent's role");
    let cluster = cluster(json!({}), json!([parent])).await;
    let submission = json!({"goal": "try it", "agent_id": "parent", "inputs": {"colour": "green"}});
    let accepted = cluster.client.accepted(submission).await;
    cluster.client.outcome(accepted.trace_id, &accepted.child_id).await;
    let trace = cluster.client.trace(accepted.trace_id).await;
    let shared = |n: usize| {
        let messages = trace.contexts()[n].spec.shared_messages.iter();
        messages.map(|message| message.content.clone()).collect::<Vec<_>>().join("|")
    };
    assert_eq!(trace.contexts().len(), 4);
    assert_eq!(shared(1), "");
    assert!(shared(2).contains("the parent's role") && !shared(2).contains("green"), "{}", shared(2));
    assert!(shared(3).contains("the parent's role") && shared(3).contains("green"), "{}", shared(3));
    let steps = journal(&cluster.client, accepted.trace_id, &accepted.child_id).await;
    assert!(error(&steps[3]).contains("share[0]: "), "DIALOG can't be listed: {steps:?}");
    cluster.stop().await;
}

#[tokio::test]
async fn i2_a_result_too_large_for_a_message_is_fetched() {
    let goal = "a long answer ".repeat(20);
    let mut echo = json!({"agent_id": "long", "kind": "builtin", "builtin": "echo"});
    echo["limits"] = json!({"max_result_bytes": 100});
    let parent = agent("parent", &[("spawn", json!({"goal": goal, "agent_id": "long"}))]);
    let cluster = cluster(json!({}), json!([echo, parent])).await;
    let (accepted, steps) = calls(&cluster.client, "parent").await;
    assert_eq!(said(&steps[0]), goal);
    let child = cluster.client.trace(accepted.trace_id).await.contexts()[1].id.clone();
    let outcome = cluster.client.outcome(accepted.trace_id, &child).await;
    assert!(outcome.context.result_object.is_some(), "the result is not stored as an object: {outcome:#?}");
    cluster.stop().await;
}

#[tokio::test]
async fn g10_delegate_hands_over_and_a_pipeline_answers_with_its_outputs() {
    let step = |id: &str| json!({"id": id, "agent_id": "echo", "task_description": id, "output_to": id});
    let graph = json!({"mode": "parallel", "task_description": "both", "steps": [step("a"), step("b")]});
    let broken = json!({"steps": [{"id": "x", "agent_id": "echo", "depends_on": ["y"]}], "mode": "random"});
    let tried = [
        ("run_pipeline", json!({"graph": graph})),
        ("run_pipeline", json!({"graph": graph.to_string()})),
        ("run_pipeline", json!({"graph": broken})),
        ("run_pipeline", json!({"steps": []})),
        ("delegate", json!({"goal": "the end", "agent_id": "echo"})),
    ];
    let cluster = cluster(json!({}), json!([agent("boss", &tried)])).await;
    let accepted = cluster.client.accepted(json!({"goal": "try it", "agent_id": "boss"})).await;
    let outcome = cluster.client.outcome(accepted.trace_id, &accepted.child_id).await;
    assert_eq!(
        outcome.context.result.unwrap().value(),
        "the end",
        "the result of the heir is the result of the context"
    );

    let steps = journal(&cluster.client, accepted.trace_id, &accepted.child_id).await;
    assert_eq!(steps.len(), 4, "the context continued after the hand-over: {steps:#?}");
    for step in &steps[..2] {
        assert!(said(step).contains("\"a\"") && said(step).contains("\"b\""), "{step:?}");
        assert!(step.note.as_deref().unwrap().ends_with(" with goal: both..."), "{step:?}");
    }
    let wrong = error(&steps[2]);
    assert!(
        wrong.contains("mode") && wrong.contains("depends_on"),
        "a mistake is not in the message: {wrong}"
    );
    assert!(error(&steps[3]).contains("only `graph`"), "{:?}", steps[3]);
    cluster.stop().await;
}

#[tokio::test]
async fn g7_a_question_parks_the_agent_and_its_answer_is_the_observation() {
    let tried = [
        // An invalid question gets no number.
        ("ask_human", json!({"question": ""})),
        ("ask_human", json!({"question": "who?"})),
        ("ask_human", json!({"question": "where?"})),
    ];
    let cluster = cluster(json!({}), json!([agent("asker", &tried)])).await;
    let client = &cluster.client;
    let accepted = client.accepted(json!({"goal": "ask", "agent_id": "asker"})).await;
    for (number, expected, answer) in [(1, "who?", "Ada"), (2, "where?", "London")] {
        let subject = Filter::QuestionsOf(accepted.trace_id);
        let mut asked = client.bus.follow(&[subject], bus::From::Start).await.unwrap();
        let question = loop {
            let stored = tokio::time::timeout(SOON, asked.next()).await.unwrap().unwrap();
            let question: domain::wire::Question = serde_json::from_slice(&stored.payload).unwrap();
            if question.number == number {
                break question;
            }
        };
        assert_eq!(question.question.as_str(), expected);
        let answered = json!({"child_id": accepted.child_id, "question": number, "answer": answer});
        client.publish(Subject::Input, &json!({"trace_id": accepted.trace_id, "answered": answered})).await;
    }
    let outcome = client.outcome(accepted.trace_id, &accepted.child_id).await;
    assert_eq!(outcome.context.result.unwrap().value(), "London");
    let steps = journal(client, accepted.trace_id, &accepted.child_id).await;
    assert!(error(&steps[0]).contains("question: "), "{steps:?}");
    assert_eq!([said(&steps[1]), said(&steps[2])], ["Ada", "London"]);
    cluster.stop().await;
}

#[tokio::test]
async fn c_an_absent_value_and_a_null_are_distinguished() {
    let tried = [
        ("write_context", json!({"key": "root.nothing", "value": null})),
        ("read_context", json!({"key": "root.nothing"})),
        ("read_context", json!({"key": "root.never"})),
        ("read_context", json!({})),
        ("write_context", json!({"key": "somebody-elses", "value": 1})),
        ("write_context", json!({"key": "root.nothing"})),
    ];
    let writer = agent("writer", &tried);
    let cluster = cluster(json!({}), json!([writer])).await;
    let client = &cluster.client;
    let submission = json!({"goal": "try it", "agent_id": "writer", "child_id": "root"});
    let accepted = client.accepted(submission).await;
    client.outcome(accepted.trace_id, &accepted.child_id).await;
    let steps = journal(client, accepted.trace_id, &accepted.child_id).await;
    assert_eq!(said(&steps[0]), "wrote `root.nothing`");
    let found = value(&steps[1]);
    assert_eq!(
        (&found["found"], &found["value"], &found["writer"]),
        (&json!(true), &json!(null), &json!("root"))
    );
    assert_eq!(value(&steps[2]), json!({"key": "root.never", "found": false}));
    assert_eq!(value(&steps[3]), json!({"keys": ["root.nothing"]}));
    assert!(error(&steps[4]).contains("may not write `somebody-elses`"), "{:?}", steps[4]);
    assert!(error(&steps[5]).contains("value"), "{:?}", steps[5]);
    cluster.stop().await;
}

#[tokio::test]
async fn i4_files_are_those_of_the_workspace_and_nothing_else() {
    let tried = [
        ("fs.write", json!({"path": "outputs/deep/a.txt", "content": "one\ntwo\nthree\n"})),
        ("fs.read", json!({"path": "outputs/deep/a.txt"})),
        ("fs.read", json!({"path": "outputs/deep/a.txt", "first_line": 2, "lines": 1})),
        ("fs.list", json!({"path": "outputs/deep"})),
        ("fs.write", json!({"path": "history/step_001.json", "content": "{}"})),
        ("fs.write", json!({"path": "outputs/../history/step_001.json", "content": "{}"})),
        ("fs.write", json!({"path": "../escaped.txt", "content": "out"})),
        ("fs.read", json!({"path": "/etc/passwd"})),
        ("fs.read", json!({"path": "outputs/none.txt"})),
        ("fs.read", json!({"file": "x", "lines": "many"})),
    ];
    let cluster = cluster(json!({}), json!([agent("clerk", &tried)])).await;
    let (_, steps) = calls(&cluster.client, "clerk").await;
    assert_eq!(said(&steps[0]), "wrote 14 bytes to `outputs/deep/a.txt`");
    assert_eq!(said(&steps[1]), "one\ntwo\nthree\n");
    assert_eq!(said(&steps[2]), "two\n[lines 2 to 2 of 3]");
    assert_eq!(said(&steps[3]), "outputs/deep/a.txt  14 bytes");
    assert!(error(&steps[4]).contains("history/"), "{:?}", steps[4]);
    for refused in &steps[5..9] {
        error(refused);
    }
    let wrong = error(&steps[9]);
    for mistake in ["file", "path", "lines: "] {
        assert!(wrong.contains(mistake), "{mistake} is not in the message: {wrong}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn i5_tools_of_a_server_are_called_only_by_agents_that_may() {
    let modules = installed("TRELLIS_NODE_MODULES", Path::new("node/node_modules"));
    let program = modules.join("@modelcontextprotocol/server-everything/dist/index.js");
    let settings =
        json!({"mcp": {"everything": {"command": [node(), program, "stdio"], "reads": [modules, node()]}}});
    let tried = [
        ("everything:echo", json!({"message": "hello"})),
        ("everything:echo", json!({})),
        ("everything:get-sum", json!({"a": 1, "b": 2})),
    ];
    let may = with_tools(agent("may", &tried), &["everything:echo"]);
    let cluster = cluster(settings, json!([may])).await;
    let (_, steps) = calls(&cluster.client, "may").await;
    assert_eq!(said(&steps[0]), "Echo: hello");
    assert_eq!(steps[0].tool.as_str(), "everything:echo");
    assert!(error(&steps[1]).contains("\"message\" is a required property"), "{steps:?}");
    assert!(
        error(&steps[2])
            .contains("is not among the tools of this context\n\nhint: its tools are everything:echo"),
        "{steps:?}"
    );
    cluster.stop().await;
}

/// An agent with a tool that can never be called ends before it pays.
#[tokio::test]
async fn p_a_tool_that_its_server_does_not_have_ends_the_agent_before_it_pays() {
    let modules = installed("TRELLIS_NODE_MODULES", Path::new("node/node_modules"));
    let program = modules.join("@modelcontextprotocol/server-everything/dist/index.js");
    let settings =
        json!({"mcp": {"everything": {"command": [node(), program, "stdio"], "reads": [modules, node()]}}});
    let tried = [("everything:echo", json!({"message": "hello"}))];
    let misspelt = with_tools(agent("misspelt", &tried), &["everything:ehco", "fs.read"]);
    let elsewhere = with_tools(agent("elsewhere", &[("fs.list", json!({}))]), &["other:tool", "fs.list"]);
    let cluster = cluster(settings, json!([misspelt, elsewhere])).await;
    let outcome = cluster.client.run(json!({"goal": "try it", "agent_id": "misspelt"})).await.context;
    assert_eq!(outcome.status, EndStatus::Failed);
    let error = outcome.error.unwrap().message;
    assert!(error.contains("no tool `everything:ehco`") && error.contains("`everything:echo`?"), "{error}");
    assert_eq!((outcome.attempts, outcome.budget.spent.tokens), (1, domain::Tokens::ZERO));
    let elsewhere = cluster.client.run(json!({"goal": "try it", "agent_id": "elsewhere"})).await.context;
    assert_eq!(elsewhere.status, EndStatus::Completed, "a missing server does not stop the agent");
    cluster.stop().await;
}

/// proves: if a server of tools has not started, a call of its tool returns that reason, not a
/// missing tool.
#[tokio::test]
async fn i5_a_tool_whose_server_does_not_start_says_why() {
    let settings = json!({"mcp": {"broken": {"command": ["/no/such/program"]}}});
    let caller = with_tools(agent("caller", &[("broken:look", json!({}))]), &["broken:look"]);
    let cluster = cluster(settings, json!([caller])).await;
    let (_, steps) = calls(&cluster.client, "caller").await;
    let [step] = steps.as_slice() else { panic!("{steps:?}") };
    assert!(error(step).contains("the server `broken` can't be used now"), "{step:?}");
    assert!(error(step).contains("/no/such/program"), "{step:?}");
    cluster.stop().await;
}

#[tokio::test]
async fn i5_an_agent_reaches_the_hosts_its_operator_allows_and_no_other() {
    let open = Page::serve("what is to be read").await;
    let closed = Page::serve("what is not").await;
    let tried = [
        ("http.get", json!({"url": open.url()})),
        ("http.get", json!({"url": closed.url()})),
        ("http.get", json!({"adress": open.url()})),
    ];
    let reader = with_tools(agent("reader", &tried), &["http.get"]);
    let settings = json!({"http": {"allow": [format!("127.0.0.1:{}", open.port)]}});
    let cluster = cluster(settings, json!([reader])).await;
    let (_, steps) = calls(&cluster.client, "reader").await;
    let [read, refused, wrong] = &steps[..] else { panic!("{steps:#?}") };
    assert_eq!(said(read), "what is to be read");
    assert!(error(refused).contains("127.0.0.1"), "{refused:?}");
    assert!(error(wrong).contains("url"), "{wrong:?}");
    assert_eq!([open.asked(), closed.asked()], [1, 0]);
    cluster.stop().await;
}

/// A killed worker can't end its MCP servers: they must notice that their stdin is closed.
#[tokio::test]
async fn i5_a_server_of_tools_ends_when_its_worker_is_killed() {
    let modules = installed("TRELLIS_NODE_MODULES", Path::new("node/node_modules"));
    let program = modules.join("@modelcontextprotocol/server-everything/dist/index.js");
    let word = format!("left-behind-{}", std::process::id());
    let settings = json!({"mcp": {"everything": {"command": [node(), program, "stdio", word], "reads": [modules, node()]}}});
    let mut cluster = Processes::start_as(|| Shape { worker: settings, ..Shape::new(1, 1) }).await;
    let echo = ("everything:echo", json!({"message": "hello"}));
    cluster.apply(json!([with_tools(agent("may", &[echo]), &["everything:echo"])])).await;
    let trace_id = cluster.begin(json!({"goal": "try it", "agent_id": "may", "child_id": "root"})).await;
    let outcome = cluster.outcome(trace_id).await;
    assert_eq!(outcome.context.result.unwrap().value(), "Echo: hello");
    assert_eq!(with_word(&word), 1);

    cluster.kill("w1");
    let gone = tokio::time::timeout(SOON, async {
        while with_word(&word) > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    gone.await.expect("the server is gone with its worker");
}

/// The number of processes with this word among their arguments.
fn with_word(word: &str) -> usize {
    let directories = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = directories.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())).count()
}

/// An HTTP server on loopback that counts its requests.
struct Page {
    port: u16,
    asked: Arc<AtomicUsize>,
}

impl Page {
    async fn serve(text: &'static str) -> Page {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                // A request without a body fits one read.
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0, "a request");
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n";
                let answer = format!("{head}content-length: {}\r\n\r\n{text}", text.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Page { port, asked }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}
