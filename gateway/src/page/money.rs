//! The bar of a budget, the same on every page: the amounts that are spent, estimated, held,
//! granted, reserved and free.

use domain::{
    ChildId, TraceId, Usd,
    wire::{BudgetSnapshot, RunSummary},
};
use maud::{Markup, html};
use trace::ContextNode;

/// The width of a bar, in its own units.
const WIDTH: u64 = 1000;

/// A budget with the amounts that a bar shows.
#[derive(Debug)]
pub(super) struct ShownBudget<'a> {
    budget: &'a BudgetSnapshot,
    /// Granted to children and not spent yet; included in the held amount.
    granted: Usd,
    /// Reserved for undos; also included in the held amount.
    for_undos: Usd,
    /// The word for the rest of the held amount.
    held_word: &'static str,
    is_live: bool,
}

/// The address of the money view of a context.
pub(super) fn href(trace: TraceId, child: &ChildId) -> String {
    format!("runs/{trace}/money?of={child}")
}

/// The parts of a bar, in its units.
struct Parts {
    spent: u64,
    estimated: u64,
    held: u64,
    granted: u64,
    reserve: u64,
}

impl<'a> ShownBudget<'a> {
    pub(super) fn of(node: &ContextNode, budget: &'a BudgetSnapshot) -> Self {
        let (carved, for_undos) = (node.budget.carved, node.budget.reserved.cost_usd);
        let granted = carved.saturating_sub(node.budget.reserved).cost_usd;
        ShownBudget { budget, granted, for_undos, held_word: "held", is_live: node.is_live() }
    }

    /// The list of runs does not report grants, so held and granted money are one amount.
    pub(super) fn of_run(run: &'a RunSummary) -> Self {
        let (granted, held_word) = (Usd::ZERO, "held or granted");
        ShownBudget {
            budget: &run.budget,
            granted,
            for_undos: granted,
            held_word,
            is_live: run.ended_at.is_none(),
        }
    }

    /// The money that is held for calls; the money that is granted or reserved for undos.
    fn held(&self) -> (Usd, Usd) {
        let held = self.budget.held.cost_usd.nanos();
        let others = self.granted.nanos().saturating_add(self.for_undos.nanos()).min(held);
        (Usd::from_nanos(held - others), Usd::from_nanos(others))
    }

    fn parts(&self) -> Parts {
        let budget = self.budget;
        let limit = budget.limit.cost_usd.nanos().max(budget.spent.cost_usd.nanos()).max(1);
        let of = |usd: Usd| {
            let part = u128::from(usd.nanos()) * u128::from(WIDTH) / u128::from(limit);
            u64::try_from(part).unwrap_or(WIDTH).min(WIDTH)
        };
        let (held, granted) = self.held();
        let spent = of(budget.spent.cost_usd);
        let held = of(held).min(WIDTH - spent);
        let granted = of(granted).min(WIDTH - spent - held);
        let reserve = if self.is_live { of(budget.closing_reserve_usd) } else { 0 };
        let reserve = reserve.min(WIDTH - spent - held - granted);
        Parts { spent, estimated: of(budget.estimated.cost_usd).min(spent), held, granted, reserve }
    }

    /// The amounts as a sentence.
    pub(super) fn told(&self) -> String {
        let (budget, (held, _)) = (self.budget, self.held());
        let mut told = format!("{} spent", budget.spent.cost_usd);
        if budget.estimated.cost_usd > Usd::ZERO {
            told.push_str(&format!(" ({} estimated)", budget.estimated.cost_usd));
        }
        let parts =
            [(held, self.held_word), (self.granted, "granted"), (self.for_undos, "reserved for undos")];
        for (amount, word) in parts {
            if amount > Usd::ZERO {
                told.push_str(&format!(" · {amount} {word}"));
            }
        }
        match self.is_live {
            true => {
                told.push_str(&format!(" · {} free of {}", budget.remaining.cost_usd, budget.limit.cost_usd));
                let kept = budget.closing_reserve_usd.min(budget.remaining.cost_usd);
                if kept > Usd::ZERO {
                    told.push_str(&format!(", {kept} of it reserved for a last report"));
                }
            }
            false => told.push_str(&format!(" of {}", budget.limit.cost_usd)),
        }
        if budget.disputed.cost_usd > Usd::ZERO {
            told.push_str(&format!(" · {} disputed", budget.disputed.cost_usd));
        }
        told
    }

    /// The bar as a link to the money view of its context.
    pub(super) fn link(&self, trace: TraceId, child: &ChildId) -> Markup {
        html! { a href=(href(trace, child)) { (self.bar()) } }
    }

    pub(super) fn bar(&self) -> Markup {
        let Parts { spent, estimated, held, granted, reserve } = self.parts();
        let part = |class: &str, from: u64, width: u64| {
            html! { @if width > 0 { rect class=(class) x=(from) width=(width) y="0" height="10" {} } }
        };
        html! {
            svg class="bar" viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" role="img" aria-label=(self.told()) {
                title { (self.told()) }
                rect class="free" x="0" y="0" width=(WIDTH) height="10" {}
                (part("spent", 0, spent - estimated))
                @if estimated > 0 { line class="estimated" x1=(spent - estimated) x2=(spent) y1="5" y2="5" {} }
                (part("held", spent, held))
                (part("granted", spent + held, granted))
                (part("reserve", WIDTH - reserve, reserve))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{Amount, Tokens, wire::Funding};

    use super::*;

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

    fn shown(budget: &BudgetSnapshot, granted: Usd, is_live: bool) -> ShownBudget<'_> {
        ShownBudget { budget, granted, for_undos: Usd::from_cents(2), held_word: "held", is_live }
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
            for granted in [0, 5, 500].map(Usd::from_cents) {
                let parts = shown(&budget(cents), granted, true).parts();
                let all = parts.spent + parts.held + parts.granted + parts.reserve;
                assert!(all <= WIDTH, "{cents:?}");
                assert!(parts.estimated <= parts.spent, "{cents:?}");
            }
        }
        let budget = budget([100, 42, 10, 11, 5]);
        let told = |granted, is_live| shown(&budget, granted, is_live).told();
        assert_eq!(
            told(Usd::from_cents(4), true),
            "$0.42 spent ($0.10 estimated) · $0.05 held · $0.04 granted · $0.02 reserved for undos · $0.47 free of $1.00, $0.05 of it reserved for a last report"
        );
        assert_eq!(
            told(Usd::ZERO, false),
            "$0.42 spent ($0.10 estimated) · $0.09 held · $0.02 reserved for undos of $1.00"
        );
    }
}
