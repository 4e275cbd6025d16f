//! The tools of a worker: its own, and those of the MCP servers in its settings. Finds a tool by its name,
//! checks that the context may call it (I5), and calls it.

use std::{
    collections::HashSet,
    panic::AssertUnwindSafe,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use domain::{AgentId, Json, Problems, id::ToolName, problem::nearest, wire::Execute};
use futures_util::FutureExt;
use serde_json::{Value, json};

use super::{
    builtin::BuiltinTool,
    call::{Invocation, Observation, Outcome, journal_name},
    context, fs, http, human, mcp, spawn,
};
use crate::{
    model::ToolSpec,
    sandbox::Sandbox,
    secret::{self, GivenSecrets, Redactor, Values},
    settings::Settings,
};

/// The longest output that is passed on. A window has room for far less.
const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// The most agents whose missing tools are logged.
const MAX_TOLD: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Toolbox {
    /// `None` if the settings allow no host.
    http: Option<http::Getter>,
    servers: mcp::Servers,
    secrets: Arc<Values>,
    /// The agents whose missing tools were logged.
    told: Mutex<HashSet<AgentId>>,
}

#[derive(Debug)]
enum Tool<'a> {
    Builtin(BuiltinTool),
    Served { server: &'a mcp::Server, tool: &'a str },
}

impl Toolbox {
    /// Starts the MCP servers in the background, so that a slow or broken one does not delay the
    /// worker.
    pub(crate) async fn start(
        settings: &Settings,
        secrets: Arc<Values>,
        sandbox: Option<Sandbox>,
        directory: &Path,
    ) -> Result<Self, Problems> {
        let http = http::Getter::new(&settings.http, &settings.secrets, secrets.redactor().clone())?;
        let confinement = mcp::Confinement { sandbox, directory: directory.to_owned() };
        let servers = mcp::Servers::start(&settings.mcp, &secrets, &confinement);
        Ok(Toolbox { http, servers, secrets, told: Mutex::default() })
    }

    /// Waits until the MCP servers that a context may use have listed their tools, failed, or taken
    /// too long. Must be called before `specs`, so that a worker that has just started offers all
    /// its tools.
    pub(crate) async fn ready(&self, work: &Execute) {
        let wanted = |server: &str| match &work.tools {
            None => true,
            Some(tools) => tools.iter().any(|tool| mcp::is_tool_of(tool.as_str(), server)),
        };
        self.servers.ready(wanted).await;
    }

    /// An error for users about the first tool in a context's list that its server does not have.
    /// `None` if the server belongs to another worker, or has listed no tools yet.
    pub(crate) fn missing(&self, work: &Execute) -> Option<String> {
        let served = self.servers.specs();
        let is_missing = |tool: &&ToolName| {
            let Some((server, _)) = tool.as_str().split_once(':') else { return false };
            let mut listed =
                served.iter().filter(|spec| mcp::is_tool_of(spec.name.as_str(), server)).peekable();
            listed.peek().is_some() && listed.all(|spec| spec.name != **tool)
        };
        let name = work.tools.iter().flatten().find(is_missing)?.as_str();
        let hint = match nearest(name, served.iter().map(|spec| spec.name.as_str())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "the name is in `tools` of the profile, the submission or the spawn".into(),
        };
        Some(format!("the tool server has no tool `{name}`\n\nhint: {hint}"))
    }

    /// Logs the tools in a context's list whose servers this worker does not have. The agent runs
    /// without them.
    pub(crate) fn tell_absent(&self, work: &Execute) {
        let is_absent = |tool: &&str| {
            tool.split_once(':').is_some_and(|(server, _)| self.servers.named(server).is_none())
        };
        let names = work.tools.iter().flatten().map(ToolName::as_str);
        let absent: Vec<&str> = names.filter(is_absent).collect();
        // Once per agent, since thousands of contexts may run.
        let is_told = |agent: &AgentId| {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.len() >= MAX_TOLD || !told.insert(agent.clone())
        };
        if !absent.is_empty() && !is_told(&work.agent.agent_id) {
            let (agent, tools) = (work.agent.agent_id.as_str(), absent.join(", "));
            tracing::warn!(
                agent,
                tools,
                "an agent runs without some of its tools: the settings of this worker name no such MCP server"
            );
        }
    }

