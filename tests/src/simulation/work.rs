//! The runs of a simulation, and of chaos on real processes: trees and graphs of random shape, with
//! tight budgets, humans, large results and agents that fail. An agent's calls are paid in one of
//! two ways: by `spend`, whose cost is known, or by a simulated model, whose provider keeps a bill.

use domain::{TraceId, Usd, subject::Subject};
use serde_json::{Value, json};

use super::chance::Chance;

#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) trace_id: TraceId,
    pub(crate) subject: Subject,
    pub(crate) message: Value,
    /// The ceiling of the root, including all raises.
    pub(crate) cap: Usd,
    /// The most that is charged to the run from outside.
    pub(crate) charged: Usd,
    /// The model of all its paid calls.
    pub(crate) model: Option<String>,
    /// The most that one of its calls holds.
    pub(crate) largest_hold: Usd,
}

/// The provider whose models follow the scripts of their agents.
pub(crate) const SCRIPTED: &str = "scripted";

/// A run and the profiles that it needs. It has its own model of this provider.
pub(crate) fn run(number: usize, provider: &str, chance: &Chance) -> (Run, Vec<Value>) {
    let trace_id = TraceId::from_u128(chance.bits() | 1).expect("not zero");
    let cents = *chance.pick(&[1, 2, 5, 10, 20, 100]);
    let mut maker = Maker { number, chance, cents };
    let by_model = chance.percent(50);
    let leaf = if by_model { format!("thinker-{number}") } else { "spend".into() };
    let (subject, mut message) = match chance.between(0, 3) {
        0 => (Subject::Spawn, maker.single(&leaf)),
        1 => (Subject::Spawn, maker.tree(&leaf)),
        2 if by_model => (Subject::Spawn, json!({"goal": "lead", "agent_id": format!("boss-{number}")})),
        2 => (Subject::Spawn, json!({"goal": "hand over", "agent_id": "chain", "inputs": {"length": 3}})),
        _ => (Subject::Graph, maker.graph(&leaf)),
    };
    message["trace_id"] = json!(trace_id);
    message["max_cost_usd"] = json!(maker.cap());
    if chance.percent(40) {
        message["on_exhausted"] = json!("pause");
    }
    let model = format!("{provider}/run-{number}");
    let run = Run {
        trace_id,
        subject,
        message,
        cap: Usd::from_cents(cents),
        charged: Usd::ZERO,
        model: by_model.then(|| model.clone()),
        largest_hold: if by_model { Usd::from_cents(4) } else { Usd::from_nanos(HOLD_NANOS) },
    };
    let mut profiles = maker.profiles(&model);
    if provider != SCRIPTED {
        profiles.iter_mut().for_each(|profile| drop(profile.as_object_mut().map(|it| it.remove("script"))));
    }
    (run, profiles)
}

/// The hold and the cost of a call of `spend`, in nano-dollars.
const HOLD_NANOS: u64 = 5_000_000;
const COST_NANOS: u64 = 3_000_000;

struct Maker<'a> {
    number: usize,
    chance: &'a Chance,
    cents: u64,
}

