//! What workers ask about the traces of one partition: claim, tick, hold, settle, spawn, shared
//! context. Each may come twice; the answer is then the same.

use std::sync::Arc;

use shared::{
    ChildId, Problems, TraceId,
    bus::{Message, Subscription},
    decode,
    subject::Partition,
    wire::{Answer, Ask, AskMessage, ChildSpawn},
};

use super::submission::agents_of;
use crate::{
    dead_letter,
    directory::Directory,
    handles::Ground,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin, Question, Work},
    },
    trace::{Command, Order, Refusal, Spawn},
};

#[derive(Debug, Clone)]
pub(crate) struct Asks {
    pub(crate) ground: Arc<Ground>,
    pub(crate) directory: Directory,
    pub(crate) dispatch: Dispatch,
    pub(crate) partition: Partition,
}

impl Asks {
    pub(crate) async fn serve(self, mut questions: Subscription) {
        while let Some(message) = questions.next().await {
            self.take(message).await;
        }
    }

    async fn take(&self, message: Message) {
        let job = match decode::json::<AskMessage>(&message.payload) {
            Ok(asked) => self.job(&message, asked).await,
            Err(problems) => Err(problems),
        };
        match job {
            Ok(job) => self.dispatch.give(job).await,
            Err(problems) => {
                dead_letter::keep_request(&self.ground.bus, &message, problems.clone()).await;
                if let Some(to) = &message.reply_to {
                    let answer = Answer::Refused(Refusal::Malformed(problems).to_wire());
                    let answer = serde_json::to_vec(&answer).expect("plain fields");
                    self.ground.bus.reply(to, answer.into()).await.ok();
                }
            }
        }
    }

    async fn job(&self, message: &Message, asked: AskMessage) -> Result<Job, Problems> {
        let AskMessage { trace_id, ask } = asked;
        let home = self.ground.partition(trace_id);
        if home != self.partition {
            let told = format!("trace {trace_id} lives at {home}, not here");
            let hint = "ask where the work's `report_to` says";
            return Err(Problems::one("trace_id", told, Some(hint.into())));
        }
        let (work, question) = match ask {
            Ask::Claim(claim) => (command(Command::Claim(claim.clone())), Question::Claim(claim)),
            Ask::Tick(tick) => (command(Command::Tick(tick.clone())), Question::Tick(tick)),
            Ask::Hold(hold) => (command(Command::Hold(hold)), Question::Plain),
            Ask::Release { lease, call_id } => {
                (command(Command::Release { lease, call_id }), Question::Plain)
            }
            Ask::Forfeit { lease, call_id } => {
                (command(Command::Forfeit { lease, call_id }), Question::Plain)
            }
            Ask::Settle { lease, call_id, amount } => {
                (command(Command::Settle { lease, call_id, amount }), Question::Plain)
            }
            Ask::Resume(resume) => (command(Command::Resume(resume)), Question::Plain),
            Ask::Spawn(spawn) => {
                let (spawn, child_id) = self.spawn(trace_id, *spawn).await?;
                (command(Command::Spawn(Box::new(spawn))), Question::Spawn(child_id))
            }
            Ask::ContextGet { lease, key } => (Work::ReadValue(lease, key), Question::Read),
            Ask::ContextList { lease } => (Work::ListValues(lease), Question::Read),
            Ask::ContextSet { lease, key, value } => {
                (command(Command::SetValue { lease, key, value }), Question::Plain)
            }
            Ask::ContextDelete { lease, key } => {
                (command(Command::DeleteValue { lease, key }), Question::Plain)
            }
        };
        let origin = match &message.reply_to {
            Some(reply_to) => Origin::Ask { reply_to: reply_to.clone(), question },
            None => Origin::Timer,
        };
        Ok(Job::new(trace_id, work, origin))
    }

    async fn spawn(&self, trace_id: TraceId, asked: ChildSpawn) -> Result<(Spawn, ChildId), Problems> {
        let ChildSpawn { lease, spawn, graph, shared_messages } = asked;
        let named = spawn.as_ref().and_then(|spawn| spawn.child_id.clone());
        let Some(fresh) = named.or_else(|| graph.as_ref().and_then(|graph| graph.child_id.clone())) else {
            let hint = "a name of your choice, the same if you ask again: so that asking twice is one child";
            return Err(Problems::one("ask.spawn", "`child_id` is missing", Some(hint.into())));
        };
        let (order, plan) = match (spawn, graph) {
            (Some(spawn), None) => (Order::from_spawn(&spawn, &shared_messages, &fresh)?, None),
            (None, Some(graph)) => {
                let (order, plan) = Order::from_graph(&graph, &fresh)?;
                (order, Some(plan))
            }
            (Some(_), Some(_)) | (None, None) => {
                let hint = "exactly one of `spawn` and `graph`";
                return Err(Problems::one("ask.spawn", "what is to be spawned?", Some(hint.into())));
            }
        };
        let agents = self.directory.find(&agents_of(&order, plan.as_deref())).await;
        let child_id = order.child_id.clone();
        tracing::debug!(%trace_id, %child_id, parent = %lease.child_id, "a spawn is asked for");
        Ok((Spawn { lease, order, plan, agents }, child_id))
    }
}

fn command(command: Command) -> Work {
    Work::Command(Box::new(command))
}
