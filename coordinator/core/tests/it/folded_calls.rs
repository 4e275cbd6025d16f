//! Old settled calls are folded: the stored size of a context does not grow with its calls, and
//! each call is still booked once.

use std::collections::{BTreeMap, HashMap};

use domain::{
    Amount, CallId,
    wire::{DecideDispute, Decision, Hold, Lease, Resume, SettledCall},
};
use proptest::{prelude::*, test_runner::Config};
use serde_json::json;
use trace::{Call, CallState, Command, Event, KnownCall, Refusal, Trace, decide};
use world::{World, cents, id};

/// The fields and values of one trace in a store.
#[derive(Debug, Clone, Default)]
struct Stored {
    fields: HashMap<String, String>,
    values: HashMap<String, String>,
}

impl Stored {
    /// Stores the changes. Returns the number of fields that were written or deleted, and the bytes
    /// sent to the store.
    fn commit(&mut self, trace: &mut Trace) -> (usize, usize) {
        let changes = trace.take_changes();
        let all = || changes.fields.iter().chain(&changes.values);
        let told = all().map(|(name, text)| name.len() + text.as_ref().map_or(0, String::len)).sum();
        let count = all().count();
        for (stored, changes) in
            [(&mut self.fields, changes.fields.clone()), (&mut self.values, changes.values.clone())]
        {
            for (name, text) in changes {
                match text {
                    Some(text) => drop(stored.insert(name, text)),
                    None => drop(stored.remove(&name).unwrap_or_else(|| panic!("{name} was never stored"))),
                }
            }
        }
        (count, told)
    }

    fn bytes(&self) -> usize {
        self.fields.iter().chain(&self.values).map(|(name, text)| name.len() + text.len()).sum()
    }

    fn load(&self, trace: &Trace) -> Trace {
        Trace::from_stored(trace.id(), trace.version(), &self.fields, &self.values).unwrap()
    }
}

/// A running root whose state is stored.
fn root() -> (World, Lease, Stored) {
    let mut world = World::with_root(json!({"max_cost_usd": 10_000}));
    let lease = world.claim("root");
    let mut stored = Stored::default();
    stored.commit(&mut world.trace);
    (world, lease, stored)
}

/// The cost of one call of [`pay`].
fn cost(number: u32) -> Amount {
    cents(1 + u64::from(number % 3))
}

/// Pays these calls of one attempt.
fn pay(world: &mut World, lease: &Lease, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        world.pay(lease, &format!("{}-{number}", lease.attempt), cost(number)).unwrap();
    }
}

fn call(text: &str) -> CallId {
    text.parse().unwrap()
}

fn is_folded(world: &World, text: &str) -> bool {
    matches!(world.node("root").calls.find(&call(text)), Some(KnownCall::Folded))
}

#[test]
fn b9_the_stored_state_does_not_grow_with_settled_calls() {
    let (mut world, lease, mut stored) = root();
    let without = (stored.fields.len(), stored.bytes());
    // For the calls 1–1,000 and 9,001–10,000: the most fields and bytes stored, and the sums sent
    // to the store.
    let (mut most, mut told) = ([(0, 0); 2], [[(0, 0); 2]; 2]);
    for number in 1..=10_000 {
        let call = format!("1-{number}");
        world.hold(&lease, &call, cents(5)).unwrap();
        let of_hold = stored.commit(&mut world.trace);
        world.settle(&lease, &call, cost(number)).unwrap();
        let of_settle = stored.commit(&mut world.trace);
        assert!(of_settle.0 < 80, "the settle of {call} writes {} fields", of_settle.0);
        let place = match number {
            0..=1_000 => 0,
            9_001.. => 1,
            _ => continue,
        };
        most[place] = (most[place].0.max(stored.fields.len()), most[place].1.max(stored.bytes()));
        for (sum, (fields, bytes)) in told[place].iter_mut().zip([of_hold, of_settle]) {
            *sum = (sum.0 + fields, sum.1 + bytes);
        }
    }
    let [early, late] = most;
    assert!(early.0 < without.0 + 140, "{} fields for the calls", early.0 - without.0);
    assert!(early.1 < without.1 + 20_000, "{} bytes for the calls", early.1 - without.1);
    // Later numbers have more digits, so up to a tenth more is allowed.
    let flat = |early: usize, late: usize| late <= early + early / 10;
    assert!(late.0 <= early.0 + 1 && flat(early.1, late.1), "stored: {early:?} early, {late:?} late");
    let [early, late] = told;
    for (what, early, late) in [("hold", early[0], late[0]), ("settle", early[1], late[1])] {
        assert!(flat(early.0, late.0), "a {what}: {} fields early, {} late, of 1,000", early.0, late.0);
        assert!(flat(early.1, late.1), "a {what}: {} bytes early, {} late, of 1,000", early.1, late.1);
    }
    let known = world.trace.stored_bytes();
    assert!(flat(stored.bytes(), known), "{known} bytes counted, {} stored", stored.bytes());
    assert!(stored.load(&world.trace) == world.trace.without_renewals(), "the loaded trace differs");
    assert_eq!(world.node("root").budget.own, cents(20_000));
    world.check_replay();
}

