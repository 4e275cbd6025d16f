//! The money view of a run: the agents that have spent it, that hold it, and that may still spend
//! it. Each context is a bar, nested below its parent. Its width is the amount that it takes from
//! its parent's budget: spent and held. A slider shows the view after an earlier event.

use domain::{ChildId, Usd, subject::Filter, wire::Spender, wording::count};
use maud::{Markup, html};
use text::human_time;
use trace::{ContextNode, Replay, Trace};

use super::{answer, live, run, shell::Here};
use crate::{blocking::blocking, call::Call, problem::ApiResult, routes::context};

/// The height of a bar, and of its row.
const BAR: usize = 30;
const ROW: usize = 34;
/// The whole width: thousandths of a percent.
const WIDTH: u64 = 100_000;
/// Narrower bars are drawn as one.
const NARROWEST: u64 = WIDTH / 250;
/// The most bars, rows of bars, and rows of the table.
const MOST_BARS: usize = 300;
const MOST_ROWS: usize = 12;
const LISTED: usize = 50;
/// A bar this wide has room for a name.
const NAMED: u64 = WIDTH / 16;

pub(super) async fn show(call: Call) -> ApiResult {
    let of = call.one::<ChildId>("of")?;
    let at = call.number("at")?;
    let run = call.watched.run(call.part("trace")?).await?;
    let (then, last) = match at {
        None => (None, run.look(|state| state.trace().version()).await?),
        Some(at) => {
            let (trace, last) = earlier(&call, at).await?;
            (Some(trace), last)
        }
    };
    let page = move |trace: &Trace| {
        let root = client::root(trace)?;
        let path = format!("runs/{}/money", trace.id());
        let live = (root.is_live() && at.is_none())
            .then(|| format!("{path}/live{}", of.as_ref().map_or(String::new(), |of| format!("?of={of}"))));
        let body = html! {
            (run::head_at(trace, root, at.map(|_| trace.made())))
            (run::views(trace, run::View::Money))
            form class="slider" method="get" action=(path) data-slide {
                @if let Some(of) = &of { input type="hidden" name="of" value=(of.as_str()); }
                label for="at" { "Back in time, by event" }
                input type="range" id="at" name="at" min="1" max=(last) value=(trace.version());
                output for="at" { (trace.version()) " of " (last) }
                button type="submit" { "Show" }
                a href=(path) { "Now" }
            }
            p id="as-of" class="hint" role="status" {
                @if at.is_some() {
                    "The state after event " (trace.version()) ", " (human_time::lasts(trace.made().millis_since(root.identity.started_at))) " after the start (" (trace.made()) ")."
                }
            }
            div id="part" data-live=[live] { (part(trace, of.as_ref())?) }
        };
        answer::page(&call, &run::title(root), Here::Runs, &body)
    };
    match then {
        Some(then) => blocking(move || page(&then)).await?,
        None => run.show(page).await,
    }
}

/// The run as it was after event `at`, and the number of its events.
async fn earlier(call: &Call, at: u64) -> ApiResult<(Trace, u64)> {
    let trace_id = call.part("trace")?;
    let stored = call.client.bus().read(&Filter::EventsOf(trace_id)).await?;
    let replayed = blocking(move || {
        let log = stored.iter().map(|stored| client::logged(&stored.payload)).collect::<Result<_, _>>()?;
        Ok(Replay::until(trace_id, log, at))
    });
    replayed.await?
}

pub(super) async fn live(call: Call) -> ApiResult {
    let of = call.one("of")?;
    live::part(call, move |state| part(state.trace(), of.as_ref()).ok()).await
}

fn part(trace: &Trace, of: Option<&ChildId>) -> ApiResult<Markup> {
    let root = client::root(trace)?;
    let node = match of {
        Some(child) => context(trace, child)?,
        None => root,
    };
    let path = format!("runs/{}/money", trace.id());
    Ok(html! {
        @if node.parent.is_some() {
            p { a href=(path) { "The whole run" } " › " a href={ "runs/" (trace.id()) "/contexts/" (node.id) } { (node.id) } }
        }
        (picture(trace, node))
        (table(trace))
        (spenders(trace))
    })
}

/// The amount that a context takes from its parent's budget: its spent money, and its hold there.
fn share(node: &ContextNode) -> u64 {
    let hold = node.budget.parent_hold(node.is_live());
    node.budget.spent.cost_usd.nanos().saturating_add(hold.cost_usd.nanos())
}

/// The amounts of a context without its children: spent, and held for calls in flight.
fn own(trace: &Trace, node: &ContextNode) -> (Usd, Usd) {
    let children = node.children.iter().map(|child| trace.node(*child));
    let theirs: u64 = children.map(|child| child.budget.parent_hold(child.is_live()).cost_usd.nanos()).sum();
    let held = node.budget.held.cost_usd.nanos();
    let own = held.saturating_sub(theirs).saturating_sub(node.budget.reserved.cost_usd.nanos());
    (node.budget.own.cost_usd, Usd::from_nanos(own))
}

