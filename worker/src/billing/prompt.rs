//! The beginning of a request, for readers of the journal: the messages before the first answer.
//! The journal itself has the rest.

use domain::{
    wire::{Prompt, PromptMessage, PromptRole},
    wording::cut,
};

use super::token_bound::PaidRequest;
use crate::model::Message;

/// The most bytes that are stored of a message, and the most messages.
const MESSAGE_BYTES: usize = 16 << 10;
const MOST_MESSAGES: usize = 4;
/// The most bytes that are stored of a message of a program.
const PROGRAM_BYTES: usize = 1 << 10;

/// `redact` runs before the cut, since a cut may leave half of a match.
pub(super) fn of(request: &PaidRequest<'_>, redact: impl Fn(String) -> String) -> Prompt {
    let most = if request.asked.is_some() { PROGRAM_BYTES } else { MESSAGE_BYTES };
    let before_answer = request.messages.iter().map_while(|message| match message {
        Message::System(text) => Some((PromptRole::System, text)),
        Message::User(text) => Some((PromptRole::User, text)),
        Message::Assistant { .. } | Message::Tool { .. } => None,
    });
    let messages = before_answer.take(MOST_MESSAGES).map(|(role, text)| {
        let text = redact(text.clone());
        PromptMessage { role, size_bytes: text.len() as u64, text: cut(text, most) }
    });
    Prompt {
        messages: messages.collect(),
        tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
    }
}

/// Returns true if a prompt need not be stored again after the last stored one. A program may send
/// another prompt in every call. Its first prompt is stored, and then each one with another system
/// message or other tools, so that its journal grows by its answers alone.
pub(super) fn is_known(last: &Prompt, prompt: &Prompt, is_of_program: bool) -> bool {
    let system = |prompt: &Prompt| -> Vec<PromptMessage> {
        prompt.messages.iter().filter(|message| message.role == PromptRole::System).cloned().collect()
    };
    match is_of_program {
        true => last.tools == prompt.tools && system(last) == system(prompt),
        false => last == prompt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_program_only_another_system_message_is_another_prompt() {
        let message = |role: PromptRole, text: &str| {
            let size_bytes = text.len() as u64;
            PromptMessage { role, size_bytes, text: text.to_owned() }
        };
        let prompt = |system: &str, user: &str| Prompt {
            messages: vec![message(PromptRole::System, system), message(PromptRole::User, user)],
            tools: Vec::new(),
        };
        let first = prompt("plan", "one");
        let with_tool = Prompt { tools: vec!["fs.read".parse().unwrap()], ..first.clone() };
        for (next, of_program, of_others) in [
            (first.clone(), true, true),
            (prompt("plan", "two"), true, false),
            (prompt("judge", "one"), false, false),
            (with_tool, false, false),
        ] {
            let known = [true, false].map(|is_of_program| is_known(&first, &next, is_of_program));
            assert_eq!(known, [of_program, of_others], "{next:?}");
        }
    }

    #[test]
    fn s2_a_secret_is_taken_out_before_a_prompt_is_cut() {
        let messages = [Message::User(format!("{}SECRET", "x".repeat(MESSAGE_BYTES - 4)))];
        let request = PaidRequest {
            messages: &messages,
            tools: &[],
            output_schema: None,
            max_tokens: 1,
            closing: false,
            earlier: None,
            script: None,
            model: None,
            seen: None,
            asked: None,
            summary_of: None,
        };
        let kept = of(&request, |text| text.replace("SECRET", "(hidden)"));
        assert!(
            kept.messages[0].text.ends_with("x(hid…"),
            "{:?}",
            kept.messages[0].text.get(MESSAGE_BYTES - 8..)
        );
    }
}
