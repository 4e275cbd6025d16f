//! The requests to a worker. On `agent.worker` any client may ask it to describe itself. On
//! `agent.drain` a coordinator asks it to drain, for an administrator.

use std::sync::Arc;

use bus::{Bus, Message};
use domain::{
    Problems, Timestamp, decode,
    subject::Subject,
    wire::{Drain, Refusal, WorkerCall, WorkerState},
};

use crate::{config::Config, delivery::skew::Skew};

/// A request to a worker.
enum AdminRequest {
    Describe,
    Drain(Drain),
}

/// Decodes a request. Only coordinators may send on the subject for drains, so a drain is accepted
/// on no other.
fn asked(message: &Message) -> Result<AdminRequest, Problems> {
    message.genuine()?;
    if message.subject == Subject::Drain {
        return decode::from_peer(&message.payload).map(AdminRequest::Drain);
    }
    decode::from_peer(&message.payload).map(|WorkerCall::Describe| AdminRequest::Describe)
}

/// The facts that a worker reports about itself.
#[derive(Debug)]
pub(crate) struct Description {
    started_at: Timestamp,
    skew: Arc<Skew>,
}

impl Description {
    pub(crate) fn new(config: &Config, skew: Arc<Skew>) -> Self {
        Description { started_at: config.clock.now(), skew }
    }

    /// Answers an admin request. Returns true if the worker must drain. A second request to drain
    /// has no effect.
    pub(crate) async fn answer(
        &self,
        bus: &Bus,
        config: &Config,
        message: &Message,
        running: usize,
        draining: bool,
    ) -> bool {
        let must_drain = match asked(message) {
            Ok(AdminRequest::Describe) => false,
            Ok(AdminRequest::Drain(drain)) if drain.worker_id == config.id => true,
            Ok(AdminRequest::Drain(_)) => return false,
            Err(problems) => {
                tracing::debug!(%problems, "the problems in the message");
                tracing::warn!("received an invalid admin request");
                self.refuse(bus, message, &problems).await;
                return false;
            }
        };
        if let Some(to) = &message.reply_to {
            let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
            let servers = config.settings.mcp.keys().filter(|server| config.policy.allows_server(server));
            let state = WorkerState {
                worker_id: config.id.clone(),
                pool: config.pool.clone(),
                slots: count(config.slots),
                running: count(running),
                draining: draining || must_drain,
                version: env!("CARGO_PKG_VERSION").into(),
                started_at: self.started_at,
                clock_ahead_ms: self.skew.ahead_ms(),
                policy: config.policy.summary(),
                policy_digest: config.policy.digest(),
                spans_dropped: telemetry::spans_dropped(),
                mcp_servers: Some(servers.cloned().collect()),
            };
            let payload = serde_json::to_vec(&state).expect("a message has string keys").into();
            if let Err(error) = bus.reply(to, payload).await {
                tracing::warn!(%error, "the answer to an admin request could not be sent");
            }
        }
        must_drain
    }

    /// Replies with the problems. It stores no dead letter: every worker receives an admin request,
    /// and each would store one.
    async fn refuse(&self, bus: &Bus, message: &Message, problems: &Problems) {
        let Some(to) = &message.reply_to else { return };
        let refusal = Refusal::invalid(problems);
        let payload = serde_json::to_vec(&refusal).expect("a message has string keys").into();
        if let Err(error) = bus.reply(to, payload).await {
            tracing::warn!(%error, "the answer to an admin request could not be sent");
        }
    }
}
