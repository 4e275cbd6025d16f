//! Describes a limit of a trace for people (L). The place where it was set follows from the
//! settings, profiles and orders that the trace stores. Decides nothing.

use domain::{
    AgentProfile, Dimension, Limits, Timestamp,
    limits::{LimitOverrides, Settings, bound, no_bound},
    wire::{EndStatus, Failure, FailureKind, OnExhausted, exhausted},
};
use text::set_limit::{Place, SetLimit, UsedLimit};

use super::{ContextIndex, ContextNode, Phase, Status, Trace};

/// The names of the limits of a context.
const NAMES: [&str; 9] = [
    "max_steps",
    "max_retries_total",
    "max_tokens_per_step",
    "max_output_files",
    "max_output_size_bytes",
    "max_queue_ms",
    "max_depth",
    "max_children",
    "max_result_bytes",
];

/// Extends a failure for storing: if it is due to a limit, by the place where the limit was set and
/// how to raise it.
pub(super) fn explained(trace: &Trace, at: ContextIndex, failure: Failure) -> Failure {
    match (failure.kind, failure.message.parse::<UsedLimit>()) {
        (FailureKind::LimitExceeded, Ok(used)) => Failure { message: said(trace, at, &used), ..failure },
        (FailureKind::Budget, _) => match tightest(trace, at) {
            Some((context, dimension)) => {
                let hint = ceiling(trace, context, dimension).hint();
                Failure { message: format!("{}; {hint}", failure.message), ..failure }
            }
            None => failure,
        },
        _ => failure,
    }
}

/// Describes a limit that a context has used up; as reported, if it is not a limit of contexts.
pub(super) fn said(trace: &Trace, at: ContextIndex, used: &UsedLimit) -> String {
    let UsedLimit { name, used: has, max, detail } = used;
    let Some(limit) = of_name(trace, at, name, *max) else { return used.to_string() };
    let said = format!("{} has used {has} of {limit}", called(trace.node(at)));
    match detail {
        // The cause of the retries is the most useful part: it comes first.
        Some(cause) if name == "max_retries_total" => format!("{cause}; tried {has} times: {said}"),
        Some(detail) => format!("{said}; {detail}"),
        None => said,
    }
}

/// A limit of a context by its name. A value other than the context's own is built in.
fn of_name(trace: &Trace, at: ContextIndex, name: &str, max: u64) -> Option<SetLimit> {
    if name == "window_tokens" {
        return Some(window(trace, at, max));
    }
    let name = NAMES.into_iter().find(|known| *known == name)?;
    match trace.node(at).limits.value(name) {
        Some(value) if value == max => Some(of_context(trace, at, name)),
        Some(_) | None => Some(SetLimit::built_in(name, max)),
    }
}

fn called(node: &ContextNode) -> String {
    match node.identity.step {
        Some(_) => format!("step `{}`", node.id),
        None => format!("`{}`", node.id),
    }
}

/// Where a limit of a context was set: in the lowest place on the way to the root that has this
/// value.
pub(super) fn of_context(trace: &Trace, at: ContextIndex, name: &'static str) -> SetLimit {
    let value = trace.node(at).limits.value(name).unwrap_or_default();
    let sets = |limits: &LimitOverrides| limits.value(name) == Some(value);
    for (_, node) in trace.chain(at) {
        let above = node.parent.and_then(|parent| trace.node(parent).limits.value(name));
        if above == Some(value) {
            continue;
        }
        let of_deployment = node.parent.is_none() && trace.settings().limits.value(name) == Some(value);
        // The profile of a graph applies to its synthesis, and can only lower a limit.
        let binds =
            |profile: &&AgentProfile| sets(&profile.limits) && !(of_deployment && node.graph.is_some());
        let profile = own_profile(trace, node).filter(binds);
        let spec = node.spec.limits.as_deref().is_some_and(sets);
        return match (node.parent, profile) {
            (None, _) if sets(&trace.settings().maximum.limits) => SetLimit::new(name, value, Place::Maximum),
            (_, Some(profile)) => SetLimit::new(name, value, Place::Profile(profile.agent_id.clone())),
            (None, None) if !spec || of_deployment => {
                let mut limit = of_settings(trace.settings(), name);
                limit.raise_in.splice(0..0, replacing(trace, node));
                limit
            }
            (_, None) => SetLimit::new(name, value, of_order(node)),
        };
    }
    of_settings(trace.settings(), name)
}

