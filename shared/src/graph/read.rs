//! The door for task graphs: a definition is read and compiled, or everything that is wrong with it
//! comes back at once, the mistakes of its shape and of its sense together.

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

/// The mistakes of shape, and those of sense that the rest of the definition still shows.
fn with_sense(mut value: Value, mut problems: Problems) -> Problems {
    let wrong: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    for path in &wrong {
        remove(&mut value, path);
    }
    let rest = TaskGraph::deserialize(&value).ok().and_then(|definition| Plan::compile(&definition).err());
    // What was taken away can't be missed: that would be the same mistake told twice.
    let known =
        |path: &str| wrong.iter().any(|wrong| path == wrong || wrong.starts_with(path) && !path.is_empty());
    for problem in rest.iter().flat_map(Problems::iter).filter(|problem| !known(&problem.path)) {
        problems.add(&problem.path, &problem.message, problem.hint.clone());
    }
    problems
}

/// Takes out what stands at a path like `steps[2].when`.
fn remove(value: &mut Value, path: &str) {
    let (parent, last) = match path.rsplit_once('.') {
        Some((parent, last)) => (parent, last),
        None => ("", path),
    };
    let Some(Value::Object(fields)) = at(value, parent) else { return };
    // An element of a list goes with its whole list: an index that is gone would shift the others.
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
