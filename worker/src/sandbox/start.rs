//! Programs, as the worker sees them: reads a program's output line by line, and writes its input.

use std::{process::ExitStatus, sync::Arc};

use domain::wire::SandboxReport;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStderr, ChildStdin, ChildStdout},
};

use super::{
    handoff::{HelperMessage, Policy},
    helper::{Helper, LaunchedSandbox, NotStarted, Sandbox},
};
use crate::{files::workspace::Workspace, secret::Redactor};

/// The longest line that a program may write.
pub(crate) const MAX_LINE_BYTES: usize = 1 << 20;
/// The most bytes that are kept of the end of its standard error.
const STDERR_TAIL_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 16 << 10;

/// The next event of a program.
#[derive(Debug)]
pub(crate) enum Event {
    /// One line of its standard output, with its line feed if it had one.
    Line(Vec<u8>),
    /// It wrote more than [`MAX_LINE_BYTES`] without a line feed.
    TooLong,
    Ended(ExitStatus),
}

/// A program in its sandbox. It ends when this is dropped, and its workspace stays until then.
#[derive(Debug)]
pub(crate) struct Program {
    helper: Helper,
    input: Option<ChildStdin>,
    /// The bytes that are still to be written to its standard input.
    unwritten: Vec<u8>,
    /// True if its standard input is closed after `unwritten`.
    input_complete: bool,
    output: Option<ChildStdout>,
    /// The bytes of its standard output that were not returned as a line yet.
    unread: Vec<u8>,
    errors: Option<ChildStderr>,
    /// The end of its standard error.
    stderr_tail: Vec<u8>,
    pub(crate) report: SandboxReport,
}

impl Program {
    pub(crate) async fn start(
        sandbox: &Sandbox,
        policy: Policy,
        workspace: Arc<Workspace>,
    ) -> Result<Self, NotStarted> {
        let LaunchedSandbox { helper, input, output, errors, read, report } =
            sandbox.launch(policy, Some(workspace)).await?;
        Ok(Program {
            helper,
            input: Some(input),
            unwritten: Vec::new(),
            input_complete: false,
            output: Some(output),
            unread: Vec::new(),
            errors: Some(errors),
            stderr_tail: read,
            report,
        })
    }

    /// Queues a line for its standard input; [`Program::event`] writes it.
    pub(crate) fn send_line(&mut self, line: &[u8]) {
        if self.input.is_some() {
            self.unwritten.extend_from_slice(line);
            self.unwritten.push(b'\n');
        }
    }

    /// Closes its standard input after the lines already queued.
    pub(crate) fn close_input(&mut self) {
        self.input_complete = true;
    }

    /// Waits for the next event. Cancel safe: a dropped call loses nothing.
    pub(crate) async fn event(&mut self) -> Event {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                return Event::Line(self.unread.drain(..=end).collect());
            }
            if self.unread.len() > MAX_LINE_BYTES {
                return Event::TooLong;
            }
            if self.output.is_none() && !self.unread.is_empty() {
                return Event::Line(std::mem::take(&mut self.unread));
            }
            if self.input_complete && self.unwritten.is_empty() {
                self.input = None;
            }
            let (writes, reads) = (self.input.is_some() && !self.unwritten.is_empty(), self.output.is_some());
            let reads_errors = self.errors.is_some();
            tokio::select! {
                () = read(&mut self.output, &mut self.unread), if reads => {}
                () = read(&mut self.errors, &mut self.stderr_tail), if reads_errors => {
                    let over = self.stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES);
                    self.stderr_tail.drain(..over);
                }
                () = write(&mut self.input, &mut self.unwritten), if writes => {}
                ended = self.helper.next(!reads && !reads_errors) => {
                    if let Some(status) = ended {
                        return Event::Ended(status);
                    }
                }
            }
        }
    }

    /// Waits until it has ended with all its processes, and discards its output.
    pub(crate) async fn drain(&mut self) {
        loop {
            self.unread.clear();
            if let Event::Ended(_) = self.event().await {
                return;
            }
        }
    }

    /// Sends SIGTERM to every process of the program, and SIGKILL two seconds later.
    pub(crate) fn terminate(&mut self) {
        self.helper.terminate();
    }

    /// The limit that it exceeded, if the sandbox killed it for that.
    pub(crate) fn exceeded(&self) -> Option<String> {
        if self.helper.ran_out_of_memory() {
            return Some("its processes needed more memory together than they may have".into());
        }
        self.messages().find_map(|message| match message {
            HelperMessage::Exceeded(reason) => Some(reason),
            HelperMessage::Ready(_)
            | HelperMessage::Refused(_)
            | HelperMessage::Unable(..)
            | HelperMessage::Passing(_)
            | HelperMessage::Broken(_) => None,
        })
    }

    /// The reason why the program could not be started, if that failed.
    pub(crate) fn broken(&self) -> Option<String> {
        self.messages().find_map(|message| match message {
            HelperMessage::Broken(why) | HelperMessage::Passing(why) => Some(why),
            HelperMessage::Ready(_)
            | HelperMessage::Refused(_)
            | HelperMessage::Unable(..)
            | HelperMessage::Exceeded(_) => None,
        })
    }

    fn messages(&self) -> impl Iterator<Item = HelperMessage> {
        self.stderr_tail.split(|byte| *byte == b'\n').filter_map(HelperMessage::parse)
    }

    /// The last lines of its standard error.
    pub(crate) fn last_error_lines(&self, lines: usize, redactor: &Redactor) -> String {
        let text = redactor.tail(&self.stderr_tail, self.stderr_tail.len() >= STDERR_TAIL_BYTES);
        let all: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}

/// Reads some more of a stream, and sets it to `None` at its end. Cancel safe.
async fn read(stream: &mut Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(open) = stream else { return };
    into.reserve(READ_BYTES);
    if !matches!(open.read_buf(into).await, Ok(read) if read > 0) {
        *stream = None;
    }
}

/// Writes some more of the queued input. A program that closed its input gets no more.
async fn write(stream: &mut Option<ChildStdin>, from: &mut Vec<u8>) {
    let Some(open) = stream else { return };
    match open.write(from).await {
        Ok(written) => {
            from.drain(..written);
        }
        Err(_) => *stream = None,
    }
}
