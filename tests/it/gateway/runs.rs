//! Runs over HTTP: submitted, listed, shown, steered, and their files.

use reqwest::Method;
use serde_json::{Value, json};
use trellis_tests::{
    cluster::{Cluster, eventually},
    servers::{NatsServer, RedisServer},
};

use super::{Front, config, problem, streams::Stream, told};

/// Writes a file, asks a human, and returns the answer.
fn scribe() -> Value {
    json!({"agent_id": "scribe", "kind": "llm", "model": "scripted", "tools": ["fs.write", "ask_human"], "script": [
        {"call": [{"tool": "fs.write", "arguments": {"path": "outputs/deep/a b.md", "content": "0123456789"}}],
            "usage": {"input_tokens": 1000, "output_tokens": 100}},
        {"call": [{"tool": "ask_human", "arguments": {"question": "go on?"}}],
            "usage": {"input_tokens": 1000, "output_tokens": 100}},
        {"say": "done", "usage": {"input_tokens": 1000, "output_tokens": 100}},
    ]})
}

/// A run of the scribe that waits for an answer.
pub(super) async fn waiting(front: &Front) -> String {
    told(front.ask(Method::PUT, "/v1/agents/scribe").json(&scribe()).send().await.unwrap(), 200).await;
    let message = json!({"goal": "write", "agent_id": "scribe", "child_id": "w", "max_cost_usd": 1});
    let accepted = told(front.post("/v1/runs", &message).send().await.unwrap(), 201).await;
    let trace = accepted["trace_id"].as_str().unwrap().to_owned();
    eventually("the agent asks a question", async || {
        let shown = front.value(&format!("/v1/runs/{trace}")).await;
        shown["contexts"][0]["status"] == "input_required"
    })
    .await;
    trace
}

pub(super) async fn answered(front: &Front, trace: &str) {
    let path = format!("/v1/runs/{trace}/contexts/w/answers/1");
    let answer = front.post(&path, &json!({"answer": "yes", "by": "somebody"}));
    assert_eq!(told(answer.send().await.unwrap(), 200).await, json!({"child_id": "w", "question": 1}));
}

