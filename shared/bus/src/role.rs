//! The permissions on the bus (S1): the roles, and the subjects that each may send to and listen
//! on.
//!
//! A server's accounts and permissions are generated from this table and from nothing else. A new
//! subject compiles only with an entry for its senders and listeners.

use std::fmt;

use domain::{
    id::PoolName,
    subject::{Action, Filter, Namespace, Subject},
};

use crate::{ABOUT_US, Consumer, Denied, Storage, Stream, http::Call as Carried};

/// An account of the server. A message sent in one account reaches another only by an export and an
/// import.
///
/// Roles don't share an account. A user that may read a stream names the subject for the answer,
/// and the answer reaches every subject that the user's account may send to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// Streams, coordinators and the provisioner.
    Core,
    /// Workers.
    Work,
    Client,
    Observer,
    Admin,
}

impl Account {
    pub const ALL: [Account; 5] =
        [Account::Core, Account::Work, Account::Client, Account::Observer, Account::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Account::Core => "CORE",
            Account::Work => "WORK",
            Account::Client => "CLIENT",
            Account::Observer => "OBSERVER",
            Account::Admin => "ADMIN",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Provisioner,
    Coordinator,
    Worker,
    Client,
    Observer,
    Admin,
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::Provisioner, Kind::Coordinator, Kind::Worker, Kind::Client, Kind::Observer, Kind::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Provisioner => "provisioner",
            Kind::Coordinator => "coordinator",
            Kind::Worker => "worker",
            Kind::Client => "client",
            Kind::Observer => "observer",
            Kind::Admin => "admin",
        }
    }

    pub fn account(self) -> Account {
        match self {
            Kind::Provisioner | Kind::Coordinator => Account::Core,
            Kind::Worker => Account::Work,
            Kind::Client => Account::Client,
            Kind::Observer => Account::Observer,
            Kind::Admin => Account::Admin,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The prefix of calls from other accounts to the JetStream of the core account. In each account
/// the server itself answers `$JS.API.…` for that account.
pub const CALLS_OF_OTHERS: &str = "JS.API";
const OWN_CALLS: &str = "$JS.API";

/// The subject of a call as an account sends it.
fn as_sent_by(account: Account, call: &str) -> String {
    match call.strip_prefix(OWN_CALLS).filter(|_| account != Account::Core) {
        Some(rest) => format!("{CALLS_OF_OTHERS}{rest}"),
        None => call.to_owned(),
    }
}

const NOBODY: &[Kind] = &[];
/// The roles that may read about runs.
const READERS: &[Kind] = &[Kind::Client, Kind::Observer, Kind::Admin];

/// The roles that may send on a subject.
pub fn senders(subject: &Subject) -> &'static [Kind] {
    match subject {
        Subject::Spawn | Subject::Graph | Subject::Input | Subject::Steer => &[Kind::Client],
        // Coordinators submit the runs of schedules, and cancel a run that the next one replaces.
        Subject::Submit => &[Kind::Client, Kind::Coordinator],
        // Stopping a run stops its spending, so administrators may do it without a client's key.
        Subject::Cancel => &[Kind::Client, Kind::Admin, Kind::Coordinator],
        Subject::Query(_) | Subject::Worker => READERS,
        Subject::Admin(_) => &[Kind::Admin],
        Subject::Ask(..)
        | Subject::Result(..)
        | Subject::Cost(..)
        | Subject::History(..)
        | Subject::Stream(..) => &[Kind::Worker],
        Subject::Dead(_) => &[Kind::Coordinator, Kind::Worker],
        Subject::Execute(_)
        | Subject::Stop(_)
        | Subject::Drain
        | Subject::Event(..)
        | Subject::Outcome(..)
        | Subject::Question(..)
        | Subject::Span(..)
        | Subject::Webhook(..)
        | Subject::Audit(_)
        | Subject::Profile(_)
        | Subject::Schedule(_)
        | Subject::Ticks(_)
        | Subject::Kept(_) => &[Kind::Coordinator],
    }
}

/// The roles that may listen on a subject. Stored messages are read by calls to the server instead.
pub fn hearers(subject: &Subject) -> &'static [Kind] {
    match subject {
        Subject::Submit | Subject::Steer | Subject::Query(_) | Subject::Ask(..) => &[Kind::Coordinator],
        Subject::Admin(action) => match action {
            Action::Apply | Action::Schedules | Action::Graphs | Action::Drain => &[Kind::Coordinator],
            Action::Raise | Action::Charge | Action::Delete | Action::Restore | Action::Dispute => NOBODY,
        },
        Subject::Worker | Subject::Stop(_) | Subject::Drain => &[Kind::Worker],
        Subject::Event(..)
        | Subject::Outcome(..)
        | Subject::Question(..)
        | Subject::History(..)
        | Subject::Stream(..) => READERS,
        Subject::Dead(_) | Subject::Audit(_) => &[Kind::Admin],
        Subject::Schedule(_) | Subject::Ticks(_) => &[Kind::Coordinator],
        Subject::Spawn
        | Subject::Graph
        | Subject::Cancel
        | Subject::Input
        | Subject::Execute(_)
        | Subject::Result(..)
        | Subject::Cost(..)
        | Subject::Span(..)
        | Subject::Webhook(..)
        | Subject::Profile(_)
        | Subject::Kept(_) => NOBODY,
    }
}

