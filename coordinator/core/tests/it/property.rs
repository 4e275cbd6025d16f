//! Random commands on random trees, in any order and repeated: the invariants are checked after
//! every command. `TRELLIS_PROPERTY_CASES` sets the number of cases (about 350 commands each; 3,000
//! cases are more than a million commands).

use std::collections::HashSet;

use domain::{
    AgentProfile, Amount, ChildId, Json, Timestamp, Tokens, TraceId, Usd,
    check::{CheckDecision, Moment},
    decode,
    graph::Plan,
    limits::Settings,
    wire::{
        AnswerMessage, Charge, CheckReport, Claim, DecideDispute, Decision, Delete, Failure, FailureKind,
        Form, Hold, Lease, Payload, Progress, Raise, Referrers, Report, Restore, Resume, SeenNumbers,
        SettledCall, Tell, Text, Tick, Verdict,
    },
};
use proptest::{prelude::*, test_runner::Config};
use serde_json::{Value, json};
use trace::{
    Amend, CallState, Command, ContextNode, ContextSpec, Event, Order, Phase, RerunOrder, RunOrigin, Spawn,
    Status, Submit, TokenHash, Trace,
};
use world::{accounts, id, invariants, log_cuts};

/// Half of the runs keep marks for spans. Their replay and their stored form must give the same
/// trace.
fn traced(seed: Op) -> Option<Box<RunOrigin>> {
    let received_at = Timestamp::from_millis(999_000);
    let traced = RunOrigin { received_at, subject: "agent.spawn".into(), parent: None, link: None };
    seed.1.is_multiple_of(2).then(|| Box::new(traced))
}

/// One random command: its kind, and numbers that choose its parts.
#[derive(Debug, Clone, Copy)]
struct Op(u8, u16, u16, u16);

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op =
        (0u8..100, any::<u16>(), any::<u16>(), any::<u16>()).prop_map(|(kind, a, b, c)| Op(kind, a, b, c));
    prop::collection::vec(op, 100..600)
}

/// Mostly large budgets, sometimes small ones.
fn root_usd(Op(_, a, b, _): Op) -> f64 {
    if a % 4 == 0 { f64::from(b % 300 + 1) / 100.0 } else { 100.0 }
}

struct Player {
    trace: Trace,
    now: Timestamp,
    log: Vec<(Timestamp, Event)>,
    /// The orders that were accepted.
    orders: Vec<(Timestamp, Order)>,
    leases: Vec<Lease>,
    /// Sent commands, to be sent again.
    sent: Vec<Command>,
    agents: Vec<AgentProfile>,
    fresh: u32,
}

impl Player {
    fn new(graph: bool, seed: Op) -> Self {
        let agents = ["default", "other"].map(|name| AgentProfile::builtin(name.parse().unwrap(), "echo"));
        let mut player = Player {
            trace: Trace::new(TraceId::from_u128(7).unwrap()),
            now: Timestamp::from_millis(1_000_000),
            log: Vec::new(),
            orders: Vec::new(),
            leases: Vec::new(),
            sent: Vec::new(),
            agents: agents.to_vec(),
            fresh: 0,
        };
        let mut settings = Settings::default();
        settings.limits.max_depth = 8;
        settings.limits.max_contexts = 400;
        settings.limits.max_children = 40;
        // Some traces have little room.
        settings.limits.max_trace_bytes =
            if seed.2.is_multiple_of(3) { 20_000 + u64::from(seed.1) } else { 256_000_000 };
        // Most traces live long enough for every kind of command.
        settings.limits.max_retries_total = if seed.3.is_multiple_of(4) { 3 } else { 60 };
        settings.limits.timeout_ms = if seed.3.is_multiple_of(5) { 60_000 } else { 600_000 };
        let (spec, plan) = if graph {
            let mut graph = player.random_graph(seed, "root");
            graph["max_cost_usd"] = json!(root_usd(seed));
            let (spec, plan) = ContextSpec::from_graph(&decode::value(&graph).unwrap(), &id("root")).unwrap();
            (spec, Some(plan))
        } else {
            let mut spawn = player.random_spawn(seed, "root");
            spawn["max_cost_usd"] = json!(root_usd(seed));
            (ContextSpec::from_spawn(&decode::value(&spawn).unwrap(), &[], &id("root")).unwrap(), None)
        };
        let agents = player.agents.clone();
        player.handle(Command::Submit(Box::new(Submit {
            spec,
            plan,
            agents: agents.into(),
            settings,
            traced: traced(seed),
            rerun: None,
            unresolved: None,
        })));
        player
    }

