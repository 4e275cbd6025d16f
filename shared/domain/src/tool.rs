//! The names of the workers' own tools, so that whoever takes a list of tools can tell a misspelt one. The worker
//! implements them.

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
/// All tools that start a child, in a journal (I2).
pub const JOURNALED_SPAWN: &str = "agent:spawn";
pub const HTTP_GET: &str = "http.get";

/// Every tool that a worker may have of its own.
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

/// Adds the tools at `path` that no worker can have. A tool of an MCP server, `server:tool`, is known to the workers that
/// have the server, and to nobody else.
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
