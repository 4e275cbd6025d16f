//! The lines of a file at which each part of a value is. Mistakes are shown with these lines.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use domain::{
    Problem, Problems,
    decode::Format,
    source_positions::{self, LinePlace, Lines},
    wire::Refusal,
};
use serde_json::{Value, json};

/// The format of a text.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Plain(Format),
    Toml,
    /// An option of the command line, which overrides the file.
    Option(&'static str),
}

/// The texts that a value was read from. Parts of one value may come from several files.
#[derive(Default)]
pub(crate) struct Sources(Vec<Source>);

struct Source {
    /// The path in the value at which the content of the text begins.
    at: String,
    /// The path in the text at which the value begins, if the value is only a part of the file.
    part: String,
    /// `None` for the file that the command names.
    file: Option<PathBuf>,
    text: Vec<u8>,
    form: Form,
}

impl Sources {
    pub(crate) fn of(text: Vec<u8>, form: Form) -> Self {
        Sources(vec![Source { at: String::new(), part: String::new(), file: None, text, form }])
    }

    /// Adds the texts of another file whose value was inserted at `at`.
    pub(crate) fn add(&mut self, at: &str, file: PathBuf, other: Sources) {
        for source in other.0 {
            let file = Some(source.file.unwrap_or_else(|| file.clone()));
            self.0.push(Source { at: join(at, &source.at), file, ..source });
        }
    }

    /// Adds a value that an option of the command line sets.
    pub(crate) fn option(&mut self, at: &str, name: &'static str) {
        let (part, text) = (String::new(), Vec::new());
        self.0.push(Source { at: at.to_owned(), part, file: None, text, form: Form::Option(name) });
    }

    /// Adds the lines of the mistakes to a refusal.
    pub(crate) fn locate(&self, mut refusal: Refusal) -> Refusal {
        let mut problems = Problems::default();
        for problem in &refusal.problems {
            problems.add(&problem.path, &problem.message, problem.hint.clone());
        }
        let mistakes = Mistakes::new(problems, self);
        for (problem, found) in &mistakes.found {
            if let Some(found) = found {
                let told = format!("{}: {}", problem.path, problem.message);
                let placed = if found.names(problem) { &problem.message } else { &told };
                refusal.message = refusal.message.replacen(&told, &format!("{found}{placed}"), 1);
            }
        }
        refusal
    }

    /// The same texts for one field of the value.
    pub(crate) fn within(mut self, part: &str) -> Self {
        for source in &mut self.0 {
            match source.at.strip_prefix(part).and_then(|rest| rest.strip_prefix('.')) {
                Some(rest) => source.at = rest.to_owned(),
                None => source.part = join(&source.part, part),
            }
        }
        self
    }
}

impl Source {
    fn lines(&self) -> Lines {
        match self.form {
            Form::Plain(format) => Lines::of(&self.text, format),
            Form::Toml => of_toml(&String::from_utf8_lossy(&self.text)),
            Form::Option(_) => Lines::default(),
        }
    }
}

/// All mistakes in a value, each with its place in a file.
#[derive(Clone, Default)]
pub(crate) struct Mistakes {
    /// Ordered by file and line.
    found: Vec<(Problem, Option<SourcePlace>)>,
    /// The number of mistakes beyond those in `found`.
    unlisted: usize,
}

#[derive(Clone)]
enum SourcePlace {
    Line { file: Option<PathBuf>, at: LinePlace },
    Option(&'static str),
}

impl SourcePlace {
    /// True if the place replaces the path of the problem: an option that sets the whole field.
    fn names(&self, problem: &Problem) -> bool {
        matches!(self, SourcePlace::Option(_)) && !problem.path.contains(['.', '['])
    }
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourcePlace::Line { file: Some(file), at } => write!(f, "{} line {}: ", file.display(), at.line),
            SourcePlace::Line { file: None, at } => write!(f, "line {}: ", at.line),
            SourcePlace::Option(name) => write!(f, "{name}: "),
        }
    }
}

