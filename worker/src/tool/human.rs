//! A question to a human. The context parks and holds no worker; the answer comes with its next attempt,
//! and a question that was answered is never asked again (G7).

use schemars::JsonSchema;
use serde::Deserialize;
use shared::wire::Text;

use super::{Invocation, Observation, Outcome, arguments, builtin::Builtin};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    question: Text,
}

pub(super) fn ask(invocation: Invocation<'_>) -> Outcome {
    let said = |said| Outcome::Said(Observation::of(Builtin::AskHuman.name(), said));
    match arguments::read(invocation) {
        // Answers are in the order of the questions; one that could not be read was never asked.
        Ok(Arguments { question }) => match invocation.run.work.answers.get(invocation.questions_before) {
            Some(given) => said(Ok(given.answer.as_str().to_owned())),
            None => Outcome::Asks { question },
        },
        Err(wrong) => said(Err(wrong)),
    }
}
