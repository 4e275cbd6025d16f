//! The stored form of a trace: fields of JSON that an operator can read. Only what changed is written;
//! what follows from other fields is computed again when it is read.
//!
//! | field | holds |
//! |---|---|
//! | `head` `made` `copied` `index` `by` | settings, generation, form; when the last commit was made, and the last copy; the entries that the index of runs has of it; who spent its money |
//! | `a<agent>` `z<agent>` | profiles; their versions |
//! | `p<number>` `t<child>` `outputs` | plans, cancels that came early, the shared store at the end |
//! | `rerun` `u.<step>` | the run that it takes results from; those that are not taken yet |
//! | `d<n>` | of context `n`: parent, identity, terms, limits (null: its parent's); plan, group, beginning of its graph |
//! | `o<n>` | its spec |
//! | `c<n>` `w<n>` `f<n>` | its status and lifecycle; the children it waits for; the details of its end |
//! | `l<n>` `b<n>` | its ceilings; its sums |
//! | `h<n>` `h.<digest>` | what is kept to undo it; long values that undos will get |
//! | `k<n>.<call>` `g<n>.<attempt>` `m<n>.<key>` | its calls; those that are folded; its charges |
//! | `n<n>.<i>` `q<n>.<i>` `i<n>.<i>` `r<n>.<i>` `e<n>.<i>` `y<n>.<i>` `T<n>.<i>` | its attempts, answers, messages, restores, notes, disputes, marks for spans |
//! | `G<n>` `E<n>` | how far its graph is; how it ends when it has undone |
//! | `s<n>.<step>` `j<n>.<number>` `v<n>` | the steps of its graph; their lists of items; what amends changed |

mod digest;
mod read;
mod write;

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hasher},
    sync::Arc,
};

use domain::{Timestamp, graph::GroupIndex, limits::Settings};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{RunOrigin, Trace};

const HEAD: &str = "head";
const OUTPUTS: &str = "outputs";
const RERUN: &str = "rerun";
const SPENT_BY: &str = "by";
/// The number of the stored form, in the field `head`. A change of what is stored raises it, and the forms since 9
/// stay readable. A trace in another form is rebuilt from its event log.
const FORM: u32 = 9;

/// What to write so that the stored trace equals this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Fields of the trace, by name; none deletes the field.
    pub fields: Vec<(String, Option<String>)>,
    /// Values of the shared store; none deletes the value.
    pub values: Vec<(String, Option<String>)>,
    /// Where the index of runs has it from now on (`found_by`), if that changed.
    pub index: Option<String>,
}

/// The form of a stored trace; its head is read after this number.
#[derive(Deserialize)]
struct HeadForm {
    #[serde(default)]
    form: u32,
}

/// A stored trace can't be read.
#[derive(Debug, thiserror::Error)]
#[error("field `{field}` of a stored trace can't be read: {reason}")]
pub struct Corrupt {
    field: String,
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct Head {
    form: u32,
    settings: Option<Arc<Settings>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancelled_before: Option<String>,
    generation: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traced: Option<Box<RunOrigin>>,
}

/// The graph of a context, in its field `d`.
#[derive(Serialize, Deserialize)]
struct StoredGraph {
    plan: u32,
    group: GroupIndex,
    /// The version of the trace when it began.
    begun: u64,
}

impl Trace {
    /// The field that says when the last commit was made.
    pub const MADE_FIELD: &str = "made";
    /// The field that says when the log last got a copy of it.
    pub const COPIED_FIELD: &str = "copied";
    /// The field that says where the store's index of runs has it.
    pub const INDEX_FIELD: &str = "index";
    /// The fields that a summary of a run is made from.
    pub const SUMMARY_FIELDS: [&str; 6] = ["d0", "o0", "c0", "l0", "b0", SPENT_BY];

    /// What tells its last commit apart from another with the same version: the text of [`Trace::MADE_FIELD`].
    /// None for a trace without a commit.
    pub fn stamp(&self) -> Option<String> {
        (self.made > Timestamp::default()).then(|| json(&self.made))
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("states have string keys only")
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    // 0 stands for what was never saved.
    hasher.finish().max(1)
}

fn required<T: DeserializeOwned>(fields: &HashMap<String, String>, field: &str) -> Result<T, Corrupt> {
    read(fields, field)?.ok_or_else(|| Corrupt { field: field.into(), reason: "it is missing".into() })
}

fn read<T: DeserializeOwned>(fields: &HashMap<String, String>, field: &str) -> Result<Option<T>, Corrupt> {
    fields.get(field).map(|text| parse(field, text)).transpose()
}

fn parse<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, Corrupt> {
    serde_json::from_str(text).map_err(|error| Corrupt { field: field.into(), reason: error.to_string() })
}
