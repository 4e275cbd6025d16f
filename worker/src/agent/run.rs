//! What an agent has while it runs: its work, a meter for paid calls, children, the shared store.
//! Everything that changes something waits for the lease to stand. An answer of `stop` to any of it
//! ends the attempt, so that agents never see one.

use std::sync::{Mutex, PoisonError};

use shared::{
    ChildId, ContextKey, Json,
    bus::Bus,
    graph::TaskGraph,
    wire::{
        Answer, Ask, ChildSpawn, ContextValue, Execute, Failure, OpenHold, Progress, Refusal, Resume,
        SettledCall, SharedMessage, Spawn,
    },
};
use tokio::sync::watch;

use crate::{
    agent::resources::Equipment,
    attempt::coordinator::Coordinator,
    attempt::lease::Keeper,
    billing::meter::{Meter, unexpected},
    config::Config,
};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) work: &'a Execute,
    pub(crate) meter: &'a Meter<'a>,
    pub(crate) coordinator: &'a Coordinator,
    pub(crate) keeper: &'a Keeper,
    pub(crate) counters: &'a Counters,
    pub(crate) config: &'a Config,
    pub(crate) equipment: &'a Equipment,
    pub(crate) bus: &'a Bus,
    /// Of this attempt: what its own spans are under.
    pub(crate) span: u64,
    /// Calls of earlier attempts whose end is not booked yet.
    pub(crate) open_holds: &'a [OpenHold],
    pub(crate) way_out: &'a WayOut,
}

/// Where an agent leaves from that can't go on: its journal or its files are not to be had.
#[derive(Debug)]
pub(crate) struct WayOut(watch::Sender<Option<Failure>>);

impl Default for WayOut {
    fn default() -> Self {
        WayOut(watch::Sender::new(None))
    }
}

impl WayOut {
    /// How the agent failed, once it has.
    pub(crate) async fn taken(&self) -> Failure {
        let mut taken = self.0.subscribe();
        let failure = taken.wait_for(Option::is_some).await.expect("the sender is ours").clone();
        failure.expect("it was waited for")
    }
}

/// What an attempt has done so far; ticks and the report carry it.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<Progress>);