/// A limit that only the settings of the coordinators set.
pub(super) fn of_settings(settings: &Settings, name: &'static str) -> SetLimit {
    let value = settings.limits.value(name);
    let is_default = value == Limits::default().value(name);
    let set_in = if is_default { Place::Default } else { Place::Coordinators };
    let raise_in = vec![Place::Coordinators];
    SetLimit { raise_in, ..SetLimit::new(name, value.unwrap_or_default(), set_in) }
}

/// The profile of a context's agent; for a graph, that of the agent that synthesises.
fn own_profile<'a>(trace: &'a Trace, node: &ContextNode) -> Option<&'a AgentProfile> {
    trace.agent(node.spec.agent_id.as_ref()?)
}

/// The profile that may replace the deployment's limits: that of a root that runs an agent.
fn replacing(trace: &Trace, node: &ContextNode) -> Option<Place> {
    let profile = own_profile(trace, node).filter(|_| node.graph.is_none())?;
    Some(Place::Profile(profile.agent_id.clone()))
}

/// The order that created a context.
fn of_order(node: &ContextNode) -> Place {
    match (node.parent, node.identity.step) {
        (None, _) => Place::Submission,
        (Some(_), _) if node.identity.undoes.is_some() => Place::Undo,
        (Some(_), Some(_)) => Place::Step,
        (Some(_), None) => Place::Spawn(node.id.clone()),
    }
}

/// Why a context has no time left: the context whose deadline passed, and where that deadline was
/// set.
pub(super) fn out_of_time(trace: &Trace, at: ContextIndex) -> String {
    let bounding = trace.chain(at).take_while(|(index, node)| *index == at || !node.is_undoing());
    let deadline = |node: &ContextNode| node.running_deadline();
    let earliest =
        bounding.filter_map(|(index, node)| Some((deadline(node)?, index))).min_by_key(|(by, _)| *by);
    let untaken = earliest.and_then(|(by, whose)| untaken(trace, at, whose, by));
    let said = match earliest.map(|(by, whose)| (by, trace.node(whose))) {
        Some((by, node)) => match timeout(trace, node, by) {
            Some(limit) => {
                // If no worker takes the work, more time does not help.
                let raise_in = if untaken.is_some() { Vec::new() } else { limit.raise_in.clone() };
                format!("{} reached {}", called(node), SetLimit { raise_in, ..limit })
            }
            None => format!("the deadline of `{}` has passed", node.id),
        },
        None => "its deadline has passed".to_owned(),
    };
    match untaken {
        Some(node) => {
            format!("no worker of the pool `{}` took {}: {said}", trace.pool_of(node), called(node))
        }
        None => said,
    }
}

/// The first context in the subtree of `at` that no worker ever claimed, if that wait explains why
/// the time of `whose` ran out at `by`. This requires that no worker runs a context in that
/// subtree, and that either no context under `whose` was ever claimed, or the wait took at least
/// half of the time. A step that is queued at the last moment of a graph did not use up its time.
fn untaken(trace: &Trace, at: ContextIndex, whose: ContextIndex, by: Timestamp) -> Option<&ContextNode> {
    let is_running = |node: &ContextNode| matches!(node.status, Status::Working(Phase::Running { .. }));
    if beneath(trace, at).any(is_running) {
        return None;
    }
    let is_untaken =
        |node: &&ContextNode| matches!(node.status, Status::Submitted { .. }) && node.attempts.is_empty();
    let found = beneath(trace, at).filter(is_untaken).min_by_key(|node| node.identity.started_at)?;
    let owner = trace.node(whose);
    // A timeout that starts with the first attempt does not include the wait before it.
    let time = by.millis_since(owner.identity.started_at).min(owner.terms.timeout_ms.unwrap_or(u64::MAX));
    let waited = by.millis_since(found.identity.started_at);
    let nobody_came = beneath(trace, whose).all(|node| node.attempts.is_empty());
    (nobody_came || waited.saturating_mul(2) >= time).then_some(found)
}

/// A context and its descendants.
fn beneath(trace: &Trace, top: ContextIndex) -> impl Iterator<Item = &ContextNode> {
    trace.subtree(top).into_iter().map(move |index| trace.node(index))
}

