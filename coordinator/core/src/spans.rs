//! The spans of a run (X4). A run whose spans are exported stores marks: when each of its contexts
//! was queued, claimed, lost, parked and charged. Other runs store no marks. The spans of a context
//! are derived from its marks and its end alone, so every process that exports them produces the
//! same spans, however often.

use domain::{
    Amount, CallId, ChildId, Timestamp, Usd,
    span::{Attribute, Kind, Link, Span, SpanEvent, SpanId, attribute},
    subject::Subject,
    tool,
    wire::{EndStatus, StepStatus},
};

use super::{
    ContextIndex, ContextNode, End, Event, Happening, KnownCall, Mark, Requeue, RunOrigin, Trace, What,
};

/// The most marks of a context. After them the next queueing is marked as `Cut`, and its spans end
/// there.
const MAX_MARKS: usize = 256;
/// The most happenings that are marked for one context; later ones are dropped.
const MAX_HAPPENINGS: usize = 128;
/// The most links of one span: the default limit of collectors.
const MAX_LINKS: usize = 128;

impl Trace {
    /// Returns true if the spans of this trace are exported.
    pub fn is_traced(&self) -> bool {
        self.traced.is_some()
    }

    /// Adds the mark of an event that was just applied, if spans show that event.
    pub(super) fn mark(&mut self, event: &Event, now: Timestamp) {
        if !self.is_traced() {
            return;
        }
        let Some(at) = event.child_id().and_then(|id| self.find(id)) else { return };
        if let Event::Corrected { call_id, .. } = event {
            return self.node_mut(at).correct_mark(call_id);
        }
        let Some(what) = self.what(self.node(at), event, now) else { return };
        let node = self.node_mut(at);
        let happenings = node.marks.iter().filter(|mark| matches!(mark.what, What::Happened(_))).count();
        let is_full = node.marks.len() - happenings >= MAX_MARKS;
        let what = match what {
            What::Closed => what,
            _ if !node.is_told() => return,
            What::Happened(_) if happenings >= MAX_HAPPENINGS => return,
            What::Queued { .. } if is_full => What::Cut,
            What::Claimed
            | What::Lost
            | What::Queued { .. }
            | What::Waits { .. }
            | What::Asks
            | What::Paused
            | What::Happened(_)
            | What::Cut => what,
        };
        node.marks.push(Mark { at: now, what });
    }

    /// Returns true if the next actions of this context appear in spans: it has not been queued too
    /// often for that.
    pub fn is_told(&self, child_id: &ChildId) -> bool {
        self.is_traced() && self.context(child_id).is_some_and(ContextNode::is_told)
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "spans show few events, and a new event only if it is added here"
    )]
    fn what(&self, node: &ContextNode, event: &Event, now: Timestamp) -> Option<What> {
        let happened = |happening| Some(What::Happened(happening));
        match event {
            Event::Claimed { .. } => Some(What::Claimed),
            Event::AttemptLost { .. } => Some(What::Lost),
            Event::Requeued { why, not_before, .. } => {
                Some(What::Queued { why: *why, not_before: *not_before })
            }
            Event::Waiting { children, .. } => {
                let children = children.iter().take(MAX_LINKS).filter_map(|id| self.find(id));
                Some(What::Waits { children: children.collect() })
            }
            Event::InputRequired { .. } => Some(What::Asks),
            Event::Paused { .. } => Some(What::Paused),
            Event::Forfeited { call_id, .. } | Event::Estimated { call_id, .. } => {
                let KnownCall::Kept(call) = node.calls.find(call_id)? else { return None };
                let (call_id, attempt) = (call_id.clone(), call.attempt);
                happened(Happening::Forfeited { call_id, amount: call.held, attempt })
            }
            Event::Charged { key, amount, .. } => {
                happened(Happening::Charged { key: key.clone(), amount: *amount })
            }
            Event::Exhausted { dimension, .. } => happened(Happening::Exhausted { dimension: *dimension }),
            Event::Raised { limit, .. } => happened(Happening::Raised { limit: *limit }),
            Event::StepEnded { step, status: StepStatus::Skipped, .. } => {
                let run = node.graph.as_deref()?;
                let step = self.plans[run.plan as usize].group(run.group).steps.get(*step as usize)?;
                happened(Happening::Skipped { step: step.id.clone() })
            }
            Event::Closed { .. } => node.end().is_some_and(|end| end.at < now).then_some(What::Closed),
            _ => None,
        }
    }

    /// The spans of a context that has ended; for a live context, as if it ended at `until`.
    pub fn spans(&self, child_id: &ChildId, until: Timestamp) -> Vec<Span> {
        let (Some(traced), Some(node)) = (&self.traced, self.context(child_id)) else { return Vec::new() };
        let closed = node.marks.iter().rev().find(|mark| mark.what == What::Closed).map(|mark| mark.at);
        let over = closed.or(node.end().map(|end| end.at)).unwrap_or(until);
        let mut telling = Telling { trace: self, node, over, spans: Vec::new(), attempts: 0, waits: 0 };
        let mut context = telling.context(traced);
        if node.parent.is_none() {
            telling.spans.push(telling.admission(traced));
        }
        let asked_for = telling.asked_for(&mut context);
        telling.spans.extend(asked_for);
        telling.stages(&mut context);
        telling.spans.insert(0, context);
        telling.spans
    }
}

