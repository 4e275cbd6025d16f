//! Successive model calls: by an agent, and by a client that sends the same prompts.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use domain::{
    ChildId, TraceId,
    subject::{Filter, Subject},
    wire::EndStatus,
};
use serde_json::json;
use trellis_tests::{
    processes::Processes,
    servers::{ModelServer, Prompt, Reply},
};

use crate::{
    cluster,
    measure::meter::{Latencies, Usage},
    submission,
};

/// The model calls of one agent.
pub(crate) const CALLS: usize = 16;
const SLOW: Duration = Duration::from_millis(200);

/// The behaviour of an agent. The model answers by the agent's goal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// Every answer but the last fails its schema, so the calls follow each other directly.
    InARow,
    WithTools,
    Slow,
}

pub(crate) struct Measured {
    pub(crate) floor: Latencies,
    pub(crate) ours: Latencies,
    /// The number of calls that Trellis made, including those that were only recorded.
    pub(crate) calls: usize,
}

/// The times at which calls arrived.
type Arrivals = Arc<Mutex<Vec<Instant>>>;

pub(crate) struct Calls {
    pub(crate) cluster: Processes,
    model: ModelServer,
    arrivals: Arrivals,
    http: reqwest::Client,
    last: Option<TraceId>,
}

impl Kind {
    fn goal(self) -> &'static str {
        match self {
            Kind::InARow => "in a row",
            Kind::WithTools => "with tools",
            Kind::Slow => "slowly",
        }
    }
}

fn answer(prompt: &Prompt) -> Reply {
    let reply = Reply { input_tokens: 100, output_tokens: 20, ..Reply::default() };
    let task = prompt.task();
    let takes = if task == Kind::Slow.goal() { SLOW } else { Duration::ZERO };
    if prompt.turn() + 1 == CALLS {
        Reply { text: "{\"done\": true}".into(), takes, ..reply }
    } else if task == Kind::WithTools.goal() {
        Reply { calls: vec![("fs_list".into(), json!({}))], takes, ..reply }
    } else {
        Reply { text: "Not yet, I have to think about this once more.".into(), takes, ..reply }
    }
}

impl Calls {
    pub(crate) async fn start() -> Self {
        let arrivals = Arrivals::default();
        let came = arrivals.clone();
        let model = ModelServer::start_unsynced(move |prompt| {
            came.lock().unwrap().push(Instant::now());
            answer(prompt)
        });
        let model = model.await;
        let cluster = cluster(&model, 1, 16).await;
        let http = reqwest::Client::builder().tcp_nodelay(true).build().unwrap();
        Calls { cluster, model, arrivals, http, last: None }
    }

    /// Measures the floor and Trellis in turns, so that other load of the machine affects both.
    pub(crate) async fn measure(&mut self, kind: Kind, rounds: usize) -> Measured {
        let known = self.model.prompts().len();
        self.run(kind).await;
        let prompts: Vec<Bytes> =
            self.model.prompts()[known..].iter().map(|body| body.to_string().into()).collect();
        assert_eq!(prompts.len(), CALLS);
        let (mut floor, mut ours) = (Latencies::default(), Latencies::default());
        for _ in 0..rounds {
            self.arrivals.lock().unwrap().clear();
            self.replay(&prompts).await;
            self.between(&mut floor);
            self.run(kind).await;
            self.between(&mut ours);
        }
        Measured { floor, ours, calls: (rounds + 1) * CALLS }
    }

    fn between(&self, latencies: &mut Latencies) {
        let arrivals = std::mem::take(&mut *self.arrivals.lock().unwrap());
        assert_eq!(arrivals.len(), CALLS);
        arrivals.windows(2).for_each(|two| latencies.add(two[1] - two[0]));
    }

    async fn replay(&self, prompts: &[Bytes]) {
        let url = format!("{}chat/completions", self.model.url());
        for prompt in prompts {
            let call = self.http.post(&url).header("content-type", "application/json").body(prompt.clone());
            let answer = call.send().await.unwrap().error_for_status().unwrap();
            assert!(answer.text().await.unwrap().ends_with("[DONE]\n\n"));
        }
    }

    async fn run(&mut self, kind: Kind) {
        let mut message = submission(kind.goal());
        message["output_schema"] = json!({"type": "object"});
        let run = self.cluster.begin(message).await;
        let outcome = self.cluster.outcome(run).await;
        assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:?}");
        self.last = Some(run);
    }

    /// A stored journal entry with the answer of a model.
    pub(crate) async fn an_entry(&self) -> Bytes {
        let root = ChildId::new("root").unwrap();
        let journal =
            Filter::One(Subject::History(trellis_tests::subjects::pool(), self.last.unwrap(), root));
        self.cluster.client.bus.read(&journal).await.unwrap()[0].payload.clone()
    }

    pub(crate) fn usage(&mut self) -> Usage {
        let cluster = &mut self.cluster;
        let pids = [
            ("nats-server", cluster.nats.pid()),
            ("redis-server", cluster.redis.pid()),
            ("coordinator", cluster.pid("c1")),
            ("worker", cluster.pid("w1")),
        ];
        Usage::of(&pids.map(|(name, pid)| (name.to_owned(), pid)))
    }
}
