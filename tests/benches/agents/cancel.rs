//! A cancel of a run with a thousand agents, on four workers, all in a model call (G8). The model
//! server's log shows how long after the stored cancel each call is closed, and that no call begins
//! after it. The floor is a program with as many open calls, in four parts, that closes them on a
//! message.

use std::{fmt, time::Duration};

use domain::wire::EndStatus;
use futures_util::StreamExt;
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};
use trellis_tests::{
    processes::Processes,
    servers::{Gate, ModelServer, NatsServer, Reply},
};

use crate::{cluster, measure::meter::Latencies};

const WORKERS: usize = 4;
const AGENTS: usize = 1000;
/// The items that wait for a free slot when the cancel arrives.
const QUEUED: usize = 100;
/// The timeout for a thousand agents on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Cancels {
    rounds: usize,
    floor: Latencies,
    ours: Latencies,
    ended: Latencies,
}

pub(crate) async fn measure(rounds: usize) -> Cancels {
    // No gate is ever opened, so no call is answered.
    let closed = |_: &_| Reply { text: "late".into(), gate: Some(Gate::default()), ..Reply::default() };
    let model = ModelServer::start_unsynced(closed).await;
    let cluster = cluster(&model, WORKERS, AGENTS / WORKERS).await;
    let mut cancels =
        Cancels { rounds, floor: Default::default(), ours: Default::default(), ended: Default::default() };
    for _ in 0..rounds {
        cancels.floor(&model, &cluster.nats).await;
        cancels.ours(&model, &cluster).await;
    }
    cancels
}

impl Cancels {
    async fn ours(&mut self, model: &ModelServer, cluster: &Processes) {
        let (came, gone) = (model.arrived().len(), model.given_up().len());
        let items: Vec<usize> = (0..AGENTS + QUEUED).collect();
        let step = json!({"id": "each", "agent_id": "bench", "task_description": "wait", "for_each": "items", "timeout_ms": 0});
        let graph = json!({"inputs": {"items": items}, "steps": [step], "max_cost_usd": 1000});
        let run = cluster.begin(graph).await;
        until(|| model.arrived().len(), came + AGENTS).await;

        cluster.cancel(run).await;
        let stored = Instant::now();
        until(|| model.given_up().len(), gone + AGENTS).await;
        let outcome = cluster.outcome(run).await;
        self.ended.add(stored.elapsed());
        assert_eq!(outcome.context.status, EndStatus::Cancelled, "{outcome:?}");
        assert_eq!(model.arrived().len(), came + AGENTS, "G8: a call began after the cancel");
        add(&mut self.ours, &model.given_up()[gone..], stored);
    }

    async fn floor(&mut self, model: &ModelServer, nats: &NatsServer) {
        let (came, gone) = (model.arrived().len(), model.given_up().len());
        let url = format!("{}chat/completions", model.url());
        let mut parts = JoinSet::new();
        for _ in 0..WORKERS {
            let client = async_nats::connect(nats.url()).await.unwrap();
            let mut stop = client.subscribe("floor.stop").await.unwrap();
            client.flush().await.unwrap();
            let http = reqwest::Client::builder().tcp_nodelay(true).build().unwrap();
            let mut calls = JoinSet::new();
            for _ in 0..AGENTS / WORKERS {
                let call = http.post(&url).header("content-type", "application/json").body("{}");
                calls.spawn(call.send());
            }
            parts.spawn(async move {
                stop.next().await;
                calls.abort_all();
                while calls.join_next().await.is_some() {}
            });
        }
        until(|| model.arrived().len(), came + AGENTS).await;
        let client = async_nats::connect(nats.url()).await.unwrap();
        client.publish("floor.stop", "".into()).await.unwrap();
        client.flush().await.unwrap();
        let told = Instant::now();
        until(|| model.given_up().len(), gone + AGENTS).await;
        while parts.join_next().await.is_some() {}
        add(&mut self.floor, &model.given_up()[gone..], told);
    }
}

fn add(latencies: &mut Latencies, given_up: &[Instant], since: Instant) {
    given_up.iter().for_each(|at| latencies.add(at.saturating_duration_since(since)));
}

async fn until(count: impl Fn() -> usize, wanted: usize) {
    let began = Instant::now();
    while count() < wanted {
        assert!(began.elapsed() < PATIENCE, "only {} of {wanted}", count());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl fmt::Display for Cancels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cancels { rounds, floor, ours, ended } = self;
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        writeln!(f, "{rounds} cancels of a run with {AGENTS} agents in a model call, on {WORKERS} workers")?;
        writeln!(f, "{:44} {:>10} {:>10} {:>7}", "from the stored cancel", "floor", "Trellis", "ratio")?;
        for percent in [50, 99, 100] {
            let (floor, ours) = (floor.percentile(percent), ours.percentile(percent));
            let ratio = ours.as_secs_f64() / floor.as_secs_f64();
            let what = format!("to the end of a call, p{percent}");
            writeln!(f, "{what:44} {:>10} {:>10} {ratio:>7.2}", ms(floor), ms(ours))?;
        }
        write!(f, "{:44} {:>10} {:>10}", "to the outcome of the run, p50", "", ms(ended.percentile(50)))
    }
}
