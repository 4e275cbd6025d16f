//! The first pass over a definition: each step by itself. It gives every step its id and place, and
//! collects problems. The second pass, `link`, adds the dependencies between steps.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    Body, Condition, FallbackDef, ForEachDef, Group, LoopDef, OutputDef, OutputSchema, Policy, StepDef,
    TaskGraph, approve,
    definition::ITEM_KEYS,
    plan::{Aggregate, Fallback, ForEach, GroupIndex, Repeat, Step, StepIndex},
    undo,
};
use crate::{
    id::{AgentId, ContextKey, StepId, StepPath},
    json::Json,
    ladder,
    limits::{Ceilings, MAX_GROUP_NESTING, MAX_LOOP_ROUNDS, check_ceilings},
    problem::Problems,
    secrets::{self, Secrets},
    terms::{Hitl, Text},
};

/// The most steps of a definition. A deployment's `max_contexts` is usually lower.
const MAX_STEPS: usize = 50_000;

/// The result of the first pass, for the second.
pub(super) struct Reading<'a> {
    pub(super) groups: Vec<Group>,
    /// For each group, the definitions of its steps.
    pub(super) drafts: Vec<Vec<Draft<'a>>>,
    /// The input keys of the graph and of each graph that a step uses, by the graph's group.
    pub(super) given: BTreeMap<GroupIndex, BTreeSet<ContextKey>>,
    pub(super) problems: Problems,
}

pub(super) struct Draft<'a> {
    pub(super) definition: &'a StepDef,
    pub(super) path: String,
}

/// The common fields of a graph and a group.
pub(super) struct GroupTerms<'a> {
    pub(super) steps: &'a [StepDef],
    pub(super) group: Group,
    pub(super) path: String,
    pub(super) nesting: usize,
    /// The secrets that its steps may use (S8).
    pub(super) secrets: &'a Secrets,
}

pub(super) fn read(graph: &TaskGraph) -> Reading<'_> {
    let mut reader = Reader {
        problems: Problems::default(),
        groups: Vec::new(),
        drafts: Vec::new(),
        given: BTreeMap::new(),
    };
    let total = count(&graph.steps);
    if total > MAX_STEPS {
        let hint = "use `for_each` over a list, or several graphs";
        reader.problems.add(
            "steps",
            format!("{total} steps are more than the {MAX_STEPS} allowed"),
            Some(hint.into()),
        );
        return reader.done();
    }
    let group = reader.terms(graph, "");
    let secrets = &graph.secrets;
    reader.group(GroupTerms { steps: &graph.steps, group, path: String::new(), nesting: 0, secrets });
    reader.name_steps();
    reader.check_humans(graph.hitl);
    reader.done()
}

/// Counts all steps, groups included. The recursion is bounded, because the parser limits nesting.
fn count(steps: &[StepDef]) -> usize {
    let inner = |step: &StepDef| step.graph.as_ref().map_or(0, |graph| count(&graph.steps));
    steps.iter().map(|step| 1 + count(&step.steps) + inner(step)).sum()
}

/// The settings that a step gets from the group around it.
#[derive(Clone, Copy)]
pub(super) struct StepSurroundings<'a> {
    policy: Policy,
    pub(super) nesting: usize,
    pub(super) secrets: &'a Secrets,
}

pub(super) struct Reader<'a> {
    pub(super) problems: Problems,
    groups: Vec<Group>,
    drafts: Vec<Vec<Draft<'a>>>,
    pub(super) given: BTreeMap<GroupIndex, BTreeSet<ContextKey>>,
}

