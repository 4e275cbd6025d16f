//! The second pass: the dependencies between steps. A step whose `input_from` names another step's
//! `output_to` depends on that step (G2), and so does a step whose condition reads it. A dependency
//! between steps of different groups is recorded between the two siblings that contain them. A
//! graph that runs as a step is separate: its keys and step ids are not visible outside. Cycles,
//! unknown keys and unknown steps are rejected.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    Mode, OutputDef,
    definition::ITEM_KEYS,
    plan::{Body, Group, GroupIndex, Input, Source, StepIndex},
    steps::{Draft, join, tops},
    used::is_too_long,
};
use crate::{
    id::ContextKey,
    problem::{Problems, nearest},
};

type Place = (GroupIndex, StepIndex);

/// Sets the steps that each step waits for, requires and reads. `given` has the input keys of each
/// graph, by the graph's group.
pub(super) fn link(
    groups: &mut [Group],
    drafts: &[Vec<Draft<'_>>],
    given: &BTreeMap<GroupIndex, BTreeSet<ContextKey>>,
    problems: &mut Problems,
) {
    if groups.is_empty() {
        return;
    }
    let tops = tops(groups);
    let (producers, places) = (HashMap::new(), HashMap::new());
    let mut linker = Linker { groups, drafts, problems, tops, all_given: given, producers, places };
    linker.find_producers();
    linker.check_own_keys();
    for (group, steps) in drafts.iter().enumerate() {
        for step in 0..steps.len() {
            let place = (index(group), index(step));
            linker.order(place);
            linker.inputs(place);
            linker.conditions(place);
            linker.depends_on(place);
        }
    }
    given.keys().for_each(|graph| linker.output(*graph));
    for group in 0..drafts.len() {
        linker.finish(group);
    }
}

struct Linker<'a, 'd> {
    groups: &'a mut [Group],
    drafts: &'a [Vec<Draft<'d>>],
    problems: &'a mut Problems,
    /// The top group of the graph that each group is in.
    tops: Vec<GroupIndex>,
    all_given: &'a BTreeMap<GroupIndex, BTreeSet<ContextKey>>,
    /// The step that writes a key, by the top group of the key's graph.
    producers: HashMap<GroupIndex, BTreeMap<String, Place>>,
    /// Steps by their ids, by the top group of their graph.
    places: HashMap<GroupIndex, BTreeMap<String, Place>>,
}

/// The relation of a step to another step that it reads from.
enum Relation {
    /// The reader and the writer are, or are inside, two steps of one group.
    Siblings { group: GroupIndex, reader: StepIndex, writer: StepIndex },
    /// The writer is the reader itself, or a group around it.
    Within,
}

