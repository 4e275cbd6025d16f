//! Messages that steer a run, and their effect. A message is stored when its send returns; its
//! effect appears in the log later.

use std::time::Duration;

use domain::{
    ChildId, TraceId,
    subject::Subject,
    wire::{Cancel, Control, Text},
};
use tokio::time::{Instant, sleep};
use trace::Trace;

use crate::{Client, Error};

/// The time within which a published message shows its effect in the log.
pub const TAKES_EFFECT: Duration = Duration::from_secs(5);
/// The pause between two reads of the log.
const PAUSE: Duration = Duration::from_millis(200);

impl Client {
    /// Sends each part of an administrator's control on its own subject.
    pub async fn control(&self, control: &Control) -> Result<(), Error> {
        for subject in Subject::of_control(control) {
            self.publish(subject, control).await?;
        }
        Ok(())
    }

    pub async fn cancel(
        &self,
        trace_id: TraceId,
        child_id: Option<ChildId>,
        reason: Option<Text>,
        without_undo: bool,
    ) -> Result<(), Error> {
        self.publish(Subject::Cancel, &Cancel { trace_id, child_id, reason, without_undo }).await
    }

    /// Replays a run until a condition holds or [`TAKES_EFFECT`] has passed. Returns the last
    /// state, and true if the condition held.
    pub async fn until(
        &self,
        trace_id: TraceId,
        holds: impl Fn(&Trace) -> bool,
    ) -> Result<(Trace, bool), Error> {
        let started = Instant::now();
        loop {
            let trace = self.find(trace_id).await?.unwrap_or_else(|| Trace::new(trace_id));
            if holds(&trace) {
                return Ok((trace, true));
            }
            if started.elapsed() >= TAKES_EFFECT {
                return Ok((trace, false));
            }
            sleep(PAUSE).await;
        }
    }
}
