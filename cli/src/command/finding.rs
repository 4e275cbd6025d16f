//! `trellis runs list` and `trellis runs pending`: finds runs and open questions (G17). A
//! coordinator answers both from the store's index.

use std::collections::BTreeMap;

use client::{Client, RunList};
use domain::{
    AgentId, Labels, ThreadId, Timestamp, Usd,
    id::{LabelKey, LabelValue},
    wire::{
        ContextStatus, PendingQuery, PendingQuestion, Query, QueryAnswer, RunSummary, RunsCursor, RunsQuery,
        Text,
    },
    wording::count,
};
use host::clock::Clock;
use serde_json::json;
use text::human_time;

use crate::{
    input::parse,
    terminal::{
        display,
        ending::Ending,
        output::{self, Output},
        questions::{example, expected},
        screen, table, tree,
    },
};

pub(crate) const EXAMPLES: &str = "\
Examples:
  trellis runs list --status failed --since 2h
  trellis runs list --label env=prod --label team=search --min-cost-usd 0.50
  trellis runs list --waiting                     runs that wait for a human
  trellis runs list --limit 100 -o json | jq -r '.runs[].trace_id'
";

/// The filters of a list of runs: a run matches all of them.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// The number of runs: 1 to 500.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Continue after this cursor, which is `next` of the page before.
    ///
    /// It is `<started_at>-<trace_id>` of the last run of that page.
    #[arg(long, value_name = "PLACE")]
    after: Option<RunsCursor>,
    /// Only runs with this label; if given more than once, with all of them.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::label)]
    label: Vec<(LabelKey, LabelValue)>,
    /// Only runs with this thread.
    #[arg(long, value_name = "ID")]
    thread: Option<ThreadId>,
    /// Only runs with this status of the root; if given more than once, with one of them.
    #[arg(long, value_name = "STATUS", value_parser = parse::status)]
    status: Vec<ContextStatus>,
    /// Only runs of this agent.
    #[arg(long, value_name = "ID")]
    agent: Option<AgentId>,
    /// Only runs that wait for a human.
    #[arg(long)]
    waiting: bool,
    /// Only runs that have spent at least this.
    #[arg(long, value_name = "USD", value_parser = parse::usd)]
    min_cost_usd: Option<Usd>,
    /// Only runs that have spent at most this.
    #[arg(long, value_name = "USD", value_parser = parse::usd)]
    max_cost_usd: Option<Usd>,
    /// Only runs submitted since this time: 2h ago, or a date such as 2026-11-01 or 2026-11-01T08:00Z.
    #[arg(long, value_name = "TIME", value_parser = parse::moment)]
    since: Option<Timestamp>,
    /// Only runs submitted before this time.
    #[arg(long, value_name = "TIME", value_parser = parse::moment)]
    until: Option<Timestamp>,
    /// Do not shorten rows to the width of the terminal.
    #[arg(long)]
    no_trunc: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PendingArgs {
    /// The number of runs whose questions are listed: 1 to 100.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    /// Continue after this cursor, which is `next` of the page before.
    #[arg(long, value_name = "PLACE")]
    after: Option<RunsCursor>,
}

pub(crate) async fn list(client: &Client, args: ListArgs, output: Output) -> anyhow::Result<Ending> {
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
    match client.runs(&query).await? {
        Ok(RunList { runs, next, unfiltered }) => {
            if output == Output::Json {
                output::print_json(&json!({"runs": runs, "next": next}))?;
            } else if runs.is_empty() && next.is_none() {
                output::note(&none(args.after, unfiltered));
            } else if output::is_quiet() {
                output::print_ids(runs.iter().map(|run| run.trace_id))?;
            } else {
                output::print(&rows(&runs, Clock::Machine.now(), args.no_trunc))?;
            }
            more(next);
            Ok(Ending::Completed)
        }
        Err(refusal) => output::refuse(&refusal, output),
    }
}

pub(crate) async fn pending(client: &Client, args: PendingArgs, output: Output) -> anyhow::Result<Ending> {
    let query = PendingQuery { limit: args.limit, after: args.after };
    match client.query(&Query::Pending(query)).await? {
        Ok(QueryAnswer::Pending { questions, next, left_out }) => {
            if output == Output::Json {
                output::print_json(&json!({"questions": questions, "next": next, "left_out": left_out}))?;
            } else if questions.is_empty() && next.is_none() {
                output::note("no question is open");
            } else if output::is_quiet() {
                let of =
                    |one: &PendingQuestion| format!("{}/{}", one.question.trace_id, one.question.child_id);
                output::print_ids(questions.iter().map(of))?;
            } else {
                output::print(&questions.iter().map(asked).collect::<Vec<_>>().join("\n"))?;
            }
            if left_out > 0 {
                output::note(&format!(
                    "{}: `trellis runs show TRACE` shows all questions of a run",
                    count(left_out, "more question")
                ));
            }
            more(next);
            Ok(Ending::Completed)
        }
        Err(refusal) => output::refuse(&refusal, output),
        Ok(other) => Err(client::Error::other_answer(other).into()),
    }
}

