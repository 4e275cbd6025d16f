//! Who spent the money of a run: which agents, with which models. Lists of runs add it up. It decides nothing.
//!
//! Only some pairs are kept apart. Whoever spends gets a place, if need be that of the pair with the least, which is one of the others from
//! then on; its credit goes with the place. So a pair that spent more than an eleventh of all has its place, but for estimates that were
//! taken back, also if it came late and spends in small parts between others that do. (Metwally, Agrawal and El Abbadi: "space saving".)

use serde::{Deserialize, Serialize};
use shared::{AgentId, Usd, id::ModelName, money::booked, wire::Spender};

/// So many are kept, the sum of the others among them, so that a run with many agents stays as cheap to write.
const MOST: usize = 12;

/// In the order in which they came; the others are the last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Spenders(Vec<Kept>);

/// What is kept of a pair of an agent and a model, or of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<ModelName>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    others: bool,
    #[serde(deserialize_with = "booked::usd")]
    cost_usd: Usd,
    /// What those had whose place it has: the most that it may have spent before.
    #[serde(default, skip_serializing_if = "is_zero", deserialize_with = "booked::usd")]
    credit_usd: Usd,
}

fn is_zero(sum: &Usd) -> bool {
    *sum == Usd::ZERO
}

impl Kept {
    fn add(&mut self, cost: Usd) {
        self.cost_usd = Usd::from_nanos(self.cost_usd.nanos().saturating_add(cost.nanos()));
    }

    /// By which the pair with the least is found.
    fn weight(&self) -> Usd {
        let sum = self.cost_usd.nanos().saturating_add(self.credit_usd.nanos());
        Usd::from_nanos(sum).min(Usd::MAX_BOOKED)
    }
}

impl Spenders {
    /// Books a cost of a call of a model.
    pub(super) fn book(&mut self, agent_id: Option<&AgentId>, model: Option<&ModelName>, cost: Usd) {
        let at = self.place(agent_id, model).unwrap_or_else(|| self.new_place(agent_id, model));
        self.0[at].add(cost);
    }

    /// Takes an estimate back, which was of no model. A part of it may have become one of the others since. Of traces that earlier versions
    /// began, less may be known than is taken back.
    pub(super) fn take_back(&mut self, agent_id: Option<&AgentId>, estimate: Usd) {
        let mut left = estimate.nanos();
        for at in [self.place(agent_id, None), self.others()].into_iter().flatten() {
            let sum = &mut self.0[at].cost_usd;
            let taken = sum.nanos().min(left);
            *sum = Usd::from_nanos(sum.nanos() - taken);
            left -= taken;
        }
        self.0.retain(|one| !is_zero(&one.cost_usd));
    }

    /// What is told of it.
    pub(super) fn told(&self) -> Vec<Spender> {
        let told = |Kept { agent_id, model, others, cost_usd, .. }: &Kept| Spender {
            agent_id: agent_id.clone(),
            model: model.clone(),
            others: *others,
            cost_usd: *cost_usd,
        };
        self.0.iter().map(told).collect()
    }

    fn place(&self, agent_id: Option<&AgentId>, model: Option<&ModelName>) -> Option<usize> {
        let is_it =
            |one: &Kept| !one.others && one.agent_id.as_ref() == agent_id && one.model.as_ref() == model;
        self.0.iter().position(is_it)
    }

    fn others(&self) -> Option<usize> {
        self.0.iter().position(|one| one.others)
    }

    fn new_place(&mut self, agent_id: Option<&AgentId>, model: Option<&ModelName>) -> usize {
        let mut credit_usd = Usd::ZERO;
        while self.0.iter().filter(|one| !one.others).count() + 1 >= MOST {
            credit_usd = self.merge_least();
        }
        let at = self.others().unwrap_or(self.0.len());
        let (agent_id, model) = (agent_id.cloned(), model.cloned());
        self.0.insert(at, Kept { agent_id, model, others: false, cost_usd: Usd::ZERO, credit_usd });
        at
    }

