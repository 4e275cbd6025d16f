//! A session with a program: reads its lines, answers its requests, and returns its verdict.

use std::{sync::Arc, time::Duration};

use domain::{
    Amount, CallId, Json,
    wire::{
        self, CALL_CONFLICT, Failure, FailureKind, ModelStep, Said, SeenNumbers, ToolOutput, Verdict,
        exhausted,
    },
};
use serde_json::Value;
use text::set_limit::{SetLimit, UsedLimit};

use super::{
    exit::Exit,
    hint, launch,
    message::{self, Answer, ModelRequest, ParsedLine, ProgramMessage, Start, ToolRequest, parse_line},
    replay::Replay,
};
use crate::{
    agent::{
        journaled, news,
        run::Run,
        tool_step,
        verdict::{beyond, completed, failed, failed_as, limit_exceeded, plain_question},
    },
    attempt::live_output::LiveOutput,
    billing::{
        meter::Hold,
        model_call::{self, CallOutcome, Shortage},
        token_bound::PaidRequest,
    },
    check::Checker,
    files::{objects, restore, workspace::Workspace},
    journal::Journal,
    model::{ScriptInput, ToolSpec},
    sandbox::{self, Event, Program},
    secret::Redactor,
    tool::call::{Invocation, Outcome},
};

/// The time for which a program may continue after it has written its result.
const FINISH_GRACE: Duration = Duration::from_secs(2);
/// The most bytes that a program may write to its standard output.
const MAX_OUTPUT_BYTES: usize = 16 << 20;
/// The most costs of its own that a program may report in one attempt.
const MAX_COSTS: u32 = 1_000;
/// The number of last lines of standard error that a failure shows.
const SHOWN_ERROR_LINES: usize = 12;
/// The most invalid messages of a program. Each of them is answered, and one more ends the program.
const MAX_INVALID: u32 = 100;

pub(in crate::agent) async fn run(run: &Run<'_>) -> Verdict {
    let (journal, workspace) = match journaled::begin(run).await {
        // The program shares the workspace, which is removed when both owners have dropped it.
        Ok((journal, workspace)) => (journal, Arc::new(workspace)),
        Err(verdict) => return verdict,
    };
    let checker = Checker::open(run.attempt, &journal, run.outside()).await;
    let entries = journal.entries();
    let mut replay = Replay::new(run.work(), &entries);
    if let Some(result) = replay.result.take() {
        return result.verdict;
    }
    if let Some(halted) = checker.halted() {
        return journaled::finish(run.attempt, &journal, &workspace, halted, None).await;
    }
    let changed =
        |tool: &str, place: &str, arguments: &Value| checker.changed_arguments(tool, place, arguments);
    restore::restore(run.attempt, &workspace, &entries, changed).await;
    run.attempt.progress.change(|progress| progress.retries = progress.retries.max(replay.retries));
    run.resources.toolbox.ready(run.work()).await;
    if replay.steps == 0 {
        if let Some(missing) = run.resources.toolbox.missing(run.work()) {
            return journaled::finish(run.attempt, &journal, &workspace, failed(missing), None).await;
        }
        run.resources.toolbox.tell_absent(run.work());
    }
    let tools = run.resources.toolbox.specs(run.work());
    let start = Start::new(run.work(), &tools, replay.refused.clone());
    let (verdict, report) = match launch::start(run, &workspace, &start).await {
        Ok(program) => {
            let report = program.report.clone();
            let (journal, checker, workspace) = (&journal, &checker, &workspace);
            let steps = replay.steps;
            let mut session = Session {
                run,
                journal,
                checker,
                workspace,
                program,
                replay,
                steps,
                costs: 0,
                invalid: 0,
                listens: false,
            };
            session.begin(&start, &tools);
            (session.converse().await, Some(report))
        }
        Err((verdict, report)) => (verdict, report),
    };
    journaled::finish(run.attempt, &journal, &workspace, verdict, report).await
}

