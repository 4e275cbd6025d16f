//! Costs that appear only in commits outside the valid chain (`chain`). The store lost these
//! commits after it had confirmed them to their workers, so the workers never report these costs
//! again. A rebuild therefore books each of them once, by its id. For an attempt that was claimed
//! in a lost commit the trace has no record, and a later attempt may use its call ids again: the
//! calls of the lost attempt get new ids.

use std::collections::{HashMap, HashSet};

use domain::{
    Amount, CallId, ChildId,
    id::ModelName,
    terms::Text,
    wire::{Charge, DisputedCost, Sender},
};

use super::{Event, Phase, Refusal, Status, Trace, chain::CommitGroup, money};

/// A call or a charge in commits outside the valid chain.
#[derive(Debug, Clone, PartialEq)]
pub struct LostCost {
    child_id: ChildId,
    of: DisputedCost,
    /// The id that is used if its attempt, or its context, is unknown.
    own_id: CallId,
    /// Set if its hold is lost too.
    hold: Option<LostHold>,
    /// `None` if the cost is unknown.
    cost: Option<Amount>,
    /// The model of the call, if its event named one.
    model: Option<ModelName>,
}

#[derive(Debug, Clone, PartialEq)]
struct LostHold {
    attempt: u32,
    amount: Amount,
    /// The claim of its attempt is lost too.
    is_of_lost_attempt: bool,
}

/// The part of a cost that one event reports.
enum CostEvent {
    Hold(u32, Amount),
    Cost(Amount, Option<ModelName>),
    /// The part of the last reported cost that is not booked.
    Disputed(Amount),
}

fn said(event: &Event) -> Option<(&ChildId, DisputedCost, CostEvent)> {
    let call = |id: &CallId| DisputedCost::Call(id.clone());
    if let Event::Held { child_id, call_id, attempt, amount } = event {
        Some((child_id, call(call_id), CostEvent::Hold(*attempt, *amount)))
    } else if let Event::Settled { child_id, call_id, amount, model }
    | Event::Corrected { child_id, call_id, amount, model } = event
    {
        Some((child_id, call(call_id), CostEvent::Cost(*amount, model.clone())))
    } else if let Event::Released { child_id, call_id } = event {
        Some((child_id, call(call_id), CostEvent::Cost(Amount::ZERO, None)))
    } else if let Event::Charged { child_id, key, amount, .. } = event {
        Some((child_id, DisputedCost::Charge(key.clone()), CostEvent::Cost(*amount, None)))
    } else if let Event::Disputed { child_id, amount, of, .. } = event {
        Some((child_id, of.clone(), CostEvent::Disputed(*amount)))
    } else {
        None
    }
}

/// The costs in these branches of a log, and the holds that may have become costs.
pub(super) fn lost_costs(branches: &[Vec<CommitGroup>]) -> Vec<LostCost> {
    let mut all: Vec<LostCost> = Vec::new();
    let mut places: HashMap<CallId, usize> = HashMap::new();
    for lost in branches.iter().flat_map(|branch| in_branch(branch)) {
        // Branches may share their first commits.
        match places.get(&lost.own_id) {
            Some(place) if all[*place].cost.is_none() => all[*place] = lost,
            Some(_) => {}
            None => {
                places.insert(lost.own_id.clone(), all.len());
                all.push(lost);
            }
        }
    }
    all
}

