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
        "Tasks in the queue of a pool that are not delivered to a worker yet. Only the coordinator that owns partition 0 reports it.";
    QUEUE_ACK_PENDING = Gauge "trellis.queue.ack_pending" "trellis_queue_ack_pending" "{message}" ["pool"],
        "Tasks of a pool that are delivered to a worker and not acknowledged.";
    QUEUE_OLDEST = Gauge "trellis.queue.oldest" "trellis_queue_oldest_seconds" "s" ["pool"],
        "The age of the oldest undelivered task of a pool; 0 if its queue is empty.";
    QUEUE_WAIT = Histogram "trellis.queue.wait" "trellis_queue_wait_seconds" "s" ["pool"],
        "The time from when an attempt is due until its claim.";
    REDELIVERIES = Counter "trellis.redeliveries" "trellis_redeliveries_total" "{message}" ["stream"],
        "Messages of a queue that were delivered again.";
    DEAD_LETTERS = Counter "trellis.dead_letters" "trellis_dead_letters_total" "{message}" ["kind"],
        "Stored dead letters, by the kind of the refused message.";

    ATTEMPTS = Counter "trellis.attempts" "trellis_attempts_total" "{attempt}" ["verdict"],
        "Ended attempts, by the verdict that their worker reported, or `lost`. A repeated report is not counted.";
    SLOTS = Gauge "trellis.slots" "trellis_slots" "{slot}" ["state"],
        "Slots of a worker for attempts: `busy` or `free`.";
    LEASES_EXPIRED = Counter "trellis.leases_expired" "trellis_leases_expired_total" "{attempt}" [],
        "Attempts whose lease expired, because their worker died, hung, or could not reach a coordinator.";
    RUNS = Counter "trellis.runs" "trellis_runs_total" "{run}" ["status"],
        "Runs that have ended.";
    CONTEXTS = Gauge "trellis.contexts" "trellis_contexts" "{context}" ["status"],
        "Live contexts of the runs that the coordinator has in memory and whose partitions it owns.";
    OLDEST_LIVE = Gauge "trellis.oldest_live" "trellis_oldest_live_seconds" "s" [],
        "The age of the oldest live run that the coordinator has in memory and whose partition it owns; 0 without one.";
    CANCEL = Histogram "trellis.cancel" "trellis_cancel_seconds" "s" [],
        "The time from the end of a cancelled context until its last hold ended and its outcome was final.";

    COMMIT_CONFLICTS = Counter "trellis.commit_conflicts" "trellis_commit_conflicts_total" "{commit}" [],
        "Commits that failed because another coordinator had committed first. Their decisions were made again.";
    BATCH_SIZE = Histogram "trellis.batch_size" "trellis_batch_size" "{job}" [],
        "Jobs that were decided in one turn.";
    STORE = Histogram "trellis.store" "trellis_store_seconds" "s" ["op"],
        "The time until the store answered. One commit or load may include many runs.";
    STORE_ERRORS = Counter "trellis.store_errors" "trellis_store_errors_total" "{error}" ["op"],
        "Requests that the store did not answer, or answered with an error.";
    OUTBOX_UNSENT = Gauge "trellis.outbox_unsent" "trellis_outbox_unsent" "{commit}" [],
        "Commits in memory whose messages are not confirmed as stored.";
    PARTITIONS = Gauge "trellis.partitions" "trellis_partitions" "{partition}" [],
        "Partitions of the deployment: each is served by one coordinator.";
    PARTITIONS_OWNED = Gauge "trellis.partitions_owned" "trellis_partitions_owned" "{partition}" [],
        "Partitions that this coordinator serves.";

    HOLD = Histogram "trellis.hold" "trellis_hold_seconds" "s" [],
        "The time that a worker waited for the answer to a hold.";
    HOLDS = Counter "trellis.holds" "trellis_holds_total" "{hold}" ["result"],
        "Decisions about holds: `granted`, `waits` for calls in flight, `denied`, or `halted` because a budget is used up. A repeated request for an open hold is not counted.";
    DENIALS = Counter "trellis.denials" "trellis_denials_total" "{hold}" ["dimension", "reason"],
        "Denied holds, by the dimension of the budget and the reason: `too_small` or `exhausted`.";
    SPEND = Counter "trellis.spend.usd" "trellis_spend_usd_total" "{USD}" ["model", "source"],
        "Money booked, as in the receipts: `call` (the cost that a worker reported), `estimate` (the whole hold, because the cost is unknown), `charge` (an external cost, or an accepted dispute). An estimate stays counted if the cost becomes known later.";
    HELD = Gauge "trellis.held.usd" "trellis_held_usd" "{USD}" [],
        "Money held by the runs that the coordinator has in memory and whose partitions it owns.";
    OVERSPENT = Counter "trellis.overspent.usd" "trellis_overspent_usd_total" "{USD}" [],
        "Money booked beyond the budget of a run.";
    DISPUTED = Counter "trellis.disputed.usd" "trellis_disputed_usd_total" "{USD}" [],
        "Reported costs that were not booked, because they had no hold and no money was left for them.";

    WEBHOOKS = Counter "trellis.webhook.requests" "trellis_webhook_requests_total" "{request}" ["result"],
        "Messages to webhooks: `told` (delivered), `failed` (retried), `given_up` (after a day).";

    TOKENS = Histogram "gen_ai.client.token.usage" "gen_ai_client_token_usage" "{token}"
        ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.token.type"],
        "Tokens of one model call, `input` or `output`.";
    OPERATION = Histogram "gen_ai.client.operation.duration" "gen_ai_client_operation_duration_seconds" "s"
        ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type"],
        "The duration of one model call.";
    FIRST_CHUNK = Histogram "gen_ai.client.operation.time_to_first_chunk" "gen_ai_client_operation_time_to_first_chunk_seconds" "s"
        ["gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"],
        "The time from the beginning of a model call to the first text of its answer.";
    WORKFLOW = Histogram "gen_ai.workflow.duration" "gen_ai_workflow_duration_seconds" "s" ["error.type"],
        "The duration of a graph, including waits.";
    INVOKE_AGENT = Histogram "gen_ai.invoke_agent.duration" "gen_ai_invoke_agent_duration_seconds" "s"
        ["gen_ai.agent.name", "error.type"],
        "The lifetime of an agent's context, including waits.";
    EXECUTE_TOOL = Histogram "gen_ai.execute_tool.duration" "gen_ai_execute_tool_duration_seconds" "s"
        ["gen_ai.tool.name", "error.type"],
        "The duration of one tool call.";

    SPANS_DROPPED = Counter "trellis.spans_dropped" "trellis_spans_dropped_total" "{span}" [],
        "Spans that reached no collector.";
    EXPORT_FAILURES = Counter "trellis.export_failures" "trellis_export_failures_total" "{export}" [],
        "Exports of spans or metrics that a collector did not accept.";
    BUILD_INFO = Gauge "trellis.build_info" "trellis_build_info" "" ["version"],
        "Always 1.";
}
