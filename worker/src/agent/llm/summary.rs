//! The request for a summary of exchanges that no longer fit into a window (W7).

use domain::wording::cut;

use super::window::Estimate;
use crate::model::Message;

const INSTRUCTIONS: &str = "You condense the work of an agent whose context window is full, so that it can go on from your \
     summary alone. Keep what it still needs: facts, names, numbers, paths and decisions word for word, what was done and \
     what failed, what is still to do. Leave out greetings and repetition. Answer with the summary only.";

/// The longest part of the transcript, in bytes. The first value with which the request fits is
/// used.
const PART_BYTES: [usize; 5] = [4000, 1500, 600, 250, 100];

/// The messages, if they fit into `limit` tokens.
pub(super) fn request(
    goal: &str,
    transcript: &[String],
    max_tokens: u32,
    estimate: Estimate,
    limit: u64,
) -> Option<Vec<Message>> {
    PART_BYTES.into_iter().find_map(|longest| {
        let parts: Vec<String> = transcript.iter().map(|part| cut(part.clone(), longest)).collect();
        let words = max_tokens / 2;
        let text = format!(
            "The task of the agent: {goal}\n\nIts work so far:\n{}\n\nSummarise it in at most {words} words.",
            parts.join("\n")
        );
        let messages = vec![Message::System(INSTRUCTIONS.into()), Message::User(text)];
        let needed: u64 = messages.iter().map(|message| estimate.message(message)).sum();
        (needed + u64::from(max_tokens) <= limit).then_some(messages)
    })
}
