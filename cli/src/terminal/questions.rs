//! The questions of a run, answered at the terminal, by `--answer`, or by another process.

use std::{
    collections::{BTreeSet, VecDeque},
    io::IsTerminal,
};

use anyhow::Context;
use client::{Client, questions};
use domain::{
    ChildId, TraceId,
    wire::{Form, Question, Text},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines, Stdin},
    sync::mpsc,
};

use crate::terminal::{display::flat, output};

/// The refusal code of an answer to a question that already has one.
const NO_LONGER_OPEN: &str = "no_question";

/// The longest choice, in characters, that is suggested as a word to type.
const MAX_SHOWN: usize = 40;

/// The source of the answers to a run's questions.
#[derive(Clone)]
pub(crate) enum Answerer {
    /// `--answer`: the same text for every question.
    Told(Text),
    /// The user at this terminal.
    Terminal,
    /// Another process answers, with `trellis answer`.
    Elsewhere,
    /// No answer is possible, because the run is in this process and stdin is not a terminal. A
    /// question cancels the run.
    Nobody,
    /// The user of `trellis dev`, whose terminal also takes submissions. Several runs share it, so
    /// their questions are asked one at a time.
    Desk(mpsc::Sender<Question>),
}

impl Answerer {
    /// Chooses the source. `stdin_taken`: stdin contains the task, not answers.
    pub(crate) fn is(told: Option<Text>, embedded: bool, stdin_taken: bool) -> Self {
        match told {
            Some(text) => Answerer::Told(text),
            None if std::io::stdin().is_terminal() && !stdin_taken => Answerer::Terminal,
            None if embedded => Answerer::Nobody,
            None => Answerer::Elsewhere,
        }
    }
}

pub(crate) struct Questions {
    who: Answerer,
    /// The questions that were shown or answered.
    seen: BTreeSet<(ChildId, u32)>,
    /// The question that the user is asked now.
    asking: Option<Question>,
    lines: Option<Lines<BufReader<Stdin>>>,
}

impl Questions {
    pub(crate) fn new(who: Answerer) -> Self {
        Questions { who, seen: BTreeSet::new(), asking: None, lines: None }
    }

    pub(crate) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    pub(crate) fn has_news(&self, questions: &[Question]) -> bool {
        questions.iter().any(|question| !self.seen.contains(&(question.child_id.clone(), question.number)))
    }

    /// Shows or answers new questions. Each question is handled once.
    pub(crate) async fn ask(&mut self, client: &Client, questions: Vec<Question>) -> anyhow::Result<()> {
        let is_open = |asked: &Question| questions.iter().any(|open| is_same(open, asked));
        if self.asking.as_ref().is_some_and(|asking| !is_open(asking)) {
            output::ask("(the question was answered elsewhere, or is no longer open)");
            self.asking = None;
        }
        // A log is read from its start, so a question in it may have an answer by now.
        let mut still_open = None;
        for question in questions {
            let key = (question.child_id.clone(), question.number);
            if self.seen.contains(&key) || self.asking.is_some() {
                continue;
            }
            self.seen.insert(key);
            let open = match still_open.take() {
                Some(open) => open,
                None => open_now(client, question.trace_id).await?,
            };
            let is_open = open.as_ref().is_none_or(|open| open.iter().any(|open| is_same(open, &question)));
            still_open = Some(open);
            if !is_open {
                continue;
            }
            if let Answerer::Desk(desk) = &self.who {
                // The receiver of a closed desk is gone; the question is dropped.
                desk.send(question).await.ok();
                continue;
            }
            show(&question);
            let Question { trace_id, child_id, number, .. } = &question;
            match &self.who {
                Answerer::Told(text) => {
                    let answer = in_form(&question.form, text.clone());
                    if let Err(refusal) = client.answer(&question, answer, None).await?
                        && refusal.code != NO_LONGER_OPEN
                    {
                        anyhow::bail!(
                            "--answer does not answer it: {}\n\nhint: `trellis answer {trace_id}/{child_id} TEXT` answers one question",
                            refusal.message
                        );
                    }
                }
                Answerer::Terminal => {
                    output::ask("type the answer and press enter:");
                    self.listen();
                    self.asking = Some(question);
                }
                Answerer::Elsewhere => output::ask(&format!(
                    "answer it with: trellis answer {trace_id}/{child_id} --question {number} {}",
                    example(&question.form)
                )),
                Answerer::Desk(_) => {}
                Answerer::Nobody => {
                    output::ask(
                        "the run is cancelled: its question needs an answer, and stdin is not a terminal\n\nhint: give --answer TEXT, or \
                set `hitl: fail` for the step",
                    );
                    let reason = Text::new("an agent asked a question, and stdin is not a terminal").ok();
                    client.cancel(*trace_id, None, reason, false).await?;
                }
            }
        }
        Ok(())
    }

    /// Starts reading the lines that the user types.
    pub(crate) fn listen(&mut self) {
        self.lines.get_or_insert_with(|| BufReader::new(tokio::io::stdin()).lines());
    }

    /// Waits for a line from the user. Waits forever if no question is open and `wanted` is false.
    /// Cancel-safe.
    pub(crate) async fn typed(&mut self, wanted: bool) -> anyhow::Result<Option<String>> {
        match &mut self.lines {
            Some(lines) if self.asking.is_some() || wanted => {
                lines.next_line().await.context("could not read stdin")
            }
            Some(_) | None => std::future::pending().await,
        }
    }

