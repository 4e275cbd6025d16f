//! Long texts on a terminal, page by page: with the program in `PAGER`, or `less -FRX`. A text that
//! fits, or that goes to a file or a pipe, is printed directly.

use std::process::Stdio;

use anyhow::Context;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    cluster::connect::Servers,
    terminal::{
        colour, display, output,
        screen::{self, Size},
        signals::Signals,
    },
};

/// Prints a text, page by page if it does not fit the terminal. The directory is closed first, so
/// that other commands can open it while the user reads.
pub(crate) async fn print(text: &str, servers: &Servers) -> anyhow::Result<()> {
    match screen::of_stdout() {
        Some(size) if !fits(&colour::without(text), size) => {
            output::tell_closed(servers.close().await);
            page(text).await
        }
        Some(_) | None => output::print(text),
    }
}

/// True if the text and the prompt below it fit the terminal. A long line takes several rows.
fn fits(text: &str, size: Size) -> bool {
    let taken: usize = text.lines().map(|line| display::width(line).div_ceil(size.columns).max(1)).sum();
    taken < size.lines
}

async fn page(text: &str) -> anyhow::Result<()> {
    let mut command = match std::env::var_os("PAGER").filter(|pager| !pager.is_empty()) {
        Some(pager) => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(pager);
            shell
        }
        None => {
            let mut less = Command::new("less");
            less.arg("-FRX");
            less
        }
    };
    // Ctrl-C belongs to the pager while it runs.
    let _signals = Signals::listen()?;
    let Ok(mut pager) = command.stdin(Stdio::piped()).spawn() else { return output::print(text) };
    if let Some(mut stdin) = pager.stdin.take() {
        // A user who leaves the pager early closes the pipe. This is not an error.
        stdin.write_all(colour::printable(text).as_bytes()).await.ok();
        stdin.shutdown().await.ok();
    }
    pager.wait().await.context("could not wait for the pager")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_wrapped_takes_more_than_one() {
        let size = Size { columns: 10, lines: 4 };
        assert!(fits("a\nb\nc\n", size));
        assert!(!fits("a\nb\nc\nd\n", size));
        assert!(fits(&format!("{}\n", "x".repeat(30)), size));
        assert!(!fits(&format!("{}\n", "x".repeat(31)), size));
        assert!(!fits("\n\n\n\n", size));
    }
}
