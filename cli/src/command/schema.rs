//! `trellis schema`: prints the JSON Schemas of the messages, by name.

use serde_json::json;

use crate::terminal::{
    display,
    ending::Ending,
    output::{self, Output},
};

pub(crate) fn run(name: Option<&str>, output: Output) -> anyhow::Result<Ending> {
    let all = coordinator::messages();
    let names: Vec<&str> = all.iter().map(|message| message.name).collect();
    let Some(wanted) = name else {
        match output {
            Output::Text => output::print(&format!("{}\n", names.join("\n")))?,
            Output::Json => output::print_json(&json!(names))?,
        }
        return Ok(Ending::Completed);
    };
    let Some(message) = all.iter().find(|message| message.name == wanted) else {
        let otherwise = format!("the messages are {}", names.join(", "));
        let hint = display::did_you_mean(wanted, names.iter().copied(), otherwise);
        anyhow::bail!("no message is called `{wanted}`\n\nhint: {hint}");
    };
    output::print_json(&message.schema())?;
    Ok(Ending::Completed)
}
