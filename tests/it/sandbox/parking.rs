//! A program that waits for a child or a human is ended and uses no slot. It is started again, and
//! gets the same answers to its earlier requests.

use domain::subject::Subject;
use serde_json::{Value, json};
use trellis_tests::{
    cluster::eventually,
    processes::{Processes, Shape, fresh_trace},
    servers::{ModelServer, Prompt},
};

use super::{crash::paid, processes_with, python};
use crate::agents::{check_bill, finished, say, steering};

/// Calls its model, spawns a child of the same kind unless it is deep enough, and calls its model
/// again.
const DIGGER: &str = r#"
def model(text):
    return ask(type="model", id="m", messages=[{"role": "user", "content": text}])["text"]
goal = start["goal"]
how = model("how? " + goal)
beneath = "the bottom"
if goal.count("deeper") < 3:
    beneath = ask(type="tool", id="s", tool="spawn", arguments={"goal": goal + " deeper", "agent_id": "digger"})["text"]
say(type="result", result=model("say: " + beneath))
"#;

/// One worker with one slot.
async fn alone(model: &ModelServer, agents: Value) -> Processes {
    let settings = model.settings();
    let cluster = Processes::start_as(|| Shape { slots: 1, worker: settings, ..Shape::new(1, 1) }).await;
    cluster.apply(agents).await;
    cluster
}

/// Three levels with one slot: each waits for the next and uses no slot meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn p_a_program_that_waits_for_a_child_holds_no_slot_and_has_one_child() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.last().strip_prefix("say: ") {
        Some(beneath) => say(&format!("beneath me: {beneath}")),
        None => say("with a spade"),
    })
    .await;
    let cluster = alone(&model, json!([paid("digger", DIGGER)])).await;
    let run = cluster.begin(json!({"goal": "dig", "agent_id": "digger"})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    let expected = "beneath me: beneath me: beneath me: beneath me: the bottom";
    assert_eq!(outcome["result"], expected, "{outcome:#}");
    assert_eq!(trace.contexts().len(), 4, "each context has one child");
    assert_eq!(model.bill().len(), 8, "a model call was paid twice: {:#?}", model.bill());
    check_bill(&model, &[&trace], 0);
}

const PAINTER: &str = r#"
first = ask(type="model", id="m", messages=[{"role": "user", "content": "what do you need?"}])["text"]
colour = ask(type="tool", id="1", tool="ask_human", arguments={"question": "Which colour?"})["text"]
shade = ask(type="tool", id="2", tool="ask_human", arguments={"question": "How dark?"})["text"]
say(type="result", result=[first, colour, shade])
"#;

/// While it waits, none of its processes runs, and another context uses its slot.
#[tokio::test(flavor = "multi_thread")]
async fn g7_a_program_that_asks_a_human_is_ended_and_holds_no_slot() {
    let model = ModelServer::start(|_: &Prompt| say("paint")).await;
    let word = format!("painter-{}", fresh_trace());
    let mut painter = paid("painter", PAINTER);
    painter["command"].as_array_mut().unwrap().push(json!(word));
    let other = python("other", "say(type='result', result='meanwhile')");
    let cluster = alone(&model, json!([painter, other])).await;
    let run = cluster.begin(json!({"goal": "paint", "agent_id": "painter"})).await;
    for (number, (question, answer)) in
        [("Which colour?", "blue"), ("How dark?", "midnight")].iter().enumerate()
    {
        cluster
            .until(run, "asking", |trace| {
                trace.root().is_some_and(|root| {
                    root.answers.len() == number && format!("{:?}", root.status).contains(question)
                })
            })
            .await;
        eventually("ended", async || processes_with(&word) == 0).await;
        let meanwhile = cluster.begin(json!({"goal": "x", "agent_id": "other"})).await;
        let (outcome, _) = finished(&cluster, meanwhile).await;
        assert_eq!(outcome["result"], "meanwhile", "{outcome:#}");
        let answered = json!({"child_id": "root", "question": number + 1, "answer": answer});
        cluster.client.publish(Subject::Input, &json!({"trace_id": run, "answered": answered})).await;
    }
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], json!(["paint", "blue", "midnight"]), "{outcome:#}");
    assert_eq!(outcome["attempts"], 3);
    assert_eq!(model.bill().len(), 1, "{:#?}", model.bill());
    check_bill(&model, &[&trace], 0);
}

/// Asks a human, then its model, twice. It collects every line that it reads before an answer.
const LISTENER: &str = r#"
def lines(**line):
    say(**line)
    read = [json.loads(sys.stdin.readline())]
    while read[-1]["type"] != "answer":
        read.append(json.loads(sys.stdin.readline()))
    return [line["text"] for line in read]
told = []
for n in ("1", "2"):
    early = lines(type="tool", id="h" + n, tool="ask_human", arguments={"question": "Question " + n})[:-1]
    told += ["too early: " + text for text in early]
    told += lines(type="model", id="m" + n, messages=[{"role": "user", "content": "call " + n}])
say(type="result", result=told)
"#;

/// A program that listens gets messages as lines before the answer of its next call, and a later
/// attempt gets them in the same places. A program that does not listen gets none, and its outcome
/// reports them as unseen.
#[tokio::test(flavor = "multi_thread")]
async fn g13_only_a_program_that_listens_gets_messages_each_once() {
    let model = ModelServer::start(|prompt: &Prompt| say(&format!("to {}", prompt.last()))).await;
    let listener = paid("listener", &format!("say(type='listen')\n{LISTENER}"));
    let cluster = alone(&model, json!([listener, paid("deaf", LISTENER)])).await;
    let cases = [
        ("listener", json!(["hint 1", "to call 1", "hint 2", "to call 2"]), json!(null)),
        ("deaf", json!(["to call 1", "to call 2"]), json!(2)),
    ];
    for (agent, expected, unseen) in cases {
        let run = cluster.begin(json!({"goal": "listen", "agent_id": agent})).await;
        for number in 1..=2 {
            let question = format!("Question {number}");
            let asks = |trace: &trace::Trace| {
                trace.root().is_some_and(|root| format!("{:?}", root.status).contains(&question))
            };
            cluster.until(run, "asking", asks).await;
            steering::tell(&cluster, run, &format!("m{number}"), &format!("hint {number}")).await;
            let answered = json!({"child_id": "root", "question": number, "answer": "yes"});
            cluster.client.publish(Subject::Input, &json!({"trace_id": run, "answered": answered})).await;
        }
        let (outcome, trace) = finished(&cluster, run).await;
        assert_eq!((&outcome["result"], &outcome["unseen"]), (&expected, &unseen), "{agent}: {outcome:#}");
        let journal = cluster.client.journal(run, &"root".parse().unwrap()).await;
        let seen = if agent == "listener" { vec![Some(1), Some(2)] } else { Vec::new() };
        assert_eq!(steering::told(&journal), seen, "{agent}");
        assert_eq!(trace.root().unwrap().attempt(), 3);
    }
    assert_eq!(model.bill().len(), 4, "each call is paid once");
}
