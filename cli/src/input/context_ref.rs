//! Names of runs, contexts and steps on the command line, the same in every command: `TRACE`,
//! `TRACE/CHILD`, `TRACE/CHILD@STEP`. A run is named by its id, by a unique prefix of the id, or by
//! `@last`.

use std::str::FromStr;

use anyhow::{Context, bail};
use client::Client;
use domain::{
    ChildId, TraceId,
    wire::{Checkpoint, RunSummary, RunsQuery, TracePrefix},
};
use trace::Trace;

use crate::terminal::display;

/// The most runs that are listed if a prefix matches several.
const LISTED: u32 = 5;
/// The name of the root context, independent of its id.
const ROOT: &str = "root";

/// A run, as users name it.
#[derive(Debug, Clone)]
pub(crate) enum RunRef {
    Id(TraceId),
    Prefix(TracePrefix),
    /// The newest run of the namespace.
    Last,
}

impl FromStr for RunRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "@last" {
            return Ok(RunRef::Last);
        }
        if let Ok(id) = text.parse() {
            return Ok(RunRef::Id(id));
        }
        text.parse().map(RunRef::Prefix).map_err(|_| match text.split_once('/') {
            Some((run, _)) if run.parse::<RunRef>().is_ok() => {
                format!("{text:?} is a context, and this command takes a whole run: give {run}")
            }
            _ => format!("{text:?} is not a run: give its id, at least 4 of its first hex digits, or @last"),
        })
    }
}

impl RunRef {
    /// The id of the run. A complete id is not looked up, because its run may not have begun.
    pub(crate) async fn find(&self, client: &Client) -> anyhow::Result<TraceId> {
        let (query, none) = match self {
            RunRef::Id(id) => return Ok(*id),
            RunRef::Prefix(prefix) => (
                RunsQuery { prefix: Some(prefix.clone()), limit: LISTED + 1, ..RunsQuery::default() },
                format!("no run begins with {prefix}\n\nhint: `trellis runs list` shows the newest"),
            ),
            RunRef::Last => (
                RunsQuery { limit: 1, ..RunsQuery::default() },
                "there are no runs yet\n\nhint: `trellis submit` starts one".to_owned(),
            ),
        };
        let runs: Vec<RunSummary> = match client.runs(&query).await? {
            Ok(list) => list.runs,
            Err(refusal) => bail!("refused ({}): {}", refusal.code, refusal.message),
        };
        match (self, runs.as_slice()) {
            (_, []) => bail!(none),
            (RunRef::Last, [run, ..]) | (_, [run]) => Ok(run.trace_id),
            (RunRef::Id(_) | RunRef::Prefix(_), several) => bail!(ambiguous(several)),
        }
    }
}

fn ambiguous(runs: &[RunSummary]) -> String {
    let listed = LISTED as usize;
    let line = |run: &RunSummary| {
        let what = run.goal.as_ref().map_or(run.child_id.as_str(), |goal| goal.as_str());
        format!("\n  {}  {}  {}", run.trace_id, run.started_at, display::cut(&display::flat(what), 40))
    };
    let lines: String = runs.iter().take(listed).map(line).collect();
    let more = if runs.len() > listed { "\n  …" } else { "" };
    format!("more than one run has this prefix:{lines}{more}\n\nhint: give more digits")
}

/// `TRACE`, `TRACE/CHILD` or `TRACE/CHILD@STEP`, as the user wrote it.
#[derive(Debug, Clone)]
pub(crate) struct WrittenRef {
    pub(crate) run: RunRef,
    pub(crate) child: Option<ChildId>,
    pub(crate) step: Option<u32>,
}

impl FromStr for WrittenRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The `@` of `@last` does not begin a step.
        let skip = usize::from(text.starts_with('@'));
        let (place, step) = match text[skip..].split_once('@') {
            Some((place, step)) => (&text[..skip + place.len()], Some(step)),
            None => (text, None),
        };
        let (run, child) = match place.split_once('/') {
            Some((run, child)) => (run, Some(child)),
            None => (place, None),
        };
        let number = |step: &str| step.parse().map_err(|_| format!("{step:?} is not the number of a step"));
        Ok(WrittenRef {
            run: run.parse()?,
            child: child.map(str::parse).transpose().map_err(|error: domain::id::Error| error.to_string())?,
            step: step.map(number).transpose()?,
        })
    }
}

impl WrittenRef {
    /// Looks up the run, and the context if one is named. `root` names the root context.
    pub(crate) async fn find(&self, client: &Client) -> anyhow::Result<(TraceId, Option<ChildId>)> {
        let trace = self.run.find(client).await?;
        let child = match &self.child {
            Some(child) if child.as_str() == ROOT => Some(root(client, trace).await?),
            child => child.clone(),
        };
        Ok((trace, child))
    }

    /// As [`WrittenRef::find`], for a command that accepts no step.
    pub(crate) async fn context(&self, client: &Client) -> anyhow::Result<(TraceId, Option<ChildId>)> {
        if let Some(step) = self.step {
            bail!("`@{step}` is a step, and this command takes a context: leave it out");
        }
        self.find(client).await
    }
}

