//! `trellis audit`: proves the cost of a run from its event log, against the store and the
//! journals.

use std::time::Duration;

use bus::keys::{ForgedMessage, Keys};
use client::{Client, TAKES_EFFECT};
use domain::{
    TraceId,
    wire::{Query, QueryAnswer},
    wording::count,
};
use serde_json::json;
use tokio::time::{Instant, sleep};
use trace::account::{Audit, BookingReason, Check, Finding, Journals, Ledger, Posting, ReadLog, StoreState};

use crate::{
    cluster::{
        connect::Servers,
        failure::{self, Denied, Unreachable},
    },
    input::{context_ref::RunRef, log_keys::LogKeys},
    terminal::{
        display,
        ending::Ending,
        output::{self, Output},
        table,
    },
};

/// The pause before the log and the store are read again.
const PAUSE: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  trellis audit 0af7…319c             every booking with its event, and what was proved
  trellis audit 0af7…319c --brief     only what was proved
  trellis audit 0af7…319c -o json     for programs

Exit codes: 0 everything agrees, 1 something does not, 2 wrong usage or a log that can't be read, 3 refused by a server's permissions, 5 cannot connect.
";

/// Prove the cost of a run against its log, the store and the journals.
///
/// The audit has four parts. log: it has every event once. books: an event booked every cent, and the sums agree from each context up
/// to the root. store: the coordinators' store has the state of the log. journal: the entries of the agents and the bookings agree.
/// With the key of the deployment, only signed messages of the log are valid. The audit changes nothing and calls no model.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run: its id, a unique prefix of the id, or @last.
    trace: RunRef,
    /// Do not list the bookings.
    #[arg(long)]
    brief: bool,
    #[command(flatten)]
    keys: LogKeys,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let keys = match args.keys.read() {
        Ok(keys) => keys,
        Err(ending) => return Ok(ending),
    };
    let client = servers.cluster().await?;
    let trace = args.trace.find(&client).await?;
    let audited = audit(&client, trace, keys.as_ref()).await?;
    match output {
        Output::Json => output::print_json(&audited.to_json())?,
        Output::Text => {
            if !args.brief {
                output::print(&bookings(&audited.ledger.postings))?;
            }
            output::print(&audited.shown(trace))?;
        }
    }
    for Finding { check, child_id, sequence, message } in &audited.audit.findings {
        let check = display::plain(serde_json::to_value(check));
        let context = child_id.as_ref().map_or_else(String::new, |child| format!(" `{child}`:"));
        let place = sequence.map_or_else(String::new, |sequence| format!(" (message {sequence} of the log)"));
        output::error(&format!("{check}:{context} {message}{place}"));
    }
    Ok(if audited.audit.is_sound() { Ending::Completed } else { Ending::Failed })
}

/// An audit with the data that it is based on.
struct AuditedRun {
    log: ReadLog,
    ledger: Ledger,
    journals: Journals,
    store: StoredState,
    audit: Audit,
    /// The number of messages without a valid signature, if a key is configured.
    refused: Option<usize>,
}

/// The coordinators' state of the run.
enum StoredState {
    There(StoreState),
    Gone,
    /// No coordinator answered, or the query was refused. The text is the reason.
    Unknown(String),
}

impl StoredState {
    fn state(&self) -> Option<&StoreState> {
        if let StoredState::There(state) = self { Some(state) } else { None }
    }
}

/// Audits a run. The log is written after the store, so a difference is only reported if it is
/// still there after `TAKES_EFFECT`.
async fn audit(client: &Client, trace: TraceId, keys: Option<&Keys>) -> anyhow::Result<AuditedRun> {
    let started = Instant::now();
    let mut not_authentic: Vec<ForgedMessage> = Vec::new();
    loop {
        let store = stored(client, trace).await?;
        let journals = client.journals(trace).await?;
        let (log, refused) = match keys {
            Some(keys) => client.authentic_log(trace, keys).await?,
            None => (client.log(trace).await?, Vec::new()),
        };
        let ledger = Ledger::of(&log);
        let mut audit = Audit::of(&log, &ledger, &journals, store.state());
        // Each message is reported once, although the log may be read several times.
        not_authentic.extend(refused);
        let findings = not_authentic.iter().map(|ForgedMessage { number, why, .. }| Finding {
            sequence: Some(*number),
            check: Check::Log,
            child_id: None,
            message: format!("a message is not authentic and is left out: {why}"),
        });
        audit.findings.extend(findings);
        let refused = keys.map(|_| not_authentic.len());
        let is_live = log.trace().root().is_none_or(|root| root.is_live() || root.lifecycle.outcome_due);
        let differs = store.state().is_some_and(|state| state.version != log.trace().version());
        let unsure = differs || is_live && !audit.is_sound();
        if !unsure || started.elapsed() >= TAKES_EFFECT {
            return Ok(AuditedRun { log, ledger, journals, store, audit, refused });
        }
        sleep(PAUSE).await;
    }
}

async fn stored(client: &Client, trace_id: TraceId) -> anyhow::Result<StoredState> {
    let answer = match client.query(&Query::Snapshot { trace_id }).await.map_err(failure::explained) {
        Ok(answer) => answer,
        // The rest of the audit needs no coordinator.
        Err(error) if error.is::<Unreachable>() || error.is::<Denied>() => {
            let why = error.to_string();
            return Ok(StoredState::Unknown(why.lines().next().unwrap_or_default().to_owned()));
        }
        Err(error) => return Err(error),
    };
    Ok(match answer {
        Ok(QueryAnswer::Snapshot { state: Some(state) }) => StoredState::There(StoreState {
            version: state.version,
            digest: state.digest,
            spent: state.budget.spent,
        }),
        Ok(QueryAnswer::Snapshot { state: None }) => StoredState::Gone,
        Ok(answer) => return Err(client::Error::other_answer(answer).into()),
        Err(refusal) => StoredState::Unknown(refusal.message),
    })
}

