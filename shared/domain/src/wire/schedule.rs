//! Schedules (G16): their definitions, and the answers about them. This module has only the shapes;
//! `crate::schedule` reads and checks them.

use serde::{Deserialize, Serialize};

use super::ContextStatus;
use crate::{
    id::{ScheduleName, TraceId},
    json::Json,
    labels::Labels,
    money::Usd,
    time::Timestamp,
};

/// A task that is run at regular times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    pub name: ScheduleName,
    /// Five fields: minute, hour, day of the month, month, day of the week. Or a name such as
    /// `@daily`, or `@every 90s`.
    pub cron: String,
    /// The IANA name, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    pub time_zone: String,
    /// The task: a spawn, or a task graph.
    pub task: Json,
    #[serde(default)]
    pub overlap: Overlap,
    /// The most missed ticks that are run later; the latest ones. At most 100.
    #[serde(default = "one")]
    pub catch_up: u32,
    /// The age in milliseconds after which a missed tick is not run any more. At most seven days.
    #[serde(default = "a_day")]
    pub catch_up_within_ms: u64,
    /// The most that the runs of one day may cost together. A day is one of the time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_per_day_usd: Option<Usd>,
    /// True pauses the schedule, false resumes it. Absent: unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The time of the last possible tick, in UTC: `2026-12-31` or `2026-12-31T08:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The most runs of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runs: Option<u64>,
    /// Labels of every run, in addition to those of the task. Each run also has `schedule=NAME`.
    #[serde(default, skip_serializing_if = "crate::labels::is_none")]
    pub labels: Labels,
}

fn utc() -> String {
    "UTC".into()
}

fn one() -> u32 {
    1
}

fn a_day() -> u64 {
    24 * 3_600_000
}

/// The treatment of a tick while an earlier run is live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The tick is skipped.
    #[default]
    Skip,
    /// The tick waits until the earlier run has ended. Of several waiting ticks, as many are run as
    /// `catch_up` allows.
    Queue,
    /// The tick is run beside the earlier runs, of which at most eight may be live.
    Allow,
    /// The earlier run is cancelled.
    CancelPrevious,
}

/// A revision of a schedule, on `agent.schedule.<name>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ScheduleRevision {
    /// Counted from 1. The latest revision applies.
    pub revision: u64,
    /// The time of the revision, by the coordinators' clock. All its ticks are later.
    pub at: Timestamp,
    /// `None`: the schedule was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Json>,
}

/// The decision about a tick, or about several missed ticks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TickRecord {
    /// The time of the tick; for several, of the first.
    pub at: Timestamp,
    pub decided_at: Timestamp,
    pub outcome: TickOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For several ticks: their number, up to ten thousand. `until` is the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticks: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The run was requested by a user, in addition to the timetable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TickOutcome {
    /// The tick is to be run; its submission follows.
    Decided,
    /// The run was accepted.
    Submitted,
    /// The run was refused for good.
    Refused,
    /// The run could not be submitted before the next tick.
    GivenUp,
    /// An earlier run is live.
    SkippedOverlap,
    /// The run might cost more than the rest of the day's budget.
    SkippedBudget,
    /// The tick could not be run in time, and `catch_up` does not allow it now.
    Missed,
    /// Not about a tick: the schedule was paused or resumed.
    Paused,
    Resumed,
}

impl TickOutcome {
    /// Returns a few words for people.
    pub fn words(self) -> &'static str {
        match self {
            TickOutcome::Decided => "to be submitted",
            TickOutcome::Submitted => "run",
            TickOutcome::Refused => "refused",
            TickOutcome::GivenUp => "given up",
            TickOutcome::SkippedOverlap => "skipped: overlap",
            TickOutcome::SkippedBudget => "skipped: budget",
            TickOutcome::Missed => "missed",
            TickOutcome::Paused => "paused",
            TickOutcome::Resumed => "resumed",
        }
    }
}

/// A schedule in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ScheduleSummary {
    pub name: ScheduleName,
    pub revision: u64,
    pub cron: String,
    pub time_zone: String,
    pub paused: bool,
    /// Absent: the schedule has no further tick, or is paused. In the past while a tick waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// The run that must end before the due tick is run (`overlap: queue`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<TraceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<TickRecord>,
    pub runs: u64,
    pub skipped: u64,
    pub missed: u64,
    /// The reason why it is not run at all: a newer version of this program wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// A schedule with its next and its last ticks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ScheduleShown {
    #[serde(flatten)]
    pub summary: ScheduleSummary,
    pub schedule: Json,
    pub changed_at: Timestamp,
    pub next_ticks: Vec<Timestamp>,
    /// The last twenty ticks, the newest first.
    pub ticks: Vec<TickShown>,
    /// The day, in the schedule's time zone, of the last tick that was run or skipped. `day_usd` is
    /// the amount that its runs have cost or may still cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    pub day_usd: Usd,
}

/// A tick, with the state of its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TickShown {
    #[serde(flatten)]
    pub record: TickRecord,
    /// The status of the run, while the run is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ContextStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Usd>,
}
