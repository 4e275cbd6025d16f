//! The cost of the runs that were submitted in the last 24 hours: by the hour of submission, by
//! agent and by model.

use std::collections::BTreeMap;

use client::Client;
use domain::{
    Timestamp, Usd,
    wire::{RunSummary, RunsQuery, Spender},
};
use host::clock::Clock;

use crate::problem::ApiResult;

const HOUR_MS: u64 = 60 * 60 * 1000;
pub(crate) const HOURS: usize = 24;
/// The most pages of runs that are added up, the newest first.
const PAGES: usize = 10;
/// The name for spending without a known agent or model.
const OTHERS: &str = "others";

#[derive(Debug, Default)]
pub(crate) struct Today {
    /// The oldest hour first.
    pub(crate) hours: [Usd; HOURS],
    /// The largest sum first.
    pub(crate) agents: Vec<(String, Usd)>,
    /// The cost by model; estimates, charges and calls without a model are under [`OTHERS`].
    pub(crate) models: Vec<(String, Usd)>,
    /// There are more runs than were added up.
    pub(crate) is_cut: bool,
}

impl Today {
    pub(crate) async fn of(client: &Client) -> ApiResult<Self> {
        let now = Clock::Machine.now();
        let since = Some(now.minus_millis(HOUR_MS * HOURS as u64));
        let mut query = RunsQuery { since, limit: 500, ..RunsQuery::default() };
        let mut runs = Vec::new();
        for _ in 0..PAGES {
            let found = client.runs(&query).await??;
            runs.extend(found.runs);
            query.after = found.next;
            if query.after.is_none() {
                break;
            }
        }
        Ok(Today { is_cut: query.after.is_some(), ..Today::added(&runs, now) })
    }

    fn added(runs: &[RunSummary], now: Timestamp) -> Self {
        let mut today = Today::default();
        let (mut agents, mut models) = (Sums::default(), Sums::default());
        let add = |sum: &mut Usd, more: Usd| *sum = Usd::from_nanos(sum.nanos().saturating_add(more.nanos()));
        for run in runs {
            let ago = usize::try_from(now.millis_since(run.started_at) / HOUR_MS).unwrap_or(HOURS);
            let spent = run.budget.spent.cost_usd;
            if ago < HOURS && spent > Usd::ZERO {
                add(&mut today.hours[HOURS - 1 - ago], spent);
                for Spender { agent_id, model, cost_usd, .. } in &run.spent_by {
                    agents.add(agent_id.as_ref(), *cost_usd);
                    models.add(model.as_ref(), *cost_usd);
                }
            }
        }
        (today.agents, today.models) = (agents.most_first(), models.most_first());
        today
    }
}

/// Sums by name.
#[derive(Default)]
struct Sums(BTreeMap<Option<String>, u64>);

impl Sums {
    fn add(&mut self, name: Option<impl ToString>, cost: Usd) {
        let sum = self.0.entry(name.map(|name| name.to_string())).or_default();
        *sum = sum.saturating_add(cost.nanos());
    }

    /// The largest sum first; the sum without a name is last.
    fn most_first(self) -> Vec<(String, Usd)> {
        let mut sums: Vec<(Option<String>, u64)> = self.0.into_iter().filter(|(_, sum)| *sum > 0).collect();
        sums.sort_by_key(|(name, sum)| (name.is_none(), std::cmp::Reverse(*sum)));
        let named =
            |(name, sum): (Option<String>, u64)| (name.unwrap_or(OTHERS.into()), Usd::from_nanos(sum));
        sums.into_iter().map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spending_is_added_up_by_hour_by_agent_and_by_model() {
        let now = Timestamp::from_millis(100 * HOUR_MS);
        let run = |hours_ago: u64, agent: &str, cents: u64| -> RunSummary {
            let amount =
                |cents: u64| json!(domain::Amount::new(Usd::from_cents(cents), domain::Tokens::new(0)));
            let budget = json!({"limit": amount(100), "spent": amount(cents), "held": amount(0), "remaining": amount(0),
                "own": amount(0), "estimated": amount(0), "disputed": amount(0), "overspent": amount(0),
                "closing_reserve_usd": Usd::ZERO, "funding": "shared"});
            let known = json!([{"agent_id": agent, "model": "m", "cost_usd": Usd::from_cents(cents)}]);
            serde_json::from_value(json!({"trace_id": "00000000000000000000000000000001", "child_id": "w",
                "status": "completed", "started_at": now.minus_millis(hours_ago * HOUR_MS + 1), "budget": budget,
                "spent_by": known}))
            .expect("a run")
        };
        let runs = [run(0, "a", 10), run(0, "b", 25), run(23, "a", 5), run(24, "a", 900), run(1, "c", 1)];
        let today = Today::added(&runs, now);
        assert_eq!((today.hours[23], today.hours[0]), (Usd::from_cents(35), Usd::from_cents(5)));
        let told = |sums: &[(String, Usd)]| -> Vec<String> {
            sums.iter().map(|(name, sum)| format!("{name} {sum}")).collect()
        };
        assert_eq!(told(&today.agents), ["b $0.25", "a $0.15", "c $0.01"]);
        assert_eq!(told(&today.models), ["m $0.41"]);
    }
}
