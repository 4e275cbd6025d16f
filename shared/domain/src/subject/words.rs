//! The words that replace an id in a subject: topics of queries, actions of administrators, kinds
//! of audit records.

/// The topic of a query. Each topic has a subject of its own, because a server's permissions are by
/// subject (S1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Runs, their questions and branches, and the stored state of one run.
    Runs,
    Agents,
    Coordinators,
    Schedules,
    Graphs,
}

impl Topic {
    pub const ALL: [Topic; 5] =
        [Topic::Runs, Topic::Agents, Topic::Coordinators, Topic::Schedules, Topic::Graphs];

    pub fn name(self) -> &'static str {
        match self {
            Topic::Runs => "runs",
            Topic::Agents => "agents",
            Topic::Coordinators => "coordinators",
            Topic::Schedules => "schedules",
            Topic::Graphs => "graphs",
        }
    }
}

/// The actions that are reserved for administrators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Request and reply: applies and deletes agent profiles.
    Apply,
    /// Request and reply: puts, deletes, pauses, resumes and runs schedules.
    Schedules,
    /// Request and reply: stores graphs under names, and deletes them.
    Graphs,
    /// Durable, like all actions up to `Dispute`.
    Raise,
    Charge,
    Delete,
    Restore,
    Dispute,
    /// Request and reply: a worker takes no more work.
    Drain,
}

impl Action {
    pub const ALL: [Action; 9] = [
        Action::Apply,
        Action::Schedules,
        Action::Graphs,
        Action::Raise,
        Action::Charge,
        Action::Delete,
        Action::Restore,
        Action::Dispute,
        Action::Drain,
    ];
    /// The actions with a reply.
    pub const REQUESTS: [Action; 4] = [Action::Apply, Action::Schedules, Action::Graphs, Action::Drain];
    /// The actions on a run. They are stored until they are handled.
    pub const DURABLE: [Action; 5] =
        [Action::Raise, Action::Charge, Action::Delete, Action::Restore, Action::Dispute];

    pub fn name(self) -> &'static str {
        match self {
            Action::Apply => "apply",
            Action::Schedules => "schedules",
            Action::Graphs => "graphs",
            Action::Raise => "raise",
            Action::Charge => "charge",
            Action::Delete => "delete",
            Action::Restore => "restore",
            Action::Dispute => "dispute",
            Action::Drain => "drain",
        }
    }
}

/// The actions with an audit record of their own, because no event of a run records them (S7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Audited {
    /// A request on `agent.admin.<action>`.
    Asked(Action),
    /// A coordinator started with a policy that differs from the previous one's.
    Policy,
    /// Workers of a pool claim with a policy that is new in the pool.
    WorkerPolicy,
}

impl Audited {
    pub fn all() -> impl Iterator<Item = Audited> {
        Action::ALL.into_iter().map(Audited::Asked).chain([Audited::Policy, Audited::WorkerPolicy])
    }

    pub fn name(self) -> &'static str {
        match self {
            Audited::Asked(action) => action.name(),
            Audited::Policy => "policy",
            Audited::WorkerPolicy => "worker_policy",
        }
    }
}
