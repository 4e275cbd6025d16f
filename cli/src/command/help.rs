//! The help of the commands: the first page with its groups, usage lines without the connection
//! options, and a page of their own for those. It is only built when help or an error is printed.

use std::fmt::Write as _;

use clap::{Arg, Command, builder::StyledStr};

/// Commands under a heading of the first page.
pub(crate) struct Group {
    pub(crate) heading: &'static str,
    pub(crate) commands: &'static [&'static str],
    /// False if the summary (`-h`) lists only the names, so that it fits on a screen.
    described: bool,
}

/// The group of every listed command.
pub(crate) const GROUPS: [Group; 6] = [
    Group { heading: "Run", commands: &["run", "submit", "dev"], described: true },
    Group {
        heading: "Look",
        commands: &["runs", "result", "history", "outputs", "trace", "events"],
        described: true,
    },
    Group { heading: "Money", commands: &["budgets", "receipt", "charge", "audit"], described: true },
    Group { heading: "Steer", commands: &["answer", "tell"], described: true },
    Group { heading: "Define", commands: &["graphs", "agents", "schedules"], described: true },
    Group {
        heading: "Operate",
        commands: &[
            "page",
            "doctor",
            "workers",
            "dead-letters",
            "admin-log",
            "webhooks",
            "coordinator",
            "worker",
            "gateway",
            "provision",
            "auth",
            "schema",
            "completions",
        ],
        described: false,
    },
];

/// The global options that are not connection options.
const OF_EVERY_COMMAND: [&str; 2] = ["output", "quiet"];
/// The name of the page of the connection options: `trellis help connection`.
const CONNECTION: &str = "connection";
/// The last line of every help.
const POINTER: &str = "`trellis help connection` has the options of servers, credentials and logs.";
/// The aliases, with the commands that they are short for.
const SHORT_NAMES: &str =
    "Short: ps (runs list), status (show), cancel, retry (rerun), questions (pending), logs (history).";
const TEMPLATE: &str =
    "{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}\n";
/// The columns of the list of commands.
const COLUMNS: usize = 96;

/// True for the options of servers, credentials and logs.
pub(crate) fn is_connection(arg: &Arg) -> bool {
    arg.is_global_set() && !OF_EVERY_COMMAND.contains(&arg.get_id().as_str())
}

/// The page of the connection options.
pub(crate) fn connection(command: Command) -> StyledStr {
    let mut command = decorated(command);
    command.build();
    command.find_subcommand_mut(CONNECTION).map(Command::render_long_help).unwrap_or_default()
}

/// The commands with the help that users see.
pub(crate) fn decorated(command: Command) -> Command {
    let mut built = command.clone();
    built.build();
    let connection = command.get_arguments().filter(|arg| is_connection(arg)).cloned();
    let connection: Vec<Arg> =
        connection.map(|arg| arg.global(false).hide(false).hide_short_help(false)).collect();
    let listed = |is_short| list(&built, is_short);
    let (short, long) = (listed(true), listed(false));
    let command = command.mut_args(|arg| match is_connection(&arg) {
        true => arg.hide(true),
        false => arg,
    });
    let command = pages(command, &built);
    let command = command.mut_subcommand(CONNECTION, |page| {
        page.args(connection).help_template("{about-with-newline}\n{all-args}")
    });
    let examples = built.get_after_help().map(ToString::to_string).unwrap_or_default();
    command
        .help_template(TEMPLATE)
        .before_help(short)
        .before_long_help(long)
        .after_help(format!("{SHORT_NAMES}\n\n{POINTER}"))
        .after_long_help(format!("{SHORT_NAMES}\n\n{}\n\n{POINTER}", examples.trim_end()))
}

/// Sets the usage line and the last lines of a command and its subcommands. `built` is the same
/// command with its full name.
fn pages(command: Command, built: &Command) -> Command {
    let usage = built.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let after = built.get_after_help().map(ToString::to_string).unwrap_or_default();
    // The summary has no exit codes, so that it fits on a screen.
    let short = after.split("Exit codes:").next().unwrap_or_default();
    let ends = |text: &str| match text.trim_end() {
        "" => POINTER.to_owned(),
        text => format!("{text}\n\n{POINTER}"),
    };
    command.override_usage(usage).after_help(ends(short)).after_long_help(ends(&after)).mut_subcommands(
        |inner| match built.find_subcommand(inner.get_name()) {
            Some(built) => pages(inner, built),
            None => inner,
        },
    )
}

/// The listed commands in their groups.
fn list(built: &Command, is_short: bool) -> StyledStr {
    let header = built.get_styles().get_header();
    let literal = built.get_styles().get_literal();
    let width = GROUPS.iter().flat_map(|group| group.commands).map(|name| name.len()).max().unwrap_or(0);
    let mut text = StyledStr::new();
    for (number, group) in GROUPS.iter().enumerate() {
        let gap = if number > 0 && !is_short { "\n" } else { "" };
        let _ = writeln!(text, "{gap}{header}{}:{header:#}", group.heading);
        if is_short && !group.described {
            let _ = write!(text, "{}", rows(group.commands));
            continue;
        }
        for name in group.commands {
            let inner = built.find_subcommand(name).expect("the name of a command");
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            let about = cut(&about, COLUMNS - width - 4);
            let _ = writeln!(text, "  {literal}{name:<width$}{literal:#}  {about}");
        }
    }
    text
}

/// The names alone, on as few lines as they need.
fn rows(names: &[&str]) -> String {
    let mut lines = vec![String::new()];
    for name in names {
        if lines.last().is_some_and(|line| line.len() + name.len() + 2 > COLUMNS) {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str("  ");
            line.push_str(name);
        }
    }
    lines.join("\n") + "\n"
}

/// The part of a text before its first colon or comma that fits, or the whole text if it fits.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let fits = |at: &usize| text[..*at].chars().count() <= columns;
    let end = text.match_indices([':', ',', ';', '.']).map(|(at, _)| at).rfind(fits);
    text[..end.unwrap_or(text.len())].to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::command::cli::Cli;

    #[test]
    fn every_listed_command_is_in_one_group() {
        let command = Cli::command();
        let listed = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        let listed: BTreeSet<&str> = listed.map(Command::get_name).collect();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|group| group.commands).copied().collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), listed);
        assert_eq!(grouped.len(), listed.len());
    }

    #[test]
    fn the_decorated_command_is_sound() {
        decorated(Cli::command()).debug_assert();
    }
}
