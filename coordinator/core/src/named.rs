//! The profiles of the agents that a submission or spawn names, as the directory had them. Plain values.

use std::collections::{BTreeMap, BTreeSet};

use domain::{AgentId, AgentProfile, Timestamp, graph::Plan};

use super::ContextSpec;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamedProfiles {
    /// As far as the directory has them.
    pub profiles: Vec<AgentProfile>,
    /// The version of each that was applied; built-in ones have none.
    pub versions: BTreeMap<AgentId, u64>,
    /// Those that were deleted, and when.
    pub deleted: BTreeMap<AgentId, Timestamp>,
    /// Those whose latest version a newer version of this program wrote, and its number.
    pub unreadable: BTreeMap<AgentId, u64>,
    /// Of those that there are not: one whose name is much the same.
    pub similar: BTreeMap<AgentId, AgentId>,
    /// The revision of the directory.
    pub revision: Option<u64>,
}

impl NamedProfiles {
    pub(super) fn get(&self, id: &AgentId) -> Option<&AgentProfile> {
        self.profiles.iter().find(|agent| agent.agent_id == *id)
    }
}

impl From<Vec<AgentProfile>> for NamedProfiles {
    fn from(profiles: Vec<AgentProfile>) -> Self {
        NamedProfiles { profiles, ..Default::default() }
    }
}

/// The agents that a spec and its plan name.
pub fn agents_of(spec: &ContextSpec, plan: Option<&Plan>) -> BTreeSet<AgentId> {
    spec.agent_id.iter().cloned().chain(plan.into_iter().flat_map(agents_of_plan)).collect()
}

/// The agents that a plan names.
pub fn agents_of_plan(plan: &Plan) -> BTreeSet<AgentId> {
    plan.agents().map(|(agent, _)| agent).cloned().collect()
}

/// Why no run is admitted with a profile that this program can't read, and what to do about it.
pub fn unreadable(agent: &AgentId, version: u64) -> (String, String) {
    let message = format!(
        "version {version} of `{agent}` was written by a newer version of Trellis and can't be read here"
    );
    let hint = format!(
        "upgrade every coordinator, or apply a profile of `{agent}` again, with `trellis agents apply`"
    );
    (message, hint)
}
