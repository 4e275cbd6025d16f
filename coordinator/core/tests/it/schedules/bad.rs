//! Invalid schedules: all mistakes of each, at once.

use domain::{
    Timestamp, TraceId, Usd, decode,
    schedule::{MAX_TASK_BYTES, read},
};
use serde_json::{Value, json};

fn with(changes: Value) -> Value {
    let mut schedule = json!({"name": "nightly", "cron": "0 3 * * *", "task": {"goal": "tidy up"}});
    for (key, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(schedule.as_object_mut().unwrap().remove(key)),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                schedule[key] = value.clone();
            }
        }
    }
    schedule
}

fn labels(count: usize) -> Value {
    (0..count).map(|n| (format!("k{n}"), json!("v"))).collect::<serde_json::Map<_, _>>().into()
}

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

/// proves: every mistake of a definition is reported at once, with its path, its field and a hint.
#[test]
fn g16_all_mistakes_of_bad_schedules_are_reported() {
    read(&with(json!({}))).unwrap();
    let mut bad: Vec<Value> = [
        "",
        "* * * *",
        "0 0 3 * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * 0 *",
        "* * * * 8",
        "* * * * mun",
        "* * * jnu *",
        "*/0 * * * *",
        "*/60 * * * *",
        "5/10 * * * *",
        "10-5 * * * *",
        "* * * * fri-tue",
        "1,,2 * * * *",
        "-5 * * * *",
        "1-2-3 * * * *",
        "* * L * *",
        "0 0 30 2 *",
        "@reboot",
        "@every",
        "@every 5",
        "@every 0s",
        "@every 2y",
        "@every 500d",
        "x 24 0 13 8",
    ]
    .iter()
    .map(|cron| with(json!({"cron": cron})))
    .collect();
    bad.extend([
        json!({}),
        json!([]),
        with(json!({"cron": null, "task": null, "name": null})),
        with(json!({"time_zone": "Europe/Berln", "overlap": "sometimes", "catch_up": 101})),
        with(json!({"time_zone": "+02:00"})),
        with(json!({"time_zone": "berlin"})),
        with(json!({"name": "a.b", "cron": 7, "time_zone": 1, "catch_up": -1, "labels": {"a b": "c"}})),
        with(json!({"croon": "* * * * *", "timezone": "UTC", "budget_per_day_usd": -1})),
        with(json!({"task": "tidy up"})),
        with(json!({"task": {"name": "x"}})),
        with(json!({"task": {"goal": "", "max_cost_usd": -1, "agent": "a"}})),
        with(json!({"task": {"goal": "x", "trace_id": "1", "reply_to": "here", "rerun": {}}})),
        with(json!({"cron": "61 * * * *", "task": {"steps": [
            {"agent_id": "a", "task_description": "t", "input_from": ["nowhere"]},
            {"agent_id": "b c", "task_description": "t", "when": "1 +"}
        ]}})),
        with(json!({"task": {"goal": "x", "labels": labels(16)}})),
        with(json!({"labels": {"schedule": "x"}, "task": {"goal": "x", "labels": {"schedule": "y"}}})),
        with(json!({"task": {"goal": "x", "max_cost_usd": 2}, "budget_per_day_usd": 1})),
        with(json!({"budget_per_day_usd": 0, "max_runs": 0, "until": "tomorrow", "catch_up_within_ms": 604_800_001})),
        with(json!({"until": "2026-02-30", "paused": "yes", "max_runs": 1.5})),
        with(json!({"task": {"goal": "x", "inputs": {"text": "x".repeat(300_000)}}})),
        with(json!({"task": {"goal": "x", "inputs": {"deep": deep(200)}}})),
    ]);
    assert!(bad.len() >= 40);
    let mut told = String::new();
    for bad in bad {
        let problems = read(&bad).unwrap_err();
        let given = bad.to_string().chars().take(200).collect::<String>();
        told.push_str(&format!("{given}\n{problems}\n\n"));
    }
    insta::assert_snapshot!(told);
}

/// proves: values equal to the bounds are allowed.
#[test]
fn g16_a_run_that_just_fits_is_started() {
    let text = "x".repeat(usize::try_from(MAX_TASK_BYTES).unwrap() - 60);
    for good in [
        json!({"task": {"goal": "x", "inputs": {"text": text}}}),
        json!({"task": {"goal": "x", "labels": labels(15)}}),
        json!({"task": {"goal": "x", "max_cost_usd": 1}, "budget_per_day_usd": 1}),
        json!({"catch_up": 100, "catch_up_within_ms": 604_800_000, "max_runs": 1, "until": "2026-12-31"}),
        json!({"catch_up": 0, "overlap": "cancel_previous", "time_zone": "europe/berlin", "paused": true}),
        json!({"task": {"steps": [{"agent_id": "a", "task_description": "t"}], "max_cost_usd": 0.5}}),
    ] {
        read(&with(good.clone())).unwrap_or_else(|problems| panic!("{good}: {problems}"));
    }
}

/// proves: the example is valid, and its comments are correct.
#[test]
fn g16_the_example_is_a_schedule() {
    let text = include_bytes!("../../../../../examples/nightly.yaml");
    let readable = read(&decode::parse(text, decode::Format::Yaml).unwrap()).unwrap();
    let next = readable.timetable.next(Timestamp::parse("2026-03-28").unwrap()).unwrap();
    assert_eq!(readable.timetable.local(next), "2026-03-30T02:30:00+02:00");
    let submitted = readable.submission(TraceId::from_u128(7).unwrap(), Usd::from_cents(100));
    assert_eq!(submitted["labels"], json!({"team": "research", "schedule": "nightly"}));
    assert_eq!(
        (submitted["max_cost_usd"].clone(), readable.ceiling),
        (json!(0.5), Some(Usd::from_cents(50)))
    );
}
