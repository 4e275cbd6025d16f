//! Bills of providers that report reasoning in different places, and of models whose names look
//! like syntax. The server's bill is compared with the books.

use domain::Usd;
use serde_json::{Value, json};
use trellis_tests::{
    processes::Processes,
    servers::{Line, ModelServer, Prompt, Reply, UsageForm},
};

use super::{call, cluster_with, finished, frugal, say};

const CAP_NANOS: u64 = 20_000_000;

/// A cluster with one agent per model, under the model's name, that calls the model until its
/// budget ends.
async fn cluster(model: &ModelServer, names: &[&str]) -> Processes {
    let mut settings = model.settings();
    let mut agents = Vec::new();
    for (at, name) in names.iter().enumerate() {
        settings["prices"][format!("test/{name}")] = settings["prices"]["test/model"].clone();
        let mut agent = frugal(&format!("agent-{at}"));
        agent["model"] = json!(format!("test/{name}"));
        agent["limits"] = json!({"max_steps": 100});
        agents.push(agent);
    }
    cluster_with(1, settings, Value::Array(agents)).await
}

fn lines_of(model: &ModelServer, task: &str) -> Vec<Line> {
    model.bill().into_iter().filter(|line| line.task == task).collect()
}

/// A loop of calls under a ceiling of $0.02, for each place in which a provider reports its
/// reasoning. The books equal the bill. A provider whose reasoning stays within the answer's limit
/// stays under the ceiling; for others `overspent` is the amount by which the last call exceeds it.
#[tokio::test(flavor = "multi_thread")]
async fn b3_b11_the_books_equal_the_bill_wherever_reasoning_is_reported() {
    let forms = [
        ("inside", UsageForm::Inside),
        ("beside", UsageForm::Beside),
        ("in the total", UsageForm::InTotal),
        ("twice", UsageForm::Twice),
    ];
    let model = ModelServer::start(move |prompt: &Prompt| {
        let task = prompt.task();
        let (_, usage) = *forms.iter().find(|(name, _)| task.starts_with(name)).unwrap();
        let limit = prompt.max_tokens();
        let output_tokens = if task.ends_with("unbounded") { limit * 3 / 2 } else { limit.min(700) - 1 };
        let reasoning_tokens = output_tokens - 26;
        Reply { usage, output_tokens, reasoning_tokens, ..call("fs_list", json!({})) }
    })
    .await;
    let name = "qwen3-max";
    let cluster = cluster(&model, &[name]).await;
    for (form, _) in forms {
        for bound in ["bounded", "unbounded"] {
            let task = format!("{form}, {bound}");
            let cap = Usd::from_nanos(CAP_NANOS);
            let run = cluster.begin(json!({"goal": task, "agent_id": "agent-0", "max_cost_usd": cap})).await;
            let (outcome, trace) = finished(&cluster, run).await;
            let lines = lines_of(&model, &task);
            let billed: u64 = lines.iter().map(|line| line.nanos).sum();
            let budget = &trace.root().unwrap().budget;
            assert_eq!(budget.spent.cost_usd.nanos(), billed, "{task}: {outcome:#}");
            let tokens: u64 = lines.iter().map(|line| line.tokens).sum();
            assert_eq!(budget.spent.tokens.count(), tokens, "{task}: {outcome:#}");
            assert!(budget.estimated.is_zero() && budget.disputed.is_zero(), "{task}: {budget:?}");
            let overspent = json!(Usd::from_nanos(billed.saturating_sub(CAP_NANOS)));
            assert_eq!(outcome["budget"]["overspent"]["cost_usd"], overspent, "{task}: {outcome:#}");
            assert_eq!(billed > CAP_NANOS, bound == "unbounded", "{task}: {billed}");
            assert!(lines.len() > 2 && lines.iter().all(|line| line.model == name), "{task}: {lines:?}");
        }
    }
}

/// Reasoning of several times the answer's limit. The cost is booked up to twice the hold, even
/// above the ceiling, and the rest is disputed (B18). Together they equal the bill.
#[tokio::test(flavor = "multi_thread")]
async fn b11_b18_reasoning_far_beyond_the_hold_is_booked_or_disputed() {
    let model = ModelServer::start(|prompt: &Prompt| {
        let output_tokens = prompt.max_tokens() * 3;
        let reasoning_tokens = output_tokens - 26;
        Reply { usage: UsageForm::Beside, output_tokens, reasoning_tokens, ..call("fs_list", json!({})) }
    })
    .await;
    let cluster = cluster(&model, &["model"]).await;
    let cap = Usd::from_nanos(CAP_NANOS);
    let run = cluster.begin(json!({"goal": "x", "agent_id": "agent-0", "max_cost_usd": cap})).await;
    let outcome = cluster.outcome(run).await.context;
    cluster.check(&[run]).await;
    let budget = &outcome.budget;
    let booked = budget.spent.cost_usd.nanos() + budget.disputed.cost_usd.nanos();
    assert_eq!(booked, model.billed_nanos(), "{budget:?}");
    assert!(!budget.overspent.is_zero() && !budget.disputed.is_zero(), "{budget:?}");
}

/// The called model is the priced one, also for names that a client could read as an effort or a
/// namespace.
#[tokio::test(flavor = "multi_thread")]
async fn b3_the_model_that_is_priced_is_the_one_that_is_called() {
    let names = ["qwen3-max", "mistral-medium", "gpt-5.1-codex-max", "ft:gpt-4o-mini-2024-07-18:acme::Ab1"];
    let model = ModelServer::start(|_: &Prompt| say("yes")).await;
    let cluster = cluster(&model, &names).await;
    for (at, name) in names.iter().enumerate() {
        let run = cluster.begin(json!({"goal": name, "agent_id": format!("agent-{at}")})).await;
        let (outcome, trace) = finished(&cluster, run).await;
        assert_eq!(outcome["result"], "yes", "{outcome:#}");
        let [line] = &lines_of(&model, name)[..] else { panic!("one call: {:?}", model.bill()) };
        assert_eq!(line.model, *name);
        assert_eq!(trace.root().unwrap().budget.spent.cost_usd.nanos(), line.nanos);
    }
    assert!(model.prompts().iter().all(|body| body.get("reasoning_effort").is_none()));
}
