//! The data kept to undo the runs of steps (G14), and how events change it. A run of a step with an
//! `undo` has a reserve from its start, held in the budget of its graph or group. The reserve moves
//! up when a group ends, becomes the grant of the undo, or returns. The decisions are in
//! `graph/undo`.

use std::collections::BTreeMap;

use domain::{Amount, ContextKey, Json, Timestamp, json, wire::EndStatus};

use super::{
    ContextEnded, ContextIndex, ContextNode, Phase, RunPhase, Status, Trace, UndoRun, content::END_BYTES,
    undo_values::SHORT_BYTES,
};

impl ContextNode {
    /// Returns true for a live graph that undoes its succeeded steps. It ends when they are undone.
    pub fn is_undoing(&self) -> bool {
        self.graph.as_ref().is_some_and(|run| run.progress.phase == RunPhase::Undoing) && self.is_live()
    }

    /// Returns true if a graph created this context, as a step or as the undo of one.
    pub(super) fn is_of_graph(&self) -> bool {
        self.identity.step.is_some() || self.identity.undoes.is_some()
    }

    /// Returns true if the context is live and does not undo steps.
    pub(super) fn goes_on(&self) -> bool {
        self.is_live() && !self.is_undoing()
    }
}

impl Trace {
    /// The succeeded runs of steps in a graph that are not undone yet, in the order of their ends.
    /// The groups of the graph are included, except those that undo by themselves and those that
    /// ended without undo.
    pub(super) fn undoable(&self, graph: ContextIndex) -> Vec<ContextIndex> {
        let mut found = Vec::new();
        let mut open = vec![graph];
        while let Some(at) = open.pop() {
            for child in &self.node(at).children {
                let node = self.node(*child);
                if node.identity.step.is_none() {
                    continue;
                }
                if let Some(undo) = node.undo.as_ref().filter(|undo| undo.is_open()) {
                    found.push((undo.succeeded_at, *child));
                }
                let dropped = node.end().is_some_and(|end| end.without_undo);
                if node.graph.is_some() && !node.is_undoing() && !dropped {
                    open.push(*child);
                }
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(_, at)| at).collect()
    }

    /// Returns true if the context must undo steps before it can end, unless it ends as a success.
    pub(super) fn has_to_undo(&self, at: ContextIndex) -> bool {
        let node = self.node(at);
        node.graph.is_some() && node.goes_on() && !self.undoable(at).is_empty()
    }

    /// Stores the reserve of a run that begins.
    pub(super) fn keep_reserve(&mut self, run: ContextIndex, reserve: Amount) {
        let (inputs, long_inputs) = (BTreeMap::new(), BTreeMap::new());
        let (succeeded_at, refused, by) = (None, None, None);
        let undo = UndoRun { reserve, succeeded_at, inputs, long_inputs, bytes: 0, refused, by };
        self.node_mut(run).undo = Some(Box::new(undo));
        self.keep_room_for_undo(run, self.undo_bytes(run, END_BYTES));
        if let Some(graph) = self.node(run).parent {
            self.reserve_for_undo(graph, reserve);
        }
    }

    /// A run of a step has ended. If it completed, the data for its undo is kept; otherwise its
    /// reserve returns.
    pub(super) fn run_ended(&mut self, at: ContextIndex, status: EndStatus) {
        let node = self.node(at);
        if node.undo.is_none() {
            return;
        }
        if status != EndStatus::Completed {
            return self.drop_reserve(at);
        }
        let version = self.version;
        if let Some(undo) = &mut self.node_mut(at).undo {
            undo.succeeded_at = Some(version);
        }
        let result =
            self.node(at).end().and_then(|end| end.details.result.as_ref()).map_or(0, json::size_bytes);
        self.keep_room_for_undo(at, self.undo_bytes(at, result));
        self.keep_inputs(at);
    }

    fn drop_reserve(&mut self, run: ContextIndex) {
        self.keep_room_for_undo(run, 0);
        let parent = self.node(run).parent;
        if let (Some(undo), Some(graph)) = (self.node_mut(run).undo.take(), parent) {
            self.return_reserve(graph, undo.reserve);
        }
    }

    /// A graph or group has ended. Its reserves for undos move to the nearest live graph around it.
    /// If there is none, if the graph was undoing itself, or if it ended without undo, they return.
    /// Steps that still run end next and have nothing to undo.
    pub(super) fn pass_reserves(&mut self, at: ContextIndex, was_undoing: bool, ended: &ContextEnded) {
        if self.node(at).budget.reserved.is_zero() {
            return;
        }
        let unfinished =
            |node: &ContextNode| node.undo.as_ref().is_some_and(|undo| undo.succeeded_at.is_none());
        let children = self.node(at).children.clone();
        for child in children.into_iter().filter(|child| unfinished(self.node(*child))).collect::<Vec<_>>() {
            self.drop_reserve(child);
        }
        let rest = self.node(at).budget.reserved;
        self.return_reserve(at, rest);
        let heir = self.holder(at);
        match heir.filter(|_| !was_undoing && !ended.without_undo) {
            Some(heir) => self.reserve_for_undo(heir, rest),
            None => self.drop_inputs_beneath(at),
        }
    }

    /// Starts the undoing of a graph. When its succeeded steps are undone, it ends as `ended`
    /// describes.
    pub(super) fn begin_undoing(&mut self, ended: &ContextEnded, now: Timestamp) {
        let at = self.expect(&ended.child_id);
        self.unparked(at, now);
        self.leave_line(at, |_| true);
        let undos = self.undoable(at);
        self.recount_said(at, |node| {
            node.status = Status::Working(Phase::Steps);
            node.lifecycle.left_at_pause = None;
            if let Some(run) = &mut node.graph {
                run.progress.phase = RunPhase::Undoing;
                run.progress.gather_by = None;
                run.ending = Some(Box::new(ended.clone()));
                run.undos = undos;
            }
        });
        self.end_steps(at);
        self.count_undoing(at, true);
        self.step_stopped(at, ended);
        self.retime(at);
    }

    /// Counts a graph that starts or stops undoing, on itself and on all its ancestors.
    pub(super) fn count_undoing(&mut self, at: ContextIndex, begins: bool) {
        let mut next = Some(at);
        while let Some(at) = next {
            let node = self.node_mut(at);
            node.undoing = if begins { node.undoing + 1 } else { node.undoing - 1 };
            next = node.parent;
        }
    }

    /// The undo of a run begins: the reserve becomes the grant of `by`.
    pub(super) fn undo_begun(&mut self, run: ContextIndex, by: ContextIndex) {
        self.node_mut(by).identity.undoes = Some(run);
        self.drop_inputs(run);
        self.keep_room_for_undo(run, 0);
        let reserve = self.node_mut(run).undo.as_mut().map(|undo| {
            undo.by = Some(by);
            undo.reserve
        });
        if let (Some(graph), Some(reserve)) = (self.node(by).parent, reserve) {
            self.undo_left(graph, run);
            self.return_reserve(graph, reserve);
        }
    }

    /// The undo of a run can't be started: the reserve returns.
    pub(super) fn undo_refused(&mut self, graph: ContextIndex, run: ContextIndex, reason: &str) {
        self.drop_inputs(run);
        self.keep_room_for_undo(run, 0);
        let reserve = self.node_mut(run).undo.as_mut().map(|undo| {
            undo.refused = Some(reason.into());
            undo.reserve
        });
        self.undo_left(graph, run);
        if let Some(reserve) = reserve {
            self.return_reserve(graph, reserve);
        }
    }

    /// The graph that holds the reserve of a run, or of an ended group: the nearest live graph
    /// above it. `None` if a graph on the way ended without undo.
    pub(super) fn holder(&self, at: ContextIndex) -> Option<ContextIndex> {
        let mut above = self.chain(at).map_while(|(_, node)| node.identity.step.and(node.parent));
        above.find_map(|graph| match self.node(graph).end() {
            None => Some(Some(graph)),
            Some(end) if end.without_undo => Some(None),
            Some(_) => None,
        })?
    }

    /// A run is deleted, so it is never undone.
    pub(super) fn forget_undo(&mut self, run: ContextIndex) {
        if self.node(run).undo.as_ref().is_none_or(|undo| !undo.is_open()) {
            return;
        }
        let holder = self.holder(run);
        if holder.is_some() {
            self.drop_inputs(run);
            self.keep_room_for_undo(run, 0);
        }
        let undo = self.node_mut(run).undo.take();
        if let (Some(graph), Some(undo)) = (holder, undo) {
            self.undo_left(graph, run);
            self.return_reserve(graph, undo.reserve);
        }
    }

    fn undo_left(&mut self, graph: ContextIndex, run: ContextIndex) {
        if let Some(of) = &mut self.node_mut(graph).graph {
            match of.undos.last() == Some(&run) {
                true => drop(of.undos.pop()),
                false => of.undos.retain(|at| *at != run),
            }
        }
    }
}

impl Trace {
    /// Stores the values that a succeeded run has read.
    fn keep_inputs(&mut self, run: ContextIndex) {
        let node = self.node(run);
        let read = |key: &ContextKey| Some((key.clone(), self.value_in(node, key)?.value.clone()));
        let read: Vec<(ContextKey, Json)> = node.spec.input_from.iter().filter_map(read).collect();
        let (mut inputs, mut long) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in read {
            match value.size_bytes() > SHORT_BYTES {
                true => drop(long.insert(key, self.undo_values.add(&value))),
                false => drop(inputs.insert(key, value)),
            }
        }
        if let Some(undo) = &mut self.node_mut(run).undo {
            (undo.inputs, undo.long_inputs) = (inputs, long);
        }
    }