impl<'a> Linker<'a, '_> {
    /// Returns the input keys of a group's graph.
    fn given(&self, group: GroupIndex) -> &'a BTreeSet<ContextKey> {
        &self.all_given[&self.tops[group as usize]]
    }

    /// Returns the step that writes a key in the graph of a group.
    fn writer(&self, group: GroupIndex, key: &str) -> Option<Place> {
        self.producers.get(&self.tops[group as usize])?.get(key).copied()
    }

    /// Returns a step by its id in the graph of a group.
    fn named(&self, group: GroupIndex, id: &str) -> Option<Place> {
        self.places.get(&self.tops[group as usize])?.get(id).copied()
    }

    fn find_producers(&mut self) {
        for (group, drafts) in self.drafts.iter().enumerate() {
            for (step, draft) in drafts.iter().enumerate() {
                let place = (index(group), index(step));
                let top = self.tops[group];
                let id = self.groups[group].steps[step].id.to_string();
                self.places.entry(top).or_default().insert(id, place);
                let Some(key) = &draft.definition.output_to else { continue };
                let at = join(&draft.path, "output_to");
                if self.given(place.0).contains(key) {
                    let hint = "give it another name: an input of the graph is not overwritten";
                    self.problems.add(at, format!("`{key}` is an input of the graph"), Some(hint.into()));
                } else if let Some(first) = self.writer(place.0, key.as_str()) {
                    let hint = format!(
                        "{} already writes it; if the steps are alternatives, give `output_to` to their group",
                        self.path(first)
                    );
                    self.problems.add(at, format!("`{key}` is written by two steps"), Some(hint));
                } else {
                    self.producers.entry(top).or_default().insert(key.to_string(), place);
                }
            }
        }
    }

    /// Checks the keys of groups with `for_each` and of graphs that run as a step. Every run of
    /// such a group stores its own values under the id of its context. Such a key must be valid and
    /// must not collide with another key.
    fn check_own_keys(&mut self) {
        let places = self
            .drafts
            .iter()
            .enumerate()
            .flat_map(|(group, steps)| (0..steps.len()).map(move |step| (index(group), index(step))));
        let places: Vec<Place> = places.collect();
        // The ids of contexts in a graph that runs as a step begin with that step's id, so the
        // steps of the outermost graph suffice.
        let own = |place: &&Place| self.own_keys_of(**place).is_some() && self.tops[place.0 as usize] == 0;
        let owners = places.iter().filter(own).map(|place| self.step(*place).id.to_string());
        let owners: Vec<String> = owners.collect();
        let is_taken = |key: &ContextKey| {
            let (id, _) = key.as_str().split_once('.')?;
            let is_of = |owner: &&String| {
                let rest = id.strip_prefix(owner.as_str());
                rest.is_some_and(|rest| rest.starts_with('-') || rest.is_empty())
            };
            let owner = owners.iter().find(is_of)?;
            let place = self.named(0, owner)?;
            let is_used = self.own_keys_of(place).is_some_and(|inner| self.group(inner).used.is_some());
            // The contexts of items have numbers, so only an id with a suffix collides.
            (is_used || id != owner).then(|| match is_used {
                true => format!("it would be a key of the graph that `{owner}` uses"),
                false => "it would be a value of an item of a group with `for_each`".to_owned(),
            })
        };
        let rename = || Some("give it another name".to_owned());
        let mut taken: Vec<(String, String)> = Vec::new();
        for key in self.given(0) {
            taken.extend(is_taken(key).map(|message| (format!("inputs.{key}"), message)));
        }
        for place in places.iter().filter(|place| self.tops[place.0 as usize] == 0) {
            let draft = self.draft(*place);
            let message = draft.definition.output_to.as_ref().and_then(&is_taken);
            taken.extend(message.map(|message| (join(&draft.path, "output_to"), message)));
        }
        taken.into_iter().for_each(|(path, message)| self.problems.add(path, message, rename()));
        for place in places {
            let draft = self.draft(place);
            let Some(key) = draft.definition.output_to.clone() else { continue };
            let path = join(&draft.path, "output_to");
            let Some((owner, inner)) = self.owner_of_keys(place.0) else { continue };
            if self.group(inner).used.is_none() && ITEM_KEYS.contains(&key.as_str()) {
                let message = format!("`{key}` is given to every item of `{}`", self.step(owner).id);
                self.problems.add(&path, message, rename());
            } else if is_too_long(&key) {
                let message =
                    format!("the key `{key}` is too long: it is stored with the id of an item as its prefix");
                self.problems.add(&path, message, None);
            }
            self.groups[inner as usize].own_keys.get_or_insert_default().insert(key);
        }
    }

    /// Returns the group of a step if every run of it has its own keys.
    fn own_keys_of(&self, place: Place) -> Option<GroupIndex> {
        match self.step(place).body {
            Body::Group(inner) if self.step(place).for_each.is_some() || self.group(inner).used.is_some() => {
                Some(inner)
            }
            Body::Group(_) | Body::Agent { .. } | Body::Approve(_) => None,
        }
    }

    /// Returns the nearest step that is or encloses a group and whose runs have their own keys,
    /// with its group.
    fn owner_of_keys(&self, group: GroupIndex) -> Option<(Place, GroupIndex)> {
        let mut around = self.group(group).owner;
        while let Some(owner) = around {
            if let Some(inner) = self.own_keys_of(owner) {
                return Some((owner, inner));
            }
            around = self.group(owner.0).owner;
        }
        None
    }

    /// Returns the step that is this group; `None` for a graph.
    fn owner(&self, group: GroupIndex) -> Option<Place> {
        self.group(group).owner.filter(|_| self.group(group).used.is_none())
    }

    /// Returns the nearest step with `for_each` that is or encloses a group.
    fn items_around(&self, group: GroupIndex) -> Option<Place> {
        let mut around = self.owner(group);
        while let Some(owner) = around {
            if self.step(owner).for_each.is_some() {
                return Some(owner);
            }
            around = self.owner(owner.0);
        }
        None
    }

    /// Returns the `for_each` step in whose items a value is written, if its reader is outside of
    /// that step. There is one value per item, so an outside reader has no single value to read.
    fn hidden_in_items(&self, reader: Place, writer: Place) -> Option<Place> {
        let around_reader = self.ancestry(reader);
        let mut around = self.items_around(writer.0);
        while let Some(items) = around {
            if items == reader || !around_reader.contains(&items) {
                return Some(items);
            }
            around = self.items_around(items.0);
        }
        None
    }

    /// Adds a problem if the value is hidden in items, and returns true then.
    fn is_hidden(&mut self, reader: Place, writer: Place, key: &str, path: &str) -> bool {
        let Some(items) = self.hidden_in_items(reader, writer) else { return false };
        self.hidden(items, key, path);
        true
    }

    /// Adds the problem that `key` is written within the items of a group and read outside of it.
    fn hidden(&mut self, items: Place, key: &str, path: &str) {
        let group = self.step(items);
        let hint = match &group.output_to {
            Some(list) => format!("read `{list}`, the list of the items' results"),
            None => format!("give `{}` an `output_to`: the list of the items' results", group.id),
        };
        let message = format!("`{key}` is written once for each item of `{}`", group.id);
        self.problems.add(path, message, Some(hint));
    }

    fn order(&mut self, (group, step): Place) {
        let sequential = self.group(group).mode == Mode::Sequential && !self.group(group).race;
        if sequential && step > 0 {
            self.waits(group, step, step - 1);
        }
    }

    fn inputs(&mut self, place: Place) {
        let draft = self.draft(place);
        let each =
            self.step(place).for_each.as_ref().map(|each| (each.key.clone(), join(&draft.path, "for_each")));
        let named = draft.definition.input_from.iter().enumerate();
        let named = named.map(|(i, key)| (key.clone(), format!("{}.input_from[{i}]", draft.path)));
        let own_item = each.is_some() && self.items_around(place.0).is_some();
        let twice = named.clone().find(|(key, _)| own_item && ITEM_KEYS.contains(&key.as_str()));
        // The item's own element is not a key of the graph around it.
        let own = |key: &ContextKey| each.is_some() && ITEM_KEYS.contains(&key.as_str());
        let with = draft.definition.with.iter();
        let with = with.filter_map(|(name, with)| Some((with.key()?, format!("{}.with.{name}", draft.path))));
        let with: Vec<_> = with.filter(|(key, _)| !own(key)).map(|(key, path)| (key.clone(), path)).collect();
        let named: Vec<_> = each.into_iter().chain(named).chain(with).collect();
        if let Some((key, path)) = twice {
            let hint = "it has its own value already; have an earlier step of the group write the other one to another key";
            let message = format!("`{key}` is both its own and that of the group around it");
            self.problems.add(path, message, Some(hint.into()));
        }
        for (key, path) in named {
            let Some(source) = self.source(place, key.as_str(), &path) else { continue };
            let inputs = &mut self.step_mut(place).inputs;
            if inputs.iter().all(|input| input.key != key) {
                inputs.push(Input { key, source });
            }
        }
    }

    fn conditions(&mut self, place: Place) {
        let given = self.given(place.0);
        let path = &self.draft(place).path;
        let (when_at, until_at) = (join(path, "when"), join(path, "loop.until"));
        let step = self.step(place);
        let until = step.repeat.as_ref().and_then(|repeat| repeat.until.clone());
        if let Some(when) = step.when.clone() {
            for key in when.outputs() {
                if let Some(source) = self.source(place, key, &when_at) {
                    let key = ContextKey::new(key).expect("`source` knows only valid keys");
                    self.step_mut(place).when_reads.push(Input { key, source });
                }
            }
            for id in when.steps() {
                self.looks_at(place, id, &when_at);
            }
        }
        // `until` is evaluated after a round, so the round's own outputs exist. Only the names are
        // checked.
        let Some(until) = until else { return };
        let items = self.items_around(place.0).is_some();
        let is_given = |key: &str| given.contains(key) || (items && ITEM_KEYS.contains(&key));
        for key in until.outputs().filter(|key| !is_given(key)) {
            match self.writer(place.0, key) {
                Some(writer) if self.is_hidden(place, writer, key, &until_at) => {}
                Some(writer) => match self.relation(place, writer) {
                    Relation::Siblings { group, reader, writer } if reader != writer => {
                        self.waits(group, reader, writer);
                    }
                    Relation::Siblings { .. } | Relation::Within => {}
                },
                None if self.inside(place, key) => {}
                None => self.unknown_key(place.0, key, &until_at),
            }
        }
        for id in until.steps() {
            match self.named(place.0, id) {
                Some(seen) if self.is_inside(seen, place) => {}
                _ => self.looks_at(place, id, &until_at),
            }
        }
    }

    /// Checks the keys of a graph's result.
    fn output(&mut self, graph: GroupIndex) {
        let Some(top) = self.groups.get(graph as usize) else { return };
        let at = top.owner.map_or(String::new(), |owner| join(self.path(owner), "graph"));
        let at = join(&at, "output");
        let keys: Vec<(ContextKey, String)> = match top.output.clone() {
            None => Vec::new(),
            Some(OutputDef::Key(key)) => vec![(key, at)],
            Some(OutputDef::Named(keys)) => {
                keys.into_iter().map(|(name, key)| (key, format!("{at}.{name}"))).collect()
            }
        };
        let given = self.given(graph);
        for (key, path) in keys.iter().filter(|(key, _)| !given.contains(key)) {
            let Some(writer) = self.writer(graph, key.as_str()) else {
                self.unknown_key(graph, key.as_str(), path);
                continue;
            };
            if let Some(items) = self.items_around(writer.0) {
                self.hidden(items, key.as_str(), path);
            }
        }
    }

    /// Returns the source of a key that a step reads, and records the dependency.
    fn source(&mut self, place: Place, key: &str, path: &str) -> Option<Source> {
        let given = self.given(place.0);
        let is_of_an_item = ITEM_KEYS.contains(&key) && self.items_around(place.0).is_some();
        if is_of_an_item || given.contains(key) {
            return Some(Source::Outside);
        }
        let Some(writer) = self.writer(place.0, key) else {
            return self.under_a_step(place, key, path).unwrap_or_else(|| {
                self.unknown_key(place.0, key, path);
                None
            });
        };
        if self.is_hidden(place, writer, key, path) {
            return None;
        }
        match self.relation(place, writer) {
            Relation::Siblings { group, reader, writer } if reader != writer => {
                let comes_later = writer > reader && self.group(group).mode == Mode::Sequential;
                if comes_later && self.repeats(group) {
                    return Some(Source::PreviousRound);
                }
                self.waits(group, reader, writer);
                let direct = place == (group, reader);
                let whole = direct && self.writer(group, key) == Some((group, writer));
                Some(if whole { Source::Sibling(writer) } else { Source::Outside })
            }
            Relation::Siblings { .. } | Relation::Within => {
                if self.step(place).repeat.is_some() || self.repeats(place.0) {
                    return Some(Source::PreviousRound);
                }
                let hint = "only a step in a `loop` may read its own output, of the previous round";
                self.problems.add(
                    path,
                    format!("it reads `{key}`, which it writes itself"),
                    Some(hint.into()),
                );
                None
            }
        }
    }

    /// Resolves `<step>.<key>`, which the context of that step writes under its own id. Returns
    /// `None` if the key names no step, and `Some(None)` if the step can't be read here.
    fn under_a_step(&mut self, place: Place, key: &str, path: &str) -> Option<Option<Source>> {
        let (id, _) = ContextKey::new(key).is_ok().then(|| key.split_once('.'))??;
        let writer = self.named(place.0, id)?;
        let step = self.step(writer);
        let refused = if writer.0 != place.0 {
            Some("it is a step of another group; give the value to that group's `output_to`")
        } else if step.for_each.is_some() || !matches!(step.body, Body::Agent { .. }) {
            Some("only a step with one agent keeps values under its own id; read its `output_to`")
        } else {
            None
        };
        if let Some(hint) = refused {
            self.problems.add(path, format!("`{key}` can't be read here"), Some(hint.into()));
            return Some(None);
        }
        Some(self.visible(place, id, path).map(|(_, writer)| Source::UnderSibling(writer)))
    }

    fn depends_on(&mut self, place: Place) {
        let draft = self.draft(place);
        let named: Vec<_> = draft
            .definition
            .depends_on
            .iter()
            .enumerate()
            .map(|(i, id)| (id.to_string(), format!("{}.depends_on[{i}]", draft.path)))
            .collect();
        for (id, path) in named {
            if let Some((levels, step)) = self.visible(place, &id, &path) {
                self.step_mut(place).requires.push((levels, step));
            }
        }
    }

    fn looks_at(&mut self, place: Place, id: &str, path: &str) {
        self.visible(place, id, path);
    }

    /// Finds a step of this group or of a group around it, and records the dependency on it.
    /// Returns the number of groups to go up, and the step.
    fn visible(&mut self, place: Place, id: &str, path: &str) -> Option<(u32, StepIndex)> {
        let Some(seen) = self.named(place.0, id) else {
            let places = self.places.get(&self.tops[place.0 as usize]);
            self.problems.add_with(path, format!("there is no step `{id}`"), || {
                let known = nearest(id, places.into_iter().flatten().map(|(id, _)| id.as_str()))?;
                Some(format!("did you mean `{known}`?"))
            });
            return None;
        };
        let mut levels = 0;
        let mut around = Some(place);
        while let Some((group, reader)) = around {
            if seen.0 == group {
                if seen.1 == reader {
                    let what = if levels == 0 { "itself" } else { "a group around it" };
                    self.problems.add(path, format!("it waits for {what}"), None);
                    return None;
                }
                self.waits(group, reader, seen.1);
                return Some((levels, seen.1));
            }
            around = self.group(group).owner;
            levels += 1;
        }
        let (group, step) = self.outermost_hidden(seen, place);
        let owner = self.step((group, step)).id.clone();
        let hint = format!("depend on its group `{owner}` instead");
        self.problems.add(path, format!("`{id}` lies inside another group"), Some(hint));
        None
    }

    /// Returns the step of the group that hides `seen` from `place`.
    fn outermost_hidden(&self, seen: Place, place: Place) -> Place {
        match self.relation(place, seen) {
            Relation::Siblings { group, writer, .. } => (group, writer),
            Relation::Within => seen,
        }
    }

    fn relation(&self, reader: Place, writer: Place) -> Relation {
        let (reader_path, writer_path) = (self.ancestry(reader), self.ancestry(writer));
        for (r, w) in reader_path.iter().zip(&writer_path) {
            if r.1 != w.1 {
                return Relation::Siblings { group: r.0, reader: r.1, writer: w.1 };
            }
        }
        if writer_path.len() > reader_path.len() {
            // The writer is inside the reader, which is a group. Only the group's `until` may read
            // it.
            return Relation::Siblings { group: reader.0, reader: reader.1, writer: reader.1 };
        }
        Relation::Within
    }

    /// Returns the places from the outermost step down to this one.
    fn ancestry(&self, place: Place) -> Vec<Place> {
        let mut path = vec![place];
        while let Some(owner) = self.group(path[path.len() - 1].0).owner {
            path.push(owner);
        }
        path.reverse();
        path
    }

    fn is_inside(&self, inner: Place, outer: Place) -> bool {
        self.ancestry(inner).contains(&outer)
    }

    fn inside(&self, place: Place, key: &str) -> bool {
        self.writer(place.0, key).is_some_and(|writer| self.is_inside(writer, place))
    }

    /// Returns true if a loop around this group repeats it with the same keys. The search ends at
    /// an item, which begins without keys.
    fn repeats(&self, group: GroupIndex) -> bool {
        let mut around = self.owner(group);
        while let Some(owner) = around {
            if self.step(owner).repeat.is_some() {
                return true;
            }
            if self.step(owner).for_each.is_some() {
                return false;
            }
            around = self.owner(owner.0);
        }
        false
    }

    fn unknown_key(&mut self, group: GroupIndex, key: &str, path: &str) {
        let given = self.given(group);
        let producers = self.producers.get(&self.tops[group as usize]).into_iter().flatten();
        self.problems.add_with(path, format!("nothing writes `{key}`"), || {
            let written = producers.map(|(key, _)| key.as_str());
            let known = written.chain(given.iter().map(ContextKey::as_str));
            Some(match nearest(key, known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "name a key that is the `output_to` of a step, or add it to `inputs`".into(),
            })
        });
    }

    fn waits(&mut self, group: GroupIndex, reader: StepIndex, writer: StepIndex) {
        let waits_for = &mut self.step_mut((group, reader)).waits_for;
        if !waits_for.contains(&writer) {
            waits_for.push(writer);
        }
    }

    /// Rejects cycles, and sets the dependents of each step.
    fn finish(&mut self, group: usize) {
        if let Some(cycle) = find_cycle(&self.groups[group]) {
            let names: Vec<String> =
                cycle.iter().map(|step| self.groups[group].steps[*step as usize].id.to_string()).collect();
            let path = self.drafts[group][cycle[0] as usize].path.clone();
            let message = format!("the steps wait for each other: {}", names.join(" → "));
            let hint = match self.groups[group].mode {
                Mode::Sequential => {
                    "in a sequential group a step can only wait for earlier ones: reorder them, or set `mode: parallel`"
                }
                Mode::Parallel => {
                    "remove one of these dependencies: a step can't need what is made from its own output"
                }
            };
            self.problems.add(path, message, Some(hint.into()));
        }
        for reader in 0..self.groups[group].steps.len() {
            for writer in self.groups[group].steps[reader].waits_for.clone() {
                self.groups[group].steps[writer as usize].dependents.push(index(reader));
            }
        }
    }

    fn group(&self, group: GroupIndex) -> &Group {
        &self.groups[group as usize]
    }

    fn step(&self, (group, step): Place) -> &super::plan::Step {
        &self.groups[group as usize].steps[step as usize]
    }

    fn step_mut(&mut self, (group, step): Place) -> &mut super::plan::Step {
        &mut self.groups[group as usize].steps[step as usize]
    }

    fn draft(&self, (group, step): Place) -> &Draft<'_> {
        &self.drafts[group as usize][step as usize]
    }

    fn path(&self, place: Place) -> &str {
        &self.drafts[place.0 as usize][place.1 as usize].path
    }
}

