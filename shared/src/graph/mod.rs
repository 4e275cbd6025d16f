//! Task graphs (section G): the definition that people write, and the plan it compiles into. Compiling
//! finds every problem at once; a [`Plan`] is always valid. Nothing is run here.

mod amend;
mod compile;
mod condition;
mod definition;
mod expression_limits;
mod link;
mod output_schema;
mod plan;
mod read;
mod steps;

pub use amend::{Standing, check_amend};
pub use condition::{Condition, EvaluationError, Scope};
pub use definition::{AggregateDef, FallbackDef, ForEachDef, LoopDef, Mode, Policy, StepDef, TaskGraph};
pub use output_schema::OutputSchema;
pub use plan::{
    Aggregate, Body, Fallback, ForEach, Group, GroupIndex, Input, Plan, Repeat, Source, Step, StepIndex,
};
pub use read::{read, read_within};
