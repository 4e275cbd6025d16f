//! `trellis runs rerun`: a new run of a graph that reuses the results of an earlier run (G15).

use client::{Client, Submission, fresh_trace};
use domain::{
    StepPath, Usd,
    wire::{Rerun, RerunOf},
};

use crate::{
    cluster::connect::Servers,
    command::submit,
    input::{context_ref::RunRef, inputs::Inputs, parse, sources::Sources},
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::Output,
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis runs rerun 0af7…319c                          run what did not succeed
  trellis runs rerun 0af7…319c --from write --wait      run `write` and all that come after it
  trellis runs rerun 0af7…319c --input topic='\"bees\"'   run what reads that input
";

/// Run a graph again as a new run, without paying again for the steps that succeeded.
///
/// A step is reused if it succeeded and would read the same values again; of a `for_each`, each such item. The run has the task of the
/// earlier one, and the agents of now.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// The run, which must have ended: its id, a unique prefix of the id, or @last.
    trace: RunRef,
    /// Run the steps that did not succeed, and the steps that read their outputs. This is the default.
    #[arg(long, conflicts_with = "from")]
    failed: bool,
    /// Run this step and all later steps, although they succeeded; may be given more than once.
    ///
    /// `outer/inner` is a step of the graph that the step `outer` uses.
    #[arg(long, value_name = "STEP")]
    from: Vec<StepPath>,
    /// Cost limit of the new run, in dollars; by default, that of the earlier run.
    #[arg(long, alias = "budget", value_name = "USD", value_parser = parse::usd, allow_hyphen_values = true)]
    max_cost_usd: Option<Usd>,
    #[command(flatten)]
    inputs: Inputs,
    /// Wait for the outcome and print it; the exit code is that of the outcome.
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(
    args: Args,
    client: &Client,
    servers: &Servers,
    output: Output,
) -> anyhow::Result<Ending> {
    let inputs = match args.inputs.read_checked() {
        Ok(inputs) => inputs,
        Err(unusable) => return Ok(unusable.explain_as(args.inputs.path(), "a valid file of inputs")),
    };
    let rerun = Rerun {
        rerun: RerunOf { trace_id: args.trace.find(client).await?, from: args.from },
        trace_id: Some(fresh_trace()),
        child_id: None,
        inputs,
        max_cost_usd: args.max_cost_usd,
        max_tokens: None,
        reply_to: None,
    };
    let submission = Submission::Rerun(Box::new(rerun));
    submit::send(client, servers, (&submission, &Sources::default()), args.wait, output).await
}
