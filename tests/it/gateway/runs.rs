//! Runs over HTTP: submitted, listed, shown, steered, with all they leave.

use reqwest::Method;
use serde_json::{Value, json};
use trellis_tests::cluster::eventually;

use super::{Front, problem, told};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_submitted_shown_and_its_result_fetched() {
    let front = Front::start().await;
    let response = front.post("/v1/runs", &json!({"goal": "hello"})).send().await.unwrap();
    let place = response.headers()["location"].to_str().unwrap().to_owned();
    let accepted = told(response, 201).await;
    assert_eq!(place, format!("/v1/runs/{}", accepted["trace_id"].as_str().unwrap()));
    eventually("it ends", async || !front.value(&place).await["outcome"].is_null()).await;
    let shown = front.value(&place).await;
    assert_eq!(shown["outcome"]["context"]["status"], "completed");
    assert_eq!(shown["contexts"][0]["child_id"], accepted["child_id"]);
    assert_eq!(front.value(&format!("{place}/result")).await, "hello");
    front.stop().await;
}

#[allow(dead_code)]
fn unused(_: Method, _: Value) {}