/// The roles that may read the stored messages of a stream, besides coordinators and workers.
fn readers(stream: Stream) -> &'static [Kind] {
    match stream {
        Stream::Event | Stream::History => READERS,
        Stream::Dead | Stream::Audit => &[Kind::Admin],
        Stream::Intake
        | Stream::Execute
        | Stream::Report
        | Stream::Profile
        | Stream::Schedule
        | Stream::Graph
        | Stream::Span
        | Stream::Webhook => NOBODY,
    }
}

/// Checks that a user with these roles may make a call over HTTP.
pub fn may_call(kinds: &[Kind], call: &Carried) -> Result<(), Denied> {
    let one_of = |may: &[Kind]| may.iter().any(|kind| kinds.contains(kind));
    let denied = |action, subject: &dyn fmt::Display| Denied { action, subject: subject.to_string() };
    let sends = |subject: &Subject| match one_of(senders(subject)) {
        true => Ok(()),
        false => Err(denied(crate::Action::Publish, subject)),
    };
    let reads = |filter: &Filter| match Stream::of(filter).is_some_and(|stream| one_of(readers(stream))) {
        true => Ok(()),
        false => Err(denied(crate::Action::Subscribe, filter)),
    };
    match call {
        Carried::Request { subject, .. } | Carried::Publish { subject, .. } => sends(subject),
        // A request to all listeners is permitted only where every worker answers. On other
        // subjects one listener would carry the request out, without its sender's name (S7).
        Carried::Gather { subject: Subject::Worker, .. } => sends(&Subject::Worker),
        Carried::Gather { subject, .. } => Err(denied(crate::Action::Publish, subject)),
        // The messages of all runs together are too large for one answer. They are followed
        // instead.
        Carried::Read {
            filter: filter @ (Filter::Events | Filter::Outcomes | Filter::Questions | Filter::Histories),
        } => Err(denied(crate::Action::Subscribe, filter)),
        Carried::Read { filter }
        | Carried::Last { filter }
        | Carried::Subjects { filter }
        | Carried::End { filter } => reads(filter),
        Carried::Follow { filters, .. } => filters.iter().try_for_each(|filter| reads(&filter.0)),
        Carried::Subscribe { filter } => {
            let name = filter.to_string();
            let is_heard = |subject: &Subject| covers(&subject.form(None), &name) && one_of(hearers(subject));
            match Subject::one_of_each().iter().any(is_heard) {
                true => Ok(()),
                false => Err(denied(crate::Action::Subscribe, filter)),
            }
        }
        // Only dead letters may be deleted: no other data depends on them.
        Carried::DeleteMessage { subject: subject @ Subject::Dead(_), .. } => {
            match kinds.contains(&Kind::Admin) {
                true => Ok(()),
                false => Err(denied(crate::Action::Publish, subject)),
            }
        }
        Carried::DeleteMessage { subject, .. } => Err(denied(crate::Action::Publish, subject)),
        Carried::Object { .. } | Carried::Ping if one_of(READERS) => Ok(()),
        Carried::Backlog { .. } | Carried::Fill if kinds.contains(&Kind::Admin) => Ok(()),
        Carried::Object { name, .. } => Err(denied(crate::Action::Subscribe, name)),
        Carried::Backlog { consumer } => Err(denied(crate::Action::Subscribe, consumer)),
        Carried::Fill => Err(denied(crate::Action::Subscribe, &"the sizes of all streams")),
        Carried::Ping => Err(denied(crate::Action::Subscribe, &"anything")),
    }
}

