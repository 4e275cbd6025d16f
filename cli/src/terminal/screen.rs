//! The terminal of stdout or stderr, if there is one: its width and height.

use std::io::IsTerminal;

use terminal_size::{Height, Width, terminal_size_of};

/// The columns and lines of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) lines: usize,
}

/// The assumed size of a terminal that does not report one.
const USUAL: Size = Size { columns: 80, lines: 24 };

/// The size of stdout's terminal; `None` if stdout is not a terminal, so that nothing is cut.
pub(crate) fn of_stdout() -> Option<Size> {
    let stdout = std::io::stdout();
    stdout.is_terminal().then(|| size(terminal_size_of(stdout)))
}

/// The columns of stdout's terminal.
pub(crate) fn columns_of_stdout() -> Option<usize> {
    of_stdout().map(|size| size.columns)
}

/// The size of stderr's terminal; `None` if stderr is not a terminal.
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
