//! A whole graph that runs as a step: reads its inputs and checks that it may run there. It
//! compiles into a group with its own keys. Its steps have the same names as in the graph alone.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Body, Group, OutputSchema, StepDef, TaskGraph, WithDef, inputs,
    plan::{GroupIndex, StepIndex, UsedGraph},
    reference::{NOT_READ_HERE, Reference, TWO_GRAPHS, neither},
    steps::{GroupTerms, Reader, StepSurroundings, join, schema},
};
use crate::{
    id::ContextKey,
    json::Json,
    limits::MAX_GROUP_NESTING,
    problem::{Problems, nearest},
};

impl<'a> Reader<'a> {
    /// Checks `use`, `latest` and `with`. The command line or a cluster has already replaced `use`
    /// by a graph; `with` needs a graph.
    pub(super) fn check_use(&mut self, def: &StepDef, path: &str) {
        let reference = def.uses.as_ref().map(|uses| (uses, Reference::new(uses.as_str())));
        match (reference, &def.graph) {
            (Some((_, Reference::Kept(_, Some(_)))), Some(_)) | (None, _) => {}
            (Some(_), Some(_)) => {
                self.problems.add(join(path, "use"), TWO_GRAPHS.0, Some(TWO_GRAPHS.1.into()));
            }
            (Some((_, Reference::File)), None) => {
                self.problems.add(join(path, "use"), NOT_READ_HERE.0, Some(NOT_READ_HERE.1.into()));
            }
            (Some((uses, Reference::Kept(..))), None) => {
                let message = format!("`{uses}` is stored in a cluster, and no cluster is connected here");
                let hint = "name the file of the graph, as `./facts.yaml`, give the graph itself, as `graph`, or submit \
                            it to a cluster";
                self.problems.add(join(path, "use"), message, Some(hint.into()));
            }
            (Some((uses, Reference::Neither)), None) => {
                let (message, hint) = neither(uses.as_str());
                self.problems.add(join(path, "use"), message, Some(hint));
            }
        }
        if def.latest && (def.uses.is_none() || def.graph.is_none()) {
            let hint = "leave it out: `use` without a version names the latest";
            self.problems.add(join(path, "latest"), "the cluster writes it", Some(hint.into()));
        }
        if def.uses.is_none() && def.graph.is_none() && !def.with.is_empty() {
            let hint = "a step reads keys with `input_from`";
            let message = "only a step that uses a graph gives it inputs";
            self.problems.add(join(path, "with"), message, Some(hint.into()));
        }
    }

    pub(super) fn used_body(
        &mut self,
        def: &'a StepDef,
        graph: &'a TaskGraph,
        path: &str,
        place: (GroupIndex, StepIndex),
        StepSurroundings { nesting, .. }: StepSurroundings<'a>,
    ) -> Body {
        self.check_step_fields(def, path);
        let at = join(path, "graph");
        check_graph_fields(graph, &at, &mut self.problems);
        if nesting + 1 > MAX_GROUP_NESTING {
            let message = format!("graphs and groups nest deeper than {MAX_GROUP_NESTING}");
            self.problems.add(at, message, None);
            return Body::Group(0);
        }
        let input_schema =
            schema(graph.input_schema.as_ref(), &join(&at, "input_schema"), &mut self.problems);
        let output_schema =
            schema(graph.output_schema.as_ref(), &join(&at, "output_schema"), &mut self.problems);
        let used = UsedGraph {
            name: def.uses.clone(),
            with: def.with.clone(),
            inputs: graph.filled_inputs(),
            input_schema,
            output_schema,
            closing_reserve_usd: graph.closing_reserve_usd,
            on_exhausted: graph.on_exhausted,
            limits: graph.limits.clone(),
        };
        let mut given = graph.declared_inputs();
        given.extend(graph.inputs.keys().cloned());
        self.check_with(&used, &given, path);
        given.extend(def.with.keys().cloned());
        for key in &given {
            if is_too_long(key) {
                let message = format!(
                    "the key `{key}` is too long: it is stored with the id of the step as its prefix"
                );
                self.problems.add(join(&at, &format!("inputs.{key}")), message, None);
            }
        }
        let own_keys = Some(given.clone());
        let terms = self.terms(graph, &at);
        let group = Group { owner: Some(place), own_keys, used: Some(Box::new(used)), ..terms };
        let number = self.group(GroupTerms {
            steps: &graph.steps,
            group,
            path: at,
            nesting: nesting + 1,
            secrets: &graph.secrets,
        });
        self.given.insert(number, given);
        Body::Group(number)
    }