/// The way in which a message on a subject gets from one account to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A stream of the core account stores the message and acknowledges it. Listeners receive it
    /// from the core account.
    Stored,
    /// One process of the listening account answers.
    Asked,
    /// All workers answer.
    Gathered,
    /// All listeners receive the message, and none answers.
    Told,
}

fn way(subject: &Subject) -> Way {
    if Stream::of(&Filter::One(subject.clone())).is_some() {
        return Way::Stored;
    }
    match subject {
        Subject::Worker => Way::Gathered,
        Subject::Stop(_) | Subject::Drain | Subject::Stream(..) => Way::Told,
        Subject::Submit | Subject::Steer | Subject::Query(_) | Subject::Ask(..) | Subject::Admin(_) => {
            Way::Asked
        }
        Subject::Spawn
        | Subject::Graph
        | Subject::Cancel
        | Subject::Input
        | Subject::Execute(_)
        | Subject::Result(..)
        | Subject::Cost(..)
        | Subject::Event(..)
        | Subject::Outcome(..)
        | Subject::Question(..)
        | Subject::Span(..)
        | Subject::Webhook(..)
        | Subject::History(..)
        | Subject::Dead(_)
        | Subject::Audit(_)
        | Subject::Profile(_)
        | Subject::Schedule(_)
        | Subject::Ticks(_)
        | Subject::Kept(_) => Way::Stored,
    }
}

/// A call to the server about a stream, a consumer or an object: its subject, and whether the
/// answer has more than one message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    pub subject: String,
    pub streamed: bool,
}

/// A user of the bus: its role and, for a worker, its pool; with a name and an inbox of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    pub kind: Kind,
    pub pool: Option<PoolName>,
    pub name: String,
}

/// The permissions of a user of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
}

impl Role {
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Role { kind, pool: None, name: name.into() }
    }

    pub fn worker(pool: PoolName, name: impl Into<String>) -> Self {
        Role { kind: Kind::Worker, pool: Some(pool), name: name.into() }
    }

    /// The prefix of the subjects of its calls to JetStream; none: the server's default.
    pub fn js_api(&self) -> Option<&'static str> {
        (self.kind.account() != Account::Core).then_some(CALLS_OF_OTHERS)
    }

    /// The prefix of the subjects at which only this user receives answers.
    pub fn inbox(&self) -> String {
        format!("_INBOX_{}", self.name)
    }

    pub fn rights(&self, namespace: &Namespace) -> Rights {
        let own = format!("{}.>", self.inbox());
        let all = Subject::one_of_each();
        let of = |wanted: fn(&Subject) -> &'static [Kind]| {
            let mine = all.iter().filter(move |subject| wanted(subject).contains(&self.kind));
            mine.map(|subject| namespace.form(subject, self.pool.as_ref())).collect::<Vec<_>>()
        };
        let mut publish = of(senders);
        let calls = calls(self.kind, self.pool.as_ref(), namespace).into_iter();
        publish.extend(calls.map(|call| as_sent_by(self.kind.account(), &call.subject)));
        let mut subscribe = of(hearers);
        match self.kind {
            // A coordinator answers requests of other accounts, for which the server makes reply
            // subjects (`_R_.…`). Tools discover it as a service (`$SRV.…`).
            Kind::Coordinator => {
                publish.extend(["_R_.>".into(), "$SRV.>".into()]);
                subscribe.push("$SRV.>".into());
            }
            Kind::Worker => publish.push("_R_.>".into()),
            Kind::Provisioner | Kind::Client | Kind::Observer | Kind::Admin => {}
        }
        // The request for its own identity and permissions.
        publish.push(ABOUT_US.to_owned());
        publish.push(own.clone());
        subscribe.push(own);
        for list in [&mut publish, &mut subscribe] {
            list.sort();
            list.dedup();
        }
        Rights { publish, subscribe }
    }
}

