//! Programs as agents. A program is started in a sandbox, told what to do, and answered what it asks: its
//! tools and its model are the worker's, so that it never sees a key and can't spend past its budget.
//! Every answer is written down; a program that has to be started again gets the same ones.

mod launch;
mod message;
mod replay;

use std::{sync::Arc, time::Duration};

use shared::{
    Amount, CallId, Json,
    wire::{Failure, FailureKind, HistoryStep, ModelStep, Payload, Said, ToolOutput, ToolStep, Verdict},
};

use super::{Run, again, failed};
use crate::{
    agent::journaled as finish,
    attempt::live_output::Voice,
    billing::model_call::{self as paid, Paid, Question, Short},
    crash::Point,
    files::tool_output as offload,
    files::workspace::Workspace,
    journal::Journal,
    model::{Cue, ToolSpec},
    sandbox::{Event, Program},
    tool::{Invocation, Observation, Outcome},
};
use message::{Answer, Heard, Line, ModelAsk, Start, ToolAsk, hear};
use replay::Replay;

/// How long a program may go on once it has told its result.
const GRACE: Duration = Duration::from_secs(2);
/// The most it may write in all.
const MOST_OUTPUT: usize = 16 << 20;
/// What of its standard error is told when it fails.
const LAST_LINES: usize = 12;
/// By convention: it failed for now, and may be tried again.
const TRY_AGAIN: i32 = 75;

pub(super) async fn run(run: &Run<'_>) -> Verdict {
    let (journal, workspace) = match super::begin(run).await {
        // Held by the program as well: it goes when both have let go.
        Ok((journal, workspace)) => (journal, Arc::new(workspace)),
        Err(verdict) => return verdict,
    };
    let entries = journal.entries();
    let mut replay = Replay::of(&entries);
    if let Some(result) = replay.result.take() {
        return result.verdict;
    }
    offload::restore(run, &workspace, &entries).await;
    run.counters.change(|progress| progress.retries = progress.retries.max(replay.retries));
    run.equipment.toolbox.ready(run).await;
    let tools = run.equipment.toolbox.specs(run);
    let (verdict, report) = match launch::start(run, &workspace, &tools).await {
        Ok(program) => {
            let report = program.report.clone();
            let (journal, workspace) = (&journal, &workspace);
            let mut session = Session { run, journal, workspace, program, replay, steps: 0, questions: 0 };
            session.begin(&tools);
            (session.talk().await, Some(report))
        }
        Err((verdict, report)) => (verdict, report),
    };
    finish::finish(run, &journal, &workspace, verdict, report).await
}

/// A program at work.
struct Session<'a> {
    run: &'a Run<'a>,
    journal: &'a Journal<'a>,
    workspace: &'a Workspace,
    program: Program,
    replay: Replay,
    /// What it has asked so far.
    steps: u32,
    /// How often it has asked a human.
    questions: usize,
}

/// What becomes of a question.
enum Answered {
    With(Answer),
    /// The context ends or parks instead, and the program with it.
    Over(Verdict),
}

