//! Asks the user before an action that can't be undone.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::terminal::{display, ending::Ending, output, signals::Signals};

/// Returns `None` if the command may continue: at once with `--yes`, or if the user agrees at the
/// terminal. Returns the ending of the command if the user declines. Without a terminal, a missing
/// `--yes` is an error.
pub(crate) async fn asked(what: &str, yes: bool) -> anyhow::Result<Option<Ending>> {
    if yes {
        return Ok(None);
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        anyhow::bail!(
            "this {what}, which needs a confirmation, and stdin or stderr is not a terminal\n\nhint: add --yes"
        );
    }
    // Signals are caught before the question appears, so that a Ctrl-C at the question ends the
    // command as a no does.
    let mut signals = Signals::listen()?;
    std::io::stderr()
        .write_all(format!("this {}; continue? [y/N] ", display::printable(what)).as_bytes())
        .ok();
    let mut line = String::new();
    let mut stdin = BufReader::new(tokio::io::stdin());
    tokio::select! {
        read = stdin.read_line(&mut line) => { read.context("could not read stdin")?; }
        () = signals.next() => output::note(""),
    }
    if matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(None);
    }
    output::note("nothing was changed");
    Ok(Some(Ending::Left))
}
