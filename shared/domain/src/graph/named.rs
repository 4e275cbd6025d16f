//! Graphs that are used by name (G18): `use: NAME` or `use: NAME@VERSION` on a step. Before a
//! definition is compiled, the graph stored under the name is inserted as `graph`, and `use` gets
//! its version. This module performs no lookups; callers pass in a [`Find`].

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Plan, StepDef, TaskGraph,
    read::{read_value, read_value_without_inputs},
    reference::{NOT_READ_HERE, Reference, TWO_GRAPHS, neither},
    used::{OF_A_SUBMISSION, of_a_submission},
};
use crate::{
    decode,
    id::GraphName,
    json::{self, Json},
    problem::{Problem, Problems},
    terms::Text,
};

/// The most bytes of one version of a stored graph.
pub const MAX_KEPT_BYTES: u64 = 256 * 1024;
/// The most bytes of all graphs together that are inserted into one definition.
pub const MAX_NAMED_BYTES: u64 = 1024 * 1024;
/// A stored version of a graph.
#[derive(Debug, Clone)]
pub struct FoundGraph {
    pub version: u64,
    pub graph: Arc<Value>,
}

/// The reason why a lookup failed: a message, and a hint.
pub type NotFound = (String, Option<String>);

/// Looks up a version, or the latest. For `None`, a stand-in is inserted.
pub type Find<'a> = &'a dyn Fn(&GraphName, Option<u64>) -> Result<Option<FoundGraph>, NotFound>;

/// The reason for inserting graphs into a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Submission,
    /// A definition that ran before. It has its graphs already, with their versions.
    Amend,
    /// A graph that is to be stored. It records the versions of other graphs, and not that the
    /// latest was requested.
    Keep,
}

/// A graph in an amended definition that names a version which is not stored any more. Only a
/// comparison with the running graph can confirm it ([`Plan::missing`]).
#[derive(Debug, Clone, PartialEq)]
pub struct UnverifiedGraph {
    pub problem: Problem,
    name: String,
    graph: TaskGraph,
}

/// The result of inserting graphs.
#[derive(Debug, Default)]
pub struct Put {
    pub problems: Problems,
    pub unverified: Vec<UnverifiedGraph>,
    bytes: u64,
}

/// A definition with its graphs inserted.
#[derive(Debug)]
pub struct ResolvedGraph {
    pub definition: TaskGraph,
    pub plan: Plan,
    pub unverified: Vec<UnverifiedGraph>,
}

/// The reason why a definition can't run.
#[derive(Debug)]
pub enum ResolveError {
    /// The definition is invalid in any case.
    Wrong(Problems),
    /// The stored graphs do not allow it now. The same message may have been accepted earlier, so
    /// `plan` has the request with a stand-in for every named graph.
    Now { definition: Box<TaskGraph>, plan: Box<Plan>, problems: Problems },
}

/// Replaces an unknown graph.
static STAND_IN: LazyLock<Value> =
    LazyLock::new(|| json!({"steps": [{"agent_id": "default", "task_description": "-"}]}));

/// Returns every name that a definition uses.
pub fn names(definition: &Value) -> BTreeSet<GraphName> {
    references(definition).into_iter().map(|(name, _)| name).collect()
}

/// Returns every name that a definition uses, with its version.
pub fn references(definition: &Value) -> BTreeSet<(GraphName, Option<u64>)> {
    let mut found = BTreeSet::new();
    each_use(definition, &mut |text| {
        if let Reference::Kept(name, version) = Reference::new(text) {
            found.insert((name, version));
        }
    });
    found
}

fn each_use(graph: &Value, each: &mut dyn FnMut(&str)) {
    for step in graph.get("steps").and_then(Value::as_array).into_iter().flatten() {
        if let Some(text) = step.get("use").and_then(Value::as_str) {
            each(text);
        }
        each_use(step, each);
        if let Some(graph) = step.get("graph") {
            each_use(graph, each);
        }
    }
}

