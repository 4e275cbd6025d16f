//! A table in a file format: CSV for spreadsheets, Markdown for reports.

use crate::terminal::display;

/// Rows as CSV (RFC 4180). A spreadsheet would evaluate a text that begins like a formula, so such
/// a text gets an apostrophe.
pub(crate) fn csv<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let mut out = line(heading.map(str::to_owned).as_ref());
    rows.iter().for_each(|row| out.push_str(&line(row)));
    out
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| csv_cell(cell)).collect();
    format!("{}\r\n", cells.join(","))
}

fn csv_cell(cell: &str) -> String {
    let is_number =
        !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && !is_number;
    let cell = display::flat(cell);
    let cell = if is_formula { format!("'{cell}") } else { cell };
    if cell.contains([',', '"']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

/// Rows as a Markdown table.
pub(crate) fn markdown<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let cell = |cell: &str| display::flat(cell).replace('\\', "\\\\").replace('|', "\\|");
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = line(heading.iter().map(|name| cell(name)).collect());
    out.push_str(&line(vec!["---".into(); N]));
    rows.iter().for_each(|row| out.push_str(&line(row.iter().map(|text| cell(text)).collect())));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_a_formula_or_another_cell() {
        let row = ["=1+1".to_owned(), "-0.05".to_owned(), "a,\"b\"\nc".to_owned()];
        assert_eq!(csv(["A", "B", "C"], &[row]), "A,B,C\r\n'=1+1,-0.05,\"a,\"\"b\"\" c\"\r\n");
        assert_eq!(markdown(["A"], &[["x|y".to_owned()]]), "| A |\n| --- |\n| x\\|y |\n");
    }
}
