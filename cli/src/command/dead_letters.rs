//! `trellis dead-letters`: dead letters, the messages that were refused permanently. A letter contains only
//! the digest of its message. To send the message again, the user supplies it, and the digest shows
//! whether it is the same.

use anyhow::Context;
use client::{Client, RetryRefusal, StoredLetter};
use domain::{
    ChildId, TraceId,
    wire::{DeadLetter, Refusal},
};
use serde_json::{Value, json};

use crate::{
    cluster::connect::Servers,
    input::{context_ref::RunRef, file},
    terminal::{
        display,
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
        table,
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis dead-letters list --kind charge --limit 5
  trellis dead-letters show 42
  trellis dead-letters retry 42 --payload charge.json   send the same message again
  trellis dead-letters drop 42
";

/// All commands about dead letters are for administrators.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List dead letters, the newest first.
    #[command(after_help = EXAMPLES)]
    List {
        /// Only messages of this kind, such as `spawn`, `result` or `charge`.
        #[arg(long, value_name = "KIND")]
        kind: Option<ChildId>,
        /// Only messages about this run.
        #[arg(long, value_name = "TRACE")]
        trace: Option<RunRef>,
        /// The number of letters: 1 to 10000.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show a dead letter, with the reason and a hint.
    Show {
        /// Its number, as `dead-letters list` shows it.
        id: u64,
    },
    /// Send the message of a dead letter again, and drop the letter.
    ///
    /// A letter does not contain its message, which may be private: --payload has it. Only the refused message is sent, not another
    /// one. A repetition is the same message. If it is refused again, a new letter is stored.
    #[command(after_help = EXIT_CODES)]
    Retry {
        /// Its number, as `dead-letters list` shows it.
        id: u64,
        /// The file with the message as it was sent; `-` is stdin.
        #[arg(long, value_name = "FILE")]
        payload: Option<std::path::PathBuf>,
    },
    /// Drop a dead letter.
    Drop {
        /// Its number, as `dead-letters list` shows it.
        id: u64,
    },
}

pub(crate) async fn run(command: Command, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let client = servers.cluster().await?;
    match command {
        Command::List { kind, trace, limit } => {
            let trace = match trace {
                Some(trace) => Some(trace.find(&client).await?),
                None => None,
            };
            list(&client, kind, trace, limit as usize, output).await
        }
        Command::Show { id } => show(&find(&client, id).await?, output),
        Command::Retry { id, payload } => {
            let found = find(&client, id).await?;
            let Some(path) = payload else {
                output::error(&format!(
                    "dead letter {id} can't be sent again: {}",
                    without_payload(&found.letter)
                ));
                return Ok(Ending::Refused);
            };
            let bytes = file::read(&path)?;
            retry(&client, &found, bytes, output).await
        }
        Command::Drop { id } => {
            let found = find(&client, id).await?;
            client.drop_letter(&found.stored).await?;
            match output {
                Output::Json => output::print_json(&json!({"id": id, "dropped": true}))?,
                Output::Text => output::print(&format!("dead letter {id} is dropped\n"))?,
            }
            Ok(Ending::Completed)
        }
    }
}

fn to_json(found: &StoredLetter) -> Value {
    let mut shown = json!(found.letter);
    shown["id"] = json!(found.stored.sequence);
    shown["at"] = json!(found.stored.at);
    shown["kind"] = json!(found.kind);
    shown
}

async fn find(client: &Client, id: u64) -> anyhow::Result<StoredLetter> {
    let all = client.dead_letters(None).await?;
    all.into_iter().find(|found| found.stored.sequence == id).with_context(|| {
        format!("there is no dead letter {id}\n\nhint: `trellis dead-letters list` shows them; they are kept for a limited time")
    })
}

async fn list(
    client: &Client,
    kind_is: Option<ChildId>,
    about: Option<TraceId>,
    limit: usize,
    output: Output,
) -> anyhow::Result<Ending> {
    let mut all = client.dead_letters(kind_is).await?;
    all.reverse();
    all.retain(|found| about.is_none_or(|trace| found.letter.trace_id == Some(trace)));
    let more = all.len().saturating_sub(limit);
    all.truncate(limit);
    if output == Output::Json {
        output::print_json(&all.iter().map(to_json).collect())?;
    } else if all.is_empty() {
        output::note("there are no dead letters");
    } else if output::is_quiet() {
        output::print_ids(all.iter().map(|found| found.stored.sequence))?;
    } else {
        let row = |found: &StoredLetter| {
            [
                found.stored.sequence.to_string(),
                found.stored.at.to_string(),
                found.kind.to_string(),
                found.letter.refusal.code.clone(),
                found.letter.trace_id.map_or_else(String::new, |trace| trace.to_string()),
                display::flat(&found.letter.refusal.message),
            ]
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        output::print(&table::show(["ID", "AT", "KIND", "CODE", "TRACE", "WHY"], &rows))?;
    }
    if more > 0 {
        output::note(&format!("there are {more} more: add --limit"));
    }
    Ok(Ending::Completed)
}

fn show(found: &StoredLetter, output: Output) -> anyhow::Result<Ending> {
    if output == Output::Json {
        output::print_json(&to_json(found))?;
        return Ok(Ending::Completed);
    }
    let StoredLetter { stored, letter, .. } = found;
    let DeadLetter { subject, refusal, trace_id, child_id, call_id, payload } = letter;
    let mut text = format!("dead letter {}\nat       {}\nsubject  {subject}\n", stored.sequence, stored.at);
    let about = [
        ("trace", trace_id.map(|trace| trace.to_string())),
        ("context", child_id.as_ref().map(ToString::to_string)),
        ("call", call_id.as_ref().map(ToString::to_string)),
        ("message", Some(payload.clone()).filter(|payload| !payload.is_empty())),
    ];
    for (name, value) in about {
        if let Some(value) = value {
            text.push_str(&format!("{name:<8} {value}\n"));
        }
    }
    text.push_str(&format!("\n{}\n", output::refused(refusal)));
    if let Some(hint) = hint(refusal) {
        text.push_str(&format!("\nhint: {hint}\n"));
    }
    output::print(&text)?;
    Ok(Ending::Completed)
}

/// The hint for a refusal code.
fn hint(refusal: &Refusal) -> Option<&'static str> {
    Some(match refusal.code.as_str() {
        "malformed" => {
            "correct the mistakes above and send a new message; `trellis schema` prints its schema"
        }
        "no_trace" | "unknown_context" => {
            "no submission had this id; if one has it now, `trellis dead-letters retry` sends the message again"
        }
        "conflict" => "this id exists with other content: submit it under another `child_id` or `trace_id`",
        "ended" | "stale" | "wrong_token" | "not_queued" => {
            "no action is needed: the context continued without it"
        }
        "storage_full" => {
            "make room (`trellis doctor` shows where); then `trellis dead-letters retry` sends the message again"
        }
        "unavailable" | "internal" => {
            "`trellis dead-letters retry` sends the message again; the coordinators' log has the cause"
        }
        "not_authentic" => {
            "a client without the key of this deployment stored it: find the users that can publish there \
                (docs/authenticity.md)"
        }
        "not_a_raise" | "raise_parent_first" | "above_maximum" => {
            "`trellis budgets tree` shows the ceilings; raise the parent's first"
        }
        _ => return None,
    })
}

/// The reason why the message of a letter can't be sent again without `--payload`.
fn without_payload(letter: &DeadLetter) -> String {
    match letter.payload.as_str() {
        "" => "it is not about a message that was sent to a queue".into(),
        payload => format!(
            "a letter does not contain its message, which may be private\n\nhint: give the message as it was sent with \
                --payload FILE: {payload}"
        ),
    }
}

async fn retry(
    client: &Client,
    found: &StoredLetter,
    payload: Vec<u8>,
    output: Output,
) -> anyhow::Result<Ending> {
    let StoredLetter { stored, letter, .. } = found;
    let id = stored.sequence;
    // The bus checks the permissions of this user.
    match client.retry_letter(found, payload, |_| true).await? {
        Ok(()) => {}
        Err(why @ (RetryRefusal::NoQueue(_) | RetryRefusal::NotAllowed(_))) => {
            output::error(&format!("dead letter {id} can't be sent again: {why}"));
            return Ok(Ending::Refused);
        }
        Err(RetryRefusal::OtherMessage(has)) => {
            output::error(&format!(
                "this is not the message of dead letter {id}, which has {has}\n\nhint: send a changed message as a new one"
            ));
            return Ok(Ending::Refused);
        }
    }
    match output {
        Output::Json => output::print_json(&json!({"id": id, "sent": letter.subject}))?,
        Output::Text => output::print(&format!(
            "the message of dead letter {id} is sent again on `{}`, and the letter is dropped\n",
            letter.subject
        ))?,
    }
    Ok(Ending::Completed)
}