/// A bar of the picture.
struct Bar<'a> {
    from: u64,
    width: u64,
    row: usize,
    of: Drawn<'a>,
}

enum Drawn<'a> {
    Context(&'a ContextNode),
    /// The context itself, without its children: spent and held.
    Own(&'a ContextNode, Usd, Usd),
    /// Contexts whose bars are too narrow: their number and sum.
    Many(usize, u64),
}

/// The width of an amount, if `whole` is the whole width.
fn part_of(nanos: u64, whole: u64) -> u64 {
    let part = u128::from(nanos) * u128::from(WIDTH) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(WIDTH).min(WIDTH)
}

fn bars<'a>(
    trace: &'a Trace,
    node: &'a ContextNode,
    from: u64,
    whole: u64,
    row: usize,
    into: &mut Vec<Bar<'a>>,
) {
    let width = part_of(share(node), whole);
    into.push(Bar { from, width, row, of: Drawn::Context(node) });
    if row + 1 >= MOST_ROWS || node.children.is_empty() {
        return;
    }
    let (mut at, mut narrow) = (from, (0, 0));
    for child in node.children.iter().map(|child| trace.node(*child)) {
        let width = part_of(share(child), whole);
        if width < NARROWEST || into.len() >= MOST_BARS {
            narrow = (narrow.0 + 1, narrow.1 + share(child));
            continue;
        }
        bars(trace, child, at, whole, row + 1, into);
        at += width;
    }
    if narrow.1 > 0 {
        let width = part_of(narrow.1, whole);
        into.push(Bar { from: at, width, row: row + 1, of: Drawn::Many(narrow.0, narrow.1) });
        at += width;
    }
    let (spent, held) = own(trace, node);
    let width = part_of(spent.nanos() + held.nanos(), whole);
    if width > 0 {
        into.push(Bar { from: at, width, row: row + 1, of: Drawn::Own(node, spent, held) });
    }
}

fn picture(trace: &Trace, node: &ContextNode) -> Markup {
    let limit = node.budget.ceilings.limit.cost_usd.nanos();
    let taken = share(node).max(node.budget.spent.cost_usd.nanos() + node.budget.held.cost_usd.nanos());
    // If less than a fifth is taken, the width shows only the taken part, so that it stays visible.
    let whole = if taken.saturating_mul(5) >= limit || taken == 0 { limit.max(taken) } else { taken };
    let mut drawn = Vec::new();
    bars(trace, node, 0, whole, 0, &mut drawn);
    let height = drawn.iter().map(|bar| bar.row + 1).max().unwrap_or(1) * ROW;
    html! {
        p class="hint" {
            "The whole width is " (Usd::from_nanos(whole))
            @if whole == limit { ", the ceiling of " (node.id) "." } @else { ", the spent and held part of " (Usd::from_nanos(limit)) "." }
            " The width of a bar is its agent's share of the bar above: its spent and held money."
        }
        svg class="books" width="100%" height=(height) role="group" aria-label="Money by agent" {
            @for bar in &drawn { (one(trace, bar)) }
        }
        p class="legend" {
            @for (class, word) in [("spent", "spent"), ("estimated", "of it estimated"), ("held", "held for calls"), ("carved", "granted, not spent"), ("many", "smaller agents")] {
                span { svg class="key books" viewBox="0 0 10 10" aria-hidden="true" { rect class=(class) width="10" height="10" {} } " " (word) }
            }
        }
    }
}

fn percent(width: u64) -> String {
    format!("{}.{:03}%", width / 1000, width % 1000)
}

