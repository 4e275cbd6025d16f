//! `ask_human`: a question to a human (G7). The context parks and holds no worker. The answer comes
//! with its next attempt, and a question that was answered is not asked again.

use domain::{
    Json, Problems,
    graph::OutputSchema,
    id::ToolName,
    wire::{Form, GivenAnswer, Text},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    arguments,
    call::{Invocation, Observation, Outcome},
};

pub(crate) const NAME: &str = domain::tool::ASK_HUMAN;
pub(super) const DESCRIPTION: &str = "Asks a human a question and returns the answer, which may take days. Use it only when you can't \
     continue without the answer; put everything you need to know into one question. Give `choices`, or a JSON `schema` of the \
     answer, if only certain answers are of use. With `timeout_ms` you get the `default` if there is no answer by then; without a \
     `default` you fail.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    question: Text,
    /// The answers to choose from.
    #[serde(default)]
    choices: Vec<Text>,
    /// A JSON Schema of the answer.
    #[serde(default)]
    schema: Option<Json>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    /// The answer after `timeout_ms`.
    #[serde(default)]
    default: Option<Text>,
    /// The interval of reminders to the human, in milliseconds; at most ten are sent.
    #[serde(default)]
    remind_every_ms: Option<u64>,
    /// The person or group that should answer.
    #[serde(default)]
    who: Option<Text>,
}

pub(super) fn ask(invocation: Invocation<'_>) -> Outcome {
    let answered = |output| Outcome::Answered(Observation::new(name(), output));
    let arguments: Arguments = match arguments::read(invocation) {
        Ok(arguments) => arguments,
        Err(mistakes) => return answered(Err(mistakes)),
    };
    let (question, form) = match form(arguments) {
        Ok(asked) => asked,
        Err(problems) => return answered(Err(arguments::invalid(invocation.tool, &problems))),
    };
    // A call with invalid arguments asked no question, so this comes after they are checked.
    match invocation.attempt.answer_to(&question, invocation.questions_before) {
        Some((_, given)) => {
            Outcome::Answered(Observation { is_late: true, ..Observation::new(name(), Ok(told(given))) })
        }
        None => Outcome::Asks { question, form: Box::new(form) },
    }
}

fn form(arguments: Arguments) -> Result<(Text, Form), Problems> {
    let Arguments { question, choices, schema, timeout_ms, default, remind_every_ms, who } = arguments;
    let schema = schema.as_ref().map(OutputSchema::compile).transpose();
    let schema = schema.map_err(|message| Problems::one("schema", message, None))?;
    let form = Form { who, choices, schema, timeout_ms, default, remind_every_ms, approval: false };
    let mut problems = Problems::default();
    form.check("", &mut problems);
    problems.or((question, form))
}

/// The answer as the agent reads it.
fn told(given: &GivenAnswer) -> String {
    if given.default {
        return format!("{}\n\n(There was no answer in time: this is the default.)", given.answer);
    }
    given.answer.as_str().to_owned()
}

pub(crate) fn name() -> ToolName {
    ToolName::new(NAME).expect("a literal that fits the grammar")
}
