//! The instruments, one for each metric of the list. Prometheus and a collector read the same
//! numbers from them.

use opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, Counter, Histogram, Meter},
};

use super::{
    exports,
    list::{self, Metric},
    names::{Names, OTHER},
    watched::{self, LIVE},
};

/// The number of agents, pools, models and so on that get a label of their own. The rest are
/// labelled `other`.
const MOST_AGENTS: usize = 200;
const MOST_POOLS: usize = 32;
const MOST_MODELS: usize = 100;
const MOST_PROVIDERS: usize = 32;
const MOST_TOOLS: usize = 200;
const MOST_KINDS: usize = 64;

/// Histogram buckets in seconds: of holds; of the store; of waits; of model calls, of the work that
/// contains them, and of their first chunk. `CALL` and `FIRST` are OpenTelemetry's recommendation.
const HOLD: [f64; 13] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
const STORE: [f64; 12] = [0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];
const WAIT: [f64; 13] = [0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0];
const CALL: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const RUN: [f64; 14] =
    [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0];
const FIRST: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Histogram buckets of tokens, and of jobs.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
const JOBS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The kinds of messages that wait in queues. Other messages are requests, whose rejection is their
/// answer.
const KINDS: [&str; 14] = [
    "spawn", "graph", "cancel", "input", "submit", "steer", "raise", "charge", "delete", "restore",
    "dispute", "execute", "result", "cost",
];
const SOURCES: [&str; 3] = ["call", "estimate", "charge"];
const STREAMS: [&str; 3] = ["AGENT_INTAKE", "AGENT_EXECUTE", "AGENT_REPORT"];
pub(super) const STATUSES: [&str; 5] = ["completed", "failed", "cancelled", "timed_out", "aborted"];
const VERDICTS: [&str; 9] = [
    "completed",
    "failed",
    "halted",
    "waiting",
    "input_required",
    "out_of_budget",
    "last_report",
    "handed_back",
    "lost",
];
const RESULTS: [&str; 4] = ["granted", "waits", "denied", "halted"];
const TOLD: [&str; 3] = ["told", "failed", "given_up"];
const DENIED: [(&str, &str); 4] =
    [("cost", "too_small"), ("tokens", "too_small"), ("cost", "exhausted"), ("tokens", "exhausted")];

#[derive(Debug)]
pub(super) struct Instruments {
    pub(super) queue_wait: Histogram<f64>,
    pub(super) redeliveries: Counter<u64>,
    pub(super) dead_letters: Counter<u64>,
    pub(super) attempts: Counter<u64>,
    pub(super) leases_expired: Counter<u64>,
    pub(super) runs: Counter<u64>,
    pub(super) cancel: Histogram<f64>,
    pub(super) commit_conflicts: Counter<u64>,
    pub(super) batch_size: Histogram<u64>,
    pub(super) store: Histogram<f64>,
    pub(super) store_errors: Counter<u64>,
    pub(super) hold: Histogram<f64>,
    pub(super) holds: Counter<u64>,
    pub(super) denials: Counter<u64>,
    pub(super) spend: Counter<f64>,
    pub(super) overspent: Counter<f64>,
    pub(super) disputed: Counter<f64>,
    pub(super) webhooks: Counter<u64>,
    pub(super) tokens: Histogram<u64>,
    pub(super) operation: Histogram<f64>,
    pub(super) first_chunk: Histogram<f64>,
    pub(super) workflow: Histogram<f64>,
    pub(super) invoke_agent: Histogram<f64>,
    pub(super) execute_tool: Histogram<f64>,
    pub(super) agents: Names,
    pub(super) pools: Names,
    pub(super) models: Names,
    pub(super) providers: Names,
    pub(super) tools: Names,
    pub(super) kinds: Names,
}

impl Instruments {
    pub(super) fn new(meter: &Meter) -> Self {
        watch(meter);
        let made = Instruments {
            queue_wait: seconds(meter, list::QUEUE_WAIT, &WAIT),
            redeliveries: counter(meter, list::REDELIVERIES),
            dead_letters: counter(meter, list::DEAD_LETTERS),
            attempts: counter(meter, list::ATTEMPTS),
            leases_expired: counter(meter, list::LEASES_EXPIRED),
            runs: counter(meter, list::RUNS),
            cancel: seconds(meter, list::CANCEL, &WAIT),
            commit_conflicts: counter(meter, list::COMMIT_CONFLICTS),
            batch_size: counts(meter, list::BATCH_SIZE, &JOBS),
            store: seconds(meter, list::STORE, &STORE),
            store_errors: counter(meter, list::STORE_ERRORS),
            hold: seconds(meter, list::HOLD, &HOLD),
            holds: counter(meter, list::HOLDS),
            denials: counter(meter, list::DENIALS),
            spend: money(meter, list::SPEND),
            overspent: money(meter, list::OVERSPENT),
            disputed: money(meter, list::DISPUTED),
            webhooks: counter(meter, list::WEBHOOKS),
            tokens: counts(meter, list::TOKENS, &TOKENS),
            operation: seconds(meter, list::OPERATION, &CALL),
            first_chunk: seconds(meter, list::FIRST_CHUNK, &FIRST),
            workflow: seconds(meter, list::WORKFLOW, &RUN),
            invoke_agent: seconds(meter, list::INVOKE_AGENT, &RUN),
            execute_tool: seconds(meter, list::EXECUTE_TOOL, &CALL),
            agents: Names::new(MOST_AGENTS),
            pools: Names::new(MOST_POOLS),
            models: Names::new(MOST_MODELS),
            providers: Names::new(MOST_PROVIDERS),
            tools: Names::new(MOST_TOOLS),
            kinds: Names::new(MOST_KINDS),
        };
        made.begin_at_zero();
        made
    }

