//! The spending of a run by agent and model. Lists of runs add it up. It decides nothing.
//!
//! Only a few pairs of agent and model have their own row. A new pair that spends always gets a
//! row. If none is free, it takes the row of the pair with the smallest weight, whose sum is added
//! to the row of the others; the new pair inherits that weight as credit. A pair that spent more
//! than an eleventh of the total is therefore listed, even if it came late and spends in small
//! parts between other pairs (apart from estimates that were taken back). This is the "space
//! saving" algorithm of Metwally, Agrawal and El Abbadi.

use domain::{AgentId, Usd, id::ModelName, money::booked, wire::Spender};
use serde::{Deserialize, Serialize};

/// The most rows, including the row of the others, so that a run with many agents costs no more to
/// write.
pub const MOST_SPENDERS: usize = 12;

/// The rows in the order in which the pairs appeared; the row of the others is last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spenders(Vec<SpenderRow>);

/// The spending of one pair of agent and model, or of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SpenderRow {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<ModelName>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    others: bool,
    #[serde(deserialize_with = "booked::usd")]
    cost_usd: Usd,
    /// The weight of the pair whose row this one took: the most that this pair may have spent
    /// before.
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "booked::usd")]
    credit_usd: Usd,
}

fn is_zero(sum: &Usd) -> bool {
    *sum == Usd::ZERO
}

impl SpenderRow {
    fn add(&mut self, cost: Usd) {
        self.cost_usd = Usd::from_nanos(self.cost_usd.nanos().saturating_add(cost.nanos()));
    }

    /// The pair with the smallest weight loses its row.
    fn weight(&self) -> Usd {
        let sum = self.cost_usd.nanos().saturating_add(self.credit_usd.nanos());
        Usd::from_nanos(sum).min(Usd::MAX_BOOKED)
    }
}

impl Spenders {
    /// Books the cost of a call of a model.
    pub fn book(&mut self, agent_id: Option<&AgentId>, model: Option<&ModelName>, cost: Usd) {
        let at = self.place(agent_id, model).unwrap_or_else(|| self.new_place(agent_id, model));
        self.0[at].add(cost);
    }

    /// Takes an estimate back. Estimates have no model. A part of it may have moved to the row of
    /// the others since.
    pub fn take_back(&mut self, agent_id: Option<&AgentId>, estimate: Usd) {
        let mut left = estimate.nanos();
        for at in [self.place(agent_id, None), self.others()].into_iter().flatten() {
            let sum = &mut self.0[at].cost_usd;
            let taken = sum.nanos().min(left);
            *sum = Usd::from_nanos(sum.nanos() - taken);
            left -= taken;
        }
        self.0.retain(|one| !is_zero(&one.cost_usd));
    }

    /// The rows in the form that is published.
    pub fn told(&self) -> Vec<Spender> {
        let told = |SpenderRow { agent_id, model, others, cost_usd, .. }: &SpenderRow| Spender {
            agent_id: agent_id.clone(),
            model: model.clone(),
            others: *others,
            cost_usd: *cost_usd,
        };
        self.0.iter().map(told).collect()
    }

    fn place(&self, agent_id: Option<&AgentId>, model: Option<&ModelName>) -> Option<usize> {
        let is_it = |one: &SpenderRow| {
            !one.others && one.agent_id.as_ref() == agent_id && one.model.as_ref() == model
        };
        self.0.iter().position(is_it)
    }

    fn others(&self) -> Option<usize> {
        self.0.iter().position(|one| one.others)
    }

    fn new_place(&mut self, agent_id: Option<&AgentId>, model: Option<&ModelName>) -> usize {
        let mut credit_usd = Usd::ZERO;
        while self.0.iter().filter(|one| !one.others).count() + 1 >= MOST_SPENDERS {
            credit_usd = self.merge_least();
        }
        let at = self.others().unwrap_or(self.0.len());
        let (agent_id, model) = (agent_id.cloned(), model.cloned());
        self.0.insert(at, SpenderRow { agent_id, model, others: false, cost_usd: Usd::ZERO, credit_usd });
        at
    }

    /// Adds the pair with the smallest weight to the others, and returns its weight. If several are
    /// equal, the first one is taken, so that a replay takes the same.
    fn merge_least(&mut self) -> Usd {
        let pairs = self.0.iter().enumerate().filter(|(_, one)| !one.others);
        let Some((least, _)) = pairs.min_by_key(|(_, one)| one.weight()) else { return Usd::ZERO };
        let gone = self.0.remove(least);
        let weight = gone.weight();
        match self.others() {
            Some(at) => self.0[at].add(gone.cost_usd),
            None => {
                let (cost_usd, credit_usd) = (gone.cost_usd, Usd::ZERO);
                self.0.push(SpenderRow { agent_id: None, model: None, others: true, cost_usd, credit_usd });
            }
        }
        weight
    }
}