    /// A rerun of the run, if it may be run again.
    fn rerun(&self, from: u16) -> Option<Self> {
        let steps = self.trace.graph_outcome(self.trace.root()?)?.steps;
        let from = steps.get(usize::from(from) % (steps.len() + 1)).map(|step| step.id.clone());
        let asked = json!({"rerun": {"trace_id": self.trace.id(), "from": Vec::from_iter(from)}});
        let asked = decode::value(&asked).unwrap();
        let request = RerunOrder::new(&asked, &id("root"));
        let (spec, plan, earlier) = self.trace.rerun(&asked, id("root"), request, true).ok()?;
        let mut player = Player {
            trace: Trace::new(TraceId::from_u128(8).unwrap()),
            log: Vec::new(),
            orders: Vec::new(),
            leases: Vec::new(),
            sent: Vec::new(),
            agents: self.agents.clone(),
            ..*self
        };
        let (agents, settings) = (self.agents.clone().into(), self.settings());
        let (plan, rerun) = (Some(plan), Some(Ok(earlier)));
        player.handle(Command::Submit(Box::new(Submit {
            spec,
            plan,
            agents,
            settings,
            traced: None,
            rerun,
            unresolved: None,
        })));
        player.trace.root()?;
        Some(player)
    }

    fn settings(&self) -> Settings {
        let (_, first) = &self.orders[0];
        let Command::Submit(submit) = &first.command else { panic!("a run begins with its submission") };
        submit.settings.clone()
    }

    /// Removes, adds or changes a step of some graph, whether it has begun or not.
    fn amend(&mut self, Op(_, a, b, c): Op) {
        let graphs: Vec<ChildId> = self
            .trace
            .contexts()
            .iter()
            .filter(|node| node.graph.is_some() && node.is_live())
            .map(|node| node.id.clone())
            .collect();
        let Some(child_id) = graphs.get(usize::from(a) % graphs.len().max(1)) else { return };
        let Some((_, revision, graph)) = self.trace.definition_of(child_id) else { return };
        let mut graph = serde_json::to_value(graph).unwrap();
        let mut steps = &mut graph["steps"];
        let place = usize::from(b) % steps.as_array().unwrap().len();
        if steps[place]["steps"].is_array() && c % 2 == 0 {
            steps = &mut steps[place]["steps"];
        }
        let steps = steps.as_array_mut().unwrap();
        let place = usize::from(b) % steps.len();
        let new = json!({"id": format!("new{}", self.fresh), "agent_id": "other", "task_description": "n"});
        match b % 5 {
            0 if steps.len() > 1 => drop(steps.remove(place)),
            1 => steps.insert(place, new),
            2 => steps[place]["required"] = json!(false),
            3 => steps.rotate_left(1),
            _ => steps.push(new),
        }
        let Ok(graph) = decode::value(&graph) else { return };
        let Ok(plan) = Plan::compile(&graph) else { return };
        self.handle(Command::Amend(Box::new(Amend {
            child_id: Some(child_id.clone()),
            id: format!("am{}", self.fresh).parse().unwrap(),
            revision: revision + u32::from(a % 7 == 0),
            plan: plan.into(),
            by: None,
            agents: self.agents.clone().into(),
            unresolved: None,
            unverified: Vec::new(),
        })));
    }

    /// The tree at the beginning: up to three hundred running contexts, eight levels deep.
    fn plant(&mut self, Op(_, a, b, c): Op) {
        for child in self.queued() {
            self.claim(child);
        }
        for n in 0..a % 300 {
            let pick = b.wrapping_mul(n).wrapping_add(c) | 1;
            let Some(lease) = self.lease(pick) else { return };
            let name = format!("p{n}");
            let spawn =
                decode::value(&json!({"goal": name, "child_id": name, "max_cost_usd": 50 - n % 50})).unwrap();
            let spec = ContextSpec::from_spawn(&spawn, &[], &id("x")).unwrap();
            let agents = self.agents.clone();
            self.handle(Command::Spawn(Box::new(Spawn { lease, spec, plan: None, agents: agents.into() })));
            self.claim(id(&name));
        }
    }

