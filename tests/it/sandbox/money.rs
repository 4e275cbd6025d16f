//! The spending of a program: bounded by its budget, and without API keys.

use serde_json::json;
use trellis_tests::{
    processes::{Processes, Shape},
    servers::{ModelServer, Prompt, Reply},
};

use super::{
    crash::paid,
    isolation::{LOOK, found, marker},
};
use crate::agents::{check_bill, cluster, finished, say};

/// Calls its model until twenty calls were denied.
const GREEDY: &str = r#"
answered = refused = 0
why = None
while refused < 20:
    said = ask(type="model", id="m", messages=[{"role": "user", "content": "more %d" % (answered + refused)}])
    if said["is_error"]:
        refused, why = refused + 1, said["text"]
    else:
        answered += 1
say(type="result", result={"answered": answered, "why": why})
"#;

#[tokio::test(flavor = "multi_thread")]
async fn b3_a_program_that_asks_in_a_loop_is_stopped_by_its_budget() {
    // The bill has at most the sent bytes as input tokens, and at most `max_tokens` as output
    // tokens.
    let model = ModelServer::start(|prompt: &Prompt| Reply {
        input_tokens: 10,
        output_tokens: prompt.max_tokens().min(500),
        ..say("more")
    })
    .await;
    let mut greedy = paid("greedy", GREEDY);
    greedy["limits"] = json!({"max_steps": 1000});
    let cluster = cluster(1, &model, json!([greedy])).await;
    let run = cluster.begin(json!({"goal": "all of it", "agent_id": "greedy", "max_cost_usd": 0.02})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["status"], "completed", "the agent could not report its results: {outcome:#}");
    let answered = outcome["result"]["answered"].as_u64().unwrap();
    assert!(answered > 3, "too few calls were answered: {outcome:#}");
    let why = outcome["result"]["why"].as_str().unwrap();
    assert!(why.contains("budget") || why.contains("limit $0.02"), "{why}");
    assert_eq!(model.bill().len() as u64, answered, "refused calls did not reach the model");
    check_bill(&model, &[&trace], 0);
    assert!(model.billed_nanos() <= 20_000_000, "{}", model.billed_nanos());
}

const CURIOUS: &str = r#"
said = ask(type="model", id="m", messages=[{"role": "user", "content": "look found %s" % json.dumps(look())}])
say(type="result", result=said["text"])
"#;

#[tokio::test(flavor = "multi_thread")]
async fn i4_a_program_never_sees_the_key_its_model_is_called_with() {
    let model = ModelServer::start(|_: &Prompt| say("noted")).await;
    let key = marker("key");
    let mut settings = model.settings();
    settings["providers"]["test"]["key_env"] = json!("OF_A_PROVIDER");
    let environment = vec![("OF_A_PROVIDER".to_owned(), key.clone())];
    let cluster = Processes::start_as(|| Shape { worker: settings, environment, ..Shape::new(1, 1) }).await;
    let own = marker("own");
    let mut curious = paid("curious", &format!("{LOOK}{CURIOUS}"));
    curious["env"] = json!({"OWN": own});
    let mut thief = curious.clone();
    thief["agent_id"] = json!("thief");
    thief["env_from"] = json!(["OF_A_PROVIDER"]);
    cluster.apply(json!([curious, thief])).await;
    let run = cluster.begin(json!({"goal": "look", "agent_id": "curious"})).await;
    let (outcome, _) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "noted", "the call with the key failed: {outcome:#}");
    assert_eq!(model.keys(), [format!("Bearer {key}")]);
    assert_eq!(found(&model, "look"), json!([own]));
    let run = cluster.begin(json!({"goal": "look", "agent_id": "thief"})).await;
    let (outcome, _) = finished(&cluster, run).await;
    assert_eq!(outcome["status"], "failed", "{outcome:#}");
    let error = outcome["error"]["message"].as_str().unwrap();
    assert!(error.contains("`env_from` names `OF_A_PROVIDER`, which is a secret of the worker"), "{error}");
    assert_eq!(model.prompts().len(), 1, "the second agent ran");
}