#[test]
fn b9_folded_calls_that_are_reported_again_are_booked_once() {
    let (mut world, lease, mut stored) = root();
    pay(&mut world, &lease, 1..=10_000);
    stored.commit(&mut world.trace);
    let folded = (1..=10_000).filter(|number| is_folded(&world, &format!("1-{number}"))).count();
    assert!(folded > 9_800, "{folded} of 10,000 are folded");
    // A second delivery about a folded call changes nothing, in this coordinator and in one that
    // loads the trace.
    for trace in [&world.trace, &stored.load(&world.trace)] {
        let told = |command: Command| decide(trace, command, world.now);
        for number in 1..=10_000 {
            let text = format!("1-{number}");
            let (call_id, lease, amount) = (call(&text), lease.clone(), cost(number));
            let settle = |amount| {
                told(Command::Settle { lease: lease.clone(), call_id: call_id.clone(), amount, model: None })
            };
            assert_eq!(settle(amount).unwrap(), [], "{text}");
            match settle(cents(9)) {
                Ok(events) if is_folded(&world, &text) => assert_eq!(events, [], "{text}"),
                other => assert!(matches!(other, Err(Refusal::CallConflict(_))), "{text}: {other:?}"),
            }
            let forfeit = Command::Forfeit { lease: lease.clone(), call_id: call_id.clone() };
            assert_eq!(told(forfeit).unwrap(), [], "{text}");
            let release = told(Command::Release { lease: lease.clone(), call_id: call_id.clone() });
            assert!(matches!(release, Err(Refusal::NoHold(_))), "{text}: {release:?}");
            let hold = told(Command::Hold(Hold { lease, call_id, amount, closing: false, seen: None }));
            assert!(matches!(hold, Err(Refusal::CallConflict(_))), "{text}: {hold:?}");
        }
    }
    // The next attempt reports every call of its journal except one hold.
    world.hold(&lease, "1-10001", cents(7)).unwrap();
    world.ask_human(&lease, "which?").unwrap();
    world.answer("root", 1, "that").unwrap();
    let next = world.claim("root");
    let before = world.node("root").budget.clone();
    let settled =
        |number| SettledCall { call_id: call(&format!("1-{number}")), amount: cost(number), model: None };
    let settled: Vec<_> = (1..=10_000).map(settled).collect();
    let events = world.handle(Command::Resume(Resume { lease: next, settled })).unwrap();
    assert!(matches!(events.as_slice(), [Event::Forfeited { .. }]), "{events:?}");
    let after = &world.node("root").budget;
    assert_eq!(after.own, before.own.checked_add(cents(7)).unwrap());
    assert_eq!(after.estimated, cents(7));
    world.cancel(None).unwrap();
    world.rest();
}

