//! The parameters of routes: the router reads them, and the OpenAPI document describes them.

use domain::{
    AgentId, ChildId, GraphName, ScheduleName, ThreadId, WorkerId,
    wire::{ContextStatus, TracePrefix},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

/// The largest integer that JSON represents exactly in programs of other languages.
pub(crate) const MAX_NUMBER: u64 = (1 << 53) - 1;
/// The longest `Idempotency-Key`.
pub(crate) const MAX_KEY_BYTES: usize = 255;

/// A function that returns a schema.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The schema of a type.
pub(crate) fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) schema: SchemaOf,
    /// It may be given more than once.
    pub(crate) many: bool,
}

const fn one(name: &'static str, about: &'static str, schema: SchemaOf) -> Parameter {
    Parameter { name, about, schema, many: false }
}

const fn many(name: &'static str, about: &'static str, schema: SchemaOf) -> Parameter {
    Parameter { name, about, schema, many: true }
}

pub(crate) const NONE: &[Parameter] = &[];

/// The filters of the list of runs (G17).
pub(crate) const RUNS: &[Parameter] = &[
    one("limit", "The maximum number of runs on one page; default 50.", |_| count(500)),
    one("after", "The `next` of the previous page.", |_| cursor()),
    many(
        "label",
        "`KEY=VALUE`: a label of the run; with several, the run has all of them.",
        |_| json_schema!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_./-]{0,63}=[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,127}$"}),
    ),
    one("thread_id", "The thread of the run.", of::<ThreadId>),
    many("status", "The status of the root context; with several, any of them.", |_| statuses()),
    one("agent_id", "The agent of the root context.", of::<AgentId>),
    one("waiting_for_human", "True: a context of the run waits for a human; false: none waits.", of::<bool>),
    one("min_cost_usd", "The run has spent at least this amount.", |_| usd()),
    one("max_cost_usd", "The run has spent at most this amount.", |_| usd()),
    one(
        "since",
        "The run was submitted at this time or later: milliseconds since 1970, or a time in UTC.",
        |_| moment(),
    ),
    one("until", "The run was submitted before this time.", |_| moment()),
    one("prefix", "The id of the run begins with these digits.", of::<TracePrefix>),
];

/// The same filters, the search, and the newest run that the page shows.
pub(crate) const LIVE_RUNS: &[Parameter] = &[
    one("limit", "The maximum number of runs on one page; default 50.", |_| count(500)),
    one("after", "The `next` of the previous page.", |_| cursor()),
    many(
        "label",
        "`KEY=VALUE`: a label of the run; with several, the run has all of them.",
        |_| json_schema!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_./-]{0,63}=[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,127}$"}),
    ),
    one("thread_id", "The thread of the run.", of::<ThreadId>),
    many("status", "The status of the root context; with several, any of them.", |_| statuses()),
    one("agent_id", "The agent of the root context.", of::<AgentId>),
    one("waiting_for_human", "True: a context of the run waits for a human; false: none waits.", of::<bool>),
    one("min_cost_usd", "The run has spent at least this amount.", |_| usd()),
    one("max_cost_usd", "The run has spent at most this amount.", |_| usd()),
    one(
        "since",
        "The run was submitted at this time or later: milliseconds since 1970, or a time in UTC.",
        |_| moment(),
    ),
    one("until", "The run was submitted before this time.", |_| moment()),
    one("prefix", "The id of the run begins with these digits.", of::<TracePrefix>),
    one("q", "A text in the goal or a label of the run, or the beginning of its id.", of::<String>),
    one("shown", "The time at which the newest run on the page was submitted.", |_| number()),
];

pub(crate) const RUN_VIEW: &[Parameter] = &[
    one("version", "The number of events that the page shows.", |_| number()),
    one(
        "open",
        "The contexts whose rows are loaded, each with the number of its rows, such as `research:200`, separated by commas.",
        of::<String>,
    ),
];

pub(crate) const CONTEXT_VIEW: &[Parameter] = &[
    one("before", "Show the journal entries before this position.", |_| number()),
    one("entry", "Show the page of the journal that has this entry.", |_| number()),
    one("step", "The last entry that the page shows.", |_| number()),
];

pub(crate) const GRAPH_VIEW: &[Parameter] =
    &[one("of", "The context to draw; default: the root.", of::<ChildId>)];

pub(crate) const MONEY_VIEW: &[Parameter] = &[
    one("of", "The context whose money to draw; default: the root.", of::<ChildId>),
    one("at", "The state after this event; default: after the last one.", |_| number()),
];

pub(crate) const ASSET: &[Parameter] = &[one("v", "The version that the page requests.", of::<String>)];