impl ContextNode {
    fn is_told(&self) -> bool {
        self.marks.iter().rev().take(2).all(|mark| mark.what != What::Cut)
    }

    /// The real cost of a call that is marked as forfeited has become known. Nothing was forfeited,
    /// so the mark's amount becomes zero; the worker that knows the cost reports it in a span of
    /// its own.
    fn correct_mark(&mut self, call_id: &CallId) {
        let of_call = |mark: &Mark| matches!(&mark.what, What::Happened(Happening::Forfeited { call_id: of, .. }) if of == call_id);
        if let Some(place) = self.marks.iter().position(of_call)
            && let Ok(number) = u32::try_from(place)
            && let What::Happened(Happening::Forfeited { amount, .. }) = &mut self.marks.row_mut(number).what
        {
            *amount = Amount::ZERO;
        }
    }
}

/// The activity of a context.
enum Stage {
    /// The context itself is idle: its steps run.
    Steps,
    Queue {
        since: Timestamp,
    },
    Attempt {
        since: Timestamp,
        events: Vec<SpanEvent>,
    },
    Wait {
        since: Timestamp,
        name: &'static str,
        children: Vec<ContextIndex>,
    },
}

/// Builds the spans of one context.
struct Telling<'a> {
    trace: &'a Trace,
    node: &'a ContextNode,
    over: Timestamp,
    spans: Vec<Span>,
    attempts: u32,
    waits: u32,
}

