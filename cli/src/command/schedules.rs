//! `trellis schedules`: tasks that run repeatedly (G16). Schedules are stored, shown, paused, run
//! and deleted on a cluster; their next ticks are computed here, without a server.

use std::path::{Path, PathBuf};

use client::fresh_trace;
use domain::{
    ChildId, ScheduleName, Timestamp, Usd,
    schedule::{self, Timetable},
    wire::{Query, QueryAnswer, ScheduleShown, ScheduleSummary, TickRecord},
    wording::count,
};
use host::clock::Clock;
use serde_json::{Value, json};

use crate::{
    cluster::connect::Servers,
    input::{
        document::{Document, FileError},
        parse,
        use_files::read_as_far,
    },
    terminal::{
        display,
        ending::Ending,
        output::{self, Output},
        table,
    },
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add a schedule, or replace the one of the same name.
    ///
    /// Its ticks begin now: earlier ones are not run.
    #[command(after_help = "Examples:
  trellis schedules apply examples/nightly.yaml
  trellis schedules apply examples/nightly.yaml --cron '0 4 * * *' --time-zone Europe/Berlin
  trellis schedules apply examples/nightly.yaml --revision 3      only if its revision is still 3")]
    #[command(alias = "put")]
    Apply {
        /// The schedule: YAML, JSON or TOML; `-` is stdin.
        file: PathBuf,
        #[command(flatten)]
        changes: Changes,
        /// Only if this is its current revision; 0: only if no schedule has this name.
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
    },
    /// List the schedules, by name.
    List,
    /// Show a schedule, its next ticks, and the outcomes of the last ones.
    Show { name: ScheduleName },
    /// Pause a schedule: its ticks are not run until it is resumed.
    Pause { name: ScheduleName },
    /// Resume a schedule from its next tick on; ticks of the pause are not run.
    Resume { name: ScheduleName },
    /// Delete a schedule. Its runs continue.
    Delete { name: ScheduleName },
    /// Run a schedule once now, even while it is paused.
    ///
    /// Its daily budget and its rule for overlaps apply.
    Run { name: ScheduleName },
    /// Print the next ticks of a file or an expression, without a server.
    #[command(after_help = "Examples:
  trellis schedules next examples/nightly.yaml
  trellis schedules next '30 2 * * *' --time-zone Europe/Berlin --since 2026-03-28 --count 3")]
    Next {
        /// A schedule, or a cron expression in quotes.
        #[arg(value_name = "FILE|CRON")]
        what: String,
        /// The time zone; overrides the file.
        #[arg(long, value_name = "ZONE")]
        time_zone: Option<String>,
        /// Only ticks after this time, in UTC; by default, after now.
        #[arg(long, alias = "after", value_name = "TIME", value_parser = parse::moment)]
        since: Option<Timestamp>,
        /// The number of ticks.
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
        count: u16,
    },
}

/// The options that override the file.
#[derive(Debug, clap::Args)]
pub(crate) struct Changes {
    /// Its name; overrides the file.
    #[arg(long)]
    name: Option<ScheduleName>,
    /// The cron expression; overrides the file.
    #[arg(long)]
    cron: Option<String>,
    /// The time zone, such as Europe/Berlin; overrides the file.
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    /// The budget of the runs of one day, in dollars; overrides the file.
    #[arg(long, value_name = "USD", value_parser = parse::ceiling)]
    budget_per_day_usd: Option<domain::Usd>,
}

impl Changes {
    fn apply(self, schedule: &mut Document) {
        let Some(fields) = schedule.value.as_object_mut() else { return };
        let budget = self.budget_per_day_usd.map(|budget| json!(budget));
        for (field, option, given) in [
            ("name", "--name", self.name.map(|name| json!(name))),
            ("cron", "--cron", self.cron.map(Value::from)),
            ("time_zone", "--time-zone", self.time_zone.map(Value::from)),
            ("budget_per_day_usd", "--budget-per-day-usd", budget),
        ] {
            if let Some(given) = given {
                fields.insert(field.into(), given);
                schedule.sources.option(field, option);
            }
        }
    }
}

