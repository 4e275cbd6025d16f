//! `trellis admin-log`: what administrators asked for, and who they were (S7).

use serde_json::json;
use shared::{subject::Filter, wire::AdminRecord};

use crate::{
    cluster::connect::{Servers, unreachable},
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
        table,
    },
};

/// Show who changed agents, schedules and kept graphs, and drained workers, the oldest first, and when policies changed.
///
/// A policy of the coordinators is told when one starts with another, that of the workers of a pool when the first claims with it.
/// Who raised, charged, deleted or restored something in a run is in its events: `trellis events RUN`. A name with `(claimed)` is what
/// the sender said of itself.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {}

pub(crate) async fn run(Args {}: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let bus = servers.cluster().await?;
    let stored = bus.read(&Filter::Audits).await.map_err(|error| unreachable(&error))?;
    let records = stored.iter().map(|stored| serde_json::from_slice(&stored.payload));
    let records: Vec<AdminRecord> = records.collect::<Result<_, _>>()?;
    if output == Output::Json {
        output::print_json(&json!(records))?;
        return Ok(Ending::Completed);
    }
    if records.is_empty() {
        output::note("no administrator has asked for anything yet; records are kept as long as events");
        return Ok(Ending::Completed);
    }
    let row = |record: &AdminRecord| {
        let by = record.by.as_ref().map_or_else(|| "unknown".into(), ToString::to_string);
        [record.at.to_string(), record.asked.clone(), record.names.join(" "), by]
    };
    let rows: Vec<_> = records.iter().map(row).collect();
    output::print(&table::show(["AT", "ASKED", "NAMES", "BY"], &rows))?;
    Ok(Ending::Completed)
}
