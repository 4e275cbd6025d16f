//! The names of the workers' built-in tools. With them, a misspelt name in a list of tools is found
//! before a worker runs. The worker implements the tools.

use crate::{
    id::ToolName,
    problem::{Problems, nearest},
};

pub const FS_READ: &str = "fs.read";
pub const FS_WRITE: &str = "fs.write";
pub const FS_LIST: &str = "fs.list";
pub const READ_CONTEXT: &str = "read_context";
pub const WRITE_CONTEXT: &str = "write_context";
pub const SPAWN: &str = "spawn";
pub const DELEGATE: &str = "delegate";
pub const RUN_PIPELINE: &str = "run_pipeline";
pub const ASK_HUMAN: &str = "ask_human";
/// The name in a journal of all tools that start a child (I2).
pub const JOURNALED_SPAWN: &str = "agent:spawn";
pub const HTTP_GET: &str = "http.get";

/// All built-in tools that a worker may offer.
pub const BUILTINS: [&str; 10] = [
    FS_READ,
    FS_WRITE,
    FS_LIST,
    READ_CONTEXT,
    WRITE_CONTEXT,
    SPAWN,
    DELEGATE,
    RUN_PIPELINE,
    ASK_HUMAN,
    HTTP_GET,
];

/// Adds a problem at `path` for each tool that is neither built in nor named like a tool of an MCP
/// server, `server:tool`. Only the workers that have the server know its tools.
pub fn check<'a>(path: &str, tools: impl IntoIterator<Item = &'a ToolName>, problems: &mut Problems) {
    for tool in tools {
        let name = tool.as_str();
        let is_served =
            name.split_once(':').is_some_and(|(server, tool)| !server.is_empty() && !tool.is_empty());
        if is_served || BUILTINS.contains(&name) {
            continue;
        }
        problems.add_with(path, format!("there is no tool `{name}`"), || {
            Some(match nearest(name, BUILTINS) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!(
                    "the tools of every worker are {}; that of a tool server is named `server:tool`",
                    BUILTINS.join(", ")
                ),
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_a_misspelt_tool_is_a_problem_with_the_nearest_name() {
        for (name, hint) in [
            ("fs.raed", Some("did you mean `fs.read`?")),
            ("Spawn", Some("did you mean `spawn`?")),
            ("ask-human", Some("did you mean `ask_human`?")),
            ("search", Some("the tools of every worker are fs.read, fs.write")),
            ("web:", Some("the tools of every worker are")),
            ("web:search", None),
            ("fs.read", None),
        ] {
            let Ok(tool) = ToolName::new(name) else { continue };
            let mut problems = Problems::default();
            check("tools", [&tool], &mut problems);
            let found = problems.iter().next().and_then(|problem| problem.hint.clone());
            assert_eq!(found.is_some(), hint.is_some(), "{name}: {found:?}");
            assert!(hint.is_none_or(|hint| found.unwrap_or_default().contains(hint)), "{name}");
        }
    }
}
