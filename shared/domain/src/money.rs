//! Money and tokens as integers (B2). Dollars are nano-dollars inside and decimal dollars in JSON.
//! The conversion is exact in both directions; floats are never added, compared or stored.
//!
//! Amounts stay below 2^23 dollars and 2^53 tokens. Up to there a JSON number, a double in Lua or
//! Python and our integer are the same number. A budget is at most $1,000,000; external charges may
//! raise a sum above that, up to [`Usd::MAX_BOOKED`].

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const NANOS_PER_DOLLAR: u64 = 1_000_000_000;
const EXACT_IN_A_DOUBLE: u64 = 1 << 53;
/// Below 2^23 dollars, doubles are denser than nano-dollars: every amount has a double of its own.
const MAX_BOOKED_NANOS: u64 = (1 << 23) * NANOS_PER_DOLLAR;

/// The reason why a text or number is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is not an amount of dollars")]
    NotANumber(String),
    #[error("{0} is negative")]
    Negative(String),
    #[error("{0} is more than $1,000,000")]
    TooMuch(String),
    #[error("{0} is finer than a nano-dollar (9 decimals)")]
    TooFine(String),
    #[error("{0} is not a whole number of tokens up to 1,000,000,000,000")]
    NotTokens(String),
}

/// Money, in whole nano-dollars.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Usd(u64);

impl Usd {
    pub const ZERO: Usd = Usd(0);
    /// The largest limit, hold or single cost.
    pub const MAX: Usd = Usd(1_000_000 * NANOS_PER_DOLLAR);
    /// The largest sum in a trace: more than eight million dollars.
    pub const MAX_BOOKED: Usd = Usd(MAX_BOOKED_NANOS);

    pub const fn from_nanos(nanos: u64) -> Self {
        Usd(nanos)
    }

    pub const fn from_cents(cents: u64) -> Self {
        Usd(cents * (NANOS_PER_DOLLAR / 100))
    }

    pub const fn nanos(self) -> u64 {
        self.0
    }

    fn from_json_number(number: f64) -> Result<Self, Error> {
        // A double keeps 15 significant digits, and no valid amount has more. So its shortest
        // decimal form is the text that the sender wrote, and parsing that text is exact.
        format!("{number}").parse()
    }
}

/// Reads sums, which may exceed the largest amount of a request. For fields that hold sums:
/// `#[serde(deserialize_with = "booked::amount")]`.
pub mod booked {
    use super::{Amount, Deserialize, Deserializer, EXACT_IN_A_DOUBLE, MAX_BOOKED_NANOS, Tokens, Usd, de};

    #[derive(Deserialize)]
    struct Sums {
        cost_usd: f64,
        tokens: u64,
    }

    pub fn amount<'de, D: Deserializer<'de>>(d: D) -> Result<Amount, D::Error> {
        let sums = Sums::deserialize(d)?;
        if sums.tokens > EXACT_IN_A_DOUBLE {
            return Err(de::Error::custom("more than 2^53 tokens"));
        }
        let cost_usd =
            Usd::parse(&format!("{}", sums.cost_usd), MAX_BOOKED_NANOS).map_err(de::Error::custom)?;
        Ok(Amount::new(cost_usd, Tokens(sums.tokens)))
    }

    pub fn usd<'de, D: Deserializer<'de>>(d: D) -> Result<Usd, D::Error> {
        let dollars = f64::deserialize(d)?;
        Usd::parse(&format!("{dollars}"), MAX_BOOKED_NANOS).map_err(de::Error::custom)
    }

    pub fn tokens<'de, D: Deserializer<'de>>(d: D) -> Result<Tokens, D::Error> {
        Ok(Tokens(u64::deserialize(d)?))
    }
}

impl FromStr for Usd {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text, Self::MAX.0)
    }
}

impl Usd {
    fn parse(text: &str, most_nanos: u64) -> Result<Self, Error> {
        let short = || text.chars().take(40).collect::<String>();
        if let Some(rest) = text.strip_prefix('-') {
            let negative = rest.starts_with(|c: char| c.is_ascii_digit());
            return Err(if negative { Error::Negative(short()) } else { Error::NotANumber(short()) });
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) || text.ends_with('.') {
            return Err(Error::NotANumber(short()));
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > 9 {
            return Err(Error::TooFine(short()));
        }
        let dollars: u64 = whole.parse().map_err(|_| Error::TooMuch(short()))?;
        let nanos: u64 = format!("{fraction:0<9}").parse().expect("nine digits");
        match dollars.checked_mul(NANOS_PER_DOLLAR).and_then(|n| n.checked_add(nanos)) {
            Some(total) if total <= most_nanos => Ok(Usd(total)),
            _ => Err(Error::TooMuch(short())),
        }
    }
}

/// Shown exactly, with two to nine decimals.
impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:09}", self.0 % NANOS_PER_DOLLAR);
        let kept = fraction.trim_end_matches('0').len().max(2);
        f.pad(&format!("${}.{}", self.0 / NANOS_PER_DOLLAR, &fraction[..kept]))
    }
}

