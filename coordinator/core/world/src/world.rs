//! One trace and a clock that the test moves. All events are kept. After every command the
//! invariants are checked, and a refusal must not change the trace.

use std::collections::HashMap;

use domain::{
    AgentProfile, Amount, ChildId, Json, Timestamp, TraceId, Usd, decode,
    graph::{Plan, TaskGraph},
    limits::Settings,
    subject::{Home, Namespace, Partition, Subject},
    wire::{
        Answer, AnswerMessage, Charge, Claim, Delete, Execute, Failure, FailureKind, Hold, Lease, Payload,
        Progress, Raise, Referrers, Report, Rerun, Resume, RunSummary, SeenNumbers, SettledCall, Tell, Tick,
        Verdict,
    },
};
use serde_json::{Value, json};
use trace::{
    Amend, Command, ContextNode, ContextSpec, Event, Order, Refusal, RerunOrder, RunOrigin, Spawn, Submit,
    Trace, logged,
};

use crate::{accounts, invariants, log_cuts};

#[derive(Debug, Clone)]
pub struct World {
    pub trace: Trace,
    pub now: Timestamp,
    pub log: Vec<(Timestamp, Event)>,
    /// The orders that were accepted.
    pub orders: Vec<(Timestamp, Order)>,
    pub settings: Settings,
    pub agents: Vec<AgentProfile>,
    tokens: u32,
    leases: Vec<Lease>,
    /// The origin of later submissions; set if their spans are exported.
    pub traced: Option<Box<RunOrigin>>,
    /// The bytes that the last command wrote; `None` unless the world is measured.
    written: Option<usize>,
}