fn more(next: Option<RunsCursor>) {
    if let Some(next) = next {
        output::note(&format!("there is more: add --after {next}"));
    }
}

/// The message for an empty list.
fn none(after: Option<RunsCursor>, unfiltered: Option<u64>) -> String {
    match (after, unfiltered) {
        (Some(_), _) => "no more runs".into(),
        (None, Some(count @ 1..)) => format!("no run matches; without filters there are {count}"),
        (None, Some(0) | None) => "there are no runs yet\n\nhint: `trellis submit` starts one".into(),
    }
}

/// The digits of a run's id on a terminal: enough to name it. More are shown if the listed runs
/// need them to differ.
const DIGITS: usize = 12;

fn rows(runs: &[RunSummary], now: Timestamp, no_trunc: bool) -> String {
    let digits = if no_trunc || screen::of_stdout().is_none() { usize::MAX } else { digits(runs) };
    let row = |run: &RunSummary| {
        let status = display::plain(serde_json::to_value(run.status));
        let took = match run.ended_at {
            Some(end) => human_time::lasts(end.millis_since(run.started_at)),
            None => format!("{} so far", human_time::age(now.millis_since(run.started_at))),
        };
        let labels: Vec<String> = run.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        // A root without a name is called `root`; the name of its agent is more useful.
        let agent = run.agent_id.as_ref().filter(|_| run.child_id.as_str() == "root");
        let name = agent.map_or(run.child_id.as_str(), AgentId::as_str);
        let goal = run.goal.as_ref().map_or("", Text::as_str);
        [
            human_time::ago(now, run.started_at),
            took,
            if run.waiting_for_human { format!("{status} (waits for a human)") } else { status },
            name.to_owned(),
            labels.join(" "),
            tree::money(&run.budget),
            run.trace_id.to_string().chars().take(digits).collect(),
            display::flat(goal),
        ]
    };
    let rows: Vec<[String; 8]> = runs.iter().map(row).collect();
    if runs.iter().any(|run| !run.labels.is_empty()) {
        let heading = ["STARTED", "TOOK", "STATUS", "NAME", "LABELS", "COST", "TRACE", "GOAL"];
        return if no_trunc { table::whole(heading, &rows) } else { table::show(heading, &rows) };
    }
    let without = |[started, took, status, name, _, cost, trace, goal]: [String; 8]| {
        [started, took, status, name, cost, trace, goal]
    };
    let rows: Vec<[String; 7]> = rows.into_iter().map(without).collect();
    let heading = ["STARTED", "TOOK", "STATUS", "NAME", "COST", "TRACE", "GOAL"];
    if no_trunc { table::whole(heading, &rows) } else { table::show(heading, &rows) }
}

/// The number of digits that distinguish these runs.
fn digits(runs: &[RunSummary]) -> usize {
    let mut ids: Vec<String> = runs.iter().map(|run| run.trace_id.to_string()).collect();
    ids.sort();
    let same = |pair: &[String]| {
        pair[0].bytes().zip(pair[1].bytes()).take_while(|(one, other)| one == other).count()
    };
    ids.windows(2).map(|pair| same(pair) + 1).max().unwrap_or(0).max(DIGITS)
}

fn asked(pending: &PendingQuestion) -> String {
    let PendingQuestion { question, age_ms, .. } = pending;
    let path: Vec<&str> = question.path.iter().map(|child| child.as_str()).collect();
    let mut lines = format!(
        "{}/{}  question {}, for {}\n  asked by {}\n",
        question.trace_id,
        question.child_id,
        question.number,
        human_time::age(*age_ms),
        path.join(" > ")
    );
    for line in question.question.as_str().lines() {
        lines.push_str(&format!("  | {}\n", display::printable(line)));
    }
    lines.push_str(&expected(question));
    let example = example(&question.form);
    lines.push_str(&format!("  trellis answer {}/{} {example}\n", question.trace_id, question.child_id));
    lines
}
