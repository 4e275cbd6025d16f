//! Mistakes of a model: it calls tools that it was not offered, or its answer is cut off inside a
//! tool call.

use std::sync::atomic::{AtomicUsize, Ordering};

use domain::wire::{HistoryEntry, HistoryStep};
use serde_json::{Value, json};
use trellis_tests::servers::{ModelServer, Prompt, Reply};

use super::{call, foreign::embedded, say};

/// Runs the agent `a` with these tools; the model's answers depend on the number of the call.
async fn run(
    tools: Value,
    more: Value,
    answer: impl Fn(usize, &Prompt) -> Reply + Send + Sync + 'static,
) -> (Value, Vec<HistoryEntry>, ModelServer) {
    let calls = AtomicUsize::new(0);
    let model =
        ModelServer::start(move |prompt: &Prompt| answer(calls.fetch_add(1, Ordering::Relaxed), prompt))
            .await;
    let mut agent = json!({"agent_id": "a", "kind": "llm", "model": "test/model", "tools": tools});
    agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let cluster = embedded(model.settings(), json!([agent])).await;
    let outcome = cluster.client.run(json!({"goal": "try", "agent_id": "a"})).await;
    let entries = cluster.client.journal(outcome.trace_id, &outcome.context.child_id).await;
    cluster.stop().await;
    (serde_json::to_value(&outcome).unwrap(), entries, model)
}

fn write(n: usize) -> Reply {
    call("fs_write", json!({"path": format!("outputs/{n}"), "content": "x"}))
}

#[tokio::test(flavor = "multi_thread")]
async fn i5_a_model_that_calls_tools_it_was_not_offered_is_corrected_once_and_then_ended() {
    // No tools were offered.
    let (outcome, _, model) = run(json!([]), json!({}), |n, _| write(n)).await;
    assert_eq!(model.prompts().len(), 2, "the model received one correction");
    let told = model.prompts()[1].to_string();
    assert!(told.contains("You called `fs_write`, and you have no tools"), "{told}");
    let why = outcome["error"]["message"].as_str().unwrap();
    assert!(why.contains("tools that it was not offered, twice in a row: `fs_write`"), "{why}");
    // Other tools were offered.
    let (outcome, _, model) = run(json!(["fs.list"]), json!({}), |n, _| write(n)).await;
    assert_eq!(model.prompts().len(), 2, "{outcome:#}");
    assert!(model.prompts()[1].to_string().contains("its tools are fs.list"), "{:#}", model.prompts()[1]);
    assert!(outcome["error"]["message"].as_str().unwrap().contains("not offered"), "{outcome:#}");
    // The model corrects itself.
    let (outcome, _, model) =
        run(json!([]), json!({}), |n, _| if n == 0 { write(n) } else { say("so be it") }).await;
    assert_eq!((&outcome["result"], model.prompts().len()), (&json!("so be it"), 2), "{outcome:#}");
    let now_and_then = |n: usize, _: &Prompt| match n {
        0 | 2 => write(n),
        1 | 3 => call("fs_list", json!({})),
        _ => say("done"),
    };
    let (outcome, ..) = run(json!(["fs.list"]), json!({}), now_and_then).await;
    assert_eq!(outcome["result"], "done", "two separate mistakes ended the context: {outcome:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn l_a_cut_off_answer_with_tool_calls_is_not_run_and_the_model_is_asked_again() {
    let answer = |n: usize, prompt: &Prompt| match n {
        0 => Reply { cut_off: true, ..write(0) },
        1 => {
            assert!(
                prompt.last().contains("this call was not made: your answer was cut off"),
                "{}",
                prompt.last()
            );
            write(1)
        }
        _ => say("done"),
    };
    let (outcome, entries, model) = run(json!(["fs.write"]), json!({}), answer).await;
    assert_eq!((&outcome["result"], model.prompts().len()), (&json!("done"), 3), "{outcome:#}");
    let HistoryStep::Tool(first) = &entries[1].step else { panic!("{entries:#?}") };
    assert!(first.is_error, "{first:?}");
    let HistoryStep::Result(result) = &entries.last().unwrap().step else { panic!("{entries:#?}") };
    let paths: Vec<&str> = result.outputs.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["1"], "only the second call was made");
    // The repetition is bounded by the agent's steps.
    let more = json!({"limits": {"max_steps": 4}});
    let (outcome, _, model) =
        run(json!(["fs.write"]), more, |n, _| Reply { cut_off: true, ..write(n) }).await;
    let why = outcome["error"]["message"].as_str().unwrap();
    assert!(why.contains("has used 4 of max_steps = 4 ("), "{outcome:#}");
    assert_eq!(model.prompts().len(), 4);
    for (prompt, left) in [(1, 3), (2, 2), (3, 1)] {
        let text = model.prompts()[prompt].to_string();
        assert!(text.contains(&format!("[{left} of 4 steps are left: finish")), "{text}");
    }
}
