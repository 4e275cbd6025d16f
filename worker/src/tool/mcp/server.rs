//! One MCP server, from the side of those who call it: waits until it can be used, checks the arguments, and calls
//! its tools.

use std::time::Duration;

use rmcp::{ServiceError, model::CallToolRequestParams};
use serde_json::Value;
use shared::{problem::nearest, text::with_causes};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    content,
    offer::{Offer, Tools},
    secrets::Secrets,
    supervise::State,
};
use crate::tool::call::Output;

/// How long an agent that begins, or calls, waits for a server that is just starting.
pub(super) const STARTING: Duration = Duration::from_secs(20);

/// One server, as those who call it see it.
#[derive(Debug)]
pub(in crate::tool) struct Server {
    pub(super) name: String,
    pub(super) timeout: Duration,
    pub(super) state: watch::Receiver<State>,
    pub(super) tools: Tools,
    pub(super) secrets: Secrets,
    /// Cancelled once a start has succeeded or failed.
    pub(super) tried: CancellationToken,
    /// How long that may be waited for before an agent begins without its tools.
    pub(super) patience: Instant,
}

impl Server {
    pub(in crate::tool) async fn call(&self, tool: &str, given: &Value) -> Output {
        let said = self.answer(tool, given).await;
        said.map(|text| self.secrets.redact(text)).map_err(|text| self.secrets.redact(text))
    }

    async fn answer(&self, tool: &str, given: &Value) -> Output {
        let link = match self.settled().await {
            State::Up(link) => link,
            State::Down(why) => return Err(format!("the server `{}` can't be used now: {why}", self.name)),
            State::Starting => return Err(format!("the server `{}` has not started yet", self.name)),
        };
        let tools = self.tools.get();
        let Some(offer) = tools.iter().find(|offer| offer.tool == tool) else {
            return Err(self.no_such(&tools, tool));
        };
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(offer.arguments(given)?);
        match tokio::time::timeout(self.timeout, link.peer.call_tool(params)).await {
            Ok(Ok(result)) => content::said(result),
            Ok(Err(ServiceError::McpError(error))) => Err(format!("`{}` says: {}", self.name, error.message)),
            Ok(Err(error)) => {
                link.broken.cancel();
                let last = link.last_words();
                Err(format!(
                    "the server `{}` broke off; what it did is not known: {}{last}",
                    self.name,
                    with_causes(&error)
                ))
            }
            Err(_) => {
                if !link.answers().await {
                    link.broken.cancel();
                }
                let ms = self.timeout.as_millis();
                Err(format!("`{}` did not answer within {ms} ms; what it did is not known", offer.spec.name))
            }
        }
    }

    /// The state once a start has succeeded or failed; `Starting` if that takes too long.
    async fn settled(&self) -> State {
        let mut state = self.state.clone();
        // A connection that is found broken is as good as starting: whoever keeps it is about to see it.
        let settled = state.wait_for(|state| match state {
            State::Starting => false,
            State::Up(link) => link.stands(),
            State::Down(_) => true,
        });
        match tokio::time::timeout(STARTING, settled).await {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) => State::Down("the worker is ending".into()),
            Err(_) => State::Starting,
        }
    }

    fn no_such(&self, tools: &[Offer], tool: &str) -> String {
        let name = &self.name;
        let hint = match nearest(tool, tools.iter().map(|offer| offer.tool.as_str())) {
            Some(near) => format!("did you mean `{name}:{near}`?"),
            None => {
                let names: Vec<String> = tools.iter().map(|offer| offer.spec.name.to_string()).collect();
                format!("it has {}", names.join(", "))
            }
        };
        format!("the server `{name}` has no tool `{tool}`\n\nhint: {hint}")
    }
}