#[test]
fn b10_b18_calls_that_may_change_and_other_ids_are_not_folded() {
    let (mut world, lease, _) = root();
    for (text, amount) in [("1-1", 2), ("1-2", 3), ("1-03", 4), ("external-1", 5), ("1-4-1", 6)] {
        world.hold(&lease, text, cents(amount)).unwrap();
    }
    world.release(&lease, "1-1").unwrap();
    world.forfeit(&lease, "1-2").unwrap();
    for (text, amount) in [("1-03", 4), ("external-1", 5), ("1-4-1", 6)] {
        world.settle(&lease, text, cents(amount)).unwrap();
    }
    pay(&mut world, &lease, 10..=300);
    assert!(is_folded(&world, "1-10"));
    for text in ["1-1", "1-2", "1-03", "external-1", "1-4-1"] {
        assert!(matches!(world.node("root").calls.find(&call(text)), Some(KnownCall::Kept(_))), "{text}");
    }
    assert!(world.node("root").calls.find(&call("1-3")).is_none(), "1-03 is another call");
    assert!(world.node("root").calls.find(&call("1-010")).is_none(), "1-10 is another call");
    assert!(world.node("root").calls.find(&call("2-10")).is_none(), "1-10 is another call");
    let own = world.node("root").budget.own;
    for (text, amount) in [("1-1", 2), ("1-2", 1), ("1-3", 8)] {
        assert_eq!(world.settle(&lease, text, cents(amount)).unwrap().len(), 1, "{text}");
    }
    // Call 1 was released and now costs 2; call 2 was estimated at 3 and costs 1; call 3 is new.
    assert_eq!(
        world.node("root").budget.own,
        own.checked_add(cents(2 + 8)).unwrap().saturating_sub(cents(2))
    );
    world.cancel(None).unwrap();
    world.rest();
}

/// The commit that folds also books this cost in part. Its call has the lowest number.
#[test]
fn b18_a_call_with_a_disputed_part_is_not_folded() {
    let (mut world, lease, mut stored) = root();
    pay(&mut world, &lease, 2..=129);
    assert!(!is_folded(&world, "1-2"), "128 calls are not folded");
    let spent = world.node("root").budget.spent;
    let rest = world.node("root").budget.ceilings.limit.saturating_sub(spent).saturating_sub(cents(5));
    world.hold(&lease, "1-130", Amount::cost(rest.cost_usd)).unwrap();
    let events = world.settle(&lease, "1-1", cents(8)).unwrap();
    assert!(matches!(events.as_slice(), [Event::Settled { .. }, Event::Disputed { .. }]), "{events:?}");
    assert!(is_folded(&world, "1-2") && !is_folded(&world, "1-1"));
    world.release(&lease, "1-130").unwrap();
    for _ in 0..2 {
        let next = world.node("root").calls.kept().len();
        pay(&mut world, &lease, (0..200).map(|n| 1_000 + n + 1_000 * u32::try_from(next).unwrap()));
        assert!(!is_folded(&world, "1-1"));
        // A coordinator that loads the trace folds the same calls.
        stored.commit(&mut world.trace);
        assert!(stored.load(&world.trace) == world.trace.without_renewals());
        world.trace = stored.load(&world.trace);
    }
    assert_eq!(world.settle(&lease, "1-1", cents(8)).unwrap(), []);
    assert!(matches!(world.settle(&lease, "1-1", cents(9)), Err(Refusal::CallConflict(_))));
    let decided = DecideDispute { child_id: id("root"), number: 1, decision: Decision::Accepted };
    world.handle(Command::DecideDispute(decided)).unwrap();
    world.cancel(None).unwrap();
    world.rest();
}

