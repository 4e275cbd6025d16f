//! The profiles of the agents that a submission or spawn names, as the directory returned them.
//! Plain values.

use std::collections::{BTreeMap, BTreeSet};

use domain::{AgentId, AgentProfile, Timestamp, graph::Plan};

use super::ContextSpec;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct NamedProfiles {
    /// The profiles that the directory has.
    pub profiles: Vec<AgentProfile>,
    /// The version of each applied profile; built-in agents have none.
    pub versions: BTreeMap<AgentId, u64>,
    /// The deleted profiles, and the time of each deletion.
    pub deleted: BTreeMap<AgentId, Timestamp>,
    /// The profiles whose latest version was written by a newer version of this program, and the
    /// number of that version.
    pub unreadable: BTreeMap<AgentId, u64>,
    /// For each unknown agent, a known one with a similar name.
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

/// The message and hint for a profile that this program can't read: no run is admitted with it.
pub fn unreadable(agent: &AgentId, version: u64) -> (String, String) {
    let message = format!(
        "version {version} of `{agent}` was written by a newer version of Trellis and can't be read here"
    );
    let hint = format!(
        "upgrade every coordinator, or apply a profile of `{agent}` again, with `trellis agents apply`"
    );
    (message, hint)
}
