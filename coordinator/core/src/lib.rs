//! The core: one trace as a state machine, decided by pure functions. It does no I/O and has no
//! clock and no randomness: `now` and fresh ids arrive with the command. The rules of docs/rules.md
//! about budgets, spawning, graphs and lifecycles are implemented here, once.
//!
//! [`Trace::handle`] is the entry. [`decide`] returns the events of a command, or a [`Refusal`],
//! which changes nothing. `handle` applies the events, and the `agenda` decides the follow-ups that
//! they raise, one at a time, each on the current state. Replaying the events through
//! [`Trace::apply`] gives the identical state.
//!
//! A command may arrive twice, late, or after the end of its context. The comment at each decision
//! explains why that is harmless. Three reasons are common to all: ids decide what is the same (a
//! spawn by `child_id`, money by `call_id`, a claim by its token), attempt numbers only grow, and
//! an ended context never changes its status.

pub mod account;
mod admission;
mod agenda;
mod apply;
mod asked;
mod attempt;
mod budget;
mod budget_walk;
mod calls;
mod chain;
mod checked;
mod checkpoint;
mod command;
mod content;
mod context_node;
mod context_spec;
mod context_store;
mod copy;
mod dispute;
mod effect;
mod end;
mod event;
mod event_facts;
mod event_log;
mod folded;
mod found_by;
mod graph;
mod graph_run;
mod hold_queue;
mod index;
mod lease;
mod lifecycle;
mod limit;
mod limit_text;
mod lost_costs;
mod message;
mod money;
mod named;
mod order;
mod parts;
mod pending_messages;
mod pool;
mod question;
mod refusal;
mod removal;
mod replay;
mod rerun;
mod rows;
mod scrub;
mod snapshot;
mod span_marks;
mod spans;
mod spenders;
mod state;
mod statement;
mod stored;
mod terms;
mod timer;
mod token;
mod traced;
mod undo;
mod undo_values;
mod unsaved;
mod view;
mod worst_case;

pub use asked::QuestionDetails;
pub use budget::{Budget, Call, CallState, Ceilings, GrantedDimensions, WaitingHold};
pub use calls::{Calls, KnownCall};
pub use chain::{Rest, in_order};
pub use command::{Amend, Command, Spawn, Submit};
pub use context_node::{ContextNode, ContextTerms, End, EndDetails, Identity, Lifecycle, Phase, Status};
pub use context_spec::ContextSpec;
pub use effect::{Effect, effects};
pub use event::{Body, ContextAdmitted, ContextEnded, CopyPart, Event, LoweredBounds, Ran, Requeue, StepOf};
pub use event_log::{Commit, LoggedEvents, logged, outlived};
pub use found_by::terms as terms_of;
pub use graph_run::{GraphProgress, GraphRun, Items, RunPhase, StepRun, UndoRun};
pub use index::ContextIndex;
pub use lease::Renewal;
pub use lost_costs::LostCost;
pub use message::answer_refusal;
pub use named::{NamedProfiles, agents_of, agents_of_plan, unreadable};
pub use order::Order;
pub use refusal::Refusal;
pub use replay::{Replay, Superseded};
pub use rerun::{Earlier, KeptResult, KeptStep, Rerun, RerunOrder, StepPlace};
pub use rows::{KeyedRows, Rows};
pub use span_marks::{Happening, Mark, What};
pub use spenders::{MOST_SPENDERS, Spenders};
pub use state::{Attempt, Entry, Message, Trace};
pub use statement::{Difference, Statement, Why};
pub use stored::{Changes, Corrupt};
pub use token::TokenHash;
pub use traced::RunOrigin;
pub use view::{Now, Row, now_of_step, word_of_step};

use agenda::Agenda;
use domain::Timestamp;

/// Returns the first events of an order, decided on the current state. [`Trace::handle`] adds the
/// events that follow from them.
pub fn decide(trace: &Trace, order: impl Into<Order>, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let Order { by, pool, command } = order.into();
    if let Some(pool) = &pool {
        pool::check(trace, pool, &command)?;
    }
    let events = decide_command(trace, command, now)?;
    Ok(match by {
        Some(by) => order::signed(events, by),
        None => events,
    })
}

fn decide_command(trace: &Trace, command: Command, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    match command {
        Command::Submit(submit) => admission::submit(trace, *submit, now),
        Command::Spawn(spawn) => admission::spawn(trace, *spawn, now),
        Command::Claim(claim) => attempt::claim(trace, &claim, now),
        Command::Tick(tick) => attempt::tick(trace, &tick, now),
        Command::Report(report) => attempt::report(trace, *report, now),
        Command::Resume(resume) => money::resume(trace, &resume),
        Command::Hold(hold) => money::hold(trace, &hold),
        Command::Release { lease, call_id } => money::release(trace, &lease, &call_id),
        Command::Forfeit { lease, call_id } => money::forfeit(trace, &lease, &call_id),
        Command::Settle { lease, call_id, amount, model } => {
            money::settle(trace, &lease, &call_id, amount, model, now)
        }
        Command::Charge(charge) => money::charge(trace, &charge),
        Command::BookLost(cost) => lost_costs::book(trace, &cost),
        Command::Raise(raise) => money::raise(trace, &raise),
        Command::DecideDispute(decided) => dispute::decide(trace, &decided),
        Command::SetValue { lease, key, value } => context_store::set(trace, &lease, &key, &value),
        Command::DeleteValue { lease, key } => context_store::delete(trace, &lease, &key),
        Command::Checked(told) => checked::checked(trace, &told),
        Command::Answer(answered) => question::answer(trace, &answered),
        Command::Tell(tell) => pending_messages::tell(trace, &tell),
        Command::Amend(amend) => graph::amend(trace, &amend),
        Command::Cancel { child_id, reason, without_undo } => {
            end::cancel(trace, child_id.as_ref(), reason.as_deref(), without_undo)
        }
        Command::Delete { delete, branches } => removal::delete(trace, &delete, branches.as_deref()),
        Command::Restore(restore) => checkpoint::restore(trace, &restore, now),
        Command::Copy { after_ms } => Ok(copy::copy(trace, after_ms, now)),
        // These commands have no events of their own: `handle` extends the leases, and adds the due
        // contexts to the agenda.
        Command::Spare { .. } | Command::Wake => Ok(Vec::new()),
    }
}

impl Trace {
    /// Handles an order: decides it, applies the events, and repeats this for every follow-up.
    /// Returns all events in the order in which they were applied. A refusal leaves the trace
    /// unchanged. Leases are also extended in memory (`lease`), which replaying the events does not
    /// reproduce.
    pub fn handle(&mut self, order: impl Into<Order>, now: Timestamp) -> Result<Vec<Event>, Refusal> {
        let order = order.into();
        let mut agenda = Agenda::default();
        let ticks =
            if let Command::Tick(tick) = &order.command { self.find(&tick.lease.child_id) } else { None };
        if let Command::Spare { until } = &order.command {
            self.spare(now, *until);
        }
        if matches!(order.command, Command::Wake) {
            agenda.extend_due(self.due(now));
        }
        let mut log = decide(self, order, now)?;
        if let Some(at) = ticks {
            self.renew(at, now.plus_millis(self.settings().lease_ms));
        }
        for event in &log {
            self.apply(event, now);
            agenda.follow(self, event);
        }
        while let Some(follow_up) = agenda.next() {
            for event in agenda::decide(self, follow_up, now) {
                self.apply(&event, now);
                agenda.follow(self, &event);
                log.push(event);
            }
        }
        Ok(log)
    }
}
