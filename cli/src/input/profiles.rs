//! Reads agent profiles from a file: a list, or `agents:` with a list. Reports all mistakes at
//! once.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use domain::{AgentProfile, Problems, decode};
use serde_json::Value;

use crate::{
    input::{document::FileError, file::read_value},
    terminal::ending::Ending,
};

/// The file of agents in the folder of a graph, if there is one.
pub(crate) fn beside(graph: &Path) -> Option<PathBuf> {
    let names = ["agents.yaml", "agents.yml", "agents.json", "agents.toml"];
    names.iter().map(|name| graph.with_file_name(name)).find(|path| path.is_file() && path != graph)
}

pub(crate) fn read(path: &Path) -> Result<Vec<AgentProfile>, FileError> {
    let mut document = read_value(path)?;
    profiles(document.value.take()).map_err(|problems| document.wrong(problems))
}

pub(crate) fn explain(unusable: &FileError, path: &Path) -> Ending {
    unusable.explain_as(path, "a list of agent profiles")
}

fn profiles(value: Value) -> Result<Vec<AgentProfile>, Problems> {
    let (value, name) = match value {
        Value::Object(mut fields) => {
            let agents = fields.remove("agents").unwrap_or(Value::Null);
            if let Some(unknown) = fields.keys().next() {
                let hint = "a file of agents is a list of profiles, or `agents:` with the list";
                return Err(Problems::one(unknown, "is not a known field", Some(hint.into())));
            }
            (agents, "agents")
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            (other, "")
        }
    };
    let Value::Array(items) = &value else {
        return decode::value(&value).map_err(|problems| under(name, &problems));
    };
    // Profiles are checked one by one, so that a mistake in one profile hides no mistakes in the
    // others.
    let (mut agents, mut problems, mut seen) = (Vec::new(), Problems::default(), BTreeSet::new());
    for (index, item) in items.iter().enumerate() {
        let at = format!("{name}[{index}]");
        let agent = decode::value::<AgentProfile>(item).and_then(|agent| agent.check().map(|()| agent));
        for problem in agent.as_ref().err().iter().flat_map(|problems| problems.iter()) {
            problems.add(join(&at, &problem.path), &problem.message, problem.hint.clone());
        }
        if let Some(id) = item.get("agent_id").and_then(Value::as_str)
            && !seen.insert(id)
        {
            problems.add(format!("{at}.agent_id"), format!("`{id}` is defined twice"), None);
        }
        agents.extend(agent.ok());
    }
    problems.or(agents)
}

/// The problems with `name` before their paths.
fn under(name: &str, problems: &Problems) -> Problems {
    let mut moved = Problems::default();
    for problem in problems.iter() {
        moved.add(join(name, &problem.path), &problem.message, problem.hint.clone());
    }
    moved
}

fn join(above: &str, path: &str) -> String {
    let dot = if above.is_empty() || path.is_empty() || path.starts_with('[') { "" } else { "." };
    format!("{above}{dot}{path}")
}
