//! Reads a schedule. Its shape, its expression, its time zone and its task are checked, and all
//! problems are returned at once.

use serde_json::{Map, Value, json};

use super::{
    cron::Cron,
    timetable::{Timetable, zone, zones},
};
use crate::{
    decode::{self, Format},
    digest::SequenceDigest,
    graph,
    id::{ScheduleName, TraceId},
    json,
    labels::MAX_LABELS,
    limits::MAX_ORDER_BYTES,
    money::Usd,
    problem::{Problems, nearest},
    time::Timestamp,
    wire::{Schedule, Spawn},
};

/// The most schedules of a deployment.
pub const MAX_SCHEDULES: usize = 10_000;
/// The most bytes of a task.
pub const MAX_TASK_BYTES: u64 = 256 * 1024;
const _: () = assert!(MAX_TASK_BYTES <= MAX_ORDER_BYTES);
pub const MAX_CATCH_UP: u32 = 100;
pub const MAX_CATCH_UP_MS: u64 = 7 * 86_400_000;
/// The label of every run of a schedule. Its value is the schedule's name.
pub const LABEL: &str = "schedule";

/// A valid schedule.
#[derive(Debug, Clone)]
pub struct ReadySchedule {
    pub schedule: Schedule,
    pub timetable: Timetable,
    pub until: Option<Timestamp>,
    /// The ceiling of one run, if the task sets one.
    pub ceiling: Option<Usd>,
}

/// Reads a definition, or returns all of its problems.
pub fn read(value: &Value) -> Result<ReadySchedule, Problems> {
    let mut problems = Problems::default();
    let schedule = decode::value::<Schedule>(value);
    add(&mut problems, "", schedule.as_ref().err());
    let cron = value.get("cron").and_then(Value::as_str);
    let time_zone = match value.get("time_zone") {
        None => Some("UTC"),
        Some(zone) => zone.as_str(),
    };
    let timetable = timetable(cron, time_zone, &mut problems);
    let until = value.get("until").and_then(Value::as_str).and_then(|text| {
        let found = Timestamp::parse(text);
        if found.is_none() {
            let hint = "write a day or a time in UTC, such as 2026-12-31 or 2026-12-31T08:00Z";
            problems.add("until", format!("{text:?} is not a time"), Some(hint.into()));
        }
        found
    });
    let labels = value.get("labels").and_then(Value::as_object);
    let ceiling = match value.get("task") {
        Some(Value::Object(task)) => check_task(task, labels, &mut problems),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            let hint = "give a goal, as in {\"goal\": \"…\"}, or the steps of a task graph";
            problems.add("task", "it should be an object", Some(hint.into()));
            None
        }
        None => None,
    };
    check_numbers(value, ceiling, &mut problems);
    match (schedule, timetable) {
        (Ok(schedule), Some(timetable)) => problems.or(ReadySchedule { schedule, timetable, until, ceiling }),
        (_, _) => Err(problems),
    }
}

/// Reads only the expression and its time zone.
pub fn read_timetable(cron: &str, time_zone: &str) -> Result<Timetable, Problems> {
    let mut problems = Problems::default();
    match timetable(Some(cron), Some(time_zone), &mut problems) {
        Some(timetable) => Ok(timetable),
        None => Err(problems),
    }
}

fn timetable(cron: Option<&str>, time_zone: Option<&str>, problems: &mut Problems) -> Option<Timetable> {
    let cron = cron.and_then(|text| match Cron::parse(text) {
        Ok(cron) => Some(cron),
        Err(mistakes) => {
            mistakes.into_iter().for_each(|(message, hint)| problems.add("cron", message, hint));
            None
        }
    });
    let zone = time_zone.and_then(|name| {
        let found = zone(name);
        if found.is_none() {
            let known = zones();
            let hint = match nearest_zone(name, &known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "use a name of the IANA, such as Europe/Berlin, America/New_York or UTC".into(),
            };
            problems.add("time_zone", format!("{name:?} is not a time zone"), Some(hint));
        }
        found
    });
    Some(Timetable::new(cron?, zone?))
}

/// Returns a zone with a similar name. There are more zones than `nearest` compares, so it prefers
/// an equal city, and else compares only the zones with the same first letter.
fn nearest_zone<'z>(name: &str, known: &'z [String]) -> Option<&'z str> {
    let begins = |known: &&str| {
        let (a, b) = (known.chars().next(), name.chars().next());
        a.zip(b).is_some_and(|(a, b)| a.eq_ignore_ascii_case(&b))
    };
    let city = |known: &&str| known.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name));
    let known = || known.iter().map(String::as_str);
    known().find(city).or_else(|| nearest(name, known().filter(begins)))
}

