//! The expected cost and duration of a graph (G11), from its earlier runs.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{id::StepPath, money::Usd};

/// The cost and duration of one earlier run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedRun {
    pub cost: Usd,
    pub took_ms: u64,
}

/// An earlier run of a graph: the whole run, and its steps.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierRun {
    pub whole: ObservedRun,
    /// The steps that ran.
    pub steps: BTreeMap<StepPath, ObservedRun>,
}

/// The expected cost and duration, with the number of runs behind them and their spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ExpectedCost {
    pub runs: u32,
    pub least: Usd,
    /// Rounded down to a nano-dollar.
    pub mean: Usd,
    pub most: Usd,
    pub mean_ms: u64,
}

impl ExpectedCost {
    /// Returns `None` without an observation.
    pub fn of(observed: impl IntoIterator<Item = ObservedRun>) -> Option<Self> {
        let all: Vec<ObservedRun> = observed.into_iter().collect();
        let costs = || all.iter().map(|one| one.cost);
        let count = u64::try_from(all.len()).ok().filter(|count| *count > 0)?;
        let mean = |values: &mut dyn Iterator<Item = u64>| values.fold(0, u64::saturating_add) / count;
        Some(ExpectedCost {
            runs: u32::try_from(count).unwrap_or(u32::MAX),
            least: costs().min()?,
            mean: Usd::from_nanos(mean(&mut costs().map(Usd::nanos))),
            most: costs().max()?,
            mean_ms: mean(&mut all.iter().map(|one| one.took_ms)),
        })
    }

    /// Returns the expectation for each step that ran in one of the runs.
    pub fn of_steps(runs: &[EarlierRun]) -> BTreeMap<StepPath, ExpectedCost> {
        let mut observed: BTreeMap<&StepPath, Vec<ObservedRun>> = BTreeMap::new();
        for (step, one) in runs.iter().flat_map(|run| &run.steps) {
            observed.entry(step).or_default().push(*one);
        }
        observed.into_iter().filter_map(|(step, all)| Some((step.clone(), ExpectedCost::of(all)?))).collect()
    }
}
