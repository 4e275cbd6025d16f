//! Tools: what an agent may do besides talking. Whether it may is decided at each call, by the set its
//! context was given, whatever its prompt says (I5). What goes wrong is an observation for the agent,
//! never the end of it.

mod arguments;
mod builtin;
mod context;
mod fs;
mod http;
mod human;
mod mcp;
mod spawn;

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use serde_json::Value;
use shared::{
    ChildId, Problems,
    id::ToolName,
    problem::nearest,
    wire::{SharedMessage, Text},
};

use crate::{agent::Run, files::workspace::Workspace, model::ToolSpec, settings::Settings};
use builtin::Builtin;

/// As much of what a tool says as is handed on; a window holds far less.
const MOST_BYTES: usize = 1 << 20;

/// The tools of a worker: its own, and those of the servers it was told of.
#[derive(Debug)]
pub(crate) struct Toolbox {
    /// None if nothing may be reached.
    http: Option<http::Getter>,
    servers: mcp::Servers,
}

/// One call of a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Invocation<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) workspace: &'a Workspace,
    /// As the model spelled it.
    pub(crate) tool: &'a str,
    pub(crate) arguments: &'a Value,
    /// Names this call within its context, the same at every attempt: a child it starts is named by it.
    pub(crate) place: &'a str,
    /// What of the caller's window a spawn may copy (W3).
    pub(crate) shareable: &'a [SharedMessage],
    /// How many questions of this context came before this call.
    pub(crate) questions_before: usize,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    Said(Observation),
    /// The call is answered when this child has ended.
    Waits {
        child: ChildId,
    },
    /// This child's result is to be the caller's own.
    HandsOver {
        child: ChildId,
    },
    /// The call is answered when a human has answered.
    Asks {
        question: Text,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Observation {
    /// What was called; `agent:spawn` for whatever starts a child (I2).
    pub(crate) tool: ToolName,
    pub(crate) text: String,
    pub(crate) is_error: bool,
    /// For people: what was done.
    pub(crate) note: Option<String>,
}

/// What a tool said, or what went wrong with it: both are for the agent to read.
type Said = Result<String, String>;

#[derive(Debug)]
enum Tool<'a> {
    Builtin(Builtin),
    Served { server: &'a mcp::Server, tool: &'a str },
}

impl Toolbox {
    /// Servers start in the background: a slow or broken one does not keep the worker from working.
    pub(crate) async fn start(settings: &Settings) -> Result<Self, Problems> {
        Ok(Toolbox { http: http::Getter::new(&settings.http)?, servers: mcp::Servers::start(&settings.mcp) })
    }

    /// Waits until the servers a context may use have told their tools, or failed, or take too long:
    /// what comes before `specs`, so that a worker that has just started offers what it has.
    pub(crate) async fn ready(&self, run: &Run<'_>) {
        let wanted = |server: &str| match &run.work.tools {
            None => true,
            Some(tools) => tools.iter().any(|tool| mcp::is_of(tool.as_str(), server)),
        };
        self.servers.ready(wanted).await;
    }

    /// The tools a context may call, as a model is told of them.
    pub(crate) fn specs(&self, run: &Run<'_>) -> Vec<ToolSpec> {
        let mut specs: Vec<ToolSpec> = self.builtins().map(Builtin::spec).collect();
        specs.extend(self.servers.specs());
        specs.retain(|spec| may(run, &spec.name));
        specs
    }

    /// Answers one call. Asked again in a later attempt with the same `place`, it starts no second child.
    pub(crate) async fn call(&self, invocation: Invocation<'_>) -> Outcome {
        let outcome = AssertUnwindSafe(self.answer(invocation)).catch_unwind().await;
        match outcome {
            Ok(Outcome::Said(said)) => Outcome::Said(Observation { text: cut(said.text), ..said }),
            Ok(outcome @ (Outcome::Waits { .. } | Outcome::HandsOver { .. } | Outcome::Asks { .. })) => {
                outcome
            }
            Err(_) => {
                tracing::error!(tool = invocation.tool, "a tool panicked");
                let text = format!("`{}` broke; this is a mistake in the worker", invocation.tool);
                Outcome::Said(Observation::of(spelled(invocation.tool), Err(text)))
            }
        }
    }

