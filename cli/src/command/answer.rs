//! `trellis answer`: answers a question of an agent.

use client::questions;
use domain::{
    ChildId,
    wire::{Question, Text},
};
use serde_json::json;

use crate::{
    cluster::connect::Servers,
    input::{
        context_ref::{WrittenRef, meant},
        parse,
    },
    terminal::{
        ending::Ending,
        output::{self, Output},
        questions::{expected, in_form},
    },
};

/// Answer a question of an agent, so that its run continues.
///
/// The context may be omitted if the run has one open question. The answer to a question with choices is one of them or its number; to
/// a question with a schema, JSON; to an `approve` step, `approve`, one of its choices, `deny` or `deny: REASON`. An invalid answer is
/// refused, and the question stays open.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "trellis answer <TRACE[/CHILD]> <TEXT>",
    after_help = "Examples:\n  trellis answer 0af765/writer 'Yes, publish it.'\n  trellis answer @last 'Yes.'"
)]
pub(crate) struct Args {
    /// The run: its id, a unique prefix of the id, or @last. `TRACE/CHILD` is the context that asks.
    #[arg(value_name = "TRACE[/CHILD]")]
    context: WrittenRef,
    /// The answer. The context may precede it as a word of its own.
    #[arg(required = true, num_args = 1..=2, value_name = "TEXT")]
    words: Vec<String>,
    /// The number of the question, from 1; by default, the open question.
    #[arg(long, value_name = "N")]
    question: Option<u32>,
    /// The name of the sender, which is stored with the answer.
    #[arg(long, value_name = "NAME", value_parser = parse::text)]
    by: Option<Text>,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let (child, text) = match args.words.as_slice() {
        [child, text] => (Some(child.parse::<ChildId>()?), text),
        [text] => (None, text),
        _ => anyhow::bail!("give a context and an answer, or the answer alone"),
    };
    let text: Text = parse::text(text).map_err(anyhow::Error::msg)?;
    let client = servers.cluster().await?;
    let (trace_id, named) = args.context.context(&client).await?;
    let trace = client.replay(trace_id).await?;
    let child = named.or_else(|| child.map(|child| meant(&trace, &child).clone()));
    let question = choose(questions(&trace), child.as_ref(), args.question)?;
    let answer = in_form(&question.form, text);
    if let Err(refusal) = client.answer(&question, answer, args.by).await? {
        return output::refuse(&refusal, output);
    }
    match output {
        Output::Json => output::print_json(
            &json!({"child_id": question.child_id, "question": question.number, "taken": true}),
        )?,
        Output::Text => output::print(&format!("`{}` has its answer\n", question.child_id))?,
    }
    Ok(Ending::Completed)
}

/// The open question that the arguments select. Several matches are an error, because a guess could
/// answer the wrong one.
fn choose(open: Vec<Question>, child: Option<&ChildId>, number: Option<u32>) -> anyhow::Result<Question> {
    let listed = open
        .iter()
        .map(|question| format!("\n  {} {}: {}", question.child_id, question.number, question.question))
        .zip(open.iter().map(expected))
        .map(|(asked, expected)| format!("{asked}\n{expected}").trim_end().to_owned());
    let listed: String = if open.is_empty() { " none".into() } else { listed.collect() };
    let meant = |question: &Question| {
        child.is_none_or(|child| question.child_id == *child)
            && number.is_none_or(|number| question.number == number)
    };
    let mut fitting = open.into_iter().filter(meant);
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => anyhow::bail!("this question is not open\n\nhint: open questions:{listed}"),
        (Some(_), Some(_)) => {
            anyhow::bail!("more than one question is open\n\nhint: name the context; open questions:{listed}")
        }
    }
}
