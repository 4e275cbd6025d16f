//! The messages of one job, with their times. A listener on the same server receives every message,
//! and the time since the submission is noted for each. The median of many jobs is shown. The
//! listener itself costs a little.

use std::time::{Duration, Instant};

use domain::subject::Subject;
use futures_util::StreamExt;
use serde_json::json;

use crate::{measure::meter::Latencies, trellis::Trellis};

/// One message of a job, recognized by its subject and its content.
struct Hop {
    what: &'static str,
    subject: &'static str,
    says: &'static str,
}

/// The messages of a job that runs a built-in agent, in order.
const HOPS: [Hop; 9] = [
    Hop { what: "client: submission stored in the intake", subject: "agent.spawn", says: "" },
    Hop { what: "coordinator: committed; event `admitted`", subject: "agent.event.", says: "\"admitted\"" },
    Hop { what: "coordinator: work offered to the pool", subject: "agent.spawn.execute", says: "" },
    Hop { what: "worker: claim asked", subject: "agent.ask.", says: "\"claim\"" },
    Hop { what: "coordinator: committed; event `claimed`", subject: "agent.event.", says: "\"claimed\"" },
    Hop { what: "worker: result stored", subject: "agent.result.", says: "" },
    Hop { what: "coordinator: committed; event `ended`", subject: "agent.event.", says: "\"ended\"" },
    Hop { what: "coordinator: outcome stored", subject: "agent.outcome.", says: "" },
    Hop { what: "client: hears the outcome", subject: "", says: "" },
];

impl Hop {
    fn is(&self, message: &async_nats::Message) -> bool {
        let subject = message.subject.as_str();
        let same = if self.subject.ends_with('.') || self.subject.ends_with("execute") {
            subject.starts_with(self.subject)
        } else {
            subject == self.subject
        };
        let says = self.says.as_bytes();
        same && (says.is_empty() || message.payload.windows(says.len()).any(|part| part == says))
    }
}

/// Runs jobs one at a time, and prints the time of each hop.
pub(crate) async fn show(trellis: &Trellis, url: &str, jobs: usize) {
    let listener = async_nats::connect(url).await.unwrap();
    let mut heard = listener.subscribe("agent.>").await.unwrap();
    listener.flush().await.unwrap();
    let mut times: Vec<Latencies> = HOPS.iter().map(|_| Latencies::default()).collect();
    for _ in 0..jobs {
        let began = Instant::now();
        let job = trellis.job(Subject::Spawn, json!({"goal": "hello", "max_cost_usd": 0.01}));
        let listening = async {
            let mut seen = Vec::new();
            while seen.len() < HOPS.len() - 1 {
                let message = heard.next().await.unwrap();
                if HOPS[seen.len()].is(&message) {
                    seen.push(began.elapsed());
                }
            }
            seen
        };
        let (end, seen) = tokio::join!(
            async {
                job.await;
                began.elapsed()
            },
            listening
        );
        seen.into_iter().chain([end]).zip(&mut times).for_each(|(time, all)| all.add(time));
    }
    println!("\nthe hops of one job, p50 of {jobs} one at a time:");
    println!("  {:44} {:>10} {:>10}", "", "at", "after");
    let mut before = Duration::ZERO;
    for (hop, times) in HOPS.iter().zip(&times) {
        let at = times.percentile(50);
        let shown = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
        println!("  {:44} {:>10} {:>10}", hop.what, shown(at), shown(at.saturating_sub(before)));
        before = at;
    }
}
