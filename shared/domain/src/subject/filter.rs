//! Filters: patterns that match several subjects.

use std::{fmt, str::FromStr};

use super::{
    Partition, Subject, UnknownSubject,
    token::{Token, filters, tokens_after},
};
use crate::id::{ChildId, TraceId, WebhookName};

filters! {
    /// Every execute subject, of any pool.
    Executes = "agent.spawn.execute" [*];
    /// The asks of the workers of all pools about the traces of a partition.
    AsksOf(partition: Partition) = "agent.ask" [* partition];
    Results = "agent.result" [* * * *];
    Costs = "agent.cost" [* * * *];
    ResultsOf(partition: Partition) = "agent.result" [* partition * *];
    CostsOf(partition: Partition) = "agent.cost" [* partition * *];
    Events = "agent.event" [* *];
    EventsOf(trace: TraceId) = "agent.event" [trace *];
    Outcomes = "agent.outcome" [* *];
    OutcomesOf(trace: TraceId) = "agent.outcome" [trace *];
    Questions = "agent.question" [* *];
    QuestionsOf(trace: TraceId) = "agent.question" [trace *];
    /// The spans of all contexts that have ended.
    Spans = "agent.span" [* *];
    /// The notices for all webhooks. [`Filter::WebhooksOf`] has those of one webhook.
    Webhooks = "agent.webhook" [* * *];
    WebhooksOf(name: WebhookName) = "agent.webhook" [name * *];
    Histories = "agent.history" [* * *];
    HistoriesOf(trace: TraceId) = "agent.history" [* trace *];
    /// The journal of a context, in any pool.
    JournalOf(trace: TraceId, child: ChildId) = "agent.history" [* trace child];
    Dead = "agent.dead" [*];
    /// All records of administrators' actions that are not events of a run.
    Audits = "agent.audit" [*];
    /// The profiles of all agents.
    Profiles = "agent.profile" [*];
    /// All schedules.
    Schedules = "agent.schedule" [*];
    /// The decisions about the ticks of all schedules.
    AllTicks = "agent.ticks" [*];
    /// All graphs that are stored under names.
    AllKept = "agent.kept" [*];
    /// All stop messages.
    Stops = "agent.stop" [*];
    /// The streamed texts of the agents of a trace.
    StreamsOf(trace: TraceId) = "agent.stream" [trace *];
}

impl FromStr for Filter {
    type Err = UnknownSubject;

    fn from_str(text: &str) -> Result<Self, UnknownSubject> {
        if let Ok(subject) = text.parse() {
            return Ok(Filter::One(subject));
        }
        Filter::several(text).ok_or_else(|| UnknownSubject::new(text))
    }
}