/// The name of the stream that holds the objects of a bucket.
fn objects(namespace: &Namespace, bucket: Storage) -> String {
    format!("OBJ_{}", namespace.stream(bucket.name()))
}

/// The calls that a role makes to the server. Only the provisioner and coordinators may create
/// consumers: the server sends a consumer's stored messages to any subject that its creator names.
pub fn calls(kind: Kind, pool: Option<&PoolName>, namespace: &Namespace) -> Vec<Call> {
    let stream = |stream: Stream| namespace.stream(stream.name());
    let all: Vec<String> = Stream::ALL
        .map(stream)
        .into_iter()
        .chain(Storage::BUCKETS.map(|bucket| objects(namespace, bucket)))
        .collect();
    let read = |name: &str| {
        [
            Call { subject: format!("$JS.API.STREAM.INFO.{name}"), streamed: false },
            Call { subject: format!("$JS.API.STREAM.MSG.GET.{name}"), streamed: false },
            Call { subject: format!("$JS.API.DIRECT.GET.{name}"), streamed: true },
        ]
    };
    let once = |subject: String| Call { subject, streamed: false };
    let written = |bucket: Storage| once(format!("$O.{}.>", namespace.stream(bucket.name())));
    let mut calls = Vec::new();
    match kind {
        Kind::Provisioner => {
            for name in &all {
                calls.extend(
                    ["CREATE", "UPDATE", "INFO"].map(|what| once(format!("$JS.API.STREAM.{what}.{name}"))),
                );
            }
            for queue in Stream::ALL.into_iter().filter(|stream| stream.is_queue()).map(stream) {
                calls.extend(
                    ["CREATE", "INFO"].map(|what| once(format!("$JS.API.CONSUMER.{what}.{queue}.>"))),
                );
            }
        }
        Kind::Coordinator => {
            calls.push(once("$JS.API.INFO".into()));
            for name in &all {
                calls.extend(read(name));
                calls.extend(
                    ["PURGE", "MSG.DELETE"].map(|what| once(format!("$JS.API.STREAM.{what}.{name}"))),
                );
            }
            let (execute, event) = (stream(Stream::Execute), stream(Stream::Event));
            let webhook = stream(Stream::Webhook);
            for queue in Stream::ALL.into_iter().filter(|stream| stream.is_queue()).map(stream) {
                calls.push(once(format!("$JS.API.CONSUMER.INFO.{queue}.>")));
            }
            // To create the queues of pools and webhooks, and to read a log without its payloads.
            calls.extend(
                [&execute, &webhook, &event].map(|name| once(format!("$JS.API.CONSUMER.CREATE.{name}.>"))),
            );
            for queue in [Stream::Intake, Stream::Report, Stream::Span, Stream::Webhook].map(stream) {
                calls.push(once(format!("$JS.API.CONSUMER.MSG.NEXT.{queue}.*")));
                calls.push(once(format!("$JS.ACK.{queue}.>")));
            }
            calls.push(once(format!("$JS.API.CONSUMER.MSG.NEXT.{event}.*")));
            calls.extend(Storage::BUCKETS.map(written));
        }
        Kind::Worker => {
            let execute = stream(Stream::Execute);
            let queue = pool.map_or("*".to_owned(), |pool| Consumer::Execute(pool.clone()).name());
            calls.push(once(format!("$JS.API.CONSUMER.INFO.{execute}.{queue}")));
            let next = format!("$JS.API.CONSUMER.MSG.NEXT.{execute}.{queue}");
            calls.push(Call { subject: next, streamed: true });
            calls.push(once(format!("$JS.ACK.{execute}.{queue}.>")));
            calls.extend(read(&stream(Stream::History)).into_iter().skip(1));
            for bucket in Storage::BUCKETS {
                calls.extend(read(&objects(namespace, bucket)).into_iter().skip(1));
            }
            calls.push(written(Storage::Objects));
        }
        Kind::Client | Kind::Observer | Kind::Admin => {
            for name in Stream::ALL.into_iter().filter(|stream| readers(*stream).contains(&kind)).map(stream)
            {
                calls.extend(read(&name));
            }
            for bucket in Storage::BUCKETS {
                calls.extend(read(&objects(namespace, bucket)));
            }
            if kind == Kind::Admin {
                // An administrator removes a dead letter that has been dealt with.
                calls.push(once(format!("$JS.API.STREAM.MSG.DELETE.{}", stream(Stream::Dead))));
            }
        }
    }
    calls
}

