//! The executable's file name does not matter: a worker starts its sandbox from the program it
//! runs, not from a path. So the file may be renamed, removed or replaced while the worker runs.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Arc,
};

use super::Directory;
use trellis_tests::processes::{binary, fresh_trace};

const AGENTS: &str =
    r#"[{agent_id: default, kind: command, command: [echo, '{"type": "result", "result": "it ran"}']}]"#;

/// The `trellis` binary under another name, and the file of its agents.
struct Renamed {
    binary: PathBuf,
    agents: PathBuf,
    _directory: Arc<Directory>,
}

impl Renamed {
    fn new(name: &str) -> Self {
        let directory = Directory::new();
        let (other, agents) = (directory.path().join(name), directory.path().join("agents.yaml"));
        // A hard link if possible: the file is large.
        fs::hard_link(binary(), &other).or_else(|_| fs::copy(binary(), &other).map(drop)).unwrap();
        fs::write(&agents, AGENTS).unwrap();
        Renamed { binary: other, agents, _directory: directory }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(args).arg("--agents").arg(&self.agents).env_clear();
        command
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("TRELLIS_LISTEN", "127.0.0.1:0");
        command
    }
}

#[track_caller]
fn assert_it_ran(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("it ran"), "{out}\n{err}");
}

#[test]
fn i4_a_binary_of_any_name_runs_programs() {
    let name = format!("agents-{}.bin", fresh_trace());
    let renamed = Renamed::new(&name);
    assert_it_ran(&renamed.command(&["run", "--goal", "x"]).output().unwrap());
}

#[test]
fn i4_a_binary_that_was_replaced_while_it_runs_still_runs_programs() {
    let renamed = Renamed::new("trellis");
    let mut command = renamed.command(&["dev"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The worker has started when this returns, but no program of an agent.
    let mut child = command.spawn().unwrap();
    fs::remove_file(&renamed.binary).unwrap();
    fs::write(&renamed.binary, "not a program").unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    assert_it_ran(&child.wait_with_output().unwrap());
}
