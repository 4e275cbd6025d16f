//! The table of the worker's own tools. Each tool's file owns its name, description and arguments.

use domain::{Json, id::ToolName};

use super::{arguments::schema, context, fs, http, human, spawn};
use crate::model::ToolSpec;

/// Defines the tools, each with its name, its description and the JSON Schema of its arguments.
macro_rules! tools {
    ($($tool:ident: $name:path, $description:path, $parameters:expr;)*) => {
        /// One of the worker's own tools.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum BuiltinTool {
            $($tool),*
        }

        impl BuiltinTool {
            pub(super) const ALL: &[BuiltinTool] = &[$(BuiltinTool::$tool),*];

            pub(super) fn text(self) -> &'static str {
                match self {
                    $(BuiltinTool::$tool => $name),*
                }
            }

            fn description(self) -> &'static str {
                match self {
                    $(BuiltinTool::$tool => $description),*
                }
            }

            fn parameters(self) -> Json {
                match self {
                    $(BuiltinTool::$tool => $parameters),*
                }
            }
        }
    };
}

tools! {
    FsRead: fs::READ, fs::READ_DESCRIPTION, schema::<fs::ReadArguments>();
    FsWrite: fs::WRITE, fs::WRITE_DESCRIPTION, schema::<fs::WriteArguments>();
    FsList: fs::LIST, fs::LIST_DESCRIPTION, schema::<fs::ListArguments>();
    ReadContext: context::READ, context::READ_DESCRIPTION, schema::<context::ReadArguments>();
    WriteContext: context::WRITE, context::WRITE_DESCRIPTION, schema::<context::WriteArguments>();
    Spawn: spawn::SPAWN, spawn::SPAWN_DESCRIPTION, schema::<spawn::Arguments>();
    Delegate: spawn::DELEGATE, spawn::DELEGATE_DESCRIPTION, schema::<spawn::Arguments>();
    RunPipeline: spawn::PIPELINE, spawn::PIPELINE_DESCRIPTION, spawn::pipeline_schema();
    AskHuman: human::NAME, human::DESCRIPTION, schema::<human::Arguments>();
    HttpGet: http::NAME, http::DESCRIPTION, schema::<http::Arguments>();
}

impl BuiltinTool {
    pub(super) fn name(self) -> ToolName {
        ToolName::new(self.text()).expect("a literal that fits the grammar")
    }

    pub(super) fn spec(self) -> ToolSpec {
        let description = self.description().to_owned();
        ToolSpec { name: self.name(), description, parameters: self.parameters() }
    }

    /// Returns true if the arguments may contain the placeholder of a secret. The others of these
    /// tools fill in no values: the placeholder would stay in the text, and the agent would take it
    /// for the value.
    pub(super) fn passes_secrets_on(self) -> bool {
        matches!(
            self,
            BuiltinTool::Spawn | BuiltinTool::Delegate | BuiltinTool::RunPipeline | BuiltinTool::HttpGet
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A coordinator rejects every other name.
    #[test]
    fn the_tools_are_those_that_coordinators_know() {
        let names: Vec<&str> = BuiltinTool::ALL.iter().map(|tool| tool.text()).collect();
        assert_eq!(names, domain::tool::BUILTINS);
    }
}
