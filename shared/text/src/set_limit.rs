//! The message about a reached limit: its name, its value, the place where it was set, and the
//! places where it can be raised (L). All messages about limits are formed here, so their wording
//! is the same everywhere.

use std::{fmt, str::FromStr};

use domain::id::{AgentId, ChildId};

/// The place where a limit is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The limit has its default.
    Default,
    /// The limit is fixed in the program.
    BuiltIn,
    Submission,
    /// The step of a graph that a context runs.
    Step,
    /// The `undo` of a step.
    Undo,
    /// The order with which an agent spawned the context.
    Spawn(ChildId),
    Profile(AgentId),
    /// The `resources` of a program: in its agent's profile, or in the settings of an MCP server.
    Resources,
    /// The rest of the parent's budget.
    Parent(ChildId),
    /// The settings file of the coordinators.
    Coordinators,
    /// The operator's upper bound, in the settings file of the coordinators.
    Maximum,
    /// The settings file of the worker.
    Worker,
    /// Raised while the context ran.
    Raised,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Default => f.write_str("the default"),
            Place::BuiltIn => f.write_str("built in"),
            Place::Submission => f.write_str("the submission"),
            Place::Step => f.write_str("the step"),
            Place::Undo => f.write_str("the `undo` of the step"),
            Place::Spawn(child) => write!(f, "the spawn of `{child}`"),
            Place::Profile(agent) => write!(f, "the profile of agent `{agent}`"),
            Place::Resources => {
                f.write_str("the agent's profile, or under the MCP server in the settings of the worker")
            }
            Place::Parent(parent) => write!(f, "the remaining budget of `{parent}`"),
            Place::Coordinators => f.write_str("the settings of the coordinators"),
            Place::Maximum => f.write_str("the operator's `maximum`, in the settings of the coordinators"),
            Place::Worker => f.write_str("the settings of the worker"),
            Place::Raised => f.write_str("after a raise"),
        }
    }
}

/// A limit with its value, the place where it was set, and the places where it can be raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetLimit {
    pub name: &'static str,
    pub value: String,
    pub set_in: Place,
    /// The places where a larger value takes effect. Empty if the limit can't be raised.
    pub raise_in: Vec<Place>,
}

impl SetLimit {
    /// A limit that is set and raised in the same place.
    pub fn new(name: &'static str, value: impl fmt::Display, set_in: Place) -> Self {
        let raise_in = Some(set_in.clone()).filter(|place| *place != Place::BuiltIn);
        SetLimit { name, value: value.to_string(), set_in, raise_in: raise_in.into_iter().collect() }
    }

    /// A limit that can't be set.
    pub fn built_in(name: &'static str, value: impl fmt::Display) -> Self {
        SetLimit::new(name, value, Place::BuiltIn)
    }

    /// A limit on a program's use of the machine. The program's supervisor does not know which
    /// profile or server set it.
    pub fn of_resources(name: &'static str, value: u64) -> Self {
        SetLimit::new(name, value, Place::Resources)
    }

    /// Describes how to raise the limit. Empty if it can't be raised.
    pub fn hint(&self) -> String {
        if self.raise_in.is_empty() {
            return String::new();
        }
        let verb = if self.set_in == Place::Default { "set" } else { "raise" };
        let mut said = verb.to_owned();
        let mut last = None;
        for place in &self.raise_in {
            let (field, place) = self.within(place);
            match &last {
                None => said.push_str(&format!(" `{field}` in {place}")),
                Some(same) if *same == field => said.push_str(&format!(" or {place}")),
                Some(_) => said.push_str(&format!(", or `{field}` in {place}")),
            }
            last = Some(field);
        }
        said
    }

    /// Returns the name of the field in a place, and the place.
    fn within<'a>(&self, place: &'a Place) -> (String, &'a Place) {
        let name = self.name;
        let is_money = matches!(name, "max_cost_usd" | "max_tokens");
        let own = if is_money || matches!(name, "timeout_ms" | "window_tokens") {
            name.to_owned()
        } else {
            format!("limits.{name}")
        };
        match place {
            Place::Step | Place::Undo if name == "max_retries_total" => ("retries".into(), place),
            Place::Coordinators if is_money => ("root_budget".into(), place),
            Place::Coordinators => (format!("limits.{name}"), place),
            Place::Maximum => (format!("maximum.{own}"), &Place::Coordinators),
            Place::Submission | Place::Spawn(_) | Place::Profile(_) => (own, place),
            Place::Step
            | Place::Undo
            | Place::Default
            | Place::BuiltIn
            | Place::Resources
            | Place::Parent(_)
            | Place::Worker
            | Place::Raised => (name.into(), place),
        }
    }
}

impl fmt::Display for SetLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.name, self.value)?;
        if self.set_in != Place::Resources {
            write!(f, " ({})", self.set_in)?;
        }
        match self.hint() {
            hint if hint.is_empty() => Ok(()),
            hint => write!(f, "; {hint}"),
        }
    }
}

