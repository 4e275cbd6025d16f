//! Receipts and audits (B19, G12), on logs and journals without a bus.

use domain::{
    Amount, Timestamp, Usd, decode,
    span::SpanId,
    wire::{Charge, HistoryEntry},
};
use serde_json::{Value, json};
use trace::{
    Command, Event,
    account::{
        Audit, Check, Journals, Ledger, LogMessage, ReadLog, Receipt, RepricedRun, StoreState, entry_of,
    },
};
use world::{World, accounts, cents, id};

/// A root that spawns a child. Both pay; one call is lost, one is corrected, and one charge comes
/// from outside.
fn world() -> World {
    let mut world = World::with_root(json!({"max_cost_usd": 2}));
    world.pass(40);
    let root = world.claim("root");
    world.pay(&root, "1-1", cents(3)).unwrap();
    world
        .spawn(&root, json!({"goal": "write", "child_id": "writer", "max_cost_usd": 1, "funding": "granted"}))
        .unwrap();
    world.wait(&root, &["writer"]).unwrap();
    world.pass(500);
    let writer = world.claim("writer");
    world.pay(&writer, "1-1", cents(11)).unwrap();
    world.hold(&writer, "1-2", cents(20)).unwrap();
    world.forfeit(&writer, "1-2").unwrap();
    world.hold(&writer, "1-3", cents(20)).unwrap();
    world.forfeit(&writer, "1-3").unwrap();
    world.settle(&writer, "1-3", cents(5)).unwrap();
    world.pass(1000);
    world.complete(&writer, "done").unwrap();
    let again = world.claim("root");
    world.pay(&again, "2-1", cents(4)).unwrap();
    let charge = Charge { child_id: id("root"), key: "invoice".parse().unwrap(), amount: cents(7), by: None };
    world.handle(Command::Charge(charge)).unwrap();
    world.complete(&again, "all done").unwrap();
    world.rest();
    world
}

fn entry(child: &str, attempt: u32, number: u32, step: Value) -> HistoryEntry {
    let entry = json!({"trace_id": "0af7651916cd43dd8448eb211c80319c", "child_id": child, "number": number,
        "attempt": attempt, "at": 0, "step": step});
    decode::value(&entry).unwrap_or_else(|problems| panic!("{problems}"))
}

fn answer(call_id: &str, cents: u64, model: &str) -> Value {
    let amount = json!({"cost_usd": format!("0.{cents:02}"), "tokens": 0});
    json!({"model": {"call_id": call_id, "model": model, "max_tokens": 10,
        "usage": {"input_tokens": 1000 * cents, "output_tokens": 10}, "cost": {"amount": amount, "prices": "old"}}})
}

fn lost(call_id: &str) -> Value {
    json!({"lost": {"call_id": call_id, "amount": {"cost_usd": 0.2, "tokens": 0}, "cause": "no answer"}})
}

fn ended() -> Value {
    json!({"result": {"verdict": {"completed": {"inline": "done"}}}})
}

/// The journals that the agents of `world` would have written.
fn entries() -> Vec<HistoryEntry> {
    vec![
        entry("root", 1, 1, answer("1-1", 3, "test/small")),
        entry("root", 2, 2, json!({"began": {"worker_id": "w"}})),
        entry("root", 2, 3, answer("2-1", 4, "test/large")),
        entry("root", 2, 4, ended()),
        entry("writer", 1, 1, answer("1-1", 11, "test/large")),
        entry("writer", 1, 2, lost("1-2")),
        entry("writer", 1, 3, lost("1-3")),
        entry("writer", 1, 4, ended()),
    ]
}

fn journals(entries: &[HistoryEntry]) -> Journals {
    let mut journals = Journals::default();
    entries.iter().for_each(|entry| journals.add(entry));
    journals
}