impl AuditedRun {
    fn is_live(&self) -> bool {
        self.log.trace().root().is_none_or(|root| root.is_live() || root.lifecycle.outcome_due)
    }

    fn shown(&self, trace: TraceId) -> String {
        let Audit { notes, agreed, unjournaled, without_journal, .. } = &self.audit;
        let known = self.log.trace();
        let spent = known.root().map_or(domain::Amount::ZERO, |root| root.budget.spent);
        let (from, to) = self.log.sequences().unwrap_or_default();
        let (events, messages) =
            (count(known.version(), "event"), count(self.log.message_count(), "message"));
        let signed = match self.refused {
            None => String::new(),
            Some(0) => ", all signed".to_owned(),
            Some(refused) => format!(", {refused} more not authentic"),
        };
        let log = format!("{events} in {messages}, {from} to {to}{signed}");
        let (contexts, bookings) =
            (count(known.contexts().len(), "context"), count(self.ledger.postings.len(), "booking"));
        let books = format!("{contexts}; {spent}, by {bookings}");
        let store = match &self.store {
            StoredState::There(state) => format!("version {}, state {}", state.version, state.digest),
            StoredState::Gone => "the run is no longer stored: proved from the log alone".into(),
            StoredState::Unknown(why) => format!("not compared: {why}"),
        };
        let entries = if *agreed == 1 { "entry" } else { "entries" };
        let mut journal = format!("{agreed} paid {entries} of {}", count(self.journals.len(), "journal"));
        if *unjournaled > 0 {
            journal.push_str(&format!("; {} outside of any journal", count(*unjournaled, "booking")));
        }
        if *without_journal > 0 {
            let contexts = count(*without_journal, "context");
            journal.push_str(&format!("; no journal of {contexts} with costs"));
        }
        let parts = [
            (Check::Log, "log", log),
            (Check::Books, "books", books),
            (Check::Store, "store", store),
            (Check::Journal, "journal", journal),
        ];
        let mut text = String::new();
        for (check, name, said) in parts {
            let faults = self.audit.of_check(check).count();
            let verdict = if faults == 0 { "ok".to_owned() } else { format!("{faults} wrong") };
            text.push_str(&format!("{name:<8} {verdict:<8} {said}\n"));
        }
        notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
        let verdict = match (&self.store, self.audit.is_sound()) {
            (_, false) => "a part does not agree",
            (StoredState::Unknown(_), true) => "everything agrees, without the store",
            (StoredState::There(_) | StoredState::Gone, true) => "everything agrees",
        };
        let so_far = if self.is_live() { ", so far: the run is not over" } else { "" };
        text.push_str(&format!("audit of {trace}: {verdict}{so_far}\n"));
        text
    }

    fn to_json(&self) -> serde_json::Value {
        let Audit { findings, notes, agreed, unjournaled, without_journal } = &self.audit;
        let store = match &self.store {
            StoredState::There(state) => json!({"version": state.version, "digest": state.digest}),
            StoredState::Gone => json!("gone"),
            StoredState::Unknown(why) => json!({"unknown": why}),
        };
        let known = self.log.trace();
        json!({
            "trace_id": known.id(), "sound": self.audit.is_sound(), "so_far": self.is_live(),
            "version": known.version(), "digest": known.digest(), "store": store,
            "spent": known.root().map(|root| root.budget.spent), "findings": findings, "notes": notes,
            "journal": {"agreed": agreed, "unjournaled": unjournaled, "without_journal": without_journal},
            "bookings": self.ledger.postings, "not_authentic": self.refused,
        })
    }
}

/// Every booking with its event and the running sum.
fn bookings(postings: &[Posting]) -> String {
    let mut total = domain::Amount::ZERO;
    let rows: Vec<[String; 9]> = postings
        .iter()
        .map(|posting| {
            let sum = total.checked_add(posting.booked).unwrap_or(total);
            total = sum.saturating_sub(posting.before);
            let Posting { place, child_id, why, call_id, booked, before, .. } = posting;
            [
                place.sequence.to_string(),
                place.event.to_string(),
                place.message_id.clone().unwrap_or_default(),
                place.at.to_string(),
                child_id.to_string(),
                word(*why).to_owned(),
                call_id.as_ref().map_or_else(String::new, ToString::to_string),
                display::change(booked.cost_usd, before.cost_usd),
                total.cost_usd.to_string(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return "nothing was booked\n\n".into();
    }
    let heading = ["SEQUENCE", "EVENT", "MESSAGE", "AT", "CONTEXT", "BOOKED AS", "CALL", "COST", "TOTAL"];
    format!("{}\n", table::show(heading, &rows))
}

/// The kind of a booking in words.
pub(crate) fn word(why: BookingReason) -> &'static str {
    match why {
        BookingReason::Carried => "carried over",
        BookingReason::Settled => "settled",
        BookingReason::Estimated => "estimated",
        BookingReason::Corrected => "corrected",
        BookingReason::Charged => "charged",
        BookingReason::Accepted => "accepted",
    }
}
