//! Budgets of running agents, compared with the model server's bill.

use domain::{
    subject::{Action, Subject},
    wire::EndStatus,
};
use serde_json::json;
use trellis_tests::servers::{INPUT_NANOS, ModelServer, OUTPUT_NANOS, Prompt, Reply};

use super::{call, check_bill, cluster, finished, frugal, known, say};

/// Fifty concurrent agents share one cap that suffices for some of them. The bill never exceeds the
/// cap, and the books contain the whole bill (b5).
#[tokio::test(flavor = "multi_thread")]
async fn b3_fifty_agents_at_once_never_pass_one_cap() {
    let model = ModelServer::start(|prompt: &Prompt| match prompt.turn() {
        0 => call("fs_write", json!({"path": "outputs/note", "content": "noted"})),
        1 => call("fs_read", json!({"path": "outputs/note"})),
        _ => say("done"),
    })
    .await;
    let cluster = cluster(2, &model, json!([frugal("one")])).await;
    let steps: Vec<_> = (0..50)
        .map(|n| json!({"id": format!("s{n}"), "agent_id": "one", "task_description": format!("task {n}")}))
        .collect();
    // A call holds about $0.006 and costs $0.00014. Fifty holds do not fit at once, so agents
    // compete for the rest.
    let cap = 0.012;
    let graph =
        json!({"mode": "parallel", "steps": steps, "max_cost_usd": cap, "on_partial_success": "best_effort"});
    let run = cluster.begin(graph).await;
    let (outcome, trace) = finished(&cluster, run).await;
    check_bill(&model, &[&trace], 0);
    let cap_nanos = 12_000_000;
    assert!(model.billed_nanos() <= cap_nanos, "{} of {cap_nanos}", model.billed_nanos());
    let done = outcome["graph"]["succeeded"].as_array().unwrap().len();
    assert!(done > 0, "no step succeeded: {outcome:#}");
    for node in trace.contexts() {
        let own = node.budget.spent;
        assert!(own.exceeds(node.budget.ceilings.limit).is_none(), "{}: {own:?}", node.id);
    }
}

/// After a denial an agent requests a shorter answer before it gives up.
#[tokio::test(flavor = "multi_thread")]
async fn b5_a_hold_that_does_not_fit_makes_the_answer_shorter() {
    let model = ModelServer::start(|_: &Prompt| say("short")).await;
    let cluster = cluster(1, &model, json!([frugal("frugal")])).await;
    // The hold for an answer of two thousand tokens would already be $0.004.
    let run = cluster.begin(json!({"goal": "be brief", "agent_id": "frugal", "max_cost_usd": 0.003})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "short", "{outcome:#}");
    let asked =
        model.prompts()[0]["max_tokens"].as_u64().or(model.prompts()[0]["max_completion_tokens"].as_u64());
    let asked = asked.unwrap();
    assert!((64..1000).contains(&asked), "the call asked for {asked} tokens");
    check_bill(&model, &[&trace], 0);
}