    fn handle(&mut self, command: Command) {
        if self.sent.len() < 64 {
            self.sent.push(command.clone());
        } else {
            let place = self.fresh as usize % 64;
            self.sent[place] = command.clone();
        }
        self.fresh += 1;
        let version = self.trace.version();
        match self.trace.handle(command.clone(), self.now) {
            Ok(events) => {
                self.log.extend(events.into_iter().map(|event| (self.now, event)));
                self.orders.push((self.now, command.clone().into()));
            }
            Err(_) => assert_eq!(self.trace.version(), version, "a refusal changed the trace: {command:?}"),
        }
        invariants::check(&self.trace).unwrap_or_else(|what| panic!("{what}\nafter {command:?}"));
        if let Some(root) = self.trace.root() {
            let (has, max) = (self.trace.content_bytes(), root.limits.max_trace_bytes);
            assert!(has <= max, "L: {has} bytes of {max} after {command:?}");
        }
    }

    fn random_terms(op: Op) -> Value {
        let Op(_, a, b, c) = op;
        let mut terms = json!({});
        if a % 3 > 0 {
            terms["max_cost_usd"] = json!(f64::from(b % 200 + 1) / 100.0);
        }
        if a % 5 == 0 {
            terms["max_tokens"] = json!(u32::from(c % 500) + 1);
        }
        if a % 7 < 3 {
            terms["funding"] = json!("granted");
        }
        terms
    }

    fn random_spawn(&self, op: Op, name: &str) -> Value {
        let Op(_, a, b, _) = op;
        let mut spawn = Self::random_terms(op);
        spawn["goal"] = json!(format!("goal of {name}"));
        spawn["child_id"] = json!(name);
        if b % 5 == 0 {
            spawn["on_exhausted"] = json!("pause");
        }
        if b % 11 == 0 {
            spawn["closing_reserve_usd"] = json!(0.005);
        }
        if b % 3 == 0 {
            spawn["on_budget"] =
                json!([{"at": 0.1, "tell": true}, {"at": 0.3, "model": "m"}, {"at": 0.9, "compact": true}]);
        }
        if a % 13 == 0 {
            spawn["timeout_ms"] = json!(20_000);
        }
        spawn["output_to"] = json!("out");
        spawn
    }

    /// Steps that depend on earlier ones, with every construct of a graph.
    fn random_graph(&self, op: Op, name: &str) -> Value {
        let Op(kind, a, b, c) = op;
        let bit = |n: u32| (u32::from(a) << 16 | u32::from(b)).rotate_left(n * 3 + u32::from(c) % 7);
        let steps: Vec<Value> = (0..2 + a % 5)
            .map(|n| {
                let n = u32::from(n);
                let mut step = Self::random_terms(Op(kind, a.wrapping_add(bit(n) as u16), b, c));
                step["id"] = json!(format!("s{n}-{name}"));
                step["agent_id"] = json!("default");
                step["task_description"] = json!("t");
                step["output_to"] = json!(format!("k{n}"));
                let tokens = bit(n) % 3 > 0 || a % 5 == 0;
                if bit(n + 5) % 2 == 0 {
                    step["undo"] = undo(bit(n + 6), tokens);
                }
                if n > 0 && bit(n) % 2 == 0 {
                    step["input_from"] = json!([format!("k{}", bit(n + 1) % n)]);
                }
                match bit(n + 2) % 9 {
                    0 => step["when"] = json!("budget.remaining_usd > 0.2"),
                    1 => step["required"] = json!(false),
                    2 => step["for_each"] = json!("items"),
                    3 => step["loop"] = json!({"max_rounds": 3, "until": format!("outputs.k{n} == 'ok'")}),
                    4 => step["fallback"] = json!("other"),
                    5 => {
                        let inner = |m: u32| {
                            let mut inner = json!({"id": format!("i{m}-{n}-{name}"), "agent_id": "default", "task_description": "t"});
                            if bit(n + m) % 3 > 0 {
                                inner["undo"] = undo(bit(n + m + 1), tokens);
                            }
                            inner
                        };
                        let race = bit(n + 3) % 2 == 0;
                        step = json!({"id": step["id"], "output_to": step["output_to"], "race": race, "mode": "parallel", "steps": [inner(0), inner(1)]});
                        match bit(n + 4) % 5 {
                            0 => step["loop"] = json!({"max_rounds": 2}),
                            4 => {
                                step["for_each"] = json!("items");
                                step["steps"][0]["input_from"] = json!(["item"]);
                                step["steps"][0]["output_to"] = json!(format!("own{n}"));
                            }
                            1 => step["fallback"] = json!({"agent_id": "other", "task_description": "instead"}),
                            2 => step["on_partial_success"] = json!("continue"),
                            _ => {}
                        }
                    }
                    6 => step["retries"] = json!(1),
                    7 => {
                        let choices = if b % 2 == 0 { json!(["yes"]) } else { json!([]) };
                        let mut approve = json!({"who": "me", "remind_every_ms": 9_000, "choices": choices});
                        if bit(n + 3) % 3 > 0 {
                            approve["timeout_ms"] = json!(40_000);
                            approve["otherwise"] = json!(["approve", "deny", "fail"][bit(n + 4) as usize % 3]);
                        }
                        step = json!({"id": step["id"], "output_to": step["output_to"], "approve": approve});
                    }
                    _ => {}
                }
                step
            })
            .collect();
        let mut graph = Self::random_terms(op);
        graph["child_id"] = json!(name);
        let items: Vec<u16> = (0..[3, 0, 7][usize::from(c % 3)]).collect();
        graph["inputs"] = json!({"items": items});
        graph["mode"] = json!(["sequential", "parallel"][usize::from(b % 2)]);
        graph["on_partial_success"] = json!(["fail", "continue", "best_effort"][usize::from(c % 3)]);
        graph["steps"] = json!(steps);
        if b % 3 == 0 {
            graph["on_exhausted"] = json!("pause");
        }
        if c % 7 == 0 {
            graph["closing_reserve_usd"] = json!(0.005);
        }
        if a % 9 == 0 {
            graph["race"] = json!(true);
        }
        if a % 4 == 0 {
            graph["aggregate"] = json!({"timeout_ms": 30_000});
            graph["agent_id"] = json!("other");
        }
        graph
    }

