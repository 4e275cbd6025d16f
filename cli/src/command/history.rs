//! `trellis history`: shows the journal of a context, step by step. Reads it from the bus, so no
//! worker has to run.

use bus::From;
use client::Client;
use domain::{
    ChildId, Timestamp, TraceId,
    subject::{Filter, Subject},
    wire::{Copies, HistoryEntry, HistoryStep, Verdict},
};
use serde_json::json;
use text::journal_text::{self, Line};
use trace::{Difference, Statement};

use crate::{
    cluster::{
        connect::Servers,
        failure::{Unreachable, unreachable},
    },
    input::context_ref::ContextRef,
    terminal::{
        display,
        ending::Ending,
        output::{self, Output},
        screen,
    },
};

/// The characters of a text that are shown on a line.
const SHOWN: usize = 60;

const EXAMPLES: &str = "\
Examples:
  trellis history @last                     the entries of the root of the newest run
  trellis history 0af765/writer@4           entry 4 of `writer`, whole
  trellis history 0af765/writer --follow    its entries as they come, until it ends
";

/// Show an agent's journal, entry by entry, with the cost of each.
///
/// Every entry is a checkpoint: `trellis runs restore` returns to one, and `trellis submit --branch-from` begins a new run at one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    context: ContextRef,
    /// Show only this entry, in full.
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    step: Option<u32>,
    /// Show new entries until the context has ended.
    #[arg(long)]
    follow: bool,
    /// Show only the context's own cost: its entries, and costs outside of its journal.
    #[arg(long, conflicts_with_all = ["step", "follow"])]
    costs: bool,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    let (trace, child) = args.context.find(&client).await?;
    if args.follow {
        return match servers.nobody_serves(&client) {
            Some(nobody) => as_it_stands(&client, trace, &child, nobody, output).await,
            None => follow(&client, trace, &child, output).await,
        };
    }
    let entries = client.journal(trace, &child).await?;
    let statement = statement(&client, trace, &child, &entries).await;
    if args.costs {
        return costs(statement, output);
    }
    match (args.step.or(args.context.step()), output) {
        (Some(number), output) => {
            let Some(entry) = entries.iter().find(|entry| entry.number == number) else {
                let last = entries.last().map_or(0, |entry| entry.number);
                output::error(&format!(
                    "`{child}` has no entry {number}\n\nhint: its entries are 1 to {last}"
                ));
                return Ok(Ending::Refused);
            };
            match output {
                Output::Json => output::print_json(&json!(entry))?,
                Output::Text => output::print(&whole(entry))?,
            }
        }
        (None, Output::Json) => output::print_json(&json!(entries))?,
        (None, Output::Text) => {
            let sum = statement.map_or_else(|_| String::new(), |statement| sum(&statement));
            output::print(&format!("{}{sum}", all(&entries)))?;
        }
    }
    Ok(Ending::Completed)
}

/// The context's own cost, from its event log, compared with its journal (B19).
async fn statement(
    client: &Client,
    trace: TraceId,
    child: &ChildId,
    entries: &[HistoryEntry],
) -> anyhow::Result<Statement> {
    let known = client.replay(trace).await?;
    let node =
        known.context(child).ok_or_else(|| anyhow::anyhow!("the event log of {trace} has no `{child}`"))?;
    Ok(node.statement(entries))
}

fn costs(statement: anyhow::Result<Statement>, output: Output) -> anyhow::Result<Ending> {
    let statement = statement?;
    match output {
        Output::Json => output::print_json(&json!(statement))?,
        Output::Text => output::print(&sum(&statement))?,
    }
    Ok(Ending::Completed)
}

/// The lines below the steps: the differences from the journal, and the sum.
fn sum(statement: &Statement) -> String {
    let room = screen::columns_of_stdout();
    let line = |what: &str, who: &str, tokens: String, cost: String, said: &str| {
        let laid_out = format!("{:>20}  {what:<8} {who:<28} {tokens:>8} {cost:>12}", "");
        display::row(&laid_out, &[what, who, &tokens, &cost], said, room)
    };
    let mut text = String::new();
    for difference in &statement.differences {
        let Difference { call_id, why, journaled, booked } = difference;
        let who = call_id.as_ref().map_or_else(String::new, ToString::to_string);
        let (more, less) = (booked.saturating_sub(*journaled), journaled.saturating_sub(*booked));
        let signed = |more: String, less: String, falls: bool| if falls { format!("-{less}") } else { more };
        let tokens = signed(more.tokens.to_string(), less.tokens.to_string(), less.tokens.count() > 0);
        let cost = signed(more.cost_usd.to_string(), less.cost_usd.to_string(), less.cost_usd.nanos() > 0);
        text.push_str(&line("also", &display::cut(&who, 28), tokens, cost, why.describe()));
    }
    let own = statement.own;
    text.push_str(&line("total", "", own.tokens.to_string(), own.cost_usd.to_string(), "its own cost"));
    text
}

