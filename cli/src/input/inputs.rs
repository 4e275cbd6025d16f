//! The inputs of a graph or an agent that the command line gives, in addition to those of the file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use domain::{
    ContextKey, Json, Problems,
    graph::{Plan, TaskGraph},
};
use serde_json::{Map, Value};

use crate::{
    cluster::connect::Servers,
    input::{
        document::{Document, FileError},
        file::read_value,
        known_agents, names, parse,
        sources::{Mistakes, Sources},
        use_files::read_as_far,
    },
    terminal::{ending::Ending, output::Output},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Inputs {
    /// An input of the graph, which overrides the file; may be given more than once.
    #[arg(long, value_name = "KEY=JSON", value_parser = parse::input)]
    input: Vec<(ContextKey, Value)>,
    /// A file of inputs by key: YAML, JSON or TOML. --input overrides it.
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
}

/// The inputs, and the file that contains some of them.
struct InputValues {
    values: Map<String, Value>,
    from: Option<(PathBuf, Sources)>,
}

impl Inputs {
    /// Inserts the inputs into a submission.
    pub(crate) fn put(&self, document: &mut Document) -> Result<(), FileError> {
        let InputValues { values, from } = self.read()?;
        for (key, _) in &self.input {
            document.sources.option(&format!("inputs.{key}"), "--input");
        }
        let Some(fields) = document.value.as_object_mut().filter(|_| !values.is_empty()) else {
            return Ok(());
        };
        if let Some(inputs) = fields.entry("inputs").or_insert_with(|| Map::new().into()).as_object_mut() {
            inputs.extend(values);
        }
        if let Some((file, sources)) = from {
            document.sources.add("inputs", file, sources);
        }
        Ok(())
    }

    /// Reads a graph and inserts the inputs, for a plan or a run.
    pub(crate) fn document(&self, path: &Path) -> Result<Document, FileError> {
        let mut document = read_as_far(path)?;
        self.put(&mut document)?;
        Ok(document)
    }

    /// Reads a graph with these inputs and with the graphs that it uses by name. Its agents are
    /// compared with the known ones. If it has mistakes, they are printed and the ending of the
    /// command is returned.
    pub(crate) async fn graph(
        &self,
        file: &Path,
        agents: Option<&Path>,
        servers: &Servers,
        output: Output,
    ) -> anyhow::Result<Result<(TaskGraph, Plan), Ending>> {
        let known = match known_agents::of_graph(file, agents, servers).await {
            Ok(known) => known,
            Err(ending) => return Ok(Err(ending)),
        };
        let read = match self.document(file) {
            Ok(mut document) => {
                names::put(&mut document, servers).await?;
                known_agents::check(known.as_ref(), &mut document);
                document.graph()
            }
            Err(unusable) => Err(unusable),
        };
        match read {
            Ok(read) => Ok(Ok(read)),
            Err(unusable) => Ok(Err(unusable.report(file, output)?)),
        }
    }

    /// The inputs alone, by checked key.
    pub(crate) fn read_checked(&self) -> Result<BTreeMap<ContextKey, Json>, FileError> {
        let InputValues { values, from } = self.read()?;
        let (mut inputs, mut problems) = (BTreeMap::new(), Problems::default());
        for (key, value) in values {
            match ContextKey::new(&key) {
                Ok(key) => drop(inputs.insert(key, Json::from(value))),
                Err(error) => problems.add(key, error.to_string(), None),
            }
        }
        let mut sources = from.map(|(_, sources)| sources).unwrap_or_default();
        self.input.iter().for_each(|(key, _)| sources.option(key.as_str(), "--input"));
        problems.or(inputs).map_err(|problems| FileError::Wrong(Mistakes::new(problems, &sources)))
    }

    /// The path that errors name: the file of inputs, or `--input`.
    pub(crate) fn path(&self) -> &Path {
        self.inputs.as_deref().unwrap_or(Path::new("--input"))
    }

    /// All inputs, and the file that contains some of them.
    fn read(&self) -> Result<InputValues, FileError> {
        let (mut given, mut from) = (Map::new(), None);
        if let Some(path) = &self.inputs {
            let of_file = |unusable: FileError| unusable.in_file(path);
            let document = read_value(path).map_err(of_file)?;
            match document.value {
                Value::Object(fields) => given = fields,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    let hint = "write the inputs by their keys, such as `topic: ants`";
                    let message = format!("{} has no inputs: it must be an object", path.display());
                    return Err(Problems::one("--inputs", message, Some(hint.into())).into());
                }
            }
            from = Some((path.clone(), document.sources));
        }
        given.extend(self.input.iter().map(|(key, value)| (key.to_string(), value.clone())));
        Ok(InputValues { values: given, from })
    }
}
