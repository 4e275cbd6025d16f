//! `trellis schema`: the JSON Schemas of the messages, by name.

use serde_json::json;

use crate::{Ending, Output, terminal::output};

pub(crate) fn run(name: Option<&str>, output: Output) -> anyhow::Result<Ending> {
    let all = coordinator::schemas();
    let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    let Some(wanted) = name else {
        match output {
            Output::Text => output::print(&format!("{}\n", names.join("\n")))?,
            Output::Json => output::print_json(&json!(names))?,
        }
        return Ok(Ending::Completed);
    };
    let Some((_, schema)) = all.iter().find(|(name, _)| *name == wanted) else {
        let near = shared::problem::nearest(wanted, names.iter().copied());
        let hint =
            near.map_or(format!("there are {}", names.join(", ")), |near| format!("did you mean `{near}`?"));
        anyhow::bail!("no message is called `{wanted}`\n\nhint: {hint}");
    };
    output::print_json(schema)?;
    Ok(Ending::Completed)
}
