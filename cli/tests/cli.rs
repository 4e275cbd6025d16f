//! The command line as users see it: whole outputs, exit codes, errors with hints.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `trellis` in the root of the repository. The variables that name servers are removed, and HOME
/// does not exist, so no run is stored.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.args(args).current_dir(root()).stdin(Stdio::null());
    for name in [
        "NATS_URL",
        "NATS_CREDS",
        "REDIS_URL",
        "TRELLIS_DATA",
        "TRELLIS_URL",
        "XDG_DATA_HOME",
        "TRELLIS_NAMESPACE",
        "TRELLIS_WORKER_CONFIG",
        "RUST_LOG",
    ] {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent").env("TRELLIS_NO_KEEP", "1").env("TRELLIS_LISTEN", "127.0.0.1:0");
    command
}

/// Runs a command and returns its stdout, stderr and exit code.
fn trellis(args: &[&str]) -> String {
    said(&command(args).output().expect("the binary runs"))
}

fn said(output: &Output) -> String {
    let said = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes).lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    };
    let code = output.status.code().expect("the process was not killed");
    format!("{}\n--- stderr\n{}\n--- exit {code}", said(&output.stdout), said(&output.stderr))
}

/// The stdout part of an output. The order of progress lines on stderr varies.
fn stdout(said: &str) -> &str {
    said.split("\n--- stderr").next().unwrap()
}

fn json(said: &str) -> Value {
    serde_json::from_str(stdout(said)).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Runs a command with these lines on stdin.
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
    // These files contain agents, a schedule and a worker's policy, not graphs.
    let others = ["examples/agents.yaml", "examples/nightly.yaml", "examples/policy.yaml"];
    names.filter(move |name| !others.contains(&name.as_str()))
}

#[test]
fn every_example_is_valid() {
    for example in examples() {
        let said = trellis(&["graphs", "check", &example]);
        assert!(said.ends_with("--- exit 0"), "{said}");
        let said = trellis(&["graphs", "rehearse", &example]);
        assert!(said.ends_with("--- exit 0"), "{said}");
    }
}

#[test]
fn a_rehearsal_shows_the_tree_with_money() {
    insta::assert_snapshot!(trellis(&["graphs", "rehearse", "examples/research.yaml"]));
}

#[test]
fn a_rehearsal_with_a_failure_shows_what_follows() {
    insta::assert_snapshot!(trellis(&[
        "graph",
        "rehearse",
        "examples/map-reduce.json",
        "--fail",
        "map-2",
        "--cost-usd",
        "0.02"
    ]));
}

#[test]
fn g7_a_rehearsal_answers_for_a_human() {
    let rehearse =
        |more: &[&str]| trellis(&[&["graphs", "rehearse", "examples/approval.yaml"], more].concat());
    let said = rehearse(&[]);
    assert!(said.contains("release") && said.ends_with("--- exit 0"), "{said}");
    insta::assert_snapshot!(rehearse(&["--answer", "release=deny: too long"]));
    let nobody = rehearse(&["--answer", "release=perhaps"]);
    assert!(nobody.contains("denied: no answer within 86400000 ms"), "{nobody}");
    let says = "--answer does not answer the question of `release`: answer: it neither approves nor denies";
    assert!(nobody.contains(says) && nobody.ends_with("--- exit 2"), "{nobody}");
    let unasked = rehearse(&["--answer", "draft=yes"]);
    assert!(
        unasked.contains("no context called `draft` asked a question, so --answer had no effect"),
        "{unasked}"
    );
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
        "--cost-usd",
        "0.06",
    ]));
}

#[test]
fn the_text_of_an_agent_can_not_control_the_terminal() {
    let said = trellis(&["run", "--goal", "é a\x1b[2Jb\r\u{9b}31mc\u{202e}d\te\nf\x07"]);
    let shown = "é a\u{fffd}[2Jb\u{fffd}\u{fffd}31mc\u{fffd}d e f\u{fffd}";
    assert!(stdout(&said).contains(shown), "{said}");
}

#[test]
fn a_rehearsal_as_json() {
    let said = trellis(&["graphs", "rehearse", "examples/race.yaml", "-o", "json", "--events"]);
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
    let said = trellis(&["graphs", "check", file.to_str().unwrap()]);
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
    insta::assert_snapshot!(trellis(&["graphs", "check", "nowhere.yaml"]));
}

