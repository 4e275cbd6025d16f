//! The ladder of a budget (B21): the fractions of its ceiling at which an agent is informed of the
//! rest, switches to another model, or compacts its window. A request's ladder replaces its
//! profile's.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{id::ModelName, money::Amount, problem::Problems};

/// As the `model` of a rung, it stands for the `fallback_model` of the agent's profile.
pub const CHEAPER: &str = "cheaper";
/// The most rungs of a ladder.
const MAX_RUNGS: usize = 16;
const MILLION: i64 = 1_000_000;

/// A part of a ceiling, exact to six decimals. In JSON it is a number, such as 0.8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction {
    millionths: i64,
}

/// One rung: a part of the ceiling, and exactly one action at that point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rung {
    /// The part of the ceiling that is spent, in money or in tokens: between 0 and 1.
    pub at: Fraction,
    /// The agent is informed of what is left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tell: bool,
    /// The model of the agent's calls from this rung on. `cheaper` is the `fallback_model` of its
    /// profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The agent compacts its window before its next call (W7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compact: bool,
}

/// The action of a rung.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RungAction {
    Tell,
    Model(ModelName),
    Compact,
}

impl Fraction {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text} is not a part of a ceiling: write a number with at most six decimals, such as 0.8"
            )
        };
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        if decimals.len() > 6 {
            return Err(wrong());
        }
        let number = |text: &str| text.parse::<u32>().map(i64::from).map_err(|_| wrong());
        let millionths = number(whole)? * MILLION + number(&format!("{decimals:0<6}"))?;
        Ok(Fraction { millionths: if negative { -millionths } else { millionths } })
    }

    fn is_a_part(self) -> bool {
        (1..MILLION).contains(&self.millionths)
    }

    /// Returns true if this part of a ceiling is spent, in money or in tokens.
    pub fn is_reached(self, spent: Amount, limit: Amount) -> bool {
        let at = u128::try_from(self.millionths).unwrap_or_default();
        let reached = |spent: u64, limit: u64| {
            limit > 0 && u128::from(spent) * u128::from(MILLION.unsigned_abs()) >= at * u128::from(limit)
        };
        reached(spent.cost_usd.nanos(), limit.cost_usd.nanos())
            || reached(spent.tokens.count(), limit.tokens.count())
    }
}

/// Shown in percent: `80 %`, `95.5 %`.
impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:04}", self.millionths % 10_000);
        let (percent, decimals) = (self.millionths / 10_000, decimals.trim_end_matches('0'));
        let point = if decimals.is_empty() { "" } else { "." };
        f.pad(&format!("{percent}{point}{decimals} %"))
    }
}

impl fmt::Debug for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        #[expect(
            clippy::float_arithmetic,
            clippy::cast_precision_loss,
            reason = "both are exact in a double, so the quotient is the double nearest to the decimal"
        )]
        s.serialize_f64(self.millionths as f64 / MILLION as f64)
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(d)?;
        Fraction::parse(&format!("{number}")).map_err(de::Error::custom)
    }
}

impl schemars::JsonSchema for Fraction {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Fraction".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})
    }
}

impl Rung {
    pub fn is_cheaper(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.as_str() == CHEAPER)
    }

    /// Returns the rung's action. `fallback` is the cheaper model of the agent's profile. If the
    /// rung needs it and it is missing, the action is `Tell`.
    pub fn action(&self, fallback: Option<&ModelName>) -> RungAction {
        match (&self.model, self.compact) {
            (Some(_), _) if self.is_cheaper() => {
                fallback.cloned().map_or(RungAction::Tell, RungAction::Model)
            }
            (Some(model), _) => RungAction::Model(model.clone()),
            (None, true) => RungAction::Compact,
            (None, false) => RungAction::Tell,
        }
    }
}

/// Adds the problems of a ladder at `path`.
pub fn check(path: &str, ladder: &[Rung], problems: &mut Problems) {
    if ladder.len() > MAX_RUNGS {
        problems.add(path, format!("{} rungs are more than the {MAX_RUNGS} allowed", ladder.len()), None);
        return;
    }
    for (index, rung) in ladder.iter().enumerate() {
        let at = |field: &str| format!("{path}[{index}]{field}");
        if !rung.at.is_a_part() {
            let hint = "write the part of the ceiling that is spent, such as 0.8; what happens at its end is `on_exhausted`";
            problems.add(at(".at"), "it must be more than 0 and less than 1", Some(hint.into()));
        }
        if ladder[..index].last().is_some_and(|before| rung.at <= before.at) {
            problems.add(at(".at"), "the rungs must ascend: it is not above the one before", None);
        }
        match u32::from(rung.tell) + u32::from(rung.model.is_some()) + u32::from(rung.compact) {
            1 => {}
            count => {
                let message =
                    if count == 0 { "the rung does nothing" } else { "the rung does more than one thing" };
                let hint = "give exactly one of `tell: true`, `model: NAME` and `compact: true`";
                problems.add(at(""), message, Some(hint.into()));
            }
        }
    }
}

/// Adds a problem for each rung that asks for the cheaper model. Call it for a profile without one.
pub fn check_cheaper(path: &str, ladder: &[Rung], problems: &mut Problems) {
    for (index, _) in ladder.iter().enumerate().filter(|(_, rung)| rung.is_cheaper()) {
        let hint = "add `fallback_model` to the profile, or name a model";
        problems.add(
            format!("{path}[{index}].model"),
            "`cheaper` is the `fallback_model` of the agent's profile, which has none",
            Some(hint.into()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::{Tokens, Usd};

    fn fraction(text: &str) -> Fraction {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn b21_a_part_of_a_ceiling_is_exact() {
        for (text, shown) in [("0.8", "80 %"), ("0.955", "95.5 %"), ("0.000001", "0.0001 %"), ("1", "100 %")]
        {
            let read = fraction(text);
            assert_eq!(read.to_string(), shown);
            let written = serde_json::to_string(&read).unwrap();
            assert_eq!(fraction(&written), read, "{written}");
        }
        for text in ["0.1234567", "1e99", "null", "\"0.8\""] {
            assert!(serde_json::from_str::<Fraction>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn b21_the_larger_part_of_money_and_tokens_counts() {
        let amount = |nanos, tokens| Amount::new(Usd::from_nanos(nanos), Tokens::new(tokens));
        let limit = amount(10, 1000);
        for (spent, reached) in [((7, 799), false), ((8, 0), true), ((0, 800), true), ((10, 1000), true)] {
            assert_eq!(fraction("0.8").is_reached(amount(spent.0, spent.1), limit), reached, "{spent:?}");
        }
    }
}