/// The timeout that set this deadline of a context.
fn timeout(trace: &Trace, node: &ContextNode, deadline: Timestamp) -> Option<SetLimit> {
    let settings = trace.settings();
    let name = "timeout_ms";
    let given = |millis: Option<u64>| millis.filter(|millis| *millis > 0);
    let (asked, own) = (given(node.spec.timeout_ms), node.terms.timeout_ms);
    let maximum = given(settings.maximum.timeout_ms).filter(|_| node.parent.is_none());
    let wall =
        asked.into_iter().chain(maximum).min().filter(|_| node.parent.is_none() || node.graph.is_some());
    match (wall, own) {
        // The timeout of the attempts is the earlier of the two, unless the time since the
        // admission is over.
        (Some(wall), own) if own.is_none() || node.identity.started_at.plus_millis(wall) <= deadline => {
            let set_in = if asked == Some(wall) { of_order(node) } else { Place::Maximum };
            Some(SetLimit::new(name, wall, set_in))
        }
        (_, Some(own)) => Some(match (asked == Some(own), own_profile(trace, node)) {
            (true, _) if node.parent.is_some() => SetLimit::new(name, own, of_order(node)),
            (_, Some(profile)) if profile.timeout_ms.map(no_bound).map(bound) == Some(own) => {
                SetLimit::new(name, own, Place::Profile(profile.agent_id.clone()))
            }
            (_, profile) => {
                let profile = profile.map(|profile| Place::Profile(profile.agent_id.clone()));
                let settings = of_settings(settings, name);
                let raise_in = [of_order(node)].into_iter().chain(profile).chain(settings.raise_in).collect();
                SetLimit { raise_in, value: own.to_string(), ..settings }
            }
        }),
        (_, None) => None,
    }
}

/// Why a context ended after it waited too long for a worker.
pub(super) fn queued_too_long(trace: &Trace, at: ContextIndex) -> String {
    let node = trace.node(at);
    let limit = match (node.limits.max_queue_ms, node.undo_queue_ms()) {
        (max, Some(own)) if no_bound(max) > own => timeout(trace, node, Timestamp::default()),
        (_, Some(_) | None) => None,
    };
    let limit = limit.unwrap_or_else(|| of_context(trace, at, "max_queue_ms"));
    format!("no worker of the pool `{}` took {} within {limit}", trace.pool_of(node), called(node))
}

/// The window of a context, in the units of the worker.
fn window(trace: &Trace, at: ContextIndex, max: u64) -> SetLimit {
    let name = "window_tokens";
    let is_it = |tokens: Option<domain::Tokens>| tokens.is_some_and(|tokens| tokens.count() == max);
    for (_, node) in trace.chain(at) {
        if node.parent.is_some_and(|parent| is_it(trace.node(parent).terms.window_tokens)) {
            continue;
        }
        if is_it(node.spec.window_tokens) {
            return SetLimit::new(name, max, of_order(node));
        }
        match own_profile(trace, node) {
            Some(profile) if is_it(profile.window_tokens) => {
                return SetLimit::new(name, max, Place::Profile(profile.agent_id.clone()));
            }
            Some(_) | None => break,
        }
    }
    // The window is the worker's own: that of the model, from the worker's settings.
    SetLimit::new(name, max, Place::Worker)
}

