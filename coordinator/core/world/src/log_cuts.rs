//! Cuts the event log of a trace inside each of its commits, and rebuilds the trace from the rest.
//! The trace must be in its state before the commit, continue to the same end, and be rebuilt again
//! from the log that contains both. It also drops the beginning of the log, before a copy.

use domain::{
    Timestamp, TraceId,
    wire::{Delete, Referrers},
};
use serde_json::Value;
use trace::{Command, ContextNode, LoggedEvents, Order, Replay, Rest, Trace, logged};

/// Longer lists of commands are not cut, because each cut plays the rest of them again.
const MOST_COMMANDS: usize = 60;

/// The most places at which one commit is cut; a graph may start hundreds of contexts at once.
const MOST_CUTS: usize = 8;

type Orders = [(Timestamp, Order)];

/// One commit that has several messages.
struct Cut<'a> {
    before: &'a Trace,
    /// The messages of all commits before it.
    earlier: &'a [LoggedEvents],
    messages: &'a [LoggedEvents],
    /// The command of this commit, and all later commands.
    rest: &'a Orders,
}

/// t9, for a log that ends anywhere.
pub fn check(id: TraceId, orders: &Orders) -> Result<(), String> {
    if orders.len() > MOST_COMMANDS {
        return Ok(());
    }
    cut_each(id, orders, 0, usize::MAX)?;
    let step = orders.len() / MOST_CUTS + 1;
    (1..=orders.len()).step_by(step).try_for_each(|number| check_copied(id, orders, number))
}

/// t9, for a log that has lost its beginning: the trace is copied after `number` commands, and
/// everything before the copy is dropped.
pub fn check_copied(id: TraceId, orders: &Orders, number: usize) -> Result<(), String> {
    let mut trace = Trace::new(id);
    let dropped = play(&mut trace, &orders[..number])?;
    let before = content(&trace);
    let copy = Command::Copy { after_ms: 0 };
    let copy = play(&mut trace, &[(orders[number - 1].0, copy.into())])?;
    let lives = trace.root().is_some_and(|root: &ContextNode| root.is_live() || root.undoing > 0);
    ensure(copy.is_empty() != lives, || "what has ended, or never began, is not copied".into())?;
    if !lives {
        return Ok(());
    }
    ensure(content(&trace) == before, || "a copy changes nothing".into())?;
    let kept = [copy, play(&mut trace, &orders[number..])?].concat();
    let whole = trace.without_renewals();
    let reversed = kept.iter().rev().cloned().collect();
    for log in [kept.clone(), reversed, [dropped.clone(), kept.clone()].concat()] {
        let (replayed, rest) = Replay::all(Trace::new(id), log);
        ensure(rest == Rest::Nothing, || format!("t9: a log that begins with a copy has {rest:?}"))?;
        ensure(replayed == whole, || format!("t9: another trace from the copy after command {number}"))?;
    }
    // Observers that have seen some of the dropped messages.
    for seen in [0, dropped.len() / 2, dropped.len()] {
        let mut live = Replay::new(Trace::new(id));
        for message in dropped[..seen].iter().chain(&kept) {
            live.add(message.clone()).map_err(|_| "t9: an observer begins again".to_owned())?;
        }
        ensure(*live.trace() == whole, || format!("t9: an observer that saw {seen} messages has another"))?;
    }
    Ok(())
}

/// t9, for a log that ends in the commit of one command, or in the next commit with several
/// messages.
pub fn check_at(id: TraceId, orders: &Orders, number: usize) -> Result<(), String> {
    cut_each(id, orders, number, 1)
}

/// t9, for a deleted trace: its log without its content gives the state after the delete.
pub fn check_deleted(id: TraceId, orders: &Orders, now: Timestamp) -> Result<(), String> {
    let mut trace = Trace::new(id);
    let mut log = play(&mut trace, orders)?;
    if trace.root().is_none() {
        return Ok(());
    }
    let delete = Delete { child_id: None, force: true, outside: Referrers::Unknown };
    log.extend(play(&mut trace, &[(now, Command::Delete { delete, branches: None }.into())])?);
    let bare = log.into_iter().map(LoggedEvents::without_content).collect();
    let (replayed, rest) = Replay::all(Trace::new(id), bare);
    ensure(rest == Rest::Nothing, || format!("t9: the bare log has {rest:?}"))?;
    let left = trace.without_renewals();
    ensure(replayed == left, || {
        format!("t9: the bare log of a deleted trace gives another trace: {}", difference(&replayed, &left))
    })
}

