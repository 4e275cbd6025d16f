//! The money bar, the same everywhere: spent, the estimated part of it, held, the reserve, and what is free.

use maud::{Markup, html};
use shared::{Usd, wire::BudgetSnapshot};

/// The width of a bar in its own units.
const WIDTH: u64 = 1000;

/// What a bar shows.
struct Parts {
    spent: u64,
    estimated: u64,
    held: u64,
    reserve: u64,
}

fn parts(budget: &BudgetSnapshot) -> Parts {
    let limit = budget.limit.cost_usd.nanos().max(budget.spent.cost_usd.nanos()).max(1);
    let of = |usd: Usd| {
        let part = u128::from(usd.nanos()) * u128::from(WIDTH) / u128::from(limit);
        u64::try_from(part).unwrap_or(WIDTH).min(WIDTH)
    };
    let spent = of(budget.spent.cost_usd);
    let held = of(budget.held.cost_usd).min(WIDTH - spent);
    let reserve = of(budget.closing_reserve_usd).min(WIDTH - spent - held);
    Parts { spent, estimated: of(budget.estimated.cost_usd).min(spent), held, reserve }
}

/// The amounts in a sentence.
pub(super) fn told(budget: &BudgetSnapshot) -> String {
    let mut told = format!("{} spent", budget.spent.cost_usd);
    if budget.estimated.cost_usd > Usd::ZERO {
        told.push_str(&format!(" ({} estimated)", budget.estimated.cost_usd));
    }
    if budget.held.cost_usd > Usd::ZERO {
        told.push_str(&format!(" · {} held", budget.held.cost_usd));
    }
    told.push_str(&format!(" · {} free of {}", budget.remaining.cost_usd, budget.limit.cost_usd));
    if budget.disputed.cost_usd > Usd::ZERO {
        told.push_str(&format!(" · {} disputed", budget.disputed.cost_usd));
    }
    told
}

pub(super) fn bar(budget: &BudgetSnapshot) -> Markup {
    let Parts { spent, estimated, held, reserve } = parts(budget);
    let part = |class: &str, from: u64, width: u64| {
        html! { @if width > 0 { rect class=(class) x=(from) width=(width) y="0" height="10" {} } }
    };
    html! {
        svg class="bar" viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" role="img" aria-label=(told(budget)) {
            title { (told(budget)) }
            rect class="free" x="0" y="0" width=(WIDTH) height="10" {}
            (part("spent", 0, spent - estimated))
            (part("estimated", spent - estimated, estimated))
            (part("held", spent, held))
            (part("reserve", WIDTH - reserve, reserve))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::{Amount, Tokens, wire::Funding};

    fn budget(cents: [u64; 5]) -> BudgetSnapshot {
        let [limit, spent, estimated, held, reserve] = cents.map(Usd::from_cents);
        let amount = |usd| Amount::new(usd, Tokens::new(0));
        let left = limit.nanos().saturating_sub(spent.nanos()).saturating_sub(held.nanos());
        BudgetSnapshot {
            limit: amount(limit),
            spent: amount(spent),
            held: amount(held),
            remaining: amount(Usd::from_nanos(left)),
            own: amount(spent),
            estimated: amount(estimated),
            disputed: Amount::ZERO,
            overspent: Amount::ZERO,
            closing_reserve_usd: reserve,
            funding: Funding::Shared,
        }
    }

    #[test]
    fn the_parts_of_a_bar_never_overlap_and_never_leave_it() {
        for cents in [
            [100, 42, 10, 11, 5],
            [100, 0, 0, 0, 0],
            [0, 0, 0, 0, 0],
            [100, 250, 250, 10, 5],
            [1, 1, 0, 1, 1],
        ] {
            let parts = parts(&budget(cents));
            assert!(parts.spent + parts.held + parts.reserve <= WIDTH, "{cents:?}");
            assert!(parts.estimated <= parts.spent, "{cents:?}");
        }
        assert_eq!(
            told(&budget([100, 42, 10, 11, 5])),
            "$0.42 spent ($0.10 estimated) · $0.11 held · $0.47 free of $1.00"
        );
    }
}
