//! A conversation read from a journal, and the content of its window.

use domain::{
    Amount, Timestamp,
    check::{CheckDecision, Moment},
    wire::{CallCost, CompactionKind},
};
use serde_json::json;

use super::*;

fn entry(number: u32, step: HistoryStep) -> HistoryEntry {
    HistoryEntry {
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        child_id: "root".parse().unwrap(),
        number,
        attempt: 1,
        at: Timestamp::from_millis(0),
        step,
    }
}

fn model_answer(text: &str, calls: &[&str]) -> HistoryStep {
    let call =
        |id: &&str| ToolCall { id: (*id).into(), tool: "fs.read".into(), arguments: Json::from(json!({})) };
    HistoryStep::Model(Box::new(ModelStep {
        call_id: "1-1".parse().unwrap(),
        model: "test/model".parse().unwrap(),
        cost: CallCost { amount: Amount::ZERO, estimated: false, prices: "none".into() },
        usage: None,
        sent: None,
        prompt: None,
        retries: 0,
        text: Some(text.into()),
        tool_calls: calls.iter().map(call).collect(),
        max_tokens: 10,
        cut_off: false,
        closing: false,
        asked: None,
        checks: Vec::new(),
        summary_of: None,
        unoffered: Vec::new(),
    }))
}

fn tool_answer(id: &str) -> HistoryStep {
    let output = ToolOutput::Inline(format!("answer to {id}"));
    let tool = "fs.read".parse().unwrap();
    HistoryStep::Tool(Box::new(ToolStep {
        id: id.into(),
        tool,
        output,
        is_error: false,
        note: None,
        checks: Vec::new(),
    }))
}

const TERMS: Terms = Terms { max_steps: 20, reads_files: true };

fn conversation(steps: Vec<HistoryStep>) -> Conversation {
    let entries: Vec<_> = (1..).zip(steps).map(|(number, step)| entry(number, step)).collect();
    Conversation::read(&entries, |step| Err(format!("no: {}", step.text.as_deref().unwrap_or_default())))
}

#[test]
fn w5_the_next_action_follows_from_the_journal_alone() {
    assert_eq!(conversation(vec![]).next(), Next::AskModel);
    let half = conversation(vec![model_answer("two", &["a", "b"]), tool_answer("a")]);
    let Next::CallTools(pending) = half.next() else { panic!("{half:?}") };
    // The second call of the first entry, the same in every attempt.
    assert_eq!((pending[0].call.id.as_str(), pending[0].place.as_str(), pending.len()), ("b", "1-2", 1));
    assert_eq!(conversation(vec![model_answer("one", &["a"]), tool_answer("a")]).next(), Next::AskModel);
    let last = conversation(vec![model_answer("one", &["a"]), tool_answer("a"), model_answer("done", &[])]);
    assert!(matches!(last.next(), Next::Judge(step) if step.text.as_deref() == Some("done")));
}

fn told(number: u32, text: &str) -> HistoryStep {
    let text = domain::wire::Text::new(text).unwrap();
    HistoryStep::Told(Box::new(domain::wire::PersonMessage { number: Some(number), text, by: None }))
}

fn rung(number: u32, action: RungAction) -> HistoryStep {
    let at = serde_json::from_value(json!(0.8)).unwrap();
    let (left_usd, left_tokens) = (Amount::ZERO.cost_usd, Amount::ZERO.tokens);
    HistoryStep::Rung(Box::new(ReachedRung { number, at, action, left_usd, left_tokens }))
}

/// The messages of a conversation without its last `leave` turns, each by its first words.
fn shown(conversation: &Conversation, leave: usize) -> Vec<String> {
    let mut window = Window::default();
    conversation.show(&mut window, TERMS, leave);
    let messages = window.fit(None, 0, Estimate::default()).unwrap();
    messages
        .iter()
        .map(|message| match message {
            Message::System(text) | Message::User(text) => text.clone(),
            Message::Assistant { text, .. } => text.clone().unwrap_or_default(),
            Message::Tool { content, .. } => content.clone(),
        })
        .collect()
}

#[test]
fn g13_a_message_has_its_place_between_turns_behind_the_answers_of_tools() {
    let steps = vec![
        told(1, "before all"),
        model_answer("two", &["a", "b"]),
        tool_answer("a"),
        told(2, "early"),
        tool_answer("b"),
        model_answer("no", &[]),
        told(3, "late"),
    ];
    let read = conversation(steps);
    assert_eq!(read.next(), Next::Judge(&read.turns[1].step), "a message answers nothing");
    let first = "A message from the operator: before all";
    let (early, late) = ("A message from the operator: early", "A message from the operator: late");
    let before = [first, "two", "answer to a", "answer to b", early];
    assert_eq!(shown(&read, 1), before, "the window equals that of the last call");
    assert_eq!(shown(&read, 0), [&before[..], &["no", late]].concat());
    assert_eq!((read.steps(), read.answers()), (2, 2), "a message is not a step");
}

