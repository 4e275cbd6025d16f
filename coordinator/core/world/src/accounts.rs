//! Plays the commands of a trace and audits the resulting log. For every sequence of commands the
//! receipt's sums agree at every level, the times of a context add up, and the audit has no
//! findings.

use domain::{Amount, Timestamp, TraceId};
use trace::{
    Order, Trace,
    account::{Audit, ContextAccount, Journals, Ledger, LogMessage, ReadLog, Receipt, StoreState},
    logged,
};

/// The log of these commands, in the form of the bus, and the trace after them.
pub fn log(id: TraceId, orders: &[(Timestamp, Order)]) -> (Trace, Vec<LogMessage>) {
    let (mut trace, mut messages) = (Trace::new(id), Vec::new());
    for (now, order) in orders {
        let Ok(events) = trace.handle(order.clone(), *now) else { continue };
        if events.is_empty() {
            continue;
        }
        for logged in logged(&mut trace, events, *now) {
            let made = logged.commit().made.millis();
            let id = Some(format!("{id}.{}-{made}.event", logged.version));
            let sequence = messages.len() as u64 + 1;
            messages.push(LogMessage { sequence, id, stored_at: now.plus_millis(1), logged });
        }
    }
    (trace.without_renewals(), messages)
}

/// The state of a trace in its store.
pub fn stored(trace: &Trace) -> Option<StoreState> {
    let spent = trace.root()?.budget.spent;
    Some(StoreState { version: trace.version(), digest: trace.digest(), spent })
}

/// B19: the books of these commands are sound.
pub fn check(id: TraceId, orders: &[(Timestamp, Order)]) -> Result<(), String> {
    let (trace, messages) = log(id, orders);
    let Some(root) = trace.root() else { return Ok(()) };
    let read = ReadLog::new(id, messages);
    let (ledger, journals) = (Ledger::of(&read), Journals::default());
    let audit = Audit::of(&read, &ledger, &journals, stored(&trace).as_ref());
    ensure(audit.is_sound(), || format!("B19: the audit finds {:#?}", audit.findings))?;
    let receipt = Receipt::of(&read, &ledger, &journals).ok_or("B19: there is no receipt")?;
    ensure(receipt.total == root.budget.spent, || format!("B19: the total is {}", receipt.total))?;
    check_sums(&receipt)?;
    for account in &receipt.contexts {
        let node = trace.context(&account.child_id).ok_or("B19: an account without a context")?;
        let told = (account.own, account.spent);
        ensure(told == (node.budget.own, node.budget.spent), || format!("B19: {account:?}"))?;
        let end = node.end().map(|end| end.at.millis_since(node.identity.started_at));
        let total = account.wait.total_ms();
        ensure(end.is_none_or(|lived| lived == total), || {
            format!("B19: {end:?} are {total} ms of {account:?}")
        })?;
    }
    Ok(())
}

/// Checks that the lines, the models and the contexts of a receipt have the same sum, and that the
/// sums agree at every level of the tree.
pub fn check_sums(receipt: &Receipt) -> Result<(), String> {
    let plus = |sum: Amount, more: Amount| sum.checked_add(more).expect("a sum");
    let models = receipt.models.iter().map(|of| of.cost).chain(receipt.other.iter().map(|of| of.cost));
    let models = models.fold(Amount::ZERO, plus);
    ensure(models == receipt.total, || format!("B19: the models cost {models}, and all {}", receipt.total))?;
    let costs = || receipt.lines.iter().filter_map(|line| line.cost.as_ref());
    let booked = costs().map(|cost| cost.booked).fold(Amount::ZERO, plus);
    let taken = costs().map(|cost| cost.before).fold(Amount::ZERO, plus);
    let lines = booked.checked_sub(taken);
    ensure(lines == Some(receipt.total), || {
        format!("B19: the lines are {lines:?}, and all {}", receipt.total)
    })?;
    for account in &receipt.contexts {
        let is_child = |other: &&ContextAccount| {
            other.path.len() == account.path.len() + 1 && other.path.starts_with(&account.path)
        };
        let children =
            receipt.contexts.iter().filter(is_child).map(|child| child.spent).fold(Amount::ZERO, plus);
        let sums = (children, plus(account.own, children));
        ensure(sums == (account.children, account.spent), || {
            format!("B19: {account:?} has children {children}")
        })?;
    }
    Ok(())
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
