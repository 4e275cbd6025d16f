//! `trellis runs graph` and `trellis graphs amend` on real servers (G13).

use std::process::Command;

use serde_json::{Value, json};
use trellis_tests::{
    processes::binary,
    servers::{Gate, ModelServer, Reply},
};

use crate::agents;

/// The output of a command in a cluster, and its exit code.
fn trellis(nats: &str, arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new(binary()).args(arguments).env_clear().env("NATS_URL", nats).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// The name of a file with this content.
fn file(name: &str, content: &Value) -> String {
    let file = std::env::temp_dir().join(format!("trellis-amend-{}-{name}.json", std::process::id()));
    std::fs::write(&file, content.to_string()).unwrap();
    file.display().to_string()
}

fn step(name: &str) -> Value {
    json!({"id": name, "agent_id": "author", "task_description": format!("do {name}")})
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_the_command_line_shows_and_amends_a_graph_that_runs() {
    let gate = Gate::default();
    let held = gate.clone();
    let model = ModelServer::start(move |prompt| Reply {
        gate: prompt.task().contains("do first").then(|| held.clone()),
        ..agents::say(&prompt.task())
    })
    .await;
    let profile = json!({"agent_id": "author", "kind": "llm", "model": "test/model", "tools": []});
    let cluster = agents::cluster(1, &model, json!([profile])).await;
    let nats = cluster.nats.url();
    let steps = json!([step("first"), step("second"), step("third")]);
    let run =
        cluster.begin(json!({"name": "book", "child_id": "root", "steps": steps, "max_cost_usd": 1})).await;
    let trace = run.to_string();
    gate.reached().await;

    let (shown, note, code) = trellis(&nats, &["runs", "graph", &trace]);
    assert_eq!((code, note.trim_end()), (Some(0), "steps that have not begun: second, third"));
    let mut shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["revision"], json!(0));

    // Begun steps can't change; an unknown agent is named with its place.
    let mut wrong = shown.clone();
    wrong["graph"]["steps"][0]["task_description"] = json!("do something else");
    wrong["graph"]["steps"][2]["agent_id"] = json!("autor");
    let (_, told, code) = trellis(&nats, &["graphs", "amend", &trace, &file("wrong", &wrong)]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("steps[0]: `first` has begun and can't change: `task_description`"), "{told}");

    let shorter = json!({"id": "second", "agent_id": "author", "task_description": "do it shorter"});
    let (added, replaced) = (file("added", &json!([step("fourth")])), file("replaced", &shorter));
    let options = ["--remove", "third", "--add", &added, "--replace", &replaced, "--by", "Ann"];
    let (said, told, code) = trellis(&nats, &[&["graphs", "amend", &trace][..], &options].concat());
    assert_eq!((said.as_str(), code), ("`root` continues as amended, revision 1\n", Some(0)), "{told}");

    // Another client amended the graph since it was printed.
    shown["graph"]["steps"].as_array_mut().unwrap().pop();
    let (_, told, code) = trellis(&nats, &["graphs", "amend", &trace, &file("shown", &shown)]);
    assert!(told.contains("refused (graph_moved): ") && told.contains("hint: print it again"), "{told}");
    assert_eq!(code, Some(3));

    gate.open();
    let (outcome, _) = agents::finished(&cluster, run).await;
    let steps: Vec<_> = outcome["graph"]["steps"].as_array().unwrap().iter().collect();
    let seen: Vec<_> =
        steps.iter().map(|step| (step["id"].as_str().unwrap(), step["result"].as_str())).collect();
    let expected =
        [("first", Some("do first")), ("second", Some("do it shorter")), ("fourth", Some("do fourth"))];
    assert_eq!(seen, expected, "{outcome:#}");
    let (_, told, code) = trellis(&nats, &["graphs", "amend", &trace, "--remove", "fourth"]);
    assert!(told.contains("refused (ended): ") && code == Some(3), "{told}");
}