    /// The tools that a context may call, as they are described to its model.
    pub(crate) fn specs(&self, work: &Execute) -> Vec<ToolSpec> {
        let mut specs: Vec<ToolSpec> = self.builtins().map(BuiltinTool::spec).collect();
        specs.extend(self.servers.specs());
        specs.retain(|spec| is_allowed(work, &spec.name));
        specs.extend(self.unlisted(work));
        specs
    }

    /// The tools in a context's list whose server has listed no tools, because it has not started.
    /// A call of one waits for the server, or gets the reason.
    fn unlisted(&self, work: &Execute) -> impl Iterator<Item = ToolSpec> {
        let is_unlisted = |name: &&ToolName| {
            let server = name.as_str().split_once(':').and_then(|(server, _)| self.servers.named(server));
            server.is_some_and(mcp::Server::lists_nothing)
        };
        work.tools.iter().flatten().filter(is_unlisted).map(|name| ToolSpec {
            name: name.clone(),
            description: "Its server has not started. If it still has not, a call returns the reason.".into(),
            parameters: Json::from(json!({"type": "object"})),
        })
    }

    /// Makes one call. Repeated in a later attempt with the same `place`, it starts no second
    /// child.
    pub(crate) async fn call(&self, invocation: Invocation<'_>) -> Outcome {
        let outcome = AssertUnwindSafe(self.dispatch(invocation)).catch_unwind().await;
        match outcome {
            // The answer of a tool must not contain a secret (S8).
            Ok(Outcome::Answered(observation)) => {
                let text = cut(self.secrets.redactor().text(observation.text));
                Outcome::Answered(Observation { text, ..observation })
            }
            Ok(outcome @ (Outcome::Waits { .. } | Outcome::HandsOver { .. } | Outcome::Asks { .. })) => {
                outcome
            }
            Err(_) => {
                tracing::error!(tool = invocation.tool, "a tool panicked");
                let text = format!("`{}` failed because of a bug in the worker", invocation.tool);
                Outcome::Answered(Observation::new(journal_name(invocation.tool), Err(text)))
            }
        }
    }

    /// Calls a tool of an MCP server for a check (B16), even if the context may not call it.
    pub(crate) async fn call_server(&self, tool: &ToolName, arguments: &Value) -> Result<String, String> {
        match self.find(tool.as_str()) {
            Some(Tool::Served { server, tool }) => server.call(tool, arguments, None).await,
            Some(Tool::Builtin(_)) | None => Err(format!("this worker has no MCP tool `{tool}`")),
        }
    }

    async fn dispatch(&self, invocation: Invocation<'_>) -> Outcome {
        let Invocation { attempt, tool: name, .. } = invocation;
        let work = &attempt.work;
        let Some(tool) = self.find(name) else {
            return Outcome::Answered(Observation::new(
                journal_name(name),
                Err(self.unknown_tool(work, name)),
            ));
        };
        let tool_name = journal_name(name);
        if !is_allowed(work, &tool_name) {
            return Outcome::Answered(Observation::new(tool_name, Err(self.not_allowed(work, name))));
        }
        let given = GivenSecrets { values: &self.secrets, work, tool: name };
        match tool {
            Tool::Builtin(builtin) => self.builtin(builtin, invocation, given).await,
            Tool::Served { server, tool } => {
                let arguments = match given.fill_value(invocation.arguments) {
                    Ok(arguments) => arguments,
                    Err(why) => return Outcome::Answered(Observation::new(tool_name, Err(why))),
                };
                // The tool of a server may have any effect, so the lease must be valid.
                attempt.lease.live().await;
                Outcome::Answered(Observation::new(
                    tool_name,
                    server.call(tool, &arguments, attempt.traceparent()).await,
                ))
            }
        }
    }

