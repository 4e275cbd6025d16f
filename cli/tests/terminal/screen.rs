//! The screen that results from a program's output: lines wrap, scroll away, and are overwritten.

/// All lines that were ever on the screen, in their final state, beginning with those that scrolled
/// away.
pub(crate) fn show(written: &str, columns: usize, lines: usize) -> Vec<String> {
    let mut screen = Screen { columns, lines, rows: vec![Vec::new()], row: 0, column: 0 };
    let mut rest = written.chars();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => {
                let sequence: String = {
                    let mut taken = String::new();
                    for next in rest.by_ref() {
                        taken.push(next);
                        if next.is_ascii_alphabetic() {
                            break;
                        }
                    }
                    taken
                };
                screen.control(&sequence);
            }
            '\n' => screen.line(),
            '\r' => screen.column = 0,
            other => screen.put(other),
        }
    }
    screen.rows.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
}

struct Screen {
    columns: usize,
    lines: usize,
    /// All rows; the cursor can reach only the last `lines` of them.
    rows: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Screen {
    fn line(&mut self) {
        self.row += 1;
        if self.row == self.rows.len() {
            self.rows.push(Vec::new());
        }
    }

    fn put(&mut self, character: char) {
        if self.column == self.columns {
            self.column = 0;
            self.line();
        }
        let row = &mut self.rows[self.row];
        row.resize(row.len().max(self.column + 1), ' ');
        row[self.column] = character;
        self.column += 1;
    }

    fn control(&mut self, sequence: &str) {
        let top = self.rows.len().saturating_sub(self.lines);
        match sequence {
            "[J" => {
                self.rows.truncate(self.row + 1);
                self.rows[self.row].truncate(self.column);
            }
            up if up.ends_with('A') => {
                let count: usize = up[1..up.len() - 1].parse().unwrap();
                self.row = self.row.saturating_sub(count).max(top);
            }
            colour if colour.ends_with('m') => {}
            other => panic!("{other:?} is an unknown sequence"),
        }
    }
}
