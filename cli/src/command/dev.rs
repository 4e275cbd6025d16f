//! `trellis dev`: a coordinator and a worker in this process, with submissions from stdin and over
//! HTTP. It uses no servers, even if `NATS_URL` names one. Its directory outlives the process;
//! without a directory, nothing does.

use std::{
    io::IsTerminal,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context;
use client::{Client, Submission, questions};
use domain::{
    TraceId,
    wire::{Outcome, Question, SubmitAnswer, Text},
    wording::count,
};
use gateway::SignIn;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    cluster::{
        connect::Servers,
        embedded::{Crashes, Deployment, Shape, url_of},
        local_directory,
    },
    command::{agents, gateway::FrontDoor, page, webhooks::WebhookFile},
    input::{document::Document, parse, profiles, task, use_files::read_as_far, worker_config::WorkerConfig},
    terminal::{
        ending::{EXIT_CODES, Ending},
        outcome,
        output::{self, Output},
        questions::{self, Answerer, Questions},
        signals::Signals,
    },
};

/// The most runs at the same time; further lines wait.
const MOST_RUNS: usize = 256;

const EXAMPLES: &str = "\
Examples:
  trellis dev --agents examples/agents.yaml
  trellis dev --agents examples/agents.yaml --data ~/trellis     store runs, and continue them
  printf 'hello\\n@examples/race.yaml\\n' | trellis dev --agents examples/agents.yaml -o json
";

/// Start a server in this process: a coordinator, a worker and HTTP, until Ctrl-C.
///
/// Each line on stdin is a submission: a goal in plain words, a spawn or a graph as JSON, or `@file`. When stdin ends and is not a
/// terminal, the command waits for its runs. Runs are stored in a directory (--data), and the next `dev` continues unfinished ones, even
/// after a crash. Other commands and HTTP clients reach this process while it runs.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Args {
    /// Agent profiles to apply first: YAML, JSON or TOML.
    ///
    /// A goal runs the agent `default`, which is the built-in `echo` until another profile of that name is applied.
    #[arg(long, value_name = "FILE")]
    agents: Option<PathBuf>,
    /// Address for health checks, such as 127.0.0.1:8080.
    #[arg(long, value_name = "ADDRESS")]
    health: Option<SocketAddr>,
    /// The answer to every question of the agents.
    #[arg(long, value_name = "TEXT", value_parser = parse::text)]
    answer: Option<Text>,
    /// Do not store runs: they are lost when this command ends.
    #[arg(long, env = "TRELLIS_NO_KEEP", value_parser = clap::builder::FalseyValueParser::new())]
    no_keep: bool,
    #[command(flatten)]
    webhooks: WebhookFile,
    #[command(flatten)]
    crashes: Crashes,
    #[command(flatten)]
    door: FrontDoor,
    #[command(flatten)]
    config: WorkerConfig,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let (settings, policy) = match args.config.read() {
        Ok(read) => read,
        Err(ending) => return Ok(ending),
    };
    let webhooks = match args.webhooks.read() {
        Ok(webhooks) => webhooks,
        Err(ending) => return Ok(ending),
    };
    let agents = match &args.agents {
        Some(path) => match profiles::read(path) {
            Ok(agents) => agents,
            Err(unusable) => return Ok(profiles::explain(&unusable, path)),
        },
        None => Vec::new(),
    };
    if servers.nats_url().is_some() || servers.url().is_some() {
        output::note("note: dev runs in this process and ignores the servers that are named");
    }
    let health = args.health.map(with_port).transpose().context("could not listen for health checks")?;
    let directory = match args.no_keep {
        true => None,
        false => servers.directory().map(Path::to_owned).or_else(local_directory::default_directory),
    };
    let directory = directory.as_deref();
    let shape = Shape { directory, health, schedules: true, webhooks, crashes: args.crashes };
    let begun = servers.once_free(&shape, &settings, policy.as_ref()).await;
    let mut deployment = begun.map_err(|(error, _)| error)?;
    deployment.begin().cancel();
    let Listening { address, token, sign_in } = listen(&mut deployment, args.door, directory).await?;
    let client = deployment.client();
    let work = async {
        if let Some(ending) = agents::apply(&client, agents, output).await? {
            return Ok(ending);
        }
        let kept = match directory {
            Some(directory) => format!("runs are stored in {}", directory.display()),
            None => "runs are lost when it ends".to_owned(),
        };
        output::note(&format!("trellis dev: a coordinator and a worker in this process; {kept}"));
        output::note(&match (&token, directory) {
            (None, _) => format!("HTTP is at http://{address}, for all users of this machine"),
            (Some(_), Some(directory)) => format!(
                "other commands of trellis connect to it by default; HTTP is at http://{address}, with the token in {}",
                directory.join(local_directory::TOKEN).display()
            ),
            (Some(token), None) => {
                format!("other commands reach it with TRELLIS_URL=http://{address} TRELLIS_TOKEN={token}")
            }
        });
        let url = url_of(address);
        output::note(&match &sign_in {
            Some(SignIn { code, host }) => format!(
                "the page: {} (the link signs in once; `trellis page` makes another)",
                page::link(&url, Some(code), host.as_deref())
            ),
            None => format!("the page: {url}/"),
        });
        if let Some(health) = health {
            output::note(&format!("health checks on http://{health}/healthz"));
        }
        output::note("each line is a submission: a goal, JSON, or @file; Ctrl-C ends");
        let (sender, asked) = mpsc::channel(MOST_RUNS);
        // Questions go to the user at the terminal, if there is one.
        let who = match args.answer {
            Some(text) => Answerer::Told(text),
            None if std::io::stdin().is_terminal() => Answerer::Desk(sender),
            None => Answerer::Nobody,
        };
        let mut desk = Desk { client, who, output, runs: JoinSet::new(), worst: Ending::Completed };
        if directory.is_some() {
            desk.go_on().await?;
        }
        desk.open(asked).await
    };
    let ended = deployment.while_up(work).await;
    if directory.is_some()
        && deployment.client().working_runs().await.is_ok_and(|runs| runs.is_ok_and(|runs| !runs.is_empty()))
    {
        output::note("running agents have 5 s to end; the next `trellis dev` continues unfinished runs");
    }
    output::tell_closed(deployment.close().await);
    ended
}