    async fn builtin(
        &self,
        builtin: BuiltinTool,
        invocation: Invocation<'_>,
        given: GivenSecrets<'_>,
    ) -> Outcome {
        let has_secret = !given.work.secrets.is_empty() && secret::is_in(invocation.arguments);
        let output = match builtin {
            _ if has_secret && !builtin.passes_secrets_on() => {
                let hint = "only the tools that a secret's settings list can send it";
                Err(format!("`{}` can't use a secret: the call was not made\n\nhint: {hint}", builtin.text()))
            }
            BuiltinTool::Spawn => return spawn::call(spawn::Kind::Spawn, invocation).await,
            BuiltinTool::Delegate => return spawn::call(spawn::Kind::Delegate, invocation).await,
            BuiltinTool::RunPipeline => return spawn::call(spawn::Kind::Pipeline, invocation).await,
            BuiltinTool::AskHuman => return human::ask(invocation),
            BuiltinTool::FsRead => fs::read(invocation),
            BuiltinTool::FsWrite => fs::write(invocation).await,
            BuiltinTool::FsList => fs::list(invocation),
            BuiltinTool::ReadContext => context::read(invocation).await,
            BuiltinTool::WriteContext => context::write(invocation).await,
            BuiltinTool::HttpGet => match &self.http {
                Some(getter) => getter.get(invocation, given).await,
                None => Err("this worker's settings allow no host".into()),
            },
        };
        Outcome::Answered(Observation::new(builtin.name(), output))
    }

    fn builtins(&self) -> impl Iterator<Item = BuiltinTool> {
        let http_allowed = self.http.is_some();
        BuiltinTool::ALL.iter().copied().filter(move |tool| *tool != BuiltinTool::HttpGet || http_allowed)
    }

    fn find<'a>(&'a self, name: &'a str) -> Option<Tool<'a>> {
        if let Some(builtin) = self.builtins().find(|tool| tool.text() == name) {
            return Some(Tool::Builtin(builtin));
        }
        let (server, tool) = name.split_once(':')?;
        ToolName::new(name).ok()?;
        Some(Tool::Served { server: self.servers.named(server)?, tool })
    }

    fn unknown_tool(&self, work: &Execute, name: &str) -> String {
        let shown: String = name.chars().take(80).collect();
        let names: Vec<ToolName> = self.specs(work).into_iter().map(|spec| spec.name).collect();
        match nearest(name, names.iter().map(ToolName::as_str)) {
            Some(near) => format!("there is no tool `{shown}`\n\nhint: did you mean `{near}`?"),
            None => format!("there is no tool `{shown}`\n\nhint: {}", list_of(&names)),
        }
    }

    fn not_allowed(&self, work: &Execute, name: &str) -> String {
        let names: Vec<ToolName> = self.specs(work).into_iter().map(|spec| spec.name).collect();
        format!("`{name}` is not among the tools of this context\n\nhint: {}", list_of(&names))
    }

    /// The redactor for the worker's secrets.
    pub(crate) fn redactor(&self) -> &Redactor {
        self.secrets.redactor()
    }

    /// Ends the MCP servers.
    pub(crate) async fn stop(&self) {
        self.servers.stop().await;
    }
}

/// Returns true if a context may call a tool (I5). A context without a list may call all tools.
fn is_allowed(work: &Execute, tool: &ToolName) -> bool {
    work.tools.as_ref().is_none_or(|tools| tools.contains(tool))
}

/// Returns true if a context may call one of the worker's own tools.
pub(crate) fn may_call(work: &Execute, tool: &str) -> bool {
    work.tools.as_ref().is_none_or(|tools| tools.contains(tool))
}

fn list_of(names: &[ToolName]) -> String {
    match names {
        [] => "this context has no tools".into(),
        names => {
            let names: Vec<&str> = names.iter().map(ToolName::as_str).collect();
            format!("its tools are {}", names.join(", "))
        }
    }
}

fn cut(text: String) -> String {
    if text.len() <= MAX_OUTPUT_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MAX_OUTPUT_BYTES);
    format!("{}\n[cut here: {end} of {} bytes are shown]", &text[..end], text.len())
}
