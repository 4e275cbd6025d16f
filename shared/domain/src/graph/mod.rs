//! Task graphs (section G): the definition that people write, and the plan it compiles into.
//! Compiling finds all problems at once, so a [`Plan`] is always valid. This module runs nothing.

mod agents;
mod amend;
mod approve;
mod compile;
mod condition;
mod critical_path;
mod definition;
mod estimate;
mod expected;
mod expression_limits;
mod form;
mod inputs;
mod link;
mod named;
mod output_schema;
mod plan;
mod read;
mod reference;
mod steps;
mod undo;
mod used;

pub use agents::KnownAgents;
pub use amend::{BEGUN, Standing, StepChange, changed_steps, check_amend};
pub use condition::{Condition, EvaluationError, Scope};
pub use critical_path::CriticalPath;
pub use definition::{
    AggregateDef, ApproveDef, FallbackDef, ForEachDef, LoopDef, Mode, Otherwise, OutputDef, Policy, StepDef,
    TaskGraph, UndoDef, UndoTask, WithDef, WithValue,
};
pub use estimate::{Estimate, EstimateInputs, StepEstimate, StepKind, Synthesis};
pub use expected::{EarlierRun, ExpectedCost, ObservedRun};
pub use form::{Approval, Form, MAX_REMINDERS};
pub use named::{
    Find, FoundGraph, MAX_KEPT_BYTES, MAX_NAMED_BYTES, NotFound, Purpose, Put, ResolveError, ResolvedGraph,
    UnverifiedGraph, circle, names, put, put_stand_ins, read_named, read_to_keep, references,
};
pub use output_schema::OutputSchema;
pub use plan::{
    Aggregate, Approve, Body, Fallback, ForEach, Group, GroupIndex, Input, Naming, Place, Plan, Repeat,
    Source, Step, StepIndex, Undo, UsedGraph,
};
pub use read::{not_named, read, read_within, read_without_inputs};
pub use reference::Reference;
pub use undo::UNDO_RESULT;