/// If even a short answer is too expensive, the cheaper model is called; no call is made without a
/// hold.
#[tokio::test(flavor = "multi_thread")]
async fn b5_a_cheaper_fallback_is_taken_or_nothing_is_called() {
    let model = ModelServer::start(|_: &Prompt| say("cheaply")).await;
    let mut settings = model.settings();
    settings["prices"]["test/dear"] = json!({"input": 100, "output": 500});
    let mut dear = frugal("dear");
    dear["model"] = json!("test/dear");
    let mut falls_back = dear.clone();
    falls_back["agent_id"] = json!("falls-back");
    falls_back["fallback_model"] = json!("test/cheap");
    let cluster = super::cluster_with(1, settings, json!([dear, falls_back])).await;
    let run = cluster.begin(json!({"goal": "x", "agent_id": "falls-back", "max_cost_usd": 0.01})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "cheaply", "{outcome:#}");
    check_bill(&model, &[&trace], 0);
    let run = cluster.begin(json!({"goal": "x", "agent_id": "dear", "max_cost_usd": 0.01})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(
        (&outcome["status"], &outcome["error"]["kind"]),
        (&json!("failed"), &json!("budget")),
        "{outcome:#}"
    );
    let error = outcome["error"]["message"].as_str().unwrap();
    assert!(error.contains("limit $0.01") && error.contains("`root`"), "{error}");
    assert_eq!(known(&trace), 0);
    assert_eq!(model.bill().len(), 1);
}

/// At its ceiling an agent writes its last report from the closing reserve, and ends as aborted.
#[tokio::test(flavor = "multi_thread")]
async fn b7_the_last_report_is_paid_from_the_closing_reserve() {
    let model = ModelServer::start(|prompt: &Prompt| {
        if prompt.last().contains("Your budget ends here") {
            return say("this far I came");
        }
        let spend = Reply { input_tokens: 500, output_tokens: 500, ..call("fs_list", json!({})) };
        Reply { calls: vec![("fs_list".into(), json!({}))], ..spend }
    })
    .await;
    let cluster = cluster(1, &model, json!([frugal("eager")])).await;
    let goal = json!({
        "goal": "go on for ever", "agent_id": "eager", "max_cost_usd": 0.02, "closing_reserve_usd": 0.006,
    });
    let run = cluster.begin(goal).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(
        (&outcome["status"], &outcome["result"]),
        (&json!("aborted"), &json!("this far I came")),
        "{outcome:#}"
    );
    check_bill(&model, &[&trace], 0);
    let calls_before = model.bill().len() - 1;
    assert!(calls_before > 3, "only {calls_before} calls before the last report");
    let ordinary = 500 * (INPUT_NANOS + OUTPUT_NANOS) * calls_before as u64;
    assert!(ordinary <= 14_000_000, "ordinary calls spent the reserve: {ordinary}");
}

/// A call without reported usage is booked at its hold and marked as estimated.
#[tokio::test(flavor = "multi_thread")]
async fn b10_f32_unknown_usage_is_charged_at_the_hold() {
    let model = ModelServer::start(|_: &Prompt| Reply { no_usage: true, ..say("secretly") }).await;
    let cluster = cluster(1, &model, json!([frugal("one")])).await;
    let run = cluster.begin(json!({"goal": "x", "agent_id": "one"})).await;
    let outcome = cluster.outcome(run).await;
    assert_eq!(outcome.context.status, EndStatus::Completed);
    cluster.check(&[run]).await;
    let trace = cluster.client.trace(run).await;
    let budget = &trace.root().unwrap().budget;
    assert_eq!(budget.spent, budget.estimated);
    assert!(budget.spent.cost_usd.nanos() >= model.billed_nanos(), "{budget:?}");
}

/// A call that the provider refuses is free, uses one retry, and is made again later.
#[tokio::test(flavor = "multi_thread")]
async fn b15_refused_calls_are_tried_again_counted_and_not_paid() {
    let calls = std::sync::atomic::AtomicU32::new(0);
    let model =
        ModelServer::start(move |_: &Prompt| match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => Reply { status: Some(429), ..Reply::default() },
            1 => Reply { status: Some(503), ..Reply::default() },
            _ => say("at last"),
        })
        .await;
    let cluster = cluster(1, &model, json!([frugal("patient")])).await;
    let run = cluster.begin(json!({"goal": "x", "agent_id": "patient"})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!((&outcome["result"], &outcome["retries"]), (&json!("at last"), &json!(2)), "{outcome:#}");
    check_bill(&model, &[&trace], 0);
    assert_eq!(model.bill().len(), 1);
}

/// A model without a known price is not called.
#[tokio::test(flavor = "multi_thread")]
async fn b3_an_unknown_price_is_refused_and_never_taken_for_nothing() {
    let model = ModelServer::start(|_: &Prompt| say("for free?")).await;
    let mut unpriced = frugal("unpriced");
    unpriced["model"] = json!("test/unheard-of");
    let cluster = cluster(1, &model, json!([unpriced])).await;
    let run = cluster.begin(json!({"goal": "x", "agent_id": "unpriced"})).await;
    let (outcome, _) = finished(&cluster, run).await;
    assert_eq!(outcome["status"], "failed");
    assert!(outcome["error"]["message"].as_str().unwrap().contains("price"), "{outcome:#}");
    assert!(model.prompts().is_empty());
}

/// The provider charges one token per byte and answers as long as it may. Each hold covers its
/// call: the first, and later ones, which are estimated from reported usage.
#[tokio::test(flavor = "multi_thread")]
async fn b3_a_hold_covers_every_byte_that_is_sent_and_the_longest_answer() {
    let model = ModelServer::start(|prompt: &Prompt| {
        let reply = match prompt.turn() {
            0 => call("fs_write", json!({"path": "outputs/a", "content": "words ".repeat(250)})),
            1..4 => call("fs_read", json!({"path": "outputs/a", "first_line": 1})),
            _ => say("done"),
        };
        // One token less than allowed, because a full answer looks truncated.
        Reply { input_tokens: prompt.size_bytes(), output_tokens: prompt.max_tokens() - 1, ..reply }
    })
    .await;
    let mut wordy = frugal("wordy");
    wordy["system_prompt"] = json!("Say as much as you can. ".repeat(40));
    let cluster = cluster(1, &model, json!([wordy])).await;
    let run =
        cluster.begin(json!({"goal": "talk", "agent_id": "wordy", "inputs": {"x": "y".repeat(3000)}})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "done", "{outcome:#}");
    assert_eq!(model.bill().len(), 5);
    check_bill(&model, &[&trace], 0);
    let root = trace.root().unwrap();
    for call in root.calls.kept().values() {
        let trace::CallState::Settled(cost) = call.state else { panic!("{call:?}") };
        assert!(cost.exceeds(call.held).is_none(), "{cost:?} of {:?}", call.held);
    }
    // The last hold is computed from the reported usage plus the new bytes, not from all bytes
    // again.
    let last = root.calls.kept().values().map(|call| call.held.tokens.count()).max().unwrap();
    let sent = model.prompts().iter().map(|body| Prompt { body: body.clone() }.size_bytes()).max().unwrap();
    assert!(last < 2 * sent + 2_500, "{last} held for {sent} bytes");
}

/// B8: with `on_exhausted: pause` an agent pauses instead of giving a partial answer; after a raise
/// it continues.
#[tokio::test(flavor = "multi_thread")]
async fn b8_an_agent_that_may_pause_parks_and_goes_on_when_its_budget_is_raised() {
    let model = ModelServer::start(|_: &Prompt| say("a whole answer")).await;
    let mut patient = frugal("patient");
    patient["on_exhausted"] = json!("pause");
    let cluster = cluster(1, &model, json!([patient])).await;
    let run = cluster.begin(json!({"goal": "x", "agent_id": "patient", "max_cost_usd": 0.003})).await;
    cluster
        .until(run, "parked", |trace| {
            trace.root().is_some_and(|root| format!("{:?}", root.status).starts_with("Paused"))
        })
        .await;
    assert!(model.prompts().is_empty(), "no model call was made");
    let raise = json!({"child_id": "root", "max_cost_usd": 0.1});
    cluster.client.publish(Subject::Admin(Action::Raise), &json!({"trace_id": run, "raise": raise})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["result"], "a whole answer", "{outcome:#}");
    check_bill(&model, &[&trace], 0);
}

/// L: a turn with more tool calls than remaining steps makes only as many calls as there are steps.
#[tokio::test(flavor = "multi_thread")]
async fn l_max_steps_holds_within_one_turn() {
    let model = ModelServer::start(|_: &Prompt| {
        let calls = (0..50)
            .map(|n| ("fs_write".into(), json!({"path": format!("outputs/tools-{n}"), "content": "x"})));
        Reply { calls: calls.collect(), ..say("all at once") }
    })
    .await;
    let mut eager = frugal("eager");
    eager["limits"] = json!({"max_steps": 5, "max_output_files": 100});
    let cluster = cluster(1, &model, json!([eager])).await;
    let run = cluster.begin(json!({"goal": "x", "agent_id": "eager"})).await;
    let (outcome, trace) = finished(&cluster, run).await;
    assert_eq!(outcome["error"]["kind"], "limit_exceeded", "{outcome:#}");
    let why = "`root` has used 5 of max_steps = 5 (the profile of agent `eager`); raise `limits.max_steps` in the profile of agent `eager`";
    assert_eq!((&outcome["error"]["message"], &outcome["steps"]), (&json!(why), &json!(5)));
    check_bill(&model, &[&trace], 0);
}
