//! The rules for amending a running graph (G13): only steps that have not begun may change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    Body, Plan, StepDef, TaskGraph,
    plan::{GroupIndex, Step, StepIndex},
};
use crate::{id::StepPath, problem::Problems};

/// The state of a step of a running graph. A step without one has not begun, and may change freely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The step runs, has ended or was skipped. It can't change, and neither can the steps in it.
    /// The word has the state.
    Fixed(&'static str),
    /// A group that runs. Its own fields can't change; each step in it has its own state.
    Open,
}

/// The word for a step that runs.
pub const BEGUN: &str = "has begun";

/// Fields about the place and the sender of a graph. An amended definition may leave them out.
const LABELS: [&str; 5] = ["trace_id", "child_id", "thread_id", "reply_to", "name"];

/// Returns the forbidden changes of an amend, each with its place in the new definition.
pub fn check_amend(before: &Plan, after: &Plan, standings: &BTreeMap<StepPath, Standing>) -> Problems {
    let mut problems = Problems::default();
    check_terms(before, after, &mut problems);
    let (old, new) = (before.placed(), after.placed());
    for (id, standing) in standings {
        let Some(was) = old.get(id) else { continue };
        let Some(is) = new.get(id) else {
            let message = format!("`{id}` {} and can't be removed", standing.word());
            problems.add("steps", message, Some(SHOW.into()));
            continue;
        };
        if was.group != is.group {
            let message = format!("`{id}` {} and can't move to another group", standing.word());
            problems.add(&is.path, message, Some(SHOW.into()));
        }
        let fields = differing(was.definition.clone(), is.definition.clone(), *standing);
        if !fields.is_empty() {
            let message = format!("`{id}` {} and can't change: {}", standing.word(), fields.join(", "));
            problems.add(&is.path, message, Some(SHOW.into()));
        }
        // A step that has begun can't get new dependencies.
        let later = after.group(is.place.0).steps[is.place.1 as usize].waits_for.iter();
        let later = later.map(|step| &after.group(is.place.0).steps[*step as usize].path);
        let waited =
            |step: &StepPath| old.get(step).is_some_and(|before| was.waits_for.contains(&before.place.1));
        let not_done = |step: &&StepPath| match standings.get(*step) {
            None => true,
            Some(standing) => !standing.is_over() && !waited(step),
        };
        if let Some(later) = later.into_iter().find(not_done) {
            let has_not = if standings.contains_key(later) { "ended" } else { "begun" };
            let message =
                format!("`{id}` {} and can't wait for `{later}`, which has not {has_not}", standing.word());
            problems.add(&is.path, message, Some("put new steps behind those that have begun".into()));
        }
    }
    problems
}

/// The difference between a step of an amended graph and its earlier version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepChange {
    /// It is new, or in another group, or its own fields differ.
    Itself,
    /// It is a group, and only steps in it differ.
    Within,
}

/// Returns the steps that an amend changes or adds, and those that depended on a removed step, by
/// their places in the new plan.
pub fn changed_steps(before: &Plan, after: &Plan) -> Vec<((GroupIndex, StepIndex), StepChange)> {
    let old = before.placed();
    let change = |id: &StepPath, is: &PlacedStep| {
        let Some(was) = old.get(id).filter(|was| was.group == is.group) else {
            return Some(StepChange::Itself);
        };
        let differs =
            |standing| !differing(was.definition.clone(), is.definition.clone(), standing).is_empty();
        if differs(Standing::Open) {
            Some(StepChange::Itself)
        } else {
            differs(Standing::Fixed("")).then_some(StepChange::Within)
        }
    };
    let new = after.placed();
    let removed = old.iter().filter(|(id, _)| !new.contains_key(*id)).map(|(_, was)| was.place);
    let behind = removed.flat_map(|(group, step)| {
        let steps = &before.group(group).steps;
        steps[step as usize].dependents.iter().filter_map(|after| new.get(&steps[*after as usize].path))
    });
    let behind = behind.map(|is| (is.place, StepChange::Itself));
    new.iter().filter_map(|(id, is)| Some((is.place, change(id, is)?))).chain(behind).collect()
}

const SHOW: &str = "begin with what `trellis runs graph` prints, and change only steps that are pending";

