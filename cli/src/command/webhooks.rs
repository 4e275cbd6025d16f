//! `trellis webhooks`: checks a file of webhooks, sends a test message to each, and makes secrets
//! (X9).

use std::path::{Path, PathBuf};

use domain::{id::WebhookName, signature::Secret, wire::WebhookBody, wording::count};
use host::{
    clock::Clock,
    random::Random,
    webhook::{Sender, Webhook, Webhooks},
};
use serde_json::{json, value::RawValue};

use crate::{
    cluster::local_directory,
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
        table,
    },
};

/// The receivers of outcomes and questions.
#[derive(Debug, clap::Args)]
pub(crate) struct WebhookFile {
    /// The receivers of outcomes and questions over HTTP: YAML or JSON.
    ///
    /// All coordinators have the same file (docs/webhooks.md). A changed file is read again.
    #[arg(long, value_name = "FILE", env = "TRELLIS_WEBHOOKS", value_parser = local_directory::file())]
    webhooks: Option<PathBuf>,
}

impl WebhookFile {
    pub(crate) fn read(&self) -> Result<Webhooks, Ending> {
        // An empty variable names no file.
        let path = self.webhooks.as_deref().filter(|path| !path.as_os_str().is_empty());
        path.map_or_else(|| Ok(Webhooks::default()), read)
    }
}

fn read(path: &Path) -> Result<Webhooks, Ending> {
    Webhooks::read(path).map_err(|unusable| {
        output::error(&unusable.to_string());
        Ending::Unreadable
    })
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Check a file of webhooks.
    #[command(after_help = EXIT_CODES)]
    Check {
        file: PathBuf,
        /// Send each webhook a signed message of the type `ping`, and print its answer.
        #[arg(long)]
        ping: bool,
        /// Only the webhook of this name; may be given more than once.
        #[arg(long = "name", value_name = "NAME")]
        names: Vec<WebhookName>,
    },
    /// Make a secret for a webhook and its receiver.
    Secret,
}

pub(crate) async fn run(command: Command, output: Output) -> anyhow::Result<Ending> {
    match command {
        Command::Check { file, ping, names } => check(&file, ping, &names, output).await,
        Command::Secret => {
            let secret = Secret::from_bits([Random::System.bits(), Random::System.bits()]).reveal();
            match output {
                Output::Text => output::print(&format!("{secret}\n"))?,
                Output::Json => output::print_json_line(&json!({"secret": secret}))?,
            }
            Ok(Ending::Completed)
        }
    }
}

async fn check(file: &Path, ping: bool, names: &[WebhookName], output: Output) -> anyhow::Result<Ending> {
    let all = match read(file) {
        Ok(webhooks) => webhooks.now(),
        Err(ending) => return Ok(ending),
    };
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|webhook| webhook.name == **name)) {
        let known: Vec<&str> = all.iter().map(|webhook| webhook.name.as_str()).collect();
        output::error(&format!("the file has no webhook `{unknown}`\n\nhint: it has {}", known.join(", ")));
        return Ok(Ending::Unreadable);
    }
    let chosen: Vec<&Webhook> =
        all.iter().filter(|webhook| names.is_empty() || names.contains(&webhook.name)).collect();
    let (mut ending, mut told) = (Ending::Completed, Vec::new());
    let sender = Sender::new()?;
    for webhook in chosen {
        let answer = match ping {
            true => Some(self::ping(&sender, webhook).await),
            false => None,
        };
        if matches!(answer, Some(Err(_))) {
            ending = Ending::Failed;
        }
        told.push((webhook, answer));
    }
    match output {
        Output::Text => {
            output::note(&format!("{} has {}", file.display(), count(all.len(), "webhook")));
            let row = |(webhook, answer): &(&Webhook, Option<Result<(), String>>)| {
                let answer = match answer {
                    None => "not tried: give --ping",
                    Some(Ok(())) => "took it",
                    Some(Err(why)) => why,
                };
                [webhook.name.to_string(), webhook.url.clone(), answer.to_owned()]
            };
            let rows: Vec<_> = told.iter().map(row).collect();
            output::print(&table::show(["NAME", "URL", "ANSWER"], &rows))?;
        }
        Output::Json => {
            for (webhook, answer) in &told {
                let error = answer.as_ref().and_then(|answer| answer.as_ref().err());
                let line = json!({"name": webhook.name, "url": webhook.url, "asked": answer.is_some(), "error": error});
                output::print_json_line(&line)?;
            }
        }
    }
    Ok(ending)
}

async fn ping(sender: &Sender, webhook: &Webhook) -> Result<(), String> {
    let now = Clock::Machine.now();
    let data = RawValue::from_string("{}".into()).expect("an empty object is JSON");
    let body = WebhookBody { r#type: "ping", timestamp: now, data: &data };
    let body = serde_json::to_vec(&body).expect("the body has string keys only");
    let id = format!("ping.{:032x}", Random::System.bits());
    sender.send(webhook, &id, now, body).await.map_err(|failed| failed.to_string())
}