    pub(crate) async fn answer(&mut self, client: &Client, typed: Option<String>) -> anyhow::Result<()> {
        let Some(question) = self.asking.take() else { return Ok(()) };
        let Some(typed) = typed else {
            output::ask("stdin has ended: answer with `trellis answer`");
            self.who = Answerer::Elsewhere;
            self.seen.remove(&(question.child_id, question.number));
            return Ok(());
        };
        let why = match Text::new(typed.trim()) {
            Ok(text) => match client.answer(&question, in_form(&question.form, text), None).await? {
                Ok(()) => return Ok(()),
                Err(refusal) if refusal.code == NO_LONGER_OPEN => return Ok(()),
                Err(refusal) => refusal.message,
            },
            Err(why) => why,
        };
        output::ask(&format!("{why}\ntype the answer and press enter:"));
        self.asking = Some(question);
        Ok(())
    }
}

/// The questions that are open at the end of a run's log; `None` if the log can't be replayed.
async fn open_now(client: &Client, trace_id: TraceId) -> anyhow::Result<Option<Vec<Question>>> {
    let trace = client.find(trace_id).await?;
    Ok(trace.filter(|trace| trace.root().is_some()).map(|trace| questions(&trace)))
}

/// Prints the question with its path, and the form of its answer.
fn show(question: &Question) {
    let path: Vec<&str> = question.path.iter().map(ChildId::as_str).collect();
    output::ask(&format!("question from {}: {}", path.join(" › "), question.question));
    let expected = expected(question);
    if !expected.is_empty() {
        output::ask(expected.trim_end());
    }
}

/// The questions of several runs at one terminal, asked one after another.
#[derive(Default)]
pub(crate) struct Desk {
    waiting: VecDeque<Question>,
}

impl Desk {
    /// Asks the question, or queues it behind the open ones.
    pub(crate) fn take(&mut self, question: Question) {
        self.waiting.push_back(question);
        if self.waiting.len() == 1 {
            self.ask();
        }
    }

    pub(crate) fn is_asking(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn ask(&self) {
        if let Some(question) = self.waiting.front() {
            show(question);
            output::ask("type the answer and press enter:");
        }
    }

    /// Sends a line as the answer to the current question. An invalid answer is asked for again; an
    /// answer to a closed question is dropped.
    pub(crate) async fn answer(&mut self, client: &Client, typed: &str) -> anyhow::Result<()> {
        let Some(question) = self.waiting.front() else { return Ok(()) };
        let why = match Text::new(typed) {
            Ok(text) => match client.answer(question, in_form(&question.form, text), None).await? {
                Ok(()) => None,
                Err(refusal) if refusal.code == NO_LONGER_OPEN => {
                    Some("(the question was answered elsewhere, or is no longer open)".to_owned())
                }
                Err(refusal) => {
                    output::ask(&format!("{}\ntype the answer and press enter:", refusal.message));
                    return Ok(());
                }
            },
            Err(why) => {
                output::ask(&format!("{why}\ntype the answer and press enter:"));
                return Ok(());
            }
        };
        why.iter().for_each(|why| output::ask(why));
        self.waiting.pop_front();
        self.ask();
        Ok(())
    }
}

/// True if both are the same question. A reminder repeats a question.
pub(crate) fn is_same(one: &Question, other: &Question) -> bool {
    (&one.child_id, one.number) == (&other.child_id, other.number)
}

/// The form of an answer, and what happens without one, in lines. Empty if any text will do.
pub(crate) fn expected(question: &Question) -> String {
    let Question { form, answer_by, .. } = question;
    let mut text = String::new();
    // Agents wrote these texts, which may contain line breaks and control characters.
    let shown = flat;
    if let Some(who) = &form.who {
        text.push_str(&format!("  for {}\n", shown(who.as_str())));
    }
    for (number, choice) in (1..).zip(&form.choices) {
        text.push_str(&format!("  {number}  {}\n", shown(choice.as_str())));
    }
    if form.approval || form.schema.is_some() {
        text.push_str(&format!("  answer {}\n", shown(&form.expected())));
    }
    if let Some(by) = answer_by {
        let then = match &form.default {
            Some(default) => format!("the answer is `{}`", shown(default.as_str())),
            None => "the step fails".into(),
        };
        text.push_str(&format!("  without an answer by {by}, {then}\n"));
    }
    text
}

/// An answer as it is typed in a shell, with the alternatives.
pub(crate) fn example(form: &Form) -> String {
    // The user types the answer in a shell, so a choice with special characters is given by its
    // number.
    let is_plain = |text: &str| {
        text.chars().count() <= MAX_SHOWN
            && text.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '.' | ',' | '-' | '_'))
    };
    let choice = |(number, choice): (usize, &Text)| {
        if is_plain(choice.as_str()) { format!("'{choice}'") } else { number.to_string() }
    };
    let mut answers: Vec<String> = (1..).zip(&form.choices).map(choice).collect();
    if form.approval && answers.is_empty() {
        answers.push("approve".into());
    }
    if form.approval {
        answers.push("'deny: REASON'".into());
    }
    match answers.split_first() {
        None if form.schema.is_some() => "'JSON'".into(),
        None => "'TEXT'".into(),
        Some((first, [])) => first.clone(),
        Some((first, others)) => format!("{first}   (or {})", others.join(", ")),
    }
}

/// The answer that the user means. A choice may be given by its number, and its case is ignored.
pub(crate) fn in_form(form: &Form, typed: Text) -> Text {
    let is_typed = |choice: &&Text| choice.as_str().eq_ignore_ascii_case(typed.as_str().trim());
    let numbered = || form.choices.get(typed.as_str().trim().parse::<usize>().ok()?.checked_sub(1)?);
    form.choices.iter().find(is_typed).or_else(numbered).cloned().unwrap_or(typed)
}
