//! Costs that stand only in commits that do not count (`chain`). The store lost these commits after their workers had
//! been told that they are made: nobody reports these costs again. So a rebuild books them, each once, by its id.
//! Of an attempt that was claimed in a lost commit nothing is known, and another may use the ids of its calls again:
//! they get ids of their own.

use std::collections::{HashMap, HashSet};

use shared::{
    Amount, CallId, ChildId,
    terms::Text,
    wire::{Charge, DisputedCost, Sender},
};

use super::{ContextIndex, Event, Phase, Refusal, Status, Trace, chain::Told, money};

/// A call or a charge in commits that do not count.
#[derive(Debug, Clone, PartialEq)]
pub struct LostCost {
    child_id: ChildId,
    of: DisputedCost,
    /// The id it gets if its attempt, or its context, is not known.
    own_id: CallId,
    /// Set if its hold is lost too.
    hold: Option<LostHold>,
    /// None if it is not known.
    cost: Option<Amount>,
}

#[derive(Debug, Clone, PartialEq)]
struct LostHold {
    attempt: u32,
    amount: Amount,
    /// The claim of its attempt is lost too.
    is_of_lost_attempt: bool,
}

/// What an event says of a cost.
enum Said {
    Hold(u32, Amount),
    Cost(Amount),
    /// So much of the cost that was said last is not booked.
    Disputed(Amount),
}

fn said(event: &Event) -> Option<(&ChildId, DisputedCost, Said)> {
    let call = |id: &CallId| DisputedCost::Call(id.clone());
    if let Event::Held { child_id, call_id, attempt, amount } = event {
        Some((child_id, call(call_id), Said::Hold(*attempt, *amount)))
    } else if let Event::Settled { child_id, call_id, amount }
    | Event::Corrected { child_id, call_id, amount } = event
    {
        Some((child_id, call(call_id), Said::Cost(*amount)))
    } else if let Event::Released { child_id, call_id } = event {
        Some((child_id, call(call_id), Said::Cost(Amount::ZERO)))
    } else if let Event::Charged { child_id, key, amount } = event {
        Some((child_id, DisputedCost::Charge(key.clone()), Said::Cost(*amount)))
    } else if let Event::Disputed { child_id, amount, of, .. } = event {
        Some((child_id, of.clone(), Said::Disputed(*amount)))
    } else {
        None
    }
}

/// The costs in these commits, and the holds that may have become costs.
pub(super) fn lost_costs(commits: &[Told]) -> Vec<LostCost> {
    let mut claimed: HashSet<(&ChildId, u32)> = HashSet::new();
    let mut costs: Vec<LostCost> = Vec::new();
    let mut places: HashMap<(&ChildId, DisputedCost), usize> = HashMap::new();
    for told in commits {
        for (version, event) in told.messages().flat_map(|logged| (logged.version..).zip(&logged.events)) {
            if let Event::Claimed { child_id, attempt, .. } = event {
                claimed.insert((child_id, *attempt));
            }
            let Some((child_id, of, said)) = said(event) else { continue };
            let place = places.entry((child_id, of.clone())).or_insert(costs.len());
            // Attempts with one number may have been claimed in several branches.
            if *place == costs.len() || matches!(said, Said::Hold(..)) {
                *place = costs.len();
                let own_id = CallId::new(&format!("lost-{version}-{}", told.commit.made.millis()));
                let own_id = own_id.expect("two numbers in a valid literal");
                costs.push(LostCost { child_id: child_id.clone(), of, own_id, hold: None, cost: None });
            }
            let lost = &mut costs[*place];
            match said {
                Said::Hold(attempt, amount) => {
                    let is_of_lost_attempt = claimed.contains(&(child_id, attempt));
                    lost.hold = Some(LostHold { attempt, amount, is_of_lost_attempt });
                }
                Said::Cost(amount) => lost.cost = Some(amount),
                Said::Disputed(amount) => lost.cost = lost.cost.and_then(|cost| cost.checked_add(amount)),
            }
        }
    }
    costs
}

/// A cost that is booked already gives no event.
pub(super) fn book(trace: &Trace, lost: &LostCost) -> Result<Vec<Event>, Refusal> {
    let of_lost_attempt = lost.hold.as_ref().is_some_and(|hold| hold.is_of_lost_attempt);
    let found = trace.find(&lost.child_id);
    let at = found.or_else(|| trace.find(&trace.root()?.id)).ok_or(Refusal::NoTrace)?;
    let named =
        |id: &CallId| if found.is_some() && !of_lost_attempt { id.clone() } else { lost.own_id.clone() };
    let by = "the event log";
    match (&lost.of, lost.cost, &lost.hold) {
        (DisputedCost::Charge(key), Some(amount), _) => {
            let (child_id, by) = (trace.node(at).id.clone(), Text::new(by).ok());
            money::charge(trace, &Charge { child_id, key: named(key), amount, by })
        }
        // A hold that was returned; nobody else needs to know of it.
        (DisputedCost::Call(_), Some(Amount::ZERO), Some(_)) => Ok(Vec::new()),
        (DisputedCost::Call(id), Some(cost), _) => {
            let sender = || Sender::Control { by: Some(by.into()) };
            money::settle_late(trace, at, &named(id), cost, sender)
        }
        (DisputedCost::Call(id), None, Some(hold)) => Ok(estimate(trace, at, named(id), hold)),
        (DisputedCost::Call(_) | DisputedCost::Charge(_), None, _) => Ok(Vec::new()),
    }
}

/// A hold whose call may have been made. If its attempt goes on, so does the hold. If not, its cost is unknown.
fn estimate(trace: &Trace, at: ContextIndex, call_id: CallId, hold: &LostHold) -> Vec<Event> {
    let node = trace.node(at);
    let fits = hold.amount.exceeds(trace.left_for_unheld(at)).is_none();
    if node.calls.get(&call_id).is_some() || !fits {
        return Vec::new();
    }
    let goes_on = matches!(node.status, Status::Working(Phase::Running { .. }))
        && node.attempt() == hold.attempt
        && !hold.is_of_lost_attempt;
    let (child_id, attempt, amount) = (node.id.clone(), hold.attempt, hold.amount);
    if goes_on {
        vec![Event::Held { child_id, call_id, attempt, amount }]
    } else {
        vec![Event::Estimated { child_id, call_id, attempt, amount }]
    }
}
