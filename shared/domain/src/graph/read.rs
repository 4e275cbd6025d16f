//! Reads a task graph: parses and compiles a definition, or returns all problems of its shape and
//! of its meaning together.

use serde_json::Value;

use super::{Plan, TaskGraph};
use crate::{
    decode::{self, Format},
    id::ContextKey,
    problem::Problems,
};

/// The fields that replace a step's agent.
const BODIES: [&str; 3] = ["approve", "graph", "steps"];
/// The most parts that are removed to find the mistakes in the rest.
const MAX_REMOVED: usize = 200;

/// Reads and compiles a definition.
pub fn read(text: &[u8], format: Format) -> Result<(TaskGraph, Plan), Problems> {
    read_with(text, format, |definition| definition, Plan::compile)
}

/// The same as `read`, for a definition whose `inputs` come later.
pub fn read_without_inputs(text: &[u8], format: Format) -> Result<(TaskGraph, Plan), Problems> {
    read_with(text, format, |definition| definition, Plan::compile_without_inputs)
}

/// Reads and compiles the graph of an agent. Keys that its steps read, and that the agent was
/// given, are added to the graph's `input_from`.
pub fn read_within(
    text: &[u8],
    format: Format,
    was_given: impl Fn(&ContextKey) -> bool,
) -> Result<(TaskGraph, Plan), Problems> {
    let complete = |mut definition: TaskGraph| {
        let read = definition.undeclared_keys();
        definition.input_from.extend(read.into_iter().filter(&was_given));
        definition
    };
    let (definition, plan) = read_with(text, format, complete, Plan::compile)?;
    not_named(&plan, "").map(|()| (definition, plan))
}

/// Rejects an agent's graph that claims to be a graph stored under a name, because that claim is
/// never checked.
pub fn not_named(plan: &Plan, path: &str) -> Result<(), Problems> {
    if !plan.uses_names() {
        return Ok(());
    }
    let message = "the graph of an agent can't use graphs by name";
    Err(Problems::one(path, message, Some("leave `use` out, and give the graph itself, as `graph`".into())))
}

fn read_with(
    text: &[u8],
    format: Format,
    complete: impl Fn(TaskGraph) -> TaskGraph,
    compile: fn(&TaskGraph) -> Result<Plan, Problems>,
) -> Result<(TaskGraph, Plan), Problems> {
    read_value_with(decode::parse(text, format)?, complete, compile)
}

/// Compiles a parsed definition.
pub(super) fn read_value(value: Value) -> Result<(TaskGraph, Plan), Problems> {
    read_value_with(value, |definition| definition, Plan::compile)
}

/// The same as `read_value`, for a definition whose `inputs` come later.
pub(super) fn read_value_without_inputs(value: Value) -> Result<(TaskGraph, Plan), Problems> {
    read_value_with(value, |definition| definition, Plan::compile_without_inputs)
}

fn read_value_with(
    value: Value,
    complete: impl Fn(TaskGraph) -> TaskGraph,
    compile: fn(&TaskGraph) -> Result<Plan, Problems>,
) -> Result<(TaskGraph, Plan), Problems> {
    match decode::value::<TaskGraph>(&value).map(&complete) {
        Ok(definition) => compile(&definition).map(|plan| (definition, plan)),
        Err(shape) => Err(with_sense(value, shape, complete, compile)),
    }
}

/// Returns the problems of shape, and the problems of meaning in the rest of the definition.
fn with_sense(
    mut value: Value,
    mut problems: Problems,
    complete: impl Fn(TaskGraph) -> TaskGraph,
    compile: fn(&TaskGraph) -> Result<Plan, Problems>,
) -> Problems {
    let mut wrong: Vec<String> = problems.iter().map(|problem| problem.path.clone()).collect();
    let mut removed = 0;
    let rest = loop {
        for path in &wrong[removed..] {
            remove(&mut value, path);
        }
        removed = wrong.len();
        match decode::value::<TaskGraph>(&value) {
            Ok(rest) => break compile(&complete(rest)).err(),
            // A removed part may be required. Then the part around it is removed too.
            Err(needed) => {
                let paths = needed.iter().map(|problem| &problem.path);
                let new: Vec<String> = paths.filter(|path| !wrong.contains(path)).cloned().collect();
                wrong.extend(new);
            }
        }
        if removed == wrong.len() || removed > MAX_REMOVED {
            break None;
        }
    };
    // A removed part would be reported a second time, as missing. A step whose body was removed
    // would be reported to need an agent.
    let follows = |path: &str| {
        let step = path.strip_suffix(".agent_id").or_else(|| path.strip_suffix(".task_description"));
        step.is_some_and(|step| BODIES.iter().any(|body| wrong.contains(&format!("{step}.{body}"))))
    };
    let known = |path: &str| {
        let is_above = |wrong: &String| path == wrong || wrong.starts_with(path) && !path.is_empty();
        wrong.iter().any(is_above) || follows(path)
    };
    for problem in rest.iter().flat_map(Problems::iter).filter(|problem| !known(&problem.path)) {
        problems.add(&problem.path, &problem.message, problem.hint.clone());
    }
    problems
}

/// Removes the value at a path such as `steps[2].when`.
fn remove(value: &mut Value, path: &str) {
    let (parent, last) = match path.rsplit_once('.') {
        Some((parent, last)) => (parent, last),
        None => ("", path),
    };
    let Some(Value::Object(fields)) = at(value, parent) else { return };
    // Removing one element would shift the indices of the others, so the whole list is removed.
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
