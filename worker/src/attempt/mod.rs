//! One attempt at running a context under a lease. Holds, spawns, writes to the shared store, MCP
//! tool calls and the result wait until the lease is certainly valid. Costs never wait, and the
//! journal is guarded by its own sequence. The answer `stop` ends the attempt, so agents never see
//! it.

mod answers;
pub(crate) mod children;
pub(crate) mod coordinator;
pub(crate) mod deadline;
mod exit;
pub(crate) mod lease;
pub(crate) mod live_output;
mod parts;
mod progress;
pub(crate) mod shared_store;
pub(crate) mod span;
pub(crate) mod traced;
mod work;

use std::sync::Arc;

use bus::Bus;
use coordinator::{ASK_AGAIN_AFTER, Coordinator, PATIENCE};
use deadline::Deadline;
use domain::{
    ChildId, PoolName, Timestamp, TraceId,
    digest::short_sha256,
    subject::{Partition, Subject},
    wire::{Answer, Ask, Execute, Failure, Lease},
};
use exit::Exit;
use lease::HeldLease;
use progress::Progress;
use tokio::time::Instant;
use traced::AttemptSpan;
use work::Work;

use crate::{config::Config, secret::Redactor};

#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) work: Work,
    pub(crate) lease: HeldLease,
    pub(crate) deadline: Deadline,
    pub(crate) progress: Progress,
    pub(crate) exit: Exit,
    pub(crate) config: Arc<Config>,
    pub(crate) bus: Bus,
    pub(crate) coordinator: Coordinator,
    /// Removes secrets from every message of the attempt (S8).
    pub(crate) redactor: Redactor,
    traced: AttemptSpan,
    /// The address of its reports: the pool of the context, and its trace's partition.
    home: (PoolName, Partition),
}

impl Attempt {
    pub(crate) fn new(
        work: Execute,
        lease: HeldLease,
        deadline: Deadline,
        coordinator: Coordinator,
        home: (PoolName, Partition),
        traced: AttemptSpan,
        (config, bus): (Arc<Config>, Bus),
    ) -> Self {
        let (work, progress, exit) = (Work::new(work), Progress::default(), Exit::default());
        let redactor = coordinator.redactor().clone();
        Attempt { work, lease, deadline, progress, exit, config, bus, coordinator, redactor, traced, home }
    }

    pub(crate) fn trace_id(&self) -> TraceId {
        self.work.trace_id
    }

    pub(crate) fn child_id(&self) -> &ChildId {
        &self.lease.lease.child_id
    }

    /// Its number among the attempts of its context. The report of a lower number changes no state.
    pub(crate) fn number(&self) -> u32 {
        self.lease.lease.attempt
    }

    /// The lease, as it is part of every ask.
    pub(crate) fn token(&self) -> Lease {
        self.lease.lease.clone()
    }

    /// The id of a message of this attempt. The bus stores one message for each id.
    pub(crate) fn message_id(&self, of: &str) -> String {
        message_id(self.trace_id(), &self.lease.lease, of)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.config.clock.now()
    }

    pub(crate) fn cost_subject(&self) -> Subject {
        let (pool, partition) = self.home.clone();
        Subject::Cost(pool, partition, self.trace_id(), self.child_id().clone())
    }

    /// The subject of its journal. It contains the pool, so that workers of other pools can't write
    /// there (S6).
    pub(crate) fn history_subject(&self) -> Subject {
        let (pool, _) = self.home.clone();
        Subject::History(pool, self.trace_id(), self.child_id().clone())
    }

    pub(crate) fn result_subject(&self) -> Subject {
        let (pool, partition) = self.home.clone();
        Subject::Result(pool, partition, self.trace_id(), self.child_id().clone())
    }

    /// Asks the coordinator until there is an answer, and only while the lease is valid. The answer
    /// `stop`, to any ask, ends the attempt here.
    pub(crate) async fn ask(&self, ask: Ask) -> Answer {
        let answer = self.coordinator.until_answered_when(ask, || self.lease.live()).await;
        if let Answer::Stop { reason } = &answer {
            self.lease.stop(reason).await;
        }
        answer
    }

    /// Like `ask`. The answer `wait` means that only calls in flight leave too little: it then asks
    /// again for a while.
    pub(crate) async fn ask_patiently(&self, ask: Ask) -> Answer {
        let patience = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(ask.clone()).await;
            if !matches!(answer, Answer::Wait(_)) || Instant::now() >= patience {
                return answer;
            }
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        }
    }

    /// Ends the attempt with this failure. Never returns, because the delivery drops the agent.
    pub(crate) async fn give_up(&self, failure: Failure) -> ! {
        self.exit.take(failure).await
    }
}

/// The id of a message, under which the bus stores it once. The last part differs for every
/// message, and only the holder of the lease can compute it (S6). An attacker who guessed the id
/// could send another message under it first; the bus would then drop the real one as a duplicate.
/// Others can read ids, so this part is neither the token nor the hash of it that is published
/// (S2).
fn message_id(trace_id: TraceId, Lease { child_id, token, .. }: &Lease, of: &str) -> String {
    format!("{trace_id}.{child_id}.{of}.{}", short_sha256(format!("id of {of} of {token}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers of other pools can read journals, including the ids.
    #[test]
    fn s6_the_id_of_one_message_does_not_reveal_that_of_the_next() {
        let lease =
            |token: &str| Lease { child_id: "a".parse().unwrap(), attempt: 1, token: token.parse().unwrap() };
        let trace_id = TraceId::from_u128(7).unwrap();
        let secret = |token: &str, of: &str| {
            let id = message_id(trace_id, &lease(token), of);
            id.rsplit_once('.').unwrap().1.to_owned()
        };
        assert_ne!(secret("t", "1.1.history"), secret("t", "2.1.history"));
        assert_ne!(secret("t", "1.1.history"), secret("t", "1.result"));
        assert_ne!(secret("t", "1.result"), secret("u", "1.result"));
        assert_eq!(secret("t", "1.result"), secret("t", "1.result"), "a second delivery has the same id");
    }
}
