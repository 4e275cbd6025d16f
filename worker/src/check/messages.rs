//! The messages of a model call as checks see them: each is a text by itself. New are those behind the model's last answer;
//! the others were checked before an earlier call.

use super::content::Content;
use crate::model::Message;

/// The place of the first new message.
pub(super) fn first_new(messages: &[Message]) -> usize {
    let answer = messages.iter().rposition(|message| matches!(message, Message::Assistant { .. }));
    answer.map_or(0, |at| at + 1)
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
