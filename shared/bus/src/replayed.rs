//! Messages that a server took out of a stream and sent on. Whoever may read a stream chooses where the answer goes, and the
//! server sends it with its own rights: what was stored as a journal entry would come in as the order of an administrator. A
//! sender's message never looks so; every door refuses it (S6).

use domain::{problem::Problems, span::Headers};

use super::{
    message::{HEADERS_OF_REPLAYS, LOST_HEADER, Message},
    stream::Delivery,
};

/// Where a reader of a stream acknowledges a message that the server sent on.
const ACKNOWLEDGEMENTS: &str = "$JS.ACK.";

impl Message {
    /// Refuses what was not sent to its subject by a sender.
    pub fn genuine(&self) -> Result<(), Problems> {
        let is_read = self.reply_to.as_ref().is_some_and(|to| to.starts_with(ACKNOWLEDGEMENTS));
        check(&self.headers, is_read)
    }
}

impl Delivery {
    /// Refuses what was not published on its subject by a sender.
    pub fn genuine(&self) -> Result<(), Problems> {
        // Of a request nothing is left to read, which its asker is told.
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
    let message = format!("the server took it out of a stream and sent it on, as {found} shows");
    Err(Problems::one("", message, Some("publish the message itself".into())))
}
