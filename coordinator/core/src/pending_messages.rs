//! Messages to agents (G13) and the rungs of their budgets (B21). Both are numbered. A worker that
//! asks for a hold without having seen all of them receives the missing ones instead, and nothing
//! is held. Every message and rung that is committed before a hold is therefore seen by its call.
//! Without missing ones, a hold is decided as if neither existed.
//!
//! A second delivery is harmless: a message is known by the id that its sender gave it, a rung is
//! reached once, and a repeated request for a hold gets the same news.

use domain::{
    Amount, Problems,
    id::ModelName,
    json,
    ladder::Rung,
    wire::{Hold, News, PersonMessage, ReachedRung, Tell},
};

use super::{ContextIndex, ContextNode, Event, Message, Refusal, Trace, content};

/// The most messages to one context, and the most bytes of their texts.
const MAX_MESSAGES: usize = 1_000;
const MAX_MESSAGES_BYTES: usize = 4 << 20;
/// The longest name of a sender.
const MAX_SENDER_BYTES: usize = 256;
/// The most bytes of messages in one answer; the worker asks for the rest. The largest message
/// fits, even with every character escaped.
const MAX_NEWS_BYTES: u64 = 512 * 1024;

pub(super) fn tell(trace: &Trace, tell: &Tell) -> Result<Vec<Event>, Refusal> {
    let child_id = match &tell.child_id {
        Some(child_id) => child_id,
        None => &trace.root().ok_or(Refusal::NoTrace)?.id,
    };
    let node = trace.node(trace.known(child_id)?);
    if let Some((_, told)) = node.told_by_id(tell) {
        let same = told.text == tell.text && told.by == tell.by;
        return if same { Ok(Vec::new()) } else { Err(Refusal::MessageConflict(tell.id.clone())) };
    }
    trace.known_live(child_id)?;
    if tell.by.as_ref().is_some_and(|by| by.as_str().len() > MAX_SENDER_BYTES) {
        let message = format!("a sender's name has at most {MAX_SENDER_BYTES} bytes");
        return Err(Refusal::Malformed(Problems::one("told.by", message, None)));
    }
    if node.spec.agent_id.is_none() {
        return Err(Refusal::RunsNoAgent { child_id: child_id.clone() });
    }
    let bytes =
        node.told.iter().map(|told| told.text.as_str().len()).sum::<usize>() + tell.text.as_str().len();
    if node.told.len() >= MAX_MESSAGES || bytes > MAX_MESSAGES_BYTES {
        let (child_id, has) = (child_id.clone(), node.told.len());
        return Err(Refusal::TooManyMessages {
            child_id,
            has,
            max: MAX_MESSAGES,
            max_bytes: MAX_MESSAGES_BYTES,
        });
    }
    let told = Event::Told {
        child_id: child_id.clone(),
        number: number(node.told.len()) + 1,
        id: tell.id.clone(),
        text: tell.text.clone(),
        by: tell.by.clone(),
    };
    content::check_room(trace, trace.settings(), content::added_by(&told))?;
    Ok(vec![told])
}

/// Decides whether news come before this hold, and returns the rungs reached now. `None` if the
/// attempt has seen all messages and rungs.
pub(super) fn before(trace: &Trace, at: ContextIndex, hold: &Hold) -> Option<Vec<Event>> {
    let node = trace.node(at);
    let seen = hold.seen?;
    let reached = seen.rungs.map_or(Vec::new(), |_| reached(trace, node));
    let behind = |seen: Option<u32>, has: u32| seen.is_some_and(|seen| seen < has);
    let told = behind(seen.told, number(node.told.len()));
    (told || behind(seen.rungs, node.lifecycle.rungs) || !reached.is_empty()).then_some(reached)
}

