//! The names of the workers' built-in tools. With them, a misspelt name in a list of tools is found
//! before a worker runs. The worker implements the tools.

use crate::{
    id::ToolName,
    problem::{Problems, nearest},
};

/// The name in a journal of all tools that start a child (I2).
pub const JOURNALED_SPAWN: &str = "agent:spawn";

macro_rules! builtins {
    ($($name:ident = $text:literal),* $(,)?) => {
        $(pub const $name: &str = $text;)*

        /// All built-in tools that a worker may offer.
        pub const BUILTINS: &[&str] = &[$($name),*];
    };
}

builtins! {
    FS_READ = "fs.read",
    FS_WRITE = "fs.write",
    FS_LIST = "fs.list",
    READ_CONTEXT = "read_context",
    WRITE_CONTEXT = "write_context",
    SPAWN = "spawn",
    DELEGATE = "delegate",
    RUN_PIPELINE = "run_pipeline",
    ASK_HUMAN = "ask_human",
    HTTP_GET = "http.get",
}

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
            Some(match nearest(name, BUILTINS.iter().copied()) {
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
