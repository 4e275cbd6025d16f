//! `trellis completions`: a script that completes commands in a shell. The script calls this
//! program for the candidates: commands and options, and the cluster's run ids and agent names.

use std::{
    any::TypeId,
    ffi::OsStr,
    io::Read,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::Context;
use clap_complete::{
    CompleteEnv,
    engine::{ArgValueCompleter, CompletionCandidate},
    env::Shells,
};
use domain::{AgentId, TraceId, wire::ContextStatus};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    input::context_ref::{RunRef, WrittenRef},
    terminal::{ending::Ending, output},
};

/// The variable that the script sets when it asks for candidates.
const ASKED: &str = "TRELLIS_COMPLETE";
/// The time in which the cluster must answer. The user has pressed a key and waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// If the script asks, answers it and ends the process.
pub(crate) fn answer(command: fn() -> clap::Command) {
    CompleteEnv::with_factory(|| completed(command())).var(ASKED).complete();
}

/// Prints the script for a shell.
pub(crate) fn script(shell: clap_complete::Shell) -> anyhow::Result<Ending> {
    let shells = Shells::builtins();
    let shell = shells.completer(&shell.to_string()).context("this shell can't be completed")?;
    let mut script = Vec::new();
    shell.write_registration(ASKED, "trellis", "trellis", "trellis", &mut script)?;
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Ending::Completed)
}

/// Adds completers to the arguments of a command, by the types of their values.
fn completed(command: clap::Command) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| command.mut_subcommand(name, completed));
    command.mut_args(|arg| {
        let is = |id: TypeId| arg.get_value_parser().type_id() == id;
        if is(TypeId::of::<RunRef>()) || is(TypeId::of::<WrittenRef>()) {
            arg.add(ArgValueCompleter::new(runs))
        } else if is(TypeId::of::<AgentId>()) {
            arg.add(ArgValueCompleter::new(agents))
        } else {
            arg
        }
    })
}

#[derive(Deserialize)]
struct Page {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    trace_id: TraceId,
    goal: Option<String>,
    status: ContextStatus,
}

/// The newest runs, each with its status and goal.
fn runs(begins: &OsStr) -> Vec<CompletionCandidate> {
    let page: Option<Page> = ask(&["runs", "list", "--limit", "50", "--output", "json"]);
    let runs = page.map(|page| page.runs).unwrap_or_default();
    let candidate = |run: &Run| {
        let goal: String = run.goal.iter().flat_map(|goal| goal.chars().take(40)).map(plain).collect();
        let about = format!("{} {goal}", run.status.name());
        CompletionCandidate::new(run.trace_id.to_string()).help(Some(about.trim_end().to_owned().into()))
    };
    let last = CompletionCandidate::new("@last").help(Some("the newest run".into()));
    let all = runs.iter().map(candidate).chain([last]);
    all.filter(|candidate| fits(candidate, begins)).collect()
}

#[derive(Deserialize)]
struct Agent {
    agent_id: AgentId,
}

fn agents(begins: &OsStr) -> Vec<CompletionCandidate> {
    let agents: Vec<Agent> = ask(&["agents", "list", "--output", "json"]).unwrap_or_default();
    let all = agents.iter().map(|agent| CompletionCandidate::new(agent.agent_id.to_string()));
    all.filter(|candidate| fits(candidate, begins)).collect()
}

fn fits(candidate: &CompletionCandidate, begins: &OsStr) -> bool {
    candidate.get_value().as_encoded_bytes().starts_with(begins.as_encoded_bytes())
}

/// Replaces a control character, which could change the terminal.
fn plain(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

/// The JSON output of this program for the arguments, if it arrives within `PATIENCE`.
fn ask<T: DeserializeOwned>(arguments: &[&str]) -> Option<T> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command
        .args(arguments)
        .env_remove(ASKED)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut asked = command.spawn().ok()?;
    let mut says = asked.stdout.take()?;
    let (told, heard) = mpsc::channel();
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = says.read_to_end(&mut text);
        told.send(read.map(|_| text)).ok();
    });
    let text = heard.recv_timeout(PATIENCE);
    asked.kill().ok();
    asked.wait().ok();
    serde_json::from_slice(&text.ok()?.ok()?).ok()
}
