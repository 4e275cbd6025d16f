//! Ids, checked once where they enter (I7). An id can be used in a subject, a Redis key and a path:
//! it has no dots, slashes, wildcards, braces or spaces unless its grammar allows them. Clones are
//! cheap.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The characters that an id may have besides ASCII letters and digits, and its maximum length.
#[derive(Debug, Clone, Copy)]
pub struct Grammar {
    extra: &'static str,
    max_len: usize,
    /// Only capital letters and digits, beginning with a letter, like the name of an environment
    /// variable.
    capitals: bool,
}

impl Grammar {
    const ID: Grammar = Grammar { extra: "_-", max_len: 64, capitals: false };
    const KEY: Grammar = Grammar { extra: "_-.", max_len: 160, capitals: false };
    const LABEL: Grammar = Grammar { extra: "_-./", max_len: 64, capitals: false };
    const VALUE: Grammar = Grammar { extra: "_-.:/@+", max_len: 128, capitals: false };
    /// Room for as many ids as graphs may nest, with a slash between two ids.
    const PATH: Grammar = Grammar { extra: "_-/", max_len: 640, capitals: false };
    const NAME: Grammar = Grammar { extra: "_-.:/@+", max_len: 160, capitals: false };
    const SECRET: Grammar = Grammar { extra: "_", max_len: 64, capitals: true };

    fn check(self, what: &'static str, text: &str) -> Result<(), Error> {
        // A text in place of a secret's name may be the secret's value, so errors never show it.
        let shown = || {
            if self.capitals {
                "this text".into()
            } else {
                format!("{:?}", text.chars().take(80).collect::<String>())
            }
        };
        let refuse = |reason: String| Err(Error { what, shown: shown(), reason });
        let Some(first) = text.chars().next() else { return refuse("it is empty".into()) };
        if text.len() > self.max_len {
            return refuse(format!("it is longer than {} characters", self.max_len));
        }
        if self.capitals && !first.is_ascii_uppercase() {
            return refuse(format!("it starts with {first:?}, not a capital letter"));
        }
        if !first.is_ascii_alphanumeric() {
            return refuse(format!("it starts with {first:?}, not a letter or digit"));
        }
        let fits = |c: char| match self.capitals {
            true => c.is_ascii_uppercase() || c.is_ascii_digit(),
            false => c.is_ascii_alphanumeric(),
        };
        match text.chars().find(|c| !(fits(*c) || self.extra.contains(*c))) {
            Some(c) => refuse(format!("{c:?} is not allowed")),
            None => Ok(()),
        }
    }

    /// Returns the same grammar as a regular expression, for the JSON Schemas.
    fn pattern(self) -> String {
        if self.capitals {
            return format!("^[A-Z][A-Z0-9{}]{{0,{}}}$", self.extra, self.max_len - 1);
        }
        let extra: String = self.extra.replace('-', "").replace('/', "\\/") + "-";
        format!("^[A-Za-z0-9][A-Za-z0-9{extra}]{{0,{}}}$", self.max_len - 1)
    }
}

/// The reason why a text is not an id of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{shown} is not a valid {what}: {reason}")]
pub struct Error {
    what: &'static str,
    shown: String,
    reason: String,
}

impl Error {
    /// Renames the kind in the error, for a value that shares another id's grammar.
    pub(crate) fn about(self, what: &'static str) -> Self {
        Error { what, ..self }
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $grammar:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn new(text: &str) -> Result<Self, Error> {
                Grammar::$grammar.check($what, text)?;
                Ok(Self(text.into()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_str(StrVisitor).and_then(|text| Self::new(&text).map_err(de::Error::custom))
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string", "pattern": Grammar::$grammar.pattern(), "x-check": $what,
                })
            }
        }
    };
}

id!(/** One agent's place in the tree, unique in its trace. */ ChildId, "child_id", ID);
id!(/** A named agent profile. */ AgentId, "agent_id", ID);
id!(/** A step of a task graph, unique in its graph. */ StepId, "step id", ID);
id!(/** A step of a task graph and of the graphs that it uses: `outer/inner`, or the id of a step of the graph itself. */ StepPath, "step path", PATH);
id!(/** One paid call of one context. Money is booked once per id (B9). */ CallId, "call_id", ID);
id!(/** Proves that a report comes from the attempt it names. */ LeaseToken, "lease token", ID);
id!(/** One worker process. */ WorkerId, "worker_id", ID);
id!(/** A label handed down unchanged; it grants no access (I6). */ ThreadId, "thread_id", ID);
id!(/** The group of workers that may take a context. */ PoolName, "pool", ID);
id!(/** A check that runs before or after calls (B16). */ CheckName, "check", ID);
id!(/** The name of a schedule (G16). */ ScheduleName, "schedule", ID);
id!(/** The name of a stored graph (G18). */ GraphName, "graph name", ID);
id!(/** A webhook, which receives outcomes and questions (X9). */ WebhookName, "webhook", ID);
id!(/** A key of the shared context store. */ ContextKey, "context key", KEY);
id!(/** The key of a label of a run (G17). */ LabelKey, "label", LABEL);
id!(/** The value of a label of a run (G17). */ LabelValue, "label value", VALUE);
id!(/** The name of a secret of the workers (S8). The value is never sent. */ SecretName, "secret", SECRET);
id!(/** A tool, `fs.read` or `server:tool`. */ ToolName, "tool", NAME);
id!(/** A model as its provider spells it. */ ModelName, "model", NAME);

