//! The table of the worker's own tools. Each tool's file owns its name, description and arguments.

use shared::{Json, id::ToolName};

use super::{arguments::schema, context, fs, http, human, spawn};
use crate::model::ToolSpec;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Builtin {
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

impl Builtin {
    pub(super) const ALL: [Builtin; 10] = [
        Builtin::FsRead,
        Builtin::FsWrite,
        Builtin::FsList,
        Builtin::ReadContext,
        Builtin::WriteContext,
        Builtin::Spawn,
        Builtin::Delegate,
        Builtin::RunPipeline,
        Builtin::AskHuman,
        Builtin::HttpGet,
    ];

    pub(super) fn text(self) -> &'static str {
        match self {
            Builtin::FsRead => fs::READ,
            Builtin::FsWrite => fs::WRITE,
            Builtin::FsList => fs::LIST,
            Builtin::ReadContext => context::READ,
            Builtin::WriteContext => context::WRITE,
            Builtin::Spawn => spawn::SPAWN,
            Builtin::Delegate => spawn::DELEGATE,
            Builtin::RunPipeline => spawn::PIPELINE,
            Builtin::AskHuman => human::NAME,
            Builtin::HttpGet => http::NAME,
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
            Builtin::FsRead => fs::READ_DESCRIPTION,
            Builtin::FsWrite => fs::WRITE_DESCRIPTION,
            Builtin::FsList => fs::LIST_DESCRIPTION,
            Builtin::ReadContext => context::READ_DESCRIPTION,
            Builtin::WriteContext => context::WRITE_DESCRIPTION,
            Builtin::Spawn => spawn::SPAWN_DESCRIPTION,
            Builtin::Delegate => spawn::DELEGATE_DESCRIPTION,
            Builtin::RunPipeline => spawn::PIPELINE_DESCRIPTION,
            Builtin::AskHuman => human::DESCRIPTION,
            Builtin::HttpGet => http::DESCRIPTION,
        }
    }

    /// The JSON Schema of its arguments.
    fn parameters(self) -> Json {
        match self {
            Builtin::FsRead => schema::<fs::ReadArguments>(),
            Builtin::FsWrite => schema::<fs::WriteArguments>(),
            Builtin::FsList => schema::<fs::ListArguments>(),
            Builtin::ReadContext => schema::<context::ReadArguments>(),
            Builtin::WriteContext => schema::<context::WriteArguments>(),
            Builtin::Spawn | Builtin::Delegate => schema::<spawn::Arguments>(),
            Builtin::RunPipeline => spawn::pipeline_schema(),
            Builtin::AskHuman => schema::<human::Arguments>(),
            Builtin::HttpGet => schema::<http::Arguments>(),
        }
    }
}
