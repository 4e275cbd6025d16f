//! The command line as users see it: whole outputs, exit codes, errors with hints.

#![allow(clippy::unwrap_used, reason = "a test that is surprised shall panic")]

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `trellis` in the root of the repository, without the environment variables that name servers.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.args(args).current_dir(root()).stdin(Stdio::null());
    for name in
        ["NATS_URL", "NATS_CREDS", "REDIS_URL", "TRELLIS_NAMESPACE", "TRELLIS_WORKER_CONFIG", "RUST_LOG"]
    {
        command.env_remove(name);
    }
    command
}

/// Runs it; its stdout, stderr and exit code.
fn trellis(args: &[&str]) -> String {
    said(&command(args).output().expect("the binary runs"))
}

fn said(output: &Output) -> String {
    let said = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    };
    let code = output.status.code().expect("it was not killed");
    format!("{}\n--- stderr\n{}\n--- exit {code}", said(&output.stdout), said(&output.stderr))
}

/// Only stdout: the order of progress on stderr varies.
fn stdout(said: &str) -> &str {
    said.split("\n--- stderr").next().unwrap()
}

fn json(said: &str) -> Value {
    serde_json::from_str(stdout(said)).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Runs it with these lines on stdin.
fn with_stdin(args: &[&str], lines: &str) -> String {
    let mut command = command(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    said(&child.wait_with_output().unwrap())
}

fn examples() -> impl Iterator<Item = String> {
    let files = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let names = files
        .filter(|path| path.is_file())
        .map(|path| format!("examples/{}", path.file_name().unwrap().to_str().unwrap()));
    names.filter(|name| name != "examples/agents.yaml")
}

#[test]
fn every_example_is_valid() {
    for example in examples() {
        let said = trellis(&["graph", "validate", &example]);
        assert!(said.ends_with("--- exit 0"), "{said}");
        let said = trellis(&["graph", "rehearse", &example]);
        assert!(said.ends_with("--- exit 0"), "{said}");
    }
}

#[test]
fn a_rehearsal_shows_the_tree_with_money() {
    insta::assert_snapshot!(trellis(&["graph", "rehearse", "examples/research.yaml"]));
}

#[test]
fn a_rehearsal_with_a_failure_shows_what_follows() {
    insta::assert_snapshot!(trellis(&[
        "graph",
        "rehearse",
        "examples/map-reduce.json",
        "--fail",
        "map-2",
        "--spend",
        "0.02"
    ]));
}

#[test]
fn g7_a_rehearsal_answers_for_a_human() {
    let rehearse =
        |more: &[&str]| trellis(&[&["graph", "rehearse", "examples/approval.yaml"], more].concat());
    let said = rehearse(&[]);
    assert!(said.contains("release") && said.ends_with("--- exit 0"), "{said}");
    insta::assert_snapshot!(rehearse(&["--answer", "release=deny: too long"]));
    let nobody = rehearse(&["--answer", "release=perhaps"]);
    assert!(nobody.contains("denied: nobody answered within 86400000 ms"), "{nobody}");
    let unknown = rehearse(&["--answer", "nobody=yes"]);
    assert!(unknown.contains("the graph has no step `nobody`"), "{unknown}");
}

#[test]
fn g7_a_graph_with_an_approve_step_runs_in_one_process() {
    let said = trellis(&["run", "examples/approval.yaml", "--answer", "yes", "-o", "json"]);
    assert!(said.contains("\"status\": \"completed\"") && said.ends_with("--- exit 0"), "{said}");
    assert!(said.contains("question from approval › release: Shall this be published?"), "{said}");
    let said = trellis(&["run", "examples/approval.yaml", "--answer", "deny: too long"]);
    assert!(said.contains("denied: too long") && said.ends_with("--- exit 1"), "{said}");
    let said = trellis(&["run", "examples/approval.yaml", "--answer", "perhaps"]);
    assert!(said.contains("it neither approves nor denies"), "{said}");
}

#[test]
fn a_rehearsed_loop_ends_at_its_bound() {
    insta::assert_snapshot!(trellis(&[
        "graph",
        "rehearse",
        "examples/author-and-critic.yaml",
        "--result",
        "critic=\"too long\"",
        "--spend",
        "0.06",
    ]));
}

#[test]
fn what_an_agent_says_can_not_control_the_terminal() {
    let said = trellis(&["run", "--goal", "é a\x1b[2Jb\r\u{9b}31mc\u{202e}d\te\nf\x07"]);
    let shown = "é a\u{fffd}[2Jb\u{fffd}\u{fffd}31mc\u{fffd}d e f\u{fffd}";
    assert!(stdout(&said).contains(shown), "{said}");
}

#[test]
fn a_rehearsal_as_json() {
    let said = trellis(&["graph", "rehearse", "examples/race.yaml", "-o", "json", "--events"]);
    let json = json(&said);
    assert_eq!(json["outcome"]["status"], "completed");
    assert_eq!(json["outcome"]["graph"]["verdict"], "succeeded");
    assert_eq!(json["contexts"].as_array().unwrap().len(), 5);
    assert_eq!(json["events"][0]["events"][0]["type"], "opened");
}

#[test]
fn mistakes_are_explained_with_hints() {
    let file = std::env::temp_dir().join(format!("trellis-bad-{}.yaml", std::process::id()));
    std::fs::write(&file, "steps:\n  - agent_id: a\n    task_descripton: t\n    when: output.x > 1\n")
        .unwrap();
    let said = trellis(&["graph", "validate", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    let said = said.replace(file.to_str().unwrap(), "FILE");
    insta::assert_snapshot!(said);
}

#[test]
fn a_step_that_is_not_there_is_an_error() {
    insta::assert_snapshot!(trellis(&[
        "graph",
        "rehearse",
        "examples/research.yaml",
        "--fail",
        "reseacher-1"
    ]));
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    insta::assert_snapshot!(trellis(&["graph", "validate", "nowhere.yaml"]));
}

#[test]
fn a_fallback_runs_when_its_step_fails() {
    let said =
        trellis(&["graph", "rehearse", "examples/map-reduce.json", "--fail", "reduce", "--spend", "0.001"]);
    assert!(said.contains("reduce-fallback") && said.ends_with("--- exit 0"), "{said}");
    let said = trellis(&[
        "graph",
        "rehearse",
        "examples/map-reduce.json",
        "--fail",
        "reduce",
        "--fail",
        "reduce-fallback",
        "--spend",
        "0.001",
    ]);
    let fallback = said.lines().find(|line| line.contains("reduce-fallback")).unwrap_or_default();
    assert!(fallback.contains("failed") && fallback.contains("told to fail"), "{said}");
}

#[test]
fn a_name_that_matches_no_context_is_an_error() {
    for (name, says) in [("answer", "is a group"), ("fast-9", "no context called `fast-9` was run")] {
        let said = trellis(&["graph", "rehearse", "examples/race.yaml", "--fail", name]);
        assert!(said.contains(says) && said.ends_with("--- exit 2"), "{said}");
    }
}

#[test]
fn every_file_is_checked_and_reported_as_json() {
    let said = trellis(&["graph", "validate", "nowhere.yaml", "examples/race.yaml", "-o", "json"]);
    let json = json(&said);
    assert_eq!((json[0]["ok"].clone(), json[1]["ok"].clone()), (false.into(), true.into()));
    assert_eq!((json[1]["steps"].clone(), json[1]["groups"].clone()), (3.into(), 1.into()));
    assert!(said.ends_with("--- exit 2"), "{said}");
}

#[test]
fn a_closed_pipe_is_not_a_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_trellis"))
        .args(["schema", "graph"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()),
        (Some(0), String::new())
    );
}

#[test]
fn schemas_are_printed_by_name() {
    assert!(trellis(&["schema", "spawn"]).contains("\"max_cost_usd\""));
    insta::assert_snapshot!(trellis(&["schema", "spwan"]));
}

#[test]
fn rehearse_has_help() {
    insta::assert_snapshot!(trellis(&["graph", "rehearse", "--help"]));
}

#[test]
fn every_example_runs_without_servers() {
    for example in examples() {
        let name = example.trim_start_matches("examples/").split('.').next().unwrap().to_owned();
        let said = trellis(&["run", &example, "--answer", "yes"]);
        assert!(said.ends_with("--- exit 0"), "{said}");
        insta::assert_snapshot!(format!("run_{name}"), stdout(&said));
        let said = trellis(&["run", &example, "--answer", "yes", "-o", "json"]);
        let outcome = json(&said);
        assert_eq!(outcome["status"], "completed", "{said}");
        assert_eq!(outcome["graph"]["failed"], serde_json::json!([]), "{said}");
        assert!(said.contains("agents from examples/agents.yaml") && said.contains("completed"), "{said}");
    }
}

#[test]
fn a_goal_is_run_by_the_default_agent() {
    let said = trellis(&["run", "--goal", "hello", "--max-cost-usd", "0.05", "-o", "json"]);
    let outcome = json(&said);
    assert_eq!((outcome["status"].as_str(), &outcome["result"]), (Some("completed"), &"hello".into()));
    assert_eq!(outcome["budget"]["limit"]["cost_usd"], 0.05);
}

#[test]
fn options_override_the_file() {
    let args = [
        "run",
        "examples/map-reduce.json",
        "--input",
        "topics=[\"one\"]",
        "--max-cost-usd",
        "0.2",
        "-o",
        "json",
    ];
    let outcome = json(&trellis(&args));
    assert_eq!(outcome["graph"]["steps"][0]["contexts"].as_array().unwrap().len(), 1);
    assert_eq!(outcome["budget"]["limit"]["cost_usd"], 0.2);
}

#[test]
fn a_refused_submission_has_its_own_exit_code() {
    let said = trellis(&["run", "--goal", "hello", "--agent", "nobody"]);
    assert!(
        said.contains("error: refused (") && said.contains("nobody") && said.ends_with("--- exit 3"),
        "{said}"
    );
    let said = trellis(&["run", "--goal", "hello", "--agent", "nobody", "-o", "json"]);
    assert!(json(&said)["refusal"]["rule"].is_string(), "{said}");
}

#[test]
fn a_run_that_takes_too_long_is_stopped() {
    let args = ["run", "--goal", "slow", "--agent", "careful-model", "--agents", "examples/agents.yaml"];
    let said = trellis(&[&args[..], &["--timeout", "100ms"]].concat());
    assert!(stdout(&said).contains("timed_out") && said.ends_with("--- exit 4"), "{said}");
}

#[test]
fn an_interrupt_cancels_the_run_and_waits_for_its_outcome() {
    let mut child =
        command(&["run", "--goal", "slow", "--agent", "sleep", "--input", "ms=60000", "-o", "json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("sleep: working")));
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    assert!(lines.any(|line| line.unwrap().contains("cancelling")));
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), outcome["status"].as_str()), (Some(4), Some("cancelled")));
    assert_eq!(outcome["reason"], "interrupted by its caller");
}

/// A file with an agent that asks a question.
fn asking_agents() -> PathBuf {
    let file = std::env::temp_dir().join(format!(
        "trellis-ask-{}-{:?}.yaml",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&file, "[{agent_id: default, kind: builtin, builtin: ask}]").unwrap();
    file
}

#[test]
fn a_question_is_answered_from_the_command_line() {
    let file = asking_agents();
    let args = ["run", "--goal", "Which one?", "--agents", file.to_str().unwrap(), "-o", "json"];
    let said = trellis(&[&args[..], &["--answer", "the first"]].concat());
    assert_eq!(json(&said)["result"], "the first", "{said}");
    assert!(said.contains("question from ") && said.ends_with("--- exit 0"), "{said}");
    let said = trellis(&args);
    assert!(said.contains("nobody can answer") && said.ends_with("--- exit 4"), "{said}");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn dev_runs_each_line_as_a_submission() {
    let lines = "hello\n{\"goal\": \"there\"}\n";
    let said = with_stdin(&["dev", "-o", "json"], lines);
    let told: Vec<Value> = stdout(&said).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told.len(), 4, "{said}");
    assert_eq!(told.iter().filter(|line| line["status"] == "accepted").count(), 2, "{said}");
    let mut results: Vec<&str> = told.iter().filter_map(|line| line["outcome"]["result"].as_str()).collect();
    results.sort_unstable();
    assert_eq!(results, ["hello", "there"], "{said}");
    assert!(said.contains("nothing is kept") && said.ends_with("--- exit 0"), "{said}");
}

#[test]
fn dev_continues_after_a_line_it_refuses() {
    let said = with_stdin(
        &["dev", "--agents", "examples/agents.yaml"],
        "@nowhere.yaml\n{\"gaol\": 1}\n@examples/race.yaml\n",
    );
    assert!(said.contains("could not open nowhere.yaml") && said.contains("gaol"), "{said}");
    assert!(stdout(&said).contains(" completed "), "{said}");
    assert!(said.ends_with("--- exit 1"), "{said}");
}

#[test]
fn all_mistakes_in_agent_profiles_are_listed() {
    let file = std::env::temp_dir().join(format!("trellis-agents-{}.yaml", std::process::id()));
    std::fs::write(&file, "agents:\n  - {agent_id: a, kind: llm}\n  - {agent_id: a, kind: builtin}\n")
        .unwrap();
    let said = trellis(&["run", "--goal", "x", "--agents", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    insta::assert_snapshot!(said.replace(file.to_str().unwrap(), "FILE"));
}

#[test]
fn commands_that_need_a_cluster_say_so() {
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let all: [&[&str]; 25] = [
        &["receipt", trace],
        &["audit", trace],
        &["events", trace],
        &["runs", "list"],
        &["runs", "pending"],
        &["runs", "describe", "@last"],
        &["runs", "describe", trace],
        &["runs", "watch", trace],
        &["runs", "cancel", trace],
        &["runs", "delete", trace],
        &["runs", "restore", trace, "--to", "1"],
        &["history", trace],
        &["outputs", trace],
        &["answer", trace, "yes"],
        &["tell", trace, "Leave out the prices."],
        &["budget", "show", trace],
        &["budget", "raise", trace, "--max-tokens", "5"],
        &["agents", "list"],
        &["agents", "show", "writer"],
        &["agents", "diff", "writer", "1", "2"],
        &["agents", "delete", "writer"],
        &["workers", "list"],
        &["submit", "--goal", "x"],
        &["coordinator"],
        &["worker"],
    ];
    for args in all {
        let said = trellis(args);
        assert!(said.contains("hint: set NATS_URL") && said.ends_with("--- exit 2"), "{args:?}: {said}");
    }
    insta::assert_snapshot!(trellis(&["doctor"]));
}

#[test]
fn an_unreachable_server_has_its_own_exit_code() {
    // No server listens on port 1.
    let dead = ["--nats-url", "nats://127.0.0.1:1"];
    let all: [&[&str]; 4] = [&["runs", "list"], &["worker"], &["run", "--goal", "x"], &["doctor"]];
    for args in all {
        let said = trellis(&[args, &dead].concat());
        assert!(said.contains("127.0.0.1:1") && said.contains("hint: "), "{args:?}: {said}");
        assert!(said.ends_with("--- exit 5"), "{args:?}: {said}");
    }
    let said = trellis(&["doctor", "--redis-url", "redis://127.0.0.1:1"]);
    assert!(said.contains("fail  redis: ") && said.ends_with("--- exit 5"), "{said}");
    let said = trellis(&["coordinator", dead[0], dead[1]]);
    assert!(said.contains("hint: set REDIS_URL") && said.ends_with("--- exit 2"), "{said}");
}

#[test]
fn every_command_has_help() {
    let all = "run dev submit answer tell history outputs receipt audit events coordinator worker doctor schema completions graph runs budget agents workers";
    for command in all.split(' ') {
        let said = trellis(&[command, "--help"]);
        assert!(said.contains("Usage: trellis ") && said.ends_with("--- exit 0"), "{said}");
    }
    insta::assert_snapshot!(trellis(&["--help"]));
}

#[test]
fn journals_files_and_checkpoints_have_help() {
    let agents = ["apply", "show", "diff", "delete"].map(|command| ["agents", command]);
    let agents = agents.iter().map(|command| &command[..]);
    let others = [&["history"][..], &["tell"], &["outputs"]];
    let runs = ["list", "pending", "cancel", "restore", "delete"].map(|command| ["runs", command]);
    let others = others.into_iter().chain(runs.iter().map(|command| &command[..]));
    for command in others.chain(agents) {
        let said = trellis(&[command, &["--help"]].concat());
        insta::assert_snapshot!(command.join("_"), said);
    }
    let said = trellis(&["submit", "--goal", "x", "--branch-from", "0af7651916cd43dd8448eb211c80319c/root"]);
    assert!(said.contains("TRACE/CHILD@STEP") && said.ends_with("--- exit 2"), "{said}");
}

#[test]
fn accounting_has_help() {
    for command in [&["receipt"][..], &["audit"], &["events"], &["graph", "plan"]] {
        insta::assert_snapshot!(command.join("_"), trellis(&[command, &["--help"]].concat()));
    }
    let said = trellis(&["graph", "validate", "examples/race.yaml", "-o", "csv"]);
    assert!(
        said.contains("only `trellis receipt` prints csv and md") && said.ends_with("--- exit 2"),
        "{said}"
    );
}

#[test]
fn a_plan_shows_the_worst_case_and_whether_it_fits() {
    insta::assert_snapshot!(trellis(&["graph", "plan", "examples/research.yaml"]));
    let graph = "name: fits\nmax_cost_usd: 1\ninputs: {topics: [a, b, c]}\nsteps:\n  \
        - {id: list, agent_id: writer, task_description: x, max_cost_usd: 0.1}\n  \
        - {id: map, agent_id: writer, task_description: x, for_each: topics, max_cost_usd: 0.2}\n  \
        - id: pair\n    loop: {max_rounds: 2}\n    steps:\n      \
        - {id: draft, agent_id: writer, task_description: x, max_cost_usd: 0.05, fallback: editor}\n";
    insta::assert_snapshot!("a_plan_that_fits", about("fits.yaml", graph, &["graph", "plan"]));
    let said = about("fits.yaml", graph, &["graph", "plan", "--budget", "0.89", "-o", "json"]);
    assert!(said.contains("\"fits\": false") && said.ends_with("--- exit 3"), "{said}");
    let said = about("fits.yaml", graph, &["graph", "plan", "--budget", "0.9", "-o", "json"]);
    assert!(said.contains("\"fits\": true") && said.ends_with("--- exit 0"), "{said}");
    let run = ["run", "--agents", "examples/agents.yaml", "--must-fit", "--max-cost-usd", "0.89"];
    let said = about("fits.yaml", graph, &run);
    assert!(said.contains("refused (does_not_fit): ") && said.contains("may cost $0.90"), "{said}");
    assert!(said.ends_with("--- exit 3"), "{said}");
}

/// Runs a command on a new file with this text; the path in the output is replaced.
fn about(name: &str, text: &str, args: &[&str]) -> String {
    let file = std::env::temp_dir().join(format!("trellis-{}-{name}", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let said = trellis(&[args, &[file.to_str().unwrap()]].concat());
    std::fs::remove_file(&file).unwrap();
    said.replace(file.to_str().unwrap(), "FILE")
}

/// Each profile has a mistake of its own; all are told at once, and what is wrong with one hides nothing of the others.
#[test]
fn twenty_bad_profiles_are_explained_at_once() {
    let profiles = r#"
- {agent_id: no-model, kind: llm}
- {agent_id: no-command, kind: command}
- {agent_id: no-builtin, kind: builtin}
- {agent_id: "dots.and spaces", kind: llm, model: m}
- {kind: llm, model: m}
- {agent_id: kindless, model: m}
- {agent_id: unkind, kind: lmm, model: m}
- {agent_id: free, kind: llm, model: m, max_cost_usd: 0}
- {agent_id: negative, kind: llm, model: m, max_cost_usd: -1}
- {agent_id: fractions, kind: llm, model: m, max_tokens: 1.5}
- {agent_id: all-reserve, kind: llm, model: m, max_cost_usd: 1, closing_reserve_usd: 2}
- {agent_id: years, kind: llm, model: m, timeout_ms: 99999999999999}
- {agent_id: misspelt-field, kind: llm, model: m, sytem_prompt: hello}
- {agent_id: misspelt-limit, kind: llm, model: m, limits: {max_stpes: 3}}
- {agent_id: misspelt-tools, kind: llm, model: m, tools: [fs.raed, ask_humen]}
- {agent_id: unknown-tool, kind: llm, model: m, tools: [search]}
- {agent_id: wrong-word, kind: llm, model: m, on_exhausted: explode}
- {agent_id: wrong-type, kind: llm, model: m, reads_all_context: maybe}
- {agent_id: wrong-layer, kind: command, command: [x], requires: [moat]}
- {agent_id: no-model, kind: builtin, builtin: echo}
"#;
    insta::assert_snapshot!(about("twenty.yaml", profiles, &["agents", "apply"]));
}

#[test]
fn agents_and_graphs_may_be_toml() {
    let agents = "[[agents]]\nagent_id = \"a\"\nkind = \"builtin\"\nbuiltin = \"echo\"\n";
    let said = about("good.toml", agents, &["run", "--goal", "x", "-o", "json", "--agents"]);
    assert_eq!(json(&said)["status"], "completed", "{said}");
    let graph = "[[steps]]\nid = \"s\"\nagent_id = \"a\"\ntask_description = \"t\"\n";
    let said = about("graph.toml", graph, &["graph", "validate"]);
    assert!(said.ends_with("--- exit 0"), "{said}");
    let agents =
        "[[agents]]\nagent_id = \"a\"\nkind = \"llm\"\n\n[[agents]]\nagent_id = \"a\"\nkind = \"builtin\"\n";
    insta::assert_snapshot!(
        "toml_all_errors",
        about("bad.toml", agents, &["run", "--goal", "x", "--agents"])
    );
    let said = about("broken.toml", "[[agents]]\nagent_id = \n", &["run", "--goal", "x", "--agents"]);
    assert!(said.contains("not valid TOML: line 2") && said.ends_with("--- exit 3"), "{said}");
}

#[test]
fn all_mistakes_in_worker_settings_are_listed() {
    let settings = "[mcp.one]\n\n[mcp.two]\ncommand = [\"x\"]\nurl = \"http://localhost\"\n";
    let said = about("worker.toml", settings, &["run", "--goal", "x", "--config"]);
    insta::assert_snapshot!("worker_settings", said);
    let said = about("unknown.yaml", "provders: {}\n", &["worker", "--config"]);
    assert!(said.contains("provders") && said.ends_with("--- exit 3"), "{said}");
    let said = about("good.json", "{\"http\": {\"allow\": []}}", &["run", "--goal", "x", "--config"]);
    assert!(said.ends_with("--- exit 0"), "{said}");
}

#[test]
fn a_command_that_is_not_there_is_wrong_usage() {
    for args in [&["rnu"][..], &["runs", "lits"], &["run"], &["run", "a.yaml", "--goal", "x"]] {
        let said = trellis(args);
        assert!(said.contains("error: ") && said.ends_with("--- exit 2"), "{said}");
    }
}

#[test]
fn completions_are_printed_for_shells() {
    let said = trellis(&["completions", "bash"]);
    assert!(
        said.contains("_trellis()") && said.contains("max-cost-usd") && said.ends_with("--- exit 0"),
        "{said}"
    );
}

/// The examples of single agents: a limit and a last report, a human's answer, checks, programs in their sandbox.
#[test]
fn the_examples_of_agents_run_without_servers() {
    let said = trellis(&["run", "examples/agents/ceiling.yaml", "-o", "json"]);
    assert!(said.contains("My budget ended before I was done") && said.contains("\"aborted\""), "{said}");
    let said = trellis(&["run", "examples/agents/ask.yaml", "--answer", "blue"]);
    assert!(said.contains("The fence is painted: blue."), "{said}");
    let said = trellis(&["run", "examples/agents/ladder.yaml"]);
    assert!(said.contains("Ants remember by the trails") && said.ends_with("--- exit 0"), "{said}");
    let said = trellis(&["run", "examples/agents/checks.yaml"]);
    assert!(said.contains("Filed: The key is [redacted:no-keys].") && said.contains("2 denied"), "{said}");
    let said = trellis(&["run", "examples/command/review.yaml"]);
    assert!(said.contains("`eval` runs whatever it is given") && said.contains("126 words"), "{said}");
}
