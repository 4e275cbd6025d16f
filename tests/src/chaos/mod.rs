//! Chaos on real processes and servers. Coordinators, workers, NATS and Redis are killed, stopped
//! and restarted at random, while simulated people submit runs of all shapes to a provider that
//! keeps its own bill. Then the faults stop, all runs must end, and the books are compared with the
//! bill. The seed decides the runs and the faults; the events in between depend on the machine.

mod provider;
mod report;
mod trouble;

use std::time::Duration;

use domain::{TraceId, Usd};
use serde_json::{Value, json};
use tokio::time::Instant;
use trace::Trace;

pub use report::Report;
pub use trouble::Fault;

use crate::{
    checker,
    processes::{Processes, Shape},
    servers::ModelServer,
    simulation::{
        Story,
        chance::Chance,
        people::People,
        verdict,
        work::{self, Run},
    },
};

/// The longest time between two submissions, in milliseconds.
const SUBMIT_WITHIN_MS: u64 = 2_500;
/// The time in which all runs must end after the last fault.
const REST: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The number of looks after which people raise the budgets of paused contexts.
const RAISE_EVERY: u32 = 6;
/// The number of profiles that are applied at once.
const PROFILES: usize = 100;

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub lasts: Duration,
    pub coordinators: usize,
    pub workers: usize,
}

/// Runs the plan, and reports the result.
pub async fn run(plan: Plan) -> Report {
    let chance = Chance::new(plan.seed);
    let mut runs = Vec::new();
    let mut profiles = Vec::new();
    // These are half again as many runs as are submitted on average in the time.
    let most = plan.lasts.as_millis() / u128::from(SUBMIT_WITHIN_MS / 3) + 10;
    for number in 0..usize::try_from(most).expect("few") {
        let (run, agents) = work::run(number, provider::NAME, &chance);
        runs.push(run);
        profiles.extend(agents);
    }
    let model = ModelServer::start(provider::answers(chance.fork())).await;
    let worker = provider::settings(&model, runs.len());
    let shape = || Shape { worker, ..Shape::new(plan.coordinators, plan.workers) };
    let mut cluster = Processes::start_as(shape).await;
    for some in profiles.chunks(PROFILES) {
        cluster.apply(json!(some)).await;
    }
    let story = Story::new();
    let bus = cluster.client.bus.clone();
    let people = People::new(bus, cluster.store.clone(), story, chance.fork());
    let mut crowd = Crowd { people, chance: chance.fork(), waiting: runs.into_iter(), submitted: Vec::new() };
    let mut trouble = trouble::Trouble::new(chance.fork());
    let over = Instant::now() + plan.lasts;
    tokio::join!(crowd.use_it(over), trouble.brew(over, &mut cluster));

    let healed = Instant::now();
    let mut report = Report::new(plan, trouble.counted());
    report.found(crowd.come_to_rest(&mut cluster, &trouble).await, &crowd.submitted);
    report.rested_after = healed.elapsed();
    for run in &crowd.submitted {
        let Some(trace) = cluster.stored(run.trace_id).await else { continue };
        report.book(run, &trace, billed(&model, run));
        report.wrong.extend(verdict::open_outcomes(&cluster.client, run).await);
    }
    report.calls = model.bill().len();
    report.prompts = model.prompts().len();
    report
}

fn billed(model: &ModelServer, run: &Run) -> Usd {
    let Some((_, name)) = run.model.as_deref().and_then(|model| model.split_once('/')) else {
        return Usd::ZERO;
    };
    Usd::from_nanos(model.bill().iter().filter(|line| line.model == name).map(|line| line.nanos).sum())
}

/// The people, with the runs that they have submitted and will submit.
struct Crowd {
    people: People,
    chance: Chance,
    waiting: std::vec::IntoIter<Run>,
    submitted: Vec<Run>,
}

impl Crowd {
    /// Submits, cancels, charges, answers and raises until the time is over.
    async fn use_it(&mut self, over: Instant) {
        while Instant::now() < over {
            tokio::time::sleep(self.chance.millis(0, SUBMIT_WITHIN_MS)).await;
            let Some(mut run) = self.waiting.next() else { return };
            self.people.submit(&run).await;
            if self.chance.percent(10) {
                self.people.charge(&mut run, "ads").await;
            }
            self.submitted.push(run);
            let last = self.submitted.len() as u64 - 1;
            let any = usize::try_from(self.chance.between(last.saturating_sub(10), last)).expect("an index");
            if self.chance.percent(10) {
                self.people.cancel(&self.submitted[any]).await;
            }
            let recent = self.submitted.len().saturating_sub(20);
            self.people.answer(&self.submitted[recent..], false).await;
            if self.chance.percent(20) {
                self.people.tell(&self.submitted[any]).await;
            }
            if self.chance.percent(20) {
                self.people.raise(&mut self.submitted[any]).await;
            }
        }
    }

    /// Waits until all runs have ended, while people answer questions and raise budgets.
    async fn come_to_rest(&mut self, cluster: &mut Processes, trouble: &trouble::Trouble) -> Ended {
        let over = Instant::now() + REST;
        let mut open = std::mem::take(&mut self.submitted);
        let mut looks = 0;
        while !open.is_empty() && Instant::now() < over {
            trouble.revive(cluster);
            self.people.answer(&open, true).await;
            looks += 1;
            if looks % RAISE_EVERY == 0 {
                for run in &mut open {
                    self.people.raise(run).await;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
            let (resting, _) = checker::look(&cluster.store, &ids(&open)).await;
            let ended = open.extract_if(.., |run| resting.iter().any(|trace| trace.id() == run.trace_id));
            self.submitted.extend(ended);
        }
        self.submitted.extend(open);
        let (resting, moving) = checker::look(&cluster.store, &ids(&self.submitted)).await;
        let wrong = checker::violations(&cluster.client, resting.clone()).await;
        Ended { resting, moving, wrong }
    }
}

fn ids(runs: &[Run]) -> Vec<TraceId> {
    runs.iter().map(|run| run.trace_id).collect()
}

/// The ended runs, the others, and the mistakes found.
struct Ended {
    resting: Vec<Trace>,
    moving: Vec<String>,
    wrong: Vec<String>,
}

/// The wire name of a run's status.
fn status(trace: &Trace) -> String {
    let end = trace.root().and_then(|root| root.end().cloned());
    match end.map(|end| serde_json::to_value(end.status)) {
        Some(Ok(Value::String(status))) => status,
        Some(_) | None => "not ended".into(),
    }
}
