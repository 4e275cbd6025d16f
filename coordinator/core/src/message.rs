//! The messages to a worker, built from the state: the work itself, and the answers to its asks. An
//! answer is built from the state after the command, so a repeated ask gets the same answer; only
//! the time left is shorter.

use std::collections::BTreeSet;

use domain::{
    AgentProfile, ChildId, PoolName, Timestamp,
    id::ToolName,
    subject::Home,
    wire::{
        Answer, Claim, ClaimAnswer, ClaimAt, Execute, Hold, Lease, Offer, OpenHold, Text, Tick, TimeLeft,
    },
};

use super::{
    ContextNode, Phase, Refusal, RunPhase, Status, TokenHash, Trace, graph::synthesis_goal, hold_queue::Fit,
    parts::MAX_OPEN_HOLDS,
};

impl Trace {
    /// The message that offers a context to the workers of a pool; `None` if the context needs no
    /// worker.
    pub fn offer(&self, child_id: &ChildId, home: &Home) -> Option<(PoolName, Offer)> {
        let node = self.context(child_id)?;
        let runs = match &node.graph {
            None => node.spec.goal.is_some(),
            Some(run) => run.progress.phase == RunPhase::Synthesis,
        };
        self.agent(node.spec.agent_id.as_ref().filter(|_| runs)?)?;
        let pool = self.pool_of(node);
        let (trace_id, child_id, attempt) = (self.id(), child_id.clone(), next_attempt(node));
        let report_to = ClaimAt { ask: home.ask(&pool) };
        Some((pool, Offer { trace_id, child_id, attempt, report_to }))
    }

    /// Everything that a worker needs to run a context, as far as it fits into a message; `None` if
    /// the context needs no worker.
    pub fn execute(&self, child_id: &ChildId, home: &Home) -> Option<Execute> {
        let node = self.context(child_id)?;
        let parts = self.parts(node);
        let shared_messages = node.spec.shared_messages.clone();
        let goal = self.goal(node)?;
        let agent = self.profile(node)?;
        Some(Execute {
            trace_id: self.id(),
            child_id: node.id.clone(),
            parent_id: node.parent.map(|parent| self.node(parent).id.clone()),
            thread_id: node.identity.thread_id.clone(),
            attempt: next_attempt(node),
            depth: node.identity.depth,
            goal,
            model: node.spec.model.clone().or_else(|| agent.model.clone()),
            tools: self.tools(node, &agent),
            secrets: self.secrets_of(node).clone(),
            agent,
            inputs: parts.inputs,
            output_to: node.spec.output_to.clone(),
            output_schema: node.spec.output_schema.as_ref().map(|schema| schema.schema().clone()),
            limits: (*node.limits).clone(),
            deadline: self.deadline(node),
            window_tokens: node.terms.window_tokens,
            shared_messages,
            files: node.spec.files.clone(),
            budget: node.budget.snapshot(),
            on_budget: self.ladder(node).to_vec(),
            report_to: home.report_to(&self.pool_of(node), self.id(), &node.id),
            children: parts.children,
            answers: parts.answers,
            branch_from: node.spec.branch_from.clone().filter(|_| node.graph.is_none()),
            restore: node.restores.last().copied(),
            journaled: node.lifecycle.progress.journaled,
            left_out: parts.left_out,
        })
    }

    /// I1: only the goal; for the synthesis of a graph, the findings.
    fn goal(&self, node: &ContextNode) -> Option<Text> {
        match &node.graph {
            None => node.spec.goal.clone(),
            Some(run) if run.progress.phase == RunPhase::Synthesis => synthesis_goal(self, node),
            Some(_) => None,
        }
    }

    /// The profile with the checks of its ancestors, and without a fallback model that an ancestor
    /// forbids.
    fn profile(&self, node: &ContextNode) -> Option<AgentProfile> {
        let mut agent = self.agent(node.spec.agent_id.as_ref()?)?.clone();
        if let (Some(parent), Some(model)) = (node.parent, &agent.fallback_model)
            && self.model_forbidden_by(parent, model).is_some()
        {
            agent.fallback_model = None;
        }
        agent.checks = self.checks_of(node.parent, node.is_of_graph(), &agent);
        Some(agent)
    }

    /// The tools that it may call. A graph's own agent has the tools that both its profile and the
    /// graph allow.
    fn tools(&self, node: &ContextNode, agent: &AgentProfile) -> Option<BTreeSet<ToolName>> {
        match (node.terms.tools.as_deref(), node.graph.as_ref().and(agent.tools.as_ref())) {
            (Some(allowed), Some(own)) => Some(own.intersection(allowed).cloned().collect()),
            (None, Some(own)) => Some(own.clone()),
            (allowed, None) => allowed.cloned(),
        }
    }

    /// The answer to a claim that was just decided.
    pub fn answer_claim(
        &self,
        claim: &Claim,
        decided: Result<(), &Refusal>,
        home: &Home,
        now: Timestamp,
    ) -> Answer {
        if let Err(refusal) = decided {
            return answer_refusal(refusal, now);
        }
        let Some(node) = self.context(&claim.child_id) else { return answer_refusal(&Refusal::NoTrace, now) };
        let holds_it =
            node.attempts.last().is_some_and(|attempt| attempt.token == TokenHash::of(&claim.token));
        match (node.lease_until(), self.execute(&node.id, home)) {
            (Some(until), Some(work)) if holds_it => {
                let attempt = node.attempt();
                let lease = Lease { child_id: node.id.clone(), attempt, token: claim.token.clone() };
                let open_holds = open_holds(node, attempt);
                let left = self.time_left(node, until, now);
                Answer::Claimed(Box::new(ClaimAnswer { lease, lease_until: until, left, work, open_holds }))
            }
            _ => Answer::Stop { reason: "it no longer runs".into() },
        }
    }

