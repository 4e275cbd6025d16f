//! Checks that the worst case of a graph fits its budget, for a submission that requires this
//! (G11). A worst case that the ceilings of the steps do not bound is rejected, because one step
//! could use up the money promised to the others.

use domain::{
    AgentId, Usd,
    graph::{Estimate, EstimateInputs, Plan},
};

use super::{ContextSpec, NamedProfiles, Refusal, admission::Place, agents_of_plan, terms::Terms};

impl Place<'_> {
    pub(super) fn check_worst_case(
        &self,
        spec: &ContextSpec,
        plan: &Plan,
        agents: &NamedProfiles,
        terms: &Terms,
    ) -> Result<(), Refusal> {
        let left = self.parent.map(|(at, _)| self.trace.left_apart_from_calls(at).cost_usd);
        let budget = left.map_or(terms.ceiling.cost_usd, |left| left.min(terms.ceiling.cost_usd));
        let ceiling = |id: &AgentId| self.trace.agent(id).or_else(|| agents.get(id))?.max_cost_usd;
        let agents = agents_of_plan(plan).into_iter();
        let profiles = agents.filter_map(|id| Some((id.clone(), ceiling(&id)?))).collect();
        let estimate =
            Estimate::of(plan, &EstimateInputs { inputs: &spec.inputs, profiles: &profiles, items: None });
        let why = match estimate.needs(terms.reserve_usd) {
            Some(needs) if needs <= budget => return Ok(()),
            Some(needs) if terms.reserve_usd == Usd::ZERO => format!("its steps may cost {needs}"),
            Some(needs) => {
                format!("its steps and the closing reserve of {} may cost {needs}", terms.reserve_usd)
            }
            None => estimate.unbounded().join("; "),
        };
        Err(Refusal::DoesNotFit { budget, why })
    }
}
