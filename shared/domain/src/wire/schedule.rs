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

/// A task that is run again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    pub name: ScheduleName,
    /// Five fields: minute, hour, day of the month, month, day of the week. Or `@daily` and the like, or `@every 90s`.
    pub cron: String,
    /// As the IANA names it, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    pub time_zone: String,
    /// What is run: a spawn, or a task graph.
    pub task: Json,
    #[serde(default)]
    pub overlap: Overlap,
    /// How many ticks are run at most that came while nobody could run them; the latest ones. At most 100.
    #[serde(default = "one")]
    pub catch_up: u32,
    /// A tick that is older than this is not run any more. At most seven days.
    #[serde(default = "a_day")]
    pub catch_up_within_ms: u64,
    /// The most that the runs of one day may cost together. A day is one of the time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_per_day_usd: Option<Usd>,
    /// Whether it is paused from now on; if absent, it is as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// No tick comes after this time, in UTC: `2026-12-31` or `2026-12-31T08:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// So many runs, and no more.
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

/// What becomes of a tick while an earlier run is live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// It waits until the earlier run has ended. Of those that wait, as many are run as `catch_up` says.
    Queue,
    /// It is run beside the earlier ones, of which there may be eight.
    Allow,
    /// The earlier run is cancelled.
    CancelPrevious,
}

/// A revision of a schedule, on `agent.schedule.<name>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ScheduleRevision {
    /// From 1 on. The latest counts.
    pub revision: u64,
    /// When it was made, by the coordinators' clock: its ticks are later.
    pub at: Timestamp,
    /// None: the schedule was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Json>,
}

/// What was decided about a tick, or about several that were missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TickRecord {
    /// The time of the tick; of several, of the first.
    pub at: Timestamp,
    pub decided_at: Timestamp,
    pub outcome: TickOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of several ticks: how many, counted up to ten thousand, and the last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticks: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Somebody asked for it, besides the timetable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TickOutcome {
    /// It is to be run; its submission follows.
    Decided,
    /// Its run was accepted.
    Submitted,
    /// Its run was refused for good.
    Refused,
    /// It could not be submitted before the next tick.
    GivenUp,
    /// An earlier run is live.
    SkippedOverlap,
    /// It might cost more than is left of the day's budget.
    SkippedBudget,
    /// It came while nobody could run it, and `catch_up` does not allow it.
    Missed,
    /// Nothing about a tick: the schedule was paused or resumed.
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
    /// None: it has no further tick, or it is paused. In the past while a tick waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// The run that has to end before the next tick, which is due, is run (`overlap: queue`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<TraceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<TickRecord>,
    pub runs: u64,
    pub skipped: u64,
    pub missed: u64,
    /// Why it is not run at all: a newer version of this program wrote it.
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
    /// The last twenty, the newest first.
    pub ticks: Vec<TickShown>,
    /// The day, in its time zone, of the last tick that was run or skipped, and what its runs have cost and may still cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    pub day_usd: Usd,
}

/// What became of a tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TickShown {
    #[serde(flatten)]
    pub record: TickRecord,
    /// Of its run, while that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ContextStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<Usd>,
}
