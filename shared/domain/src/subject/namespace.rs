//! The prefix of a deployment's subjects, streams and keys, and the subjects that a worker needs
//! for one trace.

use std::{fmt, str::FromStr};

use super::{Filter, Partition, Subject, UnknownSubject};
use crate::{
    id::{self, ChildId, PoolName, TraceId},
    wire::ReportTo,
};

/// The prefix of every subject, stream and key of one deployment. Most deployments have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Namespace(Option<PoolName>);

impl Namespace {
    /// Returns the subject's name on the server.
    pub fn subject(&self, subject: &Subject) -> String {
        self.prefixed(subject)
    }

    pub fn filter(&self, filter: &Filter) -> String {
        self.prefixed(filter)
    }

    /// Returns [`Subject::form`] with the namespace's prefix.
    pub fn form(&self, subject: &Subject, pool: Option<&PoolName>) -> String {
        self.prefixed(&subject.form(pool))
    }

    fn prefixed(&self, subject: &impl fmt::Display) -> String {
        match &self.0 {
            None => subject.to_string(),
            Some(name) => format!("{name}.{subject}"),
        }
    }

    /// Parses a subject's name on the server.
    pub fn parse(&self, text: &str) -> Result<Subject, UnknownSubject> {
        let unknown = || UnknownSubject::new(text);
        match &self.0 {
            None => text.parse(),
            Some(name) => {
                let rest = text.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('.'));
                rest.ok_or_else(unknown)?.parse()
            }
        }
    }

    /// Returns the name of a stream, bucket, durable consumer or service.
    pub fn stream(&self, name: &str) -> String {
        match &self.0 {
            None => name.to_owned(),
            Some(namespace) => format!("{namespace}_{name}"),
        }
    }

    /// Returns a Redis key.
    pub fn key(&self, key: &str) -> String {
        match &self.0 {
            None => format!("trellis:{key}"),
            Some(name) => format!("{name}:trellis:{key}"),
        }
    }
}

impl FromStr for Namespace {
    type Err = id::Error;

    fn from_str(text: &str) -> Result<Self, id::Error> {
        if text.is_empty() {
            return Ok(Namespace(None));
        }
        PoolName::new(text).map(|name| Namespace(Some(name))).map_err(|error| error.about("namespace"))
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_ref().map_or("", PoolName::as_str))
    }
}

/// Returns true for a subject of the server itself, and for a Trellis subject in any namespace.
/// Replies are never sent there: the sender of a request chooses the reply subject and could choose
/// one of these.
pub fn is_reserved(text: &str) -> bool {
    text.starts_with('$') || text.split('.').take(2).any(|token| token == "agent")
}

/// The namespace and partition of a trace. A worker needs both for asks and reports about the
/// trace.
#[derive(Debug, Clone)]
pub struct Home {
    pub namespace: Namespace,
    pub partition: Partition,
}

impl Home {
    /// Returns the subject for asks of a pool's workers about the trace.
    pub fn ask(&self, pool: &PoolName) -> String {
        self.namespace.subject(&Subject::Ask(pool.clone(), self.partition))
    }

    pub fn report_to(&self, pool: &PoolName, trace: TraceId, child: &ChildId) -> ReportTo {
        let subject = |subject| self.namespace.subject(&subject);
        ReportTo {
            ask: self.ask(pool),
            result: subject(Subject::Result(pool.clone(), self.partition, trace, child.clone())),
            cost: subject(Subject::Cost(pool.clone(), self.partition, trace, child.clone())),
            history: subject(Subject::History(pool.clone(), trace, child.clone())),
            stream: subject(Subject::Stream(trace, child.clone())),
            stop: subject(Subject::Stop(trace)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_precedes_every_subject_and_other_namespaces_are_ignored() {
        let ours: Namespace = "team-a".parse().unwrap();
        assert_eq!(ours.subject(&Subject::Spawn), "team-a.agent.spawn");
        assert_eq!(ours.parse("team-a.agent.spawn"), Ok(Subject::Spawn));
        assert!(ours.parse("agent.spawn").is_err());
        assert!(ours.parse("team-ab.agent.spawn").is_err());
        assert_eq!(
            (ours.stream("AGENT_DEAD"), ours.key("x")),
            ("team-a_AGENT_DEAD".into(), "team-a:trellis:x".into())
        );
        let none = Namespace::default();
        assert_eq!(
            (none.subject(&Subject::Spawn), none.key("x")),
            ("agent.spawn".into(), "trellis:x".into())
        );
        assert!("a.b".parse::<Namespace>().is_err());
    }
}