    /// Mostly the lease of a running attempt; sometimes any earlier lease, stale or of an ended
    /// context.
    fn lease(&self, pick: u16) -> Option<Lease> {
        let runs = |node: &&ContextNode| matches!(node.status, Status::Working(Phase::Running { .. }));
        let running: Vec<_> = self.trace.contexts().iter().filter(runs).collect();
        if running.is_empty() || pick.is_multiple_of(8) {
            return self.leases.get(usize::from(pick) % self.leases.len().max(1)).cloned();
        }
        let node = running[usize::from(pick) % running.len()];
        let of = |lease: &&Lease| lease.child_id == node.id && lease.attempt == node.attempt();
        self.leases.iter().find(of).cloned()
    }

    fn any_child(&self, pick: u16) -> ChildId {
        let contexts = self.trace.contexts();
        contexts
            .get(usize::from(pick) % contexts.len().max(1))
            .map_or_else(|| id("nobody"), |node| node.id.clone())
    }

    fn not_the_root(&self, pick: u16) -> ChildId {
        let count = self.trace.contexts().len();
        if count < 2 {
            return id("nobody");
        }
        self.trace.contexts()[1 + usize::from(pick) % (count - 1)].id.clone()
    }

    fn amount(b: u16, c: u16) -> Amount {
        Amount::new(Usd::from_cents(u64::from(b % 60)), Tokens::new(u64::from(c % 50)))
    }

    fn call(&self, lease: &Lease, pick: u16) -> domain::CallId {
        let node = self.trace.context(&lease.child_id);
        // A cost may also arrive while its hold waits.
        let waiting = node.into_iter().flat_map(|node| &node.lifecycle.waiting).map(|hold| &hold.call_id);
        let calls = node.into_iter().flat_map(|node| node.calls.kept().keys());
        let mut known: Vec<_> = calls.chain(waiting).cloned().collect();
        known.sort();
        let known = known.get(usize::from(pick) % known.len().max(1)).cloned();
        known.unwrap_or_else(|| "never-held".parse().unwrap())
    }

    fn claim(&mut self, child_id: ChildId) {
        self.fresh += 1;
        let token: domain::LeaseToken = format!("t{}", self.fresh).parse().unwrap();
        let worker_id = "w".parse().unwrap();
        self.handle(Command::Claim(Claim { child_id: child_id.clone(), worker_id, token: token.clone() }));
        let node = self.trace.context(&child_id);
        if let Some(node) = node
            .filter(|node| node.attempts.last().is_some_and(|attempt| attempt.token == TokenHash::of(&token)))
        {
            self.leases.push(Lease { child_id, attempt: node.attempt(), token });
        }
    }

