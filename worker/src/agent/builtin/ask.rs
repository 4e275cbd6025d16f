//! `ask`: asks a human a question. The context waits for the answer and holds no worker meanwhile.

use domain::{
    Json,
    wire::{Form, Text, Verdict},
};

use super::parameters::{InvalidParameter, Parameters};
use crate::agent::{run::Run, verdict::completed};

pub(super) fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, InvalidParameter> {
    let question: Text = parameters.get_or("question", run.work().goal.clone())?;
    let form: Box<Form> = parameters.get_or("form", Box::default())?;
    Ok(match run.work().answers.last().filter(|given| !given.withdrawn) {
        Some(given) => completed(Json::from(given.answer.as_str())),
        None => Verdict::InputRequired { question, form },
    })
}