/// Prints the existing entries. Returns an error if the context is live, because no process
/// continues it.
async fn as_it_stands(
    client: &Client,
    trace: TraceId,
    child: &ChildId,
    nobody: Unreachable,
    output: Output,
) -> anyhow::Result<Ending> {
    // A context that has not started has no entries.
    let entries = client.journal_or_empty(trace, child).await?;
    let mut followed = FollowedJournal::default();
    for entry in &entries {
        followed.tell(entry, output)?;
    }
    let known = client.replay(trace).await?;
    match known.context(child) {
        Some(node) if node.is_live() => Err(nobody.into()),
        Some(_) | None => Ok(Ending::Completed),
    }
}

/// Prints a journal entry by entry.
#[derive(Default)]
struct FollowedJournal {
    first: Option<Timestamp>,
    copies: Copies,
}

impl FollowedJournal {
    fn tell(&mut self, entry: &HistoryEntry, output: Output) -> anyhow::Result<()> {
        let first = *self.first.get_or_insert(entry.at);
        let mark = if self.copies.is_copy(&entry.step) { Mark::Copied } else { Mark::None };
        match output {
            Output::Json => output::print_json_line(&json!(entry)),
            Output::Text => output::print(&line(entry, first, mark)),
        }
    }
}

/// Prints entries as they are written, until the context ends. Its journal may end without a last
/// entry.
async fn follow(client: &Client, trace: TraceId, child: &ChildId, output: Output) -> anyhow::Result<Ending> {
    let journal = Filter::JournalOf(trace, child.clone());
    let outcome = Filter::One(Subject::Outcome(trace, child.clone()));
    let told = |error| unreachable(&error);
    let mut steps = client.bus().follow(std::slice::from_ref(&journal), From::Start).await.map_err(told)?;
    let mut ends = client.bus().follow(&[outcome], From::Start).await.map_err(told)?;
    let mut followed = FollowedJournal::default();
    // The subject contains the pool. Entries under another pool's subject do not belong to this
    // journal.
    let mut writer = None;
    // The sequence of the last entry, once the context has ended.
    let mut last: Option<u64> = None;
    let mut at = 0;
    while last.is_none_or(|last| at < last) {
        let stored = tokio::select! {
            stored = steps.next() => stored.map_err(told)?,
            ended = ends.next(), if last.is_none() => {
                ended.map_err(told)?;
                last = Some(client.bus().last(&journal).await.map_err(told)?.map_or(0, |stored| stored.sequence));
                continue;
            }
        };
        at = stored.sequence;
        if *writer.get_or_insert_with(|| stored.subject.clone()) != stored.subject {
            continue;
        }
        let entry = client::entry(&stored.payload)?;
        followed.tell(&entry, output)?;
        if is_the_end(&entry.step) {
            break;
        }
    }
    Ok(Ending::Completed)
}

/// True if the agent ended with this entry. After a handover, the entry of the successor ends it.
/// Without this check, `--follow` would wait forever if the outcome expires before the journal.
fn is_the_end(step: &HistoryStep) -> bool {
    match step {
        HistoryStep::Result(result) => !matches!(result.verdict, Verdict::Waiting { .. }),
        HistoryStep::Began { .. }
        | HistoryStep::Model(_)
        | HistoryStep::Lost(_)
        | HistoryStep::Tool(_)
        | HistoryStep::Received { .. }
        | HistoryStep::Told(_)
        | HistoryStep::Rung(_)
        | HistoryStep::Checked(_)
        | HistoryStep::Restored { .. }
        | HistoryStep::Compacted { .. }
        | HistoryStep::Branched { .. } => false,
    }
}

