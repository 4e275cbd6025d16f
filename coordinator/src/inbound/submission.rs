//! Submissions: a goal or a graph, published or requested, becomes a job for the shard of its
//! trace.
//!
//! A second delivery is harmless: missing ids are derived from the message's place in its stream,
//! so that the same message is the same submission.

use std::sync::Arc;

use bus::{Delivery, Message};
use bytes::Bytes;
use domain::{
    ChildId, Problems, StepId, Timestamp, TraceId, decode,
    graph::{Plan, Purpose, ResolveError, ResolvedGraph, TaskGraph},
    span::{Caller, Headers, Link},
    subject::Subject,
    wire::{self, Spawn},
};
use trace::{Command, ContextSpec, Earlier, Refusal, RerunOrder, RunOrigin, Submit, Trace, agents_of};
use uuid::Uuid;

use super::names;
use crate::{
    dependents, error_log,
    loops::{Handles, LARGE_BYTES},
    registry,
    shard::job::{Elsewhere, Job, Origin, Submission},
    source_run, store,
};

/// How a submission arrived.
pub(crate) enum RawSubmission {
    Published(Delivery),
    Requested(Message),
}

impl RawSubmission {
    pub(crate) fn is_large(&self) -> bool {
        self.payload().len() > LARGE_BYTES
    }

    /// Returns true if it may ask to run an earlier run again, for which the whole earlier run is
    /// read.
    pub(crate) fn may_be_rerun(&self) -> bool {
        const FIELD: &[u8] = b"\"rerun\"";
        self.payload().windows(FIELD.len()).any(|part| part == FIELD)
    }

    /// Returns true if it may use graphs by name, for which the log is read.
    pub(crate) fn may_use_names(&self) -> bool {
        const FIELD: &[u8] = b"\"use\"";
        self.payload().windows(FIELD.len()).any(|part| part == FIELD)
    }

    fn payload(&self) -> &Bytes {
        match self {
            RawSubmission::Published(delivery) => &delivery.payload,
            RawSubmission::Requested(message) => &message.payload,
        }
    }

    fn headers(&self) -> &Headers {
        match self {
            RawSubmission::Published(delivery) => &delivery.headers,
            RawSubmission::Requested(message) => &message.headers,
        }
    }

    /// A new unique id. For a message that may be delivered twice it is derived from the message.
    fn fresh(&self, handles: &Handles) -> Uuid {
        match self {
            RawSubmission::Published(delivery) => {
                let place = format!("{}.{}.{}", delivery.subject, delivery.sequence, delivery.at.millis());
                Uuid::new_v5(&Uuid::NAMESPACE_OID, place.as_bytes())
            }
            RawSubmission::Requested(_) => handles.config.random.id(),
        }
    }

    /// Returns true if no coordinator can have handled it before. A server that lost its state
    /// counts deliveries from one again, so only messages that were stored after our start are
    /// certain.
    fn comes_first(&self, since: Timestamp) -> bool {
        match self {
            RawSubmission::Published(delivery) => delivery.delivered == 1 && delivery.at >= since,
            RawSubmission::Requested(_) => true,
        }
    }
}

/// The kinds of submission: one agent, a graph, or the graph of an earlier run again.
enum SubmissionKind {
    Spawn(Box<Spawn>),
    /// With the problems of the graphs that it uses by name, if these prevent its admission.
    Graph(Box<TaskGraph>, Arc<Plan>, Option<Problems>),
    Rerun(Box<wire::Rerun>),
}

/// A request to the core; for a rerun also the data of the earlier run, or the refusal to run it
/// again.
struct AdmissionRequest {
    spec: ContextSpec,
    plan: Option<Arc<Plan>>,
    rerun: Option<Result<Earlier, Refusal>>,
    unresolved: Option<Refusal>,
}

/// A submission that can't become a job: the refusal, and where it is sent.
pub(crate) struct InvalidSubmission {
    pub(crate) arrival: RawSubmission,
    pub(crate) refusal: wire::Refusal,
    pub(crate) reply_to: Option<String>,
    /// It may be taken later: a published one stays in its queue.
    pub(crate) again: bool,
}

