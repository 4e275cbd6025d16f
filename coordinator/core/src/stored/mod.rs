//! The stored form of a trace: fields of JSON that an operator can read. A commit writes only the
//! fields that changed. Data that can be derived from other fields is computed when the trace is
//! read.
//!
//! | field | holds |
//! |---|---|
//! | `head` `made` `copied` `index` `by` | settings, generation, form; the times of the last commit and of the last copy; its entries in the index of runs; its spending by agent and model |
//! | `a<agent>` `z<agent>` | profiles; their versions |
//! | `p<number>` `t<child>` `outputs` | plans, cancels that arrived early, the shared store at the end |
//! | `rerun` `u.<step>` | the run whose results it takes over; the results not taken yet |
//! | `d<n>` | of context `n`: parent, identity, terms, limits (null: its parent's); plan, group, beginning of its graph |
//! | `o<n>` | its spec |
//! | `c<n>` `w<n>` `f<n>` | its status and lifecycle; the children for which it waits; the details of its end |
//! | `l<n>` `b<n>` | its ceilings; its sums |
//! | `h<n>` `h.<digest>` | the data for its undo; long values that undos will read |
//! | `k<n>.<call>` `g<n>.<attempt>` `m<n>.<key>` | its calls; its folded calls; its charges |
//! | `n<n>.<i>` `q<n>.<i>` `i<n>.<i>` `r<n>.<i>` `e<n>.<i>` `y<n>.<i>` `T<n>.<i>` | its attempts, answers, messages, restores, notes, disputes, marks for spans |
//! | `G<n>` `E<n>` | the progress of its graph; the end of the graph after it has undone its steps |
//! | `s<n>.<step>` `j<n>.<number>` `v<n>` | the steps of its graph; their lists of items; the changes by amends |

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
/// The number of the stored form, in the field `head`. A change of the form raises it, and the
/// forms since 9 stay readable. A trace in another form is rebuilt from its event log.
const FORM: u32 = 9;

/// The changes that make the stored trace equal to this one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Fields of the trace, by name; `None` deletes the field.
    pub fields: Vec<(String, Option<String>)>,
    /// Values of the shared store; `None` deletes the value.
    pub values: Vec<(String, Option<String>)>,
    /// Its new entries in the index of runs (`found_by`), if they changed.
    pub index: Option<String>,
}

/// The number of the form of a stored trace. It is read first, and the rest of the head after it.
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
    /// The field with the time of the last commit.
    pub const MADE_FIELD: &str = "made";
    /// The field with the time of the last copy in the log.
    pub const COPIED_FIELD: &str = "copied";
    /// The field with the run's entries in the store's index.
    pub const INDEX_FIELD: &str = "index";
    /// The fields from which the summary of a run is made.
    pub const SUMMARY_FIELDS: [&str; 6] = ["d0", "o0", "c0", "l0", "b0", SPENT_BY];

    /// Distinguishes its last commit from another one with the same version: the text of
    /// [`Trace::MADE_FIELD`]. `None` for a trace without a commit.
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
    // 0 is reserved for a field that was never saved.
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