/// A subject that one account imports from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub from: Account,
    pub to: Account,
    pub subject: String,
    /// The subject's name in the importing account, if it differs.
    pub renamed: Option<String>,
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Requests, with one answer or several.
    Service { streamed: bool },
    /// Messages without an answer.
    Stream,
}

/// Everything that crosses from one account to another, sorted.
pub fn imports(namespace: &Namespace) -> Vec<Import> {
    let mut all = Vec::new();
    for subject in Subject::one_of_each() {
        let form = namespace.form(&subject, None);
        let mut add = |from: Account, to: Account, what: What| {
            if from != to {
                all.push(Import { from, to, subject: form.clone(), renamed: None, what });
            }
        };
        let accounts = |kinds: &[Kind]| kinds.iter().map(|kind| kind.account()).collect::<Vec<_>>();
        let (sent_by, heard_by) = (accounts(senders(&subject)), accounts(hearers(&subject)));
        for sender in &sent_by {
            match way(&subject) {
                Way::Stored => add(Account::Core, *sender, What::Service { streamed: false }),
                Way::Asked => {
                    heard_by.iter().for_each(|to| add(*to, *sender, What::Service { streamed: false }))
                }
                Way::Gathered => {
                    heard_by.iter().for_each(|to| add(*to, *sender, What::Service { streamed: true }))
                }
                Way::Told => heard_by.iter().for_each(|to| add(*sender, *to, What::Stream)),
            }
        }
        if way(&subject) == Way::Stored {
            heard_by.iter().for_each(|to| add(Account::Core, *to, What::Stream));
        }
    }
    for kind in Kind::ALL.into_iter().filter(|kind| kind.account() != Account::Core) {
        for Call { subject, streamed } in calls(kind, None, namespace) {
            let (from, to) = (Account::Core, kind.account());
            let renamed = Some(as_sent_by(to, &subject)).filter(|sent| *sent != subject);
            all.push(Import { from, to, subject, renamed, what: What::Service { streamed } });
        }
    }
    all.sort();
    all.dedup();
    all
}

/// The role that has exactly these rights, with any inbox; for a worker, with any pool.
pub fn recognised(namespace: &Namespace, publish: &[String]) -> Option<Role> {
    let plain = |list: &[String]| {
        let mut list: Vec<String> =
            list.iter().filter(|subject| !subject.starts_with("_INBOX")).cloned().collect();
        list.sort();
        list
    };
    let pool = publish.iter().find_map(|subject| {
        let Ok(Subject::Ask(pool, _)) = namespace.parse(&subject.replace('*', "p00")) else { return None };
        Some(pool)
    });
    let roles = Kind::ALL.into_iter().map(|kind| {
        let pool = pool.clone().filter(|_| kind == Kind::Worker);
        Role { kind, pool, name: kind.name().into() }
    });
    roles.into_iter().find(|role| plain(&role.rights(namespace).publish) == plain(publish))
}

