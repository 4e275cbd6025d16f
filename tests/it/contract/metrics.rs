//! The metrics, their list, and the files about them: the documentation page, the dashboard and the
//! alerts (X7).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use domain::{
    Usd,
    decode::{self, Format},
};
use serde_json::Value;
use telemetry::metrics::{self, EndedWork, Kind, Live, Metric, ModelCall, Queue, Source};
use trellis_tests::prometheus::{Series, parse};

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of a metric's series in Prometheus.
fn series_of(metric: &Metric) -> Vec<String> {
    match metric.kind {
        Kind::Counter | Kind::Gauge => vec![metric.prometheus.to_owned()],
        Kind::Histogram => {
            ["_bucket", "_sum", "_count"].map(|part| metric.prometheus.to_owned() + part).to_vec()
        }
    }
}

/// The words of a query that are our names.
fn named(query: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let words = query.split(|letter: char| !is_part(letter));
    words.filter(|word| word.starts_with("trellis_") || word.starts_with("gen_ai_")).collect()
}

/// Every text under this key, at any depth.
fn under<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let (true, Some(text)) = (name == key, value.as_str()) {
                    found.push(text);
                }
                under(value, key, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| under(item, key, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Names in the queries that are neither a series nor a label of ours.
fn unknown<'a>(queries: &[&'a str]) -> BTreeSet<&'a str> {
    let series: BTreeSet<String> = metrics::ALL.iter().flat_map(series_of).collect();
    let labels: BTreeSet<String> =
        metrics::ALL.iter().flat_map(|metric| metric.labels).map(|label| label.replace('.', "_")).collect();
    let names = queries.iter().flat_map(|query| named(query));
    names.filter(|name| !series.contains(*name) && !labels.contains(*name)).collect()
}

#[test]
fn x7_every_query_of_the_dashboard_and_the_alerts_names_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(&file("deploy/grafana/trellis.json")).unwrap();
    let mut queries = Vec::new();
    under(&dashboard, "expr", &mut queries);
    assert!(queries.len() > 20, "{queries:?}");
    assert_eq!(unknown(&queries), BTreeSet::new(), "in the dashboard");
    let shown: BTreeSet<&str> = queries.iter().flat_map(|query| named(query)).collect();
    let absent =
        metrics::ALL.iter().filter(|metric| !series_of(metric).iter().any(|name| shown.contains(&**name)));
    assert_eq!(absent.map(|metric| metric.prometheus).collect::<Vec<_>>(), Vec::<&str>::new(), "not shown");

    let alerts = decode::parse(file("deploy/prometheus/alerts.yml").as_bytes(), Format::Yaml).unwrap();
    let groups = alerts["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(rules.len() >= 8);
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        let query = rule["expr"].as_str().unwrap();
        assert_eq!(unknown(&[query]), BTreeSet::new(), "in {name}");
        assert!(!named(query).is_empty(), "{name} uses no metric of Trellis");
        for text in
            [&rule["annotations"]["summary"], &rule["annotations"]["hint"], &rule["labels"]["severity"]]
        {
            assert!(text.as_str().is_some_and(|text| !text.is_empty()), "{name}: {rule}");
        }
    }
    // A misspelt name is found.
    assert_eq!(
        unknown(&["rate(trellis_hold_second_bucket[5m])"]),
        BTreeSet::from(["trellis_hold_second_bucket"])
    );

    let scrape = decode::parse(file("deploy/prometheus/prometheus.yml").as_bytes(), Format::Yaml).unwrap();
    assert_eq!(scrape["rule_files"][0], "alerts.yml");
    assert!(scrape["scrape_configs"].as_array().is_some_and(|jobs| jobs.len() == 2));
}

#[test]
fn x7_the_documents_have_the_whole_list() {
    let text = file("docs/metrics.md");
    let row = |metric: &Metric| {
        let labels: Vec<String> =
            metric.labels.iter().map(|label| format!("`{}`", label.replace('.', "_"))).collect();
        let labels = labels.join(", ");
        format!("| `{}` | {} | {labels} | {} |", metric.prometheus, metric.kind.name(), metric.meaning)
    };
    let missing: Vec<String> =
        metrics::ALL.iter().map(row).filter(|row| !text.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "rows of docs/metrics.md:\n{}", missing.join("\n"));
    let rows = text.lines().filter(|line| line.starts_with("| `trellis_") || line.starts_with("| `gen_ai_"));
    assert_eq!(rows.count(), metrics::ALL.len(), "each once");
}

