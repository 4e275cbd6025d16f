//! Agents, schedules, graphs, workers, coordinators and dead letters over HTTP.

use domain::subject::Subject;
use reqwest::Method;
use serde_json::{Value, json};
use trellis_tests::cluster::eventually;

use super::{Front, problem, told};

async fn put(front: &Front, path: &str, body: &Value) -> Value {
    told(front.ask(Method::PUT, path).json(body).send().await.unwrap(), 200).await
}

async fn delete(front: &Front, path: &str) -> Value {
    told(front.ask(Method::DELETE, path).send().await.unwrap(), 200).await
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_applied_shown_and_deleted() {
    let front = Front::start().await;
    let agent = json!({"agent_id": "a", "kind": "llm", "model": "scripted", "script": [{"say": "x"}]});
    assert_eq!(
        put(&front, "/v1/agents/a", &agent).await,
        json!({"agent_id": "a", "version": 1, "unchanged": false})
    );
    assert_eq!(put(&front, "/v1/agents/a", &agent).await["unchanged"], true);
    let other = json!({"agent_id": "a", "kind": "llm", "model": "scripted", "script": [{"say": "y"}]});
    assert_eq!(put(&front, "/v1/agents/a", &other).await["version"], 2);
    assert_eq!(front.value("/v1/agents/a").await["version"], 2);
    assert_eq!(front.value("/v1/agents/a?version=1").await["agent"]["script"][0]["say"], "x");
    problem(front.get("/v1/agents/a?version=9"), 404, "malformed").await;
    problem(front.get("/v1/agents/b"), 404, "malformed").await;
    assert_eq!(front.value("/v1/agents").await["versions"], json!({"a": 2}));
    problem(front.ask(Method::PUT, "/v1/agents/b").json(&agent), 422, "other_name").await;
    let wrong = json!({"agent_id": "a", "kind": "llm", "modell": "x"});
    let said = problem(front.ask(Method::PUT, "/v1/agents/a").json(&wrong), 422, "malformed").await;
    assert!(said["problems"].to_string().contains("did you mean `model`?"), "{said}");
    assert_eq!(delete(&front, "/v1/agents/a").await["agent_id"], "a");
    problem(front.ask(Method::DELETE, "/v1/agents/none"), 404, "malformed").await;
    problem(front.ask(Method::DELETE, "/v1/agents/default"), 409, "malformed").await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g16_schedules_are_put_paused_resumed_run_and_deleted() {
    let front = Front::start().await;
    let nightly = json!({"name": "nightly", "cron": "0 3 * * *", "task": {"goal": "tidy"}});
    let path = "/v1/schedules/nightly";
    let kept = put(&front, &format!("{path}?revision=0"), &nightly).await;
    assert_eq!((&kept["name"], &kept["paused"]), (&json!("nightly"), &json!(false)));
    problem(front.ask(Method::PUT, &format!("{path}?revision=0")).json(&nightly), 409, "malformed").await;
    problem(front.ask(Method::PUT, "/v1/schedules/weekly").json(&nightly), 422, "other_name").await;
    problem(front.ask(Method::PUT, path).json(&json!({"name": "nightly", "cron": "x"})), 422, "malformed")
        .await;
    assert_eq!(front.value(path).await["cron"], "0 3 * * *");
    assert_eq!(front.value("/v1/schedules?limit=1").await["schedules"][0]["name"], "nightly");
    let post = async |what: &str| front.ask(Method::POST, &format!("{path}/{what}")).send().await.unwrap();
    assert_eq!(told(post("pause").await, 200).await["paused"], true);
    assert_eq!(told(post("resume").await, 200).await["paused"], false);
    let run = async || {
        front.ask(Method::POST, &format!("{path}/run")).header("idempotency-key", "k").send().await.unwrap()
    };
    let ran = run().await;
    let place = ran.headers()["location"].to_str().unwrap().to_owned();
    let first = told(ran, 201).await;
    assert_eq!(place, format!("/v1/runs/{}", first["trace_id"].as_str().unwrap()));
    assert_eq!(told(run().await, 201).await, first, "the same key is the same run");
    eventually("the run ends", async || !front.value(&place).await["outcome"].is_null()).await;
    assert_eq!(delete(&front, path).await["name"], "nightly");
    for what in ["pause", "resume", "run"] {
        assert_eq!(told(post(what).await, 404).await["code"], "malformed");
    }
    problem(front.get("/v1/schedules/none"), 404, "malformed").await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g18_graphs_are_kept_shown_used_and_deleted() {
    let front = Front::start().await;
    let graph =
        json!({"steps": [{"id": "a", "agent_id": "echo", "task_description": "t", "output_to": "x"}]});
    assert_eq!(
        put(&front, "/v1/graphs/facts", &graph).await,
        json!({"name": "facts", "version": 1, "unchanged": false})
    );
    assert_eq!(front.value("/v1/graphs").await["graphs"][0]["name"], "facts");
    assert_eq!(front.value("/v1/graphs/facts?version=1").await["version"], 1);
    problem(front.get("/v1/graphs/facts?version=2"), 404, "malformed").await;
    front.run(json!({"steps": [{"id": "all", "use": "facts"}]})).await;
    let wrong = json!({"steps": [{"id": "a", "after": ["b"]}]});
    problem(front.ask(Method::PUT, "/v1/graphs/facts").json(&wrong), 422, "malformed").await;
    assert_eq!(delete(&front, "/v1/graphs/facts").await["name"], "facts");
    problem(front.get("/v1/graphs/facts"), 404, "malformed").await;
    problem(front.ask(Method::DELETE, "/v1/graphs/none"), 404, "malformed").await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_coordinators_and_dead_letters_are_listed_and_a_worker_drained() {
    let front = Front::start().await;
    assert_eq!(front.value("/v1/coordinators").await["coordinators"], json!(["coordinator"]));
    let workers = front.value("/v1/workers").await;
    assert_eq!((&workers[0]["worker_id"], &workers[0]["draining"]), (&json!("worker"), &json!(false)));
    problem(front.ask(Method::POST, "/v1/workers/worke/drain"), 404, "no_worker").await;
    assert_eq!(front.value("/v1/dead").await, json!({"letters": []}));
    problem(front.get("/v1/dead/cancel/1"), 404, "no_letter").await;
    for _ in 0..3 {
        front.cluster.client.publish(Subject::Cancel, &json!({"nonsense": 1})).await;
    }
    let count = async || front.value("/v1/dead").await["letters"].as_array().unwrap().len();
    eventually("the messages are dead letters", async || count().await == 3).await;
    let page = front.value("/v1/dead?limit=2&kind=cancel").await;
    let letters = page["letters"].as_array().unwrap();
    assert!(
        letters.len() == 2 && letters[0]["sequence"].as_u64() > letters[1]["sequence"].as_u64(),
        "{page}"
    );
    let rest = front.value(&format!("/v1/dead?before={}", page["next"])).await;
    assert_eq!((rest["letters"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
    let one = front.value(&format!("/v1/dead/cancel/{}", letters[0]["sequence"])).await;
    assert_eq!((&one, &one["letter"]["refusal"]["code"]), (&letters[0], &json!("malformed")));
    problem(front.get(&format!("/v1/dead/spawn/{}", letters[0]["sequence"])), 404, "no_letter").await;
    assert_eq!(front.value("/v1/dead?kind=spawn").await["letters"], json!([]));

    // The retried message is the same byte by byte; refused again, it becomes another letter.
    let path = |letter: &Value| format!("/v1/dead/cancel/{}", letter["sequence"]);
    let again = |body: &str| {
        let asked = front.ask(Method::POST, &format!("{}/retry", path(&letters[0])));
        asked.header("content-type", "application/json").body(body.to_owned())
    };
    problem(again(r#"{"nonsense": 2}"#), 409, "conflict").await;
    let sent = told(again(r#"{"nonsense":1}"#).send().await.unwrap(), 202).await;
    assert_eq!(sent["subject"], "agent.cancel");
    problem(again(r#"{"nonsense":1}"#), 404, "no_letter").await;
    eventually("the retried message is a dead letter again", async || count().await == 3).await;
    let dropped = front.ask(Method::DELETE, &path(&letters[1])).send().await.unwrap();
    assert_eq!(dropped.status(), 204);
    problem(front.ask(Method::DELETE, &path(&letters[1])), 404, "no_letter").await;
    assert_eq!(count().await, 2);
    let drained = front.ask(Method::POST, "/v1/workers/worker/drain").send().await.unwrap();
    assert_eq!(told(drained, 202).await["worker_id"], "worker");
    eventually("the worker drains", async || {
        let workers = front.value("/v1/workers").await;
        workers.as_array().unwrap().iter().all(|worker| worker["draining"] == true)
    })
    .await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_coordinator_a_client_gets_a_time_to_retry() {
    let bus = bus::Bus::Memory(bus::Memory::new(Default::default()));
    let server = gateway::Server::bind(super::config(), bus).await.unwrap();
    let address = server.address();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(server.serve(async {
        let _ = stopped.await;
    }));
    let answer = super::client().get(format!("http://{address}/v1/agents")).send().await.unwrap();
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(told(answer, 503).await["code"], "unavailable");
    drop(stop);
    served.await.unwrap().unwrap();
}
