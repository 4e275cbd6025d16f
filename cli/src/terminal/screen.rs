//! The terminal that stdout or stderr is, if it is one: how wide and high it is, and whether it shows colours.

use std::io::IsTerminal;

use terminal_size::{Height, Width, terminal_size_of};

/// The columns and lines of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) lines: usize,
}

/// What is assumed of a terminal that does not say its size.
const USUAL: Size = Size { columns: 80, lines: 24 };

/// The size of the terminal that stdout is; none if it is none, so that nothing is cut there.
pub(crate) fn of_stdout() -> Option<Size> {
    let stdout = std::io::stdout();
    stdout.is_terminal().then(|| size(terminal_size_of(stdout)))
}

/// The columns of that terminal.
pub(crate) fn columns_of_stdout() -> Option<usize> {
    of_stdout().map(|size| size.columns)
}

/// The same of stderr.
pub(crate) fn of_stderr() -> Option<Size> {
    let stderr = std::io::stderr();
    stderr.is_terminal().then(|| size(terminal_size_of(stderr)))
}

fn size(told: Option<(Width, Height)>) -> Size {
    match told {
        Some((Width(columns), Height(lines))) if columns > 0 && lines > 0 => {
            Size { columns: columns.into(), lines: lines.into() }
        }
        Some(_) | None => USUAL,
    }
}
