//! The parameters of a built-in agent, read from its inputs. One that is absent or null has its
//! default; one that makes no sense is named, and no attempt will do better.

use std::{collections::BTreeMap, fmt};

use serde::de::DeserializeOwned;
use shared::{ContextKey, Json};

#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters<'a>(pub(super) &'a BTreeMap<ContextKey, Json>);

/// A parameter that makes no sense.
#[derive(Debug)]
pub(super) struct Bad {
    pub(super) name: &'static str,
    pub(super) reason: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input `{}`: {}", self.name, self.reason)
    }
}

impl Parameters<'_> {
    /// The parameter, if it is given.
    pub(super) fn get<T: DeserializeOwned>(self, name: &'static str) -> Result<Option<T>, Bad> {
        match self.0.get(name).map(Json::value) {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(value) => {
                let read = T::deserialize(value);
                read.map(Some).map_err(|error| Bad { name, reason: error.to_string() })
            }
        }
    }

    pub(super) fn get_or<T: DeserializeOwned>(self, name: &'static str, default: T) -> Result<T, Bad> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    /// A whole number within bounds: a limit on everything.
    pub(super) fn count(self, name: &'static str, default: u32, least: u32, most: u32) -> Result<u32, Bad> {
        let number = self.get_or(name, default)?;
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        Err(Bad { name, reason: format!("{number} is not between {least} and {most}") })
    }
}
