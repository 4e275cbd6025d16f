//! `trellis runs list` and `trellis runs pending`: finds runs and open questions (G17). A coordinator answers both from
//! the store's index.

use std::collections::BTreeMap;

use serde_json::json;
use shared::{
    AgentId, Labels, ThreadId, Timestamp, Usd,
    bus::Bus,
    id::{LabelKey, LabelValue},
    text::count,
    wire::{
        ContextStatus, PendingQuery, PendingQuestion, Query, QueryAnswer, RunSummary, RunsCursor, RunsQuery,
        Text,
    },
};

use crate::{
    cluster::client,
    input::parse,
    terminal::{
        ending::Ending,
        output::{self, Output},
        questions::{example, expected},
        table, text, tree,
    },
};

pub(crate) const EXAMPLES: &str = "\
Examples:
  trellis runs list --status failed --since 2h
  trellis runs list --label env=prod --label team=search --min-cost-usd 0.50
  trellis runs list --waiting                     runs that wait for a human
  trellis runs list --limit 100 -o json | jq -r '.[].trace_id'
";

/// Which runs to list: those that fit everything that is given.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// The most runs to list: 1 to 500.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Continue behind this place of the list, as the page before names it: `<started_at>-<trace_id>` of its last run.
    #[arg(long, value_name = "PLACE")]
    after: Option<RunsCursor>,
    /// Only runs with this label; may be given more than once: a run has all of them.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::label)]
    label: Vec<(LabelKey, LabelValue)>,
    /// Only runs with this thread.
    #[arg(long, value_name = "ID")]
    thread: Option<ThreadId>,
    /// Only runs whose root has this status; may be given more than once: one of them.
    #[arg(long, value_name = "STATUS", value_parser = parse::status)]
    status: Vec<ContextStatus>,
    /// Only runs of this agent.
    #[arg(long, value_name = "ID")]
    agent: Option<AgentId>,
    /// Only runs in which something waits for a human.
    #[arg(long)]
    waiting: bool,
    /// Only runs that have spent at least this.
    #[arg(long, value_name = "USD", value_parser = parse::usd)]
    min_cost_usd: Option<Usd>,
    /// Only runs that have spent at most this.
    #[arg(long, value_name = "USD", value_parser = parse::usd)]
    max_cost_usd: Option<Usd>,
    /// Only runs submitted since then: a time before now such as 2h, or a date such as 2026-11-01 or 2026-11-01T08:00Z.
    #[arg(long, value_name = "TIME", value_parser = parse::moment)]
    since: Option<Timestamp>,
    /// Only runs submitted before then.
    #[arg(long, value_name = "TIME", value_parser = parse::moment)]
    until: Option<Timestamp>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PendingArgs {
    /// The most runs whose questions are listed: 1 to 100.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    /// Continue behind this place of the list, as the page before names it.
    #[arg(long, value_name = "PLACE")]
    after: Option<RunsCursor>,
}

pub(crate) async fn list(bus: &Bus, args: ListArgs, output: Output) -> anyhow::Result<Ending> {
    let labels: BTreeMap<LabelKey, LabelValue> = args.label.into_iter().collect();
    let query = RunsQuery {
        limit: args.limit,
        after: args.after,
        labels: Labels::new(labels).map_err(anyhow::Error::msg)?,
        thread_id: args.thread,
        status: args.status,
        agent_id: args.agent,
        waiting_for_human: args.waiting.then_some(true),
        min_cost_usd: args.min_cost_usd,
        max_cost_usd: args.max_cost_usd,
        since: args.since,
        until: args.until,
        prefix: None,
    };
    match client::query(bus, &Query::Runs(Box::new(query.clone()))).await?.or_refusal() {
        Ok(QueryAnswer::Runs { mut runs, next, unfiltered }) => {
            // A coordinator of an earlier version knows no filters.
            runs.retain(|run| query.matches(run));
            if output == Output::Json {
                output::print_json(&json!(runs))?;
            } else if runs.is_empty() && next.is_none() {
                output::note(&none(args.after, unfiltered));
            } else {
                output::print(&rows(&runs))?;
            }
            more(next);
            Ok(Ending::Completed)
        }
        Err(refusal) => output::refuse(&refusal, output),
        Ok(other) => Err(client::unexpected(&other)),
    }
}