    /// The value that a run read under a key.
    pub(super) fn kept_input<'a>(&'a self, undo: &'a UndoRun, key: &ContextKey) -> Option<&'a Json> {
        let long = || self.undo_values.values.get(undo.long_inputs.get(key)?);
        undo.inputs.get(key).or_else(long)
    }

    /// The values that a run read are dropped, because its undo has begun or will never begin.
    fn drop_inputs(&mut self, run: ContextIndex) {
        let Some(undo) = &mut self.node_mut(run).undo else { return };
        undo.inputs.clear();
        let long = std::mem::take(&mut undo.long_inputs);
        long.values().for_each(|digest| self.undo_values.release(digest));
    }

    /// Releases the stored values of all runs in a graph that has ended, when no live graph above
    /// it could undo them. The digests in the runs stay, so that the commit that ends a graph need
    /// not write all runs again.
    fn drop_inputs_beneath(&mut self, graph: ContextIndex) {
        let mut open = vec![graph];
        while let Some(at) = open.pop() {
            for child in self.contexts[at.0 as usize].children.clone() {
                let node = &self.contexts[child.0 as usize];
                if node.identity.step.is_none() {
                    continue;
                }
                let undo = node.undo.as_ref().filter(|undo| undo.is_open());
                let long = undo.iter().flat_map(|undo| undo.long_inputs.values());
                long.for_each(|digest| self.undo_values.release(digest));
                self.content_bytes -= undo.map_or(0, |undo| undo.bytes);
                // A live graph holds its own values. A graph that ended without undo has already
                // released them.
                if node.graph.is_some() && node.end().is_some_and(|end| !end.without_undo) {
                    open.push(child);
                }
            }
        }
    }

    /// Counts the users of each stored value, after a trace was loaded.
    pub(super) fn count_inputs(&mut self, run: ContextIndex) {
        let undo = self.node(run).undo.as_ref().filter(|undo| undo.is_open());
        let Some(long) = undo.map(|undo| undo.long_inputs.clone()).filter(|long| !long.is_empty()) else {
            return;
        };
        if self.holder(run).is_some() {
            long.values().for_each(|digest| self.undo_values.count(digest));
        }
    }
}
