//! b5: the books of a run against the bill of its provider, which does not know them.

use domain::Usd;
use trace::Trace;

/// What is wrong with the books of a run that was billed this much, under this cap: the bill is within the cap, and in the
/// books to the cent where the end of every call is known, and not above them where some are estimated. What was charged from
/// outside stays within the cap too: the rest is disputed (B18).
pub fn against_bill(trace: &Trace, billed: Usd, cap: Usd, charged: Usd) -> Vec<String> {
    let Some(root) = trace.root() else { return vec!["it has no root".into()] };
    let (spent, estimated) = (root.budget.spent.cost_usd, root.budget.estimated.cost_usd);
    let disputed = root.budget.disputed.cost_usd;
    let mut wrong = within(trace, cap);
    if billed > cap {
        wrong.push(format!("b5: billed {billed} of {cap}"));
    }
    let certain = spent.nanos().saturating_sub(estimated.nanos() + charged.nanos());
    if billed.nanos() > spent.nanos() + disputed.nanos() || billed.nanos() < certain {
        let books =
            format!("the books have {spent}, of which {estimated} are estimated; disputed {disputed}");
        wrong.push(format!("b5: billed {billed}, and {books}"));
    }
    wrong
}

/// Whether its books are within its cap.
pub fn within(trace: &Trace, cap: Usd) -> Vec<String> {
    let spent = trace.root().map_or(Usd::ZERO, |root| root.budget.spent.cost_usd);
    if spent > cap { vec![format!("b1: spent {spent} of {cap}")] } else { Vec::new() }
}