/// Calls that end late fill the gaps between folded ones, and each attempt has its own numbers.
#[test]
fn b9_late_calls_close_the_gaps_between_folded_ones() {
    let (mut world, first, mut stored) = root();
    world.hold(&first, "1-20", cost(20)).unwrap();
    pay(&mut world, &first, (1..=300).filter(|number| ![20, 30, 31, 32].contains(number)));
    let mut ranges = |world: &mut World, attempt: u32| {
        stored.commit(&mut world.trace);
        assert!(stored.load(&world.trace) == world.trace.without_renewals(), "the loaded trace differs");
        let folded: serde_json::Value =
            serde_json::from_str(&stored.fields[&format!("g0.{attempt}")]).unwrap();
        folded["numbers"].to_string()
    };
    assert_eq!(ranges(&mut world, 1), "[[1,19],[21,29],[33,196]]");
    // The lowest numbers are folded first, together with the next 64.
    let late = |world: &mut World, lease: &Lease, numbers: &[u32], more: std::ops::RangeInclusive<u32>| {
        for number in numbers {
            world.settle(lease, &format!("1-{number}"), cost(*number)).unwrap();
        }
        pay(world, lease, more);
    };
    late(&mut world, &first, &[20, 31], 301..=364);
    assert_eq!(ranges(&mut world, 1), "[[1,29],[31,31],[33,258]]");
    late(&mut world, &first, &[32, 30], 365..=428);
    assert_eq!(ranges(&mut world, 1), "[[1,320]]");
    world.ask_human(&first, "which?").unwrap();
    world.answer("root", 1, "that").unwrap();
    let second = world.claim("root");
    pay(&mut world, &second, 1..=300);
    assert_eq!([ranges(&mut world, 1), ranges(&mut world, 2)], ["[[1,428]]", "[[1,212]]"]);
    assert_eq!(world.settle(&second, "1-31", cost(31)).unwrap(), []);
    assert_eq!(world.settle(&second, "2-212", cost(212)).unwrap(), []);
    assert_eq!(world.settle(&second, "2-500", cost(500)).unwrap().len(), 1);
    world.cancel(None).unwrap();
    world.rest();
}