impl<'a> Reader<'a> {
    fn done(self) -> Reading<'a> {
        let Reader { problems, groups, drafts, given } = self;
        Reading { groups, drafts, given, problems }
    }

    /// Reads the terms of a graph: of the whole graph, or of one that runs as a step.
    pub(super) fn terms(&mut self, graph: &TaskGraph, path: &str) -> Group {
        let ceilings = Ceilings {
            max_cost_usd: graph.max_cost_usd,
            max_tokens: graph.max_tokens,
            closing_reserve_usd: graph.closing_reserve_usd,
            timeout_ms: graph.timeout_ms,
        };
        check_ceilings(path, ceilings, &mut self.problems);
        if graph.agent_id.is_some() && graph.aggregate.is_none() {
            let hint = "a graph's own agent only synthesises what `aggregate` gathers: add `aggregate: {}`, or leave it out";
            let message = "a graph without `aggregate` runs no agent of its own";
            self.problems.add(join(path, "agent_id"), message, Some(hint.into()));
        }
        let aggregate = self.aggregate(
            graph.aggregate.as_ref().map(|a| a.timeout_ms),
            graph.agent_id.as_ref(),
            graph.task_description.as_ref(),
            path,
        );
        Group {
            mode: graph.mode,
            policy: graph.on_partial_success,
            race: graph.race,
            aggregate,
            steps: Vec::new(),
            owner: None,
            own_keys: None,
            used: None,
            output: self.output(graph, path),
        }
    }

    pub(super) fn group(&mut self, terms: GroupTerms<'a>) -> GroupIndex {
        let index = self.groups.len();
        let number = GroupIndex::try_from(index).expect("no more groups than steps");
        let policy = terms.group.policy;
        self.groups.push(terms.group);
        self.drafts.push(Vec::new());
        let steps_path = join(&terms.path, "steps");
        if terms.steps.is_empty() {
            self.problems.add(&steps_path, "there are no steps", None);
        }
        for (position, definition) in terms.steps.iter().enumerate() {
            let path = format!("{steps_path}[{position}]");
            let place = (number, StepIndex::try_from(position).expect("at most MAX_STEPS"));
            let around = StepSurroundings { policy, nesting: terms.nesting, secrets: terms.secrets };
            let step = self.step(definition, &path, place, around);
            self.groups[index].steps.push(step);
            self.drafts[index].push(Draft { definition, path });
        }
        number
    }

    fn step(
        &mut self,
        def: &'a StepDef,
        path: &str,
        place: (GroupIndex, StepIndex),
        around: StepSurroundings<'a>,
    ) -> Step {
        let ceilings = Ceilings {
            max_cost_usd: def.max_cost_usd,
            max_tokens: def.max_tokens,
            closing_reserve_usd: None,
            timeout_ms: def.timeout_ms,
        };
        check_ceilings(path, ceilings, &mut self.problems);
        ladder::check(
            &join(path, "on_budget"),
            def.on_budget.as_deref().unwrap_or_default(),
            &mut self.problems,
        );
        self.check_secrets(def, path, around.secrets);
        let graph = def.graph.as_deref();
        self.check_use(def, path);
        let body = if let Some(graph) = graph {
            self.used_body(def, graph, path, place, around)
        } else if !def.steps.is_empty() {
            self.group_body(def, path, place, around)
        } else if let Some(approve) = &def.approve {
            approve::body(def, approve, path, &mut self.problems)
        } else if def.uses.is_some() {
            // The mistakes of `use` are reported separately.
            Body::Agent { agent_id: AgentId::default_agent(), goal: Text::new("-").expect("a valid literal") }
        } else {
            self.agent_body(def, path)
        };
        Step {
            // Ids of unnamed steps are generated once all given ids are known.
            id: unnamed(),
            path: (&unnamed()).into(),
            fallback: def.fallback.as_ref().and_then(|fallback| self.fallback(fallback, def, path)),
            body,
            inputs: Vec::new(),
            output_to: def.output_to.clone(),
            required: def.required,
            waits_for: Vec::new(),
            dependents: Vec::new(),
            requires: Vec::new(),
            when_reads: Vec::new(),
            when: self.condition(def.when.as_deref(), &join(path, "when")),
            for_each: def.for_each.as_ref().map(|each| self.for_each(each, def, path)),
            repeat: def.repeat.as_ref().map(|repeat| self.repeat(repeat, path)),
            undo: undo::read(def, path, &mut self.problems),
            output_schema: self.output_schema(def, path),
            max_cost_usd: least(def.max_cost_usd, graph.and_then(|graph| graph.max_cost_usd)),
            max_tokens: least(def.max_tokens, graph.and_then(|graph| graph.max_tokens)),
            funding: def.funding,
            timeout_ms: shorter(def.timeout_ms, graph.and_then(|graph| graph.timeout_ms)),
            retries: def.retries,
            tools: def.tools.clone().map(Arc::new),
            // A graph has only the secrets that it names.
            secrets: graph.map(|graph| graph.secrets.clone()).or_else(|| def.secrets.clone()),
            model: def.model.clone(),
            on_budget: def.on_budget.clone(),
            hitl: narrower(def.hitl, graph.and_then(|graph| graph.hitl)),
        }
    }

    /// S8: a step may only use secrets of the group or graph around it.
    fn check_secrets(&mut self, def: &StepDef, path: &str, around: &Secrets) {
        if let Some(graph) = &def.graph {
            let outside = graph.secrets.outside(def.secrets.as_ref().unwrap_or(around));
            if !outside.is_empty() {
                let message = format!("the step around this graph does not have {}", secrets::list(&outside));
                let hint = "name them in `secrets` of the graph around it too";
                self.problems.add(join(path, "graph.secrets"), message, Some(hint.into()));
            }
        }
        let outside = def.secrets.as_ref().map(|own| own.outside(around)).unwrap_or_default();
        if !outside.is_empty() {
            let message =
                format!("the graph or group around this step does not have {}", secrets::list(&outside));
            let hint = "name them in `secrets` of the graph too, and of the groups in between";
            self.problems.add(join(path, "secrets"), message, Some(hint.into()));
        }
    }

    fn agent_body(&mut self, def: &StepDef, path: &str) -> Body {
        for (field, given) in [
            ("mode", def.mode.is_some()),
            ("on_partial_success", def.on_partial_success.is_some()),
            ("race", def.race),
            ("aggregate", def.aggregate.is_some()),
        ] {
            if given {
                let hint = "only a step with `steps` may have this field";
                self.problems.add(
                    join(path, field),
                    format!("`{field}` belongs to a group"),
                    Some(hint.into()),
                );
            }
        }
        if def.agent_id.is_none() {
            let hint = "name the agent that runs it, give it `steps` to make it a group, `use` a graph, or let a human decide with `approve`";
            self.problems.add(join(path, "agent_id"), "`agent_id` is missing", Some(hint.into()));
        }
        if def.task_description.is_none() {
            self.problems.add(join(path, "task_description"), "`task_description` is missing", None);
        }
        let goal = def.task_description.clone().unwrap_or_else(|| Text::new("-").expect("a valid literal"));
        Body::Agent { agent_id: def.agent_id.clone().unwrap_or_else(AgentId::default_agent), goal }
    }

    fn group_body(
        &mut self,
        def: &'a StepDef,
        path: &str,
        place: (GroupIndex, StepIndex),
        StepSurroundings { policy, nesting, secrets }: StepSurroundings<'a>,
    ) -> Body {
        for (field, given, hint) in [
            ("retries", def.retries.is_some(), "put `retries` on its steps, or give the group a `loop`"),
            ("output_schema", def.output_schema.is_some(), "put `output_schema` on its steps"),
            ("input_from", !def.input_from.is_empty(), "put `input_from` on its steps"),
            ("tools", def.tools.is_some(), "put `tools` on its steps"),
            ("model", def.model.is_some(), "put `model` on its steps"),
            ("on_budget", def.on_budget.is_some(), "put `on_budget` on its steps"),
            ("approve", def.approve.is_some(), "make it one of its steps"),
            ("undo", def.undo.is_some(), "put `undo` on its steps"),
            (
                "agent_id",
                def.agent_id.is_some() && def.aggregate.is_none(),
                "a group's own agent only synthesises what `aggregate` gathers",
            ),
        ] {
            if given {
                self.problems.add(
                    join(path, field),
                    format!("a group can't have `{field}`"),
                    Some(hint.into()),
                );
            }
        }
        if nesting + 1 > MAX_GROUP_NESTING {
            let message = format!("groups nest deeper than {MAX_GROUP_NESTING}");
            self.problems.add(join(path, "steps"), message, None);
            return Body::Group(0);
        }
        let aggregate = self.aggregate(
            def.aggregate.as_ref().map(|a| a.timeout_ms),
            def.agent_id.as_ref(),
            def.task_description.as_ref(),
            path,
        );
        let group = Group {
            mode: def.mode.unwrap_or_default(),
            policy: def.on_partial_success.unwrap_or(policy),
            race: def.race,
            aggregate,
            steps: Vec::new(),
            owner: Some(place),
            own_keys: def.for_each.as_ref().map(|_| item_keys()),
            used: None,
            output: None,
        };
        Body::Group(self.group(GroupTerms {
            steps: &def.steps,
            group,
            path: path.into(),
            nesting: nesting + 1,
            secrets: def.secrets.as_ref().unwrap_or(secrets),
        }))
    }

    /// Reads `output` of a graph. It is rejected if an agent or a race makes the result.
    fn output(&mut self, graph: &TaskGraph, path: &str) -> Option<OutputDef> {
        let output = graph.output.clone()?;
        let made = match (&graph.aggregate, graph.race) {
            (Some(_), _) => "the synthesis of `aggregate`",
            (None, true) => "that of the winner of the race",
            (None, false) => return Some(output),
        };
        let hint = "leave `output` out, or put the steps into a group";
        self.problems.add(
            join(path, "output"),
            format!("the result of this graph is {made}"),
            Some(hint.into()),
        );
        None
    }

    /// Reads the terms of `aggregate`. `asked` is `None` without `aggregate`; the inner option is
    /// its timeout.
    fn aggregate(
        &mut self,
        asked: Option<Option<u64>>,
        agent: Option<&AgentId>,
        task: Option<&Text>,
        path: &str,
    ) -> Option<Aggregate> {
        let timeout_ms = asked?;
        let ceilings = Ceilings { timeout_ms, ..Ceilings::default() };
        check_ceilings(&join(path, "aggregate"), ceilings, &mut self.problems);
        let Some(agent_id) = agent.cloned() else {
            let hint = "name the agent that writes the synthesis, beside `aggregate`";
            self.problems.add(join(path, "agent_id"), "`aggregate` needs an `agent_id`", Some(hint.into()));
            return None;
        };
        Some(Aggregate { agent_id, task: task.cloned(), timeout_ms })
    }

    fn fallback(&mut self, fallback: &FallbackDef, def: &StepDef, path: &str) -> Option<Fallback> {
        let (agent_id, task) = match fallback {
            FallbackDef::Agent(agent) => (agent, None),
            FallbackDef::Task(task) => (&task.agent_id, task.task_description.as_ref()),
        };
        let Some(goal) = task.or(def.task_description.as_ref()).cloned() else {
            let hint = "write it as {\"agent_id\": …, \"task_description\": …}";
            self.problems.add(join(path, "fallback"), "`fallback` has no task", Some(hint.into()));
            return None;
        };
        if def.for_each.is_some() || def.repeat.is_some() {
            let hint = "wrap the step in a group and give that the `fallback`";
            let message = "a step with `for_each` or `loop` can't have a `fallback`";
            self.problems.add(join(path, "fallback"), message, Some(hint.into()));
        }
        Some(Fallback { agent_id: agent_id.clone(), goal })
    }

    fn for_each(&mut self, each: &ForEachDef, def: &StepDef, path: &str) -> ForEach {
        if def.repeat.is_some() {
            let hint = "wrap the step in a group and give that the `loop`";
            let message = "a step can't have both `for_each` and `loop`";
            self.problems.add(join(path, "for_each"), message, Some(hint.into()));
        }
        let (key, max_parallel) = match each {
            ForEachDef::Key(key) => (key, None),
            ForEachDef::Bounded(bounded) => {
                if bounded.max_parallel == 0 {
                    self.problems.add(join(path, "for_each.max_parallel"), "it must be at least 1", None);
                }
                (&bounded.key, Some(bounded.max_parallel))
            }
        };
        ForEach { key: key.clone(), max_parallel, shows_list: def.input_from.contains(key) }
    }

    fn repeat(&mut self, repeat: &LoopDef, path: &str) -> Repeat {
        let at = join(path, "loop");
        if !(1..=MAX_LOOP_ROUNDS).contains(&repeat.max_rounds) {
            let message = format!("a loop has 1 to {MAX_LOOP_ROUNDS} rounds, not {}", repeat.max_rounds);
            self.problems.add(join(&at, "max_rounds"), message, None);
        }
        let until = self.condition(repeat.until.as_deref(), &join(&at, "until"));
        Repeat { max_rounds: repeat.max_rounds, until }
    }

    fn condition(&mut self, source: Option<&str>, path: &str) -> Option<Condition> {
        match Condition::compile(source?, path) {
            Ok(condition) => {
                if let Some(mistake) = condition.mistake() {
                    let hint = "compare it with something, as in `outputs.review.score > 0.5`";
                    self.problems.add(path, mistake, Some(hint.into()));
                }
                Some(condition)
            }
            Err(problems) => {
                problems.iter().for_each(|p| self.problems.add(&p.path, &p.message, p.hint.clone()));
                None
            }
        }
    }

    fn output_schema(&mut self, def: &StepDef, path: &str) -> Option<OutputSchema> {
        schema(def.output_schema.as_ref(), &join(path, "output_schema"), &mut self.problems)
    }

    /// G7: a graph that must not ask humans can't have an `approve` step.
    fn check_humans(&mut self, hitl: Option<Hitl>) {
        if hitl == Some(Hitl::Fail) {
            self.no_human("", "hitl");
        }
        let graphs = self.drafts.iter().flatten().filter(|draft| {
            draft.definition.graph.as_ref().is_some_and(|graph| graph.hitl == Some(Hitl::Fail))
        });
        for path in graphs.map(|draft| join(&draft.path, "graph")).collect::<Vec<_>>() {
            self.no_human(&format!("{path}."), &format!("{path}.hitl"));
        }
    }

    fn no_human(&mut self, within: &str, at: &str) {
        let asks = |draft: &&Draft<'_>| draft.definition.approve.is_some() && draft.path.starts_with(within);
        if let Some(draft) = self.drafts.iter().flatten().find(asks) {
            let message = format!("{} asks a human, and `hitl` is `fail`", join(&draft.path, "approve"));
            self.problems.add(at, message, Some("leave `hitl` out, or the step".into()));
        }
    }

    /// Checks that given ids are unique in their graph, and generates missing ones from the agent's
    /// name: `researcher-2`.
    fn name_steps(&mut self) {
        let tops = tops(&self.groups);
        let mut graphs: BTreeMap<GroupIndex, Vec<usize>> = BTreeMap::new();
        tops.iter().enumerate().for_each(|(group, top)| graphs.entry(*top).or_default().push(group));
        for groups in graphs.into_values() {
            self.name_steps_in(&groups);
        }
        // The path of a step in a used graph begins with the path of the step that uses it.
        let mut around: Vec<Option<StepPath>> = Vec::new();
        for group in 0..self.groups.len() {
            let owner = self.groups[group].owner;
            let outer = owner.and_then(|(outer, step)| match self.groups[group].used {
                Some(_) => Some(self.groups[outer as usize].steps[step as usize].path.clone()),
                None => around[outer as usize].clone(),
            });
            for step in &mut self.groups[group].steps {
                step.path = StepPath::of(outer.as_ref(), &step.id);
            }
            around.push(outer);
        }
    }

    /// Names the steps of one graph, whose groups these are.
    fn name_steps_in(&mut self, groups: &[usize]) {
        let drafts = || groups.iter().flat_map(|group| &self.drafts[*group]);
        let mut taken: HashMap<StepId, &str> = HashMap::new();
        for draft in drafts() {
            let Some(id) = &draft.definition.id else { continue };
            if let Some(first) = taken.get(id) {
                let hint = format!("{first} already has this id");
                self.problems.add(join(&draft.path, "id"), format!("duplicate id `{id}`"), Some(hint));
            } else {
                taken.insert(id.clone(), &draft.path);
            }
        }
        let unnamed = drafts().filter(|d| d.definition.id.is_none());
        let mut uses: HashMap<String, u32> = HashMap::new();
        unnamed.for_each(|draft| *uses.entry(base_name(draft.definition)).or_default() += 1);
        let mut numbers: HashMap<String, u32> = HashMap::new();
        for group in groups {
            for (step, draft) in self.groups[*group].steps.iter_mut().zip(&self.drafts[*group]) {
                if let Some(id) = &draft.definition.id {
                    step.id = id.clone();
                    continue;
                }
                let base = base_name(draft.definition);
                let number = numbers.entry(base.clone()).or_default();
                step.id = loop {
                    *number += 1;
                    let alone = uses[&base] == 1 && *number == 1;
                    let name = if alone { base.clone() } else { numbered(&base, *number) };
                    let id = StepId::new(&name).expect("an id with a number behind it");
                    if !taken.contains_key(&id) {
                        break id;
                    }
                };
                taken.insert(step.id.clone(), &draft.path);
            }
        }
    }
}

