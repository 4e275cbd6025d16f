//! A program that waits for a child or a human is ended and holds no slot. It is started again, and gets the same answers
//! to the requests it made before.

use serde_json::{Value, json};
use shared::subject::Subject;
use trellis_tests::{
    cluster::eventually,
    processes::{Processes, Shape, fresh_trace},
    servers::{ModelServer, Prompt},
};

use super::{crash::paid, processes_with, python};
use crate::agents::{check_bill, finished, say};

/// Calls its model, spawns a child of its own kind unless it is deep enough, and calls its model again.
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

/// Three levels with one slot: each waits for the next one and holds no slot meanwhile.
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
    assert_eq!(trace.contexts().len(), 4, "one child each");
    assert_eq!(model.bill().len(), 8, "each question is paid for once: {:#?}", model.bill());
    check_bill(&model, &[&trace], 0);
}

const PAINTER: &str = r#"
first = ask(type="model", id="m", messages=[{"role": "user", "content": "what do you need?"}])["text"]
colour = ask(type="tool", id="1", tool="ask_human", arguments={"question": "Which colour?"})["text"]
shade = ask(type="tool", id="2", tool="ask_human", arguments={"question": "How dark?"})["text"]
say(type="result", result=[first, colour, shade])
"#;

/// While it waits, none of its processes runs, and another context has its slot.
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