/// Returns the chain of graphs that leads from this graph back to its own name, as `b@3`, `a@1`,
/// and the place where the first is named. Returns `None` if there is no such chain.
pub fn circle(graph: &Value, name: &GraphName) -> Option<(String, Vec<String>)> {
    circle_at(graph, name, "")
}

fn circle_at(graph: &Value, name: &GraphName, at: &str) -> Option<(String, Vec<String>)> {
    let dot = if at.is_empty() { "" } else { "." };
    for (number, step) in graph.get("steps").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let path = format!("{at}{dot}steps[{number}]");
        let used = step.get("use").and_then(Value::as_str);
        let place = || format!("{path}.use");
        if let Some(text) = used
            && matches!(Reference::new(text), Reference::Kept(found, _) if found == *name)
        {
            return Some((place(), vec![text.to_owned()]));
        }
        let inner = step.get("graph").and_then(|graph| circle_at(graph, name, &format!("{path}.graph")));
        match (used, inner) {
            (Some(used), Some((_, rest))) => {
                return Some((place(), std::iter::once(used.to_owned()).chain(rest).collect()));
            }
            (None, Some(found)) => return Some(found),
            (_, None) => {}
        }
        if let Some(found) = circle_at(step, name, &path) {
            return Some(found);
        }
    }
    None
}

/// Inserts graphs for their names. If that fails, inserts a stand-in, so that the rest of the
/// definition can be checked.
pub fn put(definition: &mut Value, purpose: Purpose, find: Find<'_>) -> Put {
    let mut put = Put::default();
    put.steps(definition, "", purpose, find);
    put
}

/// Inserts stand-ins for all names, for checks that need no stored graphs.
pub fn put_stand_ins(definition: &mut Value) -> Problems {
    put(definition, Purpose::Submission, &|_, _| Ok(None)).problems
}

impl Put {
    fn steps(&mut self, graph: &mut Value, at: &str, purpose: Purpose, find: Find<'_>) {
        let dot = if at.is_empty() { "" } else { "." };
        let Some(Value::Array(steps)) = graph.get_mut("steps") else { return };
        for (number, step) in steps.iter_mut().enumerate() {
            let path = format!("{at}{dot}steps[{number}]");
            self.steps(step, &path, purpose, find);
            let Some(fields) = step.as_object_mut() else { continue };
            match fields.get("use").and_then(Value::as_str).map(str::to_owned) {
                Some(text) => self.step(fields, &text, &format!("{path}.use"), purpose, find),
                None => {
                    if let Some(graph) = fields.get_mut("graph") {
                        self.steps(graph, &format!("{path}.graph"), purpose, find);
                    }
                }
            }
        }
    }

    fn step(
        &mut self,
        fields: &mut Map<String, Value>,
        text: &str,
        at: &str,
        purpose: Purpose,
        find: Find<'_>,
    ) {
        let Reference::Kept(name, version) = Reference::new(text) else {
            let (message, hint) = match Reference::new(text) {
                Reference::File => (NOT_READ_HERE.0.to_owned(), NOT_READ_HERE.1.to_owned()),
                Reference::Kept(..) | Reference::Neither => neither(text),
            };
            self.problems.add(at, message, Some(hint));
            fields.remove("use");
            fields.entry("graph").or_insert_with(|| STAND_IN.clone());
            return;
        };
        if fields.contains_key("graph") {
            return self.given(fields, (&name, version), at, purpose, find);
        }
        let found = find(&name, version).and_then(|found| {
            self.bytes += found.as_ref().map_or(0, |found| json::size_bytes(&*found.graph));
            let limit = MAX_NAMED_BYTES;
            let message =
                || format!("the graphs that are used by name have more than {limit} bytes together");
            let hint = || Some("use fewer of them, or smaller ones".to_owned());
            if self.bytes > limit { Err((message(), hint())) } else { Ok(found) }
        });
        let (number, graph) = match found {
            Ok(Some(FoundGraph { version, graph })) => (version, Value::clone(&graph)),
            Ok(None) => (version.unwrap_or(1), STAND_IN.clone()),
            Err((message, hint)) => {
                self.problems.add(at, message, hint);
                (version.unwrap_or(1), STAND_IN.clone())
            }
        };
        fields.insert("use".into(), json!(format!("{name}@{number}")));
        fields.insert("graph".into(), graph);
        match version.is_none() && purpose != Purpose::Keep {
            true => fields.insert("latest".into(), json!(true)),
            false => fields.remove("latest"),
        };
    }