impl fmt::Debug for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        debug_assert!(self.0 <= MAX_BOOKED_NANOS, "a sum beyond the exact range");
        #[expect(
            clippy::float_arithmetic,
            clippy::cast_precision_loss,
            reason = "both are exact below 2^53, so the quotient is the double nearest to the decimal"
        )]
        s.serialize_f64(self.0 as f64 / NANOS_PER_DOLLAR as f64)
    }
}

impl<'de> Deserialize<'de> for Usd {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Usd;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("dollars as a number or a decimal string, such as 0.5 or \"0.5\"")
            }
            fn visit_u64<E: de::Error>(self, dollars: u64) -> Result<Usd, E> {
                dollars.to_string().parse().map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, dollars: i64) -> Result<Usd, E> {
                dollars.to_string().parse().map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, dollars: f64) -> Result<Usd, E> {
                Usd::from_json_number(dollars).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Usd, E> {
                text.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl schemars::JsonSchema for Usd {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Usd".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["number", "string"], "x-check": "usd",
            "description": "Dollars, as a number or a decimal string, to at most 9 decimals: 0.5 or \"0.5\".",
        })
    }
}

/// Tokens, in whole numbers.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, schemars::JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Tokens(#[schemars(extend("x-check" = "tokens"))] u64);

impl Tokens {
    pub const ZERO: Tokens = Tokens(0);
    pub const MAX: Tokens = Tokens(1_000_000_000_000);

    pub const fn new(count: u64) -> Self {
        Tokens(count)
    }

    pub const fn count(self) -> u64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Tokens {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let count = u64::deserialize(d)?;
        if count > Self::MAX.0 {
            return Err(de::Error::custom(Error::NotTokens(count.to_string())));
        }
        Ok(Tokens(count))
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The two dimensions of a budget: money and tokens.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    Cost,
    Tokens,
}

impl Dimension {
    pub fn name(self) -> &'static str {
        match self {
            Dimension::Cost => "cost",
            Dimension::Tokens => "tokens",
        }
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Money and tokens together: every limit, hold and cost has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Amount {
    #[serde(default)]
    pub cost_usd: Usd,
    #[serde(default)]
    pub tokens: Tokens,
}

impl Amount {
    pub const ZERO: Amount = Amount { cost_usd: Usd::ZERO, tokens: Tokens::ZERO };

    pub const fn new(cost_usd: Usd, tokens: Tokens) -> Self {
        Amount { cost_usd, tokens }
    }

    pub const fn cost(cost_usd: Usd) -> Self {
        Amount { cost_usd, tokens: Tokens::ZERO }
    }

    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// The same as `is_zero`, with serde's signature.
    pub fn is_nothing(&self) -> bool {
        self.is_zero()
    }

    /// Returns both sums, or `None` if either would leave the exact range.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let add = |a: u64, b: u64, most: u64| a.checked_add(b).filter(|sum| *sum <= most);
        Some(Amount {
            cost_usd: Usd(add(self.cost_usd.0, other.cost_usd.0, MAX_BOOKED_NANOS)?),
            tokens: Tokens(add(self.tokens.0, other.tokens.0, EXACT_IN_A_DOUBLE)?),
        })
    }

    pub fn checked_sub(self, other: Self) -> Option<Self> {
        Some(Amount {
            cost_usd: Usd(self.cost_usd.0.checked_sub(other.cost_usd.0)?),
            tokens: Tokens(self.tokens.0.checked_sub(other.tokens.0)?),
        })
    }

