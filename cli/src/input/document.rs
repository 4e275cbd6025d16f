//! The content of a file as a JSON value with line numbers, or the mistakes that make the file
//! unusable.

use std::path::Path;

use domain::{
    Problems,
    decode::{self, Format},
    graph::{self, Plan, TaskGraph},
};
use serde_json::{Value, json};

use crate::{
    input::sources::{Mistakes, Sources, is_within},
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

/// The content of a file.
pub(crate) struct Document {
    pub(crate) value: Value,
    pub(crate) sources: Sources,
    pub(crate) unread: UnreadableGraphs,
}

/// Graphs that steps use and that can't be read. A stand-in replaces each of them, so that the
/// mistakes in the rest of the file are found too.
#[derive(Default)]
pub(crate) struct UnreadableGraphs {
    /// The paths of the stand-ins in the value.
    pub(crate) places: Vec<String>,
    /// The reason for each graph, at the step that uses it. Also mistakes that only a cluster or
    /// another file reveals, such as unknown agents.
    pub(crate) problems: Problems,
    /// The mistakes in files that can be read.
    pub(crate) inside: Vec<Mistakes>,
}

/// The reason why a file can't be used.
pub(crate) enum FileError {
    /// The file can't be read.
    Unreadable(anyhow::Error),
    /// The content is invalid: all mistakes, each with its place.
    Wrong(Mistakes),
}

impl From<Problems> for FileError {
    /// Mistakes without a place in a file.
    fn from(problems: Problems) -> Self {
        FileError::Wrong(Mistakes::new(problems, &Sources::default()))
    }
}

impl Document {
    /// A document from a value that is in no file.
    pub(crate) fn made(value: Value) -> Self {
        Document { value, sources: Sources::default(), unread: UnreadableGraphs::default() }
    }

    /// The document of one field. Mistakes in it still show the lines of the whole file.
    pub(crate) fn part(self, name: &str) -> Self {
        let Document { mut value, sources, unread } = self;
        let value = value.get_mut(name).map(Value::take).unwrap_or_default();
        Document { value, sources: sources.within(name), unread }
    }

    /// All mistakes of the document: `problems`, and those in the graphs that it uses. Mistakes
    /// within a stand-in are left out.
    pub(crate) fn wrong(&self, problems: Problems) -> FileError {
        let UnreadableGraphs { places, problems: unread, inside } = &self.unread;
        let mut all = Problems::default();
        all.extend(unread.clone());
        if places.is_empty() {
            all.extend(problems);
        } else {
            let stands_in = |path: &str| places.iter().any(|place| is_within(path, place));
            for problem in problems.iter().filter(|problem| !stands_in(&problem.path)) {
                all.add(&problem.path, &problem.message, problem.hint.clone());
            }
        }
        let mut mistakes = Mistakes::new(all, &self.sources);
        inside.iter().for_each(|more| mistakes.extend(more));
        FileError::Wrong(mistakes)
    }

    /// Returns the decoded value if neither decoding nor reading the used graphs failed, else all
    /// mistakes.
    pub(crate) fn checked<T>(&self, read: Result<T, Problems>) -> Result<T, FileError> {
        match read {
            Ok(read) if self.unread.places.is_empty() && self.unread.problems.is_empty() => Ok(read),
            Ok(_) => Err(self.wrong(Problems::default())),
            Err(problems) => Err(self.wrong(problems)),
        }
    }

    pub(crate) fn graph(&self) -> Result<(TaskGraph, Plan), FileError> {
        self.checked(graph::read(self.text().as_bytes(), Format::Json))
    }

    /// A graph for a cluster that stores the graphs used by name. Stand-ins replace those graphs,
    /// so that the rest can be checked here.
    pub(crate) fn graph_to_send(&self) -> Result<TaskGraph, FileError> {
        if graph::references(&self.value).is_empty() {
            return self.graph().map(|(graph, _)| graph);
        }
        let mut value = self.value.clone();
        let mut problems = graph::put_stand_ins(&mut value);
        if let Err(more) = graph::read(value.to_string().as_bytes(), Format::Json) {
            problems.extend(more);
        }
        self.checked(problems.or(()).and_then(|()| decode::value(&self.value)))
    }

    /// As [`Document::graph`]. A graph without `inputs` is accepted: its inputs come later.
    pub(crate) fn graph_to_check(&self) -> Result<(TaskGraph, Plan), FileError> {
        if self.value.get("inputs").is_some() {
            return self.graph();
        }
        self.checked(graph::read_without_inputs(self.text().as_bytes(), Format::Json))
    }

    fn text(&self) -> String {
        self.value.to_string()
    }
}

impl FileError {
    /// The same error for a file that the command does not name.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            FileError::Unreadable(_) => self,
            FileError::Wrong(mistakes) => FileError::Wrong(mistakes.in_file(path)),
        }
    }

    /// Prints the mistakes in a task graph to stderr and returns the ending of the command.
    pub(crate) fn explain(&self, path: &Path) -> Ending {
        self.explain_as(path, "a valid task graph")
    }

    /// As [`FileError::explain`], for a file that should be `what`.
    pub(crate) fn explain_as(&self, path: &Path, what: &str) -> Ending {
        match self {
            FileError::Unreadable(error) => {
                output::error(&format!("{error:#}"));
                Ending::Unreadable
            }
            FileError::Wrong(mistakes) => {
                let name = path.display();
                output::error(&format!("{name} is not {what}\n\n{mistakes}"));
                Ending::Refused
            }
        }
    }

    /// The mistakes as JSON.
    pub(crate) fn to_json(&self, path: &Path) -> Value {
        let problems = match self {
            FileError::Unreadable(error) => json!([{"path": "", "message": format!("{error:#}")}]),
            FileError::Wrong(mistakes) => mistakes.to_json(),
        };
        json!({"file": path.display().to_string(), "ok": false, "problems": problems})
    }

    /// Prints the mistakes as text, and with `-o json` as JSON too.
    pub(crate) fn report(&self, path: &Path, output: Output) -> anyhow::Result<Ending> {
        if output == Output::Json {
            output::print_json(&self.to_json(path))?;
        }
        Ok(self.explain(path))
    }
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FileError::Unreadable(error) => write!(f, "{error:#}"),
            FileError::Wrong(mistakes) => write!(f, "{mistakes}"),
        }
    }
}
