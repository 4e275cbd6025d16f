//! `ask_human`: a question to a human (G7). The context parks and holds no worker; the answer comes with its next
//! attempt, and a question that was answered is not asked again.

use schemars::JsonSchema;
use serde::Deserialize;
use shared::{id::ToolName, wire::Text};

use super::{
    arguments,
    call::{Invocation, Observation, Outcome},
};

pub(crate) const NAME: &str = shared::tool::ASK_HUMAN;
pub(super) const DESCRIPTION: &str = "Asks a human a question and returns the answer, which may take days. Use it only when you can't \
     continue without the answer; put everything you need to know into one question.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    question: Text,
}

pub(super) fn ask(invocation: Invocation<'_>) -> Outcome {
    let answered = |output| Outcome::Answered(Observation::new(name(), output));
    let Arguments { question } = match arguments::read(invocation) {
        Ok(arguments) => arguments,
        Err(mistakes) => return answered(Err(mistakes)),
    };
    // A call with bad arguments asked no question.
    match invocation.attempt.answer_to(&question, invocation.questions_before) {
        Some((_, given)) => answered(Ok(given.answer.as_str().to_owned())),
        None => Outcome::Asks { question },
    }
}

pub(crate) fn name() -> ToolName {
    ToolName::new(NAME).expect("a literal that fits the grammar")
}
