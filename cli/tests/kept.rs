//! Runs that are stored in a directory. Every command shows them afterwards without a server, and a
//! killed process loses no run that it accepted.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A directory of a test, which is removed after it.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trellis-kept-{}-{number}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        TestDirectory(path)
    }

    /// `trellis` with this directory and without servers.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        command.args(args).arg("--data").arg(&self.0).current_dir(root).stdin(Stdio::null());
        for name in ["NATS_URL", "NATS_CREDS", "REDIS_URL", "TRELLIS_NAMESPACE", "TRELLIS_URL", "RUST_LOG"] {
            command.env_remove(name);
        }
        command.env_remove("TRELLIS_DATA").env("TRELLIS_LISTEN", "127.0.0.1:0");
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The stdout of a command that must succeed.
    fn says(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    fn json(&self, args: &[&str]) -> Value {
        let said = self.says(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{args:?}: {error}: {said}"))
    }

    /// Starts a `trellis dev` that reads and writes lines.
    fn dev(&self) -> Dev {
        self.dev_with(&[])
    }

    fn dev_with(&self, more: &[&str]) -> Dev {
        let args = [&["dev", "-o", "json", "--agents", "examples/agents.yaml"], more].concat();
        let mut command = self.command(&args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Dev { child, lines: Box::new(lines.map_while(Result::ok)) }
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
        std::fs::remove_dir_all(self.0.with_extension("files")).ok();
    }
}

struct Dev {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Dev {
    fn submit(&mut self, submission: &Value) {
        // The process may have been killed.
        writeln!(self.child.stdin.as_mut().unwrap(), "{submission}").ok();
    }

    /// The run of the next accepted submission; `None` if the process was killed first.
    fn accepted(&mut self) -> Option<String> {
        self.lines.by_ref().find_map(|line| {
            let said: Value = serde_json::from_str(&line).ok()?;
            assert_ne!(said["status"], "refused", "{said}");
            let is_accepted = said["status"] == "accepted";
            is_accepted.then(|| said["trace_id"].as_str().unwrap().to_owned())
        })
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn status(kept: &TestDirectory, trace: &str) -> String {
    let runs = kept.json(&["runs", "list", "--limit", "500"])["runs"].take();
    let run = runs.as_array().unwrap().iter().find(|run| run["trace_id"] == trace);
    run.unwrap_or_else(|| panic!("{trace} is not in {runs}"))["status"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_that_was_kept_is_shown_by_every_command_without_a_server() {
    let kept = TestDirectory::new();
    let graph = kept.0.with_extension("json");
    let steps =
        json!([{"id": "find", "agent_id": "researcher", "task_description": "How do ants find food?"}]);
    std::fs::write(
        &graph,
        json!({"trace_id": TRACE, "name": "ants", "labels": {"env": "test"}, "steps": steps}).to_string(),
    )
    .unwrap();
    let file = graph.to_str().unwrap();
    let agents = "examples/agents.yaml";
    let ended = kept.json(&["run", file, "--agents", agents]);
    assert_eq!(ended["status"], "completed", "{ended}");
    let spent = ended["budget"]["spent"]["cost_usd"].clone();
    for args in [
        &["runs", "list", "--label", "env=test"][..],
        &["runs", "show", TRACE],
        &["receipt", TRACE],
        &["trace", TRACE],
        &["events", TRACE],
        &["audit", TRACE],
        &["budgets", "tree", TRACE],
        &["agents", "list"],
        &["runs", "graph", TRACE],
        &["doctor"],
    ] {
        let said = kept.says(args);
        assert!(!said.trim().is_empty(), "{args:?}");
    }
    let history = kept.says(&["history", &format!("{TRACE}/find")]);
    assert!(history.contains("model"), "{history}");
    let run = &kept.json(&["runs", "list"])["runs"][0];
    assert_eq!((&run["trace_id"], &run["status"]), (&json!(TRACE), &json!("completed")));
    assert_eq!(run["budget"]["spent"]["cost_usd"], spent, "{run}");
    // The same submission again is the same run and costs nothing more. A rerun takes over its
    // results.
    assert_eq!(kept.json(&["run", file, "--agents", agents])["budget"]["spent"]["cost_usd"], spent);
    assert_eq!(kept.json(&["runs", "list"])["runs"].as_array().unwrap().len(), 1);
    let rerun = kept.json(&["runs", "rerun", TRACE, "--from", "find"]);
    assert!(rerun["trace_id"].is_string(), "{rerun}");
    std::fs::remove_file(graph).ok();
}

/// proves: a run that waits for a human keeps waiting when its directory is opened, and continues
/// after the answer. An answered question is not waited for again.
#[test]
fn a_run_that_waits_for_a_human_is_left_alone_until_it_has_its_answer() {
    let kept = TestDirectory::new();
    let mut dev = kept.dev();
    let ask = json!({"id": "ask", "approve": {"who": "me", "question": "Ship it?"}});
    // This is longer than an ending process waits for its agents.
    let ship = json!({"id": "ship", "agent_id": "careful-model", "task_description": "Ship it.", "input_from": ["ms"], "depends_on": ["ask"]});
    dev.submit(&json!({"trace_id": TRACE, "name": "ship", "inputs": {"ms": 7000}, "steps": [ask, ship]}));
    assert_eq!(dev.accepted().as_deref(), Some(TRACE));
    dev.kill();
    let goes_on = || kept.output(&["dev", "--agents", "examples/agents.yaml"]);
    assert!(goes_on().status.success());
    assert_eq!(status(&kept, TRACE), "input_required");
    kept.says(&["answer", &format!("{TRACE}/ask"), "approve"]);
    assert!(goes_on().status.success());
    assert_eq!(status(&kept, TRACE), "completed");
}

/// proves: a copy of a directory's files is complete. Ended runs are unchanged, others continue,
/// and the original is not needed. The process was killed, so nothing was closed.
#[test]
fn n8_a_copy_of_a_directory_has_everything_and_goes_on_elsewhere() {
    let kept = TestDirectory::new();
    let agents = ["--agents", "examples/agents.yaml"];
    let ended = kept.json(&[&["run", "--goal", "Find food.", "--agent", "researcher"], &agents[..]].concat());
    let ended = ended["trace_id"].as_str().unwrap();
    kept.says(&["graphs", "apply", "examples/facts.yaml"]);
    kept.says(&["schedules", "apply", "examples/nightly.yaml"]);
    let mut dev = kept.dev();
    let ask = json!({"id": "ask", "approve": {"who": "me", "question": "Ship it?"}});
    dev.submit(&json!({"trace_id": TRACE, "name": "ship", "steps": [ask]}));
    dev.accepted().unwrap();
    dev.kill();

    let copy = TestDirectory::new();
    std::fs::create_dir(&copy.0).unwrap();
    for file in std::fs::read_dir(&kept.0).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), copy.0.join(file.file_name())).unwrap();
    }
    let content = |kept: &TestDirectory| {
        [
            &["receipt", ended][..],
            &["result", ended],
            &["history", ended],
            &["events", ended],
            &["outputs", ended],
            &["agents", "show", "researcher"],
            &["graphs", "show", "facts"],
            &["schedules", "show", "nightly"],
        ]
        .map(|args| kept.says(&[args, &["-o", "json"]].concat()))
    };
    let before = content(&kept);
    drop(kept);
    assert_eq!(content(&copy), before);
    assert_eq!(status(&copy, ended), "completed");
    let goes_on = || assert!(copy.output(&[&["dev"], &agents[..]].concat()).status.success());
    goes_on();
    copy.says(&["answer", &format!("{TRACE}/ask"), "approve"]);
    goes_on();
    assert_eq!(status(&copy, TRACE), "completed");
    copy.says(&["audit", TRACE]);
}

/// proves: a result is printed whole, byte by byte, even if it was too large for the log. A missing
/// result is reported with its reason.
#[test]
fn a_result_is_printed_whole() {
    let kept = TestDirectory::new();
    let goal = format!("Say:\r\n{}end", "word ".repeat(400));
    for limits in [json!({}), json!({"max_result_bytes": 100})] {
        let file = kept.0.with_extension("json");
        std::fs::write(&file, json!({"goal": goal, "limits": limits}).to_string()).unwrap();
        let said = kept.says(&["run", file.to_str().unwrap()]);
        assert!(said.ends_with("word end\n") && said.contains("\nresult\nSay:"), "{said}");
        assert_eq!(kept.says(&["result", "@last"]), format!("{goal}\n"), "{limits}");
        assert_eq!(kept.json(&["result", "@last/root"]), json!(goal));
        let described = kept.json(&["runs", "show", "@last"]);
        let is_object = described["outcome"]["result_object"].is_object();
        assert_eq!(is_object, limits != json!({}), "{described}");
        std::fs::remove_file(file).ok();
    }
    let short = kept.says(&["run", "--goal", "hello"]);
    assert!(!short.contains("\nresult\n"), "a short result has its own section: {short}");
    let refused = |args: &[&str]| {
        let output = kept.output(args);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, why) = refused(&["result", "@last/rot"]);
    assert!(code == Some(2) && why.contains("did you mean `root`?"), "{code:?}: {why}");
    let mut dev = kept.dev();
    let ask = json!({"id": "ask", "approve": {"who": "me", "question": "Ship it?"}});
    dev.submit(&json!({"trace_id": TRACE, "name": "ship", "steps": [ask]}));
    dev.accepted().unwrap();
    dev.kill();
    let (code, why) = refused(&["result", TRACE]);
    assert!(code == Some(3) && why.contains("is not over") && why.contains("runs watch"), "{code:?}: {why}");
    kept.says(&["runs", "cancel", TRACE, "--reason", "enough"]);
    let (code, why) = refused(&["result", TRACE]);
    assert!(code == Some(4) && why.contains("it is cancelled: enough"), "{code:?}: {why}");
}

#[test]
fn a_shell_completes_commands_runs_and_agents() {
    let kept = TestDirectory::new();
    let trace = kept.json(&["run", "--goal", "a goal", "--agent", "echo"])["trace_id"]
        .as_str()
        .expect("a run has an id")
        .to_owned();
    // As the script asks: the index of the word to complete, and all words.
    let completes = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        command.env_clear().env("TRELLIS_DATA", &kept.0).args(["--", "trellis"]).args(words);
        command.env("TRELLIS_COMPLETE", "bash").env("_CLAP_IFS", "\n");
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
        let output = command.output().expect("the binary runs");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completes(&["rec"]), ["receipt"]);
    assert_eq!(completes(&["result", &trace[..6]]), [trace.as_str()]);
    assert_eq!(completes(&["receipt", "@"]), ["@last"]);
    assert_eq!(completes(&["run", "--agent", "ec"]), ["echo"]);
}

#[test]
fn a_directory_may_be_named_by_a_relative_path() {
    let kept = TestDirectory::new();
    std::fs::create_dir_all(&kept.0).unwrap();
    for name in ["data", "."] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        command.args(["run", "--goal", "hello", "--data", name]).current_dir(&kept.0).env_remove("NATS_URL");
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

#[test]
fn a_directory_is_open_in_one_process_which_others_ask_instead() {
    let kept = TestDirectory::new();
    let mut dev = kept.dev();
    dev.submit(&json!({"goal": "hello"}));
    dev.accepted().unwrap();
    assert_eq!(kept.json(&["runs", "list"])["runs"].as_array().unwrap().len(), 1);
    // A `run` of another command runs in that process.
    kept.says(&["run", "--goal", "hello"]);
    assert_eq!(kept.json(&["runs", "list"])["runs"].as_array().unwrap().len(), 2);
    let refused = kept.output(&["dev"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains(&dev.child.id().to_string()), "{said}");
    assert!(said.contains("hint: "), "{said}");
    dev.kill();
    // The killed process left its address behind, which is ignored.
    assert_eq!(kept.json(&["runs", "list"])["runs"].as_array().unwrap().len(), 2);
}

/// proves: a command that only reads does not let a run's time limit pass, and opens the directory
/// only while it reads. It shows the state, and how to continue the run.
#[test]
fn a_directory_without_a_server_is_read_and_unchanged() {
    let kept = TestDirectory::new();
    let mut dev = kept.dev();
    let think = json!({"id": "think", "agent_id": "careful-model", "task_description": "Think.", "input_from": ["ms"], "timeout_ms": 2_000});
    dev.submit(&json!({"trace_id": TRACE, "name": "slow", "inputs": {"ms": 60_000}, "steps": [think]}));
    dev.accepted().unwrap();
    while !kept.says(&["events", TRACE, "--type", "claimed"]).contains("think") {}
    dev.kill();
    let watched = |args: &[&str]| {
        let output = kept.output(args);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let goes_on = format!(
        "no process serves this directory: `trellis dev --data {}` continues its runs",
        kept.0.display()
    );
    for _ in 0..2 {
        for args in [
            &["runs", "watch", TRACE][..],
            &["events", TRACE, "--follow"],
            &["history", &format!("{TRACE}/think"), "--follow"],
        ] {
            let (code, said) = watched(args);
            assert!(code == Some(5) && said.contains(&goes_on), "{args:?}: {code:?}: {said}");
        }
        assert_eq!(status(&kept, TRACE), "working");
        // The time limit of the run is over now.
        thread::sleep(Duration::from_millis(2_500));
    }
    let (code, said) = watched(&["submit", "--goal", "hello", "--wait"]);
    assert!(code == Some(5) && said.contains(&goes_on), "{code:?}: {said}");
    // The refused submission was not stored, so trying again submits it once.
    assert_eq!(kept.json(&["runs", "list"])["runs"].as_array().unwrap().len(), 1);
}

/// proves: a `dev` waits for a command that reads its directory.
#[test]
fn a_dev_waits_for_a_command_that_has_its_directory() {
    let kept = TestDirectory::new();
    kept.says(&["run", "--goal", "hello"]);
    let looks = disk::Disk::open(&kept.0).unwrap();
    let mut dev = kept.dev();
    thread::sleep(Duration::from_millis(500));
    drop(looks);
    dev.submit(&json!({"goal": "hello"}));
    dev.accepted().expect("the second process has the directory");
    dev.kill();
}

/// proves: a process may end between any two steps of the coordinator and of the worker. Its
/// accepted runs continue from there, and their books agree with the log.
#[test]
fn a_process_that_ends_at_a_crash_point_loses_no_run_that_it_accepted() {
    let of_coordinator = ["received", "decided", "committed", "sent", "acknowledged"];
    let of_worker = ["held", "answered", "written", "called", "finished", "reported"];
    let points = of_coordinator.map(|point| ("--crash-coordinator-at", point)).into_iter();
    for (option, point) in points.chain(of_worker.map(|point| ("--crash-worker-at", point))) {
        let kept = TestDirectory::new();
        // The second passing is used, because other messages are on their way then.
        let mut dev = kept.dev_with(&[option, &format!("{point}:2")]);
        for _ in 0..3 {
            dev.submit(&json!({"goal": "Find food.", "agent_id": "researcher", "max_cost_usd": 0.05}));
        }
        // Without the crash, the process would end after the last run.
        drop(dev.child.stdin.take());
        let accepted: Vec<String> = std::iter::from_fn(|| dev.accepted()).collect();
        let ended = dev.child.wait().unwrap();
        assert_eq!(ended.code(), None, "{option} {point}: the process aborts");
        let last = kept.output(&["dev", "--agents", "examples/agents.yaml"]);
        assert!(last.status.success(), "{option} {point}: {last:?}");
        let runs = kept.json(&["runs", "list"])["runs"].take();
        for trace in &accepted {
            assert!(runs.to_string().contains(trace), "{option} {point}: {trace} is lost");
        }
        for run in runs.as_array().unwrap() {
            assert_eq!(run["status"], "completed", "{option} {point}: {run}");
            kept.says(&["audit", run["trace_id"].as_str().unwrap()]);
        }
    }
}

/// proves: every run that `dev` accepted ends within its budget, and its books agree with its log,
/// no matter how often the process is killed. `TRELLIS_KILLS=200` makes it a long test.
#[test]
fn a_process_that_is_killed_again_and_again_loses_no_run_that_it_accepted() {
    let kills = std::env::var_os("TRELLIS_KILLS").and_then(|text| text.to_string_lossy().parse().ok());
    let kills: u64 = kills.unwrap_or(8);
    let kept = TestDirectory::new();
    let mut accepted = Vec::new();
    for round in 0..kills {
        let mut dev = kept.dev();
        for _ in 0..4 {
            dev.submit(&json!({"goal": "Find food.", "agent_id": "researcher", "max_cost_usd": 0.05}));
        }
        accepted.extend(dev.accepted());
        // Each kill is at another time: in the first commits, in calls, at the end of runs.
        thread::sleep(Duration::from_millis(round * 37 % 400));
        dev.kill();
    }
    let last = kept.output(&["dev", "--agents", "examples/agents.yaml"]);
    // After many kills a run may have no attempts left, or its budget is used up by calls with
    // unknown ends.
    let is_many = kills > 8;
    assert!(is_many || last.status.success(), "{last:?}");
    assert!(!accepted.is_empty());
    let has_ended = |status: &str| status == "completed" || is_many && status == "failed";
    for trace in &accepted {
        assert!(has_ended(&status(&kept, trace)), "{trace}");
    }
    let runs = kept.json(&["runs", "list", "--limit", "500"])["runs"].take();
    for run in runs.as_array().unwrap() {
        let trace = run["trace_id"].as_str().unwrap();
        assert!(has_ended(run["status"].as_str().unwrap()), "{run}");
        let spent = run["budget"]["spent"]["cost_usd"].as_f64().unwrap();
        assert!(spent <= 0.05, "{run}");
        kept.says(&["audit", trace]);
    }
}

/// Writes files into a folder beside the directory, and returns their paths.
fn beside<const N: usize>(kept: &TestDirectory, files: [(&str, &str); N]) -> [String; N] {
    let folder = kept.0.with_extension("files");
    std::fs::create_dir_all(&folder).unwrap();
    files.map(|(name, text)| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    })
}

/// The stdout and stderr of a command, and its exit code.
fn whole(kept: &TestDirectory, args: &[&str]) -> (String, Option<i32>) {
    let output = kept.output(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout) + &text(&output.stderr), output.status.code())
}

#[test]
fn b1_a_budget_tree_is_indented_by_what_each_context_is_under() {
    let kept = TestDirectory::new();
    kept.says(&["run", "examples/author-and-critic.yaml"]);
    let tree = kept.says(&["budgets", "tree", "@last"]);
    for line in ["author-and-critic ", "  polish-r2 ", "    author ", "    critic-n6 ", "  publish "] {
        assert!(tree.lines().any(|shown| shown.starts_with(line)), "{line:?}: {tree}");
    }
}

#[test]
fn a_directory_without_a_server_reports_that_it_has_no_workers() {
    let kept = TestDirectory::new();
    kept.says(&["run", "--goal", "hello"]);
    let (said, code) = whole(&kept, &["workers", "list"]);
    assert!(code == Some(5) && said.contains("no process serves this directory"), "{code:?}: {said}");
    let dev = kept.dev();
    while !kept.0.join("server").exists() {}
    assert!(kept.says(&["workers", "list"]).contains("taking work"));
    dev.kill();
}

/// proves: `watch` reads a log from its start and does not repeat an answered question.
#[test]
fn g7_watch_repeats_no_question_that_was_answered() {
    let kept = TestDirectory::new();
    let [agents] = beside(&kept, [("agents.yaml", "- {agent_id: asks, kind: builtin, builtin: ask}\n")]);
    let args = ["run", "--goal", "Ship it?", "--agent", "asks", "--agents", &agents, "--answer", "yes"];
    let (said, code) = whole(&kept, &args);
    assert!(code == Some(0) && said.contains("question from "), "{code:?}: {said}");
    // The run waited for a human, which is not a failed attempt.
    assert!(!said.contains("attempts"), "{said}");
    let (said, code) = whole(&kept, &["runs", "watch", "@last"]);
    assert!(code == Some(0) && !said.contains("question from "), "{code:?}: {said}");
}

/// proves: in quiet mode, a run without a result prints the whole reason.
#[test]
fn a_quiet_run_that_fails_prints_the_whole_reason() {
    let kept = TestDirectory::new();
    let [agents] = beside(&kept, [("agents.yaml", "- {agent_id: fails, kind: builtin, builtin: fail}\n")]);
    let message = format!("\"{}the end of it\"", "a reason of many words ".repeat(20));
    let input = format!("message={message}");
    let args = ["run", "-q", "--goal", "fail", "--agent", "fails", "--agents", &agents, "--input", &input];
    let (said, code) = whole(&kept, &[&args[..], &["--input", "retryable=false"]].concat());
    assert!(code == Some(1) && said.contains("the end of it"), "{code:?}: {said}");
}

#[test]
fn g2_the_value_of_an_option_is_named_once() {
    let (said, code) = whole(&TestDirectory::new(), &["run", "--goal", "hello", "--max-cost-usd", "0"]);
    assert!(code == Some(3) && said.contains("--max-cost-usd: a ceiling must be more than zero"), "{said}");
}

/// proves: the history of a branch distinguishes copied entries and their costs from its own.
#[test]
fn w5_the_history_of_a_branch_marks_what_was_copied() {
    let kept = TestDirectory::new();
    let run = ["run", "--goal", "Find food.", "--agent", "researcher", "--agents", "examples/agents.yaml"];
    kept.says(&run);
    let branched = [&run[..], &["--branch-from", "@last@1"]].concat();
    kept.says(&branched);
    let history = kept.says(&["history", "@last"]);
    let copied: Vec<&str> = history.lines().filter(|line| line.contains("(copied) ")).collect();
    assert!(copied.len() == 1 && copied[0].contains("($0."), "{history}");
    assert!(history.contains("branched"), "{history}");
}

#[test]
fn every_option_of_every_command_says_what_it_is() {
    for command in ["run", "dev", "coordinator", "worker", "gateway"] {
        let help = TestDirectory::new().says(&[command, "--help"]);
        let lines: Vec<&str> = help.lines().map(str::trim_start).collect();
        for pair in lines.windows(2) {
            let is_told = !pair[1].is_empty() && !pair[1].starts_with('[');
            assert!(!pair[0].starts_with("--") || is_told, "{command}: {}", pair[0]);
        }
    }
    assert!(TestDirectory::new().says(&["dev", "--help"]).contains("by default, 127.0.0.1:7420"));
}

/// proves: an unreachable model is reported with the cause first, then the number of attempts.
#[test]
fn b15_an_unreachable_model_is_reported_with_its_cause_first() {
    let kept = TestDirectory::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = format!(
        "[providers.local]\nprotocol = \"openai\"\nbase_url = \"http://{closed}/v1/\"\n[prices.\"local/m\"]\ninput = 0.1\noutput = 0.4\n\
         [models.\"local/m\"]\nwindow_tokens = 8192\n"
    );
    let profile =
        "- {agent_id: asks, kind: llm, model: local/m, limits: {max_retries_total: 1}, tools: []}\n";
    let [settings, agents] = beside(&kept, [("worker.toml", &settings), ("agents.yaml", profile)]);
    let args = ["run", "--goal", "hello", "--agent", "asks", "--agents", &agents, "--config", &settings];
    let (said, code) = whole(&kept, &[&args[..], &["-q"]].concat());
    assert_eq!(code, Some(1), "{said}");
    let cause = said.find("`local` can't be reached: Connection refused").expect(&said);
    let tried = said.find("tried 2 times: `asks` has used 2 of max_retries_total = 1").expect(&said);
    assert!(cause < tried, "{said}");
}

/// proves: a run that waits for a missing worker reports the pool, while it waits and after its
/// timeout.
#[test]
fn l_a_run_that_waits_for_a_pool_without_workers_shows_it() {
    let kept = TestDirectory::new();
    let painter = "- {agent_id: painter, kind: builtin, builtin: echo, pool: gpu}\n";
    let [agents] = beside(&kept, [("agents.yaml", painter)]);
    let args = ["run", "--goal", "paint", "--agent", "painter", "--agents", &agents, "--timeout", "6s"];
    let (said, code) = whole(&kept, &args);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("`painter` waits for a worker of the pool `gpu`: none answers"), "{said}");
    assert!(said.contains("no worker of the pool `gpu` took `painter`"), "{said}");
    assert!(!said.contains("raise `timeout_ms`"), "{said}");
}

/// proves: a graph is checked with the same agents that `run` would use.
#[test]
fn g2_a_graph_is_checked_with_the_agents_beside_it() {
    let kept = TestDirectory::new();
    let agents = "- {agent_id: writer, kind: builtin, builtin: echo}\n";
    let graph = |agent: &str| format!("steps: [{{id: a, agent_id: {agent}, task_description: t}}]\n");
    let (good, bad) = (graph("writer"), graph("writr"));
    let (built_in, elsewhere) = (graph("echo"), graph("from-the-directory"));
    let files = [
        ("agents.yaml", agents),
        ("good.yaml", &*good),
        ("bad.yaml", &*bad),
        ("built_in.yaml", &*built_in),
        ("elsewhere.yaml", &*elsewhere),
    ];
    let [_, good, bad, built_in, elsewhere] = beside(&kept, files);
    let validate = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
        let output = command.env_clear().args(["graphs", "check", file]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for right in [good, built_in, elsewhere] {
        assert_eq!(validate(&right), (Some(0), String::new()), "{right}");
    }
    let (code, why) = validate(&bad);
    assert!(code != Some(0) && why.contains("did you mean `writer`?"), "{code:?}: {why}");
}

#[test]
fn a_run_reports_earlier_runs_that_continue_beside_it() {
    let kept = TestDirectory::new();
    kept.says(&["run", "--goal", "first"]);
    for _ in 0..3 {
        kept.output(&["submit", "--goal", "stored"]);
        let output = kept.output(&["run", "--goal", "second", "--quiet"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("warning: 1 earlier run that had not ended goes on too"), "{output:?}");
    }
    let quiet = kept.output(&["run", "--goal", "third"]);
    assert!(!String::from_utf8_lossy(&quiet.stderr).contains("earlier"), "{quiet:?}");
}

#[test]
fn an_agent_without_a_tool_of_its_list_is_logged() {
    let kept = TestDirectory::new();
    let file = kept.0.with_extension("json");
    let agent = json!({"agent_id": "seller", "kind": "llm", "model": "scripted", "tools": ["fs.list", "shop:stock"],
        "script": [{"say": "None are left."}]});
    std::fs::write(&file, json!([agent]).to_string()).unwrap();
    let (path, seller) = (file.to_str().unwrap(), ["--agent", "seller", "--goal", "How many?"]);
    let output = kept.output(&[&["run", "--agents", path][..], &seller].concat());
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = said.lines().find(|line| line.contains("runs without some of its tools")).unwrap_or_default();
    assert!(told.contains("shop:stock") && !told.contains("fs.list"), "{output:?}");
}
