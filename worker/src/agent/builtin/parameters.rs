//! The parameters of a built-in agent, read from its inputs. A missing or null parameter takes its
//! default. An invalid one ends the context with an error that names it and is not retryable.

use std::{collections::BTreeMap, fmt};

use domain::{ContextKey, Json};
use serde::de::DeserializeOwned;

#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters<'a>(pub(super) &'a BTreeMap<ContextKey, Json>);

/// A parameter with an invalid value.
#[derive(Debug)]
pub(super) struct InvalidParameter {
    pub(super) name: &'static str,
    pub(super) reason: String,
}

impl fmt::Display for InvalidParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "input `{}`: {}", self.name, self.reason)
    }
}

impl Parameters<'_> {
    /// The parameter; `None` if it is missing or null.
    pub(super) fn get<T: DeserializeOwned>(self, name: &'static str) -> Result<Option<T>, InvalidParameter> {
        match self.0.get(name).map(Json::value) {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(value) => {
                let read = T::deserialize(value);
                read.map(Some).map_err(|error| InvalidParameter { name, reason: error.to_string() })
            }
        }
    }

    pub(super) fn get_or<T: DeserializeOwned>(
        self,
        name: &'static str,
        default: T,
    ) -> Result<T, InvalidParameter> {
        Ok(self.get(name)?.unwrap_or(default))
    }

    /// A whole number within limits.
    pub(super) fn count(
        self,
        name: &'static str,
        default: u32,
        min: u32,
        max: u32,
    ) -> Result<u32, InvalidParameter> {
        let number = self.get_or(name, default)?;
        if (min..=max).contains(&number) {
            return Ok(number);
        }
        Err(InvalidParameter { name, reason: format!("{number} is not between {min} and {max}") })
    }
}
