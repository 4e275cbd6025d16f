//! The tokens of a subject after its name, and the macros that make [`Subject`](super::Subject) and
//! [`Filter`](super::Filter) from tables.

use std::fmt;

use super::{Action, Audited, Partition, Topic};
use crate::id::{AgentId, ChildId, GraphName, PoolName, ScheduleName, TraceId, WebhookName};

/// A token of a subject: an id, a partition, or a word of a list.
pub(super) trait Token: Sized {
    fn show(&self) -> impl fmt::Display;

    fn read(text: &str) -> Option<Self>;

    /// Returns the token as permissions name it. An id is a wildcard, because a server can't know
    /// every id. A pool is a wildcard unless `pool` is given.
    fn permission(&self, _pool: Option<&PoolName>) -> String {
        "*".into()
    }

    /// Returns sample tokens: of a word list each word that has its own permissions, else one id.
    fn samples() -> Vec<Self>;
}

macro_rules! id_tokens {
    ($($id:ty: $sample:expr),* $(,)?) => {$(
        impl Token for $id {
            fn show(&self) -> impl fmt::Display {
                self
            }

            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn samples() -> Vec<Self> {
                vec![$sample]
            }
        }
    )*};
}

id_tokens! {
    TraceId: TraceId::from_u128(1).expect("not all zeros"),
    ChildId: ChildId::whole_trace(),
    AgentId: AgentId::default_agent(),
    ScheduleName: ScheduleName::new("one").expect("a plain name"),
    GraphName: GraphName::new("one").expect("a plain name"),
    WebhookName: WebhookName::new("one").expect("a plain name"),
}

impl Token for PoolName {
    fn show(&self) -> impl fmt::Display {
        self
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn permission(&self, pool: Option<&PoolName>) -> String {
        pool.map_or("*", PoolName::as_str).into()
    }

    fn samples() -> Vec<Self> {
        vec![PoolName::default_pool()]
    }
}

impl Token for Partition {
    fn show(&self) -> impl fmt::Display {
        self
    }

    fn read(text: &str) -> Option<Self> {
        Partition::parse(text)
    }

    fn samples() -> Vec<Self> {
        Partition::all(1).collect()
    }
}

impl Token for Audited {
    fn show(&self) -> impl fmt::Display {
        self.name()
    }

    fn read(text: &str) -> Option<Self> {
        Audited::all().find(|word| word.name() == text)
    }

    fn samples() -> Vec<Self> {
        vec![Audited::Policy]
    }
}

/// Implements [`Token`] for words that permissions distinguish: a role may use some of them.
macro_rules! word_tokens {
    ($($word:ty),*) => {$(
        impl Token for $word {
            fn show(&self) -> impl fmt::Display {
                self.name()
            }

            fn read(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|word| word.name() == text)
            }

            fn permission(&self, _pool: Option<&PoolName>) -> String {
                self.name().into()
            }

            fn samples() -> Vec<Self> {
                Self::ALL.into()
            }
        }
    )*};
}

word_tokens!(Topic, Action);

/// Returns the tokens after a name, or `None` if the text begins with another name.
pub(super) fn tokens_after<'t>(text: &'t str, name: &str) -> Option<std::str::Split<'t, char>> {
    let rest = text.strip_prefix(name)?;
    let mut tokens = rest.split('.');
    // The name ends before the first dot: `agent.spawner` is not `agent.spawn`.
    (tokens.next() == Some("")).then_some(tokens)
}