/// Records every metric, with a thousand names of each sort.
fn tell_all() -> impl Sized {
    let second = Duration::from_secs(1);
    for _ in 0..1_000 {
        let name = uuid::Uuid::new_v4().to_string();
        metrics::context_ended(EndedWork::Agent(&name), second, Some("provider"));
        metrics::context_ended(EndedWork::Agent(&name), second, None);
        metrics::queue_waited(&name, second);
        metrics::tool_called(&name, second, true);
        metrics::tool_called(&name, second, false);
        metrics::spent(Some(&format!("{name}/{name}")), Source::Call, Usd::from_cents(1));
        metrics::dead_letter(&name);
        metrics::model_called(ModelCall {
            model: &format!("{name}/{name}"),
            took: second,
            first_chunk: Some(second),
            tokens: Some((10, 20)),
            error: None,
        });
    }
    metrics::context_ended(EndedWork::Workflow, second, Some("step"));
    metrics::context_ended(EndedWork::Workflow, second, None);
    metrics::cancelled(second);
    metrics::batch(3);
    metrics::store("commit", second, true);
    metrics::hold_answered(second);
    let queue = Queue { pool: "default".into(), pending: 3, ack_pending: 2, oldest: second };
    let (runs, partitions, slots, queues) =
        (metrics::tell_runs(), metrics::tell_partitions(), metrics::tell_slots(), metrics::tell_queues());
    runs.tell(Live { contexts: [1, 2, 3, 4], oldest: second, held_nanos: 5_000_000_000, unsent: 1 });
    partitions.tell((4, 16));
    slots.tell((1, 2));
    queues.tell(vec![queue]);
    (runs, partitions, slots, queues)
}

#[test]
fn x7_names_are_those_of_the_list_and_the_number_of_series_is_bounded() {
    metrics::switch_on();
    let _told = tell_all();
    let all = parse(&metrics::text());
    let mut by_name: BTreeMap<&str, Vec<&Series>> = BTreeMap::new();
    all.iter().for_each(|series| by_name.entry(&series.name).or_default().push(series));
    for metric in metrics::ALL {
        let labels: BTreeSet<String> = metric.labels.iter().map(|label| label.replace('.', "_")).collect();
        for name in series_of(metric) {
            let Some(found) = by_name.get(&*name) else { panic!("there is no {name}") };
            assert_eq!(found[0].kind, metric.kind.name(), "{name}");
            for label in found.iter().flat_map(|series| series.labels.keys()) {
                assert!(labels.contains(label) || label == "le", "{name} has the label {label}");
            }
            // Each label set has a series for each bucket.
            let sets: BTreeSet<Vec<(&String, &String)>> = found
                .iter()
                .map(|series| series.labels.iter().filter(|(label, _)| *label != "le").collect())
                .collect();
            assert!(sets.len() <= 1_001, "{name} has {} series", sets.len());
        }
    }
    let different = |name: &str, label: &str| {
        by_name[name].iter().map(|series| &*series.labels[label]).collect::<BTreeSet<&str>>()
    };
    for (name, label, most) in [
        ("gen_ai_invoke_agent_duration_seconds_count", "gen_ai_agent_name", 200),
        ("trellis_queue_wait_seconds_count", "pool", 32),
        ("trellis_spend_usd_total", "model", 100),
        ("gen_ai_client_operation_duration_seconds_count", "gen_ai_provider_name", 32),
        ("gen_ai_execute_tool_duration_seconds_count", "gen_ai_tool_name", 200),
        ("trellis_dead_letters_total", "kind", 64),
    ] {
        let found = different(name, label);
        assert!(found.contains("other"), "{name}: {label}");
        assert_eq!(found.len(), most + 1, "{name}: {label}");
    }
    let counted: f64 =
        by_name["gen_ai_invoke_agent_duration_seconds_count"].iter().map(|series| series.value).sum();
    assert!(counted >= 2_000.0, "samples beyond the limit of series were lost: {counted}");
    let holds: Vec<&str> =
        by_name["trellis_hold_seconds_bucket"].iter().map(|series| &*series.labels["le"]).collect();
    assert_eq!((holds.first(), holds.get(12)), (Some(&"0.0005"), Some(&"5")), "{holds:?}");
}
