//! `trellis admin-log`: the requests of administrators, each with its sender (S7).

use bus::{StoredMessage, keys::Keys};
use client::Client;
use domain::{subject::Filter, wire::AdminRecord, wording::count};
use serde_json::json;

use crate::{
    cluster::{connect::Servers, failure::unreachable},
    input::log_keys::LogKeys,
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
        table,
    },
};

/// The digits of a request's digest in the table.
const DIGITS: usize = 12;

/// List the changes of administrators, with their senders.
///
/// They are changes of agents, schedules, stored graphs and policies, and drains of workers, the oldest first. A policy of the
/// coordinators is recorded when a coordinator starts with another one, that of a pool when its first worker claims with it. Raises,
/// charges, deletes and restores are events of their run: `trellis events RUN`. A name with `(claimed)` is the sender's own statement.
/// A record is stored before its request is decided, so refused requests are listed too: `trellis agents`, `schedules`, `graphs` and
/// `workers` show the current state. CONTENT is the prefix of the SHA-256 of the request. With the key of the deployment, only records
/// that coordinators signed are shown, and the others are counted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    keys: LogKeys,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let keys = match args.keys.read() {
        Ok(keys) => keys,
        Err(ending) => return Ok(ending),
    };
    let client = servers.cluster().await?;
    let Log { records, unreadable, refused } = read(&client, keys.as_ref()).await?;
    if unreadable > 0 {
        let messages = count(unreadable, "message");
        output::note(&format!("left out, because they are not records: {messages}"));
    }
    match refused {
        None => output::note(
            "the records were not verified: --log-key-file verifies them and leaves out unsigned ones",
        ),
        Some(0) => {}
        Some(refused) => {
            let messages = count(refused, "message");
            output::note(&format!("left out, because no coordinator signed them: {messages}"));
        }
    }
    if output == Output::Json {
        output::print_json(&json!(records))?;
        return Ok(Ending::Completed);
    }
    if records.is_empty() {
        output::note("there are no records; they are stored as long as events");
        return Ok(Ending::Completed);
    }
    let row = |record: &AdminRecord| {
        let by = record.by.as_ref().map_or_else(|| "unknown".into(), ToString::to_string);
        let content = record.digest.as_ref().and_then(|digest| digest.get(..DIGITS)).unwrap_or("-");
        [record.at.to_string(), record.asked.clone(), record.names.join(" "), content.to_owned(), by]
    };
    let rows: Vec<_> = records.iter().map(row).collect();
    output::print(&table::show(["AT", "ASKED", "NAMES", "CONTENT", "BY"], &rows))?;
    Ok(Ending::Completed)
}

/// The content of the log.
struct Log {
    records: Vec<AdminRecord>,
    /// The number of messages that can't be decoded as records.
    unreadable: usize,
    /// The number of messages without a valid signature, if a key is configured.
    refused: Option<u64>,
}

async fn read(client: &Client, keys: Option<&Keys>) -> anyhow::Result<Log> {
    let bus = client.bus().clone();
    let bus = keys.map_or_else(|| bus.clone(), |keys| bus.clone().with_keys(keys.clone()));
    let stored = bus.read(&Filter::Audits).await.map_err(|error| unreachable(&error))?;
    let record = |stored: &StoredMessage| serde_json::from_slice(&stored.payload).ok();
    let records: Vec<AdminRecord> = stored.iter().filter_map(record).collect();
    Ok(Log { unreadable: stored.len() - records.len(), records, refused: keys.map(Keys::refused) })
}
