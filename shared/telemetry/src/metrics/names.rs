//! Labels from outside: names of agents, pools, models and tools. Only a limited number of names
//! get a series of their own; the rest are counted as `other`. Invented names so can't fill the
//! memory of this process or of the metrics server.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use opentelemetry::{StringValue, Value};

/// The label of all names beyond the limit.
pub(super) const OTHER: &str = "other";

#[derive(Debug)]
pub(super) struct Names {
    most: usize,
    known: RwLock<HashMap<Arc<str>, StringValue>>,
}

impl Names {
    pub(super) fn new(most: usize) -> Self {
        Names { most, known: RwLock::default() }
    }

    /// The label of a name. The first `most` names are remembered for the life of the process, so
    /// that the label of a name never changes.
    pub(super) fn label(&self, name: &str) -> Value {
        if let Some(known) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Value::String(known.clone());
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(name) {
            return Value::String(known.clone());
        }
        if known.len() >= self.most {
            return OTHER.into();
        }
        let name: Arc<str> = name.into();
        let label = StringValue::from(name.clone());
        known.insert(name, label.clone());
        Value::String(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x7_so_many_names_count_and_the_rest_are_others() {
        let names = Names::new(2);
        let label = |name: &str| names.label(name).to_string();
        assert_eq!([label("a"), label("b"), label("c"), label("a")], ["a", "b", "other", "a"]);
        assert_eq!(label("b"), "b", "the label of a name does not change");
    }
}
