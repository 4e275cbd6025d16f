//! `trellis result`: prints the whole result of a run or of one context to stdout, and nothing
//! else.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use domain::{ChildId, Json};
use trace::{ContextNode, Trace};

use crate::{
    cluster::{connect::Servers, results},
    input::context_ref::ContextRef,
    terminal::{
        display,
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
        pager,
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis result @last                      print the result of the newest run
  trellis result 0af765/writer > draft.md   save the result of one context
  trellis result 0af765 -o json | jq .      as JSON, for programs
";

/// Print the whole result of a run, or of one context.
///
/// A text is printed as it is, other values as JSON; with `-o json`, a text is JSON too. The exit code is that of the context's end. A
/// context that has not ended, or whose result was deleted, is refused (3).
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Args {
    #[command(flatten)]
    context: ContextRef,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    let (trace, child) = args.context.named(&client).await?;
    let trace = client.replay(trace).await?;
    let node = find(&trace, child.as_ref())?;
    let named = child.map_or_else(|| "the run".to_owned(), |child| format!("`{child}`"));
    let Some(end) = node.end() else {
        let (id, word) = (trace.id(), trace.word(node));
        output::error(&format!(
            "{named} is not over: it is {word}\n\nhint: `trellis runs watch {id}` waits for its end, and prints its result"
        ));
        return Ok(Ending::Refused);
    };
    let Some(result) = &end.details.result else {
        let ending = if node.lifecycle.deleted { Ending::Refused } else { Ending::from(end.status) };
        match (ending, output) {
            // A graph may have no output. This is not a mistake.
            (Ending::Completed, Output::Json) => output::print_json(&serde_json::Value::Null)?,
            (Ending::Completed, Output::Text) => output::note(&without(&trace, node, &named)),
            (_, Output::Json | Output::Text) => output::error(&without(&trace, node, &named)),
        }
        return Ok(ending);
    };
    let result = results::whole(&client, result).await?;
    match output {
        Output::Json => output::print_json(result.value())?,
        Output::Text if std::io::stdout().is_terminal() => {
            pager::print(&display::of_result(&result), servers).await?
        }
        // A file or a pipe gets every byte as the agent wrote it.
        Output::Text => write(&result)?,
    }
    Ok(end.status.into())
}

fn find<'a>(trace: &'a Trace, child: Option<&ChildId>) -> anyhow::Result<&'a ContextNode> {
    let Some(child) = child else { return trace.root().context("the run has no root") };
    trace.context(child).with_context(|| {
        let known = trace.contexts().iter().map(|node| node.id.as_str());
        let hint = display::did_you_mean(child.as_str(), known, "`trellis runs show` shows all contexts");
        format!("the run has no context `{child}`\n\nhint: {hint}")
    })
}

/// The reason why there is no result.
fn without(trace: &Trace, node: &ContextNode, named: &str) -> String {
    let (id, word) = (trace.id(), trace.word(node));
    if node.lifecycle.deleted {
        return format!("the result of {named} was deleted");
    }
    match node.why() {
        Some(why) => format!("{named} has no result: it is {word}: {why}"),
        None => format!(
            "{named} is {word} and has no result of its own\n\nhint: `trellis result {id}/STEP` prints the result of a step; \
                `trellis runs show {id}` shows the steps"
        ),
    }
}

fn write(result: &Json) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let text = display::of_result(result);
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("could not write the output")
}
