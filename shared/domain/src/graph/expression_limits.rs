//! Limits on the names and the cost of an expression. Unknown names are rejected, and the names
//! that it reads are recorded. Its cost is bounded by its length and its depth. In a comprehension,
//! only the element itself may be read: reading anything else for each element would have unlimited
//! cost.
//! itself.

use std::collections::BTreeSet;

use cel::common::ast::{EntryExpr, Expr, IdedExpr, LiteralValue};

use crate::problem::{Problems, nearest};

/// The variables of an expression.
pub(super) const VARIABLES: [&str; 3] = ["outputs", "steps", "budget"];
/// An unoptimised build takes about 20 KiB of stack per level, and a thread has 2 MiB.
pub(super) const MAX_DEPTH: usize = 32;
/// The fields of `budget`.
const BUDGET: [&str; 6] =
    ["limit_usd", "spent_usd", "remaining_usd", "limit_tokens", "spent_tokens", "remaining_tokens"];
/// The fields of a step. [`STATUSES`] are the values of its `status`.
const STEP: [&str; 4] = ["status", "cost_usd", "tokens", "attempts"];
const STATUSES: [&str; 8] =
    ["pending", "running", "succeeded", "failed", "cancelled", "timed_out", "aborted", "skipped"];
/// `matches` is missing on purpose: a pattern is compiled at every evaluation, at unlimited cost.
const FUNCTIONS: [&str; 10] =
    ["size", "contains", "startsWith", "endsWith", "string", "int", "uint", "double", "bytes", "bool"];
/// Characters in the names of operators in the parsed tree, such as `_&&_`, `@in` or `!_`.
const OPERATOR_MARKS: [char; 5] = ['_', '@', '!', '-', '?'];
const INDEX: &str = "_[_]";

/// The keys and steps that an expression reads.
#[derive(Debug, Clone, Default)]
pub(super) struct Reads {
    pub(super) outputs: BTreeSet<String>,
    pub(super) steps: BTreeSet<String>,
}

/// Checks an expression and returns the names that it reads.
pub(super) fn check(expression: &IdedExpr, path: &str) -> Result<Reads, Problems> {
    let mut check = Check {
        path,
        problems: Problems::default(),
        reads: Reads::default(),
        in_comprehension: false,
        in_body: false,
    };
    check.walk(expression, &mut Vec::new(), 0);
    check.problems.or(check.reads)
}

/// Walks the tree once, rejects unknown names, and records the names that are read.
struct Check<'a> {
    path: &'a str,
    problems: Problems,
    reads: Reads,
    in_comprehension: bool,
    /// True in the body of a comprehension. Reading anything but the element there has unlimited
    /// cost.
    in_body: bool,
}