/// Returns the base of a generated id.
fn base_name(def: &StepDef) -> String {
    match (&def.graph, &def.agent_id) {
        (Some(graph), _) => graph.name.as_ref().map_or("graph".into(), ToString::to_string),
        (None, Some(agent)) if def.steps.is_empty() => agent.to_string(),
        (None, None) if def.approve.is_some() && def.steps.is_empty() => "approval".into(),
        (None, _) => "group".into(),
    }
}

/// Stands for an id until all given ids are known.
fn unnamed() -> StepId {
    StepId::new("unnamed").expect("a valid literal")
}

/// Returns for each group the top group of its graph: the whole graph's, or that of a graph that
/// runs as a step. A group comes after the group around it.
pub(super) fn tops(groups: &[Group]) -> Vec<GroupIndex> {
    let mut tops: Vec<GroupIndex> = Vec::new();
    for (group, number) in groups.iter().zip(0u32..) {
        tops.push(match (group.owner, &group.used) {
            (Some((outer, _)), None) => tops[outer as usize],
            (Some(_), Some(_)) | (None, _) => number,
        });
    }
    tops
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

/// Returns the shorter of two timeouts. Zero means no timeout.
fn shorter(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    least(one.filter(|ms| *ms > 0), other.filter(|ms| *ms > 0)).or(one).or(other)
}

/// Combines two settings: `fail` wins, because either side may rule out asking a human.
fn narrower(one: Option<Hitl>, other: Option<Hitl>) -> Option<Hitl> {
    if other == Some(Hitl::Fail) { other } else { one.or(other) }
}

/// Compiles a JSON Schema of a definition, or adds the reason for its rejection to `problems`.
pub(super) fn schema(given: Option<&Json>, path: &str, problems: &mut Problems) -> Option<OutputSchema> {
    OutputSchema::compile(given?).map_err(|message| problems.add(path, message, None)).ok()
}

fn item_keys() -> BTreeSet<ContextKey> {
    ITEM_KEYS.map(|key| ContextKey::new(key).expect("a valid literal")).into()
}

/// Returns `base-number`, with the base shortened so that the id stays valid.
fn numbered(base: &str, number: u32) -> String {
    let suffix = format!("-{number}");
    let kept = base.len().min(64 - suffix.len());
    format!("{}{suffix}", &base[..kept])
}

pub(super) fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.into() } else { format!("{path}.{field}") }
}
