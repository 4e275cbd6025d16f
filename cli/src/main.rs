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
        completions,
    },
    terminal::{
        ending::{Ending, WRONG_USAGE},
        output,
    },
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reports a usage error as the argument parser does, or as a line of the log if the log is JSON.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || !std::env::args_os().any(|argument| argument == "--log-json") {
        error.exit();
    }
    output::log_json();
    let text = error.to_string();
    output::error(text.trim().trim_start_matches("error: "));
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
        Err(error) => return wrong_usage(&error),
    };
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
            output.output().and_then(|output| cli::run_offline(command, &servers, output, log_json))
        }
        Command::Online(command) => cli::run_online(*command, &servers, output, log_json),
    };
    match ended {
        Ok(ending) => ending.into(),
        // The reader of our output closed it, as `head` does. This is not an error.
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let error = failure::explained(error);
            output::error(&format!("{error:#}"));
            if error.is::<Unreachable>() {
                return Ending::Unreachable.into();
            }
            if error.is::<Denied>() {
                return Ending::Refused.into();
            }
            ExitCode::from(WRONG_USAGE)
        }
    }
}