    /// The answer to a hold that was just decided: it is taken; or the agent first has to see news;
    /// or it waits in the line; or it is refused with a reason.
    pub fn answer_hold(&self, hold: &Hold, decided: Result<(), &Refusal>, now: Timestamp) -> Answer {
        if let Err(refusal) = decided {
            return answer_refusal(refusal, now);
        }
        let Some(at) = self.find(&hold.lease.child_id) else { return answer_refusal(&Refusal::NoTrace, now) };
        let node = self.node(at);
        if node.calls.knows(&hold.call_id) {
            return Answer::Done;
        }
        if let Some(news) = self.news(node, hold) {
            return Answer::News(Box::new(news));
        }
        let ticket = node.lifecycle.waiting.iter().find(|waits| waits.is_of(hold)).map(|waits| waits.ticket);
        match self.fit(at, hold.amount, hold.closing, ticket) {
            Fit::Later(denied) => Answer::Wait(*denied),
            Fit::Never(refusal) => answer_refusal(&refusal, now),
            Fit::Now => answer_refusal(&Refusal::NoHold(hold.call_id.clone()), now),
        }
    }

    /// The answer to a tick that was just decided: continue, or stop because the context ended
    /// meanwhile.
    pub fn answer_tick(&self, tick: &Tick, decided: Result<(), &Refusal>, now: Timestamp) -> Answer {
        if let Err(refusal) = decided {
            return answer_refusal(refusal, now);
        }
        let node = self.context(&tick.lease.child_id);
        match node.and_then(|node| Some((node, node.lease_until()?))) {
            Some((node, until)) => Answer::GoOn { until, left: self.time_left(node, until, now) },
            None => Answer::Stop { reason: "it has ended".into() },
        }
    }

    fn time_left(&self, node: &ContextNode, lease_until: Timestamp, now: Timestamp) -> TimeLeft {
        TimeLeft {
            now,
            lease_ms: lease_until.millis_since(now),
            deadline_ms: self.deadline(node).map(|deadline| deadline.millis_since(now)),
        }
    }
}

/// The answer to an ask that was refused.
pub fn answer_refusal(refusal: &Refusal, now: Timestamp) -> Answer {
    match refusal {
        Refusal::Taken { until, .. } | Refusal::NotYet { until, .. } => {
            Answer::Taken { until: *until, for_ms: until.millis_since(now) }
        }
        Refusal::Ended { .. }
        | Refusal::Stale { .. }
        | Refusal::Restored(_)
        | Refusal::WrongToken { .. }
        | Refusal::NotQueued { .. }
        | Refusal::NoTrace
        | Refusal::UnknownContext(_) => Answer::Stop { reason: refusal.to_string() },
        Refusal::Denied(denied) | Refusal::NotGranted(denied) => Answer::Denied((**denied).clone()),
        Refusal::Busy(denied) => Answer::Wait((**denied).clone()),
        Refusal::Halted { context, dimension, pause } => {
            Answer::Halt { context: context.clone(), dimension: *dimension, pause: *pause }
        }
        Refusal::Malformed(_)
        | Refusal::OtherPool { .. }
        | Refusal::NotSpawnedFrom { .. }
        | Refusal::NotOfWorkers
        | Refusal::Conflict { .. }
        | Refusal::Depth { .. }
        | Refusal::MaxContexts { .. }
        | Refusal::MaxTraceBytes { .. }
        | Refusal::MaxChildren { .. }
        | Refusal::Cycle { .. }
        | Refusal::Tools { .. }
        | Refusal::Secrets { .. }
        | Refusal::Model { .. }
        | Refusal::NothingLeft { .. }
        | Refusal::DoesNotFit { .. }
        | Refusal::CallConflict(_)
        | Refusal::NoHold(_)
        | Refusal::BooksFull
        | Refusal::NotARaise { .. }
        | Refusal::RaiseParentFirst { .. }
        | Refusal::AboveMaximum { .. }
        | Refusal::NoDispute { .. }
        | Refusal::DisputeDecided { .. }
        | Refusal::NoQuestion { .. }
        | Refusal::MessageConflict(_)
        | Refusal::RunsNoAgent { .. }
        | Refusal::TooManyMessages { .. }
        | Refusal::RunsNoGraph(_)
        | Refusal::AmendConflict(_)
        | Refusal::GraphMoved { .. }
        | Refusal::SynthesisBegun(_)
        | Refusal::Undoing(_)
        | Refusal::TooManyAmends { .. }
        | Refusal::NotWritable { .. }
        | Refusal::NotReadable { .. }
        | Refusal::TooLarge { .. }
        | Refusal::Guarded { .. }
        | Refusal::GuardUnsure { .. }
        | Refusal::NotRestorable { .. }
        | Refusal::ChildBranches { .. }
        | Refusal::TooManyTombstones(_) => Answer::Refused(refusal.to_wire()),
    }
}

/// The number of the running attempt, or of the next one if none runs.
fn next_attempt(node: &ContextNode) -> u32 {
    node.attempt() + u32::from(!matches!(node.status, Status::Working(Phase::Running { .. })))
}

fn open_holds(node: &ContextNode, attempt: u32) -> Vec<OpenHold> {
    let open = node.calls.open().filter(|(_, call)| call.attempt < attempt);
    open.map(|(id, call)| OpenHold { call_id: id.clone(), attempt: call.attempt, amount: call.held })
        .take(MAX_OPEN_HOLDS)
        .collect()
}
