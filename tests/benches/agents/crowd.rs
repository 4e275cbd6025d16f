//! Many agents at once in one worker, all in a model call: the memory of each. At the end, all must
//! have completed, and the bookings must equal the model server's bill (b5).

use std::{
    fmt,
    time::{Duration, Instant},
};

use bus::Subscription;
use domain::{
    subject::Filter,
    wire::{EndStatus, Outcome},
};
use futures_util::StreamExt;
use serde_json::json;
use tokio::sync::watch;
use trellis_tests::{
    processes::Processes,
    servers::{Gate, ModelServer, Reply},
};

use crate::{
    cluster,
    measure::meter::{Usage, rss},
    submission,
};

const WARM_UP: usize = 50;
/// The timeout for a thousand agents on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Crowd {
    agents: usize,
    idle: u64,
    full: u64,
    gathered: Duration,
    ended: Duration,
    calls: usize,
    usage: Usage,
}

pub(crate) async fn measure(agents: usize) -> Crowd {
    let gate = Gate::default();
    let (at_gate, mut all_there) = watch::channel(0);
    let held = gate.clone();
    // Each agent has made a model call and a tool call when it reaches the gate.
    let model = ModelServer::start_unsynced(move |prompt| {
        let reply = Reply { input_tokens: 100, output_tokens: 20, ..Reply::default() };
        match (prompt.turn(), prompt.task().as_str()) {
            (0, _) => Reply { calls: vec![("fs_list".into(), json!({}))], ..reply },
            (_, "crowd") => {
                at_gate.send_modify(|count| *count += 1);
                Reply { text: "done".into(), gate: Some(held.clone()), ..reply }
            }
            _ => Reply { text: "warm".into(), ..reply },
        }
    })
    .await;
    let mut cluster = cluster(&model, 1, agents).await;
    let worker = cluster.pid("w1");
    let mut outcomes = cluster.client.bus.subscribe(&Filter::Outcomes).await.unwrap();
    begin(&cluster, "warm up", WARM_UP).await;
    let mut booked = all(&mut outcomes, WARM_UP).await;
    let idle = rss(worker);

    let began = Instant::now();
    begin(&cluster, "crowd", agents).await;
    let there = tokio::time::timeout(PATIENCE, all_there.wait_for(|count| *count == agents));
    assert!(there.await.is_ok(), "only {} calls have arrived at the gate", *all_there.borrow());
    let (gathered, full) = (began.elapsed(), rss(worker));
    let pids = [("coordinator", cluster.pid("c1")), ("worker", worker), ("nats-server", cluster.nats.pid())];
    let usage = Usage::of(&pids.map(|(name, pid)| (name.to_owned(), pid)));

    let opened = Instant::now();
    gate.open();
    booked += all(&mut outcomes, agents).await;
    let ended = opened.elapsed();
    assert_eq!(model.billed_nanos(), booked, "b5: the bill against the books");
    Crowd { agents, idle, full, gathered, ended, calls: model.bill().len(), usage }
}

async fn begin(cluster: &Processes, goal: &str, agents: usize) {
    let begin = |_| cluster.begin(submission(goal));
    futures_util::stream::iter(0..agents).map(begin).buffer_unordered(64).count().await;
}

/// Waits until all agents have completed, and returns their cost in nano-dollars.
async fn all(outcomes: &mut Subscription, agents: usize) -> u64 {
    let mut spent = 0;
    for n in 0..agents {
        let Ok(message) = tokio::time::timeout(PATIENCE, outcomes.next()).await else {
            panic!("only {n} of {agents} have ended");
        };
        let outcome: Outcome = serde_json::from_slice(&message.unwrap().payload).unwrap();
        assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:?}");
        assert_eq!(outcome.context.attempts, 1, "{outcome:?}");
        let budget = &outcome.context.budget;
        assert_eq!(budget.estimated.cost_usd.nanos(), 0, "{outcome:?}");
        spent += budget.spent.cost_usd.nanos();
    }
    spent
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crowd { agents, idle, full, gathered, ended, calls, usage } = self;
        let megabytes = |bytes: &u64| *bytes as f64 / 1e6;
        let each = full.saturating_sub(*idle) as f64 / 1024.0 / *agents as f64;
        let (idle, full) = (megabytes(idle), megabytes(full));
        writeln!(
            f,
            "  the worker idle {idle:.1} MB, with all in a model call {full:.1} MB: {each:.1} KiB each"
        )?;
        writeln!(
            f,
            "  {:.2} s until all are in it, a call and a tool call behind each",
            gathered.as_secs_f64()
        )?;
        writeln!(f, "  {:.2} s from there to the last outcome", ended.as_secs_f64())?;
        writeln!(
            f,
            "  {calls} calls billed, and all of them in the books\nmemory with all in a model call:"
        )?;
        write!(f, "{usage}")
    }
}