    /// Checks a step that has its graph and names its version.
    fn given(
        &mut self,
        fields: &mut Map<String, Value>,
        (name, version): (&GraphName, Option<u64>),
        at: &str,
        purpose: Purpose,
        find: Find<'_>,
    ) {
        let Some(version) = version else {
            self.problems.add(at, TWO_GRAPHS.0, Some(TWO_GRAPHS.1.into()));
            fields.remove("use");
            fields.remove("latest");
            return;
        };
        if purpose != Purpose::Amend {
            // Another run requested the latest; for this one the version is fixed.
            fields.remove("latest");
        }
        let named = format!("{name}@{version}");
        match (find(name, Some(version)), fields.get("graph").and_then(normal)) {
            // Mistakes in its shape are reported when it is read.
            (_, None) | (Ok(None), _) => {}
            (Ok(Some(found)), Some(given)) => {
                if normal(&found.graph).as_ref() != Some(&given) {
                    let message = format!("the graph differs from that of `{named}`");
                    let hint =
                        "leave `use` out to run the graph given here, or `graph` to run the stored one";
                    self.problems.add(at, message, Some(hint.into()));
                }
            }
            (Err((message, _)), Some(graph)) => {
                let hint = Some("leave `use` out: the graph itself is here".to_owned());
                let problem = Problem { path: at.into(), message, hint };
                match purpose {
                    Purpose::Submission | Purpose::Keep => {
                        self.problems.add(problem.path, problem.message, problem.hint);
                    }
                    Purpose::Amend => self.unverified.push(UnverifiedGraph { problem, name: named, graph }),
                }
            }
        }
    }
}

/// Normalises a graph for comparison: every step gets its id, and the notation does not matter.
fn normal(graph: &Value) -> Option<TaskGraph> {
    let graph = TaskGraph::deserialize(graph).ok()?;
    Plan::compile_without_inputs(&graph).ok().map(|plan| plan.named_definition())
}

/// Inserting a graph makes the definition deeper than each of the two. Stored definitions must stay
/// readable.
fn check_depth(value: &Value, problems: &mut Problems) {
    if let Err(too_deep) = decode::check_depth(value.to_string().as_bytes()) {
        problems.extend(too_deep);
    }
}

/// Reads and compiles a definition with the graphs that it names.
pub fn read_named(given: &Value, purpose: Purpose, find: Find<'_>) -> Result<ResolvedGraph, ResolveError> {
    let mut value = given.clone();
    let Put { mut problems, unverified, bytes: _ } = put(&mut value, purpose, find);
    check_depth(&value, &mut problems);
    match read_value(value) {
        Ok((definition, plan)) if problems.is_empty() => {
            return Ok(ResolvedGraph { definition, plan, unverified });
        }
        Ok(_) => {}
        Err(more) => problems.extend(more),
    }
    let mut value = given.clone();
    let stand_ins = put(&mut value, purpose, &|_, _| Ok(None));
    match read_value(value) {
        Ok((definition, plan)) if stand_ins.problems.is_empty() => {
            Err(ResolveError::Now { definition: Box::new(definition), plan: Box::new(plan), problems })
        }
        Ok(_) | Err(_) => Err(ResolveError::Wrong(problems)),
    }
}