    /// Makes the pair with the least one of the others; what it had. Of several, it is the one that came first: a replay takes the same.
    fn merge_least(&mut self) -> Usd {
        let pairs = self.0.iter().enumerate().filter(|(_, one)| !one.others);
        let Some((least, _)) = pairs.min_by_key(|(_, one)| one.weight()) else { return Usd::ZERO };
        let gone = self.0.remove(least);
        let weight = gone.weight();
        match self.others() {
            Some(at) => self.0[at].add(gone.cost_usd),
            None => {
                let (cost_usd, credit_usd) = (gone.cost_usd, Usd::ZERO);
                self.0.push(Kept { agent_id: None, model: None, others: true, cost_usd, credit_usd });
            }
        }
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: impl std::fmt::Display) -> AgentId {
        format!("a{name}").parse().unwrap()
    }

    fn nanos(nanos: u64) -> Usd {
        Usd::from_nanos(nanos)
    }

    fn sum(spenders: &Spenders) -> u64 {
        spenders.told().iter().map(|one| one.cost_usd.nanos()).sum()
    }

    #[test]
    fn the_sum_stays_whole_however_many_spend_and_the_others_are_last() {
        let mut spenders = Spenders::default();
        for number in (0..40).chain(0..40) {
            spenders.book(Some(&agent(number)), None, nanos(1));
        }
        let told = spenders.told();
        assert_eq!((told.len(), sum(&spenders)), (MOST, 80));
        let others: Vec<usize> = (0..told.len()).filter(|at| told[*at].others).collect();
        assert_eq!(others, [MOST - 1]);
        assert_eq!(told[MOST - 1].agent_id, None);
    }

    #[test]
    fn who_spends_most_is_told_also_if_it_came_last_and_spends_little_at_a_time() {
        let mut spenders = Spenders::default();
        for number in 0..MOST {
            spenders.book(Some(&agent(number)), None, nanos(100));
        }
        let late = agent("late");
        for round in 0..6_000_u32 {
            spenders.book(Some(&late), None, nanos(1));
            // Two more small ones come in turn.
            if round.is_multiple_of(3) {
                spenders.book(Some(&agent(100 + round % 2)), None, nanos(1));
            }
        }
        let told = spenders.told();
        let of_late = told.iter().find(|one| one.agent_id.as_ref() == Some(&late)).unwrap();
        assert!(of_late.cost_usd > nanos(5_000), "{told:#?}");
        assert_eq!(sum(&spenders), 100 * 12 + 6_000 + 2_000);
    }

    #[test]
    fn a_cost_of_no_agent_is_none_of_the_others() {
        let mut spenders = Spenders::default();
        spenders.book(None, None, nanos(50));
        for number in 0..40 {
            spenders.book(Some(&agent(number)), None, nanos(1));
        }
        let told = spenders.told();
        let of_none: Vec<(bool, u64)> = told
            .iter()
            .filter(|one| one.agent_id.is_none())
            .map(|one| (one.others, one.cost_usd.nanos()))
            .collect();
        assert_eq!(of_none, [(false, 50), (true, 40 - 10)]);
    }

    #[test]
    fn what_is_taken_back_has_no_place_and_may_be_among_the_others() {
        let mut spenders = Spenders::default();
        for number in 0..40 {
            spenders.book(Some(&agent(number)), None, nanos(1));
        }
        spenders.take_back(Some(&agent(0)), nanos(1));
        assert_eq!(sum(&spenders), 39);
        let mut spenders = Spenders::default();
        spenders.book(Some(&agent(0)), None, nanos(7));
        spenders.take_back(Some(&agent(0)), nanos(7));
        assert_eq!(spenders, Spenders::default());
    }

    #[test]
    fn what_is_stored_goes_on_as_what_was_kept() {
        let mut kept = Spenders::default();
        for number in 0..20_u8 {
            kept.book(Some(&agent(number)), None, nanos(u64::from(number) + 1));
        }
        let text = serde_json::to_string(&kept).unwrap();
        let mut read: Spenders = serde_json::from_str(&text).unwrap();
        assert_eq!(read, kept);
        for number in 20..30_u8 {
            for spenders in [&mut kept, &mut read] {
                spenders.book(Some(&agent(number)), None, nanos(3));
            }
        }
        assert_eq!(read, kept);
    }
}