/// A worker's report about a limit that its agent has reached, such as `max_steps: 20 of 20`. A
/// worker does not know where a limit was set. The coordinator knows, and replaces the report by a
/// full message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedLimit {
    pub name: String,
    pub used: u64,
    pub max: u64,
    /// Further details.
    pub detail: Option<String>,
}

impl UsedLimit {
    pub fn new(name: &str, used: impl Into<u64>, max: impl Into<u64>) -> Self {
        UsedLimit { name: name.to_owned(), used: used.into(), max: max.into(), detail: None }
    }

    pub fn with(self, detail: impl fmt::Display) -> Self {
        UsedLimit { detail: Some(detail.to_string()), ..self }
    }
}

impl fmt::Display for UsedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {}", self.name, self.used, self.max)?;
        self.detail.iter().try_for_each(|detail| write!(f, "; {detail}"))
    }
}

/// The error for a text that has another form.
#[derive(Debug, PartialEq, Eq)]
pub struct Other;

impl FromStr for UsedLimit {
    type Err = Other;

    fn from_str(text: &str) -> Result<Self, Other> {
        let (counts, detail) = match text.split_once("; ") {
            Some((counts, detail)) => (counts, Some(detail.to_owned())),
            None => (text, None),
        };
        let (name, counts) = counts.split_once(": ").ok_or(Other)?;
        let (used, max) = counts.split_once(" of ").ok_or(Other)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| Other);
        Ok(UsedLimit { name: name.to_owned(), used: number(used)?, max: number(max)?, detail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentId {
        AgentId::new("writer").unwrap()
    }

    #[test]
    fn l_a_limit_says_its_name_its_value_where_it_was_set_and_how_to_raise_it() {
        let child = || ChildId::new("a").unwrap();
        for (name, set_in, said) in [
            (
                "max_steps",
                Place::Submission,
                "max_steps = 7 (the submission); raise `limits.max_steps` in the submission",
            ),
            (
                "max_steps",
                Place::Profile(agent()),
                "max_steps = 7 (the profile of agent `writer`); raise `limits.max_steps` in the profile of agent `writer`",
            ),
            ("max_steps", Place::BuiltIn, "max_steps = 7 (built in)"),
            (
                "max_steps",
                Place::Spawn(child()),
                "max_steps = 7 (the spawn of `a`); raise `limits.max_steps` in the spawn of `a`",
            ),
            (
                "max_steps",
                Place::Maximum,
                "max_steps = 7 (the operator's `maximum`, in the settings of the coordinators); raise `maximum.limits.max_steps` in the settings of the coordinators",
            ),
            (
                "max_steps",
                Place::Coordinators,
                "max_steps = 7 (the settings of the coordinators); raise `limits.max_steps` in the settings of the coordinators",
            ),
            ("timeout_ms", Place::Step, "timeout_ms = 7 (the step); raise `timeout_ms` in the step"),
            (
                "timeout_ms",
                Place::Undo,
                "timeout_ms = 7 (the `undo` of the step); raise `timeout_ms` in the `undo` of the step",
            ),
            (
                "max_retries_total",
                Place::Step,
                "max_retries_total = 7 (the step); raise `retries` in the step",
            ),
            (
                "timeout_ms",
                Place::Maximum,
                "timeout_ms = 7 (the operator's `maximum`, in the settings of the coordinators); raise `maximum.timeout_ms` in the settings of the coordinators",
            ),
            (
                "max_cost_usd",
                Place::Coordinators,
                "max_cost_usd = 7 (the settings of the coordinators); raise `root_budget` in the settings of the coordinators",
            ),
            (
                "timeout_ms",
                Place::Worker,
                "timeout_ms = 7 (the settings of the worker); raise `timeout_ms` in the settings of the worker",
            ),
        ] {
            assert_eq!(SetLimit::new(name, 7, set_in).to_string(), said);
        }
        let said = "resources.processes = 7; raise `resources.processes` in the agent's profile, or under the MCP server in the settings of the worker";
        assert_eq!(SetLimit::of_resources("resources.processes", 7).to_string(), said);
        let default = SetLimit {
            raise_in: vec![Place::Step, Place::Profile(agent()), Place::Coordinators],
            ..SetLimit::new("timeout_ms", 60_000, Place::Default)
        };
        let said = "timeout_ms = 60000 (the default); set `timeout_ms` in the step or the profile of agent `writer`, or `limits.timeout_ms` in the settings of the coordinators";
        assert_eq!(default.to_string(), said);
    }

    #[test]
    fn l_a_workers_report_of_a_limit_is_read_back() {
        for used in [
            UsedLimit::new("max_steps", 3u32, 3u32),
            UsedLimit::new("max_retries_total", 6u32, 5u32).with("503; again"),
        ] {
            assert_eq!(used.to_string().parse(), Ok(used));
        }
        for other in
            ["", "max_steps", "max_steps: many of 3", "the program wrote a line of more than 7 bytes"]
        {
            assert_eq!(other.parse::<UsedLimit>(), Err(Other), "{other}");
        }
    }
}