impl Session<'_> {
    fn begin(&mut self, tools: &[ToolSpec]) {
        let start = serde_json::to_vec(&Start::new(self.run.work, tools)).expect("plain fields");
        self.program.tell(&start);
        if tools.is_empty() && self.run.work.model.is_none() {
            // Nothing it asks for will be given: programs that read all they get are not kept waiting.
            self.program.told_all();
        }
    }

    async fn talk(&mut self) -> Verdict {
        let mut plain: Vec<u8> = Vec::new();
        let mut written = 0;
        loop {
            let line = match self.program.event().await {
                Event::Line(line) => line,
                Event::TooLong => {
                    return self
                        .over(limit(format!("it wrote a line of more than {} bytes", crate::sandbox::LINE)))
                        .await;
                }
                Event::Ended(status) => return self.ended(status.code(), &plain),
            };
            written += line.len();
            if written > MOST_OUTPUT {
                return self.over(limit(format!("it wrote more than {MOST_OUTPUT} bytes"))).await;
            }
            let answered = match hear(&line) {
                Heard::Plain => {
                    plain.extend(line);
                    continue;
                }
                Heard::Bad { id, why } => Answered::With(problem(id, why)),
                Heard::Line(Line::Progress { message }) => {
                    let voice = Voice::new(self.run, self.journal.next_number());
                    voice.say(Said::Progress { message }).await;
                    continue;
                }
                Heard::Line(Line::Cost { key, usd, tokens }) => {
                    let amount = Amount::new(usd.unwrap_or_default(), tokens.unwrap_or_default());
                    self.charge(&key, amount).await;
                    continue;
                }
                Heard::Line(Line::Tool(ask)) => self.step(Ask::Tool(ask)).await,
                Heard::Line(Line::Model(ask)) => self.step(Ask::Model(ask)).await,
                Heard::Line(Line::Result { result }) => {
                    return self.finished(Verdict::Completed(Payload::Inline(result))).await;
                }
                Heard::Line(Line::Failed { message, retryable }) => {
                    let kind = FailureKind::Agent;
                    return self.finished(Verdict::Failed(Failure { kind, message, retryable })).await;
                }
            };
            match answered {
                Answered::With(answer) => {
                    self.program.tell(&serde_json::to_vec(&answer).expect("plain fields"));
                }
                Answered::Over(verdict) => return self.over(verdict).await,
            }
        }
    }

    /// Each question is a step (L).
    async fn step(&mut self, ask: Ask) -> Answered {
        let most = self.run.work.limits.max_steps;
        if self.steps >= most {
            return Answered::Over(limit(format!("max_steps: {} of {most}", self.steps)));
        }
        self.steps += 1;
        let steps = self.steps;
        self.run.counters.change(|progress| progress.steps = progress.steps.max(steps));
        match ask {
            Ask::Tool(ask) => self.tool(ask).await,
            Ask::Model(ask) => self.model(ask).await,
        }
    }

    async fn tool(&mut self, ask: ToolAsk) -> Answered {
        let asked = ask.name();
        let place = self.replay.place(&asked);
        let questions_before = self.questions;
        if ask.tool == "ask_human" {
            self.questions += 1;
        }
        if let Some(step) = self.replay.tool(&asked) {
            if ask.tool == "fs.write" && !step.is_error {
                // The answer is old, the workspace is new. At this point of the program, as the first time:
                // it may write to the same file itself.
                offload::write_again(self.workspace, &ask.arguments);
            }
            let text = self.text(&step.output);
            return Answered::With(Answer {
                id: Some(ask.id),
                text,
                is_error: step.is_error,
                ..Answer::default()
            });
        }
        let invocation = Invocation {
            run: self.run,
            workspace: self.workspace,
            tool: &ask.tool,
            arguments: &ask.arguments,
            place: &place,
            shareable: &[],
            questions_before,
        };
        let voice = Voice::new(self.run, self.journal.next_number());
        voice.say(Said::Tool { tool: ask.tool.clone() }).await;
        let outcome = self.run.equipment.toolbox.call(invocation).await;
        self.run.config.crash.pass(Point::Called);
        match outcome {
            Outcome::Said(Observation { tool, text, is_error, note }) => {
                let number = self.journal.next_number();
                let output = offload::offload(self.run, self.workspace, number, text.clone()).await;
                self.append(HistoryStep::Tool(Box::new(ToolStep {
                    id: asked,
                    tool,
                    output,
                    is_error,
                    note,
                })))
                .await;
                Answered::With(Answer { id: Some(ask.id), text, is_error, ..Answer::default() })
            }
            Outcome::Waits { child } => {
                Answered::Over(Verdict::Waiting { children: vec![child], hand_over: false })
            }
            Outcome::HandsOver { child } => {
                Answered::Over(Verdict::Waiting { children: vec![child], hand_over: true })
            }
            Outcome::Asks { question } => Answered::Over(Verdict::InputRequired { question }),
        }
    }

    async fn model(&mut self, ask: ModelAsk) -> Answered {
        let (work, asked) = (self.run.work, ask.name());
        if let Some(step) = self.replay.model(&asked) {
            return Answered::With(completion(ask.id, &step));
        }
        let most = work.limits.max_tokens_per_step;
        let said = self.journal.entries();
        let question = Question {
            messages: &ask.messages(),
            tools: &[],
            output_schema: ask.output_schema.as_ref(),
            max_tokens: ask.max_tokens.unwrap_or(most).min(most),
            closing: false,
            before: None,
            left_out: false,
            script: Some(Cue {
                turns: &work.agent.script,
                goal: work.goal.as_str(),
                inputs: &work.inputs,
                answered: said.iter().filter(|entry| matches!(entry.step, HistoryStep::Model(_))).count(),
                closing: false,
            }),
            asked: Some(&asked),
        };
        match paid::call(self.run, self.journal, &question).await {
            Paid::Answered(step) => {
                if let Some(entry) = self.journal.last() {
                    self.note(&entry);
                }
                Answered::With(completion(ask.id, &step))
            }
            Paid::Short(Short { pause: true, .. }) => Answered::Over(Verdict::OutOfBudget),
            // It may make do with what it has.
            Paid::Short(Short { why, .. }) => Answered::With(problem(Some(ask.id), why)),
            Paid::Failed(failure) if failure.kind == FailureKind::LimitExceeded => {
                Answered::Over(Verdict::Failed(failure))
            }
            Paid::Failed(failure) => Answered::With(problem(Some(ask.id), failure.message)),
        }
    }

    /// Booked once, however often it is told and in how many attempts: the key names it.
    async fn charge(&self, key: &str, amount: Amount) {
        let name = message::named(&serde_json::json!(["cost", key]));
        let call_id = CallId::new(&format!("external-{name}")).expect("letters, a dash and hex digits");
        self.run.meter.settle(&call_id, amount.into()).await;
    }

    async fn append(&self, step: HistoryStep) {
        let entry = self.journal.append(step).await;
        self.note(&entry);
    }

    fn note(&self, entry: &shared::wire::HistoryEntry) {
        if let Err(error) = self.workspace.note(entry) {
            tracing::warn!(%error, "a step is not in the workspace's history");
        }
    }

    /// The whole of what a tool said: what was put aside is back in the workspace.
    fn text(&self, output: &ToolOutput) -> String {
        match output {
            ToolOutput::Inline(text) => text.clone(),
            ToolOutput::Offloaded { path, preview, .. } => {
                std::fs::read_to_string(self.workspace.path().join(path)).unwrap_or_else(|_| preview.clone())
            }
        }
    }

    /// It has said how it ended, and may still tidy up.
    async fn finished(&mut self, verdict: Verdict) -> Verdict {
        self.program.told_all();
        let ended =
            async { while !matches!(self.program.event().await, Event::Ended(_) | Event::TooLong) {} };
        if tokio::time::timeout(GRACE, ended).await.is_ok() {
            return verdict;
        }
        self.over(verdict).await
    }

    /// Ends it, and waits until nothing of it is left.
    async fn over(&mut self, verdict: Verdict) -> Verdict {
        self.program.terminate();
        self.program.drain().await;
        verdict
    }

    /// It ended without a word, or with plain ones.
    fn ended(&self, code: Option<i32>, plain: &[u8]) -> Verdict {
        if let Some(what) = self.program.exceeded() {
            return limit(format!("the sandbox ended it: {what}"));
        }
        if let Some(why) = self.program.broken() {
            return failed(why);
        }
        let code = code.unwrap_or_default();
        if code == 0 {
            let text = String::from_utf8_lossy(plain);
            return Verdict::Completed(Payload::Inline(Json::from(text.trim_end())));
        }
        let how = match code {
            129..=192 => format!("was ended by signal {}", code - 128),
            _ => format!("ended with {code}"),
        };
        let said = self.program.last_words(LAST_LINES);
        let message =
            if said.is_empty() { format!("the program {how}") } else { format!("the program {how}: {said}") };
        Verdict::Failed(Failure { kind: FailureKind::Agent, message, retryable: code == TRY_AGAIN })
    }
}

enum Ask {
    Tool(ToolAsk),
    Model(ModelAsk),
}

fn completion(id: String, step: &ModelStep) -> Answer {
    Answer {
        id: Some(id),
        text: step.text.clone().unwrap_or_default(),
        is_error: false,
        usage: step.usage,
        cost_usd: Some(step.cost.amount.cost_usd),
    }
}

fn problem(id: Option<String>, text: String) -> Answer {
    Answer { id, text, is_error: true, ..Answer::default() }
}

fn limit(message: String) -> Verdict {
    Verdict::Failed(Failure { kind: FailureKind::LimitExceeded, message, retryable: false })
}