pub(crate) async fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let query = match command {
        Command::Apply { file, changes, revision } => {
            let read = read_as_far(&file).and_then(|mut document| {
                changes.apply(&mut document);
                document.checked(schedule::read(&document.value))?;
                Ok(document.value)
            });
            match read {
                Ok(value) => Query::PutSchedule { schedule: value.into(), revision },
                Err(unusable) => return explain(&unusable, &file, output),
            }
        }
        Command::List => return list(servers, output).await,
        Command::Show { name } => Query::Schedule { name },
        Command::Pause { name } => Query::PauseSchedule { name },
        Command::Resume { name } => Query::ResumeSchedule { name },
        Command::Delete { name } => Query::DeleteSchedule { name },
        Command::Run { name } => {
            let id = ChildId::new(&fresh_trace().to_string()).expect("hex digits are an id");
            Query::RunSchedule { name, id }
        }
        Command::Next { what, time_zone, since, count } => {
            return next(&what, time_zone, since, usize::from(count), output);
        }
    };
    let client = servers.cluster().await?;
    // Each query may be sent twice, because a coordinator may die between its commit and its
    // answer. Repeating it changes nothing.
    match client.query(&query).await? {
        Ok(QueryAnswer::ScheduleKept { name, revision, unchanged, paused, next }) => {
            match output {
                Output::Json => output::print_json(&json!({
                    "name": name, "revision": revision, "unchanged": unchanged, "paused": paused, "next": next,
                }))?,
                Output::Text => {
                    let unchanged = if unchanged { "unchanged, " } else { "" };
                    let next = match (paused, next) {
                        (true, _) => "paused".to_owned(),
                        (false, Some(next)) => format!("next at {next}"),
                        (false, None) => "no further tick".to_owned(),
                    };
                    output::print(&format!("{name}: {unchanged}revision {revision}, {next}\n"))?;
                }
            }
            Ok(Ending::Completed)
        }
        Ok(QueryAnswer::ScheduleDeleted { name, at }) => {
            match output {
                Output::Json => output::print_json(&json!({"deleted": name, "at": at}))?,
                Output::Text => output::print(&format!("{name}: deleted at {at}\n"))?,
            }
            Ok(Ending::Completed)
        }
        Ok(QueryAnswer::ScheduleRun { name, trace_id }) => {
            match output {
                Output::Json => output::print_json(&json!({"name": name, "trace_id": trace_id}))?,
                Output::Text => output::print(&format!("{trace_id} accepted, of {name}\n"))?,
            }
            Ok(Ending::Completed)
        }
        Ok(QueryAnswer::Schedule(shown)) => show(&shown, output),
        Err(refusal) => output::refuse(&refusal, output),
        Ok(other) => Err(client::Error::other_answer(other).into()),
    }
}

fn explain(unusable: &FileError, file: &Path, output: Output) -> anyhow::Result<Ending> {
    if output == Output::Json {
        output::print_json(&unusable.to_json(file))?;
    }
    Ok(unusable.explain_as(file, "a valid schedule"))
}

async fn list(servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    let page = |answer| {
        let QueryAnswer::Schedules { schedules, next } = answer else {
            return Err(client::Error::other_answer(answer));
        };
        Ok((schedules, next))
    };
    let asked = client.all_pages(|after, limit| Query::Schedules { after, limit }, page).await?;
    let all = match asked {
        Ok(all) => all,
        Err(refusal) => return output::refuse(&refusal, output),
    };
    if output == Output::Json {
        output::print_json(&json!(all))?;
        return Ok(Ending::Completed);
    }
    if all.is_empty() {
        output::note(
            "there are no schedules yet\n\nhint: `trellis schedules apply examples/nightly.yaml` adds one",
        );
        return Ok(Ending::Completed);
    }
    if output::is_quiet() {
        output::print_ids(all.iter().map(|one| &one.name))?;
        return Ok(Ending::Completed);
    }
    let rows: Vec<_> = all.iter().map(row).collect();
    output::print(&table::show(
        ["SCHEDULE", "CRON", "ZONE", "NEXT", "LAST", "RUNS", "SKIPPED", "MISSED"],
        &rows,
    ))?;
    Ok(Ending::Completed)
}

fn row(one: &ScheduleSummary) -> [String; 8] {
    let next = match (&one.unreadable, one.paused, one.next) {
        (Some(_), _, _) => "can't be read".to_owned(),
        (None, true, _) => "paused".to_owned(),
        (None, false, Some(next)) => match one.waits_for {
            Some(run) => format!("waits for {run}"),
            None => next.to_string(),
        },
        (None, false, None) => "none".to_owned(),
    };
    let last = one.last.as_ref().map_or_else(String::new, |last| last.outcome.words().to_owned());
    [
        one.name.to_string(),
        display::cut(&display::flat(&one.cron), 40),
        one.time_zone.clone(),
        next,
        last,
        one.runs.to_string(),
        one.skipped.to_string(),
        one.missed.to_string(),
    ]
}