    fn queued(&self) -> Vec<ChildId> {
        let queued = |status: &Status| {
            matches!(status, Status::Submitted { .. } | Status::Working(Phase::Queued { .. }))
        };
        self.trace.contexts().iter().filter(|node| queued(&node.status)).map(|node| node.id.clone()).collect()
    }

    fn play(&mut self, op: Op) {
        let Op(kind, a, b, c) = op;
        match kind {
            0..15 => {
                let queued = self.queued();
                let child = queued.get(usize::from(a) % queued.len().max(1)).cloned();
                self.claim(child.unwrap_or_else(|| self.any_child(a)));
            }
            15..18 => self.claim(self.any_child(a)),
            18..22 => self.pass(u64::from(a % 4000)),
            22..24 => self.pass(u64::from(a)),
            24..28 => {
                // A late second delivery of an earlier command.
                let again = self.sent.get(usize::from(a) % self.sent.len().max(1)).cloned();
                if let Some(command) = again {
                    self.handle(command);
                }
            }
            28 if a % 4 == 0 => {
                let decision = if c % 2 == 0 { Decision::Accepted } else { Decision::Dropped };
                let decided =
                    DecideDispute { child_id: self.any_child(b), number: u32::from(c % 3), decision };
                self.handle(Command::DecideDispute(decided));
            }
            28 => {
                let key = format!("x{}", b % 20).parse().unwrap();
                let amount = Amount::new(Usd::from_cents(u64::from(c % 6)), Tokens::new(u64::from(c % 4)));
                self.handle(Command::Charge(Charge { child_id: self.any_child(a), key, amount, by: None }));
            }
            29..32 => {
                let raise = Raise {
                    child_id: self.any_child(a),
                    max_cost_usd: Some(Usd::from_cents(u64::from(b % 500))),
                    max_tokens: (c % 2 == 0).then(|| Tokens::new(u64::from(c))),
                };
                self.handle(Command::Raise(raise));
            }
            32 => {
                let child_id = self.any_child(a);
                let question = self
                    .trace
                    .context(&child_id)
                    .map_or(1, |node| u32::try_from(node.answers.len()).unwrap() + u32::from(b % 2));
                self.handle(Command::Answer(AnswerMessage {
                    child_id,
                    question,
                    answer: Text::new(["yes", "no", "deny: never"][usize::from(c % 3)]).unwrap(),
                    by: None,
                }));
            }
            33 if c % 3 == 0 => self.amend(op),
            33 => {
                let child_id = (a % 5 > 0).then(|| self.any_child(a));
                let id = format!("m{}", b % 40).parse().unwrap();
                let text = Text::new(format!("text {}", c % 3)).unwrap();
                self.handle(Command::Tell(Tell { child_id, id, text, by: None }));
            }
            34 if c % 4 == 0 => {
                let child_id = self.any_child(a);
                let done = self.trace.context(&child_id).map_or(0, |node| node.restores.len());
                let number = u32::try_from(done).unwrap() + u32::from(b % 3);
                self.handle(Command::Restore(Restore { child_id, number, to: u32::from(b % 5) }));
            }
            34 => {
                let exists = b % 3 > 0;
                let child_id = if exists { self.not_the_root(a) } else { id(&format!("c{}", a % 400)) };
                let without_undo = c % 5 == 0;
                self.handle(Command::Cancel { child_id: Some(child_id), reason: None, without_undo });
            }
            35 => {
                let delete = Delete {
                    child_id: Some(self.not_the_root(a)),
                    force: b % 8 == 0,
                    outside: Referrers::Known(Vec::new()),
                };
                self.handle(Command::Delete { delete, branches: Some(Vec::new()) });
            }
            _ => {
                if let Some(lease) = self.lease(a) {
                    self.as_worker(kind, lease, op);
                }
            }
        }
    }

