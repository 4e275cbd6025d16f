//! The problems of an input. All of them are reported at once, each with its path and, where
//! possible, a hint, so that a person with five mistakes submits twice and not six times.

use std::fmt;

use serde::{Deserialize, Serialize};
use strsim::osa_distance;

use crate::wording;

/// The most problems that one answer lists. Further ones are only counted.
const MAX_LISTED: usize = 50;
/// The longest path, message or hint. Field names and lists of field names can be as long as a
/// message.
const MAX_TEXT_BYTES: usize = 2000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Problem {
    /// The path as a person would write it: `steps[2].input_from[0]`. Empty for the whole input.
    pub path: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// All problems of one input. As an error, it has at least one.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema, thiserror::Error,
)]
pub struct Problems {
    problems: Vec<Problem>,
    /// The number of problems that were found but not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    unlisted: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if takes a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Problems {
    pub fn one(path: impl Into<String>, message: impl Into<String>, hint: Option<String>) -> Self {
        let mut problems = Self::default();
        problems.add(path, message, hint);
        problems
    }

    pub fn add(&mut self, path: impl Into<String>, message: impl Into<String>, hint: Option<String>) {
        let cut = |text| wording::cut(text, MAX_TEXT_BYTES);
        let problem = Problem { path: cut(path.into()), message: cut(message.into()), hint: hint.map(cut) };
        if self.problems.contains(&problem) {
            return;
        }
        if self.problems.len() < MAX_LISTED {
            self.problems.push(problem);
        } else {
            self.unlisted += 1;
        }
    }

    /// The same as `add`, for a hint that is expensive to find. The hint is not computed once the
    /// list is full.
    pub fn add_with(
        &mut self,
        path: impl Into<String>,
        message: impl Into<String>,
        hint: impl FnOnce() -> Option<String>,
    ) {
        let hint = if self.problems.len() < MAX_LISTED { hint() } else { None };
        self.add(path, message, hint);
    }

    /// Adds the problems of another list.
    pub fn extend(&mut self, more: Problems) {
        more.problems.into_iter().for_each(|problem| self.add(problem.path, problem.message, problem.hint));
        self.unlisted += more.unlisted;
    }

    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    /// The number of problems that were found but not listed.
    pub fn unlisted(&self) -> usize {
        self.unlisted
    }

    /// Returns `value` if there are no problems.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        if self.unlisted > 0 {
            write!(f, "\nand {} more", self.unlisted)?;
        }
        Ok(())
    }
}

/// Returns the known word closest to `word`, or `None` if no known word is similar enough.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    /// The most known words that are compared. A longer search is not worth a hint.
    const LOOKED_AT: usize = 500;
    if word.len() > LONGEST {
        return None;
    }
    let (length, lower) = (word.chars().count(), word.to_lowercase());
    let allowed = if length < 4 { 1 } else { (length / 3).max(2) };
    let starts_alike = |candidate: &str| length >= 3 && candidate.starts_with(word);
    known
        .into_iter()
        .take(LOOKED_AT)
        .filter(|candidate| candidate.len() <= LONGEST)
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= allowed || starts_alike(candidate))
        .map(|candidate| (osa_distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= allowed || starts_alike(candidate))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_named_only_when_it_is_near() {
        let known = ["max_cost_usd", "max_tokens", "goal"];
        let cases = [
            ("max_cost", Some("max_cost_usd")),
            ("maxcostusd", Some("max_cost_usd")),
            ("gaol", Some("goal")),
            ("Goal", Some("goal")),
            ("temperature", None),
            ("go", None),
            ("gola", Some("goal")),
        ];
        for (word, expected) in cases {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }

    #[test]
    fn a_thousand_problems_are_counted_not_listed() {
        let mut problems = Problems::default();
        for n in 0..1000 {
            problems.add(format!("steps[{n}]"), "bad", None);
        }
        assert_eq!(problems.iter().count(), MAX_LISTED);
        assert!(problems.to_string().ends_with("and 950 more"));
    }
}