fn show(shown: &ScheduleShown, output: Output) -> anyhow::Result<Ending> {
    if output == Output::Json {
        output::print_json(&json!(shown))?;
        return Ok(Ending::Completed);
    }
    let ScheduleShown { summary, schedule, changed_at, next_ticks, ticks, day, day_usd } = shown;
    let paused = if summary.paused { ", paused" } else { "" };
    let mut told = format!(
        "{}: revision {}, changed at {changed_at}{paused}\n{} in {}\n",
        summary.name, summary.revision, summary.cron, summary.time_zone
    );
    if let Some(why) = &summary.unreadable {
        told.push_str(&format!("it is not run: {why}\n"));
    }
    told.push_str(&format!("{} run, {} skipped, {} missed\n", summary.runs, summary.skipped, summary.missed));
    if let Some(day) = day {
        let budget = schedule.value().get("budget_per_day_usd").cloned();
        let budget = budget.and_then(|budget| serde_json::from_value::<Usd>(budget).ok());
        let of = budget.map_or_else(String::new, |budget| format!(" of the day's {budget}"));
        told.push_str(&format!("{day}: {day_usd}{of} used, with the limits of live runs\n"));
    }
    if let (Some(next), Some(run)) = (summary.next, summary.waits_for) {
        told.push_str(&format!("the tick of {next} waits for the run {run}, which is live\n"));
    }
    if !next_ticks.is_empty() {
        let timetable = schedule::read_timetable(&summary.cron, &summary.time_zone).ok();
        told.push_str("\nnext\n");
        for tick in next_ticks {
            told.push_str(&line(timetable.as_ref(), *tick));
        }
    }
    if !ticks.is_empty() {
        let rows: Vec<_> = ticks
            .iter()
            .map(|tick| {
                let TickRecord { at, outcome, trace_id, reason, ticks, asked, .. } = &tick.record;
                let status = tick.status.map(|status| display::plain(serde_json::to_value(status)));
                let several = ticks.map(|ticks| count(ticks, "tick"));
                let asked = asked.then(|| "asked for".to_owned());
                [
                    at.to_string(),
                    outcome.words().to_owned(),
                    trace_id.map_or_else(String::new, |id| id.to_string()),
                    status.unwrap_or_default(),
                    tick.cost_usd.map_or_else(String::new, |cost| cost.to_string()),
                    [several, asked, reason.clone()].into_iter().flatten().collect::<Vec<_>>().join("; "),
                ]
            })
            .collect();
        told.push_str(&format!("\n{}", table::show(["TICK", "WHAT", "RUN", "STATUS", "COST", ""], &rows)));
    }
    output::print(&told)?;
    Ok(Ending::Completed)
}

/// A tick in UTC and in local time.
fn line(timetable: Option<&Timetable>, tick: Timestamp) -> String {
    let local = timetable.map_or_else(String::new, |timetable| format!("  {}", timetable.local(tick)));
    format!("{tick}{local}\n")
}

fn next(
    what: &str,
    time_zone: Option<String>,
    after: Option<Timestamp>,
    count: usize,
    output: Output,
) -> anyhow::Result<Ending> {
    let path = Path::new(what);
    let is_file = what == "-"
        || path.is_file()
        || what.ends_with(".yaml")
        || what.ends_with(".json")
        || what.ends_with(".toml");
    let (timetable, until) = if is_file {
        let read = read_as_far(path).and_then(|mut document| {
            let changes = Changes { name: None, cron: None, time_zone, budget_per_day_usd: None };
            changes.apply(&mut document);
            document.checked(schedule::read(&document.value))
        });
        match read {
            Ok(readable) => (readable.timetable, readable.until),
            Err(unusable) => return explain(&unusable, path, output),
        }
    } else {
        match schedule::read_timetable(what, time_zone.as_deref().unwrap_or("UTC")) {
            Ok(timetable) => (timetable, None),
            Err(problems) => return explain(&problems.into(), path, output),
        }
    };
    let after = after.unwrap_or_else(|| Clock::Machine.now());
    let mut ticks = timetable.upcoming(after, count);
    ticks.retain(|tick| until.is_none_or(|until| *tick <= until));
    match output {
        Output::Json => {
            let told =
                ticks.iter().map(|tick| json!({"utc": tick.to_string(), "local": timetable.local(*tick)}));
            output::print_json(&told.collect())?;
        }
        Output::Text if ticks.is_empty() => output::note("there is no further tick"),
        Output::Text => {
            output::print(&ticks.iter().map(|tick| line(Some(&timetable), *tick)).collect::<String>())?;
        }
    }
    Ok(Ending::Completed)
}
