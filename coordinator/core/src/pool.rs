//! Decides which workers may act for a context (S6): those of the pool where its work is published.
//! The pool of a worker is a part of the subject on which it sends, so that a server's permissions
//! enforce it. A trace keeps its profiles, so the pool of a context never changes. A profile lists
//! the pools from which its agent may be spawned.

use std::collections::BTreeSet;

use domain::{AgentId, AgentProfile, ChildId, PoolName};

use super::{Command, ContextNode, NamedProfiles, Refusal, Trace};

impl Trace {
    /// The pool whose workers run a context.
    pub fn pool_of(&self, node: &ContextNode) -> PoolName {
        let agent = node.spec.agent_id.as_ref().and_then(|id| self.agent(id));
        agent.and_then(|agent| agent.pool.clone()).unwrap_or_else(PoolName::default_pool)
    }

    /// Checks that the workers of a pool may act for a context. An unknown context passes.
    pub fn check_pool(&self, pool: &PoolName, child_id: &ChildId) -> Result<(), Refusal> {
        match self.context(child_id).map(|node| self.pool_of(node)) {
            Some(own) if own != *pool => {
                Err(Refusal::OtherPool { child_id: child_id.clone(), pool: pool.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Checks that the agent of a context may spawn these agents. The agent is trusted no more than its
/// worker.
pub(super) fn check_spawned(
    trace: &Trace,
    parent: &ContextNode,
    spawned: BTreeSet<AgentId>,
    named: &NamedProfiles,
) -> Result<(), Refusal> {
    let pool = trace.pool_of(parent);
    let profile = |id: &AgentId| trace.agent(id).or_else(|| named.get(id));
    let refuses =
        |agent: &AgentProfile| !agent.spawned_from.is_empty() && !agent.spawned_from.contains(&pool);
    match spawned.into_iter().find(|id| profile(id).is_some_and(refuses)) {
        Some(agent_id) => Err(Refusal::NotSpawnedFrom { agent_id, pool }),
        None => Ok(()),
    }
}

/// Checks that a worker of the pool may send this command.
pub(super) fn check(trace: &Trace, pool: &PoolName, command: &Command) -> Result<(), Refusal> {
    match command.speaks_for() {
        Some(child_id) => trace.check_pool(pool, child_id),
        None => Err(Refusal::NotOfWorkers),
    }
}

impl Command {
    /// The context for which a worker acts, if workers send this command.
    fn speaks_for(&self) -> Option<&ChildId> {
        match self {
            Command::Claim(claim) => Some(&claim.child_id),
            Command::Spawn(spawn) => Some(&spawn.lease.child_id),
            Command::Tick(tick) => Some(&tick.lease.child_id),
            Command::Report(report) => Some(&report.lease.child_id),
            Command::Resume(resume) => Some(&resume.lease.child_id),
            Command::Hold(hold) => Some(&hold.lease.child_id),
            Command::Checked(checked) => Some(&checked.lease.child_id),
            Command::Release { lease, .. }
            | Command::Forfeit { lease, .. }
            | Command::Settle { lease, .. }
            | Command::SetValue { lease, .. }
            | Command::DeleteValue { lease, .. } => Some(&lease.child_id),
            Command::Submit(_)
            | Command::Charge(_)
            | Command::BookLost(_)
            | Command::Raise(_)
            | Command::DecideDispute(_)
            | Command::Answer(_)
            | Command::Tell(_)
            | Command::Amend(_)
            | Command::Cancel { .. }
            | Command::Delete { .. }
            | Command::Restore(_)
            | Command::Spare { .. }
            | Command::Copy { .. }
            | Command::Wake => None,
        }
    }
}
