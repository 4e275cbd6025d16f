//! Graphs of each shape at two sizes: the time, messages and bytes of a step, and their growth from
//! the small to the large size.
//!
//! Messages are those that NATS stored. Bytes are those that both servers read from their sockets.

use std::time::{Duration, Instant};

use domain::subject::Subject;
use serde_json::{Value, json};

use crate::{measure::meter, trellis::Trellis};

const SMALL: usize = 100;
const LARGE: usize = 1_000;
const WIDEST: usize = 10_000;

/// Builds the graph of about this many steps.
type Shape = fn(usize) -> Value;

const SHAPES: [(&str, Shape); 11] = [
    ("sequential", |count| json!({"mode": "sequential", "steps": steps("s", count)})),
    ("parallel", |count| json!({"mode": "parallel", "steps": steps("s", count)})),
    ("layers of ten", layers),
    ("groups of ten", groups),
    ("loop of ten", |count| {
        let group = json!({"id": "again", "steps": steps("s", 10), "loop": {"max_rounds": count / 10, "until": "false"}});
        json!({"steps": [group]})
    }),
    ("race", |count| json!({"race": true, "steps": steps("s", count)})),
    ("aggregate", |count| {
        let synthesis = json!({"timeout_ms": 60_000});
        json!({"mode": "parallel", "agent_id": "echo", "task_description": "all", "aggregate": synthesis,
            "steps": steps("s", count)})
    }),
    ("for_each", |count| {
        let mut each = step("each");
        each["for_each"] = "items".into();
        each["output_to"] = "all".into();
        json!({"inputs": {"items": items(count)}, "steps": [each]})
    }),
    ("for_each, groups of ten", |count| {
        let group = json!({"id": "each", "for_each": "items", "steps": steps("s", 10), "output_to": "all"});
        json!({"inputs": {"items": items(count / 10)}, "steps": [group]})
    }),
    ("fallbacks", |count| {
        let steps: Vec<Value> = (0..count / 2)
            .map(|n| {
                let mut step = step(&format!("s{n}"));
                (step["agent_id"], step["fallback"], step["retries"]) =
                    ("fail".into(), "echo".into(), 0.into());
                step
            })
            .collect();
        json!({"mode": "parallel", "steps": steps})
    }),
    ("undo", |count| {
        let mut steps = steps("s", count / 2);
        for step in &mut steps {
            step["undo"] =
                json!({"agent_id": "echo", "task_description": "take it back", "max_cost_usd": 0.001});
        }
        steps.push(json!({"id": "last", "agent_id": "fail", "task_description": "no", "retries": 0}));
        json!({"mode": "sequential", "steps": steps})
    }),
];

fn step(id: &str) -> Value {
    json!({"id": id, "agent_id": "echo", "task_description": "hello"})
}

fn steps(prefix: &str, count: usize) -> Vec<Value> {
    (0..count).map(|n| step(&format!("{prefix}{n}"))).collect()
}

fn items(count: usize) -> Vec<usize> {
    (0..count).collect()
}

fn layers(count: usize) -> Value {
    let mut steps = steps("s", count);
    for (n, step) in steps.iter_mut().enumerate().skip(10) {
        let layer = n / 10 * 10;
        step["depends_on"] = (layer - 10..layer).map(|before| format!("s{before}")).collect();
    }
    json!({"mode": "parallel", "steps": steps})
}

fn groups(count: usize) -> Value {
    let group = |n| json!({"id": format!("g{n}"), "steps": steps(&format!("s{n}-"), 10)});
    json!({"mode": "parallel", "steps": (0..count / 10).map(group).collect::<Vec<_>>()})
}

struct Used {
    steps: usize,
    took: Duration,
    messages: u64,
    nats: u64,
    redis: u64,
}

impl Used {
    fn micros(&self) -> f64 {
        self.took.as_secs_f64() * 1e6 / self.steps as f64
    }

    fn a_step(&self, of: u64) -> f64 {
        of as f64 / self.steps as f64
    }

    fn bytes(&self) -> u64 {
        self.nats + self.redis
    }
}

/// Measures every shape and prints its row.
pub(crate) async fn show(trellis: &Trellis) {
    println!(
        "one graph at a time; a step of the larger one, and in brackets how many times that of the smaller one\n"
    );
    println!(
        "{:24} {:>6} {:>9} {:>18} {:>16} {:>12} {:>12} {:>16}",
        "shape", "steps", "time", "µs a step", "messages", "to NATS", "to Redis", "coordinator"
    );
    measure(trellis, groups(SMALL), SMALL).await;
    for (name, shape) in SHAPES {
        row(trellis, name, shape, (SMALL, LARGE)).await;
    }
    let (name, shape) = SHAPES[7];
    row(trellis, name, shape, (LARGE, WIDEST)).await;
}

async fn row(trellis: &Trellis, name: &str, shape: Shape, (small, large): (usize, usize)) {
    let small = measure(trellis, shape(small), small).await;
    let large = measure(trellis, shape(large), large).await;
    let coordinator = trellis.spent().into_iter().find(|spent| spent.name == "coordinator");
    let growth = |of: &dyn Fn(&Used) -> f64| of(&large) / of(&small);
    println!(
        "{name:24} {:>6} {:>6} ms {:>10.0} ({:>4.2}) {:>8.1} ({:>4.2}) {:>10.0} B {:>10.0} B ({:>4.2}) {:>8.1} MB",
        large.steps,
        large.took.as_millis(),
        large.micros(),
        growth(&Used::micros),
        large.a_step(large.messages),
        growth(&|used| used.a_step(used.messages)),
        large.a_step(large.nats),
        large.a_step(large.redis),
        growth(&|used| used.a_step(used.bytes())),
        coordinator.map_or(0.0, |spent| spent.rss as f64 / 1e6),
    );
}

async fn measure(trellis: &Trellis, graph: Value, steps: usize) -> Used {
    let (messages, nats, redis) = so_far(trellis).await;
    let began = Instant::now();
    trellis.job(Subject::Graph, graph).await;
    let took = began.elapsed();
    // Messages after the outcome belong to the graph too.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let now = so_far(trellis).await;
    Used { steps, took, messages: now.0 - messages, nats: now.1 - nats, redis: now.2 - redis }
}

async fn so_far(trellis: &Trellis) -> (u64, u64, u64) {
    let read = |name| meter::read_bytes(trellis.server(name));
    (trellis.stored_messages().await, read("nats-server"), read("redis-server"))
}
