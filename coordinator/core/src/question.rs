//! Questions to humans (G7): asked by an agent or by an `approve` step, and answered once, by a
//! human or by their default.
//!
//! A second delivery is harmless. An answer has the number of its question, and the first valid
//! answer is final. An invalid answer is refused, and the question stays open.

use domain::{
    Problems, Timestamp,
    graph::{self, Approval, Form},
    wire::{AnswerMessage, EndStatus, FailureKind, GivenAnswer, Hitl, Payload, Text},
    wording,
};

use super::{ContextIndex, ContextNode, Event, QuestionDetails, Refusal, Status, Trace, content, end};

/// The longest name of a person who answers.
const MAX_SENDER_BYTES: usize = 256;
/// The most bytes that an `approve` step shows of one input, and of its question with all inputs.
const INPUT_SHOWN: usize = 2_000;
const QUESTION_SHOWN: usize = 16 * 1024;

impl ContextNode {
    /// The number of its open question, or of its next one.
    pub(super) fn question_number(&self) -> u32 {
        u32::try_from(self.answers.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// The details of its open question, if it has a form.
    pub fn asked(&self) -> Option<&QuestionDetails> {
        if let Status::InputRequired { asked, .. } = &self.status { asked.as_deref() } else { None }
    }

    /// Returns true for an `approve` step: it runs neither an agent nor steps.
    pub fn is_approval(&self) -> bool {
        self.graph.is_none() && self.spec.agent_id.is_none()
    }
}

/// Asks a question for an agent.
pub(super) fn by_agent(
    trace: &Trace,
    at: ContextIndex,
    question: Text,
    form: Form,
) -> Result<Event, Refusal> {
    // Only the question of an `approve` step is an approval.
    let form = Form { approval: false, ..form };
    let mut problems = Problems::default();
    form.check("verdict.input_required", &mut problems);
    problems.or(ask(trace, at, question, form)).map_err(Refusal::Malformed)
}

/// An `approve` step has begun: it asks at once, and needs no worker.
pub(super) fn by_step(trace: &Trace, at: ContextIndex) -> Vec<Event> {
    let node = trace.node(at);
    let of_step = node.identity.step.zip(node.parent).and_then(|(of, graph)| {
        let (run, group) = trace.run_of(trace.node(graph))?;
        let step = &group.steps[run.place(of.step) as usize];
        let graph::Body::Approve(approve) = &step.body else { return None };
        Some((step, approve))
    });
    let (Some((step, approve)), true) = (of_step, matches!(node.status, Status::Submitted { .. })) else {
        return Vec::new();
    };
    let mut question = match &approve.question {
        Some(question) => question.to_string(),
        None => format!("Do you approve `{}`?", step.id),
    };
    for key in node.spec.inputs.keys().chain(&node.spec.input_from) {
        let value = trace.input(node, key).map_or_else(|| "null".into(), |(value, _)| value.to_text());
        question.push_str(&format!("\n\n{key}: {}", wording::cut(value, INPUT_SHOWN)));
    }
    let question =
        Text::new(wording::cut(question, QUESTION_SHOWN)).expect("the text begins with a question");
    vec![ask(trace, at, question, approve.form.clone())]
}

fn ask(trace: &Trace, at: ContextIndex, question: Text, form: Form) -> Event {
    let node = trace.node(at);
    if trace.blocked_for_good(at) {
        let reason = "its budget is used up, so it can't go on after an answer".into();
        return end::stopped(trace, at, EndStatus::Aborted, reason);
    }
    match node.terms.hitl {
        Hitl::Fail => {
            let message = format!("it needs a human, and hitl is fail: {question}");
            end::failed(trace, at, FailureKind::InputRequired, message)
        }
        Hitl::Ask => {
            let bytes = content::question_bytes(&question, Some(&form));
            if let Err(refusal) = content::check_room(trace, trace.settings(), bytes) {
                return end::failed(trace, at, FailureKind::LimitExceeded, refusal.to_string());
            }
            let form = (!form.is_plain()).then(|| Box::new(form));
            let (child_id, number, path) = (node.id.clone(), node.question_number(), trace.path(at));
            Event::InputRequired { child_id, number, question, path, form }
        }
    }
}

pub(super) fn answer(trace: &Trace, answered: &AnswerMessage) -> Result<Vec<Event>, Refusal> {
    let node = trace.node(trace.known(&answered.child_id)?);
    let number = answered.question;
    let before = (number as usize).checked_sub(1).and_then(|place| node.answers.get(place));
    let same = |given: &GivenAnswer| !given.withdrawn && given.answer == answered.answer;
    if before.is_some_and(same) {
        return Ok(Vec::new());
    }
    trace.known_live(&answered.child_id)?;
    if !node.asks() || number != node.question_number() {
        return Err(Refusal::NoQuestion { child_id: node.id.clone(), question: number });
    }
    if answered.by.as_ref().is_some_and(|by| by.as_str().len() > MAX_SENDER_BYTES) {
        let message = format!("the name of the person who answers has at most {MAX_SENDER_BYTES} bytes");
        return Err(Refusal::Malformed(Problems::one("by", message, None)));
    }
    if let Some(asked) = node.asked() {
        asked.form.check_answer(&answered.answer).map_err(Refusal::Malformed)?;
    }
    check_room(trace, node, answered)?;
    Ok(vec![Event::Answered {
        child_id: node.id.clone(),
        number,
        answer: answered.answer.clone(),
        by: answered.by.clone(),
        default: false,
    }])
}

/// L: checks that the trace has room for an answer in place of its open question. The bytes of the
/// question already include its default.
fn check_room(trace: &Trace, node: &ContextNode, answered: &AnswerMessage) -> Result<(), Refusal> {
    let Status::InputRequired { question, .. } = &node.status else { return Ok(()) };
    let given = GivenAnswer {
        question: question.clone(),
        answer: answered.answer.clone(),
        by: answered.by.clone(),
        default: false,
        withdrawn: false,
    };
    let open = node.said_bytes().saturating_sub(content::END_BYTES);
    let asked = content::answer_bytes(&given).saturating_sub(open);
    content::check_room(trace, trace.settings(), asked)
}

/// Handles the answer of a question: returns the end of an `approve` step; `None` if an agent
/// asked, because it continues.
pub(super) fn decided(trace: &Trace, at: ContextIndex) -> Option<Event> {
    let node = trace.node(at);
    let approval = node.asked().filter(|asked| asked.form.approval);
    let (asked, given) = approval.zip(node.answers.last())?;
    let by = given.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    Some(match asked.form.approval(&given.answer) {
        Some(Approval::Approved(choice)) => {
            end::completed(trace, at, Some(Payload::Inline(choice.as_str().into())))
        }
        Some(Approval::Denied(_)) if given.default => {
            let message = format!("denied: {}", nobody_answered(asked));
            end::failed(trace, at, FailureKind::Denied, message)
        }
        Some(Approval::Denied(why)) => {
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            end::failed(trace, at, FailureKind::Denied, format!("denied{by}{why}"))
        }
        None => unreachable!("an answer is checked on arrival"),
    })
}

/// The time of an open question is up: it gets its default, its context fails, or it is asked
/// again.
pub(super) fn due(trace: &Trace, at: ContextIndex, now: Timestamp) -> Vec<Event> {
    let node = trace.node(at);
    let Some(asked) = node.asked() else { return Vec::new() };
    let (child_id, number) = (node.id.clone(), node.question_number());
    if asked.answer_by().is_none_or(|by| by > now) {
        return vec![Event::Reminded { child_id, number, reminder: asked.reminders + 1 }];
    }
    vec![match &asked.form.default {
        Some(default) => {
            Event::Answered { child_id, number, answer: default.clone(), by: None, default: true }
        }
        None => end::failed(trace, at, FailureKind::InputRequired, nobody_answered(asked)),
    }]
}

fn nobody_answered(asked: &QuestionDetails) -> String {
    format!("no answer within {} ms", asked.form.timeout_ms.unwrap_or_default())
}