fn all(entries: &[HistoryEntry]) -> String {
    let cells = ["STEP", "TRY", "AT", "WHAT", "MODEL OR TOOL", "TOKENS", "COST"];
    let [step, attempt, at, what, who, tokens, cost] = cells;
    let laid_out = format!("{step:>4}  {attempt:>3}  {at:>9}  {what:<8} {who:<28} {tokens:>8} {cost:>12}");
    let mut text = display::row(&laid_out, &cells, "SAID", screen::columns_of_stdout());
    let first = entries.first().map_or(Timestamp::from_millis(0), |entry| entry.at);
    let mut copies = Copies::default();
    for entry in entries {
        let is_copy = copies.is_copy(&entry.step);
        let mark = match is_taken_back(entry, entries) {
            true => Mark::TakenBack,
            false if is_copy => Mark::Copied,
            false => Mark::None,
        };
        text.push_str(&line(entry, first, mark));
    }
    text
}

/// A remark about an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    None,
    /// A later restore went back to an earlier step.
    TakenBack,
    /// The entry was copied from the context that this one branched from, which also paid for it
    /// (W5).
    Copied,
}

/// True if a later restore went back to a step before this one.
fn is_taken_back(entry: &HistoryEntry, entries: &[HistoryEntry]) -> bool {
    entries.iter().filter(|later| later.number > entry.number).any(|later| match later.step {
        HistoryStep::Restored { to, .. } => entry.number > to,
        HistoryStep::Began { .. }
        | HistoryStep::Model(_)
        | HistoryStep::Lost(_)
        | HistoryStep::Tool(_)
        | HistoryStep::Received { .. }
        | HistoryStep::Told(_)
        | HistoryStep::Rung(_)
        | HistoryStep::Checked(_)
        | HistoryStep::Branched { .. }
        | HistoryStep::Compacted { .. }
        | HistoryStep::Result(_) => false,
    })
}

/// An entry on one line.
fn line(entry: &HistoryEntry, first: Timestamp, mark: Mark) -> String {
    let Line { what, who, tokens, cost, said } = journal_text::line(&entry.step);
    let at = format!("{} ms", entry.at.millis_since(first));
    let said = display::cut(&display::flat(&said), SHOWN);
    // The cost of a copied entry was paid by another context, so it is in parentheses.
    let (said, cost) = match mark {
        Mark::None => (said, cost),
        Mark::TakenBack => (format!("(undone) {said}"), cost),
        Mark::Copied if cost.is_empty() => (format!("(copied) {said}"), cost),
        Mark::Copied => (format!("(copied) {said}"), format!("({cost})")),
    };
    let (number, attempt) = (entry.number.to_string(), entry.attempt.to_string());
    let who = display::cut(&display::flat(&who), 28);
    let laid_out = format!("{number:>4}  {attempt:>3}  {at:>9}  {what:<8} {who:<28} {tokens:>8} {cost:>12}");
    let cells = [&*number, &attempt, &at, what, &who, &tokens, &cost];
    display::row(&laid_out, &cells, &said, screen::columns_of_stdout())
}

/// An entry in full.
fn whole(entry: &HistoryEntry) -> String {
    let mut text = format!("entry {} of `{}`, attempt {}\n", entry.number, entry.child_id, entry.attempt);
    for (name, value) in journal_text::parts(&entry.step) {
        text.push_str(&format!("\n{name}\n{}\n", indented(&value)));
    }
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use domain::decode;
    use serde_json::Value;

    use super::*;

    /// proves: a worker that dies while it branches leaves an entry of its successor between the
    /// copies. That entry is not a copy.
    #[test]
    fn w5_a_copy_behind_a_crash_while_branching_is_marked_and_paid_elsewhere() {
        let of = json!({"trace_id": "0af7651916cd43dd8448eb211c80319c", "child_id": "root", "step": 2});
        let answer = |call_id: &str| {
            json!({"model": {"call_id": call_id, "model": "test/model", "max_tokens": 10,
                "cost": {"amount": {"cost_usd": "0.01", "tokens": 1}, "prices": "none"}}})
        };
        let steps = [
            json!({"branched": {"from": of, "copies": 2}}),
            answer("1-1"),
            json!({"began": {"worker_id": "second"}}),
            answer("1-2"),
            answer("2-1"),
        ];
        let entry = |(number, step): (u32, &Value)| -> HistoryEntry {
            let entry = json!({"trace_id": "0af7651916cd43dd8448eb211c80319c", "child_id": "branch", "number": number,
                "attempt": 1, "at": 0, "step": step});
            decode::value(&entry).unwrap_or_else(|problems| panic!("{problems}"))
        };
        let entries: Vec<HistoryEntry> = (1..).zip(&steps).map(entry).collect();
        let shown = all(&entries);
        let is_copy: Vec<bool> = shown.lines().skip(1).map(|line| line.contains("(copied)")).collect();
        assert_eq!(is_copy, [false, true, false, true, false], "{shown}");
    }
}