impl Standing {
    fn is_over(self) -> bool {
        matches!(self, Standing::Fixed(word) if word != BEGUN)
    }

    fn word(self) -> &'static str {
        match self {
            Standing::Fixed(word) => word,
            Standing::Open => "runs",
        }
    }
}

/// Adds a problem for each changed field of the graph itself.
fn check_terms(before: &Plan, after: &Plan, problems: &mut Problems) {
    let terms = |plan: &Plan| {
        let mut fields = object(&plan.definition());
        fields.remove("steps");
        fields
    };
    let (old, new) = (terms(before), terms(after));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let left_out = LABELS.contains(&name.as_str()) && !new.contains_key(name);
        if old.get(name) != new.get(name) && !left_out {
            let hint = match name.as_str() {
                "max_cost_usd" | "max_tokens" => "use `trellis budgets raise`",
                "inputs" => "put the value into the task of a new step",
                _ => "leave it as `trellis runs graph` prints it",
            };
            problems.add(name, "an amend changes steps, not the graph itself", Some(hint.into()));
        }
    }
}

/// Returns the names of the fields in which two definitions of a step differ.
fn differing(mut was: StepDef, mut is: StepDef, standing: Standing) -> Vec<String> {
    if standing == Standing::Open {
        for step in [&mut was, &mut is] {
            step.steps.clear();
            step.graph.iter_mut().for_each(|graph| graph.steps.clear());
            // The name and version do not apply to a graph that was changed.
            (step.uses, step.latest) = (None, false);
        }
    }
    let (was, is) = (object(&was), object(&is));
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    names.into_iter().filter(|name| was.get(*name) != is.get(*name)).map(|name| format!("`{name}`")).collect()
}

fn object(of: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(of) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Returns the steps of a group, or of a graph that runs as a step.
fn steps_of(step: &mut StepDef) -> &mut [StepDef] {
    match &mut step.graph {
        Some(graph) => &mut graph.steps,
        None => &mut step.steps,
    }
}

/// A step of a definition, with its place.
struct PlacedStep {
    definition: StepDef,
    path: String,
    place: (GroupIndex, StepIndex),
    waits_for: Vec<StepIndex>,
    /// The step that is its group; `None` in the graph itself.
    group: Option<StepPath>,
}

impl Plan {
    /// Returns the definition, with the id of every step.
    pub fn named_definition(&self) -> TaskGraph {
        let mut definition = self.definition();
        self.name_steps(0, &mut definition.steps);
        definition
    }

    fn name_steps(&self, group: GroupIndex, definitions: &mut [StepDef]) {
        for (step, definition) in self.group(group).steps.iter().zip(definitions) {
            definition.id = Some(step.id.clone());
            if let Body::Group(inner) = step.body {
                self.name_steps(inner, steps_of(definition));
            }
        }
    }

    /// Returns the place of a step with this path.
    pub fn place_of(&self, path: &StepPath) -> Option<(GroupIndex, StepIndex)> {
        let groups = (0u32..).zip(self.groups());
        let mut steps =
            groups.flat_map(|(group, of)| (0u32..).zip(&of.steps).map(move |(step, of)| (group, step, of)));
        steps.find(|(_, _, step)| step.path == *path).map(|(group, step, _)| (group, step))
    }

    fn placed(&self) -> BTreeMap<StepPath, PlacedStep> {
        let definition = self.named_definition();
        let mut found = BTreeMap::new();
        let mut open = vec![(0, None, "steps".to_owned(), definition.steps)];
        while let Some((group, owner, path, definitions)) = open.pop() {
            let steps: Vec<(u32, &Step)> = (0u32..).zip(&self.group(group).steps).collect();
            for ((number, step), mut definition) in steps.into_iter().zip(definitions) {
                let path = format!("{path}[{number}]");
                if let Body::Group(inner) = step.body {
                    let graph = if definition.graph.is_some() { ".graph" } else { "" };
                    let (owner, within) = (Some(step.path.clone()), format!("{path}{graph}.steps"));
                    open.push((inner, owner, within, steps_of(&mut definition).to_vec()));
                }
                let (place, group) = ((group, number), owner.clone());
                let waits_for = step.waits_for.to_vec();
                found.insert(step.path.clone(), PlacedStep { definition, path, place, waits_for, group });
            }
        }
        found
    }
}