/// The address of the HTTP server, and its credentials.
struct Listening {
    address: SocketAddr,
    /// The owner's token, and the code that signs in to the page. Absent if the server is open to
    /// all local users.
    token: Option<String>,
    sign_in: Option<gateway::SignIn>,
}

/// Serves HTTP at the named address. Without one, serves at the default address, or at a free port
/// if that address is in use.
async fn listen(
    deployment: &mut Deployment,
    door: FrontDoor,
    directory: Option<&Path>,
) -> anyhow::Result<Listening> {
    let is_named = door.is_named();
    let mut config = door.config()?;
    config.playground = Some(deployment.playground());
    if !config.is_open {
        let of_directory = directory.map(|directory| {
            local_directory::token_of(directory)
                .with_context(|| format!("can't store a token in {}", directory.display()))
        });
        config.token = Some(of_directory.unwrap_or_else(|| Ok(gateway::token::fresh()))?);
    }
    let token = config.token.clone();
    let (address, sign_in) = match deployment.serve(config.clone()).await {
        Err(gateway::Error::Listen { .. }) if !is_named => {
            output::note(&format!("note: another process listens at {}", config.listen));
            let anywhere = gateway::Config { listen: (config.listen.ip(), 0).into(), ..config };
            deployment.serve(anywhere).await?
        }
        listening => listening?,
    };
    if let Some(directory) = directory {
        let told = deployment.tell(directory, address, token.clone(), true);
        told.with_context(|| format!("can't write the address of this process to {}", directory.display()))?;
    }
    Ok(Listening { address, token, sign_in })
}

/// The address with port 0 replaced by a free port, so that the port can be printed.
fn with_port(address: SocketAddr) -> std::io::Result<SocketAddr> {
    if address.port() == 0 { std::net::TcpListener::bind(address)?.local_addr() } else { Ok(address) }
}

/// Reads submissions and prints the outcomes of their runs.
struct Desk {
    client: Client,
    who: Answerer,
    output: Output,
    /// Each task returns an outcome, or `None` if its run waits for an answer from another command.
    runs: JoinSet<anyhow::Result<Option<Outcome>>>,
    worst: Ending,
}

impl Desk {
    /// Continues the runs that had not ended when the directory was last closed. Without a
    /// terminal, a run that waits for a human is not waited for.
    async fn go_on(&mut self) -> anyhow::Result<()> {
        let runs = self.client.working_runs().await?.map_err(client::Error::refused)?;
        if !runs.is_empty() {
            output::note(&format!("continues {}", count(runs.len() as u64, "run")));
        }
        for run in runs.into_iter().take(MOST_RUNS) {
            if let Answerer::Desk(_) = &self.who {
                self.watch(run.trace_id);
                continue;
            }
            let (client, trace_id) = (self.client.clone(), run.trace_id);
            self.runs.spawn(async move { await_end(&client, trace_id).await });
        }
        Ok(())
    }

    fn watch(&mut self, trace_id: TraceId) {
        let (client, who) = (self.client.clone(), self.who.clone());
        self.runs.spawn(async move { await_outcome(&client, trace_id, who).await.map(Some) });
    }

