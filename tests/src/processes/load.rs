//! A client that continues while servers fail: it sends each message again until the message is
//! stored.

use std::time::Duration;

use bus::Outgoing;
use domain::{ChildId, TraceId, span::Headers, subject::Subject, wire::Outcome};
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use super::{PATIENCE, Processes};

pub fn fresh_trace() -> TraceId {
    TraceId::from_u128(Uuid::new_v4().as_u128()).expect("a UUID has version bits")
}

impl Processes {
    /// Publishes until the message is stored, with the same message id each time.
    pub async fn tell(&self, subject: Subject, message: &Value) {
        let id = Some(fresh_trace().to_string());
        let payload = serde_json::to_vec(message).expect("JSON");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = Outgoing {
                subject: subject.clone(),
                id: id.clone(),
                headers: Headers::new(),
                payload: payload.clone().into(),
                expect_last: None,
            };
            match self.client.bus.publish(message).await {
                Ok(_) => return,
                Err(error) => assert!(Instant::now() < deadline, "{subject}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Submits a run under a fixed id, so that repeated submissions are one run.
    pub async fn begin(&self, message: Value) -> TraceId {
        let trace_id = fresh_trace();
        self.begin_as(trace_id, message).await;
        trace_id
    }

    pub async fn begin_as(&self, trace_id: TraceId, mut message: Value) {
        message["trace_id"] = trace_id.to_string().into();
        let subject = if message.get("steps").is_some() { Subject::Graph } else { Subject::Spawn };
        self.tell(subject, &message).await;
    }

    pub async fn cancel(&self, trace_id: TraceId) {
        self.tell(Subject::Cancel, &serde_json::json!({"trace_id": trace_id})).await;
    }

    pub async fn outcome(&self, trace_id: TraceId) -> Outcome {
        self.client.outcome(trace_id, &root()).await
    }

    /// Waits until a condition holds for a trace replayed from its event log.
    pub async fn until(&self, trace_id: TraceId, what: &str, is: impl Fn(&trace::Trace) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let trace = self.client.trace(trace_id).await;
            if is(&trace) {
                return;
            }
            assert!(Instant::now() < deadline, "never {what}: {trace:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(super) fn root() -> ChildId {
    ChildId::new("root").expect("a valid literal")
}
