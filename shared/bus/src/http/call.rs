//! Calls and their answers in the form in which they are sent. An answer is lines of JSON. An
//! answer that does not end with [`Line::Done`] or [`Line::Failed`] was cut off, and is discarded.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use domain::{
    span::Headers,
    subject::{Filter, Subject},
    time::Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    error::{Action, Denied, Error, PublishError, RequestError},
    fill::{Backlog, Fill, Storage},
    message::{Message, Outgoing, Position, StoredMessage},
    topology::Consumer,
};

/// The path at which a gateway accepts calls: `POST`, one call a request.
pub const PATH: &str = "/bus";

/// The header with the namespace of the deployment that a call is for. Optional.
pub const NAMESPACE: &str = "trellis-namespace";

/// A call of a client to the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Request {
        #[serde(with = "text")]
        subject: Subject,
        headers: Headers,
        payload: Base64Bytes,
        timeout_ms: u64,
    },
    Gather {
        #[serde(with = "text")]
        subject: Subject,
        payload: Base64Bytes,
        wait_ms: u64,
    },
    Publish {
        #[serde(with = "text")]
        subject: Subject,
        id: Option<String>,
        headers: Headers,
        payload: Base64Bytes,
        expect_last: Option<u64>,
    },
    Read {
        #[serde(with = "text")]
        filter: Filter,
    },
    Last {
        #[serde(with = "text")]
        filter: Filter,
    },
    Subjects {
        #[serde(with = "text")]
        filter: Filter,
    },
    End {
        #[serde(with = "text")]
        filter: Filter,
    },
    /// Follows logs from a sequence on, without an end.
    Follow {
        filters: Vec<AsText<Filter>>,
        from: u64,
    },
    /// Receives broadcasts from now on.
    Subscribe {
        #[serde(with = "text")]
        filter: Filter,
    },
    DeleteMessage {
        #[serde(with = "text")]
        subject: Subject,
        sequence: u64,
    },
    Object {
        name: String,
        sha256: Option<String>,
    },
    Backlog {
        #[serde(with = "text")]
        consumer: Consumer,
    },
    Fill,
    Ping,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Stored {
        #[serde(with = "text")]
        subject: Subject,
        id: Option<String>,
        headers: Headers,
        payload: Base64Bytes,
        sequence: u64,
        at: Timestamp,
    },
    Heard {
        #[serde(with = "text")]
        subject: Subject,
        headers: Headers,
        payload: Base64Bytes,
    },
    /// An answer to a request, or a part of an object.
    Bytes(Base64Bytes),
    Published {
        sequence: u64,
        duplicate: bool,
    },
    Subject(AsText<Subject>),
    Position {
        log: u64,
        sequence: u64,
    },
    Backlog {
        pending: u64,
        unacknowledged: u64,
        oldest: Option<Timestamp>,
    },
    Fill {
        storage: String,
        bytes: u64,
        first: u64,
        last: u64,
        max_bytes: Option<u64>,
    },
    /// Nothing to send yet; the client learns that the connection still works.
    Alive,
    Failed(Failure),
    /// The answer is complete.
    Done,
}

/// The reason why a call failed. It distinguishes as much as the errors of the bus do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    NoResponders,
    TimedOut,
    WrongSequence,
    Full(String),
    Unacknowledged,
    Denied {
        publish: bool,
        subject: String,
    },
    TooLarge {
        name: String,
        max: u64,
    },
    /// The server was not reached.
    Unreached(String),
    /// The connection was lost during the call, which may have been carried out.
    CutOff(String),
    /// The server rejects the call.
    Refused(String),
    Other(String),
}

/// Bytes as Base64 text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base64Bytes(pub Bytes);

impl Serialize for Base64Bytes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        BASE64_STANDARD
            .decode(text.as_bytes())
            .map(|bytes| Base64Bytes(bytes.into()))
            .map_err(de::Error::custom)
    }
}

/// A value that is serialized as its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsText<T>(pub T);

impl<T: fmt::Display> Serialize for AsText<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de, T: std::str::FromStr<Err: fmt::Display>> Deserialize<'de> for AsText<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::deserialize(from).map(AsText)
    }
}