/// Audits this log against the store as the world left it. Returns the audit and its findings.
fn audited(world: &World, log: Vec<LogMessage>, entries: &[HistoryEntry]) -> (Audit, Vec<(Check, String)>) {
    let read = ReadLog::new(world.trace.id(), log);
    let ledger = Ledger::of(&read);
    let store = accounts::stored(&accounts::log(world.trace.id(), &world.orders).0);
    let audit = Audit::of(&read, &ledger, &journals(entries), store.as_ref());
    let findings = audit.findings.iter().map(|finding| (finding.check, finding.message.clone())).collect();
    (audit, findings)
}

fn log(world: &World) -> Vec<LogMessage> {
    accounts::log(world.trace.id(), &world.orders).1
}

fn has(findings: &[(Check, String)], check: Check, what: &str) -> bool {
    findings.iter().any(|(of, message)| *of == check && message.contains(what))
}

#[test]
fn b19_a_receipt_adds_up_at_every_level_and_names_models_and_waits() {
    let world = world();
    accounts::check(world.trace.id(), &world.orders).unwrap();
    let read = ReadLog::new(world.trace.id(), log(&world));
    let (ledger, journals) = (Ledger::of(&read), journals(&entries()));
    let receipt = Receipt::of(&read, &ledger, &journals).unwrap();
    accounts::check_sums(&receipt).unwrap();
    assert_eq!((receipt.total, receipt.so_far), (cents(50), false));
    let account = |name: &str| receipt.contexts.iter().find(|account| account.child_id == id(name)).unwrap();
    let (root, writer) = (account("root"), account("writer"));
    assert_eq!((root.own, root.children, root.spent), (cents(14), cents(36), cents(50)));
    assert_eq!((writer.own, writer.estimated), (cents(36), cents(20)));
    assert_eq!(writer.path, [id("root"), id("writer")]);
    assert_eq!((root.wait.worker_ms, root.wait.children_ms, root.wait.total_ms()), (40, 1500, 1540));
    assert_eq!((writer.wait.worker_ms, writer.wait.ran_ms), (500, 1000));
    let models: Vec<_> = receipt.models.iter().map(|of| (of.model.as_str(), of.calls, of.cost)).collect();
    assert_eq!(models, [("test/large", 2, cents(15)), ("test/small", 1, cents(3))]);
    assert_eq!(receipt.models[0].usage.input_tokens, 15_000);
    let other: Vec<_> = receipt.other.iter().map(|of| of.cost).collect();
    assert_eq!(other.iter().fold(Amount::ZERO, |sum, more| sum.checked_add(*more).unwrap()), cents(32));
    // The correction subtracts the estimate that was booked.
    let corrected =
        receipt.lines.iter().filter_map(|line| line.cost.as_ref()).find(|cost| !cost.before.is_zero());
    assert_eq!(corrected.map(|cost| (cost.before, cost.booked)), Some((cents(20), cents(5))));
}

fn used(tool: &str, is_error: bool) -> Value {
    json!({"tool": {"id": "call", "tool": tool, "output": {"inline": "seen"}, "is_error": is_error}})
}

/// Spans made from log and journals have the same ids and parents as those that workers and
/// coordinators export.
#[test]
fn x4_spans_of_tools_and_calls_come_from_the_journals_with_the_number_of_their_entry() {
    let world = world();
    let read = ReadLog::new(world.trace.id(), log(&world));
    let branched = json!({"branched": {"from": {"trace_id": "0af7651916cd43dd8448eb211c80319d", "child_id": "root", "step": 1},
        "copies": 1}});
    let mut written = vec![
        entry("writer", 1, 1, branched),
        entry("writer", 1, 2, used("fs.list", false)),
        entry("writer", 1, 3, answer("1-1", 11, "test/large")),
        entry("writer", 1, 4, used("fs.read", false)),
        entry("writer", 1, 5, used("server:look", true)),
        entry("writer", 1, 6, used("agent:spawn", false)),
        entry("writer", 1, 7, used("ask_human", false)),
    ];
    // The clock of this worker is years behind, and then ahead.
    written[5].at = Timestamp::from_millis(u64::from(u32::MAX) * 1000);
    let spans = read.spans(&journals(&written), world.now);
    let place = |name: &str| {
        let span = spans.iter().find(|span| span.name == name)?;
        Some((span.span_id, span.parent, entry_of(span), span.error.clone()))
    };
    let attempt = spans.iter().find(|span| span.span_id == of(&world, "writer.1")).unwrap();
    let within = |id: &str, number: u64, error: Option<&str>| {
        let error = error.map(|error| error.to_owned().into());
        Some((of(&world, id), Some(attempt.span_id), Some(number), error))
    };
    assert_eq!(place("chat large"), within("writer.1-1.chat", 3, None));
    assert_eq!(place("execute_tool fs.read"), within("writer.1.4.tool", 4, None));
    assert_eq!(place("execute_tool server:look"), within("writer.1.5.tool", 5, Some("tool_error")));
    for (tool, why) in [
        ("fs.list", "it is a copy"),
        ("agent:spawn", "a child answers it"),
        ("ask_human", "a human answers it"),
    ] {
        assert_eq!(place(&format!("execute_tool {tool}")), None, "{why}");
    }
    for span in spans.iter().filter(|span| span.parent == Some(attempt.span_id)) {
        assert!(attempt.start <= span.start && span.start <= span.end, "{span:?}");
        assert!(span.end <= attempt.end, "{span:?} is not within {attempt:?}");
    }
}

