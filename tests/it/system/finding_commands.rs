//! `trellis runs list | pending` and the names of runs on the command line (G17), on real servers.

use std::process::Command;

use domain::TraceId;
use serde_json::{Value, json};
use trellis_tests::{processes::binary, servers::ModelServer};

use crate::agents;

/// A command line in a cluster. Returns its output and exit code.
struct Commands(String);

impl Commands {
    fn say(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(binary());
        let output = command.args(arguments).env_clear().env("NATS_URL", &self.0).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!("{}{} exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code())
    }

    fn listed(&self, arguments: &[&str]) -> Vec<String> {
        let said = self.say(&[&["runs", "list", "-o", "json"], arguments].concat());
        let json = said.split_once('}').map_or(said.as_str(), |_| &said[..=said.rfind('}').unwrap()]);
        let runs: Value = serde_json::from_str(json).unwrap_or_else(|_| panic!("{said}"));
        runs["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["trace_id"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g17_the_command_line_finds_runs_and_names_them_in_one_way() {
    let model = ModelServer::start(|prompt| {
        match (
            prompt.turn(),
            prompt.messages().iter().any(|message| message.to_string().contains("crossroads")),
        ) {
            (0, true) => agents::call("ask_human", json!({"question": "Which way?\nLeft or right?"})),
            _ => agents::say("done"),
        }
    })
    .await;
    let profile = json!({"agent_id": "walker", "kind": "llm", "model": "test/model", "tools": ["ask_human"]});
    let cluster = agents::cluster(1, &model, json!([profile])).await;
    let commands = Commands(cluster.nats.url());
    assert!(commands.say(&["runs", "show", "@last"]).contains("there are no runs yet"));
    let mut submitted = Vec::new();
    for (goal, labels) in [
        ("walks", &["--label", "env=prod"][..]),
        ("crossroads", &["--label", "env=prod", "--label", "team=x"]),
        ("rests", &[]),
    ] {
        let wait: &[&str] = if goal == "crossroads" { &[] } else { &["--wait"] };
        let said = commands
            .say(&[&["submit", "--goal", goal, "--agent", "walker", "-o", "json"], labels, wait].concat());
        let id = said.split("\"trace_id\": \"").nth(1).unwrap_or_else(|| panic!("{said}"));
        submitted.push(id[..32].to_owned());
    }
    let [walks, asks, rests] = <[String; 3]>::try_from(submitted).unwrap();
    let run: TraceId = asks.parse().unwrap();
    let waits = |trace: &trace::Trace| trace.root().is_some_and(|root| root.lifecycle.waiting_for_humans > 0);
    cluster.until(run, "asking", waits).await;

    assert_eq!(commands.listed(&[]), [rests.as_str(), &asks, &walks], "newest first");
    assert_eq!(commands.listed(&["--label", "env=prod"]), [asks.as_str(), &walks]);
    assert_eq!(commands.listed(&["--label", "env=prod", "--label", "team=x"]), [asks.as_str()]);
    assert_eq!(commands.listed(&["--status", "completed", "--agent", "walker"]), [rests.as_str(), &walks]);
    assert_eq!(commands.listed(&["--waiting"]), [asks.as_str()]);
    assert_eq!(commands.listed(&["--since", "1h", "--until", "2100-01-01", "--max-cost-usd", "5"]).len(), 3);
    assert_eq!(commands.listed(&["--until", "1h"]), [""; 0]);
    let page = commands.say(&["runs", "list", "--limit", "2"]);
    let after =
        page.split("add --after ").nth(1).unwrap_or_else(|| panic!("{page}")).split_whitespace().next();
    assert_eq!(commands.listed(&["--limit", "2", "--after", after.unwrap()]), [walks.as_str()]);
    let table = commands.say(&["runs", "list"]);
    for part in ["LABELS", "env=prod team=x", "(waits for a human)"] {
        assert!(table.contains(part), "no {part:?} in\n{table}");
    }
    let none = commands.say(&["runs", "list", "--label", "env=test"]);
    assert_eq!(none, "no run matches; without filters there are 3\n exit Some(0)");

    let pending = commands.say(&["runs", "pending"]);
    for part in
        [&format!("{asks}/walker  question 1, for "), "| Which way?", "| Left or right?", "asked by walker"]
    {
        assert!(pending.contains(part), "no {part:?} in\n{pending}");
    }
    assert!(pending.contains(&format!("trellis answer {asks}/walker 'TEXT'")), "{pending}");

    // A prefix of the id, the newest run, and the root by that name, in every command about a
    // context.
    let short = &asks[..12];
    for arguments in [
        &["runs", "show", short][..],
        &["history", &format!("{short}/root")],
        &["history", &format!("{short}/walker@1")],
        &["history", short, "walker"],
        &["budgets", "show", &format!("{short}/root")],
        &["budgets", "tree", short],
        &["budgets", "disputes", "@last"],
        &["outputs", "@last"],
        &["history", "@last/root"],
    ] {
        let said = commands.say(arguments);
        assert!(said.ends_with("exit Some(0)"), "{arguments:?}: {said}");
    }
    assert!(commands.say(&["runs", "show", "@last"]).contains(&rests), "the newest run");
    let told = commands.say(&["tell", &format!("{short}/root"), "Go on."]);
    assert!(told.contains("message 1 to `walker`"), "{told}");
    let answered = commands.say(&["answer", &format!("{short}/root"), "Left."]);
    assert!(answered.contains("`walker` has its answer"), "{answered}");
    let branched = commands.say(&[
        "submit",
        "--goal",
        "rests",
        "--agent",
        "walker",
        "--branch-from",
        "@last@1",
        "--wait",
    ]);
    assert!(branched.ends_with("exit Some(0)"), "{branched}");
    for (arguments, says) in [
        (&["runs", "show", "ffffffff"][..], "no run begins with ffffffff"),
        (&["runs", "show", "fff"], "is not a run: give its id, at least 4 of its first hex digits, or @last"),
        (&["budgets", "show", &format!("{short}/root@1")], "is a step, and this command takes a context"),
        (&["runs", "restore", short], "the entry is missing"),
        (&["runs", "list", "--status", "done"], "use submitted, working, input_required"),
        (&["runs", "list", "--since", "then"], "write a time before now, such as 2h"),
        (&["submit", "--goal", "x", "--label", "a b=c"], "is not a valid label"),
    ] {
        let said = commands.say(arguments);
        assert!(said.contains(says) && !said.ends_with("exit Some(0)"), "{arguments:?}: {said}");
    }
    // Two runs with a common prefix.
    for end in ["1", "2"] {
        let twin: TraceId = format!("abcdef{end}{}", "0".repeat(25)).parse().unwrap();
        cluster.begin_as(twin, json!({"goal": "twin", "agent_id": "walker", "child_id": "root"})).await;
        cluster.outcome(twin).await;
    }
    let several = commands.say(&["runs", "show", "abcd"]);
    for part in ["more than one run has this prefix:", "abcdef1", "abcdef2", "hint: give more digits"] {
        assert!(several.contains(part), "no {part:?} in\n{several}");
    }
    assert!(commands.say(&["runs", "cancel", "abcdef2/root"]).contains("abcdef2"));
}

/// proves: a published graph is listed by its name; its open questions show the decider, the
/// choices, and an answer that can be typed verbatim; and a graph on the command line is checked
/// against the agents of the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn g7_g17_published_graphs_have_their_names_and_questions_say_what_may_be_answered() {
    let model = ModelServer::start(|_| {
        let schema = json!({"type": "integer", "minimum": 1});
        agents::call("ask_human", json!({"question": "How many?", "schema": schema}))
    })
    .await;
    let profile = json!({"agent_id": "walker", "kind": "llm", "model": "test/model", "tools": ["ask_human"]});
    let cluster = agents::cluster(1, &model, json!([profile])).await;
    let commands = Commands(cluster.nats.url());
    let trace: TraceId = "abcd".repeat(8).parse().unwrap();
    let graph = json!({"name": "shop", "mode": "parallel", "trace_id": trace, "steps": [
        {"id": "plain", "approve": {"who": "the owner", "question": "Open?"}},
        {"id": "choice", "approve": {"who": "Ann", "choices": ["on Monday", "it's $(x)"]}},
        {"id": "count", "agent_id": "walker", "task_description": "count"}]});
    cluster.client.publish(domain::subject::Subject::Graph, &graph).await;
    let all_ask = |run: &trace::Trace| {
        run.contexts().iter().filter(|node| run.question(&node.id).is_some()).count() == 3
    };
    cluster.until(trace, "asking", all_ask).await;
    let listed = commands.say(&["runs", "list"]);
    assert!(listed.contains("  shop  "), "{listed}");
    let pending = commands.say(&["runs", "pending"]);
    for part in [
        "  for the owner\n",
        "  answer one of `approve`, `deny` or `deny: REASON`\n",
        &format!("  trellis answer {trace}/plain approve   (or 'deny: REASON')\n"),
        "  for Ann\n  1  on Monday\n  2  it's $(x)\n",
        &format!("  trellis answer {trace}/choice 'on Monday'   (or 2, 'deny: REASON')\n"),
        "  answer with JSON that fits {",
        &format!("  trellis answer {trace}/count 'JSON'\n"),
    ] {
        assert!(pending.contains(part), "no {part:?} in\n{pending}");
    }
    assert!(!pending.contains("'TEXT'"), "{pending}");

    let folder = std::env::temp_dir().join(format!("trellis-known-agents-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, more) = (folder.join("graph.yaml"), folder.join("more.yaml"));
    std::fs::write(&file, "steps:\n  - {id: a, agent_id: wolker, task_description: t}\n  - {id: b, agent_id: other, task_description: t}\n").unwrap();
    std::fs::write(&more, "agents:\n  - {agent_id: other, kind: builtin, builtin: echo}\n").unwrap();
    let (file, more) = (file.to_str().unwrap(), more.to_str().unwrap());
    for command in ["validate", "plan", "rehearse"] {
        let said = commands.say(&["graph", command, file]);
        let wolker = "line 2: steps[0].agent_id: there is no agent `wolker`\n  hint: did you mean `walker`?";
        assert!(said.contains(wolker) && said.contains("line 3: steps[1].agent_id"), "{command}: {said}");
        assert!(said.ends_with("exit Some(3)"), "{command}: {said}");
        let said = commands.say(&["graph", command, file, "--agents", more]);
        assert!(said.contains(wolker) && !said.contains("`other`"), "{command}: {said}");
    }
    let nowhere = Commands("nats://127.0.0.1:1".into());
    let said = nowhere.say(&["graphs", "check", file]);
    assert!(
        said.contains("agent names are not checked against the server") && said.ends_with("exit Some(0)"),
        "{said}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