impl Check<'_> {
    /// Checks a node. `bound` are the variables of comprehensions; `depth` is the distance from the
    /// top.
    fn walk<'e>(&mut self, node: &'e IdedExpr, bound: &mut Vec<&'e str>, depth: usize) {
        if depth > MAX_DEPTH {
            self.refuse(&format!("it nests deeper than {MAX_DEPTH}"), None);
            return;
        }
        let below = depth + 1;
        match &node.expr {
            Expr::Ident(name) => self.bare(name, bound),
            Expr::Select(select) => {
                if self.is_step(&select.operand, bound) {
                    self.step_field(&select.field);
                }
                if let Expr::Ident(root) = &select.operand.expr
                    && is_ours(root, bound)
                {
                    self.member(root, &select.field);
                } else {
                    self.walk(&select.operand, bound, below);
                }
            }
            Expr::Call(call) if call.func_name == INDEX => match call.args.as_slice() {
                [
                    IdedExpr { expr: Expr::Ident(root), .. },
                    IdedExpr { expr: Expr::Literal(LiteralValue::String(key)), .. },
                ] if is_ours(root, bound) => self.member(root, key.inner()),
                args => args.iter().for_each(|arg| self.walk(arg, bound, below)),
            },
            Expr::Call(call) => {
                self.function(&call.func_name);
                self.compared(&call.func_name, &call.args, bound);
                call.target.iter().for_each(|target| self.walk(target, bound, below));
                call.args.iter().for_each(|arg| self.walk(arg, bound, below));
            }
            Expr::Comprehension(inner) => {
                if std::mem::replace(&mut self.in_comprehension, true) {
                    let hint = "don't nest all, exists, map and filter: that can take very long";
                    self.refuse("it has a comprehension inside a comprehension", Some(hint.into()));
                    return;
                }
                self.walk(&inner.iter_range, bound, below);
                let outside = bound.len();
                bound.extend([inner.iter_var.as_str(), inner.accu_var.as_str()]);
                bound.extend(inner.iter_var2.as_deref());
                self.in_body = true;
                for part in [&inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result] {
                    self.walk(part, bound, below);
                }
                bound.truncate(outside);
                self.in_comprehension = false;
                self.in_body = false;
            }
            Expr::List(list) => list.elements.iter().for_each(|e| self.walk(e, bound, below)),
            Expr::Map(map) => self.entries(map.entries.iter().map(|e| &e.expr), bound, below),
            Expr::Struct(object) => self.entries(object.entries.iter().map(|e| &e.expr), bound, below),
            Expr::Literal(_) | Expr::Unspecified => {}
        }
    }

    fn entries<'e>(
        &mut self,
        entries: impl Iterator<Item = &'e EntryExpr>,
        bound: &mut Vec<&'e str>,
        depth: usize,
    ) {
        for entry in entries {
            match entry {
                EntryExpr::StructField(field) => self.walk(&field.value, bound, depth),
                EntryExpr::MapEntry(pair) => {
                    self.walk(&pair.key, bound, depth);
                    self.walk(&pair.value, bound, depth);
                }
            }
        }
    }

    fn member(&mut self, root: &str, field: &str) {
        if self.in_body {
            let hint = "inside all, exists, map or filter only the element itself may be read";
            self.refuse(&format!("it reads `{root}` for every element of a list"), Some(hint.into()));
            return;
        }
        match root {
            "outputs" => drop(self.reads.outputs.insert(field.to_owned())),
            "steps" => drop(self.reads.steps.insert(field.to_owned())),
            _ if BUDGET.contains(&field) => {}
            _ => {
                let hint = match nearest(field, BUDGET) {
                    Some(meant) => format!("did you mean `budget.{meant}`?"),
                    None => format!("budget has {}", BUDGET.join(", ")),
                };
                self.refuse(&format!("`budget` has no field `{field}`"), Some(hint));
            }
        }
    }

    /// Returns true if a node is one step: `steps.review` or `steps["my-step"]`.
    fn is_step(&self, node: &IdedExpr, bound: &[&str]) -> bool {
        let root = match &node.expr {
            Expr::Select(select) => &select.operand.expr,
            Expr::Call(call) if call.func_name == INDEX && call.args.len() == 2 => &call.args[0].expr,
            Expr::Call(_)
            | Expr::Unspecified
            | Expr::Comprehension(_)
            | Expr::Ident(_)
            | Expr::List(_)
            | Expr::Literal(_)
            | Expr::Map(_)
            | Expr::Struct(_) => return false,
        };
        matches!(root, Expr::Ident(name) if name == "steps" && is_ours(name, bound))
    }

    fn step_field(&mut self, field: &str) {
        if !STEP.contains(&field) {
            let meant = nearest(field, STEP);
            let hint =
                meant.map_or(format!("a step has {}", STEP.join(", ")), |m| format!("did you mean `{m}`?"));
            self.refuse(&format!("a step has no field `{field}`"), Some(hint));
        }
    }

    /// Rejects the comparison of a status with an unknown status, which would always be false.
    fn compared(&mut self, function: &str, args: &[IdedExpr], bound: &[&str]) {
        let [left, right] = args else { return };
        if function != "_==_" && function != "_!=_" {
            return;
        }
        let is_status = |node: &IdedExpr| matches!(&node.expr, Expr::Select(s) if s.field == "status" && self.is_step(&s.operand, bound));
        for (status, word) in [(left, right), (right, left)] {
            if let Expr::Literal(LiteralValue::String(word)) = &word.expr
                && is_status(status)
                && !STATUSES.contains(&word.inner())
            {
                let word = word.inner().to_owned();
                let meant = if word == "completed" { Some("succeeded") } else { nearest(&word, STATUSES) };
                let hint = meant.map_or(format!("it is one of {}", STATUSES.join(", ")), |m| {
                    format!("did you mean `{m}`?")
                });
                self.refuse(&format!("no step ever has the status `{word}`"), Some(hint));
                return;
            }
        }
    }

    fn bare(&mut self, name: &str, bound: &[&str]) {
        if bound.contains(&name) {
            return;
        }
        if VARIABLES.contains(&name) {
            let hint = format!("name what it reads: `{name}.something` or `{name}[\"some-thing\"]`");
            self.refuse(&format!("it reads the whole of `{name}`"), Some(hint));
            return;
        }
        let hint = match nearest(name, VARIABLES) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("an expression may read {}", VARIABLES.join(", ")),
        };
        self.refuse(&format!("unknown variable `{name}`"), Some(hint));
    }

    fn function(&mut self, name: &str) {
        if !name.contains(OPERATOR_MARKS) && !FUNCTIONS.contains(&name) {
            let hint = nearest(name, FUNCTIONS).map(|meant| format!("did you mean `{meant}`?"));
            self.refuse(&format!("unknown function `{name}`"), hint);
        }
    }

    fn refuse(&mut self, message: &str, hint: Option<String>) {
        self.problems.add(self.path, message, hint);
    }
}

fn is_ours(name: &str, bound: &[&str]) -> bool {
    VARIABLES.contains(&name) && !bound.contains(&name)
}
