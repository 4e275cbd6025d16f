//! The task of `run` and `submit`: a file or a goal, with the options that override the file.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use client::{Client, Submission};
use domain::{
    AgentId, AgentProfile, Tokens, Usd, decode,
    id::{LabelKey, LabelValue},
};
use serde_json::{Map, json};

use crate::{
    input::{
        context_ref::{self, WrittenRef},
        document::{Document, FileError},
        inputs::Inputs,
        parse, profiles,
        sources::Sources,
        use_files::read_as_far,
    },
    terminal::{
        ending::Ending,
        output::{self, Output},
    },
};

#[derive(Debug, clap::Args)]
pub(crate) struct Task {
    /// A task graph (or a spawn message): YAML, JSON or TOML; `-` is stdin.
    #[arg(required_unless_present_any = ["goal", "agent"], conflicts_with = "goal")]
    pub(crate) file: Option<PathBuf>,
    /// Run one agent with this goal instead.
    #[arg(long, value_name = "TEXT")]
    goal: Option<String>,
    /// The agent of the goal; by default, `default`.
    #[arg(long, value_name = "ID")]
    agent: Option<AgentId>,
    #[command(flatten)]
    inputs: Inputs,
    /// Cost limit of the run, in dollars; overrides the file.
    #[arg(long, value_name = "USD", value_parser = parse::usd, allow_hyphen_values = true)]
    max_cost_usd: Option<Usd>,
    /// Token limit of the run; overrides the file.
    #[arg(long, value_name = "N", value_parser = parse::tokens)]
    max_tokens: Option<Tokens>,
    /// Refuse a graph whose worst case exceeds its cost limit.
    ///
    /// `trellis graphs plan` shows the worst case.
    #[arg(long, hide_short_help = true)]
    must_fit: bool,
    /// Time limit of the run from its submission, such as 30s or 10m; overrides the file.
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    timeout: Option<Duration>,
    /// Begin with an agent's journal up to this entry, without paying for it again.
    ///
    /// Without CHILD, the root's journal; `trellis history` shows the entries.
    #[arg(long, hide_short_help = true, value_name = "TRACE[/CHILD]@STEP", value_parser = context_ref::checkpoint)]
    branch_from: Option<WrittenRef>,
    /// A label of the run, besides those of the file; may be given more than once.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::label)]
    label: Vec<(LabelKey, LabelValue)>,
    /// Agent profiles to apply first: YAML, JSON or TOML.
    ///
    /// Without servers, `agents.yaml` (or .yml, .json, .toml) in the directory of the file is applied if it
    /// exists. A cluster has profiles of its own: only the profiles of this option are applied to it.
    #[arg(long, value_name = "FILE")]
    agents: Option<PathBuf>,
}

impl Task {
    /// Reads the submission and its sources. If there are mistakes, prints them and returns the
    /// ending. With `alone`, no server stores graphs that the task could use by name.
    pub(crate) fn read(
        &self,
        alone: bool,
        output: Output,
    ) -> anyhow::Result<Result<(Submission, Sources), Ending>> {
        if let (Some(agent), None) = (&self.agent, &self.goal) {
            anyhow::bail!(
                "--agent {agent} needs --goal\n\nhint: add --goal TEXT; without --agent, the file names its agents"
            );
        }
        let (path, document) = match (&self.file, &self.goal) {
            (Some(path), _) => (path.as_path(), read_as_far(path)),
            (None, goal) => {
                let made = Document::made(json!({"goal": goal, "agent_id": self.agent}));
                (Path::new("--goal"), Ok(made))
            }
        };
        let read = document.and_then(|document| {
            let document = self.merged(document)?;
            let submission = if alone { submission(&document)? } else { submission_to_send(&document)? };
            Ok((submission, document.sources))
        });
        match read {
            Ok(read) => Ok(Ok(read)),
            Err(unusable) if self.file.is_some() => unusable.report(path, output).map(Err),
            Err(unusable) => anyhow::bail!("the goal is not a valid submission\n\n{unusable}"),
        }
    }

    /// Applies the options of the command line, which override the file.
    fn merged(&self, mut document: Document) -> Result<Document, FileError> {
        let Some(fields) = document.value.as_object_mut() else { return Ok(document) };
        if let Some(usd) = self.max_cost_usd {
            fields.insert("max_cost_usd".into(), json!(usd));
            document.sources.option("max_cost_usd", "--max-cost-usd");
        }
        if let Some(tokens) = self.max_tokens {
            fields.insert("max_tokens".into(), json!(tokens));
            document.sources.option("max_tokens", "--max-tokens");
        }
        if self.must_fit {
            fields.insert("must_fit".into(), json!(true));
        }
        if let Some(timeout) = self.timeout {
            fields.insert("timeout_ms".into(), json!(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)));
            document.sources.option("timeout_ms", "--timeout");
        }
        if let Some(from) = &self.branch_from {
            // The run's id may need a lookup; [`Task::settle`] sets it.
            fields.insert("branch_from".into(), json!(from.unsettled()));
        }
        if !self.label.is_empty()
            && let Some(labels) = fields.entry("labels").or_insert_with(|| Map::new().into()).as_object_mut()
        {
            for (key, value) in &self.label {
                labels.insert(key.to_string(), json!(value));
                document.sources.option(&format!("labels.{key}"), "--label");
            }
        }
        self.inputs.put(&mut document)?;
        Ok(document)
    }

    /// Looks up the run of `--branch-from`, which only a cluster can do.
    pub(crate) async fn settle(&self, submission: &mut Submission, client: &Client) -> anyhow::Result<()> {
        if let (Some(named), Submission::Spawn(spawn)) = (&self.branch_from, submission) {
            spawn.branch_from = Some(context_ref::find_checkpoint(client, named).await?);
        }
        Ok(())
    }

    /// True if the user names the file of agents.
    pub(crate) fn names_agents(&self) -> bool {
        self.agents.is_some()
    }

    /// The profiles to apply first. If they can't be read, prints the mistakes and returns the
    /// ending.
    pub(crate) fn profiles(&self, embedded: bool) -> anyhow::Result<Result<Vec<AgentProfile>, Ending>> {
        let agents = match &self.agents {
            Some(path) => match profiles::read(path) {
                Ok(agents) => agents,
                Err(unusable) => return Ok(Err(profiles::explain(&unusable, path))),
            },
            None if embedded => match self.file.as_deref().and_then(profiles::beside) {
                Some(path) => match profiles::read(&path) {
                    Ok(agents) => {
                        output::note(&format!("agents from {}", path.display()));
                        agents
                    }
                    Err(unusable) => return Ok(Err(profiles::explain(&unusable, &path))),
                },
                None => Vec::new(),
            },
            None => Vec::new(),
        };
        Ok(Ok(agents))
    }
}

/// A message as a submission: a spawn if it has a goal and no steps, else a graph.
fn submission(document: &Document) -> Result<Submission, FileError> {
    match spawn(document) {
        Some(spawn) => spawn,
        None => document.graph().map(|(graph, _)| Submission::graph(graph)),
    }
}

/// As [`submission`], for a cluster that stores the graphs used by name.
pub(crate) fn submission_to_send(document: &Document) -> Result<Submission, FileError> {
    match spawn(document) {
        Some(spawn) => spawn,
        None => document.graph_to_send().map(Submission::graph),
    }
}

fn spawn(document: &Document) -> Option<Result<Submission, FileError>> {
    let value = &document.value;
    let is_spawn = value.get("goal").is_some() && value.get("steps").is_none();
    is_spawn.then(|| document.checked(decode::value(value).map(Submission::spawn)))
}
