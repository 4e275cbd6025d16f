//! Submissions: a goal or a graph, published or requested, becomes a job for the shard of its trace.
//!
//! A second delivery is harmless: ids that were not given are made from the message's place in its
//! stream, so that the same message is the same submission.

use std::collections::BTreeSet;

use shared::{
    AgentId, ChildId, Problems, TraceId,
    bus::{Delivery, Headers, Message},
    decode,
    graph::TaskGraph,
    subject::Subject,
    telemetry,
    wire::{self, Spawn},
};
use uuid::Uuid;

use crate::{
    directory::Directory,
    ground::Ground,
    job::{Job, Origin, Submission},
    trace::{Command, Order, Refusal, Submit},
};

/// How a submission reached us.
pub(crate) enum Arrival<'a> {
    Published(Delivery),
    Requested(&'a Message),
}

impl Arrival<'_> {
    fn payload(&self) -> &[u8] {
        match self {
            Arrival::Published(delivery) => &delivery.payload,
            Arrival::Requested(message) => &message.payload,
        }
    }

    fn headers(&self) -> &Headers {
        match self {
            Arrival::Published(delivery) => &delivery.headers,
            Arrival::Requested(message) => &message.headers,
        }
    }

    /// An id nobody else has: made from the message itself where it may come twice.
    fn fresh(&self) -> Uuid {
        match self {
            Arrival::Published(delivery) => {
                let place = format!("{}.{}.{}", delivery.subject, delivery.sequence, delivery.at.millis());
                Uuid::new_v5(&Uuid::NAMESPACE_OID, place.as_bytes())
            }
            Arrival::Requested(_) => Uuid::now_v7(),
        }
    }

    fn comes_first(&self) -> bool {
        match self {
            Arrival::Published(delivery) => delivery.delivered == 1,
            Arrival::Requested(_) => true,
        }
    }
}

/// What a submission asks for, whichever form it has.
enum Asked {
    Spawn(Box<Spawn>),
    Graph(Box<TaskGraph>),
}

/// Why there is no job, and to whom that is said.
pub(crate) struct Unusable<'a> {
    pub(crate) arrival: Arrival<'a>,
    pub(crate) refusal: wire::Refusal,
    pub(crate) reply_to: Option<String>,
}

#[expect(clippy::result_large_err, reason = "a refusal is rare, and carries back what it is about")]
pub(crate) async fn job<'a>(
    ground: &Ground,
    directory: &Directory,
    arrival: Arrival<'a>,
    subject: Subject,
) -> Result<Job, Unusable<'a>> {
    let asked = match read(arrival.payload(), &subject) {
        Ok(asked) => asked,
        Err(problems) => {
            let reply_to = reply_to_of(ground, arrival.payload()).or_else(|| requested_from(&arrival));
            return Err(Unusable { arrival, refusal: Refusal::Malformed(problems).to_wire(), reply_to });
        }
    };
    let reply_to = match &asked {
        Asked::Spawn(spawn) => spawn.reply_to.clone(),
        Asked::Graph(graph) => graph.reply_to.clone(),
    };
    let refuse = |arrival, problems, reply_to| {
        Err(Unusable { arrival, refusal: Refusal::Malformed(problems).to_wire(), reply_to })
    };
    if let Some(to) = &reply_to
        && let Err(problems) = check_reply_to(ground, to)
    {
        let reply_to = requested_from(&arrival);
        return refuse(arrival, problems, reply_to);
    }
    let reply_to = requested_from(&arrival).or(reply_to);
    let given = match &asked {
        Asked::Spawn(spawn) => spawn.trace_id,
        Asked::Graph(graph) => graph.trace_id,
    };
    let ids = Ids::choose(given, &arrival);
    let (order, plan) = match &asked {
        Asked::Spawn(spawn) => match Order::from_spawn(spawn, &[], &ids.root) {
            Ok(order) => (order, None),
            Err(problems) => return refuse(arrival, problems, reply_to),
        },
        Asked::Graph(graph) => match Order::from_graph(graph, &ids.root) {
            Ok((order, plan)) => (order, Some(plan)),
            Err(problems) => return refuse(arrival, problems, reply_to),
        },
    };
    let agents = directory.find(&agents_of(&order, plan.as_deref())).await;
    let child_id = order.child_id.clone();
    let submit = Submit { order, plan, agents, settings: ground.config.settings.clone() };
    let now = ground.clock.now();
    let (delivery, received_at) = match arrival {
        Arrival::Published(delivery) => {
            let at = delivery.at;
            (Some(delivery), at.min(now))
        }
        Arrival::Requested(_) => (None, now),
    };
    let submission = Submission {
        delivery,
        reply_to,
        subject,
        child_id,
        fresh: ids.fresh,
        elsewhere: ids.elsewhere,
        link: None,
        parent_span: ids.parent_span,
        received_at,
    };
    let origin = Origin::Submission(Box::new(submission));
    Ok(Job::command(ids.trace, Command::Submit(Box::new(submit)), origin))
}

