//! Task graphs (section G): the definition people write, and the plan it compiles into. Compiling
//! finds every mistake at once; a [`Plan`] can't be wrong. Nothing here runs anything.

mod check;
mod condition;
mod definition;
mod dependency;
mod plan;
mod read;
mod vet;

pub use condition::{Condition, EvaluationError, Scope};
pub use definition::{AggregateDef, FallbackDef, ForEachDef, LoopDef, Mode, Policy, StepDef, TaskGraph};
pub use plan::{
    Aggregate, Body, Fallback, ForEach, Group, GroupIndex, Input, OutputSchema, Plan, Repeat, Source, Step,
    StepIndex,
};
pub use read::read;