impl WrittenRef {
    /// A placeholder for the step, until [`find_checkpoint`] looks up the run and the root. It lets
    /// the rest of the submission be checked without a cluster.
    pub(crate) fn unsettled(&self) -> Checkpoint {
        let trace_id = if let RunRef::Id(id) = self.run { Some(id) } else { TraceId::from_u128(1) };
        let root = || ROOT.parse().expect("a valid literal");
        Checkpoint {
            trace_id: trace_id.expect("one is not zero"),
            child_id: self.child.clone().unwrap_or_else(root),
            step: self.step.unwrap_or_default(),
        }
    }
}

/// `TRACE[/CHILD]`; the context may also follow as a word of its own.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ContextRef {
    /// The run: its id, a unique prefix of the id, or @last. `TRACE/CHILD` is a context of the run.
    #[arg(value_name = "TRACE[/CHILD]")]
    named: WrittenRef,
    /// The context, if it is not part of the first word.
    #[arg(hide = true)]
    child: Option<ChildId>,
}

impl ContextRef {
    fn whole(&self) -> anyhow::Result<WrittenRef> {
        match (&self.named.child, &self.child) {
            (Some(one), Some(other)) if one != other => {
                bail!("both `{one}` and `{other}` are named: give one context")
            }
            (Some(_), _) | (None, None) => Ok(self.named.clone()),
            (None, Some(child)) => Ok(WrittenRef { child: Some(child.clone()), ..self.named.clone() }),
        }
    }

    /// The step after `@`, if one is named.
    pub(crate) fn step(&self) -> Option<u32> {
        self.named.step
    }

    /// Looks up the run, and the context if one is named. Rejects a step.
    pub(crate) async fn named(&self, client: &Client) -> anyhow::Result<(TraceId, Option<ChildId>)> {
        self.whole()?.context(client).await
    }

    /// Looks up the run, and the context or else the root. The name may contain a step.
    pub(crate) async fn find(&self, client: &Client) -> anyhow::Result<(TraceId, ChildId)> {
        match self.whole()?.find(client).await? {
            (trace, Some(child)) => Ok((trace, child)),
            (trace, None) => Ok((trace, root(client, trace).await?)),
        }
    }
}

async fn root(client: &Client, trace: TraceId) -> anyhow::Result<ChildId> {
    let known: Trace = client.replay(trace).await?;
    Ok(known.root().context("the run has no root")?.id.clone())
}

/// The context that a name refers to in a loaded run: `root` is the root context.
pub(crate) fn meant<'c>(trace: &'c Trace, child: &'c ChildId) -> &'c ChildId {
    match trace.root() {
        Some(root) if child.as_str() == ROOT => &root.id,
        Some(_) | None => child,
    }
}

/// Parses `TRACE[/CHILD]@STEP`, a step of a journal.
pub(crate) fn checkpoint(text: &str) -> Result<WrittenRef, String> {
    let named: WrittenRef = text.parse()?;
    match named.step {
        Some(_) => Ok(named),
        None => Err("write it as TRACE/CHILD@STEP, such as 0af7651916/writer@4".into()),
    }
}

/// Looks up the step of a journal.
pub(crate) async fn find_checkpoint(client: &Client, named: &WrittenRef) -> anyhow::Result<Checkpoint> {
    let (trace_id, child) = named.find(client).await?;
    let child_id = match child {
        Some(child) => child,
        None => root(client, trace_id).await?,
    };
    Ok(Checkpoint { trace_id, child_id, step: named.step.context("the entry is missing")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g17_a_run_a_context_and_a_step_have_one_form() {
        let read = |text: &str| {
            let WrittenRef { run, child, step } = text.parse()?;
            let run = match run {
                RunRef::Id(id) => id.to_string(),
                RunRef::Prefix(prefix) => format!("{prefix}…"),
                RunRef::Last => "last".into(),
            };
            Ok::<_, String>((run, child.map(|child| child.to_string()), step))
        };
        let id = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(read(id), Ok((id.into(), None, None)));
        assert_eq!(read(&format!("{id}/writer@4")), Ok((id.into(), Some("writer".into()), Some(4))));
        assert_eq!(read("0af7/root"), Ok(("0af7…".into(), Some("root".into()), None)));
        assert_eq!(read("0af7@0"), Ok(("0af7…".into(), None, Some(0))));
        assert_eq!(read("@last"), Ok(("last".into(), None, None)));
        assert_eq!(read("@last/a@2"), Ok(("last".into(), Some("a".into()), Some(2))));
        assert_eq!(read("@last@2"), Ok(("last".into(), None, Some(2))));
        for wrong in
            ["", "0af", "0AF7", "@first", "0af7/", "0af7/a b", "0af7/a@", "0af7/a@x", "xyzw", "/a", "@4"]
        {
            read(wrong).unwrap_err();
        }
    }
}
