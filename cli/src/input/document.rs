//! What a file has, as a JSON value that knows its lines, or why it can't be used.

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

/// What a file has.
pub(crate) struct Document {
    pub(crate) value: Value,
    pub(crate) sources: Sources,
    pub(crate) unread: UnreadableGraphs,
}

/// Graphs that steps use and that can't be read. Something else stands in their places, so that the mistakes in the rest are
/// found too.
#[derive(Default)]
pub(crate) struct UnreadableGraphs {
    /// The paths of the stand-ins.
    pub(crate) places: Vec<String>,
    /// Why each can't be read, at the step that uses it; and what only a cluster or another file can tell.
    pub(crate) problems: Problems,
    /// What is wrong in files that can be read.
    pub(crate) inside: Vec<Mistakes>,
}

/// Why a file can't be used.
pub(crate) enum FileError {
    /// The file can't be read.
    Unreadable(anyhow::Error),
    /// Its content is not valid: all mistakes, each with where it is.
    Wrong(Mistakes),
}

impl From<Problems> for FileError {
    /// Mistakes that are in no file.
    fn from(problems: Problems) -> Self {
        FileError::Wrong(Mistakes::new(problems, &Sources::default()))
    }
}

impl Document {
    /// A value that no file has.
    pub(crate) fn made(value: Value) -> Self {
        Document { value, sources: Sources::default(), unread: UnreadableGraphs::default() }
    }

    /// A part of it.
    pub(crate) fn part(self, name: &str) -> Self {
        let Document { mut value, sources, unread } = self;
        let value = value.get_mut(name).map(Value::take).unwrap_or_default();
        Document { value, sources: sources.within(name), unread }
    }

    /// Why it can't be used: everything, with the graphs that could not be read.
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

    /// What was read of it, if nothing is wrong with it.
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

    /// A graph for a cluster, which has the graphs that it uses by name: what can be checked without them is.
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

    /// As `graph`; if it has no inputs, those that it needs are given later.
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
    /// The same, in another file than the one that the command names.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            FileError::Unreadable(_) => self,
            FileError::Wrong(mistakes) => FileError::Wrong(mistakes.in_file(path)),
        }
    }

    /// Prints the mistakes in a task graph to stderr; the ending of the command.
    pub(crate) fn explain(&self, path: &Path) -> Ending {
        self.explain_as(path, "a valid task graph")
    }

    /// As `explain`, for a file that should be `what`.
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