    async fn answer(&self, invocation: Invocation<'_>) -> Outcome {
        let Invocation { run, tool: name, .. } = invocation;
        let Some(tool) = self.find(name) else {
            return Outcome::Said(Observation::of(spelled(name), Err(self.no_such(run, name))));
        };
        let tool_name = spelled(name);
        if !may(run, &tool_name) {
            return Outcome::Said(Observation::of(tool_name, Err(self.not_allowed(run, name))));
        }
        match tool {
            Tool::Builtin(builtin) => self.builtin(builtin, invocation).await,
            Tool::Served { server, tool } => {
                // What a server's tool changes, nobody here knows.
                run.keeper.live().await;
                Outcome::Said(Observation::of(tool_name, server.call(tool, invocation.arguments).await))
            }
        }
    }

    async fn builtin(&self, builtin: Builtin, invocation: Invocation<'_>) -> Outcome {
        let said = match builtin {
            Builtin::Spawn | Builtin::Delegate | Builtin::RunPipeline => {
                return spawn::call(builtin, invocation).await;
            }
            Builtin::AskHuman => return human::ask(invocation),
            Builtin::FsRead => fs::read(invocation),
            Builtin::FsWrite => fs::write(invocation).await,
            Builtin::FsList => fs::list(invocation),
            Builtin::ReadContext => context::read(invocation).await,
            Builtin::WriteContext => context::write(invocation).await,
            Builtin::HttpGet => match &self.http {
                Some(getter) => getter.get(invocation).await,
                None => Err("this worker may reach nothing".into()),
            },
        };
        Outcome::Said(Observation::of(builtin.name(), said))
    }

    fn builtins(&self) -> impl Iterator<Item = Builtin> {
        let reaches = self.http.is_some();
        Builtin::ALL.into_iter().filter(move |tool| *tool != Builtin::HttpGet || reaches)
    }

    fn find<'a>(&'a self, name: &'a str) -> Option<Tool<'a>> {
        if let Some(builtin) = self.builtins().find(|tool| tool.text() == name) {
            return Some(Tool::Builtin(builtin));
        }
        let (server, tool) = name.split_once(':')?;
        ToolName::new(name).ok()?;
        Some(Tool::Served { server: self.servers.named(server)?, tool })
    }

    fn no_such(&self, run: &Run<'_>, name: &str) -> String {
        let shown: String = name.chars().take(80).collect();
        let names: Vec<ToolName> = self.specs(run).into_iter().map(|spec| spec.name).collect();
        match nearest(name, names.iter().map(ToolName::as_str)) {
            Some(near) => format!("there is no tool `{shown}`\n\nhint: did you mean `{near}`?"),
            None => format!("there is no tool `{shown}`\n\nhint: {}", listed(&names)),
        }
    }

    fn not_allowed(&self, run: &Run<'_>, name: &str) -> String {
        let names: Vec<ToolName> = self.specs(run).into_iter().map(|spec| spec.name).collect();
        format!("`{name}` is not among the tools of this context (I5)\n\nhint: {}", listed(&names))
    }

    /// Ends what was started.
    pub(crate) async fn stop(&self) {
        self.servers.stop().await;
    }
}

impl Observation {
    fn of(tool: ToolName, said: Said) -> Self {
        let is_error = said.is_err();
        let (Ok(text) | Err(text)) = said;
        Observation { tool, text, is_error, note: None }
    }
}

/// Absent means all.
fn may(run: &Run<'_>, tool: &ToolName) -> bool {
    run.work.tools.as_ref().is_none_or(|tools| tools.contains(tool))
}

/// The name as it goes into the journal, whatever the model made of it.
fn spelled(name: &str) -> ToolName {
    ToolName::new(name).unwrap_or_else(|_| ToolName::new("unknown").expect("a literal that fits the grammar"))
}

fn listed(names: &[ToolName]) -> String {
    match names {
        [] => "it has no tools at all".into(),
        names => {
            let names: Vec<&str> = names.iter().map(ToolName::as_str).collect();
            format!("its tools are {}", names.join(", "))
        }
    }
}

fn cut(text: String) -> String {
    if text.len() <= MOST_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(MOST_BYTES);
    format!("{}\n[cut here: {end} of {} bytes are shown]", &text[..end], text.len())
}
