//! The asks of workers about the traces of one partition: claim, tick, hold, settle, spawn, shared
//! store. An ask that is delivered twice gets the same answer.

use std::sync::Arc;

use bus::{Message, Subscription};
use domain::{
    Problems, TraceId, decode, graph,
    subject::{Partition, Subject},
    wire::{Answer, Ask, AskMessage, ChildSpawn},
};
use trace::{Command, ContextSpec, Refusal, Spawn, agents_of};

use crate::{
    audit, dead_letter,
    loops::{Handles, LARGE_BYTES},
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin, Reading, Work},
    },
};

#[derive(Debug, Clone)]
pub(crate) struct Asks {
    pub(crate) handles: Arc<Handles>,
    pub(crate) dispatch: Dispatch,
    pub(crate) partition: Partition,
}

impl Asks {
    /// Answers until the subscription ends. A large ask may contain a graph to compile, so it is
    /// read in a task of its own: ticks and holds arrive on the same subscription.
    pub(crate) async fn serve(self, mut asks: Subscription) {
        while let Some(message) = asks.next().await {
            if message.payload.len() <= LARGE_BYTES {
                self.take(message).await;
                continue;
            }
            let asks = self.clone();
            self.handles.beside(async move { asks.take(message).await });
        }
    }

    async fn take(&self, message: Message) {
        if let Err(problems) = message.genuine() {
            return dead_letter::keep_request(&self.handles, &message, &problems);
        }
        let job = match decode::from_peer::<AskMessage>(&message.payload) {
            Ok(asked) => self.job(&message, asked).await,
            Err(problems) => Err(problems),
        };
        match job {
            Ok(job) => self.dispatch.give(job).await,
            Err(problems) => {
                dead_letter::keep_request(&self.handles, &message, &problems);
                if let Some(to) = &message.reply_to {
                    let answer = Answer::Refused(Refusal::Malformed(problems).to_wire());
                    let answer = serde_json::to_vec(&answer).expect("a message has string keys only");
                    self.handles.bus.reply(to, answer.into()).await.ok();
                }
            }
        }
    }

    async fn job(&self, message: &Message, asked: AskMessage) -> Result<Job, Problems> {
        let AskMessage { trace_id, ask } = asked;
        let home = self.handles.partition(trace_id);
        if home != self.partition {
            let message = format!("trace {trace_id} belongs to partition {home}, not to this one");
            let hint = "send it to the subject `report_to.ask` of the execute message";
            return Err(Problems::one("trace_id", message, Some(hint.into())));
        }
        let Subject::Ask(pool, _) = &message.subject else {
            return Err(Problems::one("", "messages on this subject are not accepted here", None));
        };
        // The server lets a worker ask only on its pool's subject; the core compares the pool with
        // the context's (S6).
        let order = |command: Command| Work::Orders(vec![command.from_pool(pool.clone())]);
        let read = |lease, what| Work::Read { pool: pool.clone(), lease, what };
        let work = match ask {
            Ask::Claim(claim) => {
                audit::keep_worker_policy(&self.handles, pool, &claim.worker_id, &message.headers);
                order(Command::Claim(claim))
            }
            Ask::Tick(tick) => order(Command::Tick(tick)),
            Ask::Hold(hold) => order(Command::Hold(hold)),
            Ask::Release { lease, call_id } => order(Command::Release { lease, call_id }),
            Ask::Forfeit { lease, call_id } => order(Command::Forfeit { lease, call_id }),
            Ask::Settle { lease, call_id, amount, model } => {
                order(Command::Settle { lease, call_id, amount, model })
            }
            Ask::Resume(resume) => order(Command::Resume(resume)),
            Ask::Spawn(spawn) => order(Command::Spawn(Box::new(self.spawn(trace_id, *spawn).await?))),
            Ask::Checked(told) => order(Command::Checked(told)),
            Ask::ContextSet { lease, key, value } => order(Command::SetValue { lease, key, value }),
            Ask::ContextDelete { lease, key } => order(Command::DeleteValue { lease, key }),
            Ask::Part { lease, part } => read(lease, Reading::Part(part)),
            Ask::ContextGet { lease, key } => read(lease, Reading::Value(key)),
            Ask::ContextList { lease } => read(lease, Reading::Keys),
        };
        let origin = match &message.reply_to {
            Some(reply_to) => Origin::Ask { reply_to: reply_to.clone() },
            None => Origin::Timer,
        };
        Ok(Job::new(trace_id, work, origin))
    }

    async fn spawn(&self, trace_id: TraceId, asked: ChildSpawn) -> Result<Spawn, Problems> {
        let ChildSpawn { lease, spawn, graph, shared_messages, files } = asked;
        let named = spawn.as_ref().and_then(|spawn| spawn.child_id.clone());
        let Some(fresh) = named.or_else(|| graph.as_ref().and_then(|graph| graph.child_id.clone())) else {
            let hint = "choose a name, and use it again when you repeat the ask: then there is one child";
            return Err(Problems::one("ask.spawn", "`child_id` is missing", Some(hint.into())));
        };
        let (spec, plan) = match (spawn, graph) {
            (Some(spawn), None) => {
                (ContextSpec { files, ..ContextSpec::from_spawn(&spawn, &shared_messages, &fresh)? }, None)
            }
            (None, Some(_)) if !files.is_empty() => {
                return Err(Problems::one(
                    "ask.spawn.files",
                    "files are handed over to one agent only",
                    None,
                ));
            }
            (None, Some(graph)) => {
                let (spec, plan) = ContextSpec::from_graph(&graph, &fresh)?;
                graph::not_named(&plan, "ask.spawn.graph")?;
                (spec, Some(plan))
            }
            (Some(_), Some(_)) | (None, None) => {
                let hint = "give exactly one of `spawn` and `graph`";
                return Err(Problems::one(
                    "ask.spawn",
                    "it has both `spawn` and `graph`, or neither",
                    Some(hint.into()),
                ));
            }
        };
        let agents = self.handles.directory.find(&agents_of(&spec, plan.as_deref())).await;
        tracing::debug!(
            %trace_id,
            child_id = %spec.child_id,
            parent = %lease.child_id,
            "a worker asks for a spawn"
        );
        Ok(Spawn { lease, spec, plan, agents })
    }
}
