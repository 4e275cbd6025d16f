//! A watcher that leaves does not affect the run.

use std::{process::Stdio, time::Duration};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
};
use trellis_tests::processes::{Processes, binary};

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_that_leaves_prints_how_to_return_and_the_run_continues() {
    let cluster = Processes::start(1, 1).await;
    for signal in ["-INT", "-TERM"] {
        let run = cluster.begin(json!({"goal": "z", "agent_id": "sleep", "inputs": {"ms": 600_000}})).await;
        let mut watcher = Command::new(binary())
            .args(["runs", "watch", &run.to_string()])
            .env("NATS_URL", cluster.nats.url())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(watcher.stderr.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).await.unwrap();
        assert!(first.contains("root: "), "{first}");
        let pid = watcher.id().unwrap().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
        let ended = tokio::time::timeout(Duration::from_secs(60), watcher.wait()).await.unwrap().unwrap();
        let mut rest = String::new();
        said.read_to_string(&mut rest).await.unwrap();
        assert_eq!(ended.code(), Some(130), "{rest}");
        assert!(rest.contains(&format!("trellis runs watch {run}")), "{rest}");
        let root = cluster.client.trace(run).await;
        assert!(root.root().is_some_and(|root| root.is_live()), "the run goes on");
        cluster.cancel(run).await;
        cluster.outcome(run).await;
    }
}
