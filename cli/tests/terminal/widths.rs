//! The output in terminals of several sizes: every line fits, no number is cut, and no frame of the
//! tree is left behind.

use serde_json::json;

use crate::{pty::TestDirectory, screen};

const SIZES: [u16; 4] = [40, 60, 80, 200];
const GOAL: &str = "Find out how ants find their food, how they tell each other, and how long a trail lasts.";

/// A directory with a run that has labels and a long goal.
fn kept() -> TestDirectory {
    let kept = TestDirectory::new();
    let file = kept.file("ants.json", &json!({"goal": GOAL, "labels": {"env": "test"}}).to_string());
    let (_, why, code) = kept.says(&["run", &file]);
    assert_eq!(code, Some(0), "{why}");
    kept
}

/// The text without colours.
fn plain(said: &str) -> String {
    let mut parts = said.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
fn g17_lists_fit_the_terminal_and_cut_no_number() {
    let kept = kept();
    for columns in SIZES {
        let (said, code) = kept.at_terminal(&["runs", "list"], columns, 24).ended();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("\u{1b}[32mcompleted"), "{columns}: {said}");
        let said = plain(&said);
        for line in said.lines() {
            assert!(line.chars().count() <= columns.into(), "{columns}: {line}");
        }
        for part in ["$0.00 of $1.00", "just now", "env=test", "default"] {
            assert!(said.contains(part), "{columns}: no {part} in {said}");
        }
    }
    let (said, _) = kept.at_terminal(&["runs", "list", "--no-trunc"], 60, 24).ended();
    assert!(plain(&said).contains(GOAL), "{said}");
    let mut command = kept.command(&["runs", "list"]);
    command.env("NO_COLOR", "1");
    let (said, _) = crate::pty::Terminal::start(command, 80, 24).ended();
    assert!(!said.contains('\u{1b}'), "{said}");
    // Without a terminal, nothing is cut or coloured.
    let (said, _, _) = kept.says(&["runs", "list"]);
    assert!(said.contains(GOAL) && !said.contains('\u{1b}'), "{said}");
    let (ids, notes, _) = kept.says(&["runs", "list", "--quiet"]);
    let is_id = |line: &str| line.len() == 32 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(ids.lines().count() == 1 && ids.lines().all(is_id) && notes.is_empty(), "{ids}{notes}");
}

#[test]
fn g17_journals_events_and_spans_fit_the_terminal_and_cut_no_number() {
    let kept = TestDirectory::new();
    let script = json!([{"say": "They follow a trail, which fades unless others follow it too, and so do wrong turns."}]);
    let agent = json!([{"agent_id": "writer", "kind": "llm", "model": "scripted", "script": script}]);
    let agents = kept.file("agents.json", &agent.to_string());
    let file = kept.file("ants.json", &json!({"goal": GOAL, "agent_id": "writer"}).to_string());
    let (_, why, code) = kept.says(&["run", "--agents", &agents, &file]);
    assert_eq!(code, Some(0), "{why}");
    for (command, parts) in [
        ("history", ["$0.", "model", "scripted"]),
        ("events", ["call_id 1-1", "held", "settled"]),
        ("trace", ["$0.", "chat scripted", " ms"]),
    ] {
        let (whole, _, _) = kept.says(&[command, "@last"]);
        let cost = |said: &str| {
            let amounts =
                said.split_whitespace().filter(|word| word.starts_with('$') && !word.ends_with('…'));
            amounts.map(str::to_owned).collect::<Vec<_>>()
        };
        for columns in SIZES {
            let (said, code) = kept.at_terminal(&[command, "@last"], columns, 60).ended();
            assert_eq!(code, Some(0), "{said}");
            let said = plain(&said);
            for line in said.lines() {
                assert!(line.chars().count() <= columns.into(), "{command} {columns}: {line}");
            }
            for part in parts {
                assert!(said.contains(part), "{command} {columns}: no {part} in {said}");
            }
            // The text of an event may be cut.
            assert!(command == "events" || cost(&said) == cost(&whole), "{command} {columns}: {said}");
        }
    }
}

#[test]
fn g17_a_run_is_described_with_its_goal_times_and_whole_result() {
    let kept = kept();
    let (said, _, code) = kept.says(&["runs", "show", "@last"]);
    assert_eq!(code, Some(0));
    for part in
        ["goal       Find out", "submitted  ", "started    ", "ended      ", "\nresult\nFind out", "lasts.\n"]
    {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    let (said, notes, _) = kept.says(&["run", "--goal", "Say hello.", "--quiet"]);
    assert_eq!((said.as_str(), notes.as_str()), ("Say hello.\n", ""), "the result alone");
}

/// proves: in a terminal of any size, each frame replaces the one before, and a step that waits for
/// a human is shown.
#[test]
fn g9_no_frame_of_the_live_tree_is_left_behind() {
    for (columns, lines) in [(40, 10), (60, 8), (80, 24), (200, 50)] {
        let kept = TestDirectory::new();
        let mut steps: Vec<_> = (0..25)
            .map(|number| {
                let id = format!("find-out-about-the-topic-{number}");
                json!({"id": id, "agent_id": "default", "task_description": GOAL})
            })
            .collect();
        let all: Vec<_> = steps.iter().map(|step| step["id"].clone()).collect();
        let approve = json!({"who": "me", "question": "Ship it?"});
        steps.push(json!({"id": "ask", "depends_on": all, "approve": approve}));
        let file =
            kept.file("many.json", &json!({"name": "many", "max_cost_usd": 1, "steps": steps}).to_string());
        let mut terminal = kept.at_terminal(&["run", &file], columns, lines);
        terminal.until("press enter");
        let shown = screen::show(&terminal.said(), columns.into(), lines.into());
        let roots = shown.iter().filter(|line| line.starts_with("many")).count();
        assert_eq!(roots, 1, "{columns}x{lines}: {shown:#?}");
        let frame = shown
            .iter()
            .skip_while(|line| !line.starts_with("many"))
            .take_while(|line| !line.starts_with("question"));
        let frame: Vec<&String> = frame.collect();
        assert!(frame.len() < lines.into(), "{columns}x{lines}: {shown:#?}");
        assert!(
            frame.iter().any(|line| line.contains("ask") && line.contains("input_required")),
            "{shown:#?}"
        );
        assert!(frame[0].contains("$0.00 of $1.00"), "{columns}x{lines}: {shown:#?}");
        if usize::from(lines) < 27 {
            assert!(frame[frame.len() - 1].starts_with("… "), "{columns}x{lines}: {shown:#?}");
            assert!(frame[frame.len() - 1].contains("completed)"), "{columns}x{lines}: {shown:#?}");
        }
        terminal.type_line("approve");
        let (said, code) = terminal.ended();
        assert_eq!(code, Some(0), "{said}");
        // The final tree fits the width too.
        let end = plain(&said);
        let end = end.rsplit("press enter:").next().unwrap();
        for line in end.lines().filter(|line| line.contains("completed")) {
            assert!(line.chars().count() <= columns.into() || line.starts_with('…'), "{columns}: {line:?}");
        }
    }
}