#[test]
fn t9_few_calls_are_stored_one_by_one_and_many_as_ranges() {
    let (mut world, lease, mut stored) = root();
    pay(&mut world, &lease, 1..=127);
    stored.commit(&mut world.trace);
    let folded = |stored: &Stored| stored.fields.keys().filter(|name| name.starts_with('g')).count();
    assert_eq!(folded(&stored), 0);
    assert_eq!(stored.fields.keys().filter(|name| name.starts_with("k0.")).count(), 127);
    pay(&mut world, &lease, 128..=300);
    stored.commit(&mut world.trace);
    assert_eq!(folded(&stored), 1);
    let ranges = &stored.fields["g0.1"];
    assert!(ranges.starts_with(r#"{"numbers":[[1,192]],"amount":{"#), "{ranges}");

    for broken in ["[[5,3]]", "[[1,5],[5,6]]", "[[1,5],[6,7]]", "[[7,8],[1,2]]", "[[1,4294967295],[0,1]]"] {
        stored.fields.insert("g0.1".into(), format!(r#"{{"numbers":{broken}}}"#));
        let read = Trace::from_stored(world.trace.id(), 1, &stored.fields, &stored.values);
        assert!(read.is_err(), "{broken}");
    }
}

/// A model of the books that keeps every call.
#[derive(Default)]
struct Model {
    calls: BTreeMap<CallId, Call>,
}

/// The result that the model expects of a command.
#[derive(Debug, PartialEq)]
enum Expected {
    Events(usize),
    Refused,
    /// Nothing is booked. The command is refused if the call is kept, and has no effect if it is
    /// folded.
    Nothing,
}

impl Model {
    fn hold(&mut self, lease: &Lease, id: &CallId, held: Amount) -> Expected {
        let wanted = Call { attempt: lease.attempt, held, state: CallState::Held };
        match self.calls.get(id) {
            Some(call) if *call == wanted => Expected::Events(0),
            Some(_) => Expected::Refused,
            None => {
                self.calls.insert(id.clone(), wanted);
                Expected::Events(1)
            }
        }
    }

    fn settle(&mut self, id: &CallId, amount: Amount) -> Expected {
        let unheld = Call { attempt: 0, held: Amount::ZERO, state: CallState::Released };
        let call = self.calls.entry(id.clone()).or_insert(unheld);
        match call.state {
            CallState::Settled(booked) if booked == amount => Expected::Events(0),
            CallState::Settled(_) => Expected::Nothing,
            CallState::Held | CallState::Released | CallState::Forfeited => {
                call.state = CallState::Settled(amount);
                Expected::Events(1)
            }
        }
    }

    fn release(&mut self, lease: &Lease, id: &CallId) -> Expected {
        match self.calls.get_mut(id) {
            Some(call)
                if matches!(call.state, CallState::Held | CallState::Forfeited)
                    && call.attempt == lease.attempt =>
            {
                call.state = CallState::Released;
                Expected::Events(1)
            }
            Some(Call { state: CallState::Released, .. }) => Expected::Events(0),
            Some(_) | None => Expected::Refused,
        }
    }

    fn forfeit(&mut self, lease: &Lease, id: &CallId) -> Expected {
        match self.calls.get_mut(id) {
            Some(call) if call.state == CallState::Held && call.attempt == lease.attempt => {
                call.state = CallState::Forfeited;
                Expected::Events(1)
            }
            Some(Call { state: CallState::Forfeited | CallState::Settled(_), .. }) => Expected::Events(0),
            Some(_) | None => Expected::Refused,
        }
    }

    /// The sums of own cost, holds and estimates.
    fn sums(&self) -> [Amount; 3] {
        let sum = |of: fn(&Call) -> Amount| {
            self.calls.values().fold(Amount::ZERO, |sum, call| sum.checked_add(of(call)).unwrap())
        };
        [
            sum(|call| match call.state {
                CallState::Settled(amount) => amount,
                CallState::Forfeited => call.held,
                CallState::Held | CallState::Released => Amount::ZERO,
            }),
            sum(|call| if call.state == CallState::Held { call.held } else { Amount::ZERO }),
            sum(|call| if call.state == CallState::Forfeited { call.held } else { Amount::ZERO }),
        ]
    }
}

struct Player {
    world: World,
    stored: Stored,
    model: Model,
    leases: Vec<Lease>,
    /// The next call number that is unused in this attempt.
    next: u32,
}

impl Player {
    fn new() -> Self {
        let (world, lease, stored) = root();
        Player { world, stored, model: Model::default(), leases: vec![lease], next: 1 }
    }

    fn lease(&self) -> Lease {
        self.leases[self.leases.len() - 1].clone()
    }

    fn expect(&mut self, command: Command, expected: &Expected) {
        let shown = format!("{command:?}");
        let answer = self.world.handle(command).map(|events| events.len());
        let fits = match (&answer, expected) {
            (Ok(count), Expected::Events(expected)) => count == expected,
            (Ok(count), Expected::Nothing) => *count == 0,
            (Err(_), Expected::Refused | Expected::Nothing) => true,
            (Ok(_), Expected::Refused) | (Err(_), Expected::Events(_)) => false,
        };
        assert!(fits, "{shown}: {answer:?}, expected {expected:?}");
        let budget = &self.world.node("root").budget;
        assert_eq!([budget.own, budget.held, budget.estimated], self.model.sums(), "after {shown}");
    }

    fn play(&mut self, (kind, a, b): (u8, u16, u16)) {
        let amount = cents(u64::from(b % 7));
        let lease = self.leases[usize::from(b) % self.leases.len()].clone();
        // Old and new calls of any attempt, often delivered twice, and some ids that look alike.
        let number = u32::from(a) % (self.next + 3);
        let call_id = match a % 16 {
            0 => call(&format!("{}-0{number}", lease.attempt)),
            1 => call(&format!("x-{number}")),
            _ => call(&format!("{}-{number}", lease.attempt)),
        };
        match kind {
            0..40 => {
                let lease = self.lease();
                for _ in 0..=a % 24 {
                    let call_id = call(&format!("{}-{}", lease.attempt, self.next));
                    self.next += 1;
                    let expected = self.model.hold(&lease, &call_id, amount);
                    let (hold, id) = (lease.clone(), call_id.clone());
                    self.expect(
                        Command::Hold(Hold { lease: hold, call_id: id, amount, closing: false, seen: None }),
                        &expected,
                    );
                    // Some calls stay open.
                    if b % 29 != 0 {
                        let expected = self.model.settle(&call_id, amount);
                        self.expect(
                            Command::Settle { lease: lease.clone(), call_id, amount, model: None },
                            &expected,
                        );
                    }
                }
            }
            40..60 => {
                let expected = self.model.settle(&call_id, amount);
                self.expect(Command::Settle { lease, call_id, amount, model: None }, &expected);
            }
            60..70 => {
                let lease = self.lease();
                let expected = self.model.hold(&lease, &call_id, amount);
                self.expect(
                    Command::Hold(Hold { lease, call_id, amount, closing: false, seen: None }),
                    &expected,
                );
            }
            70..80 => {
                let expected = self.model.release(&lease, &call_id);
                self.expect(Command::Release { lease, call_id }, &expected);
            }
            80..90 => {
                let expected = self.model.forfeit(&lease, &call_id);
                self.expect(Command::Forfeit { lease, call_id }, &expected);
            }
            90..95 => self.load(),
            _ => self.next_attempt(a),
        }
    }

    /// Another coordinator loads the trace.
    fn load(&mut self) {
        self.stored.commit(&mut self.world.trace);
        let loaded = self.stored.load(&self.world.trace);
        assert!(loaded == self.world.trace.without_renewals(), "the loaded trace differs");
        self.world.trace = loaded;
        let calls = &self.world.node("root").calls;
        for (id, call) in &self.model.calls {
            match calls.find(id) {
                Some(KnownCall::Kept(kept)) => assert_eq!(kept, call, "{id}"),
                Some(KnownCall::Folded) => {
                    assert!(matches!(call.state, CallState::Settled(_)), "{id}: {call:?}")
                }
                None => panic!("{id} is missing: {call:?}"),
            }
        }
        let settled =
            calls.kept().values().filter(|call| matches!(call.state, CallState::Settled(_))).count();
        // Calls whose ids have another form are never folded.
        assert!(settled < 129 + 80, "{settled} settled calls are kept");
    }

    /// A new attempt reports most calls from its journal. The held calls that it omits are
    /// forfeited.
    fn next_attempt(&mut self, pick: u16) {
        let question = u32::try_from(self.leases.len()).unwrap();
        self.world.ask_human(&self.lease(), "which?").unwrap();
        self.world.answer("root", question, "that").unwrap();
        let lease = self.world.claim("root");
        let journal: Vec<SettledCall> = self
            .model
            .calls
            .iter()
            .filter(|(id, _)| !(id.as_str().len() + usize::from(pick)).is_multiple_of(5))
            .map(|(id, call)| {
                let amount = if let CallState::Settled(amount) = call.state { amount } else { call.held };
                SettledCall { call_id: id.clone(), amount, model: None }
            })
            .collect();
        let mut events = 0;
        for call in &journal {
            match self.model.settle(&call.call_id, call.amount) {
                Expected::Events(count) => events += count,
                other => panic!("{other:?} of {call:?}"),
            }
        }
        for call in self.model.calls.values_mut().filter(|call| call.state == CallState::Held) {
            call.state = CallState::Forfeited;
            events += 1;
        }
        self.leases.push(lease.clone());
        self.next = 1;
        let resume = Command::Resume(Resume { lease, settled: journal });
        self.expect(resume, &Expected::Events(events));
    }
}

proptest! {
    #![proptest_config(Config { cases: world::cases(4), failure_persistence: None, max_shrink_iters: 500, ..Config::default() })]

    #[test]
    fn b9_any_calls_are_booked_as_if_all_were_remembered(
        ops in prop::collection::vec((0u8..100, any::<u16>(), any::<u16>()), 50..200),
    ) {
        let mut player = Player::new();
        for op in ops {
            player.play(op);
        }
        player.load();
        player.world.cancel(None).unwrap();
        player.world.rest();
    }
}
