//! Reading a task graph: a definition is parsed and compiled, or all its problems come back at once, those
//! of its shape and those of its meaning together.

use serde::Deserialize;
use serde_json::Value;

use super::{Plan, TaskGraph};
use crate::{
    decode::{self, Format},
    problem::Problems,
};

/// Reads and compiles a definition.
pub fn read(text: &[u8], format: Format) -> Result<(TaskGraph, Plan), Problems> {
    let value = decode::parse(text, format)?;
    match decode::value::<TaskGraph>(&value) {
        Ok(definition) => Plan::compile(&definition).map(|plan| (definition, plan)),
        Err(shape) => Err(with_sense(value, shape)),
    }
}

/// The problems of shape, and the problems of meaning in the rest of the definition.
fn with_sense(mut value: Value, mut problems: Problems) -> Problems {
    let wrong: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    for path in &wrong {
        remove(&mut value, path);
    }
    let rest = TaskGraph::deserialize(&value).ok().and_then(|definition| Plan::compile(&definition).err());
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