/// Returns one cycle among the steps of a group. Its first step is repeated at the end.
fn find_cycle(group: &Group) -> Option<Vec<StepIndex>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; group.steps.len()];
    for start in 0..group.steps.len() {
        // Depth-first search without recursion: (step, number of its edges already followed).
        let mut stack: Vec<(usize, usize)> = Vec::new();
        if marks[start] == Mark::New {
            marks[start] = Mark::Open;
            stack.push((start, 0));
        }
        while let Some((step, followed)) = stack.last_mut() {
            let Some(next) = group.steps[*step].waits_for.get(*followed) else {
                marks[*step] = Mark::Done;
                stack.pop();
                continue;
            };
            *followed += 1;
            let next = *next as usize;
            match marks[next] {
                Mark::Done => {}
                Mark::New => {
                    marks[next] = Mark::Open;
                    stack.push((next, 0));
                }
                Mark::Open => {
                    let from = stack
                        .iter()
                        .position(|(open, _)| *open == next)
                        .expect("an open step is on the stack");
                    let mut cycle: Vec<_> = stack[from..].iter().map(|(open, _)| index(*open)).collect();
                    cycle.push(index(next));
                    return Some(cycle);
                }
            }
        }
    }
    None
}

fn index(position: usize) -> u32 {
    u32::try_from(position).expect("a graph has at most MAX_STEPS steps")
}