/// Serializes subjects, filters and queues as their names.
mod text {
    use std::{fmt, str::FromStr};

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<T: fmt::Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(super) fn deserialize<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        std::borrow::Cow::<str>::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl Call {
    pub(super) fn publish(message: Outgoing) -> Self {
        let Outgoing { subject, id, headers, payload, expect_last } = message;
        Call::Publish { subject, id, headers, payload: Base64Bytes(payload), expect_last }
    }
}

impl From<StoredMessage> for Line {
    fn from(stored: StoredMessage) -> Self {
        let StoredMessage { subject, id, headers, payload, sequence, at } = stored;
        Line::Stored { subject, id, headers, payload: Base64Bytes(payload), sequence, at }
    }
}

impl From<Message> for Line {
    /// The reply subject is dropped: a client that only listens never answers.
    fn from(message: Message) -> Self {
        let Message { subject, headers, payload, reply_to: _ } = message;
        Line::Heard { subject, headers, payload: Base64Bytes(payload) }
    }
}

impl From<Position> for Line {
    fn from(Position { log, sequence }: Position) -> Self {
        Line::Position { log, sequence }
    }
}

impl From<Backlog> for Line {
    fn from(Backlog { pending, unacknowledged, oldest }: Backlog) -> Self {
        Line::Backlog { pending, unacknowledged, oldest }
    }
}

impl From<Fill> for Line {
    fn from(Fill { storage, bytes, first, last, max_bytes }: Fill) -> Self {
        Line::Fill { storage: storage.name().to_owned(), bytes, first, last, max_bytes }
    }
}

impl Line {
    pub(super) fn stored(self) -> Option<StoredMessage> {
        let Line::Stored { subject, id, headers, payload, sequence, at } = self else { return None };
        Some(StoredMessage { subject, id, headers, payload: payload.0, sequence, at })
    }

    pub(super) fn heard(self) -> Option<Message> {
        let Line::Heard { subject, headers, payload } = self else { return None };
        Some(Message { subject, headers, payload: payload.0, reply_to: None })
    }

    pub(super) fn position(self) -> Option<Position> {
        let Line::Position { log, sequence } = self else { return None };
        Some(Position { log, sequence })
    }

    pub(super) fn backlog(self) -> Option<Backlog> {
        let Line::Backlog { pending, unacknowledged, oldest } = self else { return None };
        Some(Backlog { pending, unacknowledged, oldest })
    }

    pub(super) fn fill(self) -> Option<Fill> {
        let Line::Fill { storage, bytes, first, last, max_bytes } = self else { return None };
        let storage = Storage::all().find(|one| one.name() == storage)?;
        Some(Fill { storage, bytes, first, last, max_bytes })
    }

    pub(super) fn bytes(self) -> Option<Bytes> {
        if let Line::Bytes(bytes) = self { Some(bytes.0) } else { None }
    }
}

impl From<Denied> for Failure {
    fn from(Denied { action, subject }: Denied) -> Self {
        Failure::Denied { publish: action == Action::Publish, subject }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::NoResponders => Failure::NoResponders,
            RequestError::TimedOut => Failure::TimedOut,
            RequestError::Denied(denied) => denied.into(),
            RequestError::Other(why) => Failure::Other(why),
        }
    }
}

impl From<PublishError> for Failure {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::WrongSequence => Failure::WrongSequence,
            PublishError::Full(why) => Failure::Full(why),
            PublishError::Unacknowledged => Failure::Unacknowledged,
            PublishError::Denied(denied) => denied.into(),
            PublishError::Other(why) => Failure::Other(why),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Denied(denied) => denied.into(),
            Error::TooLarge { name, max } => Failure::TooLarge { name, max },
            Error::Connect { .. }
            | Error::Unreached { .. }
            | Error::TooOld { .. }
            | Error::Mismatch { .. }
            | Error::NoRoom { .. }
            | Error::Lower { .. }
            | Error::Failed { .. } => Failure::Other(error.to_string()),
        }
    }
}

fn denied(publish: bool, subject: String) -> Denied {
    Denied { action: if publish { Action::Publish } else { Action::Subscribe }, subject }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoResponders => RequestError::NoResponders.fmt(f),
            Failure::TimedOut => RequestError::TimedOut.fmt(f),
            Failure::WrongSequence => PublishError::WrongSequence.fmt(f),
            Failure::Full(why) => PublishError::Full(why.clone()).fmt(f),
            Failure::Unacknowledged => PublishError::Unacknowledged.fmt(f),
            Failure::Denied { publish, subject } => denied(*publish, subject.clone()).fmt(f),
            Failure::TooLarge { name, max } => Error::TooLarge { name: name.clone(), max: *max }.fmt(f),
            Failure::Unreached(why) | Failure::CutOff(why) | Failure::Refused(why) | Failure::Other(why) => {
                f.write_str(why)
            }
        }
    }
}