fn of(world: &World, id: &str) -> SpanId {
    SpanId::of(world.trace.id(), id)
}

#[test]
fn b19_an_audit_of_a_whole_log_finds_nothing() {
    let world = world();
    let (audit, findings) = audited(&world, log(&world), &entries());
    assert_eq!(findings, []);
    assert_eq!((audit.agreed, audit.unjournaled), (4, 0), "{:?}", audit.notes);
    // The journals may lack a call of a superseded attempt. The audit reports it as unjournaled,
    // not as a finding.
    let mut early = entries();
    early.remove(0);
    for entry in early.iter_mut().filter(|entry| entry.child_id == id("root")) {
        entry.number -= 1;
    }
    let (audit, findings) = audited(&world, log(&world), &early);
    assert_eq!((findings, audit.unjournaled), (vec![], 1));
}

#[test]
fn b19_an_audit_finds_one_cent_that_was_changed() {
    let world = world();
    let mut log = log(&world);
    let settled = log
        .iter_mut()
        .flat_map(|message| &mut message.logged.events)
        .find_map(|event| if let Event::Settled { amount, .. } = event { Some(amount) } else { None });
    *settled.unwrap() = cents(4);
    let (_, findings) = audited(&world, log, &entries());
    assert!(has(&findings, Check::Store, "has spent $0.50"), "{findings:?}");
    assert!(has(&findings, Check::Journal, "says that call 1-1 cost $0.03"), "{findings:?}");
}

#[test]
fn b19_an_audit_finds_each_event_that_is_missing() {
    let world = world();
    let whole = log(&world);
    for place in 0..whole.len() {
        let mut log = whole.clone();
        let gone = log.remove(place).logged;
        let (_, findings) = audited(&world, log, &entries());
        let of_log = findings.iter().any(|(check, _)| matches!(check, Check::Log | Check::Store));
        assert!(of_log, "the audit does not report {gone:?} as missing: {findings:?}");
    }
}

#[test]
fn b19_an_audit_finds_an_event_that_is_there_twice() {
    let world = world();
    let whole = log(&world);
    for place in 0..whole.len() {
        let mut log = whole.clone();
        let mut again = log[place].clone();
        (again.sequence, again.id) = (100, Some("forged".into()));
        log.push(again.clone());
        let (_, findings) = audited(&world, log, &entries());
        assert!(has(&findings, Check::Log, "is in the log twice"), "{again:?}: {findings:?}");
        // A second copy of one message, sent again by its coordinator, is read once.
        let mut log = whole.clone();
        log.push(LogMessage { sequence: 100, ..log[place].clone() });
        let (audit, findings) = audited(&world, log, &entries());
        assert_eq!(
            (findings, audit.notes.len()),
            (vec![], audited(&world, whole.clone(), &entries()).0.notes.len() + 1)
        );
    }
}

