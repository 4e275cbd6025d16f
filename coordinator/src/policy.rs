//! What was said about all runs of the deployment, when its coordinators were started. Every heartbeat tells it to the
//! others: whichever coordinator takes a run, the longest retention and the lowest maximum of them all hold. What a
//! coordinator said holds for an hour after it was last heard, unless it was stopped in order: a pause or a crash must not
//! remove runs.

use std::sync::{Mutex, PoisonError};

use shared::{limits::Settings, time::millis, wire::Policy};

use crate::{Config, store::Member};

#[derive(Debug)]
pub(crate) struct Policies {
    own: Policy,
    /// What holds, as far as the others were heard.
    holds: Mutex<Policy>,
}

impl Policies {
    pub(crate) fn new(config: &Config) -> Self {
        let own = Policy {
            retention_ms: millis(config.retention),
            max_cost_usd: config.settings.maximum.max_cost_usd,
        };
        Policies { holds: Mutex::new(own.clone()), own }
    }

    /// What this coordinator tells the others.
    pub(crate) fn said(&self) -> String {
        serde_json::to_string(&self.own).expect("a policy has string keys only")
    }

    /// Takes note of what coordinators say. What can't be read was said by another version.
    pub(crate) fn heard<'a>(&self, coordinators: impl IntoIterator<Item = &'a Member>) {
        let holds = read(coordinators).iter().fold(self.own.clone(), |all, other| all.and(other));
        let mut known = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != holds && holds != self.own {
            tracing::warn!(
                ?holds,
                "the coordinators were started with different options: the longest --retention and the lowest --max-cost-usd hold"
            );
        }
        *known = holds;
    }

    pub(crate) fn holds(&self) -> Policy {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The settings of a run that is admitted now.
    pub(crate) fn apply(&self, mut settings: Settings) -> Settings {
        settings.maximum.max_cost_usd = self.holds().max_cost_usd;
        settings
    }
}

/// What coordinators say.
pub(crate) fn read<'a>(coordinators: impl IntoIterator<Item = &'a Member>) -> Vec<Policy> {
    coordinators.into_iter().filter_map(|member| serde_json::from_str(&member.says).ok()).collect()
}
