//! Detects a prompt that is equal to the one before. A model that gets the same prompt gives the
//! same answer again, for the same price. The model is warned once; the next repetition ends its
//! agent.

use crate::model::Message;

const TOLD: &str = "You were sent exactly this before, and nothing has changed since your answer. Do something else, or \
                    give your final answer.";
pub(super) const WHY: &str =
    "the model was sent the same prompt three times in a row: its answers change nothing";

#[derive(Debug, PartialEq)]
pub(super) enum Repetition {
    None,
    /// The messages with a warning at their end.
    Once(Vec<Message>),
    /// The last prompt contained the warning already.
    Again,
}

/// `last` is the digest of the last prompt, and `sent` computes the digest of a prompt.
pub(super) fn find(
    last: Option<&str>,
    messages: &[Message],
    sent: impl Fn(&[Message]) -> String,
) -> Repetition {
    let Some(last) = last else { return Repetition::None };
    let mut told = messages.to_vec();
    told.push(Message::User(TOLD.into()));
    if sent(messages) == last {
        Repetition::Once(told)
    } else if sent(&told) == last {
        Repetition::Again
    } else {
        Repetition::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w7_the_same_prompt_gets_one_warning_and_then_ends_the_context() {
        let sent = |messages: &[Message]| format!("{messages:?}");
        let messages = [Message::User("Your task: count".into())];
        assert_eq!(find(None, &messages, sent), Repetition::None);
        assert_eq!(find(Some("another"), &messages, sent), Repetition::None);
        let Repetition::Once(told) = find(Some(&sent(&messages)), &messages, sent) else {
            panic!("unnoticed")
        };
        assert_eq!(told.len(), 2);
        assert_eq!(find(Some(&sent(&told)), &messages, sent), Repetition::Again);
    }
}