async fn ended(front: &Front, trace: &str) -> Value {
    let path = format!("/v1/runs/{trace}");
    eventually("the run ends", async || !front.value(&path).await["outcome"].is_null()).await;
    front.value(&path).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_submitted_steered_and_all_it_leaves_is_fetched() {
    try_everything(Front::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_on_servers_is_submitted_steered_and_all_it_leaves_is_fetched() {
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    try_everything(Front::with(config(), Cluster::on(&nats, &redis).await).await).await;
}

async fn try_everything(front: Front) {
    let response = front.post("/v1/runs", &json!({"goal": "hello"})).send().await.unwrap();
    let place = response.headers()["location"].to_str().unwrap().to_owned();
    let accepted = told(response, 201).await;
    assert_eq!(place, format!("/v1/runs/{}", accepted["trace_id"].as_str().unwrap()));
    let shown = ended(&front, accepted["trace_id"].as_str().unwrap()).await;
    assert_eq!(
        (&shown["outcome"]["status"], &shown["contexts"][0]["child_id"]),
        (&json!("completed"), &json!("root"))
    );
    assert_eq!(front.value(&format!("{place}/result")).await, "hello");
    problem(front.get(&format!("{place}/contexts/root/journal")), 404, "no_journal").await;

    let trace = waiting(&front).await;
    let (run, context) = (format!("/v1/runs/{trace}"), format!("/v1/runs/{trace}/contexts/w"));
    problem(front.get(&format!("{run}/result")), 409, "not_ended").await;
    problem(front.get(&format!("{context}/outputs")), 409, "not_ended").await;
    problem(front.get(&format!("{run}/contexts/other/result")), 404, "unknown_context").await;
    let open = front.value("/v1/questions").await;
    assert_eq!(
        (&open["questions"][0]["trace_id"], &open["questions"][0]["number"]),
        (&json!(trace), &json!(1))
    );
    let words = json!({"text": "be brief", "id": "m1"});
    for _ in 0..2 {
        let said = told(front.post(&format!("{context}/tell"), &words).send().await.unwrap(), 200).await;
        assert_eq!(said, json!({"child_id": "w", "number": 1}), "the same message twice is one message");
    }
    let raise = json!({"child_id": "w", "max_cost_usd": 2});
    assert_eq!(
        told(front.post(&format!("{run}/raise"), &raise).send().await.unwrap(), 202).await["stored"],
        true
    );
    let limit = async || front.value(&run).await["contexts"][0]["budget"]["limit"]["cost_usd"].clone();
    eventually("the budget is raised", async || limit().await == 2 || limit().await == 2.0).await;
    let lower = json!({"child_id": "w", "max_cost_usd": "0.5"});
    problem(front.post(&format!("{run}/raise"), &lower), 409, "not_a_raise").await;
    for nothing in [json!({"child_id": "w"}), json!({"child_id": "w", "max_cost_usd": null})] {
        let said = problem(front.post(&format!("{run}/raise"), &nothing), 422, "malformed").await;
        assert!(said.to_string().contains("hint: "), "{said}");
    }
    let charge = json!({"child_id": "w", "key": "bill-1", "amount": {"cost_usd": "0.25", "tokens": 0}});
    told(front.post(&format!("{run}/charge"), &charge).send().await.unwrap(), 202).await;
    let spent = async || front.value(&run).await["contexts"][0]["budget"]["spent"]["cost_usd"].clone();
    eventually("the charge is booked", async || spent().await.as_f64().is_some_and(|spent| spent >= 0.25))
        .await;
    let restore = json!({"child_id": "w", "to": 99});
    problem(front.post(&format!("{run}/restore"), &restore), 409, "not_restorable").await;
    problem(front.post(&format!("{context}/answers/7"), &json!({"answer": "no"})), 404, "no_question").await;

    answered(&front, &trace).await;
    let shown = ended(&front, &trace).await;
    assert_eq!(shown["outcome"]["status"], "completed", "{shown}");
    assert_eq!(front.value(&format!("{context}/result")).await, "done");
    let journal = front.value(&format!("{context}/journal")).await;
    assert!(journal.as_array().unwrap().len() >= 4, "{journal}");
    files(&front, &context).await;
    let receipt = front.value(&format!("{run}/receipt")).await;
    assert_eq!((&receipt["receipt"]["trace_id"], &receipt["whole"]), (&json!(trace), &json!(true)));
    let events = front.value(&format!("{run}/events")).await;
    assert_eq!(events.as_array().unwrap().last().unwrap()["event"], shown["version"]);
    let all = Stream::open(&front, &format!("{run}/events"), None).await.rest().await;
    assert_eq!(all.len(), events.as_array().unwrap().len() + 1, "each event, and the outcome");
    let middle = all.len() / 2;
    let rest = Stream::open(&front, &format!("{run}/events"), Some(&all[middle].id)).await.rest().await;
    assert_eq!(rest, all[middle + 1..]);
    let held = front.value(&format!("{run}/events?type=held&context=w")).await;
    assert!(held.as_array().unwrap().iter().all(|event| event["body"]["type"] == "held"), "{held}");

    problem(front.post(&format!("{run}/cancel"), &json!({})), 409, "ended").await;
    problem(front.post(&format!("{run}/restore"), &json!({"child_id": "w", "to": 1})), 409, "not_restorable")
        .await;
    told(front.post(&format!("{run}/delete"), &json!({})).send().await.unwrap(), 202).await;
    eventually("the run is deleted", async || front.value(&run).await["deleted"] == json!(["w"])).await;
    problem(front.get(&format!("{run}/result")), 404, "deleted").await;

    let trace = waiting(&front).await;
    let asked = front
        .ask(Method::POST, &format!("/v1/runs/{trace}/restore"))
        .json(&json!({"child_id": "w", "to": 1}));
    told(asked.send().await.unwrap(), 202).await;
    told(front.ask(Method::POST, &format!("/v1/runs/{trace}/cancel")).send().await.unwrap(), 202).await;
    assert_eq!(ended(&front, &trace).await["outcome"]["status"], "cancelled");
    front.stop().await;
}

/// One file of the run: whole, in part, already cached, and never as a page.
async fn files(front: &Front, context: &str) {
    let listed = front.value(&format!("{context}/outputs")).await;
    assert_eq!(listed[0]["path"], "deep/a b.md");
    let path = format!("{context}/outputs/deep/a%20b.md");
    let whole = front.get(&path).send().await.unwrap();
    let headers = whole.headers().clone();
    assert_eq!((whole.status().as_u16(), whole.text().await.unwrap().as_str()), (200, "0123456789"));
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment; filename=\"a_b.md\"; filename*=UTF-8''a%20b.md"),
        ("x-content-type-options", "nosniff"),
        ("accept-ranges", "bytes"),
    ] {
        assert_eq!(headers[name], value);
    }
    let tag = headers["etag"].to_str().unwrap().to_owned();
    for (range, status, part, place) in [
        ("bytes=2-4", 206, "234", "bytes 2-4/10"),
        ("bytes=-3", 206, "789", "bytes 7-9/10"),
        ("bytes=7-", 206, "789", "bytes 7-9/10"),
        ("bytes=0-1,4-5", 200, "0123456789", ""),
    ] {
        let part_of = front.get(&path).header("range", range).header("if-range", &tag).send().await.unwrap();
        let found =
            part_of.headers().get("content-range").map_or("", |place| place.to_str().unwrap()).to_owned();
        assert_eq!((part_of.status().as_u16(), found.as_str()), (status, place), "{range}");
        assert_eq!(part_of.text().await.unwrap(), part, "{range}");
    }
    let behind = front.get(&path).header("range", "bytes=10-").send().await.unwrap();
    assert_eq!(behind.headers()["content-range"], "bytes */10");
    assert_eq!(told(behind, 416).await["code"], "range");
    let other =
        front.get(&path).header("range", "bytes=2-4").header("if-range", "\"x\"").send().await.unwrap();
    assert_eq!(other.status(), 200, "a range of another version gives the whole file");
    let same = front.get(&path).header("if-none-match", tag).send().await.unwrap();
    assert_eq!((same.status().as_u16(), same.text().await.unwrap().as_str()), (304, ""));
    problem(front.get(&format!("{context}/outputs/deep/none")), 404, "no_file").await;
    problem(front.get(&format!("{context}/outputs/..%2F..%2Fetc%2Fpasswd")), 404, "no_file").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_the_same_run_and_another_content_under_it_a_conflict() {
    let front = Front::start().await;
    let sent = async |key: &str, goal: &str| {
        front.post("/v1/runs", &json!({"goal": goal})).header("idempotency-key", key).send().await.unwrap()
    };
    let first = told(sent("k", "a").await, 201).await;
    assert_eq!(told(sent("k", "a").await, 201).await, first);
    assert_ne!(told(sent("l", "a").await, 201).await["trace_id"], first["trace_id"]);
    assert_eq!(told(sent("k", "b").await, 409).await["code"], "conflict");
    problem(
        front.post("/v1/runs", &json!({"goal": "a"})).header("idempotency-key", "k".repeat(256)),
        400,
        "malformed",
    )
    .await;
    let named = json!({"goal": "x", "trace_id": "0af7651916cd43dd8448eb211c80319c"});
    assert_eq!(
        told(front.post("/v1/runs", &named).send().await.unwrap(), 201).await["trace_id"],
        named["trace_id"]
    );
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_did_not_change_is_not_sent_again() {
    let front = Front::start().await;
    let trace = front.run(json!({"goal": "x"})).await;
    let path = format!("/v1/runs/{trace}");
    let first = front.get(&path).send().await.unwrap();
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    for given in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".into()] {
        let same = front.get(&path).header("if-none-match", given).send().await.unwrap();
        assert_eq!((same.status().as_u16(), same.headers()["etag"].to_str().unwrap()), (304, tag.as_str()));
        assert_eq!(same.text().await.unwrap(), "");
    }
    told(front.get(&path).header("if-none-match", "\"1-1\"").send().await.unwrap(), 200).await;
    told(front.post(&format!("{path}/delete"), &json!({})).send().await.unwrap(), 202).await;
    eventually("the tag has changed", async || {
        front.get(&path).header("if-none-match", &tag).send().await.unwrap().status() == 200
    })
    .await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g17_runs_are_found_by_every_filter_page_by_page() {
    let front = Front::start().await;
    for number in 0..5 {
        let labels = json!({"env": if number % 2 == 0 { "prod" } else { "test" }, "n": number.to_string()});
        front.run(json!({"goal": "x", "agent_id": "echo", "thread_id": "t", "labels": labels})).await;
    }
    let found = async |query: &str| {
        let page = front.value(&format!("/v1/runs?{query}")).await;
        let runs = page["runs"].as_array().unwrap().len();
        (runs, page["next"].as_str().map(str::to_owned))
    };
    for (query, count) in [
        ("thread_id=t", 5),
        ("thread_id=t&label=env%3Dprod", 3),
        ("label=env%3Dprod&label=n%3D2", 1),
        ("thread_id=t&status=completed&status=failed", 5),
        ("thread_id=t&status=failed", 0),
        ("agent_id=echo", 5),
        ("agent_id=other", 0),
        ("thread_id=t&waiting_for_human=true", 0),
        ("thread_id=t&min_cost_usd=0.5", 0),
        ("thread_id=t&max_cost_usd=0.5", 5),
        ("thread_id=t&since=2000-01-01", 5),
        ("thread_id=t&until=2000-01-01T10:00Z", 0),
        ("thread_id=t&since=0&until=9007199254740991", 5),
    ] {
        assert_eq!(found(query).await.0, count, "{query}");
    }
    let (mut seen, mut after) = (0, String::new());
    loop {
        let (count, next) = found(&format!("thread_id=t&limit=2{after}")).await;
        seen += count;
        let Some(next) = next else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, 5);
    let wrong = "limit=7&status=done&agent_id=a/b&since=never&label=x&min_cost_usd=-1";
    let told = problem(front.get(&format!("/v1/runs?{wrong}")), 400, "malformed").await;
    assert_eq!(told["problems"].as_array().unwrap().len(), 5, "{told}");
    for wrong in [
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=1&limit=2",
        "colour=red",
        "after=x",
        "until=9007199254740992",
    ] {
        problem(front.get(&format!("/v1/runs?{wrong}")), 400, "malformed").await;
    }
    front.stop().await;
}