impl Maker<'_> {
    fn cap(&self) -> Value {
        json!(Usd::from_cents(self.cents))
    }

    fn spend_inputs(&self) -> Value {
        json!({
            "usd": Usd::from_nanos(COST_NANOS),
            "hold_usd": Usd::from_nanos(HOLD_NANOS),
            "calls": self.chance.between(1, 4),
            "ms": self.chance.between(0, 3_000),
        })
    }

    fn single(&self, leaf: &str) -> Value {
        match self.chance.between(0, 4) {
            0 => json!({"goal": "which way?", "agent_id": "ask"}),
            1 => {
                let times = self.chance.between(1, 3);
                json!({"goal": "stumble", "agent_id": "fail", "inputs": {"times": times}})
            }
            2 => json!({"goal": "carry", "agent_id": "share", "inputs": {"value": "x".repeat(300_000)}}),
            _ if leaf == "spend" => json!({"goal": "pay", "agent_id": leaf, "inputs": self.spend_inputs()}),
            _ => json!({"goal": "think", "agent_id": leaf}),
        }
    }

    fn tree(&self, leaf: &str) -> Value {
        let (depth, width) = (self.chance.between(1, 2), self.chance.between(2, 4));
        let mut inputs = json!({"depth": depth, "width": width, "leaf": leaf});
        if leaf == "spend" {
            inputs["usd"] = json!(Usd::from_nanos(HOLD_NANOS));
        }
        json!({"goal": "grow", "agent_id": "tree", "inputs": inputs})
    }

    fn graph(&mut self, leaf: &str) -> Value {
        let count = self.chance.between(2, 6);
        let steps: Vec<Value> = (0..count).map(|n| self.step(n, leaf)).collect();
        let mut inputs = self.spend_inputs();
        inputs["list"] = json!(["a", "b", "c"]);
        if self.chance.percent(10) {
            inputs["large"] = json!("y".repeat(100_000));
        }
        let mut graph = json!({
            "mode": self.chance.pick(&["sequential", "parallel"]),
            "on_partial_success": self.chance.pick(&["fail", "continue", "best_effort"]),
            "inputs": inputs,
            "steps": steps,
        });
        if self.chance.percent(15) {
            graph["race"] = json!(true);
        } else if self.chance.percent(20) {
            graph["aggregate"] = json!({});
            graph["agent_id"] = json!("echo");
            graph["task_description"] = json!("sum it up");
        }
        graph
    }

    fn step(&self, n: u64, leaf: &str) -> Value {
        let chance = self.chance;
        let agent = *chance.pick(&[leaf, leaf, leaf, "echo", "sleep", "ask", "fail", "share"]);
        if agent == "ask" && n % 2 == 1 {
            return self.approval(n);
        }
        let mut step = json!({
            "id": format!("s{n}"),
            "agent_id": agent,
            "task_description": format!("part {n}"),
            "output_to": format!("out{n}"),
        });
        if agent == "spend" {
            step["input_from"] = json!(["usd", "hold_usd", "calls", "ms"]);
        }
        if n > 0 && chance.percent(40) {
            step["depends_on"] = json!([format!("s{}", chance.between(0, n - 1))]);
        }
        if chance.percent(15) {
            step["for_each"] = json!({"in": "list", "max_parallel": chance.between(1, 3)});
        }
        if chance.percent(20) {
            step["required"] = json!(false);
        }
        if chance.percent(30) {
            step["retries"] = json!(chance.between(0, 2));
        }
        if chance.percent(20) {
            step["timeout_ms"] = json!(chance.between(2_000, 40_000));
        }
        if chance.percent(20) {
            let cents = chance.between(1, self.cents);
            step["max_cost_usd"] = json!(Usd::from_cents(cents));
            step["funding"] = json!(chance.pick(&["shared", "granted"]));
        }
        step
    }

    /// A step that a human approves. It may have a timeout with a default.
    fn approval(&self, n: u64) -> Value {
        let mut approve = json!({"who": "anybody", "choices": ["left", "right"], "remind_every_ms": 20_000});
        if self.chance.percent(30) {
            approve["timeout_ms"] = json!(self.chance.between(2_000, 60_000));
            approve["otherwise"] = json!(self.chance.pick(&["approve", "deny", "fail"]));
        }
        json!({"id": format!("s{n}"), "output_to": format!("out{n}"), "approve": approve})
    }

    /// Agents with a model: one writes a note and answers, the other lets two of them do the work.
    fn profiles(&self, model: &str) -> Vec<Value> {
        let thinker = format!("thinker-{}", self.number);
        let write = json!({"tool": "fs.write", "arguments": {"path": "outputs/note", "content": "noted"}});
        let spawn = |goal: &str| json!({"tool": "spawn", "arguments": {"agent_id": thinker, "goal": goal}});
        vec![
            json!({"agent_id": thinker, "kind": "llm", "model": model, "tools": ["fs.write", "fs.read"],
                "script": [{"say": "noting", "call": [write]}, {"say": "done with {goal}"}]}),
            json!({"agent_id": format!("boss-{}", self.number), "kind": "llm", "model": model,
                "tools": ["spawn", "fs.write", "fs.read"],
                "script": [{"call": [spawn("left"), spawn("right")]}, {"say": "both: {last}"}]}),
        ]
    }
}
