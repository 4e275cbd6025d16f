//! The parts of a paid call besides the call itself. The benchmark acts as the worker of a context,
//! and measures each part.

use std::time::{Duration, Instant};

use bus::{Bus, Outgoing};
use bytes::Bytes;
use domain::{
    TraceId,
    span::Headers,
    subject::Subject,
    wire::{Answer, ClaimAnswer, Execute, Offer},
};
use serde_json::{Value, json};
use trellis_tests::{cluster::queue_of, processes::Processes};

use crate::measure::meter::Latencies;

const TIMES: usize = 200;
/// The parts between two ticks, which take far less time than a lease.
const TICKS: usize = 20;

struct Part<'a> {
    bus: &'a Bus,
    work: Execute,
    lease: Value,
}

pub(crate) async fn measure(cluster: &Processes, entry: &Bytes) -> Vec<(&'static str, Latencies)> {
    let part = Part::claim(cluster).await;
    let [mut hold, mut journal, mut settle, mut both] = [(); 4].map(|()| Latencies::default());
    let mut sequence = 0;
    for n in 0..TIMES {
        part.tick(n).await;
        let began = Instant::now();
        part.hold(n).await;
        hold.add(began.elapsed());
        let began = Instant::now();
        sequence = part.append(entry, sequence).await;
        journal.add(began.elapsed());
        let began = Instant::now();
        part.settle(n).await;
        settle.add(began.elapsed());
    }
    for n in TIMES..2 * TIMES {
        part.tick(n).await;
        part.hold(n).await;
        let began = Instant::now();
        let (at, ()) = tokio::join!(part.append(entry, sequence), part.settle(n));
        sequence = at;
        both.add(began.elapsed());
    }
    vec![
        ("hold (asked and answered)", hold),
        ("journal (stored behind the last entry)", journal),
        ("settle (a cost stored)", settle),
        ("journal and settle together, as an agent does", both),
    ]
}

async fn ask(bus: &Bus, subject: &str, trace_id: TraceId, ask: Value) -> Answer {
    let subject = bus.namespace().parse(subject).unwrap();
    let message = serde_json::to_vec(&json!({"trace_id": trace_id, "ask": ask})).unwrap();
    let answer = bus.request(&subject, &Headers::new(), message.into(), Duration::from_secs(10)).await;
    serde_json::from_slice(&answer.unwrap()).unwrap()
}

impl<'a> Part<'a> {
    async fn claim(cluster: &'a Processes) -> Self {
        let bus = &cluster.client.bus;
        cluster.begin(json!({"goal": "x", "agent_id": "parts", "max_cost_usd": 1000, "timeout_ms": 0})).await;
        let mut queue = queue_of(bus, "nobody-but-the-benchmark").await;
        queue.want(1);
        let delivery = queue.next().await;
        let offer: Offer = serde_json::from_slice(&delivery.payload).unwrap();
        let token = uuid::Uuid::new_v4().simple().to_string();
        let claim = json!({"claim": {"child_id": offer.child_id, "worker_id": "bench", "token": token}});
        let claimed = ask(bus, &offer.report_to.ask, offer.trace_id, claim).await;
        let Answer::Claimed(claimed) = claimed else { panic!("not claimed") };
        let ClaimAnswer { lease, work, .. } = *claimed;
        delivery.ack().await;
        Part { bus, work, lease: serde_json::to_value(lease).unwrap() }
    }

    async fn ask(&self, question: Value) -> Answer {
        ask(self.bus, &self.work.report_to.ask, self.work.trace_id, question).await
    }

    /// Renews the lease.
    async fn tick(&self, n: usize) {
        if n.is_multiple_of(TICKS) {
            let ticked = self.ask(json!({"tick": {"lease": self.lease, "progress": {}}})).await;
            assert!(matches!(ticked, Answer::GoOn { .. }), "{ticked:?}");
        }
    }

    async fn hold(&self, n: usize) {
        let amount = json!({"cost_usd": "0.0001", "tokens": 10});
        let hold = json!({"lease": self.lease, "call_id": format!("call-{n}"), "amount": amount});
        let held = self.ask(json!({"hold": hold})).await;
        assert!(matches!(held, Answer::Done), "{held:?}");
    }

    async fn append(&self, entry: &Bytes, behind: u64) -> u64 {
        let id = Some(format!("{}.{behind}.history", self.work.trace_id));
        self.store(&self.work.report_to.history, id, entry.clone(), Some(behind)).await
    }

    async fn settle(&self, n: usize) {
        let amount = json!({"cost_usd": "0.0001", "tokens": 10});
        let cost = json!({"trace_id": self.work.trace_id, "lease": self.lease, "call_id": format!("call-{n}"), "amount": amount});
        let id = Some(format!("{}.{n}.cost", self.work.trace_id));
        self.store(&self.work.report_to.cost, id, serde_json::to_vec(&cost).unwrap().into(), None).await;
    }

    async fn store(&self, to: &str, id: Option<String>, payload: Bytes, expect_last: Option<u64>) -> u64 {
        let headers = Headers::new();
        let message = Outgoing { subject: self.subject(to), id, headers, payload, expect_last };
        self.bus.publish(message).await.unwrap().sequence
    }

    fn subject(&self, text: &str) -> Subject {
        self.bus.namespace().parse(text).unwrap()
    }
}