#[test]
fn a_fallback_runs_when_its_step_fails() {
    let said = trellis(&[
        "graphs",
        "rehearse",
        "examples/map-reduce.json",
        "--fail",
        "reduce",
        "--cost-usd",
        "0.001",
    ]);
    assert!(said.contains("reduce-fallback") && said.ends_with("--- exit 0"), "{said}");
    let said = trellis(&[
        "graph",
        "rehearse",
        "examples/map-reduce.json",
        "--fail",
        "reduce",
        "--fail",
        "reduce-fallback",
        "--cost-usd",
        "0.001",
    ]);
    let fallback = said.lines().find(|line| line.contains("reduce-fallback")).unwrap_or_default();
    assert!(fallback.contains("failed") && fallback.contains("set to fail by --fail"), "{said}");
}

#[test]
fn a_name_that_matches_no_context_is_an_error() {
    for (name, says) in [("answer", "is a group"), ("fast-9", "no context called `fast-9` was run")] {
        let said = trellis(&["graphs", "rehearse", "examples/race.yaml", "--fail", name]);
        assert!(said.contains(says) && said.ends_with("--- exit 2"), "{said}");
    }
}

#[test]
fn every_file_is_checked_and_reported_as_json() {
    let said = trellis(&["graphs", "check", "nowhere.yaml", "examples/race.yaml", "-o", "json"]);
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
    insta::assert_snapshot!(trellis(&["graphs", "rehearse", "--help"]));
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

/// Writes a file with an agent that asks a question.
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
    assert!(said.contains("its question needs an answer") && said.ends_with("--- exit 4"), "{said}");
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
    assert!(said.contains("runs are lost when it ends") && said.ends_with("--- exit 0"), "{said}");
    let said = with_stdin(&["dev"], "examples/race.yaml\n");
    assert!(said.contains("is a goal; @examples/race.yaml submits"), "{said}");
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
    let all: [&[&str]; 36] = [
        &["result", trace],
        &["dead-letters", "list"],
        &["charge", trace, "--cost-usd", "1"],
        &["receipt", trace],
        &["audit", trace],
        &["events", trace],
        &["runs", "list"],
        &["runs", "pending"],
        &["runs", "show", "@last"],
        &["runs", "show", trace],
        &["runs", "watch", trace],
        &["runs", "cancel", trace],
        &["runs", "delete", trace],
        &["runs", "restore", trace, "--to", "1"],
        &["history", trace],
        &["outputs", trace],
        &["answer", trace, "yes"],
        &["tell", trace, "Leave out the prices."],
        &["budgets", "show", trace],
        &["budgets", "raise", trace, "--max-tokens", "5"],
        &["agents", "list"],
        &["agents", "show", "writer"],
        &["agents", "diff", "writer", "1", "2"],
        &["agents", "delete", "writer"],
        &["graphs", "apply", "examples/facts.yaml"],
        &["graphs", "list"],
        &["graphs", "show", "facts@2"],
        &["graphs", "delete", "facts"],
        &["schedules", "apply", "examples/nightly.yaml"],
        &["schedules", "list"],
        &["schedules", "show", "nightly"],
        &["schedules", "run", "nightly"],
        &["workers", "list"],
        &["submit", "--goal", "x"],
        &["coordinator"],
        &["worker"],
    ];
    for args in all {
        let said = trellis(args);
        assert!(said.contains("hint: ") && said.contains("NATS_URL"), "{args:?}: {said}");
        assert!(said.ends_with("--- exit 2"), "{args:?}: {said}");
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
    let all = "run dev submit answer tell history result outputs receipt audit events coordinator worker doctor schema completions graph runs budget agents graphs schedule workers dead charge";
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

/// proves: the next ticks need no server, and mistakes in a schedule are reported before a server
/// is asked.
#[test]
fn g16_schedules_have_help_and_their_next_ticks() {
    let mut said = String::new();
    for command in ["", "put", "run", "next"] {
        let args: Vec<&str> =
            ["schedule", command, "--help"].into_iter().filter(|arg| !arg.is_empty()).collect();
        said.push_str(&format!("{}\n\n", trellis(&args)));
    }
    for args in [
        &["schedules", "next", "examples/nightly.yaml", "--since", "2026-03-27", "--count", "3"][..],
        &[
            "schedule",
            "next",
            "30 2 * * *",
            "--time-zone",
            "Europe/Berlin",
            "--since",
            "2026-03-28",
            "--count",
            "3",
        ],
        &[
            "schedule",
            "next",
            "*/30 * * * *",
            "--time-zone",
            "Europe/Berlin",
            "--since",
            "2026-10-25T00:10Z",
            "-o",
            "json",
        ],
        &["schedules", "next", "61 25 * * *", "--time-zone", "Europe/Berln"],
        &["schedules", "apply", "examples/race.yaml"],
        &[
            "schedule",
            "put",
            "examples/nightly.yaml",
            "--cron",
            "@dayly",
            "--time-zone",
            "berlin",
            "-o",
            "json",
        ],
    ] {
        said.push_str(&format!("$ trellis {}\n{}\n\n", args.join(" "), trellis(args)));
    }
    insta::assert_snapshot!(said);
}

#[test]
fn accounting_has_help() {
    for command in [&["receipt"][..], &["audit"], &["events"], &["graphs", "plan"]] {
        insta::assert_snapshot!(command.join("_"), trellis(&[command, &["--help"]].concat()));
    }
    let said = trellis(&["graphs", "check", "examples/race.yaml", "-o", "csv"]);
    assert!(
        said.contains("only `trellis receipt` prints csv and md") && said.ends_with("--- exit 2"),
        "{said}"
    );
}

#[test]
fn a_plan_shows_the_worst_case_and_whether_it_fits() {
    insta::assert_snapshot!(trellis(&["graphs", "plan", "examples/research.yaml"]));
    let approval = trellis(&["graphs", "plan", "examples/approval.yaml"]);
    assert!(approval.contains("release  (approve)"), "{approval}");
    let graph = "name: fits\nmax_cost_usd: 1\ninputs: {topics: [a, b, c]}\nsteps:\n  \
        - {id: list, agent_id: writer, task_description: x, max_cost_usd: 0.1}\n  \
        - {id: map, agent_id: writer, task_description: x, for_each: topics, max_cost_usd: 0.2}\n  \
        - id: pair\n    loop: {max_rounds: 2}\n    steps:\n      \
        - {id: draft, agent_id: writer, task_description: x, max_cost_usd: 0.05, fallback: editor}\n";
    insta::assert_snapshot!("a_plan_that_fits", about("fits.yaml", graph, &["graphs", "plan"]));
    let said = about("fits.yaml", graph, &["graphs", "plan", "--max-cost-usd", "0.89", "-o", "json"]);
    assert!(said.contains("\"fits\": false") && said.ends_with("--- exit 3"), "{said}");
    let said = about("fits.yaml", graph, &["graphs", "plan", "--max-cost-usd", "0.9", "-o", "json"]);
    assert!(said.contains("\"fits\": true") && said.ends_with("--- exit 0"), "{said}");
    let run = ["run", "--agents", "examples/agents.yaml", "--must-fit", "--max-cost-usd", "0.89"];
    let said = about("fits.yaml", graph, &run);
    assert!(said.contains("refused (does_not_fit): ") && said.contains("may cost $0.90"), "{said}");
    assert!(said.ends_with("--- exit 3"), "{said}");
}

/// Runs a command on a new file with this text, and replaces the path in the output.
fn about(name: &str, text: &str, args: &[&str]) -> String {
    let file = std::env::temp_dir().join(format!("trellis-{}-{name}", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let said = trellis(&[args, &[file.to_str().unwrap()]].concat());
    std::fs::remove_file(&file).unwrap();
    said.replace(file.to_str().unwrap(), "FILE")
}

/// Each profile has a different mistake. All are reported at once, and no mistake hides another.
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
    let said = about("graph.toml", graph, &["graphs", "check"]);
    assert!(said.ends_with("--- exit 0"), "{said}");
    let agents =
        "[[agents]]\nagent_id = \"a\"\nkind = \"llm\"\n\n[[agents]]\nagent_id = \"a\"\nkind = \"builtin\"\n";
    insta::assert_snapshot!(
        "toml_all_errors",
        about("bad.toml", agents, &["run", "--goal", "x", "--agents"])
    );
    let said = about("broken.toml", "[[agents]]\nagent_id = \n", &["run", "--goal", "x", "--agents"]);
    assert!(said.contains("line 2: not valid TOML: ") && said.ends_with("--- exit 3"), "{said}");
}

#[test]
fn g2_every_mistake_in_a_file_has_its_line() {
    let yaml = "steps:\n  - agent_id: a\n    task_description: t\n    when: output.x > 1\n  - {agent_id: a, task_descripton: t}\n";
    let toml = "mode = \"paralel\"\n\n[[steps]]\nagent_id = \"a\"\ntask_description = \"t\"\ndepends_on = [\n  \"nobody\",\n]\n\n[[steps]]\nid = \"x\"\nloop.max_rounds = 0\n";
    let json = "{\n  \"steps\": [\n    {\"agent_id\": \"a\", \"task_description\": \"t\",\n     \"input_from\": [\"x\"]}\n  ],\n  \"max_cost_usd\": 0\n}\n";
    let validate = ["graphs", "check"];
    let told = [
        about("lines.yaml", yaml, &validate),
        about("lines.toml", toml, &validate),
        about("lines.json", json, &validate),
        about("lines.json", json, &["graphs", "check", "-o", "json"]),
        about("syntax.json", "{\n  \"steps\": [,]\n}\n", &validate),
        about("task.yaml", "goal: x\nmax_cost: 1\n", &["run"]),
        about(
            "agents.yaml",
            "agents:\n  - agent_id: a\n    kind: llm\n",
            &["run", "--goal", "x", "--agents"],
        ),
        // The core, not the parser, knows the existing agents.
        about(
            "nobody.yaml",
            "steps:\n  - id: one\n    task_description: t\n    agent_id: nobody\n",
            &["run"],
        ),
    ];
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn g2_inputs_are_given_in_a_file_or_one_by_one_and_fit_the_input_schema() {
    let graph = "input_schema:\n  required: [topic, size]\n  additionalProperties: false\n  properties:\n    topic: {type: string}\n    size: {type: integer}\n    tone: {default: dry}\nsteps:\n  - {id: s, agent_id: default, task_description: t, input_from: [topic, tone], output_to: text}\noutput: {text: text, about: topic}\n";
    let inputs = std::env::temp_dir().join(format!("trellis-{}-inputs.toml", std::process::id()));
    std::fs::write(&inputs, "size = 3\n\ntopic = 7\ntopics = \"x\"\n").unwrap();
    let file = inputs.to_str().unwrap();
    let told = [
        about("typed.yaml", graph, &["graphs", "check"]),
        about("typed.yaml", graph, &["graphs", "check", "--inputs", file]),
        about("typed.yaml", graph, &["run", "--input", "topic=\"ants\""]),
        about("typed.yaml", graph, &["graphs", "rehearse"]),
        about("typed.yaml", graph, &["graphs", "check", "--inputs", "nowhere.yaml"]),
    ];
    std::fs::write(&inputs, "size = 3\ntopic = \"bees\"\n").unwrap();
    let run =
        about("typed.yaml", graph, &["run", "-o", "json", "--inputs", file, "--input", "topic=\"ants\""]);
    std::fs::remove_file(&inputs).unwrap();
    insta::assert_snapshot!(told.join("\n\n").replace(file, "INPUTS"));
    assert_eq!(json(&run)["result"]["about"], "ants", "{run}");
}

/// Runs commands in a new folder with these files.
fn in_folder(name: &str, files: &[(&str, &str)], commands: &[&[&str]]) -> String {
    let folder = std::env::temp_dir().join(format!("trellis-{}-{name}", std::process::id()));
    for (file, text) in files {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let said: Vec<String> =
        commands.iter().map(|args| said(&command(args).current_dir(&folder).output().unwrap())).collect();
    let canonical = folder.canonicalize().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    said.join("\n\n").replace(canonical.to_str().unwrap(), "FOLDER")
}

#[test]
fn g2_a_graph_is_used_by_the_name_of_its_file_and_every_mistake_names_its_file_and_line() {
    let step = "agent_id: default, task_description: t";
    let inner = format!(
        "input_schema:\n  required: [topic]\n  properties:\n    topic: {{type: string}}\nsteps:\n  - {{{step}, id: a, input_from: [topic]}}\n  - id: b\n    when: output.x\n    agent_id: default\n"
    );
    let outer = "steps:\n  - id: one\n    use: parts/inner.yaml\n    with:\n      topic: {value: 7}\n  - id: two\n    use: nowhere.yaml\n  - id: three\n    use: parts/circle.yaml\n";
    let plain = "steps:\n  - id: one\n    use: parts/inner.yaml\n    with:\n      topik: nothing\n";
    let circle = "steps:\n  - {use: again.yaml}\n";
    let again = "steps:\n  - steps:\n      - {use: circle.yaml}\n";
    let files: &[(&str, &str)] = &[
        ("outer.yaml", outer),
        ("plain.yaml", plain),
        ("parts/inner.yaml", &inner),
        ("parts/circle.yaml", circle),
        ("parts/again.yaml", again),
        ("broken.yaml", "steps:\n  - {use: parts/bad.json}\n"),
        ("parts/bad.json", "{\n  \"steps\": [,]\n}\n"),
    ];
    let told = in_folder(
        "uses",
        files,
        &[
            &["graphs", "check", "outer.yaml"],
            &["graphs", "check", "plain.yaml"],
            &["graphs", "check", "broken.yaml", "-o", "json"],
        ],
    );
    insta::assert_snapshot!(told);
}

/// proves: a missing file, mistakes of shape and meaning, unknown agents, and inputs of the command
/// line are reported together. Each is reported once, in the order of the lines.
#[test]
fn g2_mistakes_of_every_kind_are_reported_at_once_and_in_order() {
    let graph = "\
name: shop
input_schema: {properties: {topic: {type: string}, size: {type: integer}}}
steps:
  - id: go
    approve: {question: 'Go?'}
    output_to: went
  - id: write
    agent_id: writr
    task_description: x
    when: \"5\"
    fallback: nobody
    loop: {max_rounds: 2, until: \"'done'\"}
  - id: use
    use: nowhere.yaml
    with: {about: topic, more: nokey}
  - id: ask
    approve: {who: 7}
  - id: last
    tols: [x]
    agent_id: writer
    task_description: x
    input_from: [nothing]
    undo: {agent_id: writer2, max_cost_usd: 0.1}
";
    let agents = "agents:\n  - {agent_id: writer, kind: builtin, builtin: echo}\n";
    let broken =
        "steps:\n  - {id: a, agent_id: default, task_description: t, when: x}\n  - {use: bad.json}\n";
    let files = &[
        ("graph.yaml", graph),
        ("profiles.yaml", agents),
        ("broken.yaml", broken),
        ("bad.json", "{\n  \"steps\": [,]\n}\n"),
    ];
    let validate = ["graphs", "check", "graph.yaml", "--input", "size=\"big\"", "--input", "topic=\"x\""];
    let told = in_folder(
        "at-once",
        files,
        &[
            &[&validate[..], &["--agents", "profiles.yaml"]].concat(),
            &validate,
            &["graphs", "rehearse", "broken.yaml", "-o", "json"],
            &["run", "graph.yaml", "--input", "topic=1", "--max-tokens", "0", "--label", "a=b"],
            &["graphs", "plan", "broken.yaml", "--agents", "nowhere.yaml"],
        ],
    );
    insta::assert_snapshot!(told);
    let schedule =
        "name: s\ncron: '@daily'\noverlap: quue\ntask:\n  steps:\n    - {id: in, use: nowhere.yaml}\n";
    let used = "name: s\ncron: '@daily'\ntask:\n  steps:\n    - {id: in, use: one.yaml}\n";
    let files = &[
        ("wrong.yaml", schedule),
        ("right.yaml", used),
        ("one.yaml", "steps: [{agent_id: a, task_description: t}]\n"),
    ];
    let next = ["schedules", "next", "--since", "2026-01-01", "--count", "1"];
    let told = in_folder(
        "of-schedules",
        files,
        &[&[&next[..], &["wrong.yaml"]].concat(), &[&next[..], &["right.yaml"]].concat()],
    );
    let wrong =
        ["line 3: overlap: \"quue\" is not one of", "line 6: task.steps[0].use: could not open nowhere.yaml"];
    for says in wrong.into_iter().chain(["2026-01-02T00:00:00Z"]) {
        assert!(told.contains(says), "no {says:?} in {told}");
    }
}

/// proves: an example whose payment fails is planned and rehearsed with its undo steps. While it
/// runs, no context is shown as ended before its descendants.
#[test]
fn g14_undos_are_planned_rehearsed_and_shown_in_order() {
    let example = "examples/scenarios/13-undo.yaml";
    insta::assert_snapshot!("undo_plan", trellis(&["graphs", "plan", example]));
    insta::assert_snapshot!("undo_rehearsed", trellis(&["graphs", "rehearse", example, "--fail", "pay"]));
    let rehearsed = trellis(&["graphs", "rehearse", example]);
    assert!(!rehearsed.contains("-undo") && rehearsed.ends_with("--- exit 0"), "{rehearsed}");
    let failing = ["graphs", "rehearse", example, "--fail", "pay", "--fail", "flight-undo"];
    let failed = trellis(&failing);
    assert!(failed.contains("flight-undo") && failed.ends_with("--- exit 1"), "{failed}");
    let said = trellis(&["run", example, "--agents", "examples/scenarios/agents.yaml"]);
    let at = |line: &str| said.find(line).unwrap_or_else(|| panic!("no {line:?} in\n{said}"));
    assert!(at("\npay: failed") < at("\nundo: undoing"), "{said}");
    assert!(at("\nundo: undoing") < at("\nsecond-night-undo: submitted"), "{said}");
    assert!(at("\nflight-undo: completed") < at("\nundo: failed"), "{said}");
}

#[test]
fn g1_a_graph_that_uses_graphs_is_planned_rehearsed_and_run() {
    insta::assert_snapshot!("brief_plan", trellis(&["graphs", "plan", "examples/brief.yaml"]));
    insta::assert_snapshot!(
        "brief_rehearsed",
        trellis(&["graphs", "rehearse", "examples/brief.yaml", "--fail", "second-check"])
    );
    let said = trellis(&["run", "examples/brief.yaml", "-o", "json"]);
    let outcome = json(&said);
    assert_eq!(outcome["status"], "completed", "{said}");
    assert_eq!(outcome["graph"]["steps"][1]["steps"][0]["id"], "find");
    let deep = "examples/scenarios/18-graph-as-a-step.yaml";
    let said = trellis(&["run", deep, "--agents", "examples/scenarios/agents.yaml", "-o", "json"]);
    assert!(json(&said)["result"].as_str().unwrap().starts_with("A page on:"), "{said}");
}

/// proves: a name needs a cluster. Without one, every command that finds a name reports it with its
/// line, and checks the rest.
#[test]
fn g18_graphs_are_kept_and_named_with_help_and_clear_mistakes() {
    let mut told = String::new();
    for command in ["", "apply", "list", "show", "delete"] {
        let args: Vec<&str> =
            ["graphs", command, "--help"].into_iter().filter(|arg| !arg.is_empty()).collect();
        told.push_str(&format!("{}\n\n", trellis(&args)));
    }
    let named = "steps:\n  - id: one\n    use: facts\n  - id: two\n    use: facts@two\n    retries: 1\n";
    let kept = "name: Not a name\nlabels: {a: b}\nsteps:\n  - id: one\n    use: facts\n  - id: one\n    use: nowhere.yaml\n";
    let fine = "labels: {a: b}\nsteps:\n  - {id: one, use: facts}\n  - {id: one, agent_id: default}\n";
    let files: &[(&str, &str)] = &[("named.yaml", named), ("a b.yaml", kept), ("a c.yaml", fine)];
    told.push_str(&in_folder(
        "names",
        files,
        &[
            &["graphs", "check", "named.yaml"],
            &["graphs", "plan", "named.yaml"],
            &["graphs", "rehearse", "named.yaml", "-o", "json"],
            &["run", "named.yaml"],
            &["submit", "named.yaml"],
            &["graphs", "apply", "a b.yaml"],
            &["graphs", "apply", "a c.yaml"],
            &["graphs", "show", "facts.yaml"],
        ],
    ));
    insta::assert_snapshot!(told);
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
fn s3_all_mistakes_in_the_keys_of_a_deployment_are_listed_and_no_key_is_shown() {
    let key = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";
    let text = format!("# the first signs\n{key}\n{}\n{}\n{key}\n", &key[..20], key.replace("c2", "zz"));
    let said = about("log.key", &text, &["coordinator", "--log-key-file"]);
    assert!(!said.contains("5ec2"), "{said}");
    let without = trellis(&["coordinator", "--accept-unsigned"]);
    let missing = trellis(&["audit", "0af7651916cd43dd8448eb211c80319c", "--log-key-file", "no/such/file"]);
    insta::assert_snapshot!("log_keys", format!("{said}\n{without}\n{missing}"));
}

#[test]
fn a_command_that_is_not_there_is_wrong_usage() {
    for args in [&["rnu"][..], &["runs", "lits"], &["run"], &["run", "a.yaml", "--goal", "x"]] {
        let said = trellis(args);
        assert!(said.contains("error: ") && said.ends_with("--- exit 2"), "{said}");
    }
}

#[test]
fn mistakes_are_reported_with_a_hint() {
    let said = trellis(&["runs", "list", "--namespace", "a b"]);
    assert!(said.contains("\"a b\" is not a valid namespace") && said.ends_with("--- exit 2"), "{said}");
    let said = trellis(&["run", "--agent", "x"]);
    let expected = "error: --agent x needs --goal";
    assert!(said.contains(expected) && said.contains("hint: ") && said.ends_with("--- exit 2"), "{said}");
    assert!(!said.contains("FILE"), "{said}");
    let said = trellis(&["run", "examples/race.yaml", "--agent", "x"]);
    assert!(said.contains(expected) && said.ends_with("--- exit 2"), "{said}");
}

#[test]
fn completions_are_printed_for_shells() {
    let said = trellis(&["completions", "bash"]);
    assert!(
        said.contains("_clap_complete_trellis()")
            && said.contains("TRELLIS_COMPLETE=\"bash\"")
            && said.ends_with("--- exit 0"),
        "{said}"
    );
}

/// proves: commands without TLS work on a machine without CA certificates, such as an empty
/// container. Commands that need TLS report what is missing.
#[test]
fn a_machine_without_ca_certificates_runs_agents_that_need_none_with_a_warning() {
    let without = |args: &[&str]| {
        let none = [("SSL_CERT_FILE", "/nonexistent"), ("SSL_CERT_DIR", "/nonexistent")];
        said(&command(args).envs(none).env("OPENAI_API_KEY", "sk-none").output().unwrap())
    };
    let ran = without(&["run", "examples/race.yaml"]);
    assert!(ran.ends_with("--- exit 0"), "{ran}");
    assert!(ran.contains("this machine has no CA certificates") && ran.contains("SSL_CERT_FILE"), "{ran}");
    let asked = without(&["runs", "list", "--url", "https://127.0.0.1:1"]);
    assert!(asked.contains("No CA certificates were loaded") && asked.ends_with("--- exit 5"), "{asked}");
    let asked = without(&["runs", "list", "--url", "http://127.0.0.1:1"]);
    assert!(!asked.contains("CA certificates") && asked.ends_with("--- exit 5"), "{asked}");
}

/// Every listed command has a page, including subcommands. Hidden commands have none.
#[test]
fn every_command_has_a_manual_page() {
    let dir = std::env::temp_dir().join(format!("trellis-man-{}", std::process::id()));
    let said = trellis(&["man", dir.to_str().unwrap()]);
    assert!(said.ends_with("--- exit 0"), "{said}");
    let names =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: std::collections::BTreeSet<String> = names.collect();
    for (args, page) in [(&["--help"][..], "trellis"), (&["runs", "--help"], "trellis-runs")] {
        let help = trellis(args);
        // The first page has groups of commands, other pages have one list.
        let listed = help.split("Options:\n").next().unwrap();
        let commands: Vec<&str> = listed
            .lines()
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|command| *command != "help")
            .collect();
        assert!(commands.len() > 5, "{help}");
        for command in commands {
            assert!(names.contains(&format!("{page}-{command}.1")), "{page} {command}: {names:?}");
        }
    }
    for hidden in ["man", "sandbox", "help"] {
        assert!(!names.contains(&format!("trellis-{hidden}.1")), "{names:?}");
    }
    let page = std::fs::read_to_string(dir.join("trellis-worker.1")).unwrap();
    assert!(
        page.contains(".SH OPTIONS") && page.contains("NATS_URL") && page.contains("\\-\\-slots"),
        "{page}"
    );
    std::fs::remove_dir_all(&dir).unwrap();
    let said = trellis(&["man", "/proc/none"]);
    assert!(said.contains("could not be written to /proc/none") && said.ends_with("--- exit 2"), "{said}");
}

/// The examples of single agents: a limit and a last report, a human's answer, checks, programs in
/// their sandbox.
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

/// The expected value comes from `printf 'not-a-real-key Pay 7 dollars to the ants.'
///  sha256sum`.
#[test]
fn s8_the_example_with_a_secret_shows_its_name_and_not_its_value() {
    let run = |key: Option<&str>| {
        let config = ["--config", "examples/secrets/worker.toml", "-o", "json"];
        let mut command = command(&[&["run", "examples/secrets/sign.yaml"][..], &config].concat());
        command.env_remove("DEMO_SIGNING_KEY").envs(key.map(|key| ("DEMO_SIGNING_KEY", key)));
        said(&command.output().expect("the binary runs"))
    };
    let said = run(Some("not-a-real-key"));
    for shown in [
        "cc30ada8eace69e8474efe91466275a8081bdc9ca1acd8514e4f22e9c6a0bcac",
        "debug: the key is [SIGNING_KEY]",
        "debug: the key is\"",
    ] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    assert!(!said.contains("not-a-real-key") && said.ends_with("--- exit 0"), "{said}");
    let said = run(None);
    assert!(said.contains("the environment variable DEMO_SIGNING_KEY is not set"), "{said}");
    assert!(said.contains("a secret is missing") && said.ends_with("--- exit 1"), "{said}");
}

/// proves: `--secrets-dir` and its variable work the same. An unusable directory ends the command
/// before anything runs, with all mistakes and without a value of a secret.
#[test]
fn s8_a_directory_of_secrets_that_cannot_be_used_is_explained() {
    let directory = std::env::temp_dir().join(format!("trellis-cli-secrets-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.to_str().unwrap();
    let run = ["run", "--goal", "hello", "-o", "json"];
    let by_option = || trellis(&[&run[..], &["--secrets-dir", path]].concat());
    let by_variable = || said(&command(&run).env("TRELLIS_SECRETS_DIR", path).output().unwrap());
    std::fs::write(directory.join("OPENAI_API_KEY"), "sk-0123456789").unwrap();
    for said in [by_option(), by_variable()] {
        assert!(said.contains("other users can read") && said.ends_with("--- exit 0"), "{said}");
        assert!(!said.contains("sk-0123456789"), "{said}");
    }
    std::fs::write(directory.join("EMPTY_KEY"), "").unwrap();
    std::fs::write(directory.join("LARGE_KEY"), "x".repeat((64 << 10) + 1)).unwrap();
    for said in [by_option(), by_variable()] {
        for says in [
            "EMPTY_KEY: the file is empty",
            "LARGE_KEY can't be read: it has more than 65536 bytes",
            "\"hint\":",
        ] {
            assert!(said.contains(says), "{says}\nis not in\n{said}");
        }
        assert!(said.ends_with("--- exit 2") && !said.contains("sk-0123456789"), "{said}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
    for (mode, rest) in
        [("dev", &[][..]), ("run", &["--goal", "x"]), ("worker", &["--nats-url", "nats://127.0.0.1:1"])]
    {
        let said = trellis(&[&[mode, "--secrets-dir", path], rest].concat());
        assert!(
            said.contains("can't be read: No such file") && said.ends_with("--- exit 2"),
            "{mode}: {said}"
        );
    }
}

/// proves: a process that starts again without its keys loses neither its input nor its arguments.
#[test]
fn s8_keys_in_the_environment_are_hidden_and_input_is_kept() {
    let mut command = command(&["dev", "-o", "json"]);
    command.env("OPENAI_API_KEY", "sk-0123456789").env("NATS_PASSWORD", "p4ss-0123456789");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"hello\n").unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("accepted"), "{first}");
    // For an ordinary user, the file can't be read at all.
    let environ = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap_or_default();
    let environ = String::from_utf8_lossy(&environ);
    assert!(!environ.contains("0123456789"), "{environ}");
    drop(input);
    assert!(lines.any(|line| line.unwrap().contains("completed")));
    assert!(child.wait().unwrap().success());
}