#[test]
fn b21_rungs_change_the_model_report_the_remaining_budget_and_ask_for_compaction() {
    let read = conversation(vec![model_answer("one", &["a"]), tool_answer("a")]);
    assert_eq!((read.last_rung(), read.model(), read.wants_compaction()), (0, None, false));
    let small: ModelName = "small".parse().unwrap();
    let rungs = [RungAction::Tell, RungAction::Model(small.clone()), RungAction::Compact];
    let read = conversation((1..).zip(rungs).map(|(number, action)| rung(number, action)).collect());
    assert_eq!((read.last_rung(), read.model(), read.wants_compaction()), (3, Some(&small), true));
    let told = shown(&read, 0);
    assert!(
        told.len() == 1 && told[0].starts_with("Your budget: 80 % is spent; left: $0.00 and 0 tokens."),
        "{told:?}"
    );
}

#[test]
fn l_a_step_is_a_tool_call_or_an_invalid_answer() {
    let steps = vec![
        model_answer("two", &["a", "b"]),
        tool_answer("a"),
        tool_answer("b"),
        model_answer("no", &[]),
        model_answer("yes", &[]),
    ];
    assert_eq!(conversation(steps).steps(), 3);
}

#[test]
fn w5_another_worker_repeats_the_correction_to_the_model() {
    let mut window = Window::default();
    conversation(vec![model_answer("no", &[]), model_answer("yes", &[])]).show(&mut window, TERMS, 0);
    let messages = window.fit(None, 0, Estimate::default()).unwrap();
    assert_eq!(messages[1], Message::User("no: no".into()));
    assert_eq!(messages.len(), 3);
}

fn summary(to: u32, text: &str) -> HistoryStep {
    let HistoryStep::Model(mut step) = model_answer(text, &[]) else { unreachable!("a model's answer") };
    step.summary_of = Some(to);
    HistoryStep::Model(step)
}

fn shown_text(conversation: &Conversation) -> String {
    let mut window = Window::default();
    conversation.show(&mut window, TERMS, 0);
    format!("{:?}", window.fit(None, 0, Estimate::default()).unwrap())
}

#[test]
fn w7_a_summary_replaces_its_entries_and_is_neither_a_step_nor_an_answer() {
    let exchange = |id: &str| [model_answer(&format!("asked {id}"), &[id]), tool_answer(id)];
    let steps: Vec<_> = ["a", "b", "c"].into_iter().flat_map(exchange).collect();
    let whole = conversation(steps.clone());
    let summed = conversation([steps.clone(), vec![summary(4, "a and b were read")]].concat());
    assert_eq!((summed.steps(), summed.answers()), (whole.steps(), whole.answers()));
    assert_eq!(summed.next(), Next::AskModel);
    let text = shown_text(&summed);
    assert!(text.contains("a and b were read") && text.contains("steps 1 to 4 are summarised"), "{text}");
    assert!(
        !text.contains("asked a") && !text.contains("answer to b") && text.contains("answer to c"),
        "{text}"
    );
    // The next summary includes this one, and replaces it.
    let transcript = summed.transcript(TERMS, 6, |_| {}).join("\n");
    assert!(transcript.contains("a and b were read") && transcript.contains("answer to c"), "{transcript}");
    let more = exchange("d").to_vec();
    let again =
        [steps.clone(), vec![summary(4, "a and b were read")], more, vec![summary(6, "all")]].concat();
    let text = shown_text(&conversation(again));
    assert!(text.contains("all") && !text.contains("a and b") && text.contains("answer to d"), "{text}");
    // With an empty summary, the prompt still names the hidden steps.
    let text = shown_text(&conversation([steps, vec![summary(4, " ")]].concat()));
    assert!(text.contains("steps 1 to 4, 2 answers of yours") && text.contains("no longer shown"), "{text}");
}

