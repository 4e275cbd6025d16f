//! Task graphs (section G): the definition that people write, and the plan it compiles into. Compiling
//! finds every problem at once; a [`Plan`] is always valid. Nothing is run here.

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
mod link;
mod output_schema;
mod plan;
mod read;
mod steps;

pub use amend::{Standing, StepChange, changed_steps, check_amend};
pub use condition::{Condition, EvaluationError, Scope};
pub use critical_path::CriticalPath;
pub use definition::{
    AggregateDef, ApproveDef, FallbackDef, ForEachDef, LoopDef, Mode, Otherwise, Policy, StepDef, TaskGraph,
};
pub use estimate::{Estimate, Known, StepEstimate, Synthesis};
pub use expected::{EarlierRun, Expected, Observed};
pub use form::{Approval, Form, MAX_REMINDERS};
pub use output_schema::OutputSchema;
pub use plan::{
    Aggregate, Approve, Body, Fallback, ForEach, Group, GroupIndex, Input, Plan, Repeat, Source, Step,
    StepIndex,
};
pub use read::{read, read_within};