    /// Subtracts `other` in each dimension; a dimension never falls below zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Amount {
            cost_usd: Usd(self.cost_usd.0.saturating_sub(other.cost_usd.0)),
            tokens: Tokens(self.tokens.0.saturating_sub(other.tokens.0)),
        }
    }

    /// Returns the larger value in each dimension.
    pub fn max(self, other: Self) -> Self {
        Amount { cost_usd: self.cost_usd.max(other.cost_usd), tokens: self.tokens.max(other.tokens) }
    }

    /// Returns the smaller value in each dimension.
    pub fn min(self, other: Self) -> Self {
        Amount { cost_usd: self.cost_usd.min(other.cost_usd), tokens: self.tokens.min(other.tokens) }
    }

    /// Returns the first dimension in which `self` is more than `room`.
    pub fn exceeds(self, room: Self) -> Option<Dimension> {
        if self.cost_usd > room.cost_usd {
            Some(Dimension::Cost)
        } else if self.tokens > room.tokens {
            Some(Dimension::Tokens)
        } else {
            None
        }
    }

    /// Returns the first dimension in which `self` has reached `limit` (`>=`, B4).
    pub fn reaches(self, limit: Self) -> Option<Dimension> {
        if self.cost_usd >= limit.cost_usd {
            Some(Dimension::Cost)
        } else if self.tokens >= limit.tokens {
            Some(Dimension::Tokens)
        } else {
            None
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {} tokens", self.cost_usd, self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Result<Usd, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn b2_dollars_are_exact_from_numbers_and_strings() {
        let cases = [
            ("0.5", 500_000_000),
            ("\"0.5\"", 500_000_000),
            ("0.1", 100_000_000),
            ("1", 1_000_000_000),
            ("0.000000001", 1),
            ("1e-9", 1),
            ("999999.999999999", 999_999_999_999_999),
            ("\"999999.999999999\"", 999_999_999_999_999),
            ("1000000", 1_000_000_000_000_000),
            ("1e6", 1_000_000_000_000_000),
            ("0", 0),
            ("0.10", 100_000_000),
        ];
        for (text, nanos) in cases {
            let amount = json(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(amount.nanos(), nanos, "{text}");
            assert_eq!(
                json(&serde_json::to_string(&amount).unwrap()).unwrap(),
                amount,
                "{text} there and back"
            );
        }
    }

    #[test]
    fn b2_nonsense_is_refused_with_a_clear_error() {
        let cases = [
            ("-0.5", "negative"),
            ("\"-1\"", "negative"),
            ("-1", "negative"),
            ("\"NaN\"", "not an amount"),
            ("\"inf\"", "not an amount"),
            ("\"\"", "not an amount"),
            ("\".5\"", "not an amount"),
            ("\"1.\"", "not an amount"),
            ("\"1e3\"", "not an amount"),
            ("\"-\"", "not an amount"),
            ("1000000.000000001", "more than $1,000,000"),
            ("1e300", "more than $1,000,000"),
            ("18446744073709551615", "more than $1,000,000"),
            ("0.30000000000000004", "finer than a nano-dollar"),
            ("\"0.0000000001\"", "finer than a nano-dollar"),
            ("true", "dollars as a number"),
            ("NaN", "expected"),
        ];
        for (text, says) in cases {
            let error = json(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn b2_dollars_show_as_decimals() {
        for (nanos, text) in
            [(0, "$0.00"), (200_000_000, "$0.20"), (1, "$0.000000001"), (1_500_000_000, "$1.50")]
        {
            assert_eq!(Usd(nanos).to_string(), text);
        }
    }

    #[test]
    fn b2_sums_stay_exact_in_a_double_or_are_refused() {
        let most = Amount::cost(Usd::MAX_BOOKED);
        assert_eq!(most.checked_add(Amount::cost(Usd(1))), None);
        assert_eq!(most.checked_add(Amount::ZERO), Some(most));
        assert_eq!(Amount::ZERO.checked_sub(Amount::cost(Usd(1))), None);
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Books(#[serde(deserialize_with = "booked::amount")] Amount);
        for nanos in [MAX_BOOKED_NANOS, MAX_BOOKED_NANOS - 1, 5_000_000_123_456_789, 1, 0] {
            let books = Books(Amount::new(Usd(nanos), Tokens(EXACT_IN_A_DOUBLE)));
            let text = serde_json::to_string(&books).unwrap();
            assert_eq!(serde_json::from_str::<Books>(&text).unwrap(), books, "{text}");
        }
    }

    #[test]
    fn b4_reaching_is_at_the_limit_and_exceeding_is_beyond() {
        let one = Amount::new(Usd::from_cents(100), Tokens(10));
        assert_eq!(one.exceeds(one), None);
        assert_eq!(one.reaches(one), Some(Dimension::Cost));
        assert_eq!(Amount::new(Usd::ZERO, Tokens(10)).reaches(one), Some(Dimension::Tokens));
        assert_eq!(Amount::new(Usd::ZERO, Tokens(11)).exceeds(one), Some(Dimension::Tokens));
    }
}