/// A running program.
struct Session<'a> {
    run: &'a Run<'a>,
    journal: &'a Journal<'a>,
    checker: &'a Checker<'a>,
    workspace: &'a Workspace,
    program: Program,
    replay: Replay,
    /// The number of requests that it has made, including those before a refused result.
    steps: u32,
    /// The number of costs of its own that it has reported in this attempt.
    costs: u32,
    /// The program reads `told` lines.
    listens: bool,
    /// The number of its invalid messages in this attempt.
    invalid: u32,
}

/// The worker's reaction to a request of the program.
enum RequestOutcome {
    With(Answer),
    /// The context ends or parks instead, and the program is ended.
    Ends(Verdict),
}

impl Session<'_> {
    fn begin(&mut self, start: &Start<'_>, tools: &[ToolSpec]) {
        self.program.send_line(&serde_json::to_vec(start).expect("plain fields"));
        if tools.is_empty() && self.run.work().model.is_none() {
            // Without tools and a model, the program can make no requests. Its input is closed, so
            // that it can read to the end.
            self.program.close_input();
        }
    }

    fn redactor(&self) -> &Redactor {
        self.run.resources.secrets.redactor()
    }

    async fn converse(&mut self) -> Verdict {
        let mut plain: Vec<u8> = Vec::new();
        let mut written = 0;
        loop {
            let line = match self.program.event().await {
                // The line is redacted before it is parsed, since its content is stored, sent and
                // logged (S8).
                Event::Line(line) => self.redactor().line(line),
                Event::TooLong => {
                    return self
                        .end_program(beyond(
                            "a line of the program's output",
                            &SetLimit::built_in("the maximum bytes of a line", sandbox::MAX_LINE_BYTES),
                        ))
                        .await;
                }
                Event::Ended(status) => return self.ended(status.into(), &plain),
            };
            written += line.len();
            if written > MAX_OUTPUT_BYTES {
                return self
                    .end_program(beyond(
                        "the program's output",
                        &SetLimit::built_in("the maximum bytes of its lines together", MAX_OUTPUT_BYTES),
                    ))
                    .await;
            }
            let answered = match parse_line(&line) {
                ParsedLine::Plain => {
                    plain.extend(line);
                    continue;
                }
                ParsedLine::Invalid { why, .. } if self.invalid == MAX_INVALID => {
                    let said = format!("another invalid message of the program ({why})");
                    let limit = SetLimit::built_in("the maximum number of invalid messages", MAX_INVALID);
                    return self.end_program(beyond(&said, &limit)).await;
                }
                ParsedLine::Invalid { id, why } => {
                    tracing::warn!("a message of the program can't be read");
                    tracing::debug!(why, "why");
                    self.invalid += 1;
                    RequestOutcome::With(error_answer(id, why))
                }
                ParsedLine::Doubtful { id, why } => {
                    // The program may mean the line as its result: it stays in the output, and does
                    // not end the program.
                    plain.extend(line);
                    if self.invalid == MAX_INVALID {
                        continue;
                    }
                    self.invalid += 1;
                    RequestOutcome::With(error_answer(id, why))
                }
                ParsedLine::Message(ProgramMessage::Listen) => {
                    self.listens = true;
                    continue;
                }
                ParsedLine::Message(ProgramMessage::Progress { message }) => {
                    let live = LiveOutput::new(self.run.attempt, self.journal.next_number());
                    live.send(Said::Progress { message }).await;
                    continue;
                }
                ParsedLine::Message(ProgramMessage::Cost { .. }) if self.costs == MAX_COSTS => {
                    let limit =
                        SetLimit::built_in("the maximum number of costs that a program reports", MAX_COSTS);
                    return self.end_program(beyond("another cost", &limit)).await;
                }
                ParsedLine::Message(ProgramMessage::Cost { id, key, usd, tokens }) => {
                    self.costs += 1;
                    let amount = Amount::new(usd.unwrap_or_default(), tokens.unwrap_or_default());
                    let charged = self.charge(&key, amount).await;
                    let Some(id) = id else { continue };
                    RequestOutcome::With(match charged {
                        Ok(said) => Answer { id: Some(id), text: said.into(), ..Answer::default() },
                        Err(why) => error_answer(Some(id), why),
                    })
                }
                ParsedLine::Message(ProgramMessage::Tool(request)) => {
                    self.step(ProgramRequest::Tool(request)).await
                }
                ParsedLine::Message(ProgramMessage::Model(request)) => {
                    self.step(ProgramRequest::Model(request)).await
                }
                ParsedLine::Message(ProgramMessage::Result { result }) => {
                    return self.finished(completed(result)).await;
                }
                ParsedLine::Message(ProgramMessage::Failed { message, retryable }) => {
                    let kind = FailureKind::Agent;
                    return self.finished(Verdict::Failed(Failure { kind, message, retryable })).await;
                }
            };
            match answered {
                RequestOutcome::With(answer) => {
                    self.program.send_line(&serde_json::to_vec(&answer).expect("plain fields"));
                }
                RequestOutcome::Ends(verdict) => return self.end_program(verdict).await,
            }
        }
    }

    /// Answers a request. Each request is a step (L).
    async fn step(&mut self, request: ProgramRequest) -> RequestOutcome {
        let max = self.run.work().limits.max_steps;
        if self.steps >= max {
            return RequestOutcome::Ends(limit_exceeded(&UsedLimit::new("max_steps", self.steps, max)));
        }
        self.steps += 1;
        let steps = self.steps;
        self.run.attempt.progress.change(|progress| progress.steps = progress.steps.max(steps));
        match request {
            ProgramRequest::Tool(request) => self.tool(request).await,
            ProgramRequest::Model(request) => self.model(request).await,
        }
    }

    async fn tool(&mut self, request: ToolRequest) -> RequestOutcome {
        let fingerprint = request.fingerprint();
        let place = self.replay.place(&fingerprint);
        let replayed = self.replay.tool(&fingerprint);
        self.tell(replayed.as_ref().map(|(number, _)| *number));
        if let Some((_, step)) = replayed {
            if request.tool == restore::WRITE_TOOL && !step.is_error {
                // The answer is from an earlier attempt, but the workspace is new. The write is
                // repeated at this point in the order of requests, since the program may write to
                // the same file itself.
                let (tool, arguments) = (&request.tool, &request.arguments);
                let arguments = self.checker.changed_arguments(tool, &place, arguments);
                restore::write_again(self.workspace, &arguments);
            }
            let text = self.full_output(&step.output).await;
            return RequestOutcome::With(Answer {
                id: Some(request.id),
                text,
                is_error: step.is_error,
                ..Answer::default()
            });
        }
        let invocation = Invocation {
            attempt: self.run.attempt,
            workspace: self.workspace,
            tool: &request.tool,
            arguments: &request.arguments,
            place: &place,
            shareable: &[],
            questions_before: self.checker.answers_used(),
        };
        match tool_step::call(self.run, self.journal, self.checker, invocation).await {
            Outcome::Answered(observation) => {
                let (text, is_error) = (observation.text.clone(), observation.is_error);
                let (run, journal, checker, workspace) =
                    (self.run, self.journal, self.checker, self.workspace);
                tool_step::record(run, journal, checker, workspace, fingerprint, observation, false).await;
                if let Some(halted) = checker.halted() {
                    return RequestOutcome::Ends(halted);
                }
                RequestOutcome::With(Answer { id: Some(request.id), text, is_error, ..Answer::default() })
            }
            Outcome::Waits { child } => {
                RequestOutcome::Ends(Verdict::Waiting { children: vec![child], hand_over: false })
            }
            Outcome::HandsOver { child } => {
                RequestOutcome::Ends(Verdict::Waiting { children: vec![child], hand_over: true })
            }
            Outcome::Asks { question, form } => {
                RequestOutcome::Ends(Verdict::InputRequired { question, form })
            }
        }
    }

    async fn model(&mut self, request: ModelRequest) -> RequestOutcome {
        let fingerprint = request.fingerprint();
        let replayed = self.replay.model(&fingerprint);
        self.tell(replayed.as_ref().map(|(number, _)| *number));
        if let Some((_, step)) = replayed {
            return RequestOutcome::With(completion(request.id, &step));
        }
        loop {
            return match self.ask_model(&request, &fingerprint).await {
                CallOutcome::News(news) => {
                    let (attempt, journal, workspace) = (self.run.attempt, self.journal, self.workspace);
                    let entries = news::record(attempt, journal, workspace, *news).await;
                    entries.iter().for_each(|entry| self.replay.add_news(entry));
                    self.tell(None);
                    continue;
                }
                CallOutcome::Answered(step) => {
                    if let Some(entry) = self.journal.last() {
                        tool_step::note_in_history(self.workspace, &entry);
                    }
                    // The call may have outlived the lease. The program must not act before the
                    // lease is valid again.
                    self.run.attempt.lease.live().await;
                    RequestOutcome::With(completion(request.id, &step))
                }
                CallOutcome::CannotAfford(Shortage { pause: true, .. }) => {
                    RequestOutcome::Ends(Verdict::OutOfBudget)
                }
                // The program decides how to continue without the answer.
                CallOutcome::CannotAfford(Shortage { why, .. }) => {
                    RequestOutcome::With(error_answer(Some(request.id), why))
                }
                CallOutcome::Failed(failure) if failure.kind == FailureKind::LimitExceeded => {
                    RequestOutcome::Ends(Verdict::Failed(failure))
                }
                CallOutcome::Failed(failure) => {
                    RequestOutcome::With(error_answer(Some(request.id), failure.message))
                }
                CallOutcome::Halted(verdict) => RequestOutcome::Ends(verdict),
                CallOutcome::Asks { question } => RequestOutcome::Ends(plain_question(question)),
            };
        }
    }

    async fn ask_model(&self, request: &ModelRequest, fingerprint: &str) -> CallOutcome {
        let (work, messages) = (self.run.work(), request.messages());
        let max = work.limits.max_tokens_per_step;
        let entries = self.journal.entries();
        let paid = PaidRequest {
            messages: &messages,
            tools: &[],
            output_schema: request.output_schema.as_ref(),
            max_tokens: request.max_tokens.unwrap_or(max).min(max),
            closing: false,
            earlier: None,
            script: Some(ScriptInput {
                turns: &work.agent.script,
                goal: work.goal.as_str(),
                inputs: &work.inputs,
                answered: entries.iter().filter(|entry| entry.step.as_model().is_some()).count(),
                closing: false,
                summary: false,
            }),
            model: self.replay.model.as_ref(),
            seen: Some(SeenNumbers {
                told: self.listens.then(|| news::last_told(self.journal)),
                rungs: Some(self.replay.last_rung),
            }),
            asked: Some(fingerprint),
            summary_of: None,
        };
        let (meter, models) = (self.run.meter, &self.run.resources.models);
        model_call::call(meter, models, self.journal, self.checker, &paid).await
    }

    /// Sends the program the messages before the journal entry of this number, in the order of the
    /// earlier attempt. Without a number, it sends all messages that are left.
    fn tell(&mut self, number: Option<u32>) {
        for line in self.replay.told_before(number) {
            if self.listens {
                self.program.send_line(&serde_json::to_vec(&line).expect("plain fields"));
            }
        }
    }

    /// Books a cost of the program's own. The key identifies the cost: repeated reports, in any
    /// attempt, are booked once. The cost is held like any paid call. If the budget is too small,
    /// the coordinator books what fits and records the rest as a disputed charge (B18).
    async fn charge(&self, key: &str, amount: Amount) -> Result<&'static str, String> {
        let name = message::fingerprint(&serde_json::json!(["cost", key]));
        let call_id = CallId::new(&format!("external-{name}")).expect("letters, a dash and hex digits");
        let held = self.run.meter.hold(&call_id, amount, false, None).await;
        let is_known = matches!(&held, Hold::Refused(refusal) if refusal.code == CALL_CONFLICT);
        match is_known {
            true => self.run.meter.settle_again(&call_id, amount.into()).await,
            false => self.run.meter.settle(&call_id, amount.into()).await,
        }
        let why = match held {
            Hold::Held => return Ok("booked"),
            Hold::Denied(denied) | Hold::Crowded(denied) => denied.describe("cost"),
            Hold::Halt { context, dimension, .. } => exhausted(&context, dimension),
            // The key was reported before, and only the first report is booked.
            Hold::Refused(_) if is_known => {
                return Ok("this key was reported before, and only the first report is booked");
            }
            Hold::News(_) => wire::Refusal::unexpected("hold").message,
            Hold::Refused(refusal) => refusal.message,
        };
        tracing::warn!(%amount, "a cost of the program exceeds the remaining budget; the rest is disputed");
        Err(format!("{why}; the rest is a disputed charge"))
    }

    /// The whole output of a tool. A large output is read from the object store, never from its
    /// copy in the workspace: the program can replace the copy by a link to a file that only the
    /// worker can read (I4).
    async fn full_output(&self, output: &ToolOutput) -> String {
        match output {
            ToolOutput::Inline(text) => text.clone(),
            ToolOutput::Offloaded { preview, object, .. } => {
                match objects::get(&self.run.attempt.bus, object).await {
                    Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                    Err(error) => {
                        tracing::debug!(error, "why");
                        tracing::warn!("a large tool output can't be replayed; the program gets its preview");
                        preview.clone()
                    }
                }
            }
        }
    }

    /// Waits up to [`FINISH_GRACE`] for the program to clean up after its result, then ends it.
    async fn finished(&mut self, verdict: Verdict) -> Verdict {
        self.program.close_input();
        let ended =
            async { while !matches!(self.program.event().await, Event::Ended(_) | Event::TooLong) {} };
        if tokio::time::timeout(FINISH_GRACE, ended).await.is_ok() {
            return verdict;
        }
        self.end_program(verdict).await
    }

    /// Ends the program, and waits until all of its processes have ended.
    async fn end_program(&mut self, verdict: Verdict) -> Verdict {
        self.program.terminate();
        self.program.drain().await;
        verdict
    }

    /// The verdict of a program that ended without a result message: its plain output is the result.
    fn ended(&self, exit: Exit, plain: &[u8]) -> Verdict {
        if let Some(reason) = self.program.exceeded() {
            return failed_as(FailureKind::LimitExceeded, format!("the sandbox ended the program: {reason}"));
        }
        if let Some(why) = self.program.broken() {
            return failed(why);
        }
        if exit == Exit::Success {
            // Each line was redacted alone. A secret value with several lines is found only in the
            // whole text.
            let text = self.redactor().text(String::from_utf8_lossy(plain).into_owned());
            return completed(Json::from(text.trim_end()));
        }
        let how = exit.describe();
        let errors = self.program.last_error_lines(SHOWN_ERROR_LINES, self.redactor());
        let message = if errors.is_empty() {
            format!("the program {how}")
        } else {
            format!("the program {how}: {errors}")
        };
        let message = match hint::of(&self.run.work().agent, &errors) {
            Some(hint) => format!("{message}\n\nhint: {hint}"),
            None => message,
        };
        Verdict::Failed(Failure { kind: FailureKind::Agent, message, retryable: exit.is_retryable() })
    }
}

/// A request of the program to the worker.
enum ProgramRequest {
    Tool(ToolRequest),
    Model(ModelRequest),
}

fn completion(id: String, step: &ModelStep) -> Answer {
    let (text, is_error) = match step.denied() {
        Some(by) => {
            let reason = by.reason.as_deref().unwrap_or_default();
            (format!("the answer was denied by the check `{}`: {reason}", by.check), true)
        }
        None => (step.text.clone().unwrap_or_default(), false),
    };
    Answer { id: Some(id), text, is_error, usage: step.usage, cost_usd: Some(step.cost.amount.cost_usd) }
}

fn error_answer(id: Option<String>, text: String) -> Answer {
    Answer { id, text, is_error: true, ..Answer::default() }
}