fn read(payload: &[u8], subject: &Subject) -> Result<Asked, Problems> {
    // A request may be either: a graph has steps.
    let has_steps = || {
        let value = serde_json::from_slice::<serde_json::Value>(payload);
        value.is_ok_and(|value| value.get("steps").is_some())
    };
    let is_graph = *subject == Subject::Graph || (*subject != Subject::Spawn && has_steps());
    if is_graph {
        let (graph, _) = shared::graph::read(payload, decode::Format::Json)?;
        Ok(Asked::Graph(Box::new(graph)))
    } else {
        Ok(Asked::Spawn(Box::new(decode::json(payload)?)))
    }
}

/// Who asked, if it was by request.
fn requested_from(arrival: &Arrival<'_>) -> Option<String> {
    match arrival {
        Arrival::Published(_) => None,
        Arrival::Requested(message) => message.reply_to.clone(),
    }
}

/// The `reply_to` of a message that is wrong in other ways, so that its sender can be told.
fn reply_to_of(ground: &Ground, payload: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
    let to = value.get("reply_to")?.as_str()?;
    check_reply_to(ground, to).ok().map(|()| to.to_owned())
}

/// A reply goes where its asker may listen, and never where it would be taken for a message to us or
/// to the server: we publish with our own rights.
fn check_reply_to(ground: &Ground, to: &str) -> Result<(), Problems> {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '*' | '>');
    let tokens = to.split('.').all(|token| !token.is_empty());
    let ours = ground.bus.namespace().parse(to).is_ok() || shared::subject::is_reserved(to);
    if tokens && to.len() <= 256 && to.chars().all(plain) && !ours {
        return Ok(());
    }
    let hint = "a subject of your own, such as the inbox of your client, without wildcards";
    Err(Problems::one("reply_to", format!("{to:?} can't be replied to"), Some(hint.into())))
}

/// The ids of a submission.
struct Ids {
    trace: TraceId,
    root: ChildId,
    fresh: bool,
    elsewhere: Option<TraceId>,
    parent_span: Option<u64>,
}

impl Ids {
    /// X2: the caller's trace, from the request or its trace context, else a new one.
    fn choose(given: Option<TraceId>, arrival: &Arrival<'_>) -> Self {
        let made = arrival.fresh();
        let fresh = TraceId::from_u128(made.as_u128()).expect("a UUID has version bits");
        let root = || ChildId::new("root").expect("a valid literal");
        let parent = telemetry::parent(arrival.headers());
        match (given, parent) {
            (Some(trace), parent) => {
                let parent_span = parent.filter(|(of, _)| *of == trace).map(|(_, span)| span);
                Ids { trace, root: root(), fresh: false, elsewhere: None, parent_span }
            }
            // Many requests may come from one trace of the caller's; each has its own root.
            (None, Some((trace, span))) => {
                let own = format!("root-{:012x}", made.as_u128() >> 80);
                let root = ChildId::new(&own).expect("hex digits");
                Ids { trace, root, fresh: false, elsewhere: Some(fresh), parent_span: Some(span) }
            }
            (None, None) => Ids {
                trace: fresh,
                root: root(),
                fresh: arrival.comes_first(),
                elsewhere: None,
                parent_span: None,
            },
        }
    }
}

/// The names of the agents an order and its plan need.
pub(crate) fn agents_of(order: &Order, plan: Option<&shared::graph::Plan>) -> BTreeSet<AgentId> {
    let of_plan = plan.into_iter().flat_map(|plan| plan.agents().map(|(agent, _)| agent.clone()));
    order.agent_id.iter().cloned().chain(of_plan).collect()
}
