//! Agents on third-party servers: aimock with each protocol, and a small real model.

use bus::Bus;
use coordinator::store::Store;
use domain::wire::{EndStatus, Query};
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, name},
    servers::{AiMock, Llama},
};

/// A coordinator and a worker on memory, the worker with these settings.
pub(super) async fn embedded(settings: Value, agents: Value) -> Cluster {
    let coordinator = coordinator::Config::new(name("coordinator"));
    let bus = Bus::Memory(bus::Memory::new(Default::default()));
    let store = Store::Memory(coordinator::store::Memory::new(coordinator.topology.partitions));
    let mut worker = worker::Config::new(name("worker"));
    worker.settings = domain::decode::value(&settings).unwrap();
    worker.sandbox = Some(trellis_tests::processes::binary());
    let cluster = Cluster::start(bus, store, vec![coordinator], vec![worker]);
    // An outcome shows that the coordinator runs.
    cluster.client.run(json!({"goal": "are you there?"})).await;
    let query = Query::ApplyAgents { agents: serde_json::from_value(agents).unwrap() };
    let payload = serde_json::to_vec(&query).unwrap().into();
    let subject = domain::subject::Subject::of_query(&query);
    cluster
        .client
        .bus
        .request(&subject, &Default::default(), payload, trellis_tests::cluster::SOON)
        .await
        .unwrap();
    cluster
}

fn settings(providers: Value, models: &[&str]) -> Value {
    let price = json!({"input": 1, "output": 2});
    let prices: serde_json::Map<String, Value> =
        models.iter().map(|model| ((*model).to_owned(), price.clone())).collect();
    json!({"providers": providers, "prices": prices})
}

/// A tool call, its answer and a final answer with each protocol; the booked cost is that of the
/// server's requests.
#[tokio::test(flavor = "multi_thread")]
async fn b3_a_loop_of_tools_over_every_protocol() {
    let used = json!({"prompt_tokens": 200, "completion_tokens": 30, "total_tokens": 230});
    let server = AiMock::start(&json!([
        {"match": {"hasToolResult": true}, "response": {"content": "it is noted", "usage": used}},
        {"match": {}, "response": {"toolCalls": [
            {"name": "fs_write", "arguments": {"path": "outputs/note.md", "content": "noted"}},
        ], "usage": used}},
    ]));
    let providers = json!({
        "o": {"protocol": "openai", "base_url": server.v1()},
        "a": {"protocol": "anthropic", "base_url": server.v1()},
        "g": {"protocol": "gemini", "base_url": server.gemini()},
        "l": {"protocol": "ollama", "base_url": server.ollama()},
    });
    let models = ["o/m", "a/m", "g/m", "l/m"];
    let agents: Vec<Value> = models
        .iter()
        .map(|model| {
            let agent_id = format!("{}-agent", &model[..1]);
            json!({"agent_id": agent_id, "kind": "llm", "model": model, "tools": ["fs.write"]})
        })
        .collect();
    let cluster = embedded(settings(providers, &models), json!(agents)).await;
    for agent in &agents {
        let outcome = cluster.client.run(json!({"goal": "note it", "agent_id": agent["agent_id"]})).await;
        let context = outcome.context;
        assert_eq!(context.status, EndStatus::Completed, "{agent}: {:?}", context.error);
        assert_eq!(context.result.unwrap().value(), "it is noted", "{agent}");
        let known = context.budget.spent.saturating_sub(context.budget.estimated);
        // Two calls with 200 input tokens at $1 and 30 output tokens at $2 a million; aimock's
        // Ollama reports no usage.
        let expected = if agent["model"] == "l/m" { 0 } else { 2 * (200 * 1_000 + 30 * 2_000) };
        assert_eq!(known.cost_usd.nanos(), expected, "{agent}");
        assert_eq!(context.budget.estimated.is_zero(), agent["model"] != "l/m", "{agent}");
    }
    assert_eq!(server.bill().len(), 8);
    cluster.stop().await;
}

/// 429s with a retry time, then a broken stream, then an answer: retries are recorded, the broken
/// call is booked at its hold, and the agent's conversation does not change.
#[tokio::test(flavor = "multi_thread")]
async fn b15_f32_rate_limits_and_broken_streams_are_lived_through() {
    let server = AiMock::start(&json!([
        {"match": {"sequenceIndex": 0}, "response": {"error": {"message": "slow down", "type": "rate_limit_error"},
            "status": 429, "retryAfter": 1}},
        {"match": {"sequenceIndex": 1}, "response": {"content": "this will break off in the middle of it"},
            "truncateAfterChunks": 1},
        {"match": {}, "response": {"content": "whole",
            "usage": {"prompt_tokens": 20, "completion_tokens": 3, "total_tokens": 23}}},
    ]));
    let providers = json!({"o": {"protocol": "openai", "base_url": server.v1()}});
    let agents = json!([{"agent_id": "patient", "kind": "llm", "model": "o/m", "tools": []}]);
    let cluster = embedded(settings(providers, &["o/m"]), agents).await;
    let outcome = cluster.client.run(json!({"goal": "go on", "agent_id": "patient"})).await;
    let context = outcome.context;
    assert_eq!(
        context.result.as_ref().map(domain::Json::value),
        Some(&json!("whole")),
        "{:?}",
        context.error
    );
    assert_eq!(context.retries, 2);
    let known = context.budget.spent.saturating_sub(context.budget.estimated);
    assert_eq!(known.cost_usd.nanos(), 20 * 1_000 + 3 * 2_000);
    assert!(!context.budget.estimated.is_zero());
    cluster.stop().await;
}

/// A real model: its answer is checked against the schema, and its usage is booked.
#[tokio::test(flavor = "multi_thread")]
async fn g1_a_real_model_gives_an_answer_that_fits_its_schema() {
    let server = Llama::start();
    let providers = json!({"local": {"protocol": "openai", "base_url": server.v1()}});
    let agents = json!([{
        "agent_id": "geographer", "kind": "llm", "model": "local/smollm2", "tools": [], "window_tokens": 2000,
        "limits": {"max_tokens_per_step": 48},
    }]);
    let cluster = embedded(settings(providers, &["local/smollm2"]), agents).await;
    let schema = json!({"type": "object", "required": ["capital"], "additionalProperties": false,
        "properties": {"capital": {"type": "string", "enum": ["Paris", "Rome"]}}});
    let goal =
        json!({"goal": "What is the capital of France?", "agent_id": "geographer", "output_schema": schema});
    let context = cluster.client.run(goal).await.context;
    assert_eq!(context.status, EndStatus::Completed, "{:?}", context.error);
    let capital = context.result.unwrap().value()["capital"].clone();
    assert!(capital == "Paris" || capital == "Rome", "{capital}");
    let budget = context.budget;
    assert!(budget.estimated.is_zero() && budget.spent.tokens.count() > 10, "{budget:?}");
    cluster.stop().await;
}