/// A child id, checked.
pub fn id(text: &str) -> ChildId {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// The partition of the trace of a world.
pub fn home() -> Home {
    Home { namespace: Namespace::default(), partition: Partition::all(1).next().expect("one") }
}

/// The number of cases of a property test: `usual`, scaled by `TRELLIS_PROPERTY_CASES` / 16 if that
/// is set.
pub fn cases(usual: u32) -> u32 {
    #[expect(clippy::disallowed_methods, reason = "the long mode of the tests is chosen by the environment")]
    let asked = std::env::var("TRELLIS_PROPERTY_CASES").ok().and_then(|text| text.parse::<u32>().ok());
    asked.map_or(usual, |asked| (asked * usual / 16).max(1))
}

/// Dollars, from cents.
pub fn cents(cents: u64) -> Amount {
    Amount::cost(Usd::from_cents(cents))
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// The execute message of a context, as a worker would get it.
    pub fn work(&self, child: &ChildId) -> Option<Execute> {
        self.trace.execute(child, &home())
    }

    /// A world whose runs export their spans.
    pub fn exported() -> Self {
        let subject = Subject::Submit.to_string();
        let received_at = Timestamp::from_millis(999_000);
        World {
            traced: Some(Box::new(RunOrigin { received_at, subject, parent: None, link: None })),
            ..World::new()
        }
    }

    pub fn new() -> Self {
        let names = ["default", "researcher", "writer", "critic", "editor"];
        let profile = |name: &str| AgentProfile::builtin(name.parse().expect("a valid literal"), "echo");
        World {
            trace: Trace::new(
                TraceId::from_u128(0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c).expect("not zero"),
            ),
            now: Timestamp::from_millis(1_000_000),
            log: Vec::new(),
            orders: Vec::new(),
            settings: Settings::default(),
            agents: names.into_iter().map(profile).collect(),
            tokens: 0,
            leases: Vec::new(),
            traced: None,
            written: None,
        }
    }

    /// From now on measures the bytes that commands write, and skips the checks, because they read
    /// the whole trace.
    pub fn measured(&mut self) {
        self.trace.take_changes();
        self.written = Some(0);
    }

    /// The bytes of fields, values and events that the last command wrote.
    pub fn written(&self) -> usize {
        self.written.expect("the written bytes are measured")
    }

    fn measure(&mut self, order: Order) -> Result<Vec<Event>, Refusal> {
        let events = self.trace.handle(order, self.now)?;
        let mut written = 0;
        if !events.is_empty() {
            let messages = logged(&mut self.trace, events.clone(), self.now);
            // The store keeps the messages until they are sent.
            written += 2 * messages.iter().map(json_bytes).sum::<usize>();
        }
        let changes = self.trace.take_changes();
        written += changes.index.as_ref().map_or(0, String::len);
        let changes = changes.fields.iter().chain(&changes.values);
        written +=
            changes.map(|(name, text)| name.len() + text.as_ref().map_or(0, String::len)).sum::<usize>();
        self.written = Some(written);
        Ok(events)
    }

    /// A world with a root agent `root`, submitted with these fields and not yet claimed.
    pub fn with_root(terms: Value) -> Self {
        let mut world = World::new();
        world
            .submit(with(json!({"goal": "the root's goal", "child_id": "root"}), terms))
            .expect("the root is admitted");
        world
    }

    /// A world with a graph as its root.
    pub fn with_graph(graph: Value) -> Self {
        let mut world = World::new();
        world.submit_graph(graph).unwrap_or_else(|refusal| panic!("{refusal}"));
        world
    }

    /// Adds or replaces a profile: `{"agent_id": …}` and the fields that differ from a built-in
    /// echo.
    pub fn agent(&mut self, profile: Value) -> &mut Self {
        let base = json!({"kind": "builtin", "builtin": "echo"});
        let profile: AgentProfile = decode::value(&with(base, profile)).unwrap_or_else(|e| panic!("{e}"));
        self.agents.retain(|agent| agent.agent_id != profile.agent_id);
        self.agents.push(profile);
        self
    }

    /// Handles a command, checks the invariants, and checks that a refusal changed nothing.
    pub fn handle(&mut self, order: impl Into<Order>) -> Result<Vec<Event>, Refusal> {
        let order = order.into();
        if self.written.is_some() {
            return self.measure(order);
        }
        let before = self.trace.clone();
        match self.trace.handle(order.clone(), self.now) {
            Ok(events) => {
                // Printing a command with large values takes long, so it is printed only if an
                // invariant fails.
                invariants::check(&self.trace).unwrap_or_else(|what| {
                    panic!(
                        "{what}
after {order:?}"
                    )
                });
                self.orders.push((self.now, order));
                self.log.extend(events.iter().map(|event| (self.now, event.clone())));
                Ok(events)
            }
            Err(refusal) => {
                assert!(before == self.trace, "a refusal changed the trace: {refusal}\nof {order:?}");
                Err(refusal)
            }
        }
    }

    pub fn submit(&mut self, spawn: Value) -> Result<Vec<Event>, Refusal> {
        let spawn = decode::value(&spawn).map_err(Refusal::Malformed)?;
        let spec = ContextSpec::from_spawn(&spawn, &[], &id("root")).map_err(Refusal::Malformed)?;
        self.submit_order(spec, None)
    }

    pub fn submit_graph(&mut self, graph: Value) -> Result<Vec<Event>, Refusal> {
        let graph: TaskGraph = decode::value(&graph).map_err(Refusal::Malformed)?;
        let (spec, plan) = ContextSpec::from_graph(&graph, &id("graph")).map_err(Refusal::Malformed)?;
        self.submit_order(spec, Some(plan))
    }

    fn submit_order(
        &mut self,
        spec: ContextSpec,
        plan: Option<std::sync::Arc<domain::graph::Plan>>,
    ) -> Result<Vec<Event>, Refusal> {
        let (agents, settings) = (self.agents.clone(), self.settings.clone());
        self.handle(Command::Submit(Box::new(Submit {
            spec,
            plan,
            agents: agents.into(),
            settings,
            traced: self.traced.clone(),
            rerun: None,
            unresolved: None,
        })))
    }

    /// A world of a rerun of this world's run, with these fields besides `trace_id`.
    pub fn rerun(&self, asked: Value) -> Result<World, Refusal> {
        let mut world =
            World { agents: self.agents.clone(), settings: self.settings.clone(), ..World::new() };
        let next = self.trace.id().as_u128() + 1;
        world.trace = Trace::new(TraceId::from_u128(next).expect("not zero"));
        world.now = self.now;
        let submit = self.rerun_of(asked).map_err(Refusal::Malformed)?;
        world.handle(Command::Submit(Box::new(submit)))?;
        Ok(world)
    }

    /// The submission of a rerun of this run.
    pub fn rerun_of(&self, asked: Value) -> Result<Submit, domain::Problems> {
        let of = with(json!({"trace_id": self.trace.id()}), asked.get("rerun").cloned().unwrap_or(json!({})));
        let asked: Rerun = decode::value(&with(asked, json!({"rerun": of})))?;
        let (agents, settings) = (self.agents.clone().into(), self.settings.clone());
        let request = RerunOrder::new(&asked, &id("root"));
        Ok(match self.trace.rerun(&asked, id("root"), request.clone(), true) {
            Ok((spec, plan, earlier)) => Submit {
                spec,
                plan: Some(plan),
                agents,
                settings,
                traced: None,
                rerun: Some(Ok(earlier)),
                unresolved: None,
            },
            Err(refusal) => {
                let spec = ContextSpec { rerun: Some(request), ..ContextSpec::new(id("root")) };
                Submit {
                    spec,
                    plan: None,
                    agents,
                    settings,
                    traced: None,
                    rerun: Some(Err(refusal)),
                    unresolved: None,
                }
            }
        })
    }

    /// Spawns a child for the attempt that holds `lease`.
    pub fn spawn(&mut self, lease: &Lease, spawn: Value) -> Result<Vec<Event>, Refusal> {
        let spawn = decode::value(&spawn).map_err(Refusal::Malformed)?;
        let spec = ContextSpec::from_spawn(&spawn, &[], &id("child")).map_err(Refusal::Malformed)?;
        let (lease, agents) = (lease.clone(), self.agents.clone());
        self.handle(Command::Spawn(Box::new(Spawn { lease, spec, plan: None, agents: agents.into() })))
    }

    pub fn spawn_graph(&mut self, lease: &Lease, graph: Value) -> Result<Vec<Event>, Refusal> {
        let graph: TaskGraph = decode::value(&graph).map_err(Refusal::Malformed)?;
        let (spec, plan) = ContextSpec::from_graph(&graph, &id("pipeline")).map_err(Refusal::Malformed)?;
        let (lease, agents) = (lease.clone(), self.agents.clone());
        self.handle(Command::Spawn(Box::new(Spawn { lease, spec, plan: Some(plan), agents: agents.into() })))
    }

    /// Claims a context with a new token.
    pub fn try_claim(&mut self, child: &str) -> Result<Lease, Refusal> {
        self.tokens += 1;
        let token = format!("token{}", self.tokens).parse().expect("a valid token");
        let claim = Claim { child_id: id(child), worker_id: "worker".parse().expect("valid"), token };
        self.handle(Command::Claim(claim.clone()))?;
        let attempt = self.node(child).attempt();
        let lease = Lease { child_id: claim.child_id, attempt, token: claim.token };
        self.leases.push(lease.clone());
        Ok(lease)
    }

    /// The lease of the latest attempt of a context that was claimed here.
    pub fn lease(&self, child: &ChildId) -> Lease {
        let latest = self.leases.iter().rev().find(|lease| lease.child_id == *child);
        latest.unwrap_or_else(|| panic!("{child} was not claimed")).clone()
    }

    pub fn claim(&mut self, child: &str) -> Lease {
        self.try_claim(child).unwrap_or_else(|refusal| panic!("claim of {child}: {refusal}"))
    }

    pub fn hold(&mut self, lease: &Lease, call: &str, amount: Amount) -> Result<Vec<Event>, Refusal> {
        let call_id = call.parse().expect("a valid call id");
        self.handle(Command::Hold(Hold { lease: lease.clone(), call_id, amount, closing: false, seen: None }))
    }

    /// Asks for a hold like a worker; returns the answer.
    pub fn ask_hold(&mut self, hold: Hold) -> Answer {
        let decided = self.handle(Command::Hold(hold.clone())).map(drop);
        self.trace.answer_hold(&hold, decided.as_ref().copied(), self.now)
    }

    /// Asks for a hold like an agent that has seen this many messages and rungs.
    pub fn ask_with(&mut self, lease: &Lease, call: &str, amount: Amount, told: u32, rungs: u32) -> Answer {
        let (lease, call_id) = (lease.clone(), call.parse().expect("a valid call id"));
        let seen = Some(SeenNumbers { told: Some(told), rungs: Some(rungs) });
        self.ask_hold(Hold { lease, call_id, amount, closing: false, seen })
    }

    /// Sends a message to an agent, under the id `m-TEXT`.
    pub fn tell(&mut self, child: &str, text: &str) -> Result<Vec<Event>, Refusal> {
        let key: String = text.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        self.tell_as(&format!("m-{key}"), Some(child), text)
    }

    pub fn tell_as(&mut self, key: &str, child: Option<&str>, text: &str) -> Result<Vec<Event>, Refusal> {
        let text = domain::wire::Text::new(text).expect("not empty");
        let (child_id, id) = (child.map(id), key.parse().expect("a valid id"));
        self.handle(Command::Tell(Tell { child_id, id, text, by: None }))
    }

    /// Amends the graph of a context, or the root's graph, with the whole new definition.
    pub fn amend(
        &mut self,
        child: Option<&str>,
        key: &str,
        revision: u32,
        graph: Value,
    ) -> Result<Vec<Event>, Refusal> {
        let graph: TaskGraph = decode::value(&graph).map_err(Refusal::Malformed)?;
        let plan = Plan::compile(&graph).map_err(Refusal::Malformed)?.into();
        let (child_id, id, agents) = (child.map(id), key.parse().expect("a valid id"), self.agents.clone());
        self.handle(Command::Amend(Box::new(Amend {
            child_id,
            id,
            revision,
            plan,
            by: None,
            agents: agents.into(),
            unresolved: None,
            unverified: Vec::new(),
        })))
    }

    /// A hold for the agent's last report.
    pub fn hold_to_close(
        &mut self,
        lease: &Lease,
        call: &str,
        amount: Amount,
    ) -> Result<Vec<Event>, Refusal> {
        let call_id = call.parse().expect("a valid call id");
        self.handle(Command::Hold(Hold { lease: lease.clone(), call_id, amount, closing: true, seen: None }))
    }

    pub fn forfeit(&mut self, lease: &Lease, call: &str) -> Result<Vec<Event>, Refusal> {
        let call_id = call.parse().expect("a valid call id");
        self.handle(Command::Forfeit { lease: lease.clone(), call_id })
    }

    pub fn settle(&mut self, lease: &Lease, call: &str, amount: Amount) -> Result<Vec<Event>, Refusal> {
        let call_id = call.parse().expect("a valid call id");
        self.handle(Command::Settle { lease: lease.clone(), call_id, amount, model: None })
    }

    /// Like `settle`, for a call of a model.
    pub fn settle_with(
        &mut self,
        lease: &Lease,
        call: &str,
        amount: Amount,
        model: &str,
    ) -> Result<Vec<Event>, Refusal> {
        let call_id = call.parse().expect("a valid call id");
        let model = Some(model.parse().expect("a valid model name"));
        self.handle(Command::Settle { lease: lease.clone(), call_id, amount, model })
    }

    pub fn release(&mut self, lease: &Lease, call: &str) -> Result<Vec<Event>, Refusal> {
        let call_id = call.parse().expect("a valid call id");
        self.handle(Command::Release { lease: lease.clone(), call_id })
    }

    /// Holds and settles the same amount.
    pub fn pay(&mut self, lease: &Lease, call: &str, amount: Amount) -> Result<Vec<Event>, Refusal> {
        self.hold(lease, call, amount)?;
        self.settle(lease, call, amount)
    }

    pub fn resume(&mut self, lease: &Lease, settled: &[(&str, Amount)]) -> Result<Vec<Event>, Refusal> {
        let settled = settled
            .iter()
            .map(|(call, amount)| SettledCall {
                call_id: call.parse().expect("valid"),
                amount: *amount,
                model: None,
            })
            .collect();
        self.handle(Command::Resume(Resume { lease: lease.clone(), settled }))
    }

    pub fn charge(&mut self, child: &str, key: &str, amount: Amount) -> Result<Vec<Event>, Refusal> {
        let key = key.parse().expect("a valid key");
        self.handle(Command::Charge(Charge { child_id: id(child), key, amount, by: None }))
    }

    pub fn raise(&mut self, child: &str, usd_cents: u64) -> Result<Vec<Event>, Refusal> {
        let max_cost_usd = Some(Usd::from_cents(usd_cents));
        self.handle(Command::Raise(Raise { child_id: id(child), max_cost_usd, max_tokens: None }))
    }

    pub fn tick(&mut self, lease: &Lease, progress: Progress) -> Result<Vec<Event>, Refusal> {
        self.handle(Command::Tick(Tick { lease: lease.clone(), progress }))
    }

    pub fn report(&mut self, lease: &Lease, verdict: Verdict) -> Result<Vec<Event>, Refusal> {
        self.report_with(lease, Progress::default(), verdict)
    }

    pub fn report_with(
        &mut self,
        lease: &Lease,
        progress: Progress,
        verdict: Verdict,
    ) -> Result<Vec<Event>, Refusal> {
        self.handle(Command::Report(Box::new(Report { lease: lease.clone(), progress, verdict })))
    }

    pub fn complete(&mut self, lease: &Lease, result: impl Into<Value>) -> Result<Vec<Event>, Refusal> {
        self.report(lease, Verdict::Completed(Payload::Inline(Json::from(result.into()))))
    }

    pub fn fail(&mut self, lease: &Lease, retryable: bool) -> Result<Vec<Event>, Refusal> {
        let failure = Failure { kind: FailureKind::Agent, message: "it broke".into(), retryable };
        self.report(lease, Verdict::Failed(failure))
    }

    pub fn wait(&mut self, lease: &Lease, children: &[&str]) -> Result<Vec<Event>, Refusal> {
        let children = children.iter().map(|child| id(child)).collect();
        self.report(lease, Verdict::Waiting { children, hand_over: false })
    }

    pub fn ask_human(&mut self, lease: &Lease, question: &str) -> Result<Vec<Event>, Refusal> {
        let question = domain::wire::Text::new(question).expect("not empty");
        self.report(lease, Verdict::InputRequired { question, form: Box::default() })
    }

    pub fn answer(&mut self, child: &str, question: u32, answer: &str) -> Result<Vec<Event>, Refusal> {
        let answer = domain::wire::Text::new(answer).expect("not empty");
        self.handle(Command::Answer(AnswerMessage { child_id: id(child), question, answer, by: None }))
    }

    /// Asks a question that has a form.
    pub fn ask_with_form(
        &mut self,
        lease: &Lease,
        question: &str,
        form: Value,
    ) -> Result<Vec<Event>, Refusal> {
        let question = domain::wire::Text::new(question).expect("not empty");
        let form = serde_json::from_value(form).expect("a form");
        self.report(lease, Verdict::InputRequired { question, form })
    }

    pub fn answer_by(&mut self, child: &str, answer: &str, by: &str) -> Result<Vec<Event>, Refusal> {
        let text = |text| Some(domain::wire::Text::new(text).expect("not empty"));
        let question = u32::try_from(self.node(child).answers.len()).expect("few") + 1;
        let (answer, by) = (text(answer).expect("a text"), text(by));
        self.handle(Command::Answer(AnswerMessage { child_id: id(child), question, answer, by }))
    }

    pub fn cancel(&mut self, child: Option<&str>) -> Result<Vec<Event>, Refusal> {
        self.handle(Command::Cancel { child_id: child.map(id), reason: None, without_undo: false })
    }

    /// Cancels without undoing anything (G14).
    pub fn cancel_without_undo(&mut self, child: Option<&str>) -> Result<Vec<Event>, Refusal> {
        self.handle(Command::Cancel { child_id: child.map(id), reason: None, without_undo: true })
    }

    pub fn delete(&mut self, child: Option<&str>, force: bool) -> Result<Vec<Event>, Refusal> {
        let outside = Referrers::Known(Vec::new());
        let delete = Delete { child_id: child.map(id), force, outside };
        self.handle(Command::Delete { delete, branches: Some(Vec::new()) })
    }

    /// Moves the clock and wakes the trace.
    pub fn pass(&mut self, millis: u64) -> Vec<Event> {
        self.now = self.now.plus_millis(millis);
        self.handle(Command::Wake).expect("a wake is never refused")
    }

    /// Runs every timer until none is left, then checks that no hold is open and no event is
    /// missing.
    pub fn rest(&mut self) {
        while let Some(due) = self.trace.next_timer() {
            self.now = self.now.max(due);
            let events = self.handle(Command::Wake).expect("a wake is never refused");
            assert!(!events.is_empty(), "a timer was due and nothing happened");
        }
        invariants::check_at_rest(&self.trace).unwrap_or_else(|what| panic!("{what}"));
        self.check_replay();
    }

    pub fn check_replay(&self) {
        invariants::check_replay(&self.trace, &self.log).unwrap_or_else(|what| panic!("{what}"));
        log_cuts::check(self.trace.id(), &self.orders).unwrap_or_else(|what| panic!("{what}"));
        accounts::check(self.trace.id(), &self.orders).unwrap_or_else(|what| panic!("{what}"));
        log_cuts::check_deleted(self.trace.id(), &self.orders, self.now)
            .unwrap_or_else(|what| panic!("{what}"));
    }

    /// The summary of the run, as in the list of runs: from a few of the stored fields.
    pub fn summary(&self) -> RunSummary {
        let mut trace = self.trace.clone();
        trace.mark_all_changed();
        let stored = trace.take_changes().fields.into_iter();
        let of_root = stored.filter(|(name, _)| Trace::SUMMARY_FIELDS.contains(&name.as_str()));
        let fields: HashMap<String, String> =
            of_root.map(|(name, text)| (name, text.expect("the field was written"))).collect();
        Trace::summary(self.trace.id(), &fields)
            .expect("the summary can be read")
            .expect("the summary exists")
    }

    pub fn node(&self, child: &str) -> &ContextNode {
        self.trace.context(&id(child)).unwrap_or_else(|| panic!("no context {child}"))
    }

    /// The amount that a context and its descendants spent, in cents.
    pub fn spent_cents(&self, child: &str) -> u64 {
        self.node(child).budget.spent.cost_usd.nanos() / 10_000_000
    }

    /// The status in one word, as the snapshot shows it.
    pub fn status(&self, child: &str) -> String {
        let status = serde_json::to_value(self.node(child).status_word()).expect("plain");
        status.as_str().expect("a word").to_owned()
    }

    /// Contexts in the queue, oldest first.
    pub fn queued(&self) -> Vec<ChildId> {
        use trace::{Phase, Status};
        let queued = |node: &&ContextNode| {
            matches!(node.status, Status::Submitted { .. } | Status::Working(Phase::Queued { .. }))
        };
        self.trace.contexts().iter().filter(queued).map(|node| node.id.clone()).collect()
    }

    /// Claims a queued context and completes it with `result`.
    pub fn run(&mut self, child: &str, result: impl Into<Value>) {
        let lease = self.claim(child);
        self.complete(&lease, result).unwrap_or_else(|refusal| panic!("{child}: {refusal}"));
    }

    /// Claims a queued context and fails it without a retry.
    pub fn break_it(&mut self, child: &str) {
        let lease = self.claim(child);
        self.fail(&lease, false).unwrap_or_else(|refusal| panic!("{child}: {refusal}"));
    }
}

/// `base` with the fields of `more`.
pub fn with(mut base: Value, more: Value) -> Value {
    let fields = base.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    base
}

fn json_bytes(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).expect("string keys only").len()
}