impl Counters {
    pub(crate) fn progress(&self) -> Progress {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn step(&self) {
        self.change(|progress| progress.steps += 1);
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A child to be: one agent, or a graph.
#[derive(Debug)]
pub(crate) enum Child {
    Agent(Box<Spawn>),
    Graph(Box<TaskGraph>),
}

/// What became of a spawn: a refusal is an observation for the agent.
#[derive(Debug)]
pub(crate) enum Spawned {
    Child(ChildId),
    Refused(String),
}

/// What became of a read.
#[derive(Debug)]
pub(crate) enum Read {
    Value(ContextValue),
    Absent,
    Refused(String),
}

impl Run<'_> {
    pub(crate) fn attempt(&self) -> u32 {
        self.keeper.lease.attempt
    }

    /// Fails from wherever it is: never comes back, since the attempt ends around it.
    pub(crate) async fn give_up(&self, failure: Failure) -> ! {
        tracing::warn!(message = failure.message, "gives up");
        self.way_out.0.send_replace(Some(failure));
        std::future::pending().await
    }

    /// Tells how the calls of earlier attempts ended, as far as is known; the rest is booked as
    /// estimated (B10). Comes before any call of this attempt.
    pub(crate) async fn resume(&self, settled: Vec<SettledCall>) {
        if self.open_holds.is_empty() {
            return;
        }
        let lease = self.keeper.lease.clone();
        if let Answer::Refused(refusal) = self.ask(Ask::Resume(Resume { lease, settled })).await {
            tracing::warn!(message = refusal.message, "the calls of earlier attempts stay open");
        }
    }

    /// Asks for a child. Asked twice with the same id and content, it is the same child.
    pub(crate) async fn spawn(&self, spawn: Spawn) -> Spawned {
        self.spawn_child(Child::Agent(Box::new(spawn)), Vec::new()).await
    }

    /// As `spawn`, for any child, with what it is shown of the caller's window (W3).
    pub(crate) async fn spawn_child(&self, child: Child, shared_messages: Vec<SharedMessage>) -> Spawned {
        let lease = self.keeper.lease.clone();
        let (spawn, graph) = match child {
            Child::Agent(spawn) => (Some(*spawn), None),
            Child::Graph(graph) => (None, Some(*graph)),
        };
        let spawn = ChildSpawn { lease, spawn, graph, shared_messages };
        match self.ask(Ask::Spawn(Box::new(spawn))).await {
            Answer::Spawned { child_id } => Spawned::Child(child_id),
            Answer::Refused(refusal) => Spawned::Refused(told(refusal)),
            Answer::Denied(denied) => {
                Spawned::Refused(format!("its budget does not fit into that of `{}`", denied.context))
            }
            Answer::Halt { context, dimension, .. } => {
                Spawned::Refused(format!("the {dimension} budget of `{context}` is used up"))
            }
            Answer::Claimed(_)
            | Answer::Taken { .. }
            | Answer::GoOn { .. }
            | Answer::Stop { .. }
            | Answer::Done
            | Answer::Value { .. }
            | Answer::Keys { .. } => Spawned::Refused(unexpected("spawn").message),
        }
    }

    /// Writes a value of the shared store; the refusal's message if it may not.
    pub(crate) async fn set(&self, key: ContextKey, value: Json) -> Result<(), String> {
        let lease = self.keeper.lease.clone();
        match self.ask(Ask::ContextSet { lease, key, value }).await {
            Answer::Done => Ok(()),
            Answer::Refused(refusal) => Err(told(refusal)),
            Answer::Claimed(_)
            | Answer::Taken { .. }
            | Answer::GoOn { .. }
            | Answer::Stop { .. }
            | Answer::Denied(_)
            | Answer::Halt { .. }
            | Answer::Spawned { .. }
            | Answer::Value { .. }
            | Answer::Keys { .. } => Err(unexpected("context write").message),
        }
    }

    pub(crate) async fn get(&self, key: ContextKey) -> Read {
        let lease = self.keeper.lease.clone();
        match self.ask(Ask::ContextGet { lease, key }).await {
            Answer::Value { value: Some(value) } => Read::Value(value),
            Answer::Value { value: None } => Read::Absent,
            Answer::Refused(refusal) => Read::Refused(told(refusal)),
            Answer::Claimed(_)
            | Answer::Taken { .. }
            | Answer::GoOn { .. }
            | Answer::Stop { .. }
            | Answer::Done
            | Answer::Denied(_)
            | Answer::Halt { .. }
            | Answer::Spawned { .. }
            | Answer::Keys { .. } => Read::Refused(unexpected("context read").message),
        }
    }

    /// The keys it may read.
    pub(crate) async fn keys(&self) -> Result<Vec<ContextKey>, String> {
        match self.ask(Ask::ContextList { lease: self.keeper.lease.clone() }).await {
            Answer::Keys { keys } => Ok(keys),
            Answer::Refused(refusal) => Err(told(refusal)),
            Answer::Claimed(_)
            | Answer::Taken { .. }
            | Answer::GoOn { .. }
            | Answer::Stop { .. }
            | Answer::Done
            | Answer::Denied(_)
            | Answer::Halt { .. }
            | Answer::Spawned { .. }
            | Answer::Value { .. } => Err(unexpected("context list").message),
        }
    }

    async fn ask(&self, ask: Ask) -> Answer {
        let answer = self.coordinator.until_answered(ask, Some(self.keeper)).await;
        match answer {
            Answer::Stop { reason } => self.keeper.stop(&reason).await,
            answer @ (Answer::Claimed(_)
            | Answer::Taken { .. }
            | Answer::GoOn { .. }
            | Answer::Done
            | Answer::Denied(_)
            | Answer::Halt { .. }
            | Answer::Spawned { .. }
            | Answer::Value { .. }
            | Answer::Keys { .. }
            | Answer::Refused(_)) => answer,
        }
    }
}

/// The same id at every attempt, so that a spawn that is asked again is the same spawn.
pub(crate) fn child_of(parent: &ChildId, suffix: &str) -> ChildId {
    let name = format!("{parent}-{suffix}");
    ChildId::new(&name).unwrap_or_else(|_| {
        use sha2::{Digest, Sha256};
        let hash: String = Sha256::digest(&name).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        ChildId::new(&format!("child-{hash}")).expect("letters, a dash and hex digits")
    })
}

/// A refusal with its rule, and every problem it names.
fn told(refusal: Refusal) -> String {
    let mut told = format!("{} ({})", refusal.message, refusal.rule);
    for problem in &refusal.problems {
        told.push_str(&format!("\n{problem}"));
    }
    told
}
