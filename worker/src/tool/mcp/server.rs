//! One MCP server, as its callers see it: waits until it can be used, checks the arguments, and
//! calls its tools.

use std::time::Duration;

use domain::{problem::nearest, wording::with_causes};
use rmcp::{
    ServiceError,
    model::{CallToolRequestParams, RequestParamsMeta},
};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    content,
    offer::{Offer, Tools},
    supervise::State,
};
use crate::{secret::Redactor, tool::call::Output};

/// The time for which an agent waits for a server that is starting, at its own start and at each
/// call.
pub(super) const START_WAIT: Duration = Duration::from_secs(20);

/// One server, as its callers see it.
#[derive(Debug)]
pub(in crate::tool) struct Server {
    pub(super) name: String,
    pub(super) timeout: Duration,
    pub(super) state: watch::Receiver<State>,
    pub(super) tools: Tools,
    pub(super) secrets: Redactor,
    /// Cancelled once the first start has succeeded or failed.
    pub(super) first_start_done: CancellationToken,
    /// The time until which an agent waits for that. After it the agent starts without the server's
    /// tools.
    pub(super) wait_until: Instant,
}

impl Server {
    /// Returns true if the server has not listed any tools yet.
    pub(in crate::tool) fn lists_nothing(&self) -> bool {
        self.tools.get().is_empty()
    }

    /// Calls a tool. With `traceparent`, the server gets the trace that the call belongs to.
    pub(in crate::tool) async fn call(
        &self,
        tool: &str,
        given: &Value,
        traceparent: Option<String>,
    ) -> Output {
        let output = self.call_unredacted(tool, given, traceparent).await;
        output.map(|text| self.secrets.text(text)).map_err(|text| self.secrets.text(text))
    }

    async fn call_unredacted(&self, tool: &str, given: &Value, traceparent: Option<String>) -> Output {
        let link = match self.wait_until_started().await {
            State::Up(link) => link,
            State::Down(why) => return Err(format!("the server `{}` can't be used now: {why}", self.name)),
            State::Starting => return Err(format!("the server `{}` has not started yet", self.name)),
        };
        let tools = self.tools.get();
        let Some(offer) = tools.iter().find(|offer| offer.tool == tool) else {
            return Err(self.unknown_tool(&tools, tool));
        };
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(offer.arguments(given)?);
        if let Some(traceparent) = traceparent {
            params.set_traceparent(&traceparent);
        }
        match tokio::time::timeout(self.timeout, link.peer.call_tool(params)).await {
            Ok(Ok(result)) => content::to_text(result),
            Ok(Err(ServiceError::McpError(error))) => {
                Err(format!("the server `{}` answered with an error: {}", self.name, error.message))
            }
            Ok(Err(error)) => {
                link.broken.cancel();
                let last = link.last_error_lines();
                Err(format!(
                    "the connection to the server `{}` broke during the call; whether the call had an effect is not known: {}{last}",
                    self.name,
                    with_causes(&error)
                ))
            }
            Err(_) => {
                if !link.answers_ping().await {
                    link.broken.cancel();
                }
                let ms = self.timeout.as_millis();
                Err(format!(
                    "`{}` did not answer within {ms} ms; whether the call had an effect is not known\n\nhint: `timeout_ms` of `mcp.{}` in the settings of the worker gives it more time",
                    offer.spec.name, self.name
                ))
            }
        }
    }

    /// The state once a start has succeeded or failed; `Starting` if that takes too long.
    async fn wait_until_started(&self) -> State {
        let mut state = self.state.clone();
        // A broken connection is treated as starting: the supervisor will notice it soon and start
        // the server again.
        let settled = state.wait_for(|state| match state {
            State::Starting => false,
            State::Up(link) => link.is_usable(),
            State::Down(_) => true,
        });
        match tokio::time::timeout(START_WAIT, settled).await {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) => State::Down("the worker is stopping".into()),
            Err(_) => State::Starting,
        }
    }

    fn unknown_tool(&self, tools: &[Offer], tool: &str) -> String {
        let name = &self.name;
        let hint = match nearest(tool, tools.iter().map(|offer| offer.tool.as_str())) {
            Some(near) => format!("did you mean `{name}:{near}`?"),
            None => {
                let names: Vec<String> = tools.iter().map(|offer| offer.spec.name.to_string()).collect();
                format!("its tools are {}", names.join(", "))
            }
        };
        format!("the server `{name}` has no tool `{tool}`\n\nhint: {hint}")
    }
}
