//! Reruns (G15): a new run of a graph takes over the results of steps that succeeded in an earlier
//! run. `earlier` collects the results that may be taken, and the submission includes them. `take`
//! takes a result when its step would begin. A step is taken if it succeeded and would read the
//! same values again.
//!
//! A taken result becomes a context that has already ended, at no cost. Everything that reads
//! contexts sees it as if it had run here. A second delivery of the submission finds the root, and
//! changes nothing.

mod again;
mod earlier;
mod kept;
mod take;

use std::collections::HashSet;

use again::Again;
use domain::{graph::Plan, json};

use super::{ContextIndex, Ran, Trace};
pub use kept::{Earlier, KeptResult, KeptStep, Rerun, RerunOrder, StepPlace};
pub(super) use take::{drop_changed, item, may_take, step, winner};

impl Trace {
    /// The run from which it takes results (G15).
    pub fn rerun_of(&self) -> Option<&Rerun> {
        self.rerun.as_ref()
    }

    pub(super) fn drop_kept(&mut self, which: impl Fn(&StepPlace) -> bool) {
        let places: Vec<StepPlace> = self.kept.keys().filter(|place| which(place)).cloned().collect();
        places.iter().for_each(|place| self.remove_kept(place));
    }

    pub(super) fn remove_kept(&mut self, place: &StepPlace) {
        let kept = self.kept.remove(place);
        self.content_bytes -= kept.as_ref().map_or(0, json::size_bytes);
    }

    /// The results are deleted, so they no longer refer to objects of other runs.
    pub(super) fn forget_needs(&mut self) {
        if let Some(rerun) = &mut self.rerun {
            rerun.needs.clear();
            self.unsaved.rerun = true;
        }
    }

    /// Applies an amend of the graph that is run again: the kept results of steps that it removes
    /// or changes, and of all steps after them, are dropped, as if `from` had named them.
    pub(super) fn drop_amended(&mut self, graph: ContextIndex, after: &Plan) {
        if self.kept.is_empty() || self.node(graph).parent.is_some() {
            return;
        }
        let Some((run, _)) = self.run_of(self.node(graph)) else { return };
        let again = Again::amended(&self.plans[run.plan as usize], after);
        let steps = after.groups().iter().flat_map(|group| &group.steps);
        let stay: HashSet<&str> =
            steps.map(|step| &step.path).filter(|path| !again.has(path)).map(|path| path.as_str()).collect();
        self.drop_kept(|place| !stay.contains(place.step()));
    }

    /// Returns true if the steps of a graph are taken one by one from the earlier run. This
    /// excludes the graph of an agent, and steps within an item or a loop, which are taken as a
    /// whole or not at all.
    pub(super) fn takes_steps_in(&self, graph: ContextIndex) -> bool {
        let node = self.node(graph);
        match (node.parent, node.identity.step) {
            (None, _) => true,
            (Some(parent), Some(of)) => of.ran == Ran::Itself && self.takes_steps_in(parent),
            (Some(_), None) => false,
        }
    }
}
