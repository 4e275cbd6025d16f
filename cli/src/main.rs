//! The `trellis` binary: reads the command line and the environment, runs the command, and turns
//! its ending into the exit code. Data goes to stdout, all else to stderr.

mod cluster;
mod command;
mod input;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::{
    cluster::failure::{self, Denied, Unreachable},
    command::{
        cli::{self, Cli, Command},
        completions, help,
    },
    terminal::{
        ending::{REFUSED, UNREACHABLE, WRONG_USAGE},
        output::{self, Format},
    },
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reports a usage error as the argument parser does, or as JSON if the log or the output is JSON.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    let format = Format::of_arguments(std::env::args_os());
    let is_log = std::env::args_os().any(|argument| argument == "--log-json");
    if !error.use_stderr() || !(is_log || matches!(format, Format::Json | Format::Yaml)) {
        error.exit();
    }
    output::use_format(format);
    if is_log {
        output::log_json();
    }
    let text = error.to_string();
    output::error_with(text.trim().trim_start_matches("error: "), None, Some(WRONG_USAGE));
    ExitCode::from(WRONG_USAGE)
}

fn main() -> ExitCode {
    // This is the first TLS provider of the process; an error would only mean that one is already
    // installed.
    rustls::crypto::ring::default_provider().install_default().ok();
    completions::answer(Cli::command);
    let keys = worker::take_keys();
    let Cli { output, log_json, quiet, mut servers, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        // The help and the errors come from the decorated commands, which parse the same arguments.
        Err(error) => {
            let error = help::decorated(Cli::command()).try_get_matches().err().unwrap_or(error);
            return wrong_usage(&error);
        }
    };
    output::use_format(output);
    if log_json {
        output::log_json();
    }
    if quiet {
        output::be_quiet();
    }
    if let Err(error) = keys {
        output::note(&format!("warning: the keys of this process could not be read: {error}"));
    }
    servers.take_handed();
    if !matches!(command, Command::Sandbox { .. }) {
        if let Err(error) = worker::protect_process() {
            output::note(&format!("warning: the memory of this process could not be protected: {error}"));
        }
        // This precedes the first connection, because the client's own log names the address with
        // its login.
        worker::hide_in_log(&servers.secret_files());
    }
    let ended = match command {
        // The sandbox changes the process, so it must start before any thread.
        Command::Sandbox { stage, told } => return worker::enter_sandbox(stage.as_deref(), &told),
        Command::Offline(command) => {
            output.output().and_then(|output| cli::run_offline(command, &servers, output))
        }
        Command::Short(short) => cli::run_online(short.command(), &servers, output, log_json),
        Command::Online(command) => cli::run_online(*command, &servers, output, log_json),
    };
    match ended {
        Ok(ending) => ending.into(),
        // The reader of our output closed it, as `head` does. This is not an error.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let error = failure::explained(error);
            let exit = if error.is::<Unreachable>() {
                UNREACHABLE
            } else if error.is::<Denied>() {
                REFUSED
            } else {
                WRONG_USAGE
            };
            output::error_with(&format!("{error:#}"), None, Some(exit));
            ExitCode::from(exit)
        }
    }
}