/// The log gets a forged commit: an event that settles a settled call again.
#[test]
fn b19_an_audit_finds_a_call_that_is_settled_twice() {
    let world = world();
    let mut log = log(&world);
    let settles =
        |message: &&LogMessage| message.logged.events.iter().any(|e| matches!(e, Event::Settled { .. }));
    let mut again = log.iter().find(settles).unwrap().clone();
    let last = log.last().unwrap().logged.clone();
    let made = last.commit().made.plus_millis(1);
    again.logged.version = last.last_version() + 1;
    again.logged.events.retain(|event| matches!(event, Event::Settled { .. }));
    let commit = serde_json::from_value(json!({"first": again.logged.version, "last": again.logged.version,
        "made": made, "after": last.commit().made}));
    (again.logged.commit, again.sequence, again.id) = (commit.unwrap(), 100, None);
    log.push(again);
    let (_, findings) = audited(&world, log, &entries());
    assert!(has(&findings, Check::Books, "was settled before"), "{findings:?}");
    assert!(has(&findings, Check::Store, "and the store only up to"), "{findings:?}");
}

#[test]
fn b19_an_audit_compares_the_journals_both_ways() {
    let world = world();
    let without = |number: usize| {
        let mut entries = entries();
        entries.remove(number);
        entries
    };
    let (_, findings) = audited(&world, log(&world), &without(2));
    assert!(has(&findings, Check::Journal, "call 2-1 is booked at $0.04"), "{findings:?}");
    assert!(has(&findings, Check::Journal, "entries 3 to 3 of its journal are missing"), "{findings:?}");
    let mut more = entries();
    more.push(entry("writer", 1, 5, answer("1-9", 1, "test/large")));
    let (_, findings) = audited(&world, log(&world), &more);
    assert!(has(&findings, Check::Journal, "but no event books it"), "{findings:?}");
}

/// Spending before a copy is carried over from the copy, and the sums agree.
#[test]
fn b19_a_log_that_begins_with_a_copy_is_audited_from_it() {
    let mut world = world_before_its_end();
    let before = log(&world).len();
    world.handle(Command::Copy { after_ms: 0 }).unwrap();
    let root = world.lease(&id("root"));
    world.pay(&root, "1-2", cents(6)).unwrap();
    world.complete(&root, "done").unwrap();
    world.rest();
    let kept = log(&world).split_off(before);
    let (audit, findings) = audited(&world, kept.clone(), &[]);
    assert_eq!(findings, [], "{:?}", audit.notes);
    let read = ReadLog::new(world.trace.id(), kept);
    let receipt = Receipt::of(&read, &Ledger::of(&read), &Journals::default()).unwrap();
    assert_eq!(receipt.total, cents(9));
    let models: Vec<_> = receipt.other.iter().map(|of| of.cost).collect();
    assert_eq!(models.iter().fold(Amount::ZERO, |sum, more| sum.checked_add(*more).unwrap()), cents(9));
}

fn world_before_its_end() -> World {
    let mut world = World::with_root(json!({"max_cost_usd": 2}));
    let root = world.claim("root");
    world.pay(&root, "1-1", cents(3)).unwrap();
    world
}

/// proves: a receipt names each thing correctly: a question is not shown as a graph, nor a time as
/// a number; estimates have their own column.
#[test]
fn b19_a_receipt_names_questions_times_and_estimates() {
    let receipt = |world: &World| {
        let read = ReadLog::new(world.trace.id(), log(world));
        Receipt::of(&read, &Ledger::of(&read), &Journals::default()).unwrap()
    };
    let ask = json!({"id": "ask", "approve": {"who": "me", "question": "Ship it?"}});
    let asks = receipt(&World::with_graph(json!({"steps": [ask]})));
    let said: Vec<&str> = asks.lines.iter().map(|line| line.detail.as_str()).collect();
    assert!(said.iter().any(|line| line.starts_with("a question to a human under ")), "{said:?}");
    assert_eq!(said.iter().filter(|line| line.starts_with("a graph")).count(), 1, "{said:?}");

    let mut world = World::with_root(json!({"max_cost_usd": 2}));
    let root = world.claim("root");
    world.hold(&root, "1-1", cents(20)).unwrap();
    world.forfeit(&root, "1-1").unwrap();
    world.fail(&root, true).unwrap();
    let failed = receipt(&world);
    let estimates: Vec<_> = failed.other.iter().map(|of| (of.cost, of.estimated)).collect();
    assert_eq!(estimates, [(cents(20), cents(20))]);
    let requeued = failed.lines.iter().find(|line| line.what == "requeued").unwrap();
    assert!(requeued.detail.contains("not_before 1970-01-01T"), "{}", requeued.detail);
    assert!(requeued.detail.ends_with('Z'), "{}", requeued.detail);
}