/// Reads a graph that is to be stored. Its inputs come from the place of use, and the fields of a
/// submission are rejected.
pub fn read_to_keep(value: Value) -> Result<TaskGraph, Problems> {
    let mut problems = Problems::default();
    for field in OF_A_SUBMISSION {
        let is_default = |value: &Value| {
            let is_empty =
                value.as_object().map(Map::is_empty).or_else(|| value.as_array().map(Vec::is_empty));
            value.is_null() || *value == json!(false) || is_empty == Some(true)
        };
        if value.get(field).is_some_and(|value| !is_default(value)) {
            of_a_submission(field, "", &mut problems);
        }
    }
    check_depth(&value, &mut problems);
    match read_value_without_inputs(value) {
        Ok((definition, _)) => problems.or(definition),
        Err(more) => {
            problems.extend(more);
            Err(problems)
        }
    }
}

impl TaskGraph {
    /// Returns the required inputs for which the graph has no value.
    pub fn needed_inputs(&self) -> Vec<String> {
        let schema = self.input_schema.as_ref().map(Json::value);
        let required = schema.and_then(|schema| schema.get("required")?.as_array()).into_iter().flatten();
        let filled = self.filled_inputs();
        let is_given = |name: &&str| filled.keys().any(|key| key.as_str() == *name);
        required.filter_map(Value::as_str).filter(|name| !is_given(name)).map(str::to_owned).collect()
    }

    /// Returns the graphs that its steps use by name, each once, without those that these graphs
    /// use.
    pub fn used_names(&self) -> Vec<String> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&StepDef> = self.steps.iter().collect();
        while let Some(step) = open.pop() {
            open.extend(&step.steps);
            match (&step.uses, &step.graph) {
                (Some(name), _) => drop(found.insert(name.to_string())),
                (None, Some(graph)) => open.extend(&graph.steps),
                (None, None) => {}
            }
        }
        found.into_iter().collect()
    }
}

impl Plan {
    /// Returns true if it has graphs that were used by name.
    pub fn uses_names(&self) -> bool {
        self.groups().iter().any(|group| group.used.as_ref().is_some_and(|used| used.name.is_some()))
    }

    /// Returns true if the requests are equal. A name without a version equals the same name, even
    /// if the latest version has changed in between.
    pub fn asks_the_same(&self, other: &Plan) -> bool {
        self == other
            || (self.uses_names()
                && other.uses_names()
                && asked(self.definition()) == asked(other.definition()))
    }

    /// Returns a problem for each unverified graph that this plan does not have.
    pub fn missing(&self, unverified: &[UnverifiedGraph]) -> Problems {
        let mut problems = Problems::default();
        let mut have = Vec::new();
        if !unverified.is_empty() {
            used(&self.named_definition(), &mut have);
        }
        let is_there =
            |of: &UnverifiedGraph| have.iter().any(|(name, graph)| *name == of.name && *graph == of.graph);
        for UnverifiedGraph { problem, .. } in unverified.iter().filter(|of| !is_there(of)) {
            problems.add(&problem.path, &problem.message, problem.hint.clone());
        }
        problems
    }
}

fn used(graph: &TaskGraph, found: &mut Vec<(String, TaskGraph)>) {
    let mut open: Vec<&StepDef> = graph.steps.iter().collect();
    while let Some(step) = open.pop() {
        if let (Some(name), Some(graph)) = (&step.uses, &step.graph) {
            found.push((name.to_string(), (**graph).clone()));
        }
        open.extend(&step.steps);
        open.extend(step.graph.iter().flat_map(|graph| &graph.steps));
    }
}

fn asked(mut graph: TaskGraph) -> TaskGraph {
    graph.steps = graph.steps.into_iter().map(asked_step).collect();
    graph
}

fn asked_step(mut step: StepDef) -> StepDef {
    step.steps = step.steps.into_iter().map(asked_step).collect();
    step.graph = match (&step.uses, step.graph) {
        (Some(_), _) => None,
        (None, graph) => graph.map(|graph| Box::new(asked(*graph))),
    };
    if std::mem::take(&mut step.latest)
        && let Some(Reference::Kept(name, _)) = step.uses.as_ref().map(|uses| Reference::new(uses.as_str()))
    {
        step.uses = Text::new(name.as_str()).ok();
    }
    step
}
