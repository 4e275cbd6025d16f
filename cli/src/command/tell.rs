//! `trellis tell`: sends a message to an agent that runs, waits or is queued.

use std::io::Read;

use anyhow::Context;
use domain::{
    CallId,
    limits::MAX_TEXT_BYTES,
    wire::{Query, QueryAnswer, Tell, Text},
};
use serde_json::json;
use uuid::Uuid;

use crate::{
    cluster::connect::Servers,
    input::{context_ref::WrittenRef, parse},
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis tell 0af765 'Leave out the prices.'         to the root
  trellis tell 0af765/writer 'Write in French.'       to the context `writer`
  trellis tell @last/writer - < notes.txt             the text from stdin
";

/// Send a message to an agent, which reads it before its next model call.
///
/// The message is stored when the command returns, and the agent reads its messages once, in order. An agent that waits for a child, a
/// human or a larger budget reads it when it continues. An agent that ends without another model call does not read it: `trellis runs
/// show` and the outcome report that. A graph, and a context that has ended or does not exist, accept no messages.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The run, for its root: its id, a unique prefix of the id, or @last. `TRACE/CHILD` is another context.
    #[arg(value_name = "TRACE[/CHILD]")]
    context: WrittenRef,
    /// The message, at most 64 KiB; `-` reads it from stdin.
    #[arg(value_name = "TEXT")]
    text: String,
    /// The name of the sender, which the agent sees too.
    #[arg(long, value_name = "NAME", value_parser = parse::text)]
    by: Option<Text>,
    /// The id of the message: a repetition with the same id is the same message.
    #[arg(long, value_name = "ID")]
    id: Option<CallId>,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let text = if args.text == "-" { stdin()? } else { args.text };
    let text = parse::text(text.trim_end()).map_err(anyhow::Error::msg)?;
    let id = args.id.map_or_else(|| Uuid::now_v7().simple().to_string().parse(), Ok)?;
    let client = servers.cluster().await?;
    let (trace_id, child_id) = args.context.context(&client).await?;
    let told = Tell { child_id, id, text, by: args.by };
    match client.query(&Query::Tell { trace_id, told }).await? {
        Ok(QueryAnswer::Told { child_id, number }) => {
            match output {
                Output::Json => output::print_json(&json!({"child_id": child_id, "number": number}))?,
                Output::Text => {
                    output::print(&format!(
                        "message {number} to `{child_id}`: it is read before the next model call\n"
                    ))?;
                }
            }
            Ok(Ending::Completed)
        }
        Err(refusal) => output::refuse_with(&refusal, hint, output),
        Ok(other) => Err(client::Error::other_answer(other).into()),
    }
}

fn hint(code: &str) -> Option<&'static str> {
    match code {
        "ended" => Some("`trellis submit --branch-from` begins a new run with the journal of this one"),
        "unknown_context" | "runs_no_agent" => Some("`trellis runs show` lists the contexts of a run"),
        "no_trace" => Some("`trellis runs list` shows the newest runs"),
        _ => None,
    }
}

fn stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    // Reads one byte more than allowed, to distinguish a longer text from one that just fits.
    let most = MAX_TEXT_BYTES as u64 + 1;
    std::io::stdin().take(most).read_to_string(&mut text).context("could not read the message from stdin")?;
    Ok(text)
}
