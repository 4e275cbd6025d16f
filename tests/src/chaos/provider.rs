//! The model provider of the chaos: slow, sometimes failing, and with its own bill.

use std::{sync::Mutex, time::Duration};

use serde_json::{Value, json};

use crate::{
    servers::{ModelServer, Prompt, Reply},
    simulation::chance::Chance,
};

pub(super) const NAME: &str = "test";

/// The settings of a worker, with a price for the model of each run.
pub(super) fn settings(model: &ModelServer, runs: usize) -> Value {
    let mut settings = model.settings();
    let price = settings["prices"]["test/model"].clone();
    for number in 0..runs {
        settings["prices"][format!("{NAME}/run-{number}")] = price.clone();
    }
    settings
}

/// Decides the answers. An agent that may spawn lets two others do the work; those write a note and
/// answer.
pub(super) fn answers(chance: Chance) -> impl Fn(&Prompt) -> Reply + Send + Sync {
    let chance = Mutex::new(chance);
    move |prompt: &Prompt| {
        let chance = chance.lock().expect("no test panics while it holds the lock");
        let used = Reply {
            input_tokens: prompt.size_bytes() / 4,
            output_tokens: chance.between(1, 200).min(prompt.max_tokens()),
            takes: Duration::from_millis(chance.between(0, 400)),
            ..Reply::default()
        };
        match chance.between(1, 100) {
            1..=4 => return Reply { status: Some(429), ..used },
            5..=6 => return Reply { status: Some(500), ..used },
            7..=8 => return Reply { breaks_off: true, text: "half of".into(), ..used },
            9..=10 => return Reply { no_usage: true, text: "who knows what it cost".into(), ..used },
            11..=13 => return Reply { takes: Duration::from_secs(6), text: "late".into(), ..used },
            _ => {}
        }
        let spawns = prompt.body["tools"].to_string().contains("\"spawn\"");
        let calls = match (prompt.turn(), spawns) {
            (0, true) => ["left", "right"].map(|goal| spawn(prompt, goal)).into(),
            (0, false) => {
                vec![("fs_write".to_owned(), json!({"path": "outputs/note", "content": "noted"}))]
            }
            _ => Vec::new(),
        };
        let length = if chance.percent(5) { 200_000 } else { 200 };
        let text = if calls.is_empty() { "word ".repeat(length / 5) } else { String::new() };
        Reply { calls, text, ..used }
    }
}

fn spawn(prompt: &Prompt, goal: &str) -> (String, Value) {
    let agent = prompt.model().replace("run-", "thinker-");
    ("spawn".to_owned(), json!({"agent_id": agent, "goal": goal}))
}
