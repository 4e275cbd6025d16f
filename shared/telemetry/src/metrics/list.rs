//! The list of all metrics: their names, labels and meanings. Instruments are made from this list
//! and from nothing else, and docs/metrics.md, the dashboard and the alerts are checked against it.

/// One metric. `labels` are its label names in OpenTelemetry; in Prometheus their dots become
/// underscores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name in OpenTelemetry.
    pub name: &'static str,
    /// Its name at `/metrics`. A histogram has three series under it: `_bucket`, `_sum` and `_count`.
    pub prometheus: &'static str,
    pub kind: Kind,
    /// In UCUM notation; in braces: the thing that is counted.
    pub unit: &'static str,
    pub labels: &'static [&'static str],
    pub meaning: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Defines a constant for each line, and the list of all.
macro_rules! metrics {
    ($($constant:ident = $kind:ident $name:literal $prometheus:literal $unit:literal $labels:expr, $meaning:literal;)*) => {
        $(pub(super) const $constant: Metric = Metric {
            name: $name,
            prometheus: $prometheus,
            kind: Kind::$kind,
            unit: $unit,
            labels: &$labels,
            meaning: $meaning,
        };)*
        /// Every metric, in the order of docs/metrics.md.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    QUEUE_PENDING = Gauge "trellis.queue.pending" "trellis_queue_pending" "{message}" ["pool"],
        "Work of a pool that no worker has been given yet. Only the coordinator that owns partition 0 says it.";
    QUEUE_ACK_PENDING = Gauge "trellis.queue.ack_pending" "trellis_queue_ack_pending" "{message}" ["pool"],
        "Work of a pool that a worker has been given, and that is not done.";
    QUEUE_OLDEST = Gauge "trellis.queue.oldest" "trellis_queue_oldest_seconds" "s" ["pool"],
        "How long the oldest work of a pool has waited that no worker has been given; 0 if there is none.";
    QUEUE_WAIT = Histogram "trellis.queue.wait" "trellis_queue_wait_seconds" "s" ["pool"],
        "From when an attempt was due to its claim.";
    REDELIVERIES = Counter "trellis.redeliveries" "trellis_redeliveries_total" "{message}" ["stream"],
        "Messages of a queue that came again.";
    DEAD_LETTERS = Counter "trellis.dead_letters" "trellis_dead_letters_total" "{message}" ["kind"],
        "Dead letters that were stored, by the kind of the message that was refused.";

    ATTEMPTS = Counter "trellis.attempts" "trellis_attempts_total" "{attempt}" ["verdict"],
        "Attempts that are over, as their worker reported them, or `lost`. A second report of one does not count.";
    SLOTS = Gauge "trellis.slots" "trellis_slots" "{slot}" ["state"],
        "Places of a worker for attempts: `busy` or `free`.";
    LEASES_EXPIRED = Counter "trellis.leases_expired" "trellis_leases_expired_total" "{attempt}" [],
        "Attempts whose lease ran out: their worker died, hung, or could not reach a coordinator.";
    RUNS = Counter "trellis.runs" "trellis_runs_total" "{run}" ["status"],
        "Runs that have ended.";
    CONTEXTS = Gauge "trellis.contexts" "trellis_contexts" "{context}" ["status"],
        "Contexts that have not ended, of the runs that the coordinator has in memory and whose partitions it owns.";
    OLDEST_LIVE = Gauge "trellis.oldest_live" "trellis_oldest_live_seconds" "s" [],
        "The age of the oldest run among those; 0 if there is none.";
    CANCEL = Histogram "trellis.cancel" "trellis_cancel_seconds" "s" [],
        "From the end of a cancelled context until nothing of it was held any more: its calls were over, and its outcome was final.";

    COMMIT_CONFLICTS = Counter "trellis.commit_conflicts" "trellis_commit_conflicts_total" "{commit}" [],
        "Commits that another coordinator was ahead of. What they had decided was decided again.";
    BATCH_SIZE = Histogram "trellis.batch_size" "trellis_batch_size" "{job}" [],
        "Jobs that were decided in one turn.";
    STORE = Histogram "trellis.store" "trellis_store_seconds" "s" ["op"],
        "How long the store took to answer. One commit or load may be of many runs.";
    STORE_ERRORS = Counter "trellis.store_errors" "trellis_store_errors_total" "{error}" ["op"],
        "Times that the store did not answer, or answered with an error.";
    OUTBOX_UNSENT = Gauge "trellis.outbox_unsent" "trellis_outbox_unsent" "{commit}" [],
        "Commits in memory whose messages are not known to be stored.";
    PARTITIONS = Gauge "trellis.partitions" "trellis_partitions" "{partition}" [],
        "Partitions of the deployment: each is served by one coordinator.";
    PARTITIONS_OWNED = Gauge "trellis.partitions_owned" "trellis_partitions_owned" "{partition}" [],
        "Partitions that this coordinator serves.";

    HOLD = Histogram "trellis.hold" "trellis_hold_seconds" "s" [],
        "How long a worker waited for the answer to a hold.";
    HOLDS = Counter "trellis.holds" "trellis_holds_total" "{hold}" ["result"],
        "Holds that were decided: `granted`, `waits` for calls in flight, `denied`, or `halted` because a budget is used up. A hold that is asked for again and stands does not count.";
    DENIALS = Counter "trellis.denials" "trellis_denials_total" "{hold}" ["dimension", "reason"],
        "Holds that were denied, by the dimension of the budget and why: `too_small` or `exhausted`.";
    SPEND = Counter "trellis.spend.usd" "trellis_spend_usd_total" "{USD}" ["model", "source"],
        "Money booked, as the receipts have it: `call` (a worker knows what a call cost), `estimate` (nobody knows it, and the whole hold was booked), `charge` (from outside, or a dispute that was accepted). An estimate stays counted if the cost becomes known later.";
    HELD = Gauge "trellis.held.usd" "trellis_held_usd" "{USD}" [],
        "Money held by the runs that the coordinator has in memory and whose partitions it owns.";
    OVERSPENT = Counter "trellis.overspent.usd" "trellis_overspent_usd_total" "{USD}" [],
        "Money booked beyond the budget of a run.";
    DISPUTED = Counter "trellis.disputed.usd" "trellis_disputed_usd_total" "{USD}" [],
        "Costs that workers reported and that were not booked, because nobody had held them and nothing was left.";

    WEBHOOKS = Counter "trellis.webhook.requests" "trellis_webhook_requests_total" "{request}" ["result"],
        "Messages to webhooks: `told`, `failed` (it is tried again), `given_up` (after a day).";

    TOKENS = Histogram "gen_ai.client.token.usage" "gen_ai_client_token_usage" "{token}"
        ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.token.type"],
        "Tokens of one model call, `input` or `output`.";
    OPERATION = Histogram "gen_ai.client.operation.duration" "gen_ai_client_operation_duration_seconds" "s"
        ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type"],
        "How long one model call took.";
    FIRST_CHUNK = Histogram "gen_ai.client.operation.time_to_first_chunk" "gen_ai_client_operation_time_to_first_chunk_seconds" "s"
        ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"],
        "From the beginning of a model call to the first text of its answer.";
    WORKFLOW = Histogram "gen_ai.workflow.duration" "gen_ai_workflow_duration_seconds" "s" ["error.type"],
        "How long a graph ran, waits included.";
    INVOKE_AGENT = Histogram "gen_ai.invoke_agent.duration" "gen_ai_invoke_agent_duration_seconds" "s"
        ["gen_ai.agent.name", "error.type"],
        "How long a context of an agent lived, waits included.";
    EXECUTE_TOOL = Histogram "gen_ai.execute_tool.duration" "gen_ai_execute_tool_duration_seconds" "s"
        ["gen_ai.tool.name", "error.type"],
        "How long one tool call took.";

    SPANS_DROPPED = Counter "trellis.spans_dropped" "trellis_spans_dropped_total" "{span}" [],
        "Spans that no collector got.";
    EXPORT_FAILURES = Counter "trellis.export_failures" "trellis_export_failures_total" "{export}" [],
        "Times that a collector did not take spans or metrics.";
    BUILD_INFO = Gauge "trellis.build_info" "trellis_build_info" "" ["version"],
        "Always 1.";
}
