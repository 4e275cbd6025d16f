//! Reruns (G15): a new run of a graph takes over what succeeded in an earlier one. `earlier` finds in the earlier run what
//! may be taken, and the submission brings it along; `take` takes it when its step would begin. A step is taken if it
//! succeeded and would read the same values again.
//!
//! What is taken becomes a context that has ended as the earlier one did, at no cost: everything that reads contexts finds
//! it as if it had run here. A second delivery of the submission finds the root, and changes nothing.

mod earlier;
mod kept;
mod take;

use super::{ContextIndex, Ran, Trace};

pub use kept::{Earlier, Kept, KeptStep, Rerun, RerunOrder, StepPlace};
pub(super) use take::{drop_changed, item, step, winner};

impl Trace {
    /// The run that it takes results from (G15).
    pub fn rerun_of(&self) -> Option<&Rerun> {
        self.rerun.as_ref()
    }

    pub(super) fn drop_kept(&mut self, which: impl Fn(&StepPlace) -> bool) {
        let places: Vec<StepPlace> = self.kept.keys().filter(|place| which(place)).cloned().collect();
        places.iter().for_each(|place| drop(self.kept.remove(place)));
    }

    /// Its results are deleted: they refer to nothing any more.
    pub(super) fn forget_needs(&mut self) {
        if let Some(rerun) = &mut self.rerun {
            rerun.needs.clear();
            self.unsaved.rerun = true;
        }
    }

    /// How the places in a graph begin; none within an item or a loop, which is taken as a whole or not at all.
    fn places_in(&self, graph: ContextIndex) -> Option<String> {
        let node = self.node(graph);
        let (Some(parent), Some(of)) = (node.parent, node.step) else {
            return node.parent.is_none().then(String::new);
        };
        let outside = self.places_in(parent)?;
        match of.ran {
            Ran::Itself => Some(StepPlace::of(&outside, of.step, None).inside()),
            Ran::Item(_) | Ran::Round(_) | Ran::Fallback => None,
        }
    }
}