    fn check_step_fields(&mut self, def: &StepDef, path: &str) {
        for (field, given, hint) in [
            ("steps", !def.steps.is_empty(), "put them into the graph, or both into a group"),
            ("input_from", !def.input_from.is_empty(), "give it inputs, with `with`"),
            ("agent_id", def.agent_id.is_some(), "its own agent is named in the graph"),
            ("task_description", def.task_description.is_some(), "give it inputs, with `with`"),
            ("retries", def.retries.is_some(), "put `retries` on its steps, or give it a `loop`"),
            ("output_schema", def.output_schema.is_some(), "put it into the graph"),
            ("tools", def.tools.is_some(), "put `tools` on its steps"),
            ("model", def.model.is_some(), "put `model` on its steps"),
            ("on_budget", def.on_budget.is_some(), "put `on_budget` on its steps"),
            ("approve", def.approve.is_some(), "make it one of its steps"),
            ("mode", def.mode.is_some(), "put it into the graph"),
            ("on_partial_success", def.on_partial_success.is_some(), "put it into the graph"),
            ("race", def.race, "put it into the graph"),
            ("aggregate", def.aggregate.is_some(), "put it into the graph"),
        ] {
            if given {
                let message = format!("a step that uses a graph can't have `{field}`");
                self.problems.add(join(path, field), message, Some(hint.into()));
            }
        }
    }

    /// Checks the inputs as far as they are known before the run: their names, and those that are
    /// values.
    fn check_with(&mut self, used: &UsedGraph, known: &BTreeSet<ContextKey>, path: &str) {
        let at = join(path, "with");
        let types = used.input_schema.as_ref().and_then(|schema| schema.schema().value().get("properties"));
        for name in used.with.keys().filter(|name| types.is_some() && !known.contains(*name)) {
            let hint = match nearest(name.as_str(), known.iter().map(ContextKey::as_str)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "name it in the graph's `input_schema`".into(),
            };
            self.problems.add(format!("{at}.{name}"), "the graph has no such input", Some(hint));
        }
        let read: Vec<ContextKey> =
            used.with.iter().filter(|(_, with)| with.key().is_some()).map(|(name, _)| name.clone()).collect();
        let mut values = used.inputs.clone();
        values.retain(|name, _| !read.contains(name));
        for (name, with) in used.with.iter().filter(|(name, _)| types.is_none() || known.contains(*name)) {
            if let WithDef::Value(with) = with {
                values.insert(name.clone(), with.value.clone());
            }
        }
        let Some(schema) = &used.input_schema else {
            return;
        };
        for found in inputs::findings(schema, &values, &read) {
            // A problem of the whole object is only certain once all inputs are known.
            let whole = found.path.is_empty() && found.missing.is_none();
            if whole && !read.is_empty() {
                continue;
            }
            let first = found.path.split(['.', '[']).next().unwrap_or_default();
            let of_graph = !used.with.contains_key(first) && used.inputs.contains_key(first);
            let at = if of_graph { join(path, "graph.inputs") } else { at.clone() };
            let place = if found.path.is_empty() { at } else { format!("{at}.{}", found.path) };
            self.problems.add(place, found.message, found.hint);
        }
    }
}

/// The fields that only a submission may have.
pub(super) const OF_A_SUBMISSION: [&str; 7] =
    ["trace_id", "child_id", "thread_id", "labels", "reply_to", "must_fit", "input_from"];

pub(super) fn of_a_submission(field: &str, at: &str, problems: &mut Problems) {
    let hint = "leave it out of a graph that a step uses";
    problems.add(join(at, field), format!("`{field}` belongs to a submission"), Some(hint.into()));
}

fn check_graph_fields(graph: &TaskGraph, at: &str, problems: &mut Problems) {
    let given = [
        graph.trace_id.is_some(),
        graph.child_id.is_some(),
        graph.thread_id.is_some(),
        !graph.labels.is_empty(),
        graph.reply_to.is_some(),
        graph.must_fit,
        !graph.input_from.is_empty(),
    ];
    for (field, _) in OF_A_SUBMISSION.into_iter().zip(given).filter(|(_, given)| *given) {
        of_a_submission(field, at, problems);
    }
}

/// Returns true if a key can't be stored after the id of a context.
pub(super) fn is_too_long(key: &ContextKey) -> bool {
    ContextKey::new(&format!("{}.{key}", "x".repeat(64))).is_err()
}

impl UsedGraph {
    /// Returns the problems of the inputs of a run.
    pub fn check_inputs(&self, inputs: &BTreeMap<ContextKey, Json>) -> Problems {
        let mut problems = Problems::default();
        if let Some(schema) = &self.input_schema {
            inputs::check(schema, inputs, &[], &mut problems);
        }
        problems
    }

    /// Returns the schema that the result must match.
    pub fn output_schema(&self) -> Option<&OutputSchema> {
        self.output_schema.as_ref()
    }
}