fn one(trace: &Trace, bar: &Bar<'_>) -> Markup {
    let Bar { from, width, row, of } = bar;
    let inner = |share: u64, parts: &[(&str, u64)]| {
        let places = parts.iter().scan(0, |taken, (class, nanos)| {
            let from = part_of(*taken, share);
            *taken += nanos;
            Some((*class, from, part_of(*taken, share) - from))
        });
        html! {
            rect class="whole" width="100%" height=(BAR) {}
            @for (class, from, width) in places.filter(|(_, _, width)| *width > 0) {
                rect class=(class) x=(percent(from)) width=(percent(width)) height=(BAR) {}
            }
        }
    };
    let (told, href, name, parts) = match of {
        Drawn::Context(node) => {
            let budget = &node.budget;
            let (spent, estimated) = (budget.spent.cost_usd.nanos(), budget.estimated.cost_usd.nanos());
            let (held, carved) = (budget.held.cost_usd.nanos(), budget.carved.cost_usd.nanos());
            let rest = share(node).saturating_sub(spent).saturating_sub(held);
            let parts = [
                ("spent", spent.saturating_sub(estimated)),
                ("estimated", estimated.min(spent)),
                ("held", held.saturating_sub(carved)),
                ("carved", carved + rest),
            ];
            let told =
                format!("{}: {}", node.id, super::money::ShownBudget::of(node, &budget.snapshot()).told());
            let href = match node.children.is_empty() {
                true => format!("runs/{}/contexts/{}", trace.id(), node.id),
                false => format!("runs/{}/money?of={}", trace.id(), node.id),
            };
            (told, Some(href), node.id.to_string(), inner(share(node), &parts))
        }
        Drawn::Own(node, spent, held) => {
            let told = format!("{} itself: {spent} spent, {held} held", node.id);
            let href = format!("runs/{}/contexts/{}", trace.id(), node.id);
            let parts = [("spent", spent.nanos()), ("held", held.nanos())];
            (told, Some(href), "itself".to_owned(), inner(spent.nanos() + held.nanos(), &parts))
        }
        Drawn::Many(number, nanos) => {
            let told = format!("{} with {} together", count(*number, "agent"), Usd::from_nanos(*nanos));
            (told, None, count(*number, "agent"), inner(*nanos, &[("many", *nanos)]))
        }
    };
    let content = html! {
        svg x=(percent(*from)) y=(row * ROW) width=(percent(*width)) height=(BAR) {
            title { (told) }
            (parts)
            @if *width >= NAMED { text x="6" y="20" { (name) } }
        }
    };
    html! {
        @match href {
            Some(href) => a href=(href) aria-label=(told) { (content) },
            None => (content),
        }
    }
}

/// The contexts that took most, and the money that they may still spend.
fn table(trace: &Trace) -> Markup {
    let mut rows: Vec<(&ContextNode, Usd, Usd)> = trace
        .contexts()
        .iter()
        .map(|node| {
            let (spent, held) = own(trace, node);
            (node, spent, held)
        })
        .collect();
    rows.sort_by_key(|(node, spent, held)| {
        (std::cmp::Reverse(spent.nanos() + held.nanos()), node.identity.depth)
    });
    let more = rows.len().saturating_sub(LISTED);
    html! {
        table class="list" {
            caption class="unseen" { "Spent and held money by agent" }
            thead { tr { @for name in ["Agent", "Spent by itself", "Held for its calls", "With descendants", "Ceiling", "Could still spend"] { th scope="col" { (name) } } } }
            tbody {
                @for (node, spent, held) in rows.iter().take(LISTED) {
                    tr {
                        th scope="row" { a href={ "runs/" (trace.id()) "/contexts/" (node.id) } { (node.id) } }
                        td data-name="Spent by itself" { (spent) }
                        td data-name="Held for its calls" { (held) }
                        td data-name="With descendants" {
                            (node.budget.spent.cost_usd)
                            @if node.budget.estimated.cost_usd > Usd::ZERO { span class="of" { " (" (node.budget.estimated.cost_usd) " estimated)" } }
                        }
                        td data-name="Ceiling" {
                            (node.budget.ceilings.limit.cost_usd)
                            @if node.parent.is_some() { span class="of" { @if node.budget.ceilings.granted.cost { " granted" } @else { " shared" } } }
                        }
                        td data-name="Could still spend" { @if node.is_live() { (trace.left(node).cost_usd) } @else { "nothing: it has ended" } }
                    }
                }
            }
        }
        @if more > 0 { p class="hint" { "And " (count(more, "agent")) " with smaller amounts." } }
    }
}

/// The spending by agent and model.
fn spenders(trace: &Trace) -> Markup {
    let mut spent = trace.spent_by();
    spent.sort_by_key(|spender| (spender.others, std::cmp::Reverse(spender.cost_usd.nanos())));
    html! {
        @if !spent.is_empty() {
            h2 { "By agent and model" }
            table class="list" {
                thead { tr { @for name in ["Agent", "Model", "Spent"] { th scope="col" { (name) } } } }
                tbody {
                    @for Spender { agent_id, model, others, cost_usd } in &spent {
                        tr {
                            th scope="row" { @match agent_id { Some(agent) => (agent), None if *others => "others", None => "no agent" } }
                            td data-name="Model" { @match model { Some(model) => (model), None => "none, or unknown" } }
                            td data-name="Spent" { (cost_usd) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_share_of_the_width_and_never_more() {
        assert_eq!(part_of(1, 4), WIDTH / 4);
        assert_eq!((part_of(0, 0), part_of(5, 0), part_of(u64::MAX, 1)), (0, WIDTH, WIDTH));
        assert_eq!([0, 1, 12_345, WIDTH].map(percent), ["0.000%", "0.001%", "12.345%", "100.000%"]);
    }
}
