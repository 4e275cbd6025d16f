//! Rows under a heading, in columns as wide as their longest cell. On a terminal that is too
//! narrow, only free texts are cut. If that is not enough, each row becomes a list of its cells. If
//! stdout is not a terminal, nothing is cut.

use crate::terminal::{colour, display, screen};

/// The columns of free text. Numbers, amounts, times, ids and states are never cut.
const FREE: [&str; 15] = [
    GOAL,
    "WHY",
    "LABELS",
    "DESCRIPTION",
    "POLICY",
    "NAME",
    "NAMES",
    "NEEDS",
    "USES",
    "WHAT",
    "BY",
    "SENT BY",
    "OF",
    "WORKER",
    "AGENT",
];
/// The fewest columns of a free text.
const LEAST: usize = 8;
/// Blanks between two columns.
const GAP: usize = 2;
const STATUS: &str = "STATUS";
const GOAL: &str = "GOAL";

/// The table for the current stdout.
pub(crate) fn show<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    fit(heading, rows, screen::columns_of_stdout())
}

/// The table with nothing cut.
pub(crate) fn whole<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    fit(heading, rows, None)
}

fn fit<const N: usize>(heading: [&str; N], rows: &[[String; N]], columns: Option<usize>) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| display::width(&row[column]));
        cells.chain([display::width(heading[column])]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..N).map(width).collect();
    if let Some(columns) = columns
        && !shrink(&heading, &mut widths, columns)
    {
        // The goals are shown elsewhere; without them the rest may fit.
        let goals = heading.iter().position(|name| *name == GOAL);
        goals.into_iter().for_each(|goals| widths[goals] = 0);
        if !shrink(&heading, &mut widths, columns) {
            return listed(heading, rows, columns);
        }
    }
    let line = |cells: &[&str], is_row: bool| {
        let mut line = String::new();
        for ((cell, width), name) in
            cells.iter().zip(&widths).zip(heading).filter(|((_, width), _)| **width > 0)
        {
            let cell = display::fit(cell, *width);
            let blanks = " ".repeat(width - display::width(&cell) + GAP);
            let shown = if is_row && name == STATUS { colour::status(&cell) } else { cell };
            line.push_str(&shown);
            line.push_str(&blanks);
        }
        format!("{}\n", line.trim_end())
    };
    let mut text = line(&heading, false);
    for row in rows {
        text.push_str(&line(&row.each_ref().map(String::as_str), true));
    }
    text
}

/// Narrows the widest columns of free text until the table fits. Returns false if it can't fit.
fn shrink(heading: &[&str], widths: &mut [usize], columns: usize) -> bool {
    loop {
        let shown = widths.iter().filter(|width| **width > 0).count();
        let total = widths.iter().sum::<usize>() + GAP * shown.saturating_sub(1);
        if total <= columns {
            return true;
        }
        let least = |column: usize| LEAST.max(display::width(heading[column]));
        let free = (0..widths.len()).filter(|column| FREE.contains(&heading[*column]));
        let widest =
            free.filter(|column| widths[*column] > least(*column)).max_by_key(|column| widths[*column]);
        let Some(widest) = widest else { return false };
        widths[widest] = least(widest).max(widths[widest].saturating_sub(total - columns));
    }
}

/// Each row as a list of its cells, for a terminal that has no room for columns.
fn listed<const N: usize>(heading: [&str; N], rows: &[[String; N]], columns: usize) -> String {
    let names = heading.iter().map(|name| display::width(name)).max().unwrap_or(0);
    let one = |row: &[String; N]| {
        let mut lines = String::new();
        for (name, cell) in heading.iter().zip(row).filter(|(_, cell)| !cell.is_empty()) {
            let room = columns.saturating_sub(names + GAP).max(LEAST);
            let cell = if FREE.contains(name) { display::fit(cell, room) } else { cell.clone() };
            let blanks = " ".repeat(names - display::width(name) + GAP);
            let cell = if *name == STATUS { colour::status(&cell) } else { cell };
            lines.push_str(&format!("{name}{blanks}{cell}\n"));
        }
        lines
    };
    rows.iter().map(one).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: [&str; 4] = ["STATUS", "COST", "TRACE", "GOAL"];

    fn rows() -> Vec<[String; 4]> {
        let row = |goal: &str| ["completed", "$0.014254 of $1.00", "0af7651916cd", goal].map(str::to_owned);
        vec![row("Find out how ants find their food, and write it down."), row("数える"), row("")]
    }

    #[test]
    fn g17_a_table_fits_and_only_free_text_is_cut() {
        for columns in [40, 46, 52, 60, 80, 200] {
            let text = fit(HEADING, &rows(), Some(columns));
            for line in text.lines() {
                assert!(display::width(line) <= columns, "{columns}: {line}");
            }
            assert_eq!(text.matches("$0.014254 of $1.00").count(), 3, "{columns}: {text}");
            assert_eq!(text.matches("0af7651916cd").count(), 3, "{columns}: {text}");
        }
        assert!(fit(HEADING, &rows(), Some(60)).contains("Find out how a…"));
        assert!(!fit(HEADING, &rows(), Some(46)).contains("GOAL"), "the rest fits without it");
        assert!(fit(HEADING, &rows(), Some(30)).starts_with("STATUS  completed\nCOST    $0.014254"));
        assert!(whole(HEADING, &rows()).contains("and write it down."));
    }

    #[test]
    fn g17_columns_are_aligned_for_all_letters() {
        let rows = [["数える", "1"], ["ab", "2"]].map(|row| row.map(str::to_owned));
        assert_eq!(fit(["NAME", "N"], &rows, Some(80)), "NAME    N\n数える  1\nab      2\n");
    }
}