#[test]
fn g12_a_run_is_priced_again_and_models_without_a_price_are_named() {
    let world = world();
    let read = ReadLog::new(world.trace.id(), log(&world));
    let (ledger, journals) = (Ledger::of(&read), journals(&entries()));
    let ten_times = |model: &domain::id::ModelName, usage: &domain::wire::Usage| {
        let usd = Usd::from_nanos(usage.input_tokens * 100_000);
        (model.as_str() == "test/large").then(|| (usd, "new".to_owned()))
    };
    let repriced = RepricedRun::of(read.trace(), &ledger, &journals, ten_times);
    // 32 cents are estimates, corrections and a charge: repricing leaves them as they are.
    assert_eq!((repriced.was, repriced.kept), (Usd::from_cents(50), Usd::from_cents(32)));
    assert_eq!(repriced.would_be, None, "a model has no price");
    assert_eq!(repriced.known, Usd::from_cents(32 + 150));
    let told: Vec<_> = repriced.models.iter().map(|of| (of.model.as_str(), of.was, of.would_be)).collect();
    let large = ("test/large", Usd::from_cents(15), Some(Usd::from_cents(150)));
    assert_eq!(told, [large, ("test/small", Usd::from_cents(3), None)]);
    let free = RepricedRun::of(read.trace(), &ledger, &journals, |_, _| Some((Usd::ZERO, "free".to_owned())));
    assert_eq!(free.would_be, Some(Usd::from_cents(32)));
}

#[test]
fn g15_the_receipt_of_a_rerun_shows_what_was_taken_at_no_cost() {
    let step = |id: &str| json!({"id": id, "agent_id": "writer", "task_description": id});
    let mut earlier = World::with_graph(json!({"mode": "sequential", "steps": [step("a"), step("b")]}));
    for (name, amount) in [("a", 40), ("b", 2)] {
        let lease = earlier.claim(name);
        earlier.pay(&lease, "1-1", cents(amount)).unwrap();
        match name {
            "a" => earlier.complete(&lease, "secret words").unwrap(),
            _ => earlier.fail(&lease, false).unwrap(),
        };
    }
    let mut world = earlier.rerun(json!({})).unwrap();
    let lease = world.claim("b");
    world.pay(&lease, "1-1", cents(3)).unwrap();
    world.complete(&lease, "done").unwrap();
    world.rest();
    accounts::check(world.trace.id(), &world.orders).unwrap();
    let (audit, findings) = audited(&world, log(&world), &[]);
    assert!(audit.is_sound(), "{findings:?}");
    let read = ReadLog::new(world.trace.id(), log(&world));
    let receipt = Receipt::of(&read, &Ledger::of(&read), &journals(&[])).unwrap();
    assert_eq!(receipt.total.cost_usd, cents(3).cost_usd);
    let of = |name: &str| receipt.contexts.iter().find(|account| account.child_id.as_str() == name).unwrap();
    let from = of("a").taken_from.as_ref().unwrap();
    assert_eq!((from.trace_id, from.child_id.as_str()), (earlier.trace.id(), "a"));
    assert_eq!((of("a").spent, of("a").attempts, of("a").wait.total_ms()), (Amount::ZERO, 0, 0));
    assert_eq!(of("b").taken_from, None);
    let said: Vec<&str> = receipt.lines.iter().map(|line| line.detail.as_str()).collect();
    let taken = format!("agent writer under root, taken from {}/a", earlier.trace.id());
    assert!(said.contains(&taken.as_str()), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("secret")), "{said:?}");
}

