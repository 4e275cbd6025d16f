//! The result of a chaos run, for people.

use std::{collections::BTreeMap, fmt, time::Duration};

use domain::Usd;
use trace::Trace;

use super::{Ended, Plan, status, trouble::Fault};
use crate::{checker, simulation::work::Run};

#[derive(Debug)]
pub struct Report {
    plan: Plan,
    faults: BTreeMap<Fault, usize>,
    runs: BTreeMap<String, usize>,
    contexts: usize,
    attempts: usize,
    /// The number of model calls that arrived at the provider, and the number that were billed.
    pub(super) prompts: usize,
    pub(super) calls: usize,
    /// The time from the last fault until all runs had ended.
    pub(super) rested_after: Duration,
    billed: u64,
    /// The amounts that runs with a bill spent, and the estimated part of them.
    booked: u64,
    estimated: u64,
    cap: u64,
    unended: Vec<String>,
    pub(super) wrong: Vec<String>,
}

impl Report {
    pub(super) fn new(plan: Plan, faults: BTreeMap<Fault, usize>) -> Self {
        Report {
            plan,
            faults,
            runs: BTreeMap::new(),
            contexts: 0,
            attempts: 0,
            prompts: 0,
            calls: 0,
            rested_after: Duration::ZERO,
            billed: 0,
            booked: 0,
            estimated: 0,
            cap: 0,
            unended: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// True if all runs have ended without a mistake.
    pub fn is_well(&self) -> bool {
        self.unended.is_empty() && self.wrong.is_empty()
    }

    pub(super) fn found(&mut self, ended: Ended, submitted: &[Run]) {
        for trace in &ended.resting {
            *self.runs.entry(status(trace)).or_default() += 1;
            self.contexts += trace.contexts().len();
            self.attempts += trace.contexts().iter().map(|node| node.attempts.len()).sum::<usize>();
        }
        let unended = submitted.len() - ended.resting.len();
        if unended > 0 {
            self.runs.insert("not ended".into(), unended);
        }
        self.unended = ended.moving;
        self.wrong.extend(ended.wrong);
    }

    /// Compares the books of a run with its bill.
    pub(super) fn book(&mut self, run: &Run, trace: &Trace, billed: Usd) {
        let wrong = match run.model {
            Some(_) => {
                let budget = trace.root().map(|root| root.budget.clone());
                let budget = budget.unwrap_or_else(|| panic!("{} has a root", run.trace_id));
                self.billed += billed.nanos();
                self.booked +=
                    budget.spent.cost_usd.nanos() - run.charged.nanos().min(budget.spent.cost_usd.nanos());
                self.estimated += budget.estimated.cost_usd.nanos();
                self.cap += run.cap.nanos();
                checker::against_bill(trace, billed, run.cap, run.charged)
            }
            None => checker::within(trace, run.cap),
        };
        self.wrong.extend(wrong.into_iter().map(|what| format!("{}: {what}", run.trace_id)));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { seed, lasts, coordinators, workers } = self.plan;
        writeln!(
            f,
            "seed {seed}: {} s of faults on {coordinators} coordinators and {workers} workers",
            lasts.as_secs()
        )?;
        writeln!(f, "\nfaults: {}", self.faults.values().sum::<usize>())?;
        for (fault, count) in &self.faults {
            writeln!(f, "  {fault:<28} {count}")?;
        }
        writeln!(
            f,
            "\nruns: {}, with {} contexts and {} attempts; all at rest {} s after the last fault",
            self.runs.values().sum::<usize>(),
            self.contexts,
            self.attempts,
            self.rested_after.as_secs()
        )?;
        for (status, count) in &self.runs {
            writeln!(f, "  {status:<28} {count}")?;
        }
        let usd = Usd::from_nanos;
        writeln!(f, "\nmodel calls: {}, of which {} were billed", self.prompts, self.calls)?;
        writeln!(f, "  {:<28} {}", "bill", usd(self.billed))?;
        writeln!(f, "  {:<28} {}", "booked", usd(self.booked))?;
        writeln!(f, "  {:<28} {}", "of which estimated", usd(self.estimated))?;
        writeln!(f, "  {:<28} {}", "cap of all of them", usd(self.cap))?;
        for (what, lines) in [("did not end", &self.unended), ("wrong", &self.wrong)] {
            if !lines.is_empty() {
                writeln!(f, "\n{what}: {}", lines.len())?;
                lines.iter().take(20).try_for_each(|line| writeln!(f, "  {line}"))?;
            }
        }
        write!(f, "\n{}", if self.is_well() { "all checks passed" } else { "CHECKS FAILED" })
    }
}