    fn as_worker(&mut self, kind: u8, lease: Lease, Op(_, a, b, c): Op) {
        match kind {
            36..50 => {
                self.fresh += 1;
                let name = format!("c{}", self.fresh % 800);
                let op = Op(kind, a, b, c);
                let (spec, plan) = if b % 6 == 0 {
                    let Ok((spec, plan)) = ContextSpec::from_graph(
                        &decode::value(&self.random_graph(op, &name)).unwrap(),
                        &id("x"),
                    ) else {
                        return;
                    };
                    (spec, Some(plan))
                } else {
                    (
                        ContextSpec::from_spawn(
                            &decode::value(&self.random_spawn(op, &name)).unwrap(),
                            &[],
                            &id("x"),
                        )
                        .unwrap(),
                        None,
                    )
                };
                let agents = self.agents.clone();
                self.handle(Command::Spawn(Box::new(Spawn { lease, spec, plan, agents: agents.into() })));
            }
            50..63 => {
                self.fresh += 1;
                let call_id = format!("h{}", self.fresh).parse().unwrap();
                // Some workers take no news; others have seen all of it, or less.
                let node = self.trace.context(&lease.child_id);
                let has = |most: u32, all: bool| Some(if all { most } else { most.saturating_sub(1) });
                let seen = node.filter(|_| b % 3 > 0).map(|node| SeenNumbers {
                    told: has(u32::try_from(node.told.len()).unwrap(), c % 4 > 0),
                    rungs: has(node.lifecycle.rungs, c % 5 > 0).filter(|_| c % 7 > 0),
                });
                self.handle(Command::Hold(Hold {
                    lease,
                    call_id,
                    amount: Self::amount(b, c),
                    closing: a.is_multiple_of(4),
                    seen,
                }));
            }
            63..76 => {
                let call_id = self.call(&lease, b);
                let held = self
                    .trace
                    .context(&lease.child_id)
                    .and_then(|node| node.calls.kept().get(&call_id))
                    .map(|call| call.held);
                // Usually less than the hold, sometimes more.
                let amount = match (held, c % 8) {
                    (Some(held), 0..6) => {
                        Amount::new(Usd::from_nanos(held.cost_usd.nanos() / 2), held.tokens)
                    }
                    (Some(held), 6) => held,
                    _ => Self::amount(b, c),
                };
                self.handle(Command::Settle { lease, call_id, amount, model: None });
            }
            76..79 => {
                let call_id = self.call(&lease, b);
                self.handle(match c.is_multiple_of(3) {
                    true => Command::Forfeit { lease, call_id },
                    false => Command::Release { lease, call_id },
                });
            }
            79..82 => {
                let call_id = self.call(&lease, b);
                let settled = if c % 2 == 0 {
                    vec![SettledCall { call_id, amount: Self::amount(b % 20, c), model: None }]
                } else {
                    Vec::new()
                };
                self.handle(Command::Resume(Resume { lease, settled }));
            }
            82 if b.is_multiple_of(3) => {
                let decisions =
                    [CheckDecision::Pass, CheckDecision::Change, CheckDecision::Deny, CheckDecision::Halt];
                self.handle(Command::Checked(CheckReport {
                    lease,
                    number: u32::from(c % 50),
                    check: "c".parse().unwrap(),
                    moment: Moment::AfterCall,
                    decision: decisions[usize::from(a % 4)],
                    reason: Some("r".into()),
                }));
            }
            82..85 => {
                let progress =
                    Progress { steps: u32::from(b % 22), retries: u32::from(c % 3), ..Progress::default() };
                self.handle(Command::Tick(Tick { lease, progress }));
            }
            85..87 => {
                let key = if b % 2 == 0 {
                    "out".parse().unwrap()
                } else {
                    format!("{}.k", lease.child_id).parse().unwrap()
                };
                self.handle(Command::SetValue { lease, key, value: Json::from(json!(c % 3)) });
            }
            _ => {
                let verdict = self.verdict(&lease, b, c);
                self.handle(Command::Report(Box::new(Report {
                    lease,
                    progress: Progress::default(),
                    verdict,
                })));
            }
        }
    }

