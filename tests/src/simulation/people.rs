//! The people of a simulation, and of chaos on real processes: they submit runs, answer questions,
//! cancel, and raise budgets. Their messages always arrive, because the test is about the
//! coordinators' reactions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bus::{Bus, Outgoing};
use coordinator::store::Store;
use domain::{
    ChildId, TraceId, Usd,
    span::Headers,
    subject::{Filter, Subject},
    wire::Question,
};
use serde_json::{Value, json};
use trace::{ContextNode, Status, Trace};

use super::{chance::Chance, story::Story, work::Run};
use crate::{cluster::Client, subjects::admin_of};

/// The raise of each paused context: more than any call holds.
const MORE_NANOS: u64 = 50_000_000;
const TRY_AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct People {
    chance: Chance,
    client: Client,
    store: Store,
    story: Story,
    /// The answered questions, with the positions of each in the log.
    answered: BTreeMap<(TraceId, ChildId, u32), BTreeSet<u64>>,
    submitted: BTreeSet<TraceId>,
    /// The number of raises.
    raises: u64,
    /// The number of messages sent. It gives each message an id, so that it can be sent again.
    sent: u64,
}

impl People {
    pub(crate) fn new(bus: Bus, store: Store, story: Story, chance: Chance) -> Self {
        let (client, answered, submitted) = (Client { bus }, BTreeMap::new(), BTreeSet::new());
        People { chance, client, store, story, answered, submitted, raises: 0, sent: 0 }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Publishes until the message is stored. A full queue is retried.
    async fn publish(&mut self, subject: Subject, message: &Value) {
        let payload: bytes::Bytes = serde_json::to_vec(message).expect("JSON").into();
        self.sent += 1;
        let (id, headers, expect_last) = (Some(format!("people-{}", self.sent)), Headers::new(), None);
        let message = Outgoing { subject, id, headers, payload, expect_last };
        while self.client.bus.publish(message.clone()).await.is_err() {
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }

    pub(crate) async fn submit(&mut self, run: &Run) {
        self.story.note("client", format!("submits {} with {}: {}", run.trace_id, run.cap, run.message));
        self.publish(run.subject.clone(), &run.message).await;
        self.submitted.insert(run.trace_id);
    }

    /// Submits the runs that could not be submitted before.
    pub(crate) async fn submit_rest(&mut self, runs: &[Run]) {
        for run in runs {
            if !self.submitted.contains(&run.trace_id) {
                self.submit(run).await;
            }
        }
    }

    /// Answers open questions: each with a chance, or all of them.
    pub(crate) async fn answer(&mut self, runs: &[Run], all: bool) {
        for run in runs {
            let asked = self.client.bus.read(&Filter::QuestionsOf(run.trace_id)).await;
            for stored in asked.unwrap_or_default() {
                let question: Question = serde_json::from_slice(&stored.payload).expect("a question");
                let key = (question.trace_id, question.child_id.clone(), question.number);
                let answered = self.answered.get(&key);
                let again = answered.is_some();
                if answered.is_some_and(|places| places.contains(&stored.sequence))
                    || !(all || self.chance.percent(30))
                    || again && !self.is_open(&question).await
                {
                    continue;
                }
                self.story.note("human", format!("answers {} of {}", question.number, question.child_id));
                let (child_id, number) = (&question.child_id, question.number);
                // No two answers are the same, because each may become a separate dead letter.
                let text = match (again, question.form.approval) {
                    (false, _) => "left".into(),
                    (true, false) => format!("left, for the {}th message", self.sent),
                    (true, true) => format!("deny: for the {}th message", self.sent),
                };
                let answered = json!({"child_id": child_id, "question": number, "answer": text});
                let input = json!({"trace_id": run.trace_id, "answered": answered});
                self.publish(Subject::Input, &input).await;
                self.answered.entry(key).or_default().insert(stored.sequence);
            }
        }
    }

    /// True if the question is open. A given answer may be lost, and then the question is asked
    /// again.
    async fn is_open(&self, question: &Question) -> bool {
        let trace = self.stored(question.trace_id).await;
        let open = trace.and_then(|trace| trace.question(&question.child_id));
        open.is_some_and(|open| open.number == question.number)
    }

    pub(crate) async fn cancel(&mut self, run: &Run) {
        self.story.note("human", format!("cancels {}", run.trace_id));
        let message = json!({"trace_id": run.trace_id, "reason": "changed my mind"});
        self.publish(Subject::Cancel, &message).await;
    }

    /// Charges an amount from outside, twice under one key. It must be booked once.
    pub(crate) async fn charge(&mut self, run: &mut Run, key: &str) {
        // A charge on a run without a root would be refused.
        if self.stored(run.trace_id).await.is_none_or(|trace| trace.root().is_none()) {
            return;
        }
        let amount = Usd::from_nanos(1_000_000);
        run.charged = amount;
        self.story.note("human", format!("charges {amount} to {} as {key}", run.trace_id));
        let charge = json!({"child_id": "root", "key": key, "amount": {"cost_usd": amount, "tokens": 0}});
        for _ in 0..2 {
            let control = json!({"trace_id": run.trace_id, "charge": charge});
            self.publish(admin_of(&control), &control).await;
        }
    }

    /// Sends a message to the agent of a live context of a run.
    pub(crate) async fn tell(&mut self, run: &Run) {
        let Some(trace) = self.stored(run.trace_id).await else { return };
        let agents = trace.contexts().iter().filter(|node| node.is_live() && node.graph.is_none());
        let agents: Vec<&ContextNode> = agents.filter(|node| !node.is_approval()).collect();
        if agents.is_empty() {
            return;
        }
        let child_id = self.chance.pick(&agents).id.clone();
        // No two messages are the same, because each may become a separate dead letter.
        let told = json!({"child_id": child_id, "id": format!("m{}", self.sent), "text": format!("hint {}", self.sent)});
        self.story.note("human", format!("sends {child_id} of {} a message", run.trace_id));
        self.publish(Subject::Input, &json!({"trace_id": run.trace_id, "told": told})).await;
    }

    /// Raises the budgets of every paused context of a run and of its ancestors.
    pub(crate) async fn raise(&mut self, run: &mut Run) {
        let Some(trace) = self.stored(run.trace_id).await else { return };
        let Some(root) = trace.root() else { return };
        let paused: Vec<&ContextNode> =
            trace.contexts().iter().filter(|node| matches!(node.status, Status::Paused { .. })).collect();
        if paused.is_empty() {
            return;
        }
        let mut raised: Vec<&ContextNode> = vec![root];
        for node in paused {
            let up = std::iter::successors(Some(node), |node| node.parent.map(|up| trace.node(up)));
            let path: Vec<&ContextNode> = up.collect();
            for node in path.into_iter().rev() {
                if raised.iter().all(|other| other.id != node.id) {
                    raised.push(node);
                }
            }
        }
        // The root's raise has room for all of them at once, because grants are carved out. No two
        // rounds raise by the same amount: the same raise again would be refused again, with an
        // equal dead letter.
        self.raises += 1;
        let by = MORE_NANOS + self.raises;
        let more = by * raised.len() as u64 + root.budget.ceilings.limit.cost_usd.nanos();
        run.cap = Usd::from_nanos(more.max(run.cap.nanos() + 1));
        self.story.note("human", format!("raises {} to {}", run.trace_id, run.cap));
        for node in raised {
            let own = Usd::from_nanos(node.budget.ceilings.limit.cost_usd.nanos() + by);
            let to = if node.parent.is_none() { run.cap } else { own };
            let raise = json!({"child_id": node.id, "max_cost_usd": to});
            let control = json!({"trace_id": run.trace_id, "raise": raise});
            self.publish(admin_of(&control), &control).await;
        }
    }

    /// A trace as the store has it.
    pub(crate) async fn stored(&self, id: TraceId) -> Option<Trace> {
        let record = self.store.load(&[id]).await.ok()?.pop()?.record?;
        Trace::from_stored(id, record.version, &record.fields, &record.values).ok()
    }
}