impl From<Failure> for RequestError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NoResponders => RequestError::NoResponders,
            Failure::TimedOut => RequestError::TimedOut,
            Failure::Denied { publish, subject } => RequestError::Denied(denied(publish, subject)),
            Failure::WrongSequence
            | Failure::Full(_)
            | Failure::Unacknowledged
            | Failure::TooLarge { .. }
            | Failure::Unreached(_)
            | Failure::CutOff(_)
            | Failure::Refused(_)
            | Failure::Other(_) => RequestError::Other(failure.to_string()),
        }
    }
}

impl From<Failure> for PublishError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::WrongSequence => PublishError::WrongSequence,
            Failure::Full(why) => PublishError::Full(why),
            // The message may have been stored.
            Failure::Unacknowledged | Failure::TimedOut | Failure::CutOff(_) => PublishError::Unacknowledged,
            Failure::Denied { publish, subject } => PublishError::Denied(denied(publish, subject)),
            Failure::NoResponders
            | Failure::TooLarge { .. }
            | Failure::Unreached(_)
            | Failure::Refused(_)
            | Failure::Other(_) => PublishError::Other(failure.to_string()),
        }
    }
}

impl Failure {
    /// Converts it to an error of the operation `doing` with the server at `url`.
    pub(super) fn while_doing(self, doing: &str, url: &str) -> Error {
        match self {
            Failure::Denied { publish, subject } => Error::Denied(denied(publish, subject)),
            Failure::TooLarge { name, max } => Error::TooLarge { name, max },
            Failure::Unreached(reason) | Failure::CutOff(reason) => {
                Error::Unreached { url: url.to_owned(), reason }
            }
            Failure::NoResponders
            | Failure::TimedOut
            | Failure::WrongSequence
            | Failure::Full(_)
            | Failure::Unacknowledged
            | Failure::Refused(_)
            | Failure::Other(_) => Error::Failed { doing: doing.to_owned(), reason: self.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::id::{ChildId, PoolName, TraceId};

    use super::*;
    use crate::Stream;

    #[test]
    fn a_filter_and_a_queue_match_their_names() {
        let trace = TraceId::from_u128(7).expect("not all zeros");
        let child = ChildId::new("writer").expect("a plain name");
        let mut filters: Vec<Filter> = Stream::ALL.iter().flat_map(|stream| stream.filters()).collect();
        filters.extend(Subject::one_of_each().into_iter().map(Filter::One));
        filters.extend([
            Filter::EventsOf(trace),
            Filter::OutcomesOf(trace),
            Filter::QuestionsOf(trace),
            Filter::HistoriesOf(trace),
            Filter::JournalOf(trace, child),
            Filter::StreamsOf(trace),
            Filter::Stops,
        ]);
        for filter in filters {
            assert_eq!(filter.to_string().parse(), Ok(filter.clone()), "{filter}");
            let call = Call::Read { filter };
            let text = serde_json::to_string(&call).expect("plain values");
            assert_eq!(serde_json::from_str::<Call>(&text).expect("the text of the call"), call, "{text}");
        }
        assert!("agent.*".parse::<Filter>().is_err());
        let partition = domain::subject::Partition::new(3).expect("a small number");
        let queues = [
            Consumer::Intake,
            Consumer::Span,
            Consumer::Webhook("one".parse().expect("a plain name")),
            Consumer::Report(partition),
            Consumer::Execute(PoolName::new("gpu").expect("a plain name")),
        ];
        for consumer in queues {
            assert_eq!(consumer.to_string().parse(), Ok(consumer.clone()), "{consumer}");
        }
    }

    #[test]
    fn an_error_comes_out_as_it_went_in() {
        let denied = Denied { action: Action::Subscribe, subject: "agent.event.*.*".into() };
        for error in [
            PublishError::WrongSequence,
            PublishError::Full("bytes".into()),
            PublishError::Unacknowledged,
            PublishError::Denied(denied.clone()),
            PublishError::Other("why".into()),
        ] {
            assert_eq!(PublishError::from(Failure::from(error.clone())), error);
        }
        for error in [
            RequestError::NoResponders,
            RequestError::TimedOut,
            RequestError::Denied(denied.clone()),
            RequestError::Other("why".into()),
        ] {
            assert_eq!(RequestError::from(Failure::from(error.clone())), error);
        }
        let large = Error::TooLarge { name: "one".into(), max: 3 };
        for error in [Error::Denied(denied), large] {
            assert_eq!(Failure::from(error.clone()).while_doing("x", "http://localhost"), error);
        }
    }
}
