//! The worker's own tools: their names, what a model is told of each, and what each takes.

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
            Builtin::FsRead => "fs.read",
            Builtin::FsWrite => "fs.write",
            Builtin::FsList => "fs.list",
            Builtin::ReadContext => "read_context",
            Builtin::WriteContext => "write_context",
            Builtin::Spawn => "spawn",
            Builtin::Delegate => "delegate",
            Builtin::RunPipeline => "run_pipeline",
            Builtin::AskHuman => "ask_human",
            Builtin::HttpGet => "http.get",
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
            Builtin::FsRead => {
                "Reads a text file of your workspace. For a long one, name the first line and how many lines \
                 you want."
            }
            Builtin::FsWrite => {
                "Writes a text file of your workspace, and replaces it if it is there. What is to be kept \
                 goes under outputs/; history/ can't be written."
            }
            Builtin::FsList => "Lists a directory of your workspace, with sizes in bytes.",
            Builtin::ReadContext => {
                "Reads a value of the store that the agents of this request share; with no key, lists the \
                 keys you may read. `found` is false where there is no such value; a value may be null."
            }
            Builtin::WriteContext => {
                "Writes a value into the store that the agents of this request share: under the key you were \
                 given for your output, or a key that begins with your own id and a dot."
            }
            Builtin::Spawn => {
                "Starts one other agent on one task and answers with its result; you go on from there. Use it \
                 for a part of your work that stands on its own. The agent knows nothing of what you know: say \
                 all it needs in the goal and the inputs. For several parts that depend on each other, or that \
                 should run at the same time, use run_pipeline; if the other agent should finish the work in \
                 your place, use delegate."
            }
            Builtin::Delegate => {
                "Hands your work over: the other agent's result becomes your own, and you are not asked again. \
                 Use it when another agent is better suited to finish what you were asked. To get an answer \
                 back and go on, use spawn."
            }
            Builtin::RunPipeline => {
                "Runs several agents as a graph and answers with the results of all steps. Use it for work of \
                 more than one step: parts that run at the same time (mode parallel), or that pass results on \
                 (a step's output_to is a key that later steps name in input_from). For a single agent use \
                 spawn."
            }
            Builtin::AskHuman => {
                "Asks a human and answers with what they say, which may take days. Use it only when you can't \
                 go on without them; put all you need to know into one question."
            }
            Builtin::HttpGet => "Gets a text from a web address. Only some hosts may be reached.",
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
