//! `docs/protocol.md` agrees with the types: each example is decoded by its type, and no subject,
//! filter, stream or refusal is missing.

use std::{collections::BTreeSet, path::Path};

use bus::{Consumer, Stream};
use domain::{
    ChildId, PoolName, TraceId, decode,
    graph::TaskGraph,
    schema,
    subject::{Action, Audited, Filter, Partition, Subject, Topic},
    wire,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use trace::LoggedEvents;

fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// The examples: the name of the type, and the text.
fn examples(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```json") else { continue };
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        found.push((name.trim().to_owned(), text.join("\n")));
    }
    found
}

/// The examples of a page.
pub(super) fn examples_of(path: &str) -> Vec<(String, String)> {
    examples(&file(path))
}

fn reads<T: DeserializeOwned + JsonSchema + 'static>(text: &str) -> Result<(), String> {
    decode::json::<T>(text.as_bytes()).map(drop).map_err(|problems| problems.to_string())
}

fn check(name: &str, text: &str) -> Result<(), String> {
    match name {
        "spawn" => reads::<wire::Spawn>(text),
        "graph" => reads::<TaskGraph>(text),
        "rerun" => reads::<wire::Rerun>(text),
        "submit-answer" => reads::<wire::SubmitAnswer>(text),
        "execute" => reads::<wire::Offer>(text),
        "ask" => reads::<wire::AskMessage>(text),
        "answer" => reads::<wire::Answer>(text),
        "result" => reads::<wire::Result>(text),
        "cost" => reads::<wire::Cost>(text),
        "history" => reads::<wire::HistoryEntry>(text),
        "stream" => reads::<wire::StreamPiece>(text),
        "cancel" => reads::<wire::Cancel>(text),
        "input" => reads::<wire::Input>(text),
        "control" => reads::<wire::Control>(text),
        "question" => reads::<wire::Question>(text),
        "outcome" => reads::<wire::Outcome>(text),
        "graph-answer" => reads::<wire::GraphAnswer>(text),
        "dead-letter" => reads::<wire::DeadLetter>(text),
        "stop" => reads::<wire::Stop>(text),
        "query" => reads::<wire::Query>(text),
        "query-answer" => reads::<wire::QueryAnswer>(text),
        "profile-version" => reads::<wire::ProfileVersion>(text),
        "schedule" => reads::<wire::Schedule>(text),
        "schedule-revision" => reads::<wire::ScheduleRevision>(text),
        "graph-version" => reads::<wire::GraphVersion>(text),
        "worker-call" => reads::<wire::WorkerCall>(text),
        "drain" => reads::<wire::Drain>(text),
        "admin-record" => reads::<wire::AdminRecord>(text),
        "worker-state" => reads::<wire::WorkerState>(text),
        "event-message" => reads::<LoggedEvents>(text),
        other => Err(format!("an example of `{other}`, which is not a message")),
    }
}

#[test]
fn every_example_of_the_protocol_is_read_by_its_type() {
    let page = file("docs/protocol.md");
    let examples = examples(&page);
    assert!(examples.len() > 25, "only {} examples were found", examples.len());
    for (name, text) in &examples {
        check(name, text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    }
    // Every message has an example, except messages that are parts of others.
    let parts = ["refusal", "snapshot", "agent", "settings", "event"];
    for schema::Message { name, .. } in coordinator::messages() {
        let shown = parts.contains(&name) || examples.iter().any(|(shown, _)| shown == name);
        assert!(shown, "no example of `{name}`");
        assert!(
            page.contains(&format!("(schemas/trellis.json#/properties/{name})")) || parts.contains(&name),
            "no link to `{name}`"
        );
    }
}

#[test]
fn every_subject_filter_stream_and_consumer_is_in_the_protocol() {
    let page = file("docs/protocol.md");
    let trace: TraceId = "0af7651916cd43dd8448eb211c80319c".parse().unwrap();
    let child: ChildId = "child".parse().unwrap();
    let home = Partition::new(0).unwrap();
    let written = |text: String| {
        let text = text.replace(&trace.to_string(), "<trace>").replace("child", "<child>");
        format!(
            "`{}`",
            text.replace("p00", "<p>")
                .replace("pool", "<pool>")
                .replace("kind", "<kind>")
                .replace("agent_id", "<agent_id>")
                .replace("graph_name", "<graph>")
                .replace("hookname", "<webhook>")
                .replace(".name", ".<schedule>")
        )
    };
    let pool: PoolName = "pool".parse().unwrap();
    let subjects = [
        Subject::Spawn,
        Subject::Graph,
        Subject::Cancel,
        Subject::Input,
        Subject::Submit,
        Subject::Steer,
        Subject::Worker,
        Subject::Drain,
        Subject::Execute(pool.clone()),
        Subject::Ask(pool.clone(), home),
        Subject::Stop(trace),
        Subject::Result(pool.clone(), home, trace, child.clone()),
        Subject::Cost(pool.clone(), home, trace, child.clone()),
        Subject::Event(trace, child.clone()),
        Subject::Outcome(trace, child.clone()),
        Subject::Question(trace, child.clone()),
        Subject::Span(trace, child.clone()),
        Subject::Webhook("hookname".parse().unwrap(), trace, child.clone()),
        Subject::History(pool.clone(), trace, child.clone()),
        Subject::Stream(trace, child.clone()),
        Subject::Dead("kind".parse().unwrap()),
        Subject::Audit(Audited::Policy),
        Subject::Audit(Audited::WorkerPolicy),
        Subject::Profile("agent_id".parse().unwrap()),
        Subject::Schedule("name".parse().unwrap()),
        Subject::Ticks("name".parse().unwrap()),
        Subject::Kept("graph_name".parse().unwrap()),
    ];
    let filters = [
        Filter::Executes,
        Filter::AsksOf(home),
        Filter::Results,
        Filter::Costs,
        Filter::ResultsOf(home),
        Filter::CostsOf(home),
        Filter::Events,
        Filter::EventsOf(trace),
        Filter::Outcomes,
        Filter::OutcomesOf(trace),
        Filter::Questions,
        Filter::QuestionsOf(trace),
        Filter::Histories,
        Filter::HistoriesOf(trace),
        Filter::JournalOf(trace, child),
        Filter::StreamsOf(trace),
        Filter::Dead,
        Filter::Audits,
        Filter::Profiles,
        Filter::Schedules,
        Filter::AllTicks,
        Filter::AllKept,
        Filter::Stops,
        Filter::Spans,
        Filter::Webhooks,
        Filter::WebhooksOf("hookname".parse().unwrap()),
    ];
    let kinds = subjects.iter().map(Subject::kind).collect::<BTreeSet<_>>().len() + ["query", "admin"].len();
    let subjects = subjects.into_iter().chain(Topic::ALL.map(Subject::Query));
    let subjects = subjects.chain(Action::ALL.map(Subject::Admin));
    let mut named: Vec<String> = subjects.map(|subject| written(subject.to_string())).collect();
    named.extend(filters.iter().map(|filter| written(filter.to_string())));
    for consumer in [
        Consumer::Intake,
        Consumer::Execute(pool),
        Consumer::Report(home),
        Consumer::Span,
        Consumer::Webhook("hookname".parse().unwrap()),
    ] {
        named.push(written(consumer.name()));
    }
    for name in named {
        assert!(page.contains(&name), "{name} is not in docs/protocol.md");
    }
    for stream in Stream::ALL {
        assert!(page.contains(&format!("| {} |", stream.name())), "{}", stream.name());
    }
    // A new row of either table needs a new line above.
    let rows = |source: &str| file(source).matches(" = \"agent.").count();
    assert_eq!(kinds, rows("shared/domain/src/subject/mod.rs"));
    assert_eq!(filters.len(), rows("shared/domain/src/subject/filter.rs"));
}

#[test]
fn every_refusal_is_in_the_protocol_with_its_rule() {
    let page = file("docs/protocol.md");
    let source = file("coordinator/core/src/refusal.rs");
    let codes: Vec<(&str, &str)> = source
        .lines()
        .filter_map(|line| line.trim().split_once("=> (\"")?.1.strip_suffix("\"),")?.split_once("\", \""))
        .collect();
    assert!(codes.len() > 30, "{codes:?}");
    let rows = || page.lines().filter(|line| line.starts_with("| `"));
    for (code, rule) in codes.into_iter().chain([("unavailable", "B13"), ("worker_lost", "B15")]) {
        let row = |row: &str| row.contains(&format!("`{code}`")) && row.contains(&format!("| {rule} |"));
        assert!(rows().any(row), "`{code}` of rule {rule} is not in docs/protocol.md");
    }
}
