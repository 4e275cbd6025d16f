//! Who spent the money of a run: which agents, with which models. Lists of runs add it up. It decides nothing.

use serde::{Deserialize, Serialize};
use shared::{AgentId, Usd, id::ModelName, wire::Spender};

/// So many are kept apart; what others spend is kept as one sum, so that a run with many agents stays as cheap to write.
const MOST: usize = 12;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Spenders(pub(super) Vec<Spender>);

impl Spenders {
    /// Books a cost of a call of a model.
    pub(super) fn book(&mut self, agent_id: Option<&AgentId>, model: Option<&ModelName>, cost: Usd) {
        let sum = self.sum(agent_id, model);
        *sum = Usd::from_nanos(sum.nanos().saturating_add(cost.nanos()));
    }

    /// Takes an estimate back, which was of no model. Of traces that earlier versions began, less may be known than is taken back.
    pub(super) fn take_back(&mut self, agent_id: Option<&AgentId>, estimate: Usd) {
        let sum = self.sum(agent_id, None);
        *sum = Usd::from_nanos(sum.nanos().saturating_sub(estimate.nanos()));
    }

    fn sum(&mut self, agent_id: Option<&AgentId>, model: Option<&ModelName>) -> &mut Usd {
        let place = self.place(agent_id, model).unwrap_or_else(|| {
            let is_full = self.0.len() + 1 >= MOST;
            let (agent_id, model) = if is_full { (None, None) } else { (agent_id, model) };
            self.place(agent_id, model).unwrap_or_else(|| {
                let (agent_id, model) = (agent_id.cloned(), model.cloned());
                self.0.push(Spender { agent_id, model, cost_usd: Usd::ZERO });
                self.0.len() - 1
            })
        });
        &mut self.0[place].cost_usd
    }

    fn place(&self, agent_id: Option<&AgentId>, model: Option<&ModelName>) -> Option<usize> {
        self.0.iter().position(|one| one.agent_id.as_ref() == agent_id && one.model.as_ref() == model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_stays_whole_however_many_spend() {
        let mut spenders = Spenders::default();
        let agents: Vec<AgentId> = (0..40).map(|number| format!("a{number}").parse().unwrap()).collect();
        for agent in agents.iter().chain(&agents) {
            spenders.book(Some(agent), None, Usd::from_nanos(1));
        }
        assert_eq!(spenders.0.len(), MOST);
        assert_eq!(spenders.0.iter().map(|one| one.cost_usd.nanos()).sum::<u64>(), 80);
        let last = spenders.0.last().unwrap();
        assert_eq!((last.agent_id.as_ref(), last.cost_usd.nanos()), (None, 2 * (40 - 11)));
    }
}