impl Mistakes {
    pub(crate) fn new(problems: Problems, sources: &Sources) -> Self {
        let mut texts: Vec<(usize, &Source, Lines)> =
            sources.0.iter().enumerate().map(|(number, of)| (number, of, of.lines())).collect();
        // The innermost text comes first. At the same path a later text overrides an earlier one.
        texts.sort_by_key(|(number, source, _)| std::cmp::Reverse((source.at.len(), *number)));
        let find = |problem: &Problem| {
            texts.iter().find_map(|(number, source, lines)| {
                if !is_within(&problem.path, &source.at) {
                    return None;
                }
                if let Form::Option(name) = source.form {
                    return Some((*number, SourcePlace::Option(name)));
                }
                let rest = &problem.path[source.at.len()..];
                let at = lines.find(&join(&source.part, rest.strip_prefix('.').unwrap_or(rest)))?;
                Some((*number, SourcePlace::Line { file: source.file.clone(), at }))
            })
        };
        // A field that is missing in the whole value is reported at its first line.
        let whole = || {
            let (number, source, lines) = texts.last()?;
            Some((*number, SourcePlace::Line { file: source.file.clone(), at: lines.begin()? }))
        };
        let unlisted = problems.unlisted();
        let placed = problems.iter().map(|problem| (problem.clone(), find(problem).or_else(whole)));
        let mut placed: Vec<_> = placed.collect();
        placed.sort_by_key(|(_, found)| match found {
            None => (0, 0, 0),
            Some((number, SourcePlace::Line { at, .. })) => (number + 1, at.line, at.column),
            Some((number, SourcePlace::Option(_))) => (number + 1, 0, 0),
        });
        let found = placed.into_iter().map(|(problem, found)| (problem, found.map(|(_, found)| found)));
        Mistakes { found: found.collect(), unlisted }
    }

    /// The mistakes in a text that can't be parsed. The parser's message contains the line.
    pub(crate) fn of_syntax(problems: Problems) -> Self {
        let found = problems.iter().map(|problem| {
            let at = place_in(&problem.message);
            (problem.clone(), at.map(|at| SourcePlace::Line { file: None, at }))
        });
        Mistakes { found: found.collect(), unlisted: problems.unlisted() }
    }

    /// The same mistakes for a file that the command does not name.
    pub(crate) fn in_file(mut self, path: &Path) -> Self {
        for (_, found) in &mut self.found {
            if let Some(SourcePlace::Line { file, .. }) = found {
                file.get_or_insert_with(|| path.to_owned());
            }
        }
        self
    }

    /// Adds the mistakes of another file.
    pub(crate) fn extend(&mut self, more: &Mistakes) {
        self.found.extend(more.found.iter().cloned());
        self.unlisted += more.unlisted;
    }

    pub(crate) fn to_json(&self) -> Value {
        let all = self.found.iter().map(|(problem, found)| {
            let mut shown = json!(problem);
            match found {
                None => {}
                Some(SourcePlace::Option(name)) => shown["option"] = (*name).into(),
                Some(SourcePlace::Line { file, at }) => {
                    shown["line"] = at.line.into();
                    shown["column"] = at.column.into();
                    if let Some(file) = file {
                        shown["file"] = file.display().to_string().into();
                    }
                }
            }
            shown
        });
        all.collect()
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (problem, found)) in self.found.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match found {
                Some(found) if found.names(problem) => {
                    write!(f, "{found}{}", Problem { path: String::new(), ..problem.clone() })?;
                }
                Some(found) => write!(f, "{found}{problem}")?,
                None => write!(f, "{problem}")?,
            }
        }
        match self.unlisted {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// True if the paths are equal or `path` is within `above`.
pub(crate) fn is_within(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| above.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Reads the place from a parser's message: `… at line 3 column 5`.
fn place_in(message: &str) -> Option<LinePlace> {
    let number = |word: &str| {
        let rest = message.split(word).nth(1)?.trim_start();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    };
    let line = number("line ").filter(|line| *line > 0)?;
    Some(LinePlace { line, column: number("column ").unwrap_or(1) })
}

/// Joins a path to the path above it.
pub(crate) fn join(above: &str, path: &str) -> String {
    if path.is_empty() || path.starts_with('[') {
        format!("{above}{path}")
    } else {
        source_positions::field(above, path)
    }
}

fn of_toml(text: &str) -> Lines {
    let mut lines = Lines::default();
    lines.put(String::new(), LinePlace { line: 1, column: 1 });
    if let Ok(table) = toml::de::DeTable::parse(text) {
        let begins: Vec<usize> =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let place = |offset: usize| {
            let line = begins.partition_point(|begin| *begin <= offset);
            let column = text.get(begins[line - 1]..offset).map_or(0, |before| before.chars().count()) + 1;
            LinePlace { line, column }
        };
        of_table("", table.get_ref(), &place, &mut lines);
    }
    lines
}

fn of_table(at: &str, table: &toml::de::DeTable<'_>, place: &dyn Fn(usize) -> LinePlace, lines: &mut Lines) {
    for (key, value) in table {
        let path = source_positions::field(at, key.get_ref());
        lines.put(path.clone(), place(key.span().start));
        of_value(&path, value.get_ref(), place, lines);
    }
}

fn of_value(at: &str, value: &toml::de::DeValue<'_>, place: &dyn Fn(usize) -> LinePlace, lines: &mut Lines) {
    if let Some(elements) = value.as_array() {
        for (index, element) in elements.iter().enumerate() {
            let path = source_positions::element(at, index);
            lines.put(path.clone(), place(element.span().start));
            of_value(&path, element.get_ref(), place, lines);
        }
    } else if let Some(table) = value.as_table() {
        of_table(at, table, place, lines);
    }
}