#[test]
fn w7_a_message_to_the_agent_stays_when_the_exchange_before_it_is_gone() {
    let exchange = |id: &str| [model_answer(&format!("asked {id}"), &[id]), tool_answer(id)];
    let steps = [&exchange("a")[..], &[told(1, "use tulips")], &exchange("b")].concat();
    for gone in
        [summary(3, "a was read"), HistoryStep::Compacted { from: 1, to: 3, how: CompactionKind::Dropped }]
    {
        let text = shown_text(&conversation([steps.clone(), vec![gone]].concat()));
        assert!(!text.contains("asked a") && text.contains("use tulips"), "{text}");
        assert!(text.find("use tulips") < text.find("asked b"), "the message has another place: {text}");
    }
}

#[test]
fn b16_a_denied_summary_replaces_nothing() {
    let HistoryStep::Model(mut step) = summary(2, "a was read") else { unreachable!("a model's answer") };
    let (moment, decision) = (Moment::AfterCall, CheckDecision::Deny);
    step.checks.push(CheckedStep {
        check: "no-tulips".parse().unwrap(),
        moment,
        decision,
        reason: None,
        place: None,
        asked: false,
        changed: Default::default(),
        judged: Default::default(),
    });
    let steps = vec![model_answer("asked a", &["a"]), tool_answer("a"), HistoryStep::Model(step)];
    let denied = conversation(steps);
    assert_eq!((denied.answers(), denied.next()), (1, Next::AskModel));
    let text = shown_text(&denied);
    assert!(text.contains("asked a") && !text.contains("a was read"), "{text}");
}

#[test]
fn b21_a_rung_asks_for_a_smaller_window_until_it_was_compacted() {
    let mut steps = vec![model_answer("asked a", &["a"]), tool_answer("a"), rung(1, RungAction::Compact)];
    assert!(conversation(steps.clone()).wants_compaction());
    steps.push(HistoryStep::Compacted { from: 1, to: 2, how: CompactionKind::References });
    assert!(!conversation(steps).wants_compaction());
}

#[test]
fn w7_dropped_exchanges_and_references_are_named_in_the_prompt() {
    let long = |id: &str| {
        let output = ToolOutput::Inline(format!("{id} ").repeat(200));
        let tool = "fs.read".parse().unwrap();
        let (id, checks) = (id.to_owned(), Vec::new());
        HistoryStep::Tool(Box::new(ToolStep { id, tool, output, is_error: false, note: None, checks }))
    };
    let exchange = |id: &str| [model_answer(&format!("asked {id}"), &[id]), long(id)];
    let steps: Vec<_> = ["a", "b", "c"].into_iter().flat_map(exchange).collect();
    let dropped = HistoryStep::Compacted { from: 1, to: 2, how: CompactionKind::Dropped };
    let text = shown_text(&conversation([steps.clone(), vec![dropped.clone()]].concat()));
    assert!(!text.contains("asked a") && text.contains("asked b"), "{text}");
    assert!(
        text.contains("steps 1 to 2, 1 answers of yours with their tool outputs, are no longer shown"),
        "{text}"
    );
    let more = HistoryStep::Compacted { from: 3, to: 4, how: CompactionKind::Dropped };
    let text = shown_text(&conversation([steps.clone(), vec![dropped, more]].concat()));
    assert!(text.contains("steps 1 to 4, 2 answers") && text.contains("asked c"), "{text}");
    let referred = HistoryStep::Compacted { from: 1, to: 4, how: CompactionKind::References };
    let referred = conversation([steps.clone(), vec![referred]].concat());
    let text = shown_text(&referred);
    assert!(
        text.contains(
            "[output of `fs.read`, 400 bytes, no longer shown; `fs.read` shows `history/step_002.json`]"
        ),
        "{text}"
    );
    assert!(text.contains("asked a") && !text.contains("a a a") && text.contains("c c c"), "{text}");
    let exchanges = referred.exchanges(TERMS, Estimate::default());
    assert_eq!((exchanges.len(), exchanges[0].first, exchanges[2].last), (3, 1, 6));
    assert!(
        exchanges[0].tokens == exchanges[0].as_references && exchanges[2].tokens > exchanges[2].as_references
    );
}

#[test]
fn l_the_model_gets_a_note_when_few_steps_are_left() {
    let exchange = |id: &str| [model_answer("", &[id]), tool_answer(id)];
    let steps: Vec<_> = ["a", "b", "c"].into_iter().flat_map(exchange).collect();
    let mut window = Window::default();
    let terms = Terms { max_steps: 5, ..TERMS };
    conversation(steps).show(&mut window, terms, 0);
    let text = format!("{:?}", window.fit(None, 0, Estimate::default()).unwrap());
    assert!(
        !text.contains("[4 of 5 steps") && text.contains("answer to b\\n[3 of 5 steps are left"),
        "{text}"
    );
    assert!(text.contains("[2 of 5 steps are left"), "{text}");
}