pub(crate) async fn job(
    handles: &Handles,
    arrival: RawSubmission,
    subject: Subject,
) -> Result<Job, Box<InvalidSubmission>> {
    if let Some(refusal) = handles.room.refusal() {
        let reply_to = requested_from(&arrival);
        return Err(Box::new(InvalidSubmission { arrival, refusal, reply_to, again: true }));
    }
    let (asked, reply_to) = match read(handles, &arrival, &subject).await {
        Ok(asked) => {
            let reply_to = requested_from(&arrival).or_else(|| asked.reply_to().cloned());
            (asked, reply_to)
        }
        Err(unread) => {
            let reply_to = requested_from(&arrival).or_else(|| reply_to_of(handles, arrival.payload()));
            let (refusal, again) = match unread {
                Undecoded::Wrong(problems) => (Refusal::Malformed(problems).to_wire(), false),
                Undecoded::Log(error) => {
                    error_log::tell(&error, None, "the graphs that a submission uses by name can't be read");
                    (wire::Refusal::unavailable(), true)
                }
            };
            return Err(Box::new(InvalidSubmission { arrival, refusal, reply_to, again }));
        }
    };
    let ids = Ids::choose(&asked, &arrival, handles);
    let ordered = match asked.spec(handles, &ids).await {
        Ok(ordered) => ordered,
        Err(NotOrdered::Problems(problems)) => {
            let refusal = Refusal::Malformed(problems).to_wire();
            return Err(Box::new(InvalidSubmission { arrival, refusal, reply_to, again: false }));
        }
        Err(NotOrdered::Unreadable(error)) => {
            error_log::tell(&error, None, "the run that is to be run again can't be read");
            let refusal = wire::Refusal::unavailable();
            return Err(Box::new(InvalidSubmission { arrival, refusal, reply_to, again: true }));
        }
    };
    if let Err(error) = ordered.note(handles, &ids).await {
        error_log::tell(&error, None, "a branch or a rerun could not be noted");
        let refusal = wire::Refusal::unavailable();
        return Err(Box::new(InvalidSubmission { arrival, refusal, reply_to, again: true }));
    }
    let AdmissionRequest { spec, plan, rerun, unresolved } = ordered;
    let agents = handles.directory.find(&agents_of(&spec, plan.as_deref())).await;
    let child_id = spec.child_id.clone();
    let settings = handles.policies.apply(handles.config.settings.clone());
    let now = handles.clock.now();
    let comes_first = arrival.comes_first(handles.started_at);
    let (delivery, received_at) = match arrival {
        RawSubmission::Published(delivery) => {
            let at = delivery.at.min(now);
            (Some(delivery), at)
        }
        RawSubmission::Requested(_) => (None, now),
    };
    let came =
        Received { received_at, subject: handles.bus.namespace().subject(&subject), caller: ids.caller };
    let traced = came.traced(ids.trace);
    let elsewhere = ids.elsewhere.map(|trace_id| Elsewhere { trace_id, traced: came.traced(trace_id) });
    let submit = Submit { spec, plan, agents, settings, traced, rerun, unresolved };
    let submission =
        Submission { delivery, reply_to, subject, child_id, fresh: ids.fresh, comes_first, elsewhere };
    let origin = Origin::Submission(Box::new(submission));
    Ok(Job::order(ids.trace, Command::Submit(Box::new(submit)), origin))
}

impl SubmissionKind {
    fn reply_to(&self) -> Option<&String> {
        match self {
            SubmissionKind::Spawn(spawn) => spawn.reply_to.as_ref(),
            SubmissionKind::Graph(graph, ..) => graph.reply_to.as_ref(),
            SubmissionKind::Rerun(rerun) => rerun.reply_to.as_ref(),
        }
    }

    fn trace_id(&self) -> Option<TraceId> {
        match self {
            SubmissionKind::Spawn(spawn) => spawn.trace_id,
            SubmissionKind::Graph(graph, ..) => graph.trace_id,
            SubmissionKind::Rerun(rerun) => rerun.trace_id,
        }
    }

    /// The default name of its root.
    fn name(&self) -> Option<&str> {
        match self {
            SubmissionKind::Graph(graph, ..) => graph.name.as_ref().map(StepId::as_str),
            SubmissionKind::Spawn(_) | SubmissionKind::Rerun(_) => None,
        }
    }

    async fn spec(&self, handles: &Handles, ids: &Ids) -> Result<AdmissionRequest, NotOrdered> {
        match self {
            SubmissionKind::Spawn(spawn) => {
                let spec = ContextSpec::from_spawn(spawn, &[], &ids.root).map_err(NotOrdered::Problems)?;
                Ok(AdmissionRequest { spec, plan: None, rerun: None, unresolved: None })
            }
            SubmissionKind::Graph(graph, plan, problems) => {
                let spec = ContextSpec::of_graph(graph, &ids.root);
                let unresolved = problems.clone().map(Refusal::Malformed);
                Ok(AdmissionRequest { spec, plan: Some(plan.clone()), rerun: None, unresolved })
            }
            SubmissionKind::Rerun(asked) => rerun(handles, asked, ids).await.map_err(NotOrdered::Unreadable),
        }
    }
}

