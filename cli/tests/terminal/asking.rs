//! The questions of the command line at a terminal before it acts, and its errors without a
//! terminal.

use serde_json::Value;

use crate::pty::TestDirectory;

fn deleted(kept: &TestDirectory) -> bool {
    let (out, err, code) = kept.says(&["runs", "show", "@last", "-o", "json"]);
    assert_eq!(code, Some(0), "{err}");
    let described: Value = serde_json::from_str(&out).unwrap();
    described.get("deleted").is_some()
}

#[test]
fn w6_a_run_is_deleted_once_the_user_says_yes() {
    let kept = TestDirectory::new();
    kept.says(&["run", "--goal", "hello"]);
    let (_, why, code) = kept.says(&["runs", "delete", "@last"]);
    assert!(
        code == Some(2) && why.contains("which needs a confirmation") && why.contains("hint: add --yes"),
        "{why}"
    );
    for answer in ["n", "", "yesterday"] {
        let mut terminal = kept.at_terminal(&["runs", "delete", "@last"], 120, 40);
        terminal.until("[y/N]");
        terminal.type_line(answer);
        let (said, code) = terminal.ended();
        assert!(code == Some(130) && said.contains("nothing was changed"), "{said}");
    }
    let terminal = kept.at_terminal(&["runs", "delete", "@last"], 120, 40);
    terminal.until("[y/N]");
    terminal.interrupt();
    assert_eq!(terminal.ended().1, Some(130));
    assert!(!deleted(&kept));
    let mut terminal = kept.at_terminal(&["runs", "delete", "@last"], 120, 40);
    terminal.until("[y/N]");
    terminal.type_line("Y");
    let (said, code) = terminal.ended();
    assert!(code == Some(0) && said.contains("is deleted"), "{said}");
    assert!(deleted(&kept));
    kept.says(&["run", "--goal", "another"]);
    assert_eq!(kept.says(&["runs", "delete", "@last", "--yes"]).2, Some(0));
}

#[test]
fn b11_a_cost_is_booked_by_hand_once_for_each_key() {
    let kept = TestDirectory::new();
    kept.says(&["run", "--goal", "hello", "--max-cost-usd", "1"]);
    let charge = |more: &[&str]| kept.says(&[&["charge", "@last"], more].concat());
    let spent = || {
        let (out, _, _) = kept.says(&["budgets", "show", "@last", "-o", "json"]);
        let shown: Value = serde_json::from_str(&out).unwrap();
        let budget = &shown["budget"];
        (budget["spent"]["cost_usd"].clone(), budget["spent"]["tokens"].clone(), budget["disputed"].clone())
    };
    for _ in 0..2 {
        let (out, err, code) = charge(&["--cost-usd", "0.25", "--tokens", "40", "--key", "invoice-7"]);
        assert!(code == Some(0) && out.contains("$0.25"), "{out}{err}");
        assert_eq!((spent().0, spent().1), (0.25.into(), 40.into()), "the same key is booked once");
    }
    let (_, why, code) = charge(&["--cost-usd", "0.5", "--key", "invoice-7"]);
    assert!(code == Some(3) && why.contains("refused"), "{why}");
    let (_, why, code) = charge(&["--cost-usd", "0"]);
    assert!(code == Some(2) && why.contains("a charge of zero"), "{why}");
    assert_eq!(charge(&[]).2, Some(2));
    let (_, why, code) = kept.says(&["charge", "@last/rot", "--cost-usd", "1"]);
    assert!(code == Some(2) && why.contains("did you mean `root`?"), "{why}");
    // Without a key, every charge is a new one. An amount beyond the budget is disputed.
    assert_eq!(charge(&["--cost-usd", "0.5"]).2, Some(0));
    let (out, _, code) = charge(&["--cost-usd", "0.5", "--by", "accounts"]);
    assert!(code == Some(0), "{out}");
    assert_eq!((spent().0, spent().2["cost_usd"].clone()), (1.0.into(), 0.25.into()), "{:?}", spent());
}

/// proves: the runs that match the filters are cancelled, after the user has seen their number.
#[test]
fn g8_all_runs_that_fit_are_cancelled_once_the_user_says_yes() {
    let kept = TestDirectory::new();
    let approve = serde_json::json!({"who": "me", "question": "Ship it?"});
    for label in ["test", "test", "prod"] {
        let graph = serde_json::json!({"name": "ship", "labels": {"env": label}, "steps": [{"id": "ask", "approve": approve}]});
        let file = kept.file("ship.json", &graph.to_string());
        kept.says(&["submit", &file]);
    }
    let statuses = || -> Vec<String> {
        let (out, _, _) = kept.says(&["runs", "list", "-o", "json"]);
        let runs: Value = serde_json::from_str(&out).unwrap();
        let status = |run: &Value| {
            format!("{} {}", run["labels"]["env"].as_str().unwrap(), run["status"].as_str().unwrap())
        };
        let mut all: Vec<String> = runs["runs"].as_array().unwrap().iter().map(status).collect();
        all.sort();
        all
    };
    let waiting = ["prod input_required", "test input_required", "test input_required"];
    assert_eq!(statuses(), waiting);
    let (_, why, code) = kept.says(&["runs", "cancel", "--all", "--label", "env=test"]);
    assert!(code == Some(2) && why.contains("cancels 2 runs") && why.contains("--yes"), "{why}");
    let mut terminal = kept.at_terminal(&["runs", "cancel", "--all", "--label", "env=test"], 120, 40);
    terminal.until("cancels 2 runs; continue? [y/N]");
    terminal.type_line("n");
    assert_eq!(terminal.ended().1, Some(130));
    assert_eq!(statuses(), waiting);
    for wrong in
        [&["--all", "@last"][..], &[], &["@last", "--label", "env=test"], &["--all", "--status", "failed"]]
    {
        assert_eq!(kept.says(&[&["runs", "cancel"], wrong].concat()).2, Some(2), "{wrong:?}");
    }
    let (_, none, code) = kept.says(&["runs", "cancel", "--all", "--status", "paused", "--yes"]);
    assert!(code == Some(0) && none.contains("no live run matches"), "{none}");
    let (said, why, code) = kept.says(&["runs", "cancel", "--all", "--label", "env=test", "--yes"]);
    assert!(code == Some(0) && said.contains("2 runs cancelled"), "{said}{why}");
    assert_eq!(statuses(), ["prod input_required", "test cancelled", "test cancelled"]);
}

#[test]
fn g8_workers_are_drained_by_name_or_all() {
    let kept = TestDirectory::new();
    assert_eq!(kept.says(&["workers", "drain"]).2, Some(2));
    assert_eq!(kept.says(&["workers", "drain", "a", "--all"]).2, Some(2));
    let (_, none, code) = kept.says(&["workers", "drain", "--all"]);
    assert!(code == Some(0) && none.contains("no worker answers"), "{none}");
}
