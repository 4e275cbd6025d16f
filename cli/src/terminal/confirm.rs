//! Asks the user before what can't be taken back.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::terminal::{display, ending::Ending, output, signals::Signals};

/// Whether to go on: with `--yes` at once, at a terminal if the user says so. The ending, if the user does not. Where nobody can be
/// asked, it is wrong usage to leave `--yes` out.
pub(crate) async fn asked(what: &str, yes: bool) -> anyhow::Result<Option<Ending>> {
    if yes {
        return Ok(None);
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        anyhow::bail!(
            "this {what}, and nobody can be asked, because stdin or stderr is no terminal\n\nhint: add --yes"
        );
    }
    // Before the question is seen: a Ctrl-C that answers it ends the command as a no does.
    let mut signals = Signals::listen()?;
    std::io::stderr().write_all(format!("this {}; go on? [y/N] ", display::printable(what)).as_bytes()).ok();
    let mut line = String::new();
    let mut stdin = BufReader::new(tokio::io::stdin());
    tokio::select! {
        read = stdin.read_line(&mut line) => { read.context("could not read stdin")?; }
        () = signals.next() => output::note(""),
    }
    if matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(None);
    }
    output::note("nothing was done");
    Ok(Some(Ending::Left))
}
