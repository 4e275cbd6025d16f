//! Ctrl-C on a run at a terminal, and the questions of agents there.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::pty::{Terminal, TestDirectory};

/// Writes a file with a graph that asks a human.
fn asks(kept: &TestDirectory) -> String {
    let approve = json!({"who": "me", "question": "Ship it?"});
    kept.file("ship.json", &json!({"name": "ship", "steps": [{"id": "ask", "approve": approve}]}).to_string())
}

fn status(kept: &TestDirectory) -> String {
    let (out, why, _) = kept.says(&["runs", "list", "-o", "json"]);
    let runs: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {why}"));
    runs["runs"][0]["status"].as_str().unwrap().to_owned()
}

/// proves: at a terminal, the first Ctrl-C asks. The user may detach from a stored run by a word or
/// a second Ctrl-C, or cancel it.
#[test]
fn g8_ctrl_c_asks_whether_to_leave_a_run_or_to_cancel_it() {
    for (word, code, says, then) in [
        (Some("d"), 130, "left, and the run is stopped", "input_required"),
        (None, 130, "left, and the run is stopped", "input_required"),
        (Some("c"), 4, "cancelling", "cancelled"),
    ] {
        let kept = TestDirectory::new();
        let file = asks(&kept);
        let mut terminal = kept.at_terminal(&["run", &file], 100, 30);
        terminal.until("press enter:");
        terminal.interrupt();
        terminal.until("detach or cancel?");
        match word {
            Some(word) => {
                terminal.type_line("perhaps");
                terminal.type_line(word);
            }
            None => terminal.interrupt(),
        }
        let (said, ended) = terminal.ended();
        assert!(ended == Some(code) && said.contains(says), "{word:?}: {ended:?} {said}");
        assert_eq!(status(&kept), then, "{word:?}");
    }
}

/// proves: the user can't detach from a run that is not stored.
#[test]
fn g8_ctrl_c_cancels_a_run_that_is_kept_nowhere() {
    let kept = TestDirectory::new();
    let file = asks(&kept);
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.args(["run", &file]).env_clear().stdin(Stdio::null());
    let terminal = Terminal::start(command, 100, 30);
    terminal.until("press enter:");
    terminal.interrupt();
    let (said, code) = terminal.ended();
    assert!(code == Some(4) && said.contains("cancelling") && !said.contains("detach"), "{said}");
}

/// proves: `dev` asks its user one question after another, and still takes submissions.
#[test]
fn g7_dev_asks_its_human_at_the_terminal() {
    let kept = TestDirectory::new();
    let file = asks(&kept);
    let mut terminal = kept.at_terminal(&["dev"], 120, 40);
    terminal.until("Ctrl-C ends");
    terminal.type_line(&format!("@{file}"));
    terminal.until("question from ship › ask: Ship it?");
    terminal.until("press enter:");
    terminal.type_line("perhaps");
    terminal.until("it neither approves nor denies");
    terminal.type_line("approve");
    terminal.until(" completed $0.00 of $1.00");
    terminal.type_line("say hello");
    terminal.until("completed $0.00 of $1.00 say hello");
    terminal.interrupt();
    let (said, code) = terminal.ended();
    assert_eq!(code, Some(0), "{said}");
}

/// proves: a `submit --wait` prints the question of its run, and how to answer it.
#[test]
fn g7_submit_prints_questions_while_it_waits() {
    let kept = TestDirectory::new();
    let file = asks(&kept);
    let dev = kept.at_terminal(&["dev"], 120, 40);
    dev.until("each line is a submission");
    let terminal = kept.at_terminal(&["submit", &file, "--wait"], 200, 40);
    terminal.until("answer it with: trellis answer ");
    terminal.until("question from ship › ask: Ship it?");
}