/// The reason that no admission request could be made.
enum NotOrdered {
    Problems(Problems),
    /// It may be readable later.
    Unreadable(source_run::Error),
}

/// The core also decides about a rerun whose earlier run is gone: a second delivery may be that
/// late.
async fn rerun(
    handles: &Handles,
    asked: &wire::Rerun,
    ids: &Ids,
) -> Result<AdmissionRequest, source_run::Error> {
    let found = source_run::read(handles, asked.rerun.trace_id).await?;
    let request = RerunOrder::new(asked, &ids.root);
    let root_of = |found: &Trace| found.root().map(|root| root.id.clone());
    let of_earlier = found.as_ref().and_then(root_of).filter(|_| ids.elsewhere.is_none());
    let child_id = asked.child_id.clone().or(of_earlier).unwrap_or_else(|| ids.root.clone());
    let made = |found: &Trace, objects| found.rerun(asked, child_id.clone(), request.clone(), objects);
    let made = match &found {
        Some(found) => match made(found, true) {
            Ok((.., earlier)) if !source_run::has_objects(handles, &earlier.rerun.needs).await? => {
                made(found, false)
            }
            made => made,
        },
        None => Err(Earlier::unknown(asked.rerun.trace_id)),
    };
    Ok(match made {
        Ok((spec, plan, earlier)) => {
            AdmissionRequest { spec, plan: Some(plan), rerun: Some(Ok(earlier)), unresolved: None }
        }
        Err(refusal) => {
            let spec = ContextSpec { rerun: Some(request), ..ContextSpec::new(child_id) };
            AdmissionRequest { spec, plan: None, rerun: Some(Err(refusal)), unresolved: None }
        }
    })
}

impl AdmissionRequest {
    /// Records in the store that this run needs the journals and objects of others.
    async fn note(&self, handles: &Handles, ids: &Ids) -> Result<(), store::Error> {
        let by: Vec<TraceId> = [Some(ids.trace), ids.elsewhere].into_iter().flatten().collect();
        let origin = self.spec.branch_from.iter().map(|from| from.trace_id);
        let rerun = self.rerun.iter().flatten();
        for from in origin.chain(rerun.flat_map(|earlier| dependents::needed_by(&earlier.rerun))) {
            dependents::note(handles, from, &by).await?;
        }
        Ok(())
    }
}

/// The reason that a submission can't be read.
enum Undecoded {
    Wrong(Problems),
    /// The log of graphs can't be read: it may be readable later.
    Log(registry::Error),
}

impl From<Problems> for Undecoded {
    fn from(problems: Problems) -> Self {
        Undecoded::Wrong(problems)
    }
}

/// The content of a message.
enum ParsedSubmission {
    Asked(SubmissionKind),
    /// A graph that uses others by name.
    Named(serde_json::Value),
}

async fn read(
    handles: &Handles,
    arrival: &RawSubmission,
    subject: &Subject,
) -> Result<SubmissionKind, Undecoded> {
    let payload = arrival.payload();
    let parsed = if arrival.is_large() {
        let (payload, subject) = (payload.clone(), subject.clone());
        tokio::task::spawn_blocking(move || parse(&payload, &subject))
            .await
            .expect("the parser does not panic")?
    } else {
        parse(payload, subject)?
    };
    let asked = match parsed {
        ParsedSubmission::Asked(asked) => asked,
        ParsedSubmission::Named(value) => {
            let read = names::read(handles, value, payload.len(), Purpose::Submission).await;
            match read.map_err(Undecoded::Log)? {
                Ok(ResolvedGraph { definition, plan, .. }) => {
                    SubmissionKind::Graph(Box::new(definition), Arc::new(plan), None)
                }
                Err(ResolveError::Now { definition, plan, problems }) => {
                    SubmissionKind::Graph(definition, Arc::new(*plan), Some(problems))
                }
                Err(ResolveError::Wrong(problems)) => return Err(problems.into()),
            }
        }
    };
    match asked.reply_to() {
        Some(to) => Ok(check_reply_to(handles, to).map(|()| asked)?),
        None => Ok(asked),
    }
}