/// Makes [`Subject`](super::Subject) from a table with one row per subject. A row has the tokens
/// after the name, the name, the word for the kind of its messages, and its sender: `coordinators`
/// if only coordinators send on it, else `others`.
macro_rules! subjects {
    ($($(#[$doc:meta])* $variant:ident $(($($field:ident: $token:ty),+))? = $name:literal, $kind:literal, $sender:ident;)*) => {
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum Subject {
            $($(#[$doc])* $variant $(($($token),+))?,)*
        }

        impl fmt::Display for Subject {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Subject::$variant $(($($field),+))? => {
                        f.write_str($name)?;
                        $($(write!(f, ".{}", $field.show())?;)+)?
                    })*
                }
                Ok(())
            }
        }

        impl Subject {
            fn parse(text: &str) -> Option<Self> {
                $(
                    let row = || {
                        let mut tokens = tokens_after(text, $name)?;
                        let subject = Subject::$variant $(($(<$token as Token>::read(tokens.next()?)?),+))?;
                        tokens.next().is_none().then_some(subject)
                    };
                    if let Some(subject) = row() {
                        return Some(subject);
                    }
                )*
                None
            }

            /// The kind of the subject's messages in one word.
            fn kind_of_messages(&self) -> &'static str {
                match self {
                    $(Subject::$variant { .. } => $kind,)*
                }
            }

            /// Returns true if only coordinators send on it. No other role writes to the streams
            /// that store its messages.
            pub fn is_of_the_core(&self) -> bool {
                match self {
                    $(Subject::$variant { .. } => subjects!(@is_of_the_core $sender),)*
                }
            }

            /// Returns a pattern of all subjects of this kind, as permissions name them. Every id
            /// is a wildcard, and so is the pool unless `pool` is given.
            pub fn form(&self, pool: Option<&PoolName>) -> String {
                let tokens: Vec<String> = match self {
                    $(Subject::$variant $(($($field),+))? => vec![$name.into(), $($($field.permission(pool)),+)?],)*
                };
                tokens.join(".")
            }

            /// Returns one subject of each kind, and one for each word of a word list. Permissions
            /// and tests need all of them.
            pub fn one_of_each() -> Vec<Subject> {
                let samples = [$(subjects!(@samples $variant $(($($token),+))?)),*];
                samples.into_iter().flatten().collect()
            }
        }
    };
    (@is_of_the_core coordinators) => { true };
    (@is_of_the_core others) => { false };
    (@samples $variant:ident) => { vec![Subject::$variant] };
    (@samples $variant:ident ($token:ty)) => {
        <$token as Token>::samples().into_iter().map(Subject::$variant).collect()
    };
    (@samples $variant:ident ($($token:ty),+)) => { vec![Subject::$variant($(<$token as Token>::samples().remove(0)),+)] };
}

/// Makes [`Filter`](super::Filter) from a table. A row has a name, and then a token or `*` for each
/// place.
macro_rules! filters {
    ($($(#[$doc:meta])* $variant:ident $(($($field:ident: $token:ty),+))? = $name:literal [$($part:tt)+];)*) => {
        /// A pattern of several subjects: those of a stream, or of a reader.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum Filter {
            One(Subject),
            $($(#[$doc])* $variant $(($($token),+))?,)*
        }

        impl fmt::Display for Filter {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Filter::One(subject) => return subject.fmt(f),
                    $(Filter::$variant $(($($field),+))? => {
                        f.write_str($name)?;
                        $(filters!(@show f $part);)+
                    })*
                }
                Ok(())
            }
        }

        impl Filter {
            fn several(text: &str) -> Option<Self> {
                $(
                    let row = || {
                        let mut tokens = tokens_after(text, $name)?;
                        $(filters!(@read tokens $part);)+
                        tokens.next().is_none().then_some(Filter::$variant $(($($field),+))?)
                    };
                    if let Some(filter) = row() {
                        return Some(filter);
                    }
                )*
                None
            }
        }
    };
    (@show $f:ident *) => { $f.write_str(".*")?; };
    (@show $f:ident $field:ident) => { write!($f, ".{}", $field.show())?; };
    (@read $tokens:ident *) => { $tokens.next().filter(|token| *token == "*")?; };
    (@read $tokens:ident $field:ident) => { let $field = Token::read($tokens.next()?)?; };
}

pub(super) use {filters, subjects};
