//! One process of the cluster.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::{
        signal::{self, Signal},
        wait::{self, WaitPidFlag, WaitStatus},
    },
    unistd::Pid,
};

/// The lines of a log that are shown when a test fails.
const SHOWN_LINES: usize = 40;

#[derive(Debug)]
pub(super) struct Node {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    child: Option<Child>,
}

impl Node {
    pub(super) fn new(dir: &Path, name: &str, arguments: &[&str], environment: &[(String, String)]) -> Self {
        let program = binary();
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        let log = dir.join(format!("{name}.log"));
        let environment = environment.to_vec();
        Node { name: name.to_owned(), program, arguments, environment, log, child: None }
    }

    /// Replaces the program from the next start on.
    pub(super) fn become_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    pub(super) fn run(&mut self, flags: &[&str]) {
        assert!(!self.is_running(), "{} runs already", self.name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .expect("the test created the directory");
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .args(flags)
            .current_dir(repository())
            .env_clear()
            .env("RUST_LOG", std::env::var_os("TRELLIS_TEST_LOG").unwrap_or_else(|| "info".into()))
            .envs(self.environment.iter().cloned())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap_or_else(|error| panic!("{} did not start: {error}", self.name)));
    }

    pub(super) fn is_running(&mut self) -> bool {
        let Some(child) = &mut self.child else { return false };
        if child.try_wait().expect("the test started the process").is_some() {
            self.child = None;
        }
        self.child.is_some()
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the test started the process");
            child.wait().expect("the test started the process");
        }
    }

    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    pub(super) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        // The signal is sent, but may not have reached every thread yet.
        let stopped = wait::waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED));
        assert!(matches!(stopped, Ok(WaitStatus::Stopped(..))), "{}: {stopped:?}", self.name);
    }

    pub(super) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        signal::kill(self.pid(), signal).expect("the test started the process");
    }

    pub(super) fn pid(&self) -> Pid {
        let child = self.child.as_ref().unwrap_or_else(|| panic!("{} does not run", self.name));
        Pid::from_raw(i32::try_from(child.id()).expect("a pid fits"))
    }

    pub(super) fn read_log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    #[expect(clippy::print_stderr, reason = "a failed test prints the log")]
    pub(super) fn show_log(&self) {
        let text = self.read_log();
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
        eprintln!("---- the end of the log of {} ({} lines)\n{}", self.name, lines.len(), shown.join("\n"));
    }
}

/// The root of the repository, where the paths of the examples begin.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in it")
}

/// The `trellis` binary, in the directory above the test's own executable.
pub fn binary() -> PathBuf {
    let own = std::env::current_exe().expect("a process knows its executable");
    let profile = own.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let path = profile.join("trellis");
    assert!(path.exists(), "no {}\n\nhint: run `cargo build -p trellis` first", path.display());
    path
}
