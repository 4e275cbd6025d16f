//! A rehearsal: a submission that runs through the real core, without servers or models. The caller
//! plays the agents; time is simulated, and jumps to the next timer. The same code as in production
//! decides everything about the graph: order, skips, retries, money, outcome.

use std::collections::VecDeque;

use domain::{
    Amount, CallId, ChildId, LeaseToken, Timestamp, TraceId, WorkerId,
    subject::{Home, Partition},
    wire::{AnswerMessage, Claim, Execute, Hold, Lease, Progress, Question, Report, Text, Verdict},
};

use trace::{Command, Effect, Event, Refusal, Submit, Trace, effects};

/// More rounds than any graph within the limits can need.
const MAX_TURNS: usize = 1_000_000;

/// How an attempt is played: its cost, and how it ends.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayedAttempt {
    pub cost: Amount,
    pub verdict: Verdict,
}

/// The home in messages of a rehearsal, which are never published.
fn home() -> Home {
    Home {
        namespace: "rehearsal".parse().expect("a valid literal"),
        partition: Partition::all(1).next().expect("one"),
    }
}

/// A trace being rehearsed, with all its events.
#[derive(Debug)]
pub struct Rehearsal {
    pub trace: Trace,
    pub log: Vec<(Timestamp, Event)>,
    now: Timestamp,
    queue: VecDeque<ChildId>,
    tokens: u64,
}

impl Rehearsal {
    /// Submits. A refusal is equal to a cluster's.
    pub fn begin(trace_id: TraceId, submit: Submit, now: Timestamp) -> Result<Self, Refusal> {
        let trace = Trace::new(trace_id);
        let mut rehearsal = Rehearsal { trace, log: Vec::new(), now, queue: VecDeque::new(), tokens: 0 };
        rehearsal.handle(Command::Submit(Box::new(submit)))?;
        Ok(rehearsal)
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Plays until the root has ended, or waits for a human. `play` acts for the agents, `answer`
    /// for the humans (`None` leaves a question open).
    pub fn play(
        &mut self,
        mut play: impl FnMut(&Execute) -> PlayedAttempt,
        mut answer: impl FnMut(&Question) -> Option<Text>,
    ) {
        for _ in 0..MAX_TURNS {
            if let Some(child_id) = self.queue.pop_front() {
                self.attempt(&child_id, &mut play);
            } else if !self.answer_one(&mut answer) && !self.pass_time() {
                return;
            }
        }
    }

    fn attempt(&mut self, child_id: &ChildId, play: &mut impl FnMut(&Execute) -> PlayedAttempt) {
        self.tokens += 1;
        let token = LeaseToken::new(&format!("t{}", self.tokens)).expect("a letter and a number");
        let worker_id = WorkerId::new("rehearsal").expect("a valid literal");
        let claim = Claim { child_id: child_id.clone(), worker_id, token: token.clone() };
        if self.handle(Command::Claim(claim)).is_err() {
            return;
        }
        let Some(work) = self.trace.execute(child_id, &home()) else { return };
        let lease = Lease { child_id: child_id.clone(), attempt: work.attempt, token };
        let played = play(&work);
        let verdict = self.pay(&lease, played);
        let report = Report { lease, progress: Progress { steps: 1, ..Progress::default() }, verdict };
        // The budget may have ended the attempt before its report. The report is then refused,
        // which loses nothing.
        self.handle(Command::Report(Box::new(report))).ok();
    }

    /// Holds and settles the cost of the attempt. If the hold is denied, the attempt fails with a
    /// budget failure.
    fn pay(&mut self, lease: &Lease, played: PlayedAttempt) -> Verdict {
        if played.cost.is_zero() {
            return played.verdict;
        }
        let call_id = CallId::new(&format!("c{}", self.tokens)).expect("a letter and a number");
        let hold = Hold {
            lease: lease.clone(),
            call_id: call_id.clone(),
            amount: played.cost,
            closing: false,
            seen: None,
        };
        match self.handle(Command::Hold(hold)) {
            Ok(()) => {
                let settle =
                    Command::Settle { lease: lease.clone(), call_id, amount: played.cost, model: None };
                self.handle(settle).expect("the hold was just taken");
                played.verdict
            }
            Err(Refusal::Halted { pause: true, .. }) => Verdict::OutOfBudget,
            Err(refusal) => Verdict::Failed(domain::wire::Failure {
                kind: domain::wire::FailureKind::Budget,
                message: refusal.to_string(),
                retryable: false,
            }),
        }
    }

    /// Answers the first question whose answer is accepted. A refused answer leaves its question
    /// open.
    fn answer_one(&mut self, answer: &mut impl FnMut(&Question) -> Option<Text>) -> bool {
        let questions = self.trace.contexts().iter().filter_map(|node| self.trace.question(&node.id));
        let answered = questions.filter_map(|question| {
            let answer = answer(&question)?;
            Some(AnswerMessage { child_id: question.child_id, question: question.number, answer, by: None })
        });
        let answered: Vec<AnswerMessage> = answered.collect();
        answered.into_iter().any(|answered| self.handle(Command::Answer(answered)).is_ok())
    }

    fn pass_time(&mut self) -> bool {
        let Some(due) = self.trace.next_timer() else { return false };
        self.now = self.now.max(due);
        self.handle(Command::Wake).is_ok()
    }

    fn handle(&mut self, command: Command) -> Result<(), Refusal> {
        let events = self.trace.handle(command, self.now)?;
        for effect in effects(&self.trace, &events) {
            match effect {
                Effect::Execute { child_id, .. } => self.queue.push_back(child_id),
                Effect::Stop { .. }
                | Effect::Question { .. }
                | Effect::Outcome { .. }
                | Effect::Remove { .. } => {}
            }
        }
        self.log.extend(events.into_iter().map(|event| (self.now, event)));
        Ok(())
    }
}