impl Telling<'_> {
    fn id(&self, of: &str) -> SpanId {
        SpanId::of(self.trace.id(), &format!("{}.{of}", self.node.id))
    }

    fn context_id(&self, node: &ContextNode) -> SpanId {
        SpanId::of(self.trace.id(), node.id.as_str())
    }

    /// A span directly under the context's span.
    fn beneath(&self, name: String, kind: Kind, id: SpanId, start: Timestamp, end: Timestamp) -> Span {
        let ids = (self.trace.id(), id, Some(self.context_id(self.node)));
        let mut span = Span::new(name, kind, ids, (start, end));
        span.attributes = self.common();
        span
    }

    /// The attributes that all spans of a context have.
    fn common(&self) -> Vec<Attribute> {
        let mut common = vec![attribute("trellis.child_id", self.node.id.as_str())];
        let thread = self.node.identity.thread_id.as_ref();
        common.extend(thread.map(|thread| attribute("gen_ai.conversation.id", thread.as_str())));
        let workflow = self.trace.root().and_then(|root| self.workflow(root));
        common.extend(workflow.map(|name| attribute("gen_ai.workflow.name", name)));
        common
    }

    /// The name of a graph, or of the step that is a group: equal in all runs of the graph.
    fn workflow(&self, node: &ContextNode) -> Option<&str> {
        let run = node.graph.as_deref()?;
        let plan = &self.trace.plans[run.plan as usize];
        Some(match plan.group(run.group).owner {
            Some((group, step)) => plan.group(group).steps[step as usize].id.as_str(),
            None => plan.name().map_or("graph", |name| name.as_str()),
        })
    }

    /// The span of the ended attempt to which a later happening belongs.
    fn earlier_attempt(&mut self, happening: &Happening) -> Option<&mut Span> {
        let Happening::Forfeited { attempt, .. } = happening else { return None };
        let id = self.id(&attempt.to_string());
        self.spans.iter_mut().find(|span| span.span_id == id)
    }

    fn agent(&self) -> Option<&str> {
        self.node.spec.agent_id.as_ref().map(|agent| agent.as_str())
    }

    fn context(&self, traced: &RunOrigin) -> Span {
        let (trace, node) = (self.trace, self.node);
        let operation = match self.workflow(node) {
            Some(_) => Some("invoke_workflow"),
            None if node.is_approval() => None,
            None => Some("invoke_agent"),
        };
        let parent = node.parent.map(|parent| trace.node(parent));
        let (start, parent_span) = match parent {
            Some(parent) => (node.identity.started_at, Some(self.context_id(parent))),
            None => {
                let caller = traced.parent.filter(|caller| *caller != self.context_id(node));
                (traced.received_at.min(node.identity.started_at), caller)
            }
        };
        let subject = self.workflow(node).or(self.agent()).unwrap_or(node.id.as_str());
        let name = format!("{} {subject}", operation.unwrap_or("approve"));
        let ids = (trace.id(), self.context_id(node), parent_span);
        let mut span = Span::new(name, Kind::Internal, ids, (start, self.over));
        let budget = &node.budget;
        span.attributes = self.common();
        span.attributes.extend(operation.map(|operation| attribute("gen_ai.operation.name", operation)));
        span.attributes.extend(self.agent_attributes());
        span.attributes.extend([
            attribute("trellis.status", node.status_word().name()),
            attribute("trellis.attempts", node.attempt()),
            attribute("trellis.cost.own_usd", budget.own.cost_usd),
            attribute("trellis.cost.own_nanos", budget.own.cost_usd.nanos()),
            attribute("trellis.cost.subtree_usd", budget.spent.cost_usd),
            attribute("trellis.cost.subtree_nanos", budget.spent.cost_usd.nanos()),
            attribute("trellis.tokens.own", budget.own.tokens.count()),
            attribute("trellis.tokens.subtree", budget.spent.tokens.count()),
            attribute("trellis.budget.limit_usd", budget.ceilings.limit.cost_usd),
        ]);
        let some = |name, amount: Usd| Some(attribute(name, amount)).filter(|_| amount > Usd::ZERO);
        span.attributes.extend(some("trellis.cost.estimated_usd", budget.estimated.cost_usd));
        span.attributes.extend(some("trellis.cost.disputed_usd", budget.disputed.cost_usd));
        span.error = node.end().and_then(End::error_type).map(Into::into);
        span.links.extend(traced.link.filter(|_| parent.is_none()));
        span
    }

    /// The tool call with which the calling agent requested this context, from the request to the
    /// answer, across all attempts of the caller. The two spans link to each other.
    fn asked_for(&self, context: &mut Span) -> Option<Span> {
        let caller = self.node.parent.map(|parent| self.trace.node(parent));
        let caller = caller.filter(|caller| caller.graph.is_none())?;
        let tool = if self.node.graph.is_some() { tool::RUN_PIPELINE } else { tool::SPAWN };
        let ids = (self.trace.id(), self.id("asked"), Some(self.context_id(caller)));
        let times = (self.node.identity.started_at, self.over);
        let mut span = Span::new(format!("execute_tool {tool}"), Kind::Internal, ids, times);
        span.attributes = self.common();
        span.attributes.push(attribute("gen_ai.operation.name", "execute_tool"));
        span.attributes.push(attribute("gen_ai.tool.name", tool));
        span.links.push(Link { trace_id: self.trace.id(), span_id: context.span_id });
        context.links.push(Link { trace_id: self.trace.id(), span_id: span.span_id });
        Some(span)
    }

    /// The tool call with which an agent asked a human, from the question to the answer.
    fn asked_human(&self, since: Timestamp, at: Timestamp) -> Span {
        let id = self.id(&format!("asked.{}", self.waits));
        let name = format!("execute_tool {}", tool::ASK_HUMAN);
        let mut span = self.beneath(name, Kind::Internal, id, since, at);
        span.attributes.push(attribute("gen_ai.operation.name", "execute_tool"));
        span.attributes.push(attribute("gen_ai.tool.name", tool::ASK_HUMAN));
        span
    }

    fn agent_attributes(&self) -> Vec<Attribute> {
        let named =
            |agent: &str| [attribute("gen_ai.agent.id", agent), attribute("gen_ai.agent.name", agent)];
        self.agent().map(named).into_iter().flatten().collect()
    }

    /// The time from the arrival of the submission to its admission.
    fn admission(&self, traced: &RunOrigin) -> Span {
        let (start, end) = (traced.received_at, self.node.identity.started_at);
        let name = format!("process {}", traced.subject);
        let mut span = self.beneath(name, Kind::Consumer, self.id("admit"), start.min(end), end);
        span.attributes.extend(messaging("process", &traced.subject, "intake"));
        span
    }

    /// Adds the spans of the context's activities, in their order.
    fn stages(&mut self, context: &mut Span) {
        let is_agent = self.node.graph.is_none() && !self.node.is_approval();
        let mut stage =
            if is_agent { Stage::Queue { since: self.node.identity.started_at } } else { Stage::Steps };
        for Mark { at, what } in self.node.marks.iter() {
            let at = *at;
            stage = match what {
                What::Claimed => {
                    self.attempts += 1;
                    self.end(stage, at, "claimed", None);
                    Stage::Attempt { since: at, events: Vec::new() }
                }
                What::Lost => {
                    self.end(stage, at, "lost", Some("worker_lost"));
                    Stage::Steps
                }
                What::Queued { why, not_before } => {
                    let (verdict, error) = match why {
                        Requeue::Retry => ("retried", Some("attempt_failed")),
                        Requeue::HandedBack => ("handed_back", None),
                        Requeue::Restored => ("restored", None),
                        // The children ended before the parent reported that it waits for them.
                        Requeue::ChildrenEnded => ("waiting", None),
                        Requeue::Answered => ("input_required", None),
                        Requeue::Raised | Requeue::Room => ("out_of_budget", None),
                        Requeue::Lost | Requeue::Synthesis => ("queued", None),
                    };
                    self.end(stage, at, verdict, error);
                    if *not_before > at {
                        let waits = Stage::Wait { since: at, name: "retry", children: Vec::new() };
                        self.end(waits, (*not_before).min(self.over), "queued", None);
                    }
                    Stage::Queue { since: at.max(*not_before).min(self.over) }
                }
                What::Waits { children } => {
                    self.end(stage, at, "waiting", None);
                    Stage::Wait { since: at, name: "children", children: children.clone() }
                }
                What::Asks => {
                    self.end(stage, at, "input_required", None);
                    Stage::Wait { since: at, name: "human", children: Vec::new() }
                }
                What::Paused => {
                    self.end(stage, at, "out_of_budget", None);
                    Stage::Wait { since: at, name: "budget", children: Vec::new() }
                }
                What::Cut => {
                    context.attributes.push(attribute("trellis.spans_cut", true));
                    self.end(stage, at, "cut", None);
                    return;
                }
                What::Happened(happening) => {
                    let event = event(at, happening);
                    if let Some(earlier) = self.earlier_attempt(happening) {
                        earlier.events.push(event);
                        continue;
                    }
                    match &mut stage {
                        Stage::Attempt { events, .. } => events.push(event),
                        Stage::Steps | Stage::Queue { .. } | Stage::Wait { .. } => context.events.push(event),
                    }
                    stage
                }
                What::Closed => stage,
            };
        }
        let end = self.node.end();
        let verdict = end.map_or("running", |end| end.status.name());
        self.end(stage, self.over, verdict, end.and_then(End::error_type));
    }

    /// Adds the span of the stage that ends at `at`.
    fn end(&mut self, stage: Stage, at: Timestamp, verdict: &'static str, error: Option<&'static str>) {
        let span = match stage {
            Stage::Steps => return,
            Stage::Queue { since } => {
                // The wait ended with a claim, or the context left the queue in another way.
                let number = if verdict == "claimed" { self.attempts } else { self.attempts + 1 };
                let mut span = self.beneath(
                    "queue wait".into(),
                    Kind::Consumer,
                    self.id(&format!("{number}.queue")),
                    since,
                    at,
                );
                if self.spans.iter().any(|other| other.span_id == span.span_id) {
                    self.waits += 1;
                    span.span_id = self.id(&format!("{number}.queue.{}", self.waits));
                }
                span.attributes.push(attribute("trellis.attempt", number));
                let subject = Subject::Execute(self.trace.pool_of(self.node)).to_string();
                span.attributes.extend(messaging("receive", &subject, "execute"));
                span
            }
            Stage::Attempt { since, events } => {
                let number = self.attempts;
                let name = format!("attempt {}", self.agent().unwrap_or(self.node.id.as_str()));
                let mut span = self.beneath(name, Kind::Internal, self.id(&number.to_string()), since, at);
                span.attributes.extend(self.agent_attributes());
                span.attributes.push(attribute("trellis.attempt", number));
                let attempt = usize::try_from(number)
                    .ok()
                    .and_then(|number| self.node.attempts.get(number.checked_sub(1)?));
                span.attributes.extend(
                    attempt.map(|attempt| attribute("trellis.worker_id", attempt.worker_id.as_str())),
                );
                span.attributes.push(attribute("trellis.verdict", verdict));
                span.events = events;
                span.error = error.map(Into::into);
                span
            }
            Stage::Wait { since, name, children } => {
                self.waits += 1;
                let id = self.id(&format!("wait.{}", self.waits));
                let mut span = self.beneath(format!("wait {name}"), Kind::Internal, id, since, at);
                let link = |child: &ContextIndex| Link {
                    trace_id: self.trace.id(),
                    span_id: self.context_id(self.trace.node(*child)),
                };
                span.links = children.iter().map(link).collect();
                if name == "human" && !self.node.is_approval() {
                    self.spans.push(self.asked_human(since, at));
                }
                span
            }
        };
        self.spans.push(span);
    }
}

