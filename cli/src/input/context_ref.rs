//! Names of contexts and steps on the command line: `TRACE`, `TRACE/CHILD`, `TRACE/CHILD@STEP`.

use std::str::FromStr;

use anyhow::Context;
use shared::{ChildId, TraceId, bus::Bus, wire::Checkpoint};

use crate::cluster::client;

/// A context; without a child, the root of the trace.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ContextRef {
    /// The run's id, as `runs list` shows it; `TRACE/CHILD` names a context of it.
    #[arg(value_name = "TRACE[/CHILD]")]
    trace: Named,
    /// The context; without it, the root.
    child: Option<ChildId>,
}

/// `TRACE` or `TRACE/CHILD`.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) trace: TraceId,
    pub(crate) child: Option<ChildId>,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (trace, child) = match text.split_once('/') {
            Some((trace, child)) => (trace, Some(child)),
            None => (text, None),
        };
        let told = |error: shared::id::Error| error.to_string();
        Ok(Named {
            trace: trace.parse().map_err(told)?,
            child: child.map(str::parse).transpose().map_err(told)?,
        })
    }
}

impl ContextRef {
    pub(crate) fn trace(&self) -> TraceId {
        self.trace.trace
    }

    /// The id of the context.
    pub(crate) async fn child(&self, bus: &Bus) -> anyhow::Result<ChildId> {
        match (&self.trace.child, &self.child) {
            (Some(one), Some(other)) if one != other => {
                anyhow::bail!("both `{one}` and `{other}` are named: give one context")
            }
            (Some(child), _) | (None, Some(child)) => Ok(child.clone()),
            (None, None) => {
                let trace = client::replay(bus, self.trace()).await?;
                Ok(trace.root().context("the trace has no root")?.id.clone())
            }
        }
    }
}

/// `TRACE[/CHILD]@N`: a step of a journal.
pub(crate) fn checkpoint(text: &str) -> Result<Checkpoint, String> {
    let (place, step) =
        text.split_once('@').ok_or("write it as TRACE/CHILD@STEP, such as 0af7…319c/root@4")?;
    let Named { trace, child } = place.parse()?;
    let step = step.parse().map_err(|_| format!("{step:?} is not the number of a step"))?;
    let child_id =
        child.map_or_else(|| "root".parse().map_err(|error: shared::id::Error| error.to_string()), Ok)?;
    Ok(Checkpoint { trace_id: trace, child_id, step })
}