/// The rungs that the budget has reached since the last hold.
fn reached(trace: &Trace, node: &ContextNode) -> Vec<Event> {
    let (spent, limit) = (node.budget.spent, node.budget.ceilings.limit);
    let above = (1..).zip(trace.ladder(node)).skip(node.lifecycle.rungs as usize);
    let reached = above.take_while(|(_, rung)| rung.at.is_reached(spent, limit));
    let left = trace.left(node);
    let event = |(rung, of): (u32, &Rung)| Event::RungReached {
        child_id: node.id.clone(),
        rung,
        at: of.at,
        left_usd: left.cost_usd,
        left_tokens: left.tokens,
    };
    reached.map(event).collect()
}

/// Records that the journal contains messages that were not yet known as seen: the agent's next
/// call follows them.
pub(super) fn seen(node: &ContextNode, hold: &Hold) -> Option<Event> {
    let seen = hold.seen?.told?.min(number(node.told.len()));
    (seen > node.lifecycle.seen).then(|| Event::MessagesSeen { child_id: node.id.clone(), number: seen })
}

impl ContextNode {
    /// The message with the id of `tell`, and its number.
    fn told_by_id(&self, tell: &Tell) -> Option<(u32, &Message)> {
        (1..).zip(self.told.iter()).find(|(_, told)| told.id == tell.id)
    }

    /// The number of messages that it has not seen.
    pub fn unseen(&self) -> u32 {
        number(self.told.len()).saturating_sub(self.lifecycle.seen)
    }
}

impl Trace {
    /// The ladder of a context: that of its request, otherwise that of its profile.
    pub fn ladder<'a>(&'a self, node: &'a ContextNode) -> &'a [Rung] {
        let profile = node.spec.agent_id.as_ref().and_then(|id| self.agent(id));
        let own = node.spec.on_budget.as_deref();
        own.or(profile.map(|profile| profile.on_budget.as_slice())).unwrap_or_default()
    }

    /// The context and the number of the message of `tell`, whether it was stored now or earlier.
    pub fn told(&self, tell: &Tell) -> Option<(&ContextNode, u32)> {
        let node = match &tell.child_id {
            Some(child_id) => self.context(child_id)?,
            None => self.root()?,
        };
        node.told_by_id(tell).map(|(number, _)| (node, number))
    }

    /// The messages and rungs that the attempt has not seen; `None` if it has seen all.
    pub(super) fn news(&self, node: &ContextNode, hold: &Hold) -> Option<News> {
        let seen = hold.seen?;
        let mut room = MAX_NEWS_BYTES;
        let message = |(number, message): (u32, &Message)| PersonMessage {
            number: Some(number),
            text: message.text.clone(),
            by: message.by.clone(),
        };
        let behind = |seen: Option<u32>| seen.map_or(usize::MAX, |seen| seen as usize);
        let told = (1..).zip(node.told.iter()).skip(behind(seen.told)).map(message);
        let fits = |told: &PersonMessage| {
            let rest = room.checked_sub(json::size_bytes(told));
            room = rest.unwrap_or_default();
            rest.is_some()
        };
        let told: Vec<PersonMessage> = told.take_while(fits).collect();
        let rungs = (1..=node.lifecycle.rungs).zip(self.ladder(node)).skip(behind(seen.rungs));
        let rungs: Vec<ReachedRung> =
            rungs.map(|(number, rung)| self.reached_rung(node, number, rung)).collect();
        (!told.is_empty() || !rungs.is_empty()).then_some(News { told, rungs })
    }

    fn reached_rung(&self, node: &ContextNode, number: u32, rung: &Rung) -> ReachedRung {
        let profile = node.spec.agent_id.as_ref().and_then(|id| self.agent(id));
        let is_allowed = |model: &&ModelName| {
            node.parent.is_none_or(|above| self.model_forbidden_by(above, model).is_none())
        };
        let fallback = profile.and_then(|profile| profile.fallback_model.as_ref()).filter(is_allowed);
        let action = rung.action(fallback);
        let Amount { cost_usd: left_usd, tokens: left_tokens } = self.left(node);
        ReachedRung { number, at: rung.at, action, left_usd, left_tokens }
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