/// The roles that may send to a subject of the server. An error message names them to a user that
/// was denied.
pub fn who_may_send(namespace: &Namespace, subject: &str) -> Vec<Kind> {
    let covered = |kind: &Kind| {
        let role = Role { kind: *kind, pool: None, name: kind.name().into() };
        role.rights(namespace).publish.iter().any(|form| covers(form, subject))
    };
    Kind::ALL.into_iter().filter(covered).collect()
}

/// The roles that may read or listen on a filter, if the filter is one of Trellis. An error message
/// names them to a user that was denied.
pub fn who_may_read(filter: &str) -> Option<Vec<Kind>> {
    let filter: Filter = filter.parse().ok()?;
    let of_stream = Stream::of(&filter).map(readers);
    let name = filter.to_string();
    let heard = || {
        let all = Subject::one_of_each();
        all.iter().find(|subject| covers(&subject.form(None), &name)).map(hearers)
    };
    of_stream.or_else(heard).map(<[Kind]>::to_vec)
}

/// Returns true if a subject with wildcards covers another.
pub fn covers(form: &str, subject: &str) -> bool {
    let (mut of, mut tokens) = (form.split('.'), subject.split('.'));
    loop {
        match (of.next(), tokens.next()) {
            (None, None) => return true,
            (Some(">"), Some(_)) => return true,
            (Some(wanted), Some(token)) if wanted == "*" || wanted == token => {}
            (Some(_) | None, Some(_) | None) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::AsText;

    /// A new subject must also be in the list that permissions are made of.
    #[test]
    fn every_subject_of_a_stream_is_in_the_list() {
        let all = Subject::one_of_each();
        let forms: BTreeSet<String> = all.iter().map(|subject| subject.form(None)).collect();
        assert_eq!(forms.len(), all.len(), "each subject is listed once");
        for filter in Stream::ALL.iter().flat_map(|stream| stream.filters()) {
            assert!(forms.contains(&filter.to_string()), "{filter}");
        }
        for subject in &all {
            assert!(covers(&subject.form(None), &subject.to_string()), "{subject}");
            assert!(!senders(subject).is_empty(), "no role sends {subject}");
            assert_eq!(senders(subject) == [Kind::Coordinator], subject.is_of_the_core(), "{subject}");
            let stored = Stream::of(&Filter::One(subject.clone())).is_some();
            assert!(stored || !hearers(subject).is_empty(), "no role receives {subject}");
        }
    }

    #[test]
    fn no_role_has_more_than_a_part() {
        let too_much =
            [">", "agent.>", "$JS.>", "$JS.API.>", "JS.API.>", "_INBOX.>", "$SYS.>", "$O.>", "$KV.>"];
        for kind in Kind::ALL {
            let pool = (kind == Kind::Worker).then(PoolName::default_pool);
            let Rights { publish, subscribe } =
                Role { kind, pool, name: kind.name().into() }.rights(&Namespace::default());
            for subject in publish.iter().chain(&subscribe) {
                assert!(!too_much.contains(&subject.as_str()), "{kind}: {subject}");
            }
        }
        for kind in Kind::ALL {
            let pool = (kind == Kind::Worker).then(|| PoolName::new("gpu").expect("a plain name"));
            let role = Role { kind, pool, name: "somebody".into() };
            let found = recognised(&Namespace::default(), &role.rights(&Namespace::default()).publish);
            assert_eq!(found.map(|found| (found.kind, found.pool)), Some((role.kind, role.pool)));
        }
        assert_eq!(who_may_send(&Namespace::default(), "agent.admin.raise"), [Kind::Admin]);
        assert!(who_may_send(&Namespace::default(), "$JS.API.STREAM.DELETE.AGENT_EVENT").is_empty());
    }

    /// A call over HTTP is permitted exactly where the NATS server permits it.
    #[test]
    fn s1_a_carried_call_is_for_whom_the_table_says() {
        let trace = domain::TraceId::from_u128(7).expect("not all zeros");
        let (client, observer, admin) = (&[Kind::Client][..], &[Kind::Observer][..], &[Kind::Admin][..]);
        let all = [client, observer, admin];
        let request = |subject: Subject| Carried::Request {
            subject,
            headers: Default::default(),
            payload: Default::default(),
            timeout_ms: 1,
        };
        let gather = |subject: Subject| Carried::Gather { subject, payload: Default::default(), wait_ms: 1 };
        let follow = |filter: Filter| Carried::Follow { filters: vec![AsText(filter)], from: 1 };
        let dead = || Subject::Dead("graph".parse().expect("a plain name"));
        let cases = [
            (request(Subject::Submit), vec![client]),
            (request(Subject::Steer), vec![client]),
            (request(Subject::Query(domain::subject::Topic::Runs)), all.to_vec()),
            (request(Subject::Admin(Action::Apply)), vec![admin]),
            (request(Subject::Execute(PoolName::default_pool())), vec![]),
            (Carried::Read { filter: Filter::EventsOf(trace) }, all.to_vec()),
            (Carried::Read { filter: Filter::Audits }, vec![admin]),
            (Carried::Read { filter: Filter::Events }, vec![]),
            (gather(Subject::Worker), all.to_vec()),
            (gather(Subject::Submit), vec![]),
            (gather(Subject::Admin(Action::Apply)), vec![]),
            (Carried::Last { filter: Filter::Profiles }, vec![]),
            (Carried::Subjects { filter: Filter::Executes }, vec![]),
            (Carried::End { filter: Filter::Dead }, vec![admin]),
            (follow(Filter::HistoriesOf(trace)), all.to_vec()),
            (follow(Filter::Results), vec![]),
            (
                Carried::Follow { filters: vec![AsText(Filter::Events), AsText(Filter::Dead)], from: 1 },
                vec![admin],
            ),
            (Carried::Subscribe { filter: Filter::StreamsOf(trace) }, all.to_vec()),
            (Carried::Subscribe { filter: Filter::Stops }, vec![]),
            (Carried::Subscribe { filter: Filter::One(Subject::Submit) }, vec![]),
            (Carried::DeleteMessage { subject: dead(), sequence: 1 }, vec![admin]),
            (
                Carried::DeleteMessage {
                    subject: Subject::Event(trace, "x".parse().expect("a plain name")),
                    sequence: 1,
                },
                vec![],
            ),
            (Carried::Object { name: "one".into(), sha256: None }, all.to_vec()),
            (Carried::Fill, vec![admin]),
            (Carried::Ping, all.to_vec()),
        ];
        for (call, may) in cases {
            for kinds in all {
                assert_eq!(may_call(kinds, &call).is_ok(), may.contains(&kinds), "{kinds:?}: {call:?}");
            }
            assert!(may_call(&[], &call).is_err(), "nobody: {call:?}");
        }
    }

    /// An account imports only what it needs: an observer's account imports nothing that a worker
    /// sends except its broadcasts.
    #[test]
    fn subjects_between_accounts_are_used_by_a_role_there() {
        let namespace: Namespace = "team".parse().expect("a plain name");
        for Import { from, to, subject, renamed, what } in imports(&namespace) {
            assert_ne!(from, to);
            let there = renamed.unwrap_or(subject);
            let needed = Kind::ALL.into_iter().filter(|kind| kind.account() == to).any(|kind| {
                let rights = Role { kind, pool: None, name: "x".into() }.rights(&namespace);
                let list = if what == What::Stream { rights.subscribe } else { rights.publish };
                list.contains(&there)
            });
            assert!(needed, "{there} crosses to {} without a need", to.name());
        }
    }
}
