//! `trellis runs cancel --all`: cancels every live run that matches the filters, after the user has
//! seen their number.

use std::collections::BTreeMap;

use client::{Client, PAGE, TAKES_EFFECT};
use domain::{
    AgentId, Labels, TraceId,
    id::{LabelKey, LabelValue},
    wire::{ContextStatus, Refusal, RunsQuery, Text},
    wording::count,
};
use serde_json::json;
use trace::{ContextNode, Trace};

use crate::{
    input::parse,
    terminal::{
        confirm,
        ending::Ending,
        output::{self, Output},
    },
};

/// Which runs `--all` means.
#[derive(Debug, clap::Args)]
pub(crate) struct Filters {
    /// Cancel all live runs that match the filters, after a question.
    #[arg(long, conflicts_with_all = ["context", "child"], required_unless_present = "context")]
    pub(crate) all: bool,
    /// With --all: only runs with this status of the root (`submitted`, `working`, `input_required` or `paused`); may be given more
    /// than once.
    #[arg(long, value_name = "STATUS", value_parser = live, requires = "all", conflicts_with = "context")]
    status: Vec<ContextStatus>,
    /// With --all: only runs of this agent.
    #[arg(long, value_name = "ID", requires = "all", conflicts_with = "context")]
    agent: Option<AgentId>,
    /// With --all: only runs with this label; if given more than once, with all of them.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::label, requires = "all", conflicts_with = "context")]
    label: Vec<(LabelKey, LabelValue)>,
    /// Do not ask first; required with --all without a terminal.
    #[arg(long, short, requires = "all", conflicts_with = "context")]
    yes: bool,
}

/// Parses a status of a live run.
fn live(text: &str) -> Result<ContextStatus, String> {
    match parse::status(text)? {
        ContextStatus::Ended(_) => Err("a run that has ended can't be cancelled".into()),
        status @ (ContextStatus::Submitted
        | ContextStatus::Working
        | ContextStatus::InputRequired
        | ContextStatus::Paused) => Ok(status),
    }
}

pub(crate) async fn run(
    client: &Client,
    filters: Filters,
    reason: Option<Text>,
    without_undo: bool,
    output: Output,
) -> anyhow::Result<Ending> {
    let yes = filters.yes;
    let runs = match find(client, filters).await? {
        Ok(runs) => runs,
        Err(refusal) => return output::refuse(&refusal, output),
    };
    if runs.is_empty() {
        if output == Output::Json {
            output::print_json(&json!([]))?;
        }
        output::note("no live run matches");
        return Ok(Ending::Completed);
    }
    if let Some(ending) = confirm::asked(&format!("cancels {}", count(runs.len(), "run")), yes).await? {
        return Ok(ending);
    }
    for trace_id in &runs {
        client.cancel(*trace_id, None, reason.clone(), without_undo).await?;
    }
    let stopped = |trace: &Trace| {
        trace.root().is_some_and(|root: &ContextNode| !root.is_live() || (root.is_undoing() && !without_undo))
    };
    let mut taken = Vec::new();
    for trace_id in &runs {
        taken.push((trace_id, client.until(*trace_id, stopped).await?.1));
    }
    let missing = taken.iter().filter(|(_, taken)| !taken).count();
    match output {
        Output::Json => {
            let each = taken.iter().map(|(trace_id, taken)| json!({"trace_id": trace_id, "taken": taken}));
            output::print_json(&each.collect())?;
        }
        Output::Text if output::is_quiet() => output::print_ids(runs.iter())?,
        Output::Text => output::print(&format!("{} cancelled\n", count(runs.len() - missing, "run")))?,
    }
    if missing == 0 {
        return Ok(Ending::Completed);
    }
    let seconds = TAKES_EFFECT.as_secs();
    output::error(&format!(
        "{}: the cancel is stored, but did not take effect within {seconds} s",
        count(missing, "run")
    ));
    Ok(Ending::Failed)
}

/// The live runs that match the filters.
async fn find(client: &Client, filters: Filters) -> anyhow::Result<Result<Vec<TraceId>, Refusal>> {
    let Filters { status, agent, label, .. } = filters;
    let live = [
        ContextStatus::Submitted,
        ContextStatus::Working,
        ContextStatus::InputRequired,
        ContextStatus::Paused,
    ];
    let labels: BTreeMap<LabelKey, LabelValue> = label.into_iter().collect();
    let mut query = RunsQuery {
        limit: PAGE,
        labels: Labels::new(labels).map_err(anyhow::Error::msg)?,
        status: if status.is_empty() { live.to_vec() } else { status },
        agent_id: agent,
        ..RunsQuery::default()
    };
    let mut all = Vec::new();
    loop {
        let list = match client.runs(&query).await? {
            Ok(list) => list,
            Err(refusal) => return Ok(Err(refusal)),
        };
        all.extend(list.runs.iter().map(|run| run.trace_id));
        match list.next {
            Some(next) => query.after = Some(next),
            None => return Ok(Ok(all)),
        }
    }
}
