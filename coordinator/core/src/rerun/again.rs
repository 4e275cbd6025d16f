//! The steps of a rerun that are not taken over although they succeeded: the named, undone or
//! amended ones, and all steps that come after them.

use std::collections::BTreeSet;

use domain::{
    Problems, StepPath,
    graph::{Body, GroupIndex, Plan, StepChange, StepIndex, changed_steps},
    problem::nearest,
};

/// Steps by their paths.
#[derive(Default)]
pub(super) struct Again {
    /// Steps that run again with everything in them.
    whole: BTreeSet<StepPath>,
    /// Groups in which some steps run again.
    within: BTreeSet<StepPath>,
}

impl Again {
    /// The steps that a submission names.
    pub(super) fn named(plan: &Plan, from: &[StepPath], problems: &mut Problems) -> Self {
        let mut again = Again::default();
        for (i, id) in from.iter().enumerate() {
            let Some(place) = plan.place_of(id) else {
                let steps = plan.groups().iter().flat_map(|group| &group.steps);
                let hint = nearest(id.as_str(), steps.map(|step| step.path.as_str()));
                let hint = hint.map(|meant| format!("did you mean `{meant}`?"));
                problems.add(format!("rerun.from[{i}]"), format!("the graph has no step `{id}`"), hint);
                continue;
            };
            again.add(plan, place);
        }
        again
    }

    /// Adds the steps that were undone in the earlier run, and all that come after them (G14).
    pub(super) fn undone(&mut self, plan: &Plan, steps: &BTreeSet<StepPath>) {
        if steps.is_empty() {
            return;
        }
        for (number, group) in (0u32..).zip(plan.groups()) {
            let undone = (0u32..).zip(&group.steps).filter(|(_, step)| steps.contains(&step.path));
            undone.for_each(|(place, _)| self.add(plan, (number, place)));
        }
    }

    /// The steps that an amend changes, and all that come after them.
    pub(super) fn amended(before: &Plan, after: &Plan) -> Self {
        let mut again = Again::default();
        for (place, change) in changed_steps(before, after) {
            match change {
                StepChange::Itself => again.add(after, place),
                StepChange::Within => again.add_within(after, place),
            }
        }
        again
    }

    pub(super) fn has_whole(&self, step: &StepPath) -> bool {
        self.whole.contains(step)
    }

    /// Returns true if the step, or a step in it, runs again.
    pub(super) fn has(&self, step: &StepPath) -> bool {
        self.whole.contains(step) || self.within.contains(step)
    }

    /// Adds a step and all steps that come after it, in its group and in the groups around it.
    fn add(&mut self, plan: &Plan, (group, step): (GroupIndex, StepIndex)) {
        let mut open = vec![step];
        while let Some(step) = open.pop() {
            let of = &plan.group(group).steps[step as usize];
            if self.whole.insert(of.path.clone()) {
                open.extend(&of.dependents);
                if let Body::Group(inner) = of.body {
                    self.whole.extend(plan.steps_within(inner).iter().map(|step| step.path.clone()));
                }
            }
        }
        if let Some(owner) = plan.group(group).owner {
            self.add_within(plan, owner);
        }
    }

    /// Adds a group of which a part runs again, and all steps that come after the group. A loop
    /// runs again as a whole.
    fn add_within(&mut self, plan: &Plan, (group, step): (GroupIndex, StepIndex)) {
        let of = &plan.group(group).steps[step as usize];
        if of.repeat.is_some() {
            return self.add(plan, (group, step));
        }
        if self.within.insert(of.path.clone()) {
            of.dependents.iter().for_each(|after| self.add(plan, (group, *after)));
            if let Some(owner) = plan.group(group).owner {
                self.add_within(plan, owner);
            }
        }
    }
}
