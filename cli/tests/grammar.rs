//! The grammar of the commands: groups, names and their aliases, help that fits a screen, and one
//! form of output and errors.

#![allow(clippy::unwrap_used, reason = "a test that is surprised shall panic")]

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

const GROUPS: [&str; 6] = ["Run:", "Look:", "Money:", "Steer:", "Define:", "Operate:"];
/// The lines and columns of a screen.
const LINES: usize = 40;
const COLUMNS: usize = 100;

/// Runs `trellis` without servers, in the root of the repository.
fn run(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trellis"));
    command.args(args).stdin(Stdio::null()).env_clear();
    command.current_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".."));
    command.env("HOME", "/nonexistent").env("TRELLIS_NO_KEEP", "1").envs(variables.iter().copied());
    command.output().expect("the binary runs")
}

fn stdout(args: &[&str]) -> String {
    let output = run(args, &[]);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn stderr(args: &[&str]) -> (String, Option<i32>) {
    let output = run(args, &[]);
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

/// Every listed command with its subcommands, from the reference.
fn commands() -> Vec<Vec<String>> {
    let dir = std::env::temp_dir().join(format!("trellis-grammar-{:?}", std::thread::current().id()));
    stdout(&["man", "--markdown", dir.to_str().unwrap()]);
    let page = std::fs::read_to_string(dir.join("cli.md")).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    let headings = page.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(" trellis"));
    headings.map(|rest| rest.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn the_help_has_the_commands_in_groups() {
    for option in ["-h", "--help"] {
        let help = stdout(&[option]);
        let places: Vec<usize> = GROUPS
            .iter()
            .map(|group| help.find(&format!("\n{group}\n")).unwrap_or_else(|| panic!("no {group}: {help}")))
            .collect();
        assert!(places.is_sorted(), "{help}");
        for command in commands().iter().filter(|command| command.len() == 1) {
            assert!(help.contains(&format!("  {}", command[0])), "no {command:?}: {help}");
        }
    }
    let help = stdout(&["--help"]);
    assert!(help.contains("  graphs        Check, plan, rehearse and amend graphs"), "{help}");
    assert!(help.contains("ps (runs list)") && !help.contains("\n  ps "), "{help}");
}

#[test]
fn the_summary_of_every_command_fits_a_screen() {
    let all = commands();
    assert!(all.len() > 80, "{all:?}");
    let mut wrong = Vec::new();
    for command in all {
        let args: Vec<&str> = command.iter().map(String::as_str).chain(["-h"]).collect();
        let help = stdout(&args);
        let widest = help.lines().map(|line| line.chars().count()).max().unwrap();
        if help.lines().count() > LINES || widest > COLUMNS {
            wrong.push(format!("{}: {} lines, {widest} columns", command.join(" "), help.lines().count()));
        }
        assert!(help.contains("trellis help connection") && !help.contains("--nats-url"), "{help}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_connection_options_have_a_page() {
    let page = stdout(&["help", "connection"]);
    for option in ["--url <URL>", "--nats-url", "--data <DIR>", "--log-json", "--token-file", "NATS_CREDS"] {
        assert!(page.contains(option), "no {option}: {page}");
    }
    assert_eq!(page, stdout(&["connection"]));
}

#[test]
fn old_and_short_names_are_aliases() {
    let same = [
        (&["graph", "validate"][..], &["graphs", "check"][..]),
        (&["graph", "plan"], &["graphs", "plan"]),
        (&["graph", "rehearse"], &["graphs", "rehearse"]),
        (&["graph", "amend"], &["graphs", "amend"]),
        (&["graph", "show"], &["graphs", "show"]),
        (&["budget", "raise"], &["budgets", "raise"]),
        (&["dead", "list"], &["dead-letters", "list"]),
        (&["schedule", "put"], &["schedules", "apply"]),
        (&["runs", "describe"], &["runs", "show"]),
        (&["agents", "describe"], &["agents", "show"]),
        (&["logs"], &["history"]),
    ];
    for (old, new) in same {
        assert_eq!(stdout(&[old, &["-h"]].concat()), stdout(&[new, &["-h"]].concat()), "{old:?}");
    }
    // A short command has the options of the long one, under its own name.
    let short = [
        ("ps", ["runs", "list"]),
        ("status", ["runs", "show"]),
        ("cancel", ["runs", "cancel"]),
        ("retry", ["runs", "rerun"]),
        ("questions", ["runs", "pending"]),
    ];
    for (short, long) in short {
        let options = |help: String| {
            let (_, usage) = help.split_once("\nUsage: ").unwrap();
            usage.split_once('\n').unwrap().1.trim_start().to_owned()
        };
        assert_eq!(options(stdout(&[short, "-h"])), options(stdout(&[long[0], long[1], "-h"])), "{short}");
    }
    assert_eq!(stdout(&["version"]), stdout(&["--version"]));
    // The worst case exceeds it, so the exit code is that of a refusal.
    let planned = |option: &str| run(&["graphs", "plan", "examples/research.yaml", option, "9"], &[]);
    assert_eq!(planned("--budget"), planned("--max-cost-usd"));
    let rehearsed = |option: &str| stdout(&["graphs", "rehearse", "examples/research.yaml", option, "0.02"]);
    assert_eq!(rehearsed("--spend"), rehearsed("--cost-usd"));
    let next = |option: &str| stdout(&["schedules", "next", "0 3 * * *", option, "2026-01-01"]);
    assert_eq!(next("--after"), next("--since"));
}

/// proves: a usage line has the command's own arguments, even if the environment sets others.
#[test]
fn a_usage_line_has_the_own_arguments_of_a_command() {
    let variables = [("TRELLIS_DATA", "/nonexistent"), ("TRELLIS_NAMESPACE", "a")];
    let said = String::from_utf8(run(&["run"], &variables).stderr).unwrap();
    assert!(said.contains("\nUsage: trellis run [OPTIONS] [FILE]\n"), "{said}");
    let said =
        String::from_utf8(run(&["runs", "cancel", "--all", "--child", "x"], &variables).stderr).unwrap();
    assert!(said.contains("\nUsage: trellis runs cancel [OPTIONS] [TRACE[/CHILD]]\n"), "{said}");
}

#[test]
fn yaml_is_the_same_value_as_json() {
    let said = |args: &[&str], format: &str| stdout(&[args, &["-o", format]].concat());
    for args in [
        &["graphs", "rehearse", "examples/race.yaml", "--events"][..],
        &["graphs", "plan", "examples/research.yaml"],
        &["graphs", "check", "examples/race.yaml", "examples/facts.yaml"],
        &["schedules", "next", "0 3 * * *", "--since", "2026-01-01"],
        &["schema", "spawn"],
        &["version"],
    ] {
        let json: Value = serde_json::from_str(&said(args, "json")).unwrap();
        let text = said(args, "yaml");
        let yaml: Value = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(yaml, json, "{args:?}");
        assert!(!text.starts_with(['{', '[']), "{text}");
    }
}

#[test]
fn errors_are_json_if_the_output_is() {
    let error = |args: &[&str]| {
        let (said, code) = stderr(args);
        let last = said.lines().last().unwrap_or_default();
        let error: Value = serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {said}"));
        (error, code)
    };
    for format in ["json", "yaml"] {
        let (found, code) = error(&["runs", "list", "-o", format]);
        let text = found["error"].as_str().unwrap();
        assert!(text.starts_with("this command needs a server") && !text.contains("hint"), "{found}");
        assert!(found["hint"].as_str().unwrap().contains("trellis run"), "{found}");
        assert_eq!((found["exit"].as_i64(), code), (Some(2), Some(2)), "{found}");

        let (found, code) = error(&["run", "--goal", "x", "--agent", "nobody", "-o", format]);
        assert!(found["code"].is_string() && found["error"].as_str().unwrap().contains("nobody"), "{found}");
        assert_eq!((found["exit"].as_i64(), code), (Some(3), Some(3)), "{found}");

        let (found, code) = error(&["-o", format, "rnu"]);
        assert!(found["error"].as_str().unwrap().contains("rnu"), "{found}");
        assert_eq!((found["exit"].as_i64(), code), (Some(2), Some(2)), "{found}");
    }
    let (said, _) = stderr(&["runs", "list"]);
    assert!(said.starts_with("error: ") && said.contains("\n\nhint: "), "{said}");
}
