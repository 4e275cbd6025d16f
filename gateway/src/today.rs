//! What was spent in the last 24 hours, by hour and by agent: of the runs that were submitted then.

use std::collections::BTreeMap;

use shared::{
    Timestamp, Usd,
    bus::Bus,
    clock::Clock,
    wire::{RunSummary, RunsQuery},
};

use crate::{cluster::find_runs, config::Caller, problem::ProblemDetails};

const HOUR_MS: u64 = 60 * 60 * 1000;
pub(crate) const HOURS: usize = 24;
/// Pages of runs that are added up; of more, the newest.
const PAGES: usize = 10;

#[derive(Debug, Default)]
pub(crate) struct Today {
    /// The oldest hour first.
    pub(crate) hours: [Usd; HOURS],
    /// Who spent most first; an agent is that of the root.
    pub(crate) agents: Vec<(String, Usd)>,
    /// There are more runs than were added up.
    pub(crate) is_cut: bool,
}

impl Today {
    pub(crate) async fn of(bus: &Bus, caller: &Caller) -> Result<Self, Box<ProblemDetails>> {
        let now = Clock::Machine.now();
        let since = Some(now.minus_millis(HOUR_MS * HOURS as u64));
        let mut query = RunsQuery { since, limit: 500, ..RunsQuery::default() };
        let mut runs = Vec::new();
        for _ in 0..PAGES {
            let found = find_runs(bus, caller, &query).await?;
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
        let mut agents: BTreeMap<String, Usd> = BTreeMap::new();
        let add = |sum: &mut Usd, more: Usd| *sum = Usd::from_nanos(sum.nanos().saturating_add(more.nanos()));
        for run in runs {
            let ago = usize::try_from(now.millis_since(run.started_at) / HOUR_MS).unwrap_or(HOURS);
            let spent = run.budget.spent.cost_usd;
            if ago < HOURS && spent > Usd::ZERO {
                add(&mut today.hours[HOURS - 1 - ago], spent);
                let agent = run.agent_id.as_ref().map_or_else(|| "graphs".to_owned(), ToString::to_string);
                add(agents.entry(agent).or_default(), spent);
            }
        }
        today.agents = agents.into_iter().collect();
        today.agents.sort_by_key(|(_, spent)| std::cmp::Reverse(spent.nanos()));
        today
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_spent_is_added_up_by_hour_and_by_agent() {
        let now = Timestamp::from_millis(100 * HOUR_MS);
        let run = |hours_ago: u64, agent: &str, cents: u64| -> RunSummary {
            let amount =
                |cents: u64| json!(shared::Amount::new(Usd::from_cents(cents), shared::Tokens::new(0)));
            let budget = json!({"limit": amount(100), "spent": amount(cents), "held": amount(0), "remaining": amount(0),
                "own": amount(0), "estimated": amount(0), "disputed": amount(0), "overspent": amount(0),
                "closing_reserve_usd": Usd::ZERO, "funding": "shared"});
            serde_json::from_value(json!({"trace_id": "00000000000000000000000000000001", "child_id": "w", "agent_id": agent,
                "status": "completed", "started_at": now.minus_millis(hours_ago * HOUR_MS + 1), "budget": budget}))
            .expect("a run")
        };
        let runs = [run(0, "a", 10), run(0, "b", 25), run(23, "a", 5), run(24, "a", 900), run(1, "c", 1)];
        let today = Today::added(&runs, now);
        assert_eq!((today.hours[23], today.hours[0]), (Usd::from_cents(35), Usd::from_cents(5)));
        let names: Vec<&str> = today.agents.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }
}
