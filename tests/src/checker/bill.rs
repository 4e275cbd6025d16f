//! b5: compares the books of a run with the bill of its provider, which is kept independently.

use domain::Usd;
use trace::Trace;

/// The mistakes in the books of a run, given its bill, its cap and its charges. The bill must be
/// within the cap. It must equal the books if the end of every call is known, and must not exceed
/// them if some calls are estimated. Charges from outside stay within the cap too, because the rest
/// is disputed (B18).
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

/// The mistakes in the books of a run, given only its cap.
pub fn within(trace: &Trace, cap: Usd) -> Vec<String> {
    let spent = trace.root().map_or(Usd::ZERO, |root| root.budget.spent.cost_usd);
    if spent > cap { vec![format!("b1: spent {spent} of {cap}")] } else { Vec::new() }
}