/// Some of the lines that only one of two traces has. Their maps are in any order, so the lines are
/// sorted.
fn difference(one: &Trace, other: &Trace) -> String {
    let sorted = |trace: &Trace| {
        let text = format!("{trace:#?}");
        let mut lines: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
        lines.sort_unstable();
        lines
    };
    let (one, other) = (sorted(one), sorted(other));
    let only = |of: &[String], not: &[String]| {
        let missing = of.iter().filter(|line| not.binary_search(line).is_err());
        missing.take(5).cloned().collect::<Vec<_>>().join("; ")
    };
    format!("it has `{}` and not `{}`", only(&one, &other), only(&other, &one))
}

/// Cuts up to `count` commits with several messages, starting with the command at `from`.
fn cut_each(id: TraceId, orders: &Orders, from: usize, mut count: usize) -> Result<(), String> {
    let mut last = Trace::new(id);
    play(&mut last, orders)?;
    let mut trace = Trace::new(id);
    let mut log = play(&mut trace, &orders[..from])?;
    for number in from..orders.len() {
        let before = trace.clone();
        let messages = play(&mut trace, &orders[number..=number])?;
        if messages.len() > 1 {
            let rest = &orders[number..];
            Cut { before: &before, earlier: &log, messages: &messages, rest }.check(&last)?;
            count -= 1;
            if count == 0 {
                return Ok(());
            }
        }
        log.extend(messages);
    }
    Ok(())
}

impl Cut<'_> {
    fn check(&self, last: &Trace) -> Result<(), String> {
        let step = self.messages.len() / MOST_CUTS + 1;
        for end in (1..self.messages.len()).step_by(step) {
            self.rebuild(&self.messages[..end])?;
            let missing = [&self.messages[..end - 1], &self.messages[end..]].concat();
            self.rebuild(&missing)?;
        }
        // The later commands do not depend on the place where the log ended in its commit.
        self.go_on(&self.messages[..1 + self.rest.len() % (self.messages.len() - 1)], last)
    }

    fn rebuild(&self, kept: &[LoggedEvents]) -> Result<Trace, String> {
        let (trace, rest) = Replay::all(Trace::new(self.before.id()), [self.earlier, kept].concat());
        let (first, count) = (self.messages[0].version, self.messages.len());
        let told = format!("t9: a log with {} of {count} messages of the commit from {first} on", kept.len());
        ensure(rest == Rest::Unfinished, || format!("{told} ends as {rest:?}"))?;
        ensure(trace == self.before.without_renewals(), || {
            format!("{told} gives version {}", trace.version())
        })?;
        Ok(trace)
    }

    /// Clients repeat their requests after a rebuild, and all later commands follow.
    fn go_on(&self, kept: &[LoggedEvents], last: &Trace) -> Result<(), String> {
        let mut trace = self.rebuild(kept)?;
        // A coordinator that rebuilds a trace extends its leases.
        trace.renew_again(&self.before.renewals());
        let now = self.rest[0].0;
        let begun = trace.begin_generation(0, now);
        let mut log = logged(&mut trace, begun, now);
        log.extend(play(&mut trace, self.rest)?);
        ensure(content(&trace) == content(last), || {
            format!("t9: another end after a rebuild at version {}", self.before.version())
        })?;
        // The commit that was left out arrives late as a whole, and all messages arrive in reverse
        // order.
        log.extend(self.messages.iter().chain(self.earlier).cloned());
        log.reverse();
        let (again, rest) = Replay::all(Trace::new(trace.id()), log);
        ensure(rest == Rest::Nothing, || format!("t9: the longer log has {rest:?}"))?;
        ensure(again == trace.without_renewals(), || "t9: the longer log gives another trace".into())
    }
}

/// Handles orders that succeeded before; returns their events as messages.
fn play(trace: &mut Trace, orders: &Orders) -> Result<Vec<LoggedEvents>, String> {
    let mut messages = Vec::new();
    for (now, order) in orders {
        let events = trace.handle(order.clone(), *now);
        let events = events.map_err(|refusal| format!("t9: {refusal}, of {order:?}"))?;
        if !events.is_empty() {
            messages.extend(logged(trace, events, *now));
        }
    }
    Ok(messages)
}

/// Removes the versions at which something happened, because a rebuild changes them.
fn without_versions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !["begun", "ready", "ticket", "succeeded_at"].contains(&name.as_str()));
            fields.values_mut().for_each(without_versions);
        }
        Value::Array(values) => values.iter_mut().for_each(without_versions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The whole trace without its version, its generation, and the times of its commits.
fn content(trace: &Trace) -> impl PartialEq + use<> {
    let mut trace = trace.clone();
    trace.mark_all_changed();
    let changes = trace.take_changes();
    let read = |(field, text): (String, Option<String>)| {
        let mut value = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        value.iter_mut().for_each(without_versions);
        (field, value)
    };
    let fields =
        changes.fields.into_iter().filter(|(field, _)| !["head", "made", "copied"].contains(&field.as_str()));
    (fields.map(read).collect::<Vec<_>>(), changes.values)
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
