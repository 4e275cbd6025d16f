//! `use: FILE` on a step: the graph of the file replaces the name, as `graph`. The path is relative
//! to the file that contains it. Names of graphs that a cluster stores are left unchanged.

use std::path::{Path, PathBuf};

use domain::{
    Problems,
    graph::Reference,
    limits::{MAX_GROUP_NESTING, MAX_MESSAGE_BYTES},
};
use serde_json::{Map, Value, json};

use crate::input::{
    document::{Document, FileError, UnreadableGraphs},
    file::read_value,
    sources::{Mistakes, Sources, join},
};

/// Reads a file and the graphs that its steps use.
pub(crate) fn read_with_graphs(path: &Path) -> Result<Document, FileError> {
    let document = read_as_far(path)?;
    document.checked(Ok(()))?;
    Ok(document)
}

/// As [`read_with_graphs`]. An unreadable graph is reported later, together with the mistakes in
/// the rest.
pub(crate) fn read_as_far(path: &Path) -> Result<Document, FileError> {
    let mut document = read_value(path)?;
    let mut files = Files { open: vec![named(path)], bytes: 0, unread: UnreadableGraphs::default() };
    let Document { value, sources, .. } = &mut document;
    // The output of `runs graph` contains its graph in `graph`, and a schedule its task in `task`.
    let (at, graph) = if value.get("steps").is_none() && value.get("graph").is_some() {
        ("graph", &mut value["graph"])
    } else if value.get("cron").is_some() && value.get("task").is_some() {
        ("task", &mut value["task"])
    } else {
        ("", value)
    };
    files.graph(graph, at, path, sources);
    if let Value::Array(steps) = graph {
        files.steps(steps, at, path, sources);
    } else if graph.get("use").is_some() {
        files.step(graph, at, path, sources);
    }
    document.unread = files.unread;
    Ok(document)
}

/// The files read so far.
struct Files {
    /// The file that is being read, and the files that use it.
    open: Vec<PathBuf>,
    /// The size of all files together.
    bytes: usize,
    unread: UnreadableGraphs,
}

impl Files {
    fn graph(&mut self, graph: &mut Value, at: &str, file: &Path, sources: &mut Sources) {
        if let Some(Value::Array(steps)) = graph.get_mut("steps") {
            self.steps(steps, &join(at, "steps"), file, sources);
        }
    }

    fn steps(&mut self, steps: &mut [Value], at: &str, file: &Path, sources: &mut Sources) {
        for (number, step) in steps.iter_mut().enumerate() {
            self.step(step, &format!("{at}[{number}]"), file, sources);
        }
    }

    fn step(&mut self, step: &mut Value, at: &str, file: &Path, sources: &mut Sources) {
        let used = step.get("use").and_then(Value::as_str).map(str::to_owned);
        // A name is left for the cluster.
        if let Some(used) = used.filter(|used| Reference::new(used) == Reference::File) {
            self.put(step, &used, at, file, sources);
        } else if let Some(graph) = step.get_mut("graph") {
            self.graph(graph, &join(at, "graph"), file, sources);
        }
        self.graph(step, at, file, sources);
    }

    /// Inserts the graph of a file into the step, or a stand-in if the file can't be read.
    fn put(&mut self, step: &mut Value, used: &str, at: &str, file: &Path, sources: &mut Sources) {
        let graph = match self.read(step, used, at, file, sources) {
            Ok(graph) => graph,
            Err(FileError::Unreadable(error)) => {
                let hint = format!("it is looked for beside {}", file.display());
                self.unread.problems.add(join(at, "use"), format!("{error:#}"), Some(hint));
                self.stand_in(step, at)
            }
            Err(FileError::Wrong(mistakes)) => {
                self.unread.inside.push(mistakes);
                self.stand_in(step, at)
            }
        };
        if let Some(fields) = step.as_object_mut() {
            fields.remove("use");
            fields.insert("graph".into(), graph);
        }
    }

    /// A stand-in that accepts the inputs of this step.
    fn stand_in(&mut self, step: &Value, at: &str) -> Value {
        self.unread.places.push(join(at, "graph"));
        let given = step.get("with").and_then(Value::as_object);
        let inputs: Map<String, Value> =
            given.into_iter().flatten().map(|(key, _)| (key.clone(), Value::Null)).collect();
        json!({"inputs": inputs, "steps": [{"agent_id": "default", "task_description": "-"}]})
    }

    /// Reads the graph of a file.
    fn read(
        &mut self,
        step: &Value,
        used: &str,
        at: &str,
        file: &Path,
        sources: &mut Sources,
    ) -> Result<Value, FileError> {
        let wrong = |message: String, hint: Option<String>, sources: &Sources| {
            FileError::Wrong(Mistakes::new(Problems::one(join(at, "use"), message, hint), sources))
        };
        let path = file.parent().unwrap_or(Path::new("")).join(used);
        let name = named(&path);
        if step.get("graph").is_some() {
            let hint = "leave one of them out";
            return Err(wrong("it has a `graph` too".into(), Some(hint.into()), sources));
        }
        if let Some(first) = self.open.iter().position(|open| *open == name) {
            let circle = self.open[first..].iter().chain([&name]);
            let circle: Vec<String> = circle.map(|file| file.display().to_string()).collect();
            return Err(wrong(format!("the files use each other: {}", circle.join(" → ")), None, sources));
        }
        if self.open.len() > MAX_GROUP_NESTING {
            let message = format!("graphs use each other deeper than {MAX_GROUP_NESTING} files");
            return Err(wrong(message, None, sources));
        }
        let mut inner = read_value(&path).map_err(|unusable| unusable.in_file(&path))?;
        self.bytes += inner.value.to_string().len();
        if self.bytes > MAX_MESSAGE_BYTES {
            let message = format!("all graphs together are larger than {} MiB", MAX_MESSAGE_BYTES >> 20);
            return Err(wrong(message, None, sources));
        }
        let at = join(at, "graph");
        sources.add(&at, path.clone(), std::mem::take(&mut inner.sources));
        self.open.push(name);
        self.graph(&mut inner.value, &at, &path, sources);
        self.open.pop();
        Ok(inner.value)
    }
}

/// The canonical path of a file, so that one file under two names is recognized.
fn named(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
