//! The critical path of a graph (G11): the chain of steps that decides how long the graph takes. If
//! the times of all steps in earlier runs are known, the path is the slowest chain; else it is the
//! chain with the most steps.

use std::collections::BTreeMap;

use super::{Body, GroupIndex, Plan, Step, StepIndex};
use crate::id::StepPath;

/// The longest chain of steps, and its length: in milliseconds if `times` has every step, else in
/// steps.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CriticalPath {
    /// The steps in the order in which they run. The steps within a group follow the group.
    pub steps: Vec<StepPath>,
    /// `None` if the length is in steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_ms: Option<u64>,
}

impl CriticalPath {
    /// Finds the critical path. `times` has the expected duration of steps in milliseconds.
    pub fn of(plan: &Plan, times: &BTreeMap<StepPath, u64>) -> Self {
        let steps = || plan.groups().iter().flat_map(|group| &group.steps);
        let by_time = !times.is_empty() && steps().all(|step| times.contains_key(&step.path));
        let (length, steps) = longest(plan, 0, &|step| times.get(&step.path).copied().filter(|_| by_time));
        CriticalPath { steps, expected_ms: by_time.then_some(length) }
    }
}

type Path = (u64, Vec<StepPath>);

/// Returns the longest chain in a group.
fn longest(plan: &Plan, group: GroupIndex, time: &dyn Fn(&Step) -> Option<u64>) -> Path {
    let steps = &plan.group(group).steps;
    let mut ends: BTreeMap<StepIndex, Path> = BTreeMap::new();
    let mut open: Vec<StepIndex> = (0..u32::try_from(steps.len()).unwrap_or(u32::MAX)).collect();
    // A plan has no cycle, so each round finds at least one step whose dependencies have all been
    // visited.
    let mut left = usize::MAX;
    while open.len() < left {
        left = open.len();
        open.retain(|index| {
            let step = &steps[*index as usize];
            if !step.waits_for.iter().all(|before| ends.contains_key(before)) {
                return true;
            }
            let before = step.waits_for.iter().map(|before| &ends[before]).max_by_key(|(length, _)| *length);
            let (mut length, mut path) = before.cloned().unwrap_or_default();
            let (inner, within) = match step.body {
                Body::Group(inner) => longest(plan, inner, time),
                Body::Agent { .. } | Body::Approve(_) => (1, Vec::new()),
            };
            let rounds = step.repeat.as_ref().map_or(1, |repeat| u64::from(repeat.max_rounds));
            length = length.saturating_add(time(step).unwrap_or(inner.saturating_mul(rounds)));
            path.push(step.path.clone());
            path.extend(within);
            ends.insert(*index, (length, path));
            false
        });
    }
    ends.into_values().reduce(|one, other| if other.0 > one.0 { other } else { one }).unwrap_or_default()
}
