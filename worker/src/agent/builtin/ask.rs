//! `ask`: a question to a human, waited for without holding a worker.

use shared::{
    Json,
    wire::{Text, Verdict},
};

use super::parameters::{Bad, Parameters};
use crate::agent::{run::Run, verdict::completed};

pub(super) fn run(run: &Run<'_>, parameters: Parameters<'_>) -> Result<Verdict, Bad> {
    let question: Text = parameters.get_or("question", run.work().goal.clone())?;
    Ok(match run.work().answers.last().filter(|given| !given.withdrawn) {
        Some(given) => completed(Json::from(given.answer.as_str())),
        None => Verdict::InputRequired { question },
    })
}
