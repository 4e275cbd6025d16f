//! The messages of a model call as checks see them: each is a separate text. Messages behind the
//! model's last answer are new. The others were sent before, but perhaps in other words, since a
//! notice or a message may have been added to one.

use domain::digest::SequenceDigest;

use super::content::Content;
use crate::model::Message;

/// The index of the first new message.
pub(super) fn first_new(messages: &[Message]) -> usize {
    let answer = messages.iter().rposition(|message| matches!(message, Message::Assistant { .. }));
    answer.map_or(0, |at| at + 1)
}

/// Identifies the texts of a call.
pub(super) fn digest(messages: &[Message]) -> String {
    let mut digest = SequenceDigest::default();
    for message in messages {
        match text(message) {
            Some(Content::Text(text)) => digest.add(&text),
            Some(Content::Arguments(_)) | None => digest.add(""),
        }
    }
    digest.short()
}

pub(super) fn text(message: &Message) -> Option<Content> {
    let text = match message {
        Message::System(text) | Message::User(text) | Message::Tool { content: text, .. } => text,
        Message::Assistant { text, .. } => text.as_ref()?,
    };
    (!text.is_empty()).then(|| Content::Text(text.clone()))
}

pub(super) fn set_text(message: &mut Message, content: Content) {
    let Content::Text(changed) = content else { return };
    match message {
        Message::System(text) | Message::User(text) | Message::Tool { content: text, .. } => *text = changed,
        Message::Assistant { text, .. } => *text = Some(changed),
    }
}
