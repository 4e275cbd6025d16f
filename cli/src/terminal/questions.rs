//! The questions of a run, answered at the terminal, by `--answer`, or elsewhere.

use std::{collections::BTreeSet, io::IsTerminal};

use anyhow::Context;
use shared::{
    ChildId,
    bus::Bus,
    wire::{Question, Text},
};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use crate::{cluster::client, terminal::output};

/// Who answers the questions of a run.
pub(crate) enum Answerer {
    /// `--answer`: the same text for every question.
    Told(Text),
    /// The user at this terminal.
    Terminal,
    /// Somebody else, with `trellis answer`.
    Elsewhere,
    /// Nobody: the run is in this process, and stdin is no terminal.
    Nobody,
}

impl Answerer {
    /// `stdin_taken`: stdin holds the task, not answers.
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
    /// Questions that were shown or answered.
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

    /// Shows or answers new questions. A second answer to the same question changes nothing.
    pub(crate) async fn ask(&mut self, bus: &Bus, questions: Vec<Question>) -> anyhow::Result<()> {
        if self.asking.as_ref().is_some_and(|asking| !questions.contains(asking)) {
            output::note("(the question was answered elsewhere, or is no longer open)");
            self.asking = None;
        }
        for question in questions {
            let key = (question.child_id.clone(), question.number);
            if self.seen.contains(&key) || self.asking.is_some() {
                continue;
            }
            self.seen.insert(key);
            let path: Vec<&str> = question.path.iter().map(ChildId::as_str).collect();
            output::note(&format!("question from {}: {}", path.join(" › "), question.question));
            let Question { trace_id, child_id, number, .. } = &question;
            match &self.who {
                Answerer::Told(text) => client::answer(bus, &question, text.clone()).await?,
                Answerer::Terminal => {
                    output::note("type the answer and press enter:");
                    self.lines.get_or_insert_with(|| BufReader::new(tokio::io::stdin()).lines());
                    self.asking = Some(question);
                }
                Answerer::Elsewhere => output::note(&format!(
                    "answer it with: trellis answer {trace_id} {child_id} --question {number} 'TEXT'"
                )),
                Answerer::Nobody => {
                    output::note(
                        "the run is cancelled: nobody can answer, because stdin is not a terminal\n\nhint: give --answer TEXT, or set `hitl: fail` for the step",
                    );
                    let reason = Text::new("an agent asked a question that nobody can answer").ok();
                    client::cancel(bus, *trace_id, None, reason).await?;
                }
            }
        }
        Ok(())
    }

    /// The line that the user typed; never, if no question is asked. Cancel-safe.
    pub(crate) async fn typed(&mut self) -> anyhow::Result<Option<String>> {
        match &mut self.lines {
            Some(lines) if self.asking.is_some() => lines.next_line().await.context("could not read stdin"),
            Some(_) | None => std::future::pending().await,
        }
    }

    pub(crate) async fn answer(&mut self, bus: &Bus, typed: Option<String>) -> anyhow::Result<()> {
        let Some(question) = self.asking.take() else { return Ok(()) };
        let Some(typed) = typed else {
            output::note("stdin has ended: answer with `trellis answer`");
            self.who = Answerer::Elsewhere;
            self.seen.remove(&(question.child_id, question.number));
            return Ok(());
        };
        match Text::new(typed.trim()) {
            Ok(text) => client::answer(bus, &question, text).await,
            Err(why) => {
                output::note(&format!("{why}; type the answer and press enter:"));
                self.asking = Some(question);
                Ok(())
            }
        }
    }
}
