//! `trellis tell`, and the output of `runs show` and `history` about messages and the ladder of
//! a budget, on real servers.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use domain::TraceId;
use serde_json::{Value, json};
use trellis_tests::{processes::binary, servers::ModelServer};

use crate::agents;

/// A command line in a cluster.
struct Commands(String);

impl Commands {
    /// Returns the output and exit code, with this text on stdin.
    fn say(&self, arguments: &[&str], stdin: &str) -> String {
        let mut command = Command::new(binary());
        command.args(arguments).env_clear().env("NATS_URL", &self.0);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!("{}{} exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
    }

    fn told(&self, arguments: &[&str]) -> String {
        self.say(&[&["tell"], arguments].concat(), "")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g13_b21_the_command_line_sends_messages_and_shows_which_were_seen() {
    let model = ModelServer::start(|prompt| match prompt.turn() {
        0 => agents::call("ask_human", json!({"question": "Which way?"})),
        1 => agents::call("ask_human", json!({"question": "How far?"})),
        _ => agents::say("done"),
    })
    .await;
    let profile = json!({"agent_id": "walker", "kind": "llm", "model": "test/model", "tools": ["ask_human"],
        "on_budget": [{"at": 0.001, "tell": true}, {"at": 0.9, "compact": true}]});
    let cluster = agents::cluster(1, &model, json!([profile])).await;
    let commands = Commands(cluster.nats.url());
    let run: TraceId =
        cluster.begin(json!({"goal": "walk", "agent_id": "walker", "max_cost_usd": 0.1})).await;
    let trace = run.to_string();
    let asks = |question: &'static str| {
        let root = move |trace: &trace::Trace| {
            trace.root().is_some_and(|root| format!("{:?}", root.status).contains(question))
        };
        cluster.until(run, "asking", root)
    };
    asks("Which way?").await;
    let first = commands.told(&[&trace, "Take the bridge.", "--by", "Ann", "--id", "one"]);
    assert_eq!(first, "message 1 to `root`: it is read before the next model call\n exit Some(0)");
    let again = commands.told(&[&trace, "Take the bridge.", "--by", "Ann", "--id", "one", "-o", "json"]);
    let again: Value = serde_json::from_str(again.trim_end_matches(" exit Some(0)")).unwrap();
    assert_eq!(again, json!({"child_id": "root", "number": 1}), "the same message twice is one message");
    let piped = commands.say(&["tell", &format!("{trace}/root"), "-"], "Mind the\ngap.\n");
    assert!(piped.starts_with("message 2 to `root`"), "{piped}");
    let described = commands.say(&["runs", "show", &trace], "");
    for part in [
        "2 of 2 messages not seen yet",
        "message 1 to root by Ann, not seen yet: Take the bridge.",
        "message 2 to root, not seen yet: Mind the gap.",
        "ladder of root: 0.1 % tell, 90 % compact",
    ] {
        assert!(described.contains(part), "no {part:?} in\n{described}");
    }
    for (arguments, says) in [
        (&[trace.as_str(), "Other.", "--id", "one"][..], "refused (message_conflict): "),
        (&[&format!("{trace}/nobody"), "Hello."], "refused (unknown_context): there is no context `nobody`"),
        (&["0af7651916cd43dd8448eb211c80319c", "Hello."], "refused (no_trace): "),
    ] {
        let refused = commands.told(arguments);
        assert!(refused.starts_with("error: ") || refused.contains(says), "{refused}");
        assert!(refused.contains(says) && refused.ends_with("exit Some(3)"), "{refused}");
    }
    let answered = commands.say(&["answer", &trace, "left"], "");
    assert!(answered.ends_with("exit Some(0)"), "{answered}");
    asks("How far?").await;
    let described = commands.say(&["runs", "show", &trace], "");
    for part in
        ["2 messages seen", "message 2 to root, seen: ", "ladder of root: 0.1 % tell (reached), 90 % compact"]
    {
        assert!(described.contains(part), "no {part:?} in\n{described}");
    }
    let history = commands.say(&["history", &trace], "");
    for part in [
        "told     message 1",
        "Ann: Take the bridge.",
        "budget   rung 1: 0.1 %",
        "reports the remaining budget; left: $0.0",
    ] {
        assert!(history.contains(part), "no {part:?} in\n{history}");
    }
    commands.say(&["answer", &trace, "to the end"], "");
    let (outcome, _) = agents::finished(&cluster, run).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    let late = commands.told(&[&trace, "One more."]);
    assert!(
        late.contains("refused (ended): ") && late.contains("hint: `trellis submit --branch-from`"),
        "{late}"
    );
    assert!(late.ends_with("exit Some(3)"), "{late}");
}