pub(crate) const ROWS: &[Parameter] =
    &[one("from", "The position of the first row to load.", |_| count(1_000_000))];

pub(crate) const QUESTIONS: &[Parameter] = &[
    one("limit", "The maximum number of runs whose questions are listed; default 50.", |_| count(100)),
    one("after", "The `next` of the previous page.", |_| cursor()),
];

pub(crate) const EVENTS: &[Parameter] = &[
    many("context", "Return only events about one of these contexts.", of::<ChildId>),
    many(
        "type",
        "Return only events of one of these types, such as `settled`.",
        |_| json_schema!({"type": "string", "pattern": "^[a-z_]{1,40}$"}),
    ),
];

pub(crate) const VERSION: &[Parameter] = &[one("version", "The version; default: the latest.", |_| number())];

pub(crate) const REVISION: &[Parameter] = &[one(
    "revision",
    "The request succeeds only if this is the current revision; 0: only if the schedule does not exist.",
    |_| number(),
)];

pub(crate) const SCHEDULES: &[Parameter] = &[
    one("limit", "The maximum number of items on one page; default 100.", |_| count(500)),
    one("after", "The `next` of the previous page.", of::<ScheduleName>),
];

pub(crate) const GRAPHS: &[Parameter] = &[
    one("limit", "The maximum number of items on one page; default 100.", |_| count(500)),
    one("after", "The `next` of the previous page.", of::<GraphName>),
];

pub(crate) const LETTERS: &[Parameter] = &[
    one("limit", "The maximum number of items on one page; default 100.", |_| count(500)),
    one("before", "The `next` of the previous page, a sequence.", |_| number()),
    one("kind", "Return only dead letters of messages of this kind, such as `cancel`.", of::<ChildId>),
];

/// The schema of a part of a path, by its name.
pub(crate) fn part(name: &str) -> SchemaOf {
    match name {
        "trace" => |_| trace(),
        "child" | "kind" => of::<ChildId>,
        "agent" => of::<AgentId>,
        "schedule" => of::<ScheduleName>,
        "graph" => of::<GraphName>,
        "worker" => of::<WorkerId>,
        "number" => |_| json_schema!({"type": "integer", "minimum": 1, "maximum": u32::MAX}),
        "sequence" => |_| number(),
        _ => |_| json_schema!({"type": "string", "minLength": 1}),
    }
}

/// The schema of the id of a run. All zeros are not a valid id.
fn trace() -> Schema {
    json_schema!({"type": "string", "pattern": "^[0-9a-f]{32}$", "not": {"const": "0".repeat(32)}})
}

/// The schema of a position in the list of runs.
fn cursor() -> Schema {
    json_schema!({"type": "string", "pattern": "^[0-9]{1,16}-(?!0{32}$)[0-9a-f]{32}$"})
}

/// The schema of a header, by its name.
pub(crate) fn header(name: &str) -> Schema {
    match name {
        "Idempotency-Key" => json_schema!({"type": "string", "pattern": "^[!-~]([ -~]{0,253}[!-~])?$"}),
        "Last-Event-ID" => {
            json_schema!({"type": "string", "pattern": "^[0-9]{1,18}-[0-9]{1,18}-([0-9]{1,18}|end)$"})
        }
        _ => json_schema!({"type": "string"}),
    }
}

fn count(most: u32) -> Schema {
    json_schema!({"type": "integer", "minimum": 1, "maximum": most})
}

fn number() -> Schema {
    json_schema!({"type": "integer", "minimum": 0, "maximum": MAX_NUMBER})
}

fn usd() -> Schema {
    json_schema!({"type": "string", "pattern": "^[0-9]{1,6}(\\.[0-9]{1,9})?$"})
}

fn moment() -> Schema {
    json_schema!({"anyOf": [
        {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER},
        {"type": "string", "pattern": "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])(T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?Z)?$"},
    ]})
}

fn statuses() -> Schema {
    let all: Vec<&str> = STATUSES.iter().map(|status| status.name()).collect();
    json_schema!({"type": "string", "enum": json!(all)})
}

/// Every status that a run can have.
pub(crate) const STATUSES: [ContextStatus; 10] = {
    use domain::wire::EndStatus::{Aborted, Cancelled, Completed, Failed, Rejected, TimedOut};
    [
        ContextStatus::Submitted,
        ContextStatus::Working,
        ContextStatus::InputRequired,
        ContextStatus::Paused,
        ContextStatus::Ended(Completed),
        ContextStatus::Ended(Failed),
        ContextStatus::Ended(Cancelled),
        ContextStatus::Ended(TimedOut),
        ContextStatus::Ended(Aborted),
        ContextStatus::Ended(Rejected),
    ]
};