/// The log of a world, starting at a copy.
fn from_copy(world: &mut World, before_copy: usize) -> Vec<LogMessage> {
    log(world).split_off(before_copy)
}

#[test]
fn b19_the_lines_of_a_receipt_add_up_also_if_the_log_begins_with_a_copy() {
    let mut world = world_before_its_end();
    let before = log(&world).len();
    world.handle(Command::Copy { after_ms: 0 }).unwrap();
    let root = world.lease(&id("root"));
    world.pay(&root, "1-2", cents(6)).unwrap();
    world.complete(&root, "done").unwrap();
    let read = ReadLog::new(world.trace.id(), from_copy(&mut world, before));
    let receipt = Receipt::of(&read, &Ledger::of(&read), &Journals::default()).unwrap();
    accounts::check_sums(&receipt).unwrap();
}

#[test]
fn b18_a_disputed_part_explains_a_journal_also_if_the_log_begins_with_a_copy() {
    let mut world = World::with_root(json!({"max_cost_usd": 0.10}));
    let root = world.claim("root");
    // No hold exists for this cost: 10 cents are booked, 5 are disputed.
    world.settle(&root, "1-1", cents(15)).unwrap();
    let before = log(&world).len();
    world.handle(Command::Copy { after_ms: 0 }).unwrap();
    world.complete(&root, "done").unwrap();
    let entries = [entry("root", 1, 1, answer("1-1", 15, "test/small")), entry("root", 1, 2, ended())];
    assert_eq!(audited(&world, log(&world), &entries).1, []);
    let kept = from_copy(&mut world, before);
    assert_eq!(audited(&world, kept, &entries).1, []);
}

#[test]
fn b19_a_graph_that_was_paused_waits_for_its_steps_again_and_for_no_worker() {
    let step = |id: &str| json!({"id": id, "agent_id": "writer", "task_description": id});
    let mut world =
        World::with_graph(json!({"child_id": "root", "max_cost_usd": 0.10, "on_exhausted": "pause",
        "mode": "sequential", "steps": [step("a"), step("b")]}));
    let a = world.claim("a");
    world.pay(&a, "1-1", cents(10)).unwrap();
    world.complete(&a, "x").unwrap();
    assert_eq!(world.status("root"), "paused");
    world.pass(1000);
    world.raise("root", 100).unwrap();
    let b = world.claim("b");
    world.pass(5000);
    world.complete(&b, "y").unwrap();
    let read = ReadLog::new(world.trace.id(), log(&world));
    let receipt = Receipt::of(&read, &Ledger::of(&read), &Journals::default()).unwrap();
    let wait = receipt.contexts[0].wait;
    assert_eq!((wait.budget_ms, wait.worker_ms, wait.children_ms), (1000, 0, 5000));
    // Lines name steps by id, and omit fields that do not apply.
    let ended =
        receipt.lines.iter().filter(|line| line.what == "step_ended").map(|line| line.detail.as_str());
    assert_eq!(ended.collect::<Vec<_>>(), ["step a, status succeeded", "step b, status succeeded"]);
}