    /// Starts all series with known labels at zero. A series that starts with its first event would
    /// show no increase for that event.
    fn begin_at_zero(&self) {
        let each = |counter: &Counter<u64>, key: &'static str, values: &[&'static str]| {
            values.iter().for_each(|value| counter.add(0, &[KeyValue::new(key, *value)]));
        };
        each(&self.redeliveries, "stream", &STREAMS);
        each(&self.attempts, "verdict", &VERDICTS);
        each(&self.runs, "status", &STATUSES);
        each(&self.holds, "result", &RESULTS);
        each(&self.webhooks, "result", &TOLD);
        for kind in KINDS {
            self.dead_letters.add(0, &[KeyValue::new("kind", self.kinds.label(kind))]);
        }
        for (dimension, reason) in DENIED {
            let labels = [KeyValue::new("dimension", dimension), KeyValue::new("reason", reason)];
            self.denials.add(0, &labels);
        }
        for source in SOURCES {
            self.spend.add(0.0, &[KeyValue::new("model", OTHER), KeyValue::new("source", source)]);
        }
        self.leases_expired.add(0, &[]);
        self.commit_conflicts.add(0, &[]);
        self.overspent.add(0.0, &[]);
        self.disputed.add(0.0, &[]);
    }
}

fn counter(meter: &Meter, of: Metric) -> Counter<u64> {
    meter.u64_counter(of.name).with_unit(of.unit).with_description(of.meaning).build()
}

fn money(meter: &Meter, of: Metric) -> Counter<f64> {
    meter.f64_counter(of.name).with_unit(of.unit).with_description(of.meaning).build()
}

fn seconds(meter: &Meter, of: Metric, buckets: &[f64]) -> Histogram<f64> {
    let histogram = meter.f64_histogram(of.name).with_unit(of.unit).with_description(of.meaning);
    histogram.with_boundaries(buckets.to_vec()).build()
}

fn counts(meter: &Meter, of: Metric, buckets: &[f64]) -> Histogram<u64> {
    let histogram = meter.u64_histogram(of.name).with_unit(of.unit).with_description(of.meaning);
    histogram.with_boundaries(buckets.to_vec()).build()
}

/// Registers the metrics that are read on demand instead of being recorded at each change.
fn watch(meter: &Meter) {
    gauge(meter, list::CONTEXTS, |told| {
        if let Some(live) = watched::runs() {
            LIVE.into_iter().zip(live.contexts).for_each(|(status, count)| {
                told.observe(count, &[KeyValue::new("status", status)]);
            });
        }
    });
    gauge(meter, list::OUTBOX_UNSENT, |told| {
        if let Some(live) = watched::runs() {
            told.observe(live.unsent, &[]);
        }
    });
    float(meter, list::OLDEST_LIVE, |told| {
        if let Some(live) = watched::runs() {
            told.observe(live.oldest.as_secs_f64(), &[]);
        }
    });
    float(meter, list::HELD, |told| {
        if let Some(live) = watched::runs() {
            told.observe(watched::dollars(live.held_nanos), &[]);
        }
    });
    gauge(meter, list::PARTITIONS, |told| {
        if let Some((_, all)) = watched::partitions() {
            told.observe(all, &[]);
        }
    });
    gauge(meter, list::PARTITIONS_OWNED, |told| {
        if let Some((owned, _)) = watched::partitions() {
            told.observe(owned, &[]);
        }
    });
    gauge(meter, list::SLOTS, |told| {
        if let Some((busy, free)) = watched::slots() {
            told.observe(busy, &[KeyValue::new("state", "busy")]);
            told.observe(free, &[KeyValue::new("state", "free")]);
        }
    });
    let pools = std::sync::Arc::new(Names::new(MOST_POOLS));
    let of = move |pools: &Names, pool: &str| [KeyValue::new("pool", pools.label(pool))];
    let named = pools.clone();
    gauge(meter, list::QUEUE_PENDING, move |told| {
        watched::queues().iter().for_each(|queue| told.observe(queue.pending, &of(&named, &queue.pool)));
    });
    let named = pools.clone();
    gauge(meter, list::QUEUE_ACK_PENDING, move |told| {
        watched::queues().iter().for_each(|queue| told.observe(queue.ack_pending, &of(&named, &queue.pool)));
    });
    float(meter, list::QUEUE_OLDEST, move |told| {
        watched::queues()
            .iter()
            .for_each(|queue| told.observe(queue.oldest.as_secs_f64(), &of(&pools, &queue.pool)));
    });
    gauge(meter, list::BUILD_INFO, |told| {
        told.observe(1, &[KeyValue::new("version", env!("CARGO_PKG_VERSION"))]);
    });
    observed(meter, list::SPANS_DROPPED, |told| told.observe(exports::counts().0, &[]));
    observed(meter, list::EXPORT_FAILURES, |told| told.observe(exports::counts().1, &[]));
}

fn gauge(meter: &Meter, of: Metric, read: impl Fn(&dyn AsyncInstrument<u64>) + Send + Sync + 'static) {
    let gauge = meter.u64_observable_gauge(of.name).with_unit(of.unit).with_description(of.meaning);
    gauge.with_callback(read).build();
}

fn float(meter: &Meter, of: Metric, read: impl Fn(&dyn AsyncInstrument<f64>) + Send + Sync + 'static) {
    let gauge = meter.f64_observable_gauge(of.name).with_unit(of.unit).with_description(of.meaning);
    gauge.with_callback(read).build();
}

fn observed(meter: &Meter, of: Metric, read: impl Fn(&dyn AsyncInstrument<u64>) + Send + Sync + 'static) {
    let counter = meter.u64_observable_counter(of.name).with_unit(of.unit).with_description(of.meaning);
    counter.with_callback(read).build();
}
