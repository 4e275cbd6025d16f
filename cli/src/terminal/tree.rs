//! A trace as a tree in text: status, cost, result and reason of each context.

use std::fmt::Write;

use domain::wire::{BudgetSnapshot, CheckCounts};
use serde_json::{Value, json};
use trace::{ContextNode, Now, Row, Trace, now_of_step, word_of_step};

use super::{
    colour,
    display::{cut, fit, flat, width},
    news, screen,
};

/// The characters of an answer or a reason that are shown on a line.
const SHOWN: usize = 70;

/// The tree, the reason of its end, and the values of the shared store, for the current stdout.
pub(crate) fn show(trace: &Trace) -> String {
    let columns = screen::columns_of_stdout();
    let mut text: String = lay_out(&lines(trace), columns).iter().map(|line| format!("{line}\n")).collect();
    if let Some(why) = trace.root().and_then(ContextNode::why) {
        line(&mut text, &format!("\n{why}"));
    }
    if !trace.outputs().is_empty() {
        text.push_str("\nvalues of the shared store at the end\n");
        let most = columns.unwrap_or(usize::MAX);
        for (key, value) in trace.outputs() {
            line(&mut text, &fit(&format!("  {key}: {}", cut(&flat(&value.to_text()), SHOWN + 30)), most));
        }
    }
    text
}

/// A line of the tree: a context, or a step without a context.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// The name, with the branches of the tree before it.
    name: String,
    pub(crate) word: String,
    money: String,
    rest: String,
    pub(crate) now: Now,
}

/// The tree alone, one line for each context.
pub(crate) fn lines(trace: &Trace) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(root) = trace.root() {
        branch(trace, root, "", "", &mut lines);
    }
    lines
}

/// The widths of name, status and money if nothing is cut.
const USUAL: [usize; 3] = [32, 14, 20];
/// The fewest columns of a name, and of a context's text.
const LEAST: usize = 8;

/// The lines as text, none wider than `columns`. Names and texts of contexts are cut. A status or
/// an amount that does not fit is left out whole.
pub(crate) fn lay_out(lines: &[Line], columns: Option<usize>) -> Vec<String> {
    let widest = |of: fn(&Line) -> &str| lines.iter().map(|line| width(of(line))).max().unwrap_or(0);
    let (names, words, amounts) =
        (widest(|line| &line.name), widest(|line| &line.word), widest(|line| &line.money));
    let [name, word, money] = USUAL;
    let Some(columns) = columns else {
        let usual = |line: &Line| {
            let words = [(&line.name, name), (&line.word, word), (&line.money, money)];
            let padded: String = words.iter().map(|(text, least)| format!("{text:<least$} ")).collect();
            format!("{padded}{}", line.rest).trim_end().to_owned()
        };
        return lines.iter().map(usual).collect();
    };
    let room = |taken: usize| columns.saturating_sub(taken);
    // The columns left for the name decide which other cells are shown.
    let (has_money, has_word) = (room(words + amounts + 2) >= LEAST, room(words + 1) >= LEAST);
    let taken = match (has_money, has_word) {
        (true, _) => words + amounts + 2,
        (false, true) => words + 1,
        (false, false) => 0,
    };
    let names = names.min(room(taken));
    let shown = |line: &Line| {
        let mut text = padded(&fit(&line.name, names), names);
        if has_word || has_money {
            text.push_str(&format!(" {}", colour::status(&padded(&line.word, words))));
        }
        if has_money {
            text.push_str(&format!(" {}", padded(&line.money, amounts)));
        }
        let left = room(names + taken + 1);
        if has_money && left >= LEAST {
            text.push_str(&format!(" {}", fit(&line.rest, left)));
        }
        text.trim_end().to_owned()
    };
    lines.iter().map(shown).collect()
}

fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// The amount spent, the limit, and the disputed amount.
pub(crate) fn money(budget: &BudgetSnapshot) -> String {
    let mut text = format!("{} of {}", budget.spent.cost_usd, budget.limit.cost_usd);
    if !budget.disputed.is_zero() {
        let _ = write!(text, " (and {} disputed)", budget.disputed.cost_usd);
    }
    text
}

/// The number of times that the checks of a context changed, denied or halted something; `None` if
/// they never did.
pub(crate) fn checks(node: &ContextNode) -> Option<String> {
    let CheckCounts { changed, denied, halted } = node.lifecycle.checks;
    let counts = [(changed, "changed"), (denied, "denied"), (halted, "halted")];
    let counts = counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
    let counts: Vec<String> = counts.collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

/// One line for a context, then its descendants.
fn branch(trace: &Trace, node: &ContextNode, stem: &str, fork: &str, lines: &mut Vec<Line>) {
    let taken = node.identity.taken.as_ref();
    let taken =
        taken.map_or_else(String::new, |from| format!("taken from {}/{}  ", from.trace_id, from.child_id));
    let uses = trace.used_as(node).map_or_else(String::new, |uses| format!("uses {uses}  "));
    let undoes =
        node.identity.undoes.map_or_else(String::new, |of| format!("undoes {}  ", trace.node(of).id));
    // A new attempt after waiting for a child, a human or a budget is not a retry.
    let tries = node.lifecycle.retried.saturating_add(1);
    let tries = if tries > 1 { format!("{tries} attempts  ") } else { String::new() };
    let messages = news::counts(node);
    let messages = if messages.is_empty() { messages } else { format!("{messages}  ") };
    let checks = checks(node).map_or_else(String::new, |checks| format!("checks: {checks}  "));
    let said = if fork.is_empty() { node.says() } else { node.says().or_else(|| node.why()) };
    let said = cut(&flat(&said.unwrap_or_default()), SHOWN);
    lines.push(Line {
        name: format!("{stem}{fork}{}", node.id),
        word: trace.word(node),
        money: money(&node.budget.snapshot()),
        rest: format!("{taken}{uses}{undoes}{tries}{messages}{checks}{said}"),
        now: node.now(),
    });
    let below = match fork {
        "" => String::new(),
        "└─ " => format!("{stem}   "),
        _ => format!("{stem}│  "),
    };
    let rows = trace.rows(node);
    for (number, row) in rows.iter().enumerate() {
        let fork = if number + 1 == rows.len() { "└─ " } else { "├─ " };
        match row {
            Row::Context(child) => branch(trace, child, &below, fork, lines),
            Row::Step(step) => lines.push(Line {
                name: format!("{below}{fork}{}", step.id),
                word: word_of_step(step),
                money: String::new(),
                rest: cut(&flat(step.reason.as_deref().unwrap_or_default()), 2 * SHOWN),
                now: now_of_step(step),
            }),
        }
    }
}

fn line(text: &mut String, what: &str) {
    writeln!(text, "{}", what.trim_end()).expect("writing to a string never fails");
}

/// The outcome and the snapshots of all contexts.
pub(crate) fn as_json(trace: &Trace) -> Value {
    let contexts: Vec<_> = trace.contexts().iter().map(|node| trace.snapshot(node)).collect();
    let outcome = trace.root().and_then(|root| trace.outcome(&root.id));
    json!({"outcome": outcome, "contexts": contexts})
}
