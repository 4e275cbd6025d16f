//! Reading a task graph: a definition is parsed and compiled, or all its problems come back at once, those
//! of its shape and those of its meaning together.

use serde::Deserialize;
use serde_json::Value;

use super::{Plan, TaskGraph};
use crate::{
    decode::{self, Format},
    id::ContextKey,
    problem::Problems,
};

/// Reads and compiles a definition.
pub fn read(text: &[u8], format: Format) -> Result<(TaskGraph, Plan), Problems> {
    read_with(text, format, |definition| definition)
}

/// Reads and compiles the graph of an agent. What its steps read of the keys that the agent was given is added to the
/// graph's `input_from`.
pub fn read_within(
    text: &[u8],
    format: Format,
    was_given: impl Fn(&ContextKey) -> bool,
) -> Result<(TaskGraph, Plan), Problems> {
    read_with(text, format, |mut definition| {
        let read = definition.undeclared_keys();
        definition.input_from.extend(read.into_iter().filter(&was_given));
        definition
    })
}

fn read_with(
    text: &[u8],
    format: Format,
    complete: impl Fn(TaskGraph) -> TaskGraph,
) -> Result<(TaskGraph, Plan), Problems> {
    let value = decode::parse(text, format)?;
    match decode::value::<TaskGraph>(&value).map(&complete) {
        Ok(definition) => Plan::compile(&definition).map(|plan| (definition, plan)),
        Err(shape) => Err(with_sense(value, shape, complete)),
    }
}

/// The problems of shape, and the problems of meaning in the rest of the definition.
fn with_sense(
    mut value: Value,
    mut problems: Problems,
    complete: impl Fn(TaskGraph) -> TaskGraph,
) -> Problems {
    let wrong: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    for path in &wrong {
        remove(&mut value, path);
    }
    let rest = TaskGraph::deserialize(&value).ok().map(complete);
    let rest = rest.and_then(|definition| Plan::compile(&definition).err());
    // A removed part would also be reported as missing: the same problem twice.
    let known =
        |path: &str| wrong.iter().any(|wrong| path == wrong || wrong.starts_with(path) && !path.is_empty());
    for problem in rest.iter().flat_map(Problems::iter).filter(|problem| !known(&problem.path)) {
        problems.add(&problem.path, &problem.message, problem.hint.clone());
    }
    problems
}

/// Removes the value at a path like `steps[2].when`.
fn remove(value: &mut Value, path: &str) {
    let (parent, last) = match path.rsplit_once('.') {
        Some((parent, last)) => (parent, last),
        None => ("", path),
    };
    let Some(Value::Object(fields)) = at(value, parent) else { return };
    // An element is removed together with its whole list: otherwise the indices of the others would shift.
    let name = last.split('[').next().unwrap_or(last);
    if name != "steps" {
        fields.remove(name);
    }
}

fn at<'v>(value: &'v mut Value, path: &str) -> Option<&'v mut Value> {
    let mut here = value;
    for segment in path.split('.').filter(|segment| !segment.is_empty()) {
        let (name, index) = match segment.split_once('[') {
            Some((name, index)) => (name, Some(index.strip_suffix(']')?.parse::<usize>().ok()?)),
            None => (segment, None),
        };
        here = here.get_mut(name)?;
        if let Some(index) = index {
            here = here.get_mut(index)?;
        }
    }
    Some(here)
}
