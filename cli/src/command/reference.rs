//! `trellis man --markdown`: the reference of the command line for the book, from the same
//! definitions as the help. A test compares docs/reference with it.

use std::path::Path;

use anyhow::Context as _;
use clap::{Arg, Command};

use crate::{command::help::GROUPS, terminal::ending::Ending};

/// The processes of a deployment, whose options are settings.
const PROCESSES: [&str; 4] = ["coordinator", "worker", "gateway", "dev"];

/// Writes two files into a directory: cli.md with every command, and settings.md with the options
/// of the processes.
pub(crate) fn run(mut command: Command, dir: &Path) -> anyhow::Result<Ending> {
    command.build();
    let mut commands = String::new();
    section(&command, "trellis", 2, &mut commands);
    for group in &GROUPS {
        commands.push_str(&format!("## {}\n\n", group.heading));
        for name in group.commands {
            let inner = command.find_subcommand(name).expect("the name of a command");
            sections(inner, &format!("trellis {name}"), &mut commands);
        }
    }
    let mut settings = table("Everywhere", command.get_arguments().filter(|arg| arg.is_global_set()));
    for name in PROCESSES {
        let process = command.find_subcommand(name).expect("the name of a command");
        let own = process.get_arguments().filter(|arg| !arg.is_global_set());
        settings.push_str(&table(&format!("`trellis {name}`"), own));
    }
    for (name, text) in [("cli.md", commands), ("settings.md", settings)] {
        let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(dir.join(name), text));
        written.with_context(|| format!("the reference could not be written to {}", dir.display()))?;
    }
    Ok(Ending::Completed)
}

/// Writes a command and all its subcommands.
fn sections(command: &Command, name: &str, page: &mut String) {
    section(command, name, 3, page);
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
    {
        sections(inner, &format!("{name} {}", inner.get_name()), page);
    }
}

/// Writes a command under a heading of a level.
fn section(command: &Command, name: &str, level: usize, page: &mut String) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().bin_name(name).render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    page.push_str(&format!("{} {name}\n\n{}\n\n```text\n{usage}\n```\n\n", "#".repeat(level), words(&about)));
    let is_root = name == "trellis";
    let shown = |arg: &&Arg| is_shown(arg) && (is_root || !arg.is_global_set());
    page.push_str(&rows(command.get_arguments().filter(shown)));
    if let Some(after) = command.get_after_help() {
        page.push_str(&format!("```text\n{}\n```\n\n", after.to_string().trim_end()));
    }
}

fn is_shown(arg: &Arg) -> bool {
    !["help", "version"].contains(&arg.get_id().as_str()) && (!arg.is_hide_set() || arg.get_env().is_some())
}

fn table<'a>(title: &str, args: impl Iterator<Item = &'a Arg>) -> String {
    format!("## {title}\n\n{}", rows(args.filter(|arg| is_shown(arg))))
}

fn rows<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let rows: String = args.map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    format!("| option | variable | default | meaning |\n|---|---|---|---|\n{rows}\n")
}

fn row(arg: &Arg) -> String {
    let values = || arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string);
    let takes = arg.get_action().takes_values();
    let value: String = values().filter(|_| takes).map(|name| format!(" {name}")).collect();
    let name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}{value}`"),
        (None, Some(long)) => format!("`--{long}{value}`"),
        (Some(short), None) => format!("`-{short}{value}`"),
        (None, None) => format!("`{}`", value.trim_start()),
    };
    let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .filter(|value| takes && !value.is_empty())
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| takes && !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let one_of = if choices.is_empty() { String::new() } else { format!(": {}", choices.join(", ")) };
    let cells = [name, variable, defaults.join(", "), format!("{}{one_of}", words(&help))];
    let cells = cells.map(|cell| cell.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" "));
    format!("| {} |\n", cells.join(" | "))
}

/// Converts a help text to Markdown. Outside of code, `<`, `*` and `_` are escaped.
fn words(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let kept = parts.map(|(number, part)| match number % 2 {
        0 => part.replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_"),
        _ => part.to_owned(),
    });
    kept.collect::<Vec<_>>().join("`")
}
