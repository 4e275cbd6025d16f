//! The labels of a run (G17): keys and values that its submitter chooses, and by which runs are
//! found. Labels grant no access, and agents do not see them.

use std::{borrow::Cow, collections::BTreeMap, ops::Deref};

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::id::{LabelKey, LabelValue};

/// The most labels of one run. Each label is an entry of the index.
pub const MAX_LABELS: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<LabelKey, LabelValue>);

impl Labels {
    pub fn new(labels: BTreeMap<LabelKey, LabelValue>) -> Result<Self, String> {
        match labels.len() {
            0..=MAX_LABELS => Ok(Labels(labels)),
            count => Err(format!("a run has at most {MAX_LABELS} labels, and these are {count}")),
        }
    }
}

/// For `skip_serializing_if`: leaves empty labels out.
pub fn is_none(labels: &Labels) -> bool {
    labels.is_empty()
}

impl Deref for Labels {
    type Target = BTreeMap<LabelKey, LabelValue>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(d).and_then(|labels| Self::new(labels).map_err(de::Error::custom))
    }
}

impl schemars::JsonSchema for Labels {
    fn schema_name() -> Cow<'static, str> {
        "Labels".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object",
            "maxProperties": MAX_LABELS,
            // Without the pattern, each mistake is reported once, in words.
            "propertyNames": {"type": "string", "x-check": "label"},
            "additionalProperties": LabelValue::json_schema(generator),
        })
    }
}