    async fn open(mut self, mut asked: mpsc::Receiver<Question>) -> anyhow::Result<Ending> {
        let mut questions = questions::Desk::default();
        let mut signals = Signals::listen()?;
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        let mut more = true;
        while more || !self.runs.is_empty() {
            tokio::select! {
                line = lines.next_line(), if more && (self.runs.len() < MOST_RUNS || questions.is_asking()) => {
                    match line.context("could not read stdin")? {
                        Some(line) if questions.is_asking() => questions.answer(&self.client, line.trim()).await?,
                        Some(line) => self.take(line.trim()).await?,
                        None => more = false,
                    }
                }
                Some(ended) = self.runs.join_next() => {
                    if let Some(outcome) = ended.context("a watcher failed")?? {
                        self.tell(&outcome)?;
                    }
                }
                Some(question) = asked.recv() => questions.take(question),
                () = signals.next() => return Ok(Ending::Completed),
            }
            if !more && self.runs.is_empty() && std::io::stdin().is_terminal() {
                output::note("stdin has ended; Ctrl-C ends");
                signals.next().await;
                return Ok(Ending::Completed);
            }
        }
        Ok(self.worst)
    }

    async fn take(&mut self, line: &str) -> anyhow::Result<()> {
        if line.is_empty() {
            return Ok(());
        }
        if !line.contains(char::is_whitespace) && Path::new(line).is_file() {
            output::note(&format!("`{line}` is a goal; @{line} submits the file"));
        }
        let submission = match read(line) {
            Ok(submission) => submission,
            Err(why) => return self.refuse(&json!({"status": "refused", "message": why}), &why),
        };
        match self.client.submit(&submission).await? {
            SubmitAnswer::Refused(refusal) => {
                let told = json!(SubmitAnswer::Refused(refusal.clone()));
                self.refuse(&told, &output::refused(&refusal))
            }
            SubmitAnswer::Accepted(accepted) => {
                match self.output {
                    Output::Text => {
                        output::print(&format!("{} accepted {}\n", accepted.trace_id, accepted.child_id))?
                    }
                    Output::Json => {
                        output::print_json_line(&json!(SubmitAnswer::Accepted(accepted.clone())))?
                    }
                }
                self.watch(accepted.trace_id);
                Ok(())
            }
        }
    }

    /// Reports a refused line. Other lines and runs continue.
    fn refuse(&mut self, told: &Value, why: &str) -> anyhow::Result<()> {
        self.worst = Ending::Failed;
        if self.output == Output::Json {
            output::print_json_line(told)?;
        }
        output::error(why);
        Ok(())
    }

    fn tell(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        if Ending::from(outcome.context.status) != Ending::Completed {
            self.worst = Ending::Failed;
        }
        match self.output {
            Output::Text => output::print(&outcome::one_line(outcome)),
            Output::Json => output::print_json_line(&json!({"outcome": outcome})),
        }
    }
}

/// Reads a line as a submission, or returns all its mistakes.
fn read(line: &str) -> Result<Submission, String> {
    let document = if let Some(path) = line.strip_prefix('@') {
        read_as_far(path.as_ref()).map_err(|unusable| unusable.to_string())?
    } else if line.starts_with('{') {
        Document::made(serde_json::from_str(line).map_err(|error| format!("not valid JSON: {error}"))?)
    } else {
        Document::made(json!({"goal": line}))
    };
    task::submission_to_send(&document)
        .map_err(|unusable| format!("the line is not a valid submission\n\n{unusable}"))
}

/// Waits for the outcome of an earlier run. Returns `None` if the run has an open question, for
/// `trellis answer`.
async fn await_end(client: &Client, trace_id: TraceId) -> anyhow::Result<Option<Outcome>> {
    let mut watch = client.watch(trace_id).await?;
    while watch.outcome().is_none() {
        // The watch reads the log from its start, so a question in it may have an answer by now.
        if !watch.questions().is_empty() && !questions(&client.replay(trace_id).await?).is_empty() {
            output::note(&format!("{trace_id} waits for a human: `trellis runs pending` shows its question"));
            return Ok(None);
        }
        watch.next().await?;
    }
    Ok(watch.outcome().cloned())
}

/// Waits for the outcome of a run and answers its questions.
async fn await_outcome(client: &Client, trace_id: TraceId, who: Answerer) -> anyhow::Result<Outcome> {
    let mut watch = client.watch(trace_id).await?;
    let mut asked = Questions::new(who);
    while watch.outcome().is_none() {
        watch.next().await?;
        asked.ask(client, watch.questions()).await?;
    }
    watch.outcome().cloned().context("the outcome is missing")
}
