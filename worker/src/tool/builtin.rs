//! The table of the worker's own tools. Each tool's file owns its name, description and arguments.

use domain::{Json, id::ToolName};

use super::{arguments::schema, context, fs, http, human, spawn};
use crate::model::ToolSpec;

/// One of the worker's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuiltinTool {
    FsRead,
    FsWrite,
    FsList,
    ReadContext,
    WriteContext,
    Spawn,
    Delegate,
    RunPipeline,
    AskHuman,
    HttpGet,
}

impl BuiltinTool {
    pub(super) const ALL: [BuiltinTool; 10] = [
        BuiltinTool::FsRead,
        BuiltinTool::FsWrite,
        BuiltinTool::FsList,
        BuiltinTool::ReadContext,
        BuiltinTool::WriteContext,
        BuiltinTool::Spawn,
        BuiltinTool::Delegate,
        BuiltinTool::RunPipeline,
        BuiltinTool::AskHuman,
        BuiltinTool::HttpGet,
    ];

    pub(super) fn text(self) -> &'static str {
        match self {
            BuiltinTool::FsRead => fs::READ,
            BuiltinTool::FsWrite => fs::WRITE,
            BuiltinTool::FsList => fs::LIST,
            BuiltinTool::ReadContext => context::READ,
            BuiltinTool::WriteContext => context::WRITE,
            BuiltinTool::Spawn => spawn::SPAWN,
            BuiltinTool::Delegate => spawn::DELEGATE,
            BuiltinTool::RunPipeline => spawn::PIPELINE,
            BuiltinTool::AskHuman => human::NAME,
            BuiltinTool::HttpGet => http::NAME,
        }
    }

    pub(super) fn name(self) -> ToolName {
        ToolName::new(self.text()).expect("a literal that fits the grammar")
    }

    pub(super) fn spec(self) -> ToolSpec {
        let description = self.description().to_owned();
        ToolSpec { name: self.name(), description, parameters: self.parameters() }
    }

    fn description(self) -> &'static str {
        match self {
            BuiltinTool::FsRead => fs::READ_DESCRIPTION,
            BuiltinTool::FsWrite => fs::WRITE_DESCRIPTION,
            BuiltinTool::FsList => fs::LIST_DESCRIPTION,
            BuiltinTool::ReadContext => context::READ_DESCRIPTION,
            BuiltinTool::WriteContext => context::WRITE_DESCRIPTION,
            BuiltinTool::Spawn => spawn::SPAWN_DESCRIPTION,
            BuiltinTool::Delegate => spawn::DELEGATE_DESCRIPTION,
            BuiltinTool::RunPipeline => spawn::PIPELINE_DESCRIPTION,
            BuiltinTool::AskHuman => human::DESCRIPTION,
            BuiltinTool::HttpGet => http::DESCRIPTION,
        }
    }

    /// The JSON Schema of its arguments.
    fn parameters(self) -> Json {
        match self {
            BuiltinTool::FsRead => schema::<fs::ReadArguments>(),
            BuiltinTool::FsWrite => schema::<fs::WriteArguments>(),
            BuiltinTool::FsList => schema::<fs::ListArguments>(),
            BuiltinTool::ReadContext => schema::<context::ReadArguments>(),
            BuiltinTool::WriteContext => schema::<context::WriteArguments>(),
            BuiltinTool::Spawn | BuiltinTool::Delegate => schema::<spawn::Arguments>(),
            BuiltinTool::RunPipeline => spawn::pipeline_schema(),
            BuiltinTool::AskHuman => schema::<human::Arguments>(),
            BuiltinTool::HttpGet => schema::<http::Arguments>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A coordinator rejects every other name.
    #[test]
    fn the_tools_are_those_that_coordinators_know() {
        assert_eq!(BuiltinTool::ALL.map(BuiltinTool::text), domain::tool::BUILTINS);
    }
}