/// Adds the problems of the task, and returns its ceiling.
fn check_task(
    task: &Map<String, Value>,
    labels: Option<&Map<String, Value>>,
    problems: &mut Problems,
) -> Option<Usd> {
    for (field, hint) in [
        ("trace_id", "each run has an id of its own"),
        ("reply_to", "`trellis schedules show` shows the result of each tick"),
        ("rerun", "give the task itself"),
    ] {
        if task.contains_key(field) {
            problems.add(format!("task.{field}"), "a schedule's task can't have it", Some(hint.into()));
        }
    }
    let bytes = json::size_bytes(task);
    if bytes > MAX_TASK_BYTES {
        let message = format!("the task has {bytes} bytes, more than the {MAX_TASK_BYTES} allowed");
        problems.add("task", message, Some("put long texts into files or profiles".into()));
        return None;
    }
    let own = task.get("labels").and_then(Value::as_object);
    let mut keys: Vec<&String> = own.into_iter().chain(labels).flat_map(Map::keys).collect();
    keys.sort_unstable();
    keys.dedup();
    if keys.len() + 1 > MAX_LABELS && !keys.iter().any(|key| *key == LABEL) {
        let message = format!("a run has at most {MAX_LABELS} labels, and one is `{LABEL}`");
        problems.add("labels", message, Some("leave one out".into()));
    }
    for (at, given) in [("task.labels", own), ("labels", labels)] {
        if given.is_some_and(|labels| labels.contains_key(LABEL)) {
            let hint = "every run of a schedule has it, with the schedule's name";
            problems.add(format!("{at}.{LABEL}"), "this label is given by the schedule", Some(hint.into()));
        }
    }
    let mut bare = task.clone();
    ["trace_id", "reply_to", "rerun"].iter().for_each(|field| drop(bare.remove(*field)));
    let bare = Value::Object(bare);
    let text = bare.to_string();
    let (wrong, ceiling) = if let Err(too_deep) = decode::check_depth(text.as_bytes()) {
        (Some(too_deep), None)
    } else if bare.get("steps").is_some() {
        // The graphs that are stored under the names it uses become known only when it runs.
        let mut bare = bare;
        add(problems, "task", Some(&graph::put_stand_ins(&mut bare)));
        match graph::read(bare.to_string().as_bytes(), Format::Json) {
            Ok((graph, _)) => (None, graph.max_cost_usd),
            Err(problems) => (Some(problems), None),
        }
    } else if bare.get("goal").is_some() {
        match decode::value::<Spawn>(&bare) {
            Ok(spawn) => (None, spawn.max_cost_usd),
            Err(problems) => (Some(problems), None),
        }
    } else {
        let hint = "give a `goal` for one agent, or the `steps` of a task graph";
        (Some(Problems::one("", "it has neither a goal nor steps", Some(hint.into()))), None)
    };
    add(problems, "task", wrong.as_ref());
    ceiling
}

fn check_numbers(value: &Value, ceiling: Option<Usd>, problems: &mut Problems) {
    let number = |field: &str| value.get(field).and_then(Value::as_u64);
    if number("catch_up").is_some_and(|runs| runs > u64::from(MAX_CATCH_UP)) {
        problems.add("catch_up", format!("at most {MAX_CATCH_UP} missed ticks are run"), None);
    }
    if number("catch_up_within_ms").is_some_and(|within| within > MAX_CATCH_UP_MS) {
        let hint = format!("seven days are {MAX_CATCH_UP_MS}");
        problems.add("catch_up_within_ms", "a tick can be caught up within seven days at most", Some(hint));
    }
    if number("max_runs") == Some(0) {
        let hint = "leave it out, or use `trellis schedules pause`";
        problems.add("max_runs", "with no run at all there is nothing to schedule", Some(hint.into()));
    }
    let budget = value.get("budget_per_day_usd").and_then(|budget| decode::value::<Usd>(budget).ok());
    if budget == Some(Usd::ZERO) {
        let hint = "leave it out, or use `trellis schedules pause`";
        problems.add("budget_per_day_usd", "nothing could run within a budget of zero", Some(hint.into()));
    } else if let (Some(budget), Some(ceiling)) = (budget, ceiling)
        && ceiling > budget
    {
        let message = format!("one run may cost {ceiling}, more than the {budget} of a day");
        let hint = "lower `max_cost_usd` of the task, or raise the budget";
        problems.add("budget_per_day_usd", message, Some(hint.into()));
    }
}

/// Adds problems, with `above` before their paths.
fn add(problems: &mut Problems, above: &str, found: Option<&Problems>) {
    for problem in found.into_iter().flat_map(Problems::iter) {
        let dot = if above.is_empty() || problem.path.is_empty() || problem.path.starts_with('[') {
            ""
        } else {
            "."
        };
        let path = format!("{above}{dot}{}", problem.path);
        problems.add(path, problem.message.clone(), problem.hint.clone());
    }
}

impl ReadySchedule {
    /// Returns the submission of one run: the task with its id, its labels and its ceiling.
    pub fn submission(&self, trace_id: TraceId, ceiling: Usd) -> Value {
        let mut task = self.schedule.task.value().as_object().cloned().unwrap_or_default();
        task.insert("trace_id".into(), json!(trace_id));
        task.entry("max_cost_usd").or_insert_with(|| json!(ceiling));
        let labels = task.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            for (key, value) in self.schedule.labels.iter() {
                labels.entry(key.to_string()).or_insert_with(|| json!(value));
            }
            labels.insert(LABEL.into(), json!(self.schedule.name));
        }
        Value::Object(task)
    }

    /// Returns the run id of a tick. Every submission of the tick has this id, so a second one is
    /// the same run. `since` is the time of the revision. It keeps the ids of two deployments apart
    /// that have a schedule of the same name and show their traces in one place.
    pub fn trace_of(name: &ScheduleName, revision: u64, since: Timestamp, tick: Timestamp) -> TraceId {
        let numbers = [revision, since.millis(), tick.millis()].map(|number| number.to_string());
        trace_id(&["tick", name.as_str(), &numbers[0], &numbers[1], &numbers[2]])
    }

    /// Returns the run id of a run that a user requested.
    pub fn trace_asked(name: &ScheduleName, id: &str) -> TraceId {
        trace_id(&["asked", name.as_str(), id])
    }
}

fn trace_id(of: &[&str]) -> TraceId {
    let mut digest = SequenceDigest::default();
    digest.add("schedule");
    of.iter().for_each(|part| digest.add(part));
    digest.short().parse().expect("32 hex digits, and not all zeros")
}
