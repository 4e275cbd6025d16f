//! The attributes of spans. In JSON they are an object whose values are strings, lists of strings,
//! numbers and flags; dollars are `{"nanos": …}`. Attributes are written and read for every context
//! of an exported run, so known names are not copied.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
    ser::SerializeMap,
};

use crate::money::Usd;

/// The most common names, sorted for a binary search.
const KNOWN: [&str; 32] = [
    "error.type",
    "gen_ai.agent.id",
    "gen_ai.agent.name",
    "gen_ai.conversation.id",
    "gen_ai.operation.name",
    "gen_ai.tool.name",
    "gen_ai.workflow.name",
    "messaging.consumer.group.name",
    "messaging.destination.name",
    "messaging.destination.template",
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.system",
    "trellis.attempt",
    "trellis.attempts",
    "trellis.budget.amount_nanos",
    "trellis.budget.amount_usd",
    "trellis.budget.limit_usd",
    "trellis.budget.tokens",
    "trellis.call_id",
    "trellis.child_id",
    "trellis.cost.disputed_usd",
    "trellis.cost.estimated_usd",
    "trellis.cost.own_nanos",
    "trellis.cost.own_usd",
    "trellis.cost.subtree_nanos",
    "trellis.cost.subtree_usd",
    "trellis.status",
    "trellis.tokens.own",
    "trellis.tokens.subtree",
    "trellis.verdict",
    "trellis.worker_id",
];

/// An attribute's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Texts(Vec<String>),
    Integer(i64),
    Flag(bool),
    /// An exact amount. It is exported as a number of dollars.
    Usd(Usd),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Value::Integer(i64::from(count))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Flag(flag)
    }
}

impl From<Usd> for Value {
    fn from(amount: Usd) -> Self {
        Value::Usd(amount)
    }
}

pub type Attribute = (Cow<'static, str>, Value);

/// Makes an attribute.
pub fn attribute(name: &'static str, value: impl Into<Value>) -> Attribute {
    (Cow::Borrowed(name), value.into())
}

impl Value {
    fn bytes(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Texts(texts) => texts.iter().map(|text| text.len() + 2).sum(),
            Value::Integer(_) | Value::Flag(_) | Value::Usd(_) => 8,
        }
    }
}

pub(super) fn bytes(attributes: &[Attribute]) -> usize {
    attributes.iter().map(|(name, value)| name.len() + value.bytes() + 8).sum()
}

pub(super) fn serialize<S: Serializer>(attributes: &[Attribute], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(attributes.len()))?;
    for (name, value) in attributes {
        match value {
            Value::Text(text) => map.serialize_entry(name, text)?,
            Value::Texts(texts) => map.serialize_entry(name, texts)?,
            Value::Integer(number) => map.serialize_entry(name, number)?,
            Value::Flag(flag) => map.serialize_entry(name, flag)?,
            Value::Usd(amount) => map.serialize_entry(name, &Exact { nanos: amount.nanos() })?,
        }
    }
    map.end()
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Attribute>, D::Error> {
    from.deserialize_map(Attributes)
}

#[derive(serde::Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exact {
    nanos: u64,
}

struct Attributes;

impl<'de> Visitor<'de> for Attributes {
    type Value = Vec<Attribute>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::with_capacity(map.size_hint().unwrap_or(16).min(64));
        while let Some(name) = map.next_key_seed(Name)? {
            read.push((name, map.next_value_seed(OneValue)?));
        }
        Ok(read)
    }
}

struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'static, str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Cow<'static, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an attribute")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(match KNOWN.binary_search(&name) {
            Ok(place) => Cow::Borrowed(KNOWN[place]),
            Err(_) => Cow::Owned(name.to_owned()),
        })
    }
}

struct OneValue;

impl<'de> DeserializeSeed<'de> for OneValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OneValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a list of strings, a number, a flag or dollars")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        i64::try_from(number).map(Value::Integer).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number))
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Flag(flag))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(text) = texts.next_element()? {
            read.push(text);
        }
        Ok(Value::Texts(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        let exact = Exact::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(Value::Usd(Usd::from_nanos(exact.nanos)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, Deserialize)]
    struct Has(#[serde(with = "super")] Vec<Attribute>);

    #[test]
    fn x6_attributes_are_read_as_they_were_written_and_known_names_are_not_copied() {
        let all = Has(vec![
            attribute("trellis.child_id", "a \"b\"\n"),
            attribute("trellis.cost.own_usd", Usd::from_cents(7)),
            attribute("trellis.attempt", 3_u32),
            attribute("trellis.spans_cut", true),
            ("gen_ai.response.finish_reasons".into(), Value::Texts(vec!["stop".into()])),
        ]);
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(
            text,
            r#"{"trellis.child_id":"a \"b\"\n","trellis.cost.own_usd":{"nanos":70000000},"trellis.attempt":3,"trellis.spans_cut":true,"gen_ai.response.finish_reasons":["stop"]}"#
        );
        let read: Has = serde_json::from_str(&text).unwrap();
        assert_eq!(read, all);
        assert!(matches!(read.0[0].0, Cow::Borrowed(_)));
        assert!(KNOWN.is_sorted(), "the list must be sorted for its binary search");
    }
}