fn parse(payload: &[u8], subject: &Subject) -> Result<ParsedSubmission, Problems> {
    decode::check_depth(payload)?;
    let is_request = *subject == Subject::Submit;
    let message: Option<serde_json::Value> =
        if is_request || *subject == Subject::Graph { serde_json::from_slice(payload).ok() } else { None };
    let has = |field: &str| message.as_ref().is_some_and(|message| message.get(field).is_some());
    if has("rerun") && !has("steps") {
        return Ok(ParsedSubmission::Asked(SubmissionKind::Rerun(Box::new(decode::json(payload)?))));
    }
    // A request may be either; only a graph has steps.
    if *subject == Subject::Graph || (is_request && has("steps")) {
        if message.as_ref().is_some_and(|message| !domain::graph::names(message).is_empty()) {
            return Ok(ParsedSubmission::Named(decode::parse(payload, decode::Format::Json)?));
        }
        let (graph, plan) = domain::graph::read(payload, decode::Format::Json)?;
        return Ok(ParsedSubmission::Asked(SubmissionKind::Graph(Box::new(graph), Arc::new(plan), None)));
    }
    Ok(ParsedSubmission::Asked(SubmissionKind::Spawn(Box::new(decode::json(payload)?))))
}

/// The reply subject of a request.
fn requested_from(arrival: &RawSubmission) -> Option<String> {
    match arrival {
        RawSubmission::Published(_) => None,
        RawSubmission::Requested(message) => message.reply_to.clone(),
    }
}

/// The `reply_to` of a message that is otherwise invalid, so that its sender gets the refusal.
fn reply_to_of(handles: &Handles, payload: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
    let to = value.get("reply_to")?.as_str()?;
    check_reply_to(handles, to).ok().map(|()| to.to_owned())
}

/// Checks that a `reply_to` is not a subject of this deployment or of the server: the coordinator
/// publishes there with its own permissions.
fn check_reply_to(handles: &Handles, to: &str) -> Result<(), Problems> {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '*' | '>');
    let tokens = to.split('.').all(|token| !token.is_empty());
    let ours = handles.bus.namespace().parse(to).is_ok() || domain::subject::is_reserved(to);
    if tokens && to.len() <= 256 && to.chars().all(plain) && !ours {
        return Ok(());
    }
    let hint = "use a subject of your own without wildcards, such as your client's inbox";
    Err(Problems::one("reply_to", format!("{to:?} can't be used as a reply subject"), Some(hint.into())))
}

/// The most bytes of a graph's name in the name of a root with digits after it.
const MAX_ROOT_NAME: usize = 50;

/// The ids of a submission.
struct Ids {
    trace: TraceId,
    root: ChildId,
    fresh: bool,
    elsewhere: Option<TraceId>,
    caller: Option<Caller>,
}

/// The origin of a submission.
struct Received {
    received_at: Timestamp,
    subject: String,
    caller: Option<Caller>,
}

impl Received {
    /// X5: the origin that the spans of a run with this trace id report; none if they are not
    /// exported.
    fn traced(&self, trace_id: TraceId) -> Option<Box<RunOrigin>> {
        if !telemetry::exports(trace_id, self.caller) {
            return None;
        }
        let (of_it, of_another): (Vec<Caller>, Vec<Caller>) =
            self.caller.into_iter().partition(|caller| caller.trace_id == trace_id);
        let link = |caller: &Caller| Link { trace_id: caller.trace_id, span_id: caller.span };
        Some(Box::new(RunOrigin {
            received_at: self.received_at,
            subject: self.subject.clone(),
            parent: of_it.first().map(|caller| caller.span),
            link: of_another.first().map(link),
        }))
    }
}

impl Ids {
    /// X2: the trace id that the request names, else the caller's from its trace context, else a
    /// new one. The root is named after its graph.
    fn choose(asked: &SubmissionKind, arrival: &RawSubmission, handles: &Handles) -> Self {
        let given = asked.trace_id();
        let name = asked.name().unwrap_or("root");
        let made = arrival.fresh(handles);
        let fresh = TraceId::from_u128(made.as_u128()).expect("a UUID has version bits");
        let root = || ChildId::new(name).expect("the two grammars are one");
        let caller = domain::span::caller(arrival.headers());
        match (given, caller) {
            (Some(trace), caller) => Ids { trace, root: root(), fresh: false, elsewhere: None, caller },
            // Many requests may come from one trace of the caller; each gets its own root.
            (None, Some(Caller { trace_id: trace, .. })) => {
                let short = &name[..name.len().min(MAX_ROOT_NAME)];
                let own = format!("{short}-{:012x}", made.as_u128() & 0xffff_ffff_ffff);
                let root = ChildId::new(&own).expect("a name and hex digits");
                Ids { trace, root, fresh: false, elsewhere: Some(fresh), caller }
            }
            (None, None) => Ids {
                trace: fresh,
                root: root(),
                fresh: arrival.comes_first(handles.started_at),
                elsewhere: None,
                caller: None,
            },
        }
    }
}
