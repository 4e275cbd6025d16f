//! `trellis events`: the event log of a run, with the time of each hop.

use client::RunMessage;
use domain::{ChildId, Timestamp, subject::Filter};
use serde_json::json;
use trace::{
    ContextNode, Event, LoggedEvents, Trace,
    account::{LogMessage, detail, kind},
};

use crate::{
    cluster::{connect::Servers, failure::unreachable},
    input::context_ref::RunRef,
    terminal::{
        display,
        ending::Ending,
        output::{self, Output},
        screen,
    },
};

/// The characters of an event that are shown on a line.
const SHOWN: usize = 120;

const EXAMPLES: &str = "\
Examples:
  trellis events 0af7…319c                      every event of the log
  trellis events 0af7…319c --context writer     those of one context
  trellis events 0af7…319c --type held --type settled --follow
  trellis events 0af7…319c -o json              the events as JSON, one on each line
";

/// Show the events of a run, with their times.
///
/// AT is the time of the decision, SINCE the time since the event before it, and STORED the time until the log had it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run: its id, a unique prefix of the id, or @last.
    trace: RunRef,
    /// Only events about this context; may be given more than once.
    #[arg(long, value_name = "CHILD")]
    context: Vec<ChildId>,
    /// Only events of this type, such as `settled`; may be given more than once.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Vec<String>,
    /// Show new events until the run has ended.
    #[arg(long)]
    follow: bool,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    let trace = args.trace.find(&client).await?;
    let told = |error| unreachable(&error);
    let mut printer = Printer { args: &args, output, last: None };
    let events = Filter::EventsOf(trace);
    if client.bus().last(&events).await.map_err(told)?.is_none() {
        return Err(client::Error::NoRun(trace).into());
    }
    printer.heading()?;
    let nobody = servers.nobody_serves(&client);
    if !args.follow || nobody.is_some() {
        for stored in client.bus().read(&events).await.map_err(told)? {
            printer.print(&client::log_message(stored)?)?;
        }
        let is_live =
            |found: Option<Trace>| found.is_some_and(|trace| trace.root().is_some_and(ContextNode::is_live));
        return match nobody {
            Some(nobody) if args.follow && is_live(client.find(trace).await?) => Err(nobody.into()),
            Some(_) | None => Ok(Ending::Completed),
        };
    }
    let filters = [events, Filter::OutcomesOf(trace)];
    let mut log = client.read_ahead(&filters).await?;
    loop {
        match log.next().await? {
            RunMessage::Events(message) => printer.print(&message)?,
            // The outcome of the root is stored after all its events.
            RunMessage::Outcome(outcome) if outcome.context.parent_id.is_none() => {
                return Ok(Ending::Completed);
            }
            RunMessage::Outcome(_) => {}
        }
    }
}

struct Printer<'a> {
    args: &'a Args,
    output: Output,
    /// The time of the previous event.
    last: Option<Timestamp>,
}

/// An event on one line, or on two if the terminal is narrow.
fn row(cells: [&str; 7], said: &str) -> String {
    let [sequence, version, at, since, stored, child, kind] = cells;
    let laid_out =
        format!("{sequence:>8}  {version:>6}  {at:<20}  {since:>9}  {stored:>8}  {child:<20}  {kind:<16}");
    // On two lines, the version, STORED and SINCE are left out.
    display::row(&laid_out, &[sequence, at, child, kind], said, screen::columns_of_stdout())
}

impl Printer<'_> {
    fn heading(&self) -> anyhow::Result<()> {
        match self.output {
            Output::Json => Ok(()),
            Output::Text => {
                let cells = ["SEQUENCE", "EVENT", "AT", "SINCE", "STORED", "CONTEXT", "TYPE"];
                output::print(&row(cells, "DETAIL"))
            }
        }
    }

    fn print(&mut self, message: &LogMessage) -> anyhow::Result<()> {
        let LogMessage { sequence, id, stored_at, logged } = message;
        for (version, event) in (logged.version..).zip(&logged.events) {
            let since = self.last.map_or(0, |last| logged.at.millis_since(last));
            self.last = Some(logged.at);
            if !self.is_wanted(logged, event) {
                continue;
            }
            match self.output {
                Output::Json => output::print_json_line(&json!({
                    "sequence": sequence, "message_id": id, "stored_at": stored_at, "event": version,
                    "at": logged.at, "since_ms": since, "child_id": logged.child_id, "commit": logged.commit(),
                    "body": event,
                }))?,
                Output::Text => {
                    let stored = format!("+{} ms", stored_at.millis_since(logged.at));
                    let (since, child) = (format!("{since} ms"), display::cut(logged.child_id.as_str(), 20));
                    let said = display::cut(&display::flat(&detail(event)), SHOWN);
                    let (sequence, version, at) =
                        (sequence.to_string(), version.to_string(), logged.at.to_string());
                    let cells = [&*sequence, &version, &at, &since, &stored, &child, &kind(event)];
                    output::print(&row(cells, &said))?;
                }
            }
        }
        Ok(())
    }

    fn is_wanted(&self, logged: &LoggedEvents, event: &Event) -> bool {
        let Args { context, kind: kinds, .. } = self.args;
        let about = event.child_id().unwrap_or(&logged.child_id);
        (context.is_empty() || context.contains(about)) && (kinds.is_empty() || kinds.contains(&kind(event)))
    }
}