pub(crate) async fn pending(bus: &Bus, args: PendingArgs, output: Output) -> anyhow::Result<Ending> {
    let query = PendingQuery { limit: args.limit, after: args.after };
    match client::query(bus, &Query::Pending(query)).await?.or_refusal() {
        Ok(QueryAnswer::Pending { questions, next, left_out }) => {
            if output == Output::Json {
                output::print_json(&json!(questions))?;
            } else if questions.is_empty() && next.is_none() {
                output::note("no question is open");
            } else {
                output::print(&questions.iter().map(asked).collect::<Vec<_>>().join("\n"))?;
            }
            if left_out > 0 {
                output::note(&format!(
                    "{}: `trellis runs describe TRACE` shows all of a run",
                    count(left_out, "more question")
                ));
            }
            more(next);
            Ok(Ending::Completed)
        }
        Err(refusal) => output::refuse(&refusal, output),
        Ok(other) => Err(client::unexpected(&other)),
    }
}

fn more(next: Option<RunsCursor>) {
    if let Some(next) = next {
        output::note(&format!("there is more: add --after {next}"));
    }
}

/// Why nothing is listed.
fn none(after: Option<RunsCursor>, unfiltered: Option<u64>) -> String {
    match (after, unfiltered) {
        (Some(_), _) => "no more runs".into(),
        (None, Some(count @ 1..)) => format!("no run matches; without filters there are {count}"),
        (None, Some(0) | None) => "there are no runs yet\n\nhint: `trellis submit` starts one".into(),
    }
}

fn rows(runs: &[RunSummary]) -> String {
    let row = |run: &RunSummary| {
        let what = run.goal.as_ref().map_or(run.child_id.as_str(), Text::as_str);
        let status = text::plain(serde_json::to_value(run.status));
        let took = |end: Timestamp| format!("{} ms", end.millis_since(run.started_at));
        let labels: Vec<String> = run.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        [
            run.trace_id.to_string(),
            if run.waiting_for_human { format!("{status} (waits for a human)") } else { status },
            tree::money(&run.budget),
            run.ended_at.map_or_else(String::new, took),
            labels.join(" "),
            text::cut(&text::flat(what), 60),
        ]
    };
    let rows: Vec<[String; 6]> = runs.iter().map(row).collect();
    if runs.iter().any(|run| !run.labels.is_empty()) {
        return table::show(["TRACE", "STATUS", "SPENT", "TOOK", "LABELS", "GOAL"], &rows);
    }
    let without = |[trace, status, spent, took, _, goal]: [String; 6]| [trace, status, spent, took, goal];
    let rows: Vec<[String; 5]> = rows.into_iter().map(without).collect();
    table::show(["TRACE", "STATUS", "SPENT", "TOOK", "GOAL"], &rows)
}

fn asked(pending: &PendingQuestion) -> String {
    let PendingQuestion { question, age_ms, .. } = pending;
    let path: Vec<&str> = question.path.iter().map(|child| child.as_str()).collect();
    let mut lines = format!(
        "{}/{}  question {}, for {}\n  asked by {}\n",
        question.trace_id,
        question.child_id,
        question.number,
        age(*age_ms),
        path.join(" > ")
    );
    for line in question.question.as_str().lines() {
        lines.push_str(&format!("  | {}\n", text::printable(line)));
    }
    lines.push_str(&expected(question));
    let example = example(&question.form);
    lines.push_str(&format!("  trellis answer {}/{} {example}\n", question.trace_id, question.child_id));
    lines
}

/// In the two largest units.
fn age(millis: u64) -> String {
    let seconds = millis / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g17_an_age_has_its_two_largest_units() {
        for (millis, shown) in
            [(900, "0 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min"), (176_400_000, "2 d 1 h")]
        {
            assert_eq!(age(millis), shown);
        }
    }
}
