//! Rejects messages that a server read from a stream and sent on (S6).
//!
//! A user that may read a stream chooses the subject of the answer, and the server sends the answer
//! there with its own rights. A stored journal entry could so arrive as an administrator's order. A
//! message from a real sender has neither of the marks that are checked here, and every entry point
//! makes this check.

use domain::{problem::Problems, span::Headers};

use super::{
    message::{HEADERS_OF_REPLAYS, LOST_HEADER, Message},
    stream::Delivery,
};

/// The prefix of the reply subject at which a reader of a stream acknowledges a message.
const ACKNOWLEDGEMENTS: &str = "$JS.ACK.";

impl Message {
    /// Rejects a message that no sender sent to its subject.
    pub fn genuine(&self) -> Result<(), Problems> {
        let is_read = self.reply_to.as_ref().is_some_and(|to| to.starts_with(ACKNOWLEDGEMENTS));
        check(&self.headers, is_read)
    }
}

impl Delivery {
    /// Rejects a message that no sender published on its subject.
    pub fn genuine(&self) -> Result<(), Problems> {
        // The payload of this request is lost. The error reports that to the requester.
        if let Some(reason) = self.headers.get(LOST_HEADER) {
            let hint = "send it again; a payload that fits into a message needs no object";
            return Err(Problems::one("", format!("its payload can't be read: {reason}"), Some(hint.into())));
        }
        check(&self.headers, false)
    }
}

fn check(headers: &Headers, is_read: bool) -> Result<(), Problems> {
    let has = |name: &&str| headers.keys().any(|header| header.eq_ignore_ascii_case(name));
    let found = HEADERS_OF_REPLAYS.iter().find(|name| has(name));
    if found.is_none() && !is_read {
        return Ok(());
    }
    let found =
        found.map_or_else(|| "the address of its answer".into(), |name| format!("the header `{name}`"));
    let message = format!("the server copied it out of a stream, as {found} shows");
    Err(Problems::one("", message, Some("publish the message itself".into())))
}
