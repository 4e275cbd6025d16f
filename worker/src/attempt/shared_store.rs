//! The store that the agents of a trace share (C), as an attempt reads and writes it. The
//! coordinator decides which keys the context may read and write.

use domain::{
    ContextKey, Json,
    wire::{Answer, Ask, ContextValue},
};

use super::Attempt;

#[derive(Debug)]
pub(crate) enum Read {
    Value(ContextValue),
    Absent,
    /// The reason, as text for the agent.
    Refused(String),
}

impl Attempt {
    /// Writes a value. The error is the text of the refusal.
    pub(crate) async fn write_value(&self, key: ContextKey, value: Json) -> Result<(), String> {
        let answer = self.ask(Ask::ContextSet { lease: self.token(), key, value }).await;
        let Answer::Done = answer else { return Err(answer.into_refusal("context write").to_text()) };
        Ok(())
    }

    pub(crate) async fn read_value(&self, key: ContextKey) -> Read {
        let answer = self.ask(Ask::ContextGet { lease: self.token(), key }).await;
        let Answer::Value { value } = answer else {
            return Read::Refused(answer.into_refusal("context read").to_text());
        };
        value.map_or(Read::Absent, Read::Value)
    }

    /// The keys that the context may read, and the number of further keys.
    pub(crate) async fn list_keys(&self) -> Result<(Vec<ContextKey>, u64), String> {
        let answer = self.ask(Ask::ContextList { lease: self.token() }).await;
        let Answer::Keys { keys, left_out } = answer else {
            return Err(answer.into_refusal("context list").to_text());
        };
        Ok((keys, left_out))
    }
}