fn event(at: Timestamp, happening: &Happening) -> SpanEvent {
    let amounts = |amount: &Amount| {
        vec![
            attribute("trellis.budget.amount_usd", amount.cost_usd),
            attribute("trellis.budget.amount_nanos", amount.cost_usd.nanos()),
            attribute("trellis.budget.tokens", amount.tokens.count()),
        ]
    };
    let (name, attributes) = match happening {
        Happening::Forfeited { call_id, amount, attempt: _ } => {
            let mut attributes = amounts(amount);
            attributes.push(attribute("trellis.call_id", call_id.as_str()));
            ("trellis.budget.forfeited", attributes)
        }
        Happening::Charged { key, amount } => {
            let mut attributes = amounts(amount);
            attributes.push(attribute("trellis.charge_key", key.as_str()));
            ("trellis.budget.charged", attributes)
        }
        Happening::Exhausted { dimension } => {
            ("trellis.budget.exhausted", vec![attribute("trellis.budget.dimension", dimension.to_string())])
        }
        Happening::Raised { limit } => {
            let attributes = vec![
                attribute("trellis.budget.limit_usd", limit.cost_usd),
                attribute("trellis.budget.limit_tokens", limit.tokens.count()),
            ];
            ("trellis.budget.raised", attributes)
        }
        Happening::Skipped { step } => {
            ("trellis.step.skipped", vec![attribute("trellis.step", step.as_str())])
        }
    };
    SpanEvent::new(name, at, attributes)
}

fn messaging(operation: &'static str, destination: &str, group: &'static str) -> [Attribute; 5] {
    [
        attribute("messaging.system", "nats"),
        attribute("messaging.destination.name", destination),
        attribute("messaging.operation.name", operation),
        attribute("messaging.operation.type", operation),
        attribute("messaging.consumer.group.name", group),
    ]
}

impl End {
    /// Why a context did not succeed, in one word. The text of the failure is left out, because a
    /// provider or an agent may have written it (S2). A cancelled context has no error.
    pub fn error_type(&self) -> Option<&'static str> {
        match (self.status, self.details.error.as_ref().map(|error| error.kind)) {
            (EndStatus::Completed | EndStatus::Cancelled, _) => None,
            (EndStatus::Failed, Some(kind)) => Some(kind.name()),
            (EndStatus::Failed | EndStatus::TimedOut | EndStatus::Aborted | EndStatus::Rejected, _) => {
                Some(self.status.name())
            }
        }
    }
}