    fn verdict(&self, lease: &Lease, b: u16, c: u16) -> Verdict {
        let children = || {
            let node = self.trace.context(&lease.child_id)?;
            let children: Vec<_> =
                node.children.iter().map(|child| self.trace.node(*child).id.clone()).collect();
            (!children.is_empty()).then_some(children)
        };
        let is_root = lease.child_id == id("root");
        match b % 10 {
            0..5 | 8 if is_root => Verdict::HandedBack,
            0..4 => Verdict::Completed(Payload::Inline(Json::from(["ok", "no"][usize::from(c % 2)]))),
            4 => Verdict::Failed(Failure {
                kind: FailureKind::Agent,
                message: "f".into(),
                retryable: c.is_multiple_of(2),
            }),
            5 => {
                Verdict::InputRequired { question: Text::new("q?").unwrap(), form: Box::new(random_form(c)) }
            }
            6 if c.is_multiple_of(3) => Verdict::LastReport(Payload::Inline(Json::from("as far as it came"))),
            6 => Verdict::OutOfBudget,
            7 => Verdict::HandedBack,
            8 if c.is_multiple_of(9) => Verdict::Halted { check: "c".into(), reason: "r".into() },
            _ => match children() {
                Some(children) if c.is_multiple_of(5) => {
                    Verdict::Waiting { children: children[..1].to_vec(), hand_over: true }
                }
                Some(children) => Verdict::Waiting { children, hand_over: false },
                None if is_root => Verdict::HandedBack,
                None => Verdict::Completed(Payload::Inline(Json::from("ok"))),
            },
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.plus_millis(millis);
        if millis.is_multiple_of(3) {
            // No coordinator was running meanwhile.
            self.handle(Command::Spare { until: self.now.plus_millis(5_000) });
        }
        self.handle(Command::Wake);
    }

    /// The faults are over: every worker works, every human answers, every budget is raised.
    fn heal(&mut self) {
        let mut raised = HashSet::new();
        for _ in 0..20_000 {
            if let Some(child) = self.queued().first().cloned() {
                let version = self.trace.version();
                self.claim(child.clone());
                if let Some(lease) = self.leases.last().cloned().filter(|lease| lease.child_id == child) {
                    let verdict = Verdict::Completed(Payload::Inline(Json::from("ok")));
                    self.handle(Command::Report(Box::new(Report {
                        lease,
                        progress: Progress::default(),
                        verdict,
                    })));
                }
                if self.trace.version() != version {
                    continue;
                }
            }
            let waiting = self.trace.contexts().iter().find_map(|node| self.trace.question(&node.id));
            if let Some(question) = waiting {
                let (child_id, number) = (question.child_id, question.number);
                let answer =
                    question.form.choices.first().cloned().unwrap_or_else(|| Text::new("yes").unwrap());
                self.handle(Command::Answer(AnswerMessage { child_id, question: number, answer, by: None }));
                continue;
            }
            // A raise helps contexts that lack money; contexts that wait for calls in flight need
            // time.
            let idle = self.trace.next_timer().is_none();
            let lacks = |node: &&ContextNode| matches!(node.status, Status::Paused { .. });
            let lacks = |node: &&ContextNode| lacks(node) && (idle || !raised.contains(&node.id));
            if let Some(paused) = self.trace.contexts().iter().find(lacks) {
                let lowest = paused.id.clone();
                self.raise_chain(&lowest);
                raised.insert(lowest);
                continue;
            }
            match self.trace.next_timer() {
                Some(due) => {
                    self.now = self.now.max(due);
                    self.handle(Command::Wake);
                }
                None => return,
            }
        }
        panic!("the trace never came to rest");
    }

    fn raise_chain(&mut self, lowest: &ChildId) {
        let mut chain = vec![lowest.clone()];
        while let Some(parent) = self.trace.context(&chain[chain.len() - 1]).and_then(|node| node.parent) {
            chain.push(self.trace.node(parent).id.clone());
        }
        for child_id in chain.into_iter().rev() {
            let Some(node) = self.trace.context(&child_id).filter(|node| node.is_live()) else { continue };
            let (limit, parent) = (
                node.budget.ceilings.limit,
                node.parent.map(|parent| self.trace.node(parent).budget.ceilings.limit),
            );
            let more = Amount::new(
                Usd::from_nanos(limit.cost_usd.nanos() + Usd::from_cents(1000).nanos()),
                Tokens::new(limit.tokens.count() + 1000),
            );
            let most = parent.map_or(more, |parent| more.min(parent).max(limit));
            let raise = Raise { child_id, max_cost_usd: Some(most.cost_usd), max_tokens: Some(most.tokens) };
            self.handle(Command::Raise(raise));
        }
    }
}

/// The undo of a step, with a reserve of tokens or without.
fn undo(bits: u32, tokens: bool) -> Value {
    let mut undo = json!({"agent_id": "other", "max_cost_usd": f64::from(bits % 20 + 1) / 100.0});
    if tokens {
        undo["max_tokens"] = json!(bits % 9 + 1);
    }
    if bits.is_multiple_of(5) {
        undo["retries"] = json!(bits % 3);
    }
    if bits.is_multiple_of(7) {
        undo["timeout_ms"] = json!(15_000);
    }
    undo
}

/// Mostly a plain question; sometimes one with choices, a default, a timeout or reminders.
fn random_form(c: u16) -> Form {
    let form = match c % 7 {
        0 => json!({"choices": ["yes", "no"], "timeout_ms": 20_000, "default": "no"}),
        1 => json!({"timeout_ms": 30_000}),
        2 => json!({"remind_every_ms": 5_000, "schema": {"type": "string"}}),
        3 => json!({"remind_every_ms": 7_000, "timeout_ms": 20_000, "default": "well"}),
        _ => json!({}),
    };
    serde_json::from_value(form).unwrap()
}

proptest! {
    #![proptest_config(Config { cases: world::cases(16), failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() })]

    /// b1, b2, b3 after every command; b4, t1 and t2 at rest; t9 at the end.
    #[test]
    fn b1_b2_b3_b4_t1_t9_hold_after_any_commands(graph in any::<bool>(), cancel in any::<bool>(), cut in any::<u16>(), ops in ops()) {
        let mut player = Player::new(graph, ops[0]);
        player.plant(ops[1]);
        for op in ops {
            player.play(op);
        }
        if cancel {
            player.handle(Command::Cancel { child_id: None, reason: None, without_undo: false });
        }
        player.heal();
        invariants::check_at_rest(&player.trace).unwrap_or_else(|what| panic!("{what}"));
        invariants::check_replay(&player.trace, &player.log).unwrap_or_else(|what| panic!("{what}"));
        let at = usize::from(cut) % player.orders.len();
        log_cuts::check_at(player.trace.id(), &player.orders, at).unwrap_or_else(|what| panic!("{what}"));
        log_cuts::check_copied(player.trace.id(), &player.orders, at + 1).unwrap_or_else(|what| panic!("{what}"));
        accounts::check(player.trace.id(), &player.orders).unwrap_or_else(|what| panic!("{what}"));
        log_cuts::check_deleted(player.trace.id(), &player.orders, player.now)
            .unwrap_or_else(|what| panic!("{what}"));
        for node in player.trace.contexts() {
            let open = node.calls.kept().values().any(|call| call.state == CallState::Held);
            prop_assert!(!open, "{} has an open hold at rest", node.id);
        }
        let ends = player.log.iter().filter(|(_, event)| matches!(event, Event::Ended(_))).count();
        prop_assert_eq!(ends, player.trace.contexts().len(), "t2: exactly one end for each context");
    }

    /// G15 with b1 to b4, t2 and t9: a rerun of any run takes each completed step over once and
    /// pays nothing for it, under any commands.
    #[test]
    fn g15_a_rerun_of_any_run_holds_too(from in any::<u16>(), cut in any::<u16>(), ops in ops()) {
        let mut earlier = Player::new(true, ops[0]);
        ops.iter().take(ops.len() / 2).for_each(|op| earlier.play(*op));
        earlier.heal();
        let Some(mut player) = earlier.rerun(from) else { return Ok(()) };
        ops.iter().skip(ops.len() / 2).for_each(|op| player.play(*op));
        player.heal();
        invariants::check_at_rest(&player.trace).unwrap_or_else(|what| panic!("{what}"));
        invariants::check_replay(&player.trace, &player.log).unwrap_or_else(|what| panic!("{what}"));
        let at = usize::from(cut) % player.orders.len();
        log_cuts::check_at(player.trace.id(), &player.orders, at).unwrap_or_else(|what| panic!("{what}"));
        log_cuts::check_copied(player.trace.id(), &player.orders, at + 1).unwrap_or_else(|what| panic!("{what}"));
        log_cuts::check_deleted(player.trace.id(), &player.orders, player.now)
            .unwrap_or_else(|what| panic!("{what}"));
        let mut taken = HashSet::new();
        for node in player.trace.contexts().iter().filter(|node| !node.lifecycle.deleted) {
            let Some(from) = &node.identity.taken else { continue };
            prop_assert!(taken.insert(from.child_id.clone()), "{} is taken twice", from.child_id);
            let origin = earlier.trace.context(&from.child_id).and_then(ContextNode::end).unwrap();
            let end = node.end().unwrap();
            prop_assert_eq!((end.status, &end.details.result), (origin.status, &origin.details.result));
            prop_assert_eq!((node.attempt(), node.budget.spent), (0, Amount::ZERO));
        }
    }
}