impl StepPath {
    /// Returns the path of a step in the graph that the step `outer` uses. Without `outer`, the
    /// step is in the graph itself.
    pub fn of(outer: Option<&StepPath>, step: &StepId) -> Self {
        match outer {
            Some(outer) => StepPath(format!("{outer}/{step}").into()),
            None => StepPath(step.0.clone()),
        }
    }
}

impl From<&StepId> for StepPath {
    fn from(step: &StepId) -> Self {
        StepPath::of(None, step)
    }
}

impl ChildId {
    /// A stand-in for the whole trace, for a subject that needs a context before one is known.
    pub fn whole_trace() -> Self {
        Self::new("trace").expect("a literal that fits the grammar")
    }
}

impl PoolName {
    /// The pool of agents whose profile names no pool.
    pub fn default_pool() -> Self {
        Self::new("default").expect("a literal that fits the grammar")
    }
}

impl AgentId {
    /// The profile of a submission that names no agent.
    pub fn default_agent() -> Self {
        Self::new("default").expect("a literal that fits the grammar")
    }
}

impl ContextKey {
    /// Returns true for keys under `<child_id>.`, which that context may always write (C).
    pub fn is_under(&self, child: &ChildId) -> bool {
        self.0.strip_prefix(child.as_str()).is_some_and(|rest| rest.starts_with('.'))
    }
}

/// One user request and everything it caused: the OpenTelemetry trace id, 32 lowercase hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(u128);

impl TraceId {
    /// Returns `None` for the all-zero id, which means "no trace" in OpenTelemetry.
    pub fn from_u128(value: u128) -> Option<Self> {
        (value != 0).then_some(Self(value))
    }

    pub fn as_u128(self) -> u128 {
        self.0
    }
}

impl FromStr for TraceId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let lowercase_hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let refuse = |reason: &str| Error {
            what: "trace_id",
            shown: format!("{:?}", text.chars().take(80).collect::<String>()),
            reason: reason.into(),
        };
        if text.len() != 32 || !text.bytes().all(lowercase_hex) {
            return Err(refuse("it must have exactly 32 lowercase hex digits"));
        }
        u128::from_str_radix(text, 16)
            .ok()
            .and_then(Self::from_u128)
            .ok_or_else(|| refuse("all zeros means no trace"))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_str(StrVisitor).and_then(|text| text.parse().map_err(de::Error::custom))
    }
}

impl schemars::JsonSchema for TraceId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TraceId".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^[0-9a-f]{32}$", "x-check": "trace_id"})
    }
}

/// Accepts borrowed and owned strings. The parser gives an owned string if the JSON has escapes.
struct StrVisitor;

impl de::Visitor<'_> for StrVisitor {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i7_ids_are_checked_at_the_door() {
        for good in ["a", "0", "researcher-1", "A_b-9", &"x".repeat(64)] {
            assert_eq!(ChildId::new(good).unwrap().as_str(), good);
        }
        let bad = [
            "",
            "-a",
            "_a",
            "a.b",
            "a/b",
            "..",
            "a*",
            "a>",
            "{p}",
            "a b",
            "ä",
            "a\n",
            "a\0",
            &"x".repeat(65),
        ];
        for bad in bad {
            assert!(ChildId::new(bad).is_err(), "{bad:?} passed");
            assert!(serde_json::from_value::<ChildId>(bad.into()).is_err(), "{bad:?} passed");
        }
    }

    #[test]
    fn i7_the_schema_pattern_says_the_same_as_the_check() {
        let schema = serde_json::json!({"type": "string", "pattern": Grammar::KEY.pattern()});
        let pattern = jsonschema::validator_for(&schema).unwrap();
        for text in ["a.b-c_d", "a", ".a", "a/b", "", "a*", &"k".repeat(160), &"k".repeat(161)] {
            assert_eq!(pattern.is_valid(&text.into()), ContextKey::new(text).is_ok(), "{text:?}");
        }
        let schema = serde_json::json!({"type": "string", "pattern": Grammar::SECRET.pattern()});
        let pattern = jsonschema::validator_for(&schema).unwrap();
        for (text, is_good) in [
            ("A", true),
            ("API_KEY_2", true),
            (&*"K".repeat(64), true),
            ("", false),
            ("api_key", false),
            ("API-KEY", false),
            ("API KEY", false),
            ("_A", false),
            ("2A", false),
            ("\u{c4}", false),
            (&*"K".repeat(65), false),
        ] {
            assert_eq!(SecretName::new(text).is_ok(), is_good, "{text:?}");
            assert_eq!(pattern.is_valid(&text.into()), is_good, "{text:?}");
        }
    }

    #[test]
    fn x1_a_trace_id_is_32_lowercase_hex_digits() {
        let text = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(text.parse::<TraceId>().unwrap().to_string(), text);
        for bad in ["", "0AF7651916CD43DD8448EB211C80319C", &text[1..], &"0".repeat(32), &"g".repeat(32)] {
            assert!(bad.parse::<TraceId>().is_err(), "{bad:?} passed");
        }
    }

    #[test]
    fn c_a_key_is_under_a_context_only_behind_its_dot() {
        let key = |text| ContextKey::new(text).unwrap();
        let child = ChildId::new("ab").unwrap();
        assert!(key("ab.x").is_under(&child));
        assert!(!key("abc.x").is_under(&child));
        assert!(!key("ab").is_under(&child));
    }
}
