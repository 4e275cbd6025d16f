//! Server-sent events: a run from its first event to its outcome, resumed at any place, and the
//! live output of agents.

use serde_json::{Value, json};
use trellis_tests::cluster::SOON;

use super::{Front, config, problem, runs};

/// A stream of events, as a client reads it.
pub(super) struct Stream {
    response: reqwest::Response,
    text: String,
    pub(super) comments: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) data: Value,
}

impl Stream {
    pub(super) async fn open(front: &Front, path: &str, last: Option<&str>) -> Self {
        let asked = front.get(path).header("accept", "text/event-stream");
        let asked = match last {
            Some(last) => asked.header("last-event-id", last),
            None => asked,
        };
        let response = asked.send().await.unwrap();
        assert_eq!(response.status(), 200, "{:?}", response.text().await);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Stream { response, text: String::new(), comments: 0 }
    }

    /// The next event; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let mut lines =
                        block.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    lines.next().unwrap_or_default().to_owned()
                };
                let (kind, id, data) = (field("event"), field("id"), field("data"));
                self.comments += usize::from(block.starts_with(':'));
                self.text = rest.to_owned();
                if !data.is_empty() {
                    return Some(Event { kind, id, data: serde_json::from_str(&data).unwrap() });
                }
                continue;
            }
            let part = tokio::time::timeout(SOON, self.response.chunk())
                .await
                .expect("a part of the stream arrives in time")
                .unwrap()?;
            self.text.push_str(std::str::from_utf8(&part).unwrap());
        }
    }

    pub(super) async fn rest(mut self) -> Vec<Event> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_a_stream_resumes_behind_every_event_without_loss_or_repetition() {
    let front = Front::start().await;
    let grown = json!({"goal": "grow", "agent_id": "tree", "inputs": {"depth": 2, "width": 3}});
    let trace = front.run(grown).await;
    let path = format!("/v1/runs/{trace}/events");
    let all = Stream::open(&front, &path, None).await.rest().await;
    let listed = front.value(&path).await;
    let events: Vec<Value> =
        all.iter().filter(|event| event.kind == "event").map(|event| event.data.clone()).collect();
    assert_eq!(json!(events), listed, "the stream and the list have the same events");
    let outcome = all.last().unwrap();
    assert_eq!((outcome.kind.as_str(), &outcome.data["status"]), ("outcome", &json!("completed")));
    assert_eq!(all.len(), events.len() + 1, "the outcome of the root is sent once, at the end");
    for (place, event) in all.iter().enumerate().take(all.len() - 1) {
        let rest = Stream::open(&front, &path, Some(&event.id)).await.rest().await;
        assert_eq!(rest, all[place + 1..], "the events after {}", event.id);
    }
    let after = front.get(&path).header("accept", "text/event-stream").header("last-event-id", &outcome.id);
    assert_eq!(after.send().await.unwrap().status(), 204, "a browser does not connect again");
    // A recreated log starts again at 1: all of it is new.
    let (_, rest) = all[3].id.split_once('-').unwrap();
    let anew = Stream::open(&front, &path, Some(&format!("7-{rest}"))).await.rest().await;
    assert_eq!(anew, all);
    let wrong = front.get(&path).header("accept", "text/event-stream").header("last-event-id", "x");
    problem(wrong, 400, "malformed").await;
    let none = format!("/v1/runs/{}/events", "1".repeat(32));
    problem(front.get(&none).header("accept", "text/event-stream"), 404, "no_trace").await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g9_a_stream_of_a_live_run_ends_with_its_outcome_and_has_live_output() {
    let mut config = config();
    config.limits.heartbeat = std::time::Duration::from_millis(50);
    let front = Front::with(config, trellis_tests::cluster::Cluster::embedded()).await;
    let trace = runs::waiting(&front).await;
    let mut events = Stream::open(&front, &format!("/v1/runs/{trace}/events?type=ended"), None).await;
    let words = Stream::open(&front, &format!("/v1/runs/{trace}/words"), None).await;
    runs::answered(&front, &trace).await;
    let heard = words.rest().await;
    let (end, said) = heard.split_last().unwrap();
    assert_eq!((end.kind.as_str(), &end.data["status"]), ("outcome", &json!("completed")));
    assert!(said.iter().any(|piece| piece.data["said"]["text"] == "done"), "{heard:?}");
    assert_eq!(events.next().await.unwrap().data["body"]["type"], "ended");
    assert_eq!(events.next().await.unwrap().kind, "outcome");
    assert_eq!(events.next().await, None);
    problem(front.get(&format!("/v1/runs/{}/words", "1".repeat(32))), 404, "no_trace").await;
    front.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_stream_says_that_it_is_there_and_ends_when_the_server_stops() {
    let mut config = config();
    config.limits.heartbeat = std::time::Duration::from_millis(20);
    // Only the stop itself ends the stream.
    config.limits.stop_within = 2 * SOON;
    let front = Front::with(config, trellis_tests::cluster::Cluster::embedded()).await;
    let trace = runs::waiting(&front).await;
    let mut stream = Stream::open(&front, &format!("/v1/runs/{trace}/events"), None).await;
    let reading = tokio::spawn(async move {
        while stream.next().await.is_some() {}
        stream.comments
    });
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(!reading.is_finished(), "the run is live");
    front.stop().await;
    assert!(reading.await.unwrap() > 0, "the stream has sent a sign of life");
}