fn in_branch(commits: &[CommitGroup]) -> Vec<LostCost> {
    let mut claimed: HashSet<(&ChildId, u32)> = HashSet::new();
    let mut costs: Vec<LostCost> = Vec::new();
    let mut places: HashMap<(&ChildId, DisputedCost), usize> = HashMap::new();
    for told in commits {
        for (version, event) in told.messages().flat_map(|logged| (logged.version..).zip(&logged.events)) {
            if let Event::Claimed { child_id, attempt, .. } = event {
                claimed.insert((child_id, *attempt));
            }
            let Some((child_id, of, said)) = said(event) else { continue };
            let place = *places.entry((child_id, of.clone())).or_insert(costs.len());
            if place == costs.len() {
                let own_id = CallId::new(&format!("lost-{version}-{}", told.commit.made.millis()));
                let own_id = own_id.expect("two numbers in a valid literal");
                let child_id = child_id.clone();
                costs.push(LostCost { child_id, of, own_id, hold: None, cost: None, model: None });
            }
            let lost = &mut costs[place];
            match said {
                CostEvent::Hold(attempt, amount) => {
                    let is_of_lost_attempt = claimed.contains(&(child_id, attempt));
                    lost.hold = Some(LostHold { attempt, amount, is_of_lost_attempt });
                }
                CostEvent::Cost(amount, model) => (lost.cost, lost.model) = (Some(amount), model),
                CostEvent::Disputed(amount) => {
                    lost.cost = lost.cost.and_then(|cost| cost.checked_add(amount))
                }
            }
        }
    }
    costs
}

/// Books a lost cost. A cost that is already booked gives no event.
pub(super) fn book(trace: &Trace, lost: &LostCost) -> Result<Vec<Event>, Refusal> {
    let found = trace.find(&lost.child_id);
    let at = found.or_else(|| trace.find(&trace.root()?.id)).ok_or(Refusal::NoTrace)?;
    // Call ids without the number of their attempt at the beginning mean the same call in every
    // attempt.
    let is_of_lost_attempt = |id: &CallId| {
        let hold = lost.hold.as_ref().filter(|hold| hold.is_of_lost_attempt);
        hold.is_some_and(|hold| id.as_str().starts_with(&format!("{}-", hold.attempt)))
    };
    let is_known = |id: &CallId| found.is_some() && !is_of_lost_attempt(id);
    let named = |id: &CallId| if is_known(id) { id.clone() } else { lost.own_id.clone() };
    let by = "the event log";
    let sender = || Sender::Control { by: Some(by.into()) };
    let node = trace.node(at);
    match (&lost.of, lost.cost, &lost.hold) {
        (DisputedCost::Charge(key), Some(amount), _) => {
            let (child_id, by) = (node.id.clone(), Text::new(by).ok());
            money::charge(trace, &Charge { child_id, key: named(key), amount, by })
        }
        // The hold was returned. It needs no event, unless an earlier rebuild restored the hold.
        (DisputedCost::Call(id), Some(Amount::ZERO), Some(_)) if !node.calls.knows(&named(id)) => {
            Ok(Vec::new())
        }
        (DisputedCost::Call(id), Some(cost), _) => {
            money::settle_late(trace, at, &named(id), (cost, lost.model.clone()), sender)
        }
        (DisputedCost::Call(id), None, Some(hold)) => {
            let LostHold { attempt, amount, .. } = *hold;
            let runs = matches!(node.status, Status::Working(Phase::Running { .. }));
            let goes_on = runs && node.attempt() == attempt && is_known(id);
            let fits = amount.exceeds(trace.left_for_unheld(at)).is_none();
            let (child_id, call_id) = (node.id.clone(), named(id));
            match (goes_on, fits) {
                _ if node.calls.knows(&call_id) => Ok(Vec::new()),
                // The attempt continues, and so does its hold. If the hold does not fit, the
                // attempt will settle a call that has none.
                (true, true) => Ok(vec![Event::Held { child_id, call_id, attempt, amount }]),
                (true, false) => Ok(Vec::new()),
                // The cost of the call will never be reported.
                (false, true) => Ok(vec![Event::Estimated { child_id, call_id, attempt, amount }]),
                (false, false) => money::settle_late(trace, at, &call_id, (amount, None), sender),
            }
        }
        (DisputedCost::Call(_) | DisputedCost::Charge(_), None, _) => Ok(Vec::new()),
    }
}
