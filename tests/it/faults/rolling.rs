//! An upgrade: every process of a fleet is replaced by another one, while runs continue.
//!
//! Without `TRELLIS_OLD_BINARY` both processes run the built program. The variable names the
//! program of the previous version.

use std::{path::PathBuf, time::Duration};

use bus::{Bus, Outgoing};
use domain::{
    TraceId,
    span::Headers,
    subject::{Filter, Subject},
    wire::EndStatus,
};
use serde_json::Value;
use tokio::task::JoinHandle;
use trellis_tests::processes::{Processes, Shape, fresh_trace};

use super::mixed;

/// Jobs published while one process is replaced: 200 for five processes.
const JOBS: usize = 40;
const PACE: Duration = Duration::from_millis(50);

/// A separate client, which publishes jobs during the replacements.
fn submit(bus: Bus) -> JoinHandle<Vec<TraceId>> {
    tokio::spawn(async move {
        let mut runs = Vec::new();
        for number in 0..JOBS {
            let trace_id = fresh_trace();
            let mut job = mixed(number);
            job["trace_id"] = Value::from(trace_id.to_string());
            let subject = if job.get("steps").is_some() { Subject::Graph } else { Subject::Spawn };
            let payload = serde_json::to_vec(&job).unwrap().into();
            let id = Some(trace_id.to_string());
            let message = Outgoing { subject, id, headers: Headers::new(), payload, expect_last: None };
            bus.publish(message).await.unwrap();
            runs.push(trace_id);
            tokio::time::sleep(PACE).await;
        }
        runs
    })
}

/// proves: a fleet is replaced in the order of docs/upgrade.md, and every job ends once, at its
/// first or second attempt, without a dead letter. Two versions are compared only with
/// `TRELLIS_OLD_BINARY`.
#[tokio::test(flavor = "multi_thread")]
async fn f10_n9_a_mixed_fleet_is_replaced_one_by_one_under_load() {
    let program = std::env::var_os("TRELLIS_OLD_BINARY").map(PathBuf::from);
    let mut cluster = Processes::start_as(|| Shape { program, ..Shape::new(2, 3) }).await;
    let mut runs = Vec::new();
    // Coordinators first.
    for name in [cluster.names("c"), cluster.names("w")].concat() {
        let submitted = submit(cluster.client.bus.clone());
        cluster.upgrade(&name).await;
        cluster.all_there().await;
        runs.extend(submitted.await.unwrap());
    }
    cluster.check(&runs).await;
    for run in &runs {
        let outcome = cluster.outcome(*run).await;
        assert_eq!(outcome.context.status, EndStatus::Completed, "{outcome:#?}");
    }
    assert_eq!(cluster.client.bus.read(&Filter::Dead).await.unwrap(), [], "nothing was refused");
}