#[test]
fn b19_a_receipt_lists_an_amend_without_the_text_of_its_tasks() {
    let step = |id: &str, task: &str| json!({"id": id, "agent_id": "writer", "task_description": task});
    let mut world = World::with_graph(json!({"child_id": "root", "steps": [step("a", "t")]}));
    world.amend(None, "am-1", 0, json!({"steps": [step("a", "t"), step("b", "secret words")]})).unwrap();
    let read = ReadLog::new(world.trace.id(), log(&world));
    let receipt = Receipt::of(&read, &Ledger::of(&read), &Journals::default()).unwrap();
    assert!(!receipt.lines.iter().any(|line| line.detail.contains("secret")), "{:?}", receipt.lines);

    // Steps that an amend moved are not shown under the ids of the steps that took their places.
    let mut world = World::with_graph(
        json!({"child_id": "root", "mode": "parallel", "steps": [step("a", "t"), step("b", "t")]}),
    );
    let a = world.claim("a");
    world.complete(&a, "x").unwrap();
    let later = [step("new", "t"), step("a", "t"), step("b", "t")];
    world.amend(None, "am-1", 0, json!({"mode": "parallel", "steps": later})).unwrap();
    let read = ReadLog::new(world.trace.id(), log(&world));
    let receipt = Receipt::of(&read, &Ledger::of(&read), &Journals::default()).unwrap();
    let ended = receipt.lines.iter().find(|line| line.what == "step_ended").unwrap();
    assert_eq!(ended.detail, "step 0, status succeeded");
    let amended = receipt.lines.iter().find(|line| line.what == "amended").unwrap();
    assert!(!amended.detail.contains('{'), "{amended:?}");
}

#[test]
fn b19_an_audit_finds_a_store_that_is_ahead_behind_or_another() {
    let world = world();
    let read = ReadLog::new(world.trace.id(), log(&world));
    let stored = accounts::stored(&accounts::log(world.trace.id(), &world.orders).0).unwrap();
    let found = |change: fn(&mut StoreState)| {
        let mut store = stored.clone();
        change(&mut store);
        let audit = Audit::of(&read, &Ledger::of(&read), &journals(&entries()), Some(&store));
        audit.of_check(Check::Store).map(|finding| finding.message.clone()).collect::<Vec<_>>().join("")
    };
    assert_eq!(found(|_| ()), "");
    assert!(found(|store| store.version += 1).contains("the log only up to"));
    assert!(found(|store| store.version -= 1).contains("the store only up to"));
    assert!(found(|store| store.digest = "another".into()).contains("differs from the state"));
}

#[test]
fn b19_an_audit_finds_an_entry_that_is_in_a_journal_twice_and_one_of_no_context() {
    let world = world();
    let mut twice = entries();
    twice.insert(1, twice[0].clone());
    let (_, findings) = audited(&world, log(&world), &twice);
    assert!(has(&findings, Check::Journal, "entry 1 is in its journal twice"), "{findings:?}");
    let mut more = entries();
    more.push(entry("nobody", 1, 1, answer("1-1", 1, "test/large")));
    let (_, findings) = audited(&world, log(&world), &more);
    assert!(has(&findings, Check::Journal, "the log has no such context"), "{findings:?}");
}

#[test]
fn b10_b19_an_estimate_explains_an_entry_that_says_less() {
    let world = world();
    let mut told = entries();
    told[5] = entry("writer", 1, 2, answer("1-2", 6, "test/large"));
    let (audit, findings) = audited(&world, log(&world), &told);
    assert_eq!(findings, []);
    assert!(
        audit
            .notes
            .iter()
            .any(|note| note.contains("the booking was estimated or corrected to $0.20 and 0 tokens")),
        "{:?}",
        audit.notes
    );
    // A call that was booked at another amount than its journal has is not repriced.
    let read = ReadLog::new(world.trace.id(), log(&world));
    let free = |_: &domain::id::ModelName, _: &domain::wire::Usage| Some((Usd::ZERO, "free".to_owned()));
    let repriced = RepricedRun::of(read.trace(), &Ledger::of(&read), &journals(&told), free);
    assert_eq!(repriced.kept, Usd::from_cents(32));
}

#[test]
fn b19_the_time_that_a_human_took_is_named() {
    let mut world = World::with_root(json!({}));
    let root = world.claim("root");
    world.pass(100);
    world.ask_human(&root, "which?").unwrap();
    world.pass(700);
    world.answer("root", 1, "this").unwrap();
    world.pass(30);
    let root = world.claim("root");
    world.complete(&root, "done").unwrap();
    let read = ReadLog::new(world.trace.id(), log(&world));
    let wait = Receipt::of(&read, &Ledger::of(&read), &Journals::default()).unwrap().contexts[0].wait;
    assert_eq!((wait.ran_ms, wait.human_ms, wait.worker_ms), (100, 700, 30));
}