/// Where the ceiling of a context was set.
fn ceiling(trace: &Trace, context: &ContextNode, dimension: Dimension) -> SetLimit {
    let name = match dimension {
        Dimension::Cost => "max_cost_usd",
        Dimension::Tokens => "max_tokens",
    };
    let of = |amount: domain::Amount| match dimension {
        Dimension::Cost => amount.cost_usd.to_string(),
        Dimension::Tokens => amount.tokens.to_string(),
    };
    let asked = |usd: Option<domain::Usd>, tokens: Option<domain::Tokens>| match dimension {
        Dimension::Cost => usd.map(|usd| usd.to_string()),
        Dimension::Tokens => tokens.map(|tokens| tokens.to_string()),
    };
    let value = of(context.budget.ceilings.limit);
    let settings = trace.settings();
    let is_it = |other: Option<String>| other.as_ref() == Some(&value);
    let profile = own_profile(trace, context).filter(|_| context.graph.is_none());
    let of_profile = profile.filter(|profile| is_it(asked(profile.max_cost_usd, profile.max_tokens)));
    let set_in = match (context.parent, of_profile) {
        _ if is_it(asked(context.spec.max_cost_usd, context.spec.max_tokens)) => of_order(context),
        (_, Some(profile)) => Place::Profile(profile.agent_id.clone()),
        (None, None) if is_it(asked(settings.maximum.max_cost_usd, settings.maximum.max_tokens)) => {
            Place::Maximum
        }
        (None, None) if value == of(settings.root_budget) => {
            let is_default = settings.root_budget == Settings::default().root_budget;
            if is_default { Place::Default } else { Place::Coordinators }
        }
        (None, None) => Place::Raised,
        (Some(parent), None) => Place::Parent(trace.node(parent).id.clone()),
    };
    // A spec can't exceed its profile or the deployment.
    let is_bound = matches!(set_in, Place::Maximum | Place::Profile(_));
    let raise_in = vec![if is_bound { set_in.clone() } else { of_order(context) }];
    SetLimit { raise_in, ..SetLimit::new(name, value, set_in) }
}

/// Why an exhausted budget stops a context, and how to raise it.
pub(super) fn out_of_money(trace: &Trace, context: &ContextNode, dimension: Dimension) -> String {
    let limit = ceiling(trace, context, dimension);
    let SetLimit { name, value, set_in, .. } = &limit;
    let what = format!("{}: {name} = {value} ({set_in})", exhausted(&context.id, dimension));
    match context.terms.on_exhausted {
        OnExhausted::Pause => format!("{what}; {}", raise_now(trace, context, dimension)),
        OnExhausted::Abort => {
            format!(
                "{what}; {}, or set `on_exhausted: pause` and raise it while the context waits",
                limit.hint()
            )
        }
    }
}

/// The command that raises the budget of a waiting context.
fn raise_now(trace: &Trace, context: &ContextNode, dimension: Dimension) -> String {
    let option = match dimension {
        Dimension::Cost => "--max-cost-usd USD",
        Dimension::Tokens => "--max-tokens N",
    };
    format!("go on with `trellis budgets raise {}/{} {option}`", trace.id(), context.id)
}

/// The context, `at` or an ancestor, with the least left, and the dimension: cost or tokens,
/// whichever has the smaller fraction left.
fn tightest(trace: &Trace, at: ContextIndex) -> Option<(&ContextNode, Dimension)> {
    let all = || trace.chain_of_undo(at).map(|(_, node)| node);
    let cost = all().min_by_key(|node| node.budget.room(false).cost_usd)?;
    let tokens = all().min_by_key(|node| node.budget.room(false).tokens)?;
    let millionths = |left: u64, limit: u64| u128::from(left) * 1_000_000 / u128::from(limit).max(1);
    let (room, limit) = (cost.budget.room(false).cost_usd, cost.budget.ceilings.limit.cost_usd);
    let cost_left = millionths(room.nanos(), limit.nanos());
    let (room, limit) = (tokens.budget.room(false).tokens, tokens.budget.ceilings.limit.tokens);
    match millionths(room.count(), limit.count()) < cost_left {
        true => Some((tokens, Dimension::Tokens)),
        false => Some((cost, Dimension::Cost)),
    }
}

/// Why too little is left for the next call of a context, and how to raise it. It names the
/// ceiling, at `at` or an ancestor, with the least left.
pub(super) fn too_little_left(trace: &Trace, at: ContextIndex, status: Option<EndStatus>) -> String {
    let what = "its budget is too small for the next call";
    let Some((context, dimension)) = tightest(trace, at) else { return what.to_owned() };
    let limit = ceiling(trace, context, dimension);
    let SetLimit { name, value, set_in, .. } = &limit;
    let left = match dimension {
        Dimension::Cost => context.budget.room(false).cost_usd.to_string(),
        Dimension::Tokens => context.budget.room(false).tokens.to_string(),
    };
    let what = format!("{what}: `{}` has {left} left of {name} = {value} ({set_in})", context.id);
    match status {
        None => format!("{what}; {}", raise_now(trace, context, dimension)),
        Some(_) => format!("{what}; {}", limit.hint()),
    }
}
