//! The window of a context: the messages for its model, by category (W2). Compaction (W7) makes
//! room among DIALOG and TOOLS. If that is not enough, CONTEXT is left out here, and the prompt
//! mentions it. Each context builds its own window from its journal, and windows are never shared
//! (W1).

use domain::{
    Tokens,
    wire::{ShareCategory, SharedMessage},
};

use crate::{billing::token_bound, model::Message, settings::Tokenizer};

/// The categories of messages. SYSTEM is never left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    System,
    Context,
    Dialog,
    Tools,
}

/// Messages that are shown or left out together, such as tool calls and their answers.
#[derive(Debug, Clone)]
struct Item {
    category: Category,
    messages: Vec<Message>,
    /// The text that a child gets if the spawn names its category (W3).
    shared: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Window {
    items: Vec<Item>,
}

/// How the tokens of messages are estimated: by the model's tokenizer, if it is known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Estimate(pub(crate) Option<Tokenizer>);

impl Estimate {
    pub(crate) fn message(self, message: &Message) -> u64 {
        const TOKENS_PER_MESSAGE: u64 = 6;
        match self.0 {
            Some(tokenizer) => token_bound::message_tokens(message, Some(tokenizer)),
            None => self.bytes(message.size_bytes() as u64) + TOKENS_PER_MESSAGE,
        }
    }

    /// Estimates texts that are not tokenized: three bytes per token is safe for prose and code.
    pub(crate) fn bytes(self, bytes: u64) -> u64 {
        bytes.div_ceil(3)
    }
}

/// The messages that are never left out do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the role, the task, the tools and the newest step need about {needed} tokens, and the window has {size}"
)]
pub(crate) struct Overfull {
    pub(super) needed: u64,
    pub(super) size: u64,
}

impl Window {
    /// Adds messages that are never shared: the task, and everything that follows from it.
    pub(crate) fn add(&mut self, category: Category, messages: Vec<Message>) {
        self.items.push(Item { category, messages, shared: None });
    }

    /// Adds a message of which a child gets a copy, if the spawn names its category (W3).
    pub(crate) fn add_shareable(&mut self, category: ShareCategory, text: String) {
        self.add_shared_as(category, text.clone(), text);
    }

    /// Adds a message of which a child gets a copy with another text.
    pub(crate) fn add_shared_as(&mut self, category: ShareCategory, text: String, copy: String) {
        let (category, message) = match category {
            ShareCategory::System => (Category::System, Message::System(text)),
            ShareCategory::Context => (Category::Context, Message::User(text)),
        };
        self.items.push(Item { category, messages: vec![message], shared: Some(copy) });
    }

    /// The SYSTEM and CONTEXT messages that can be shared with a child.
    pub(crate) fn shareable(&self) -> Vec<SharedMessage> {
        let share = |item: &Item| {
            let category = match item.category {
                Category::System => ShareCategory::System,
                Category::Context => ShareCategory::Context,
                Category::Dialog | Category::Tools => return None,
            };
            Some(SharedMessage { category, content: item.shared.clone()? })
        };
        self.items.iter().filter_map(share).collect()
    }

    /// The tokens of all messages.
    pub(crate) fn tokens(&self, estimate: Estimate) -> u64 {
        self.items.iter().map(|item| item.tokens(estimate)).sum()
    }

    /// The messages that fit into `size` with `reserved` tokens for the answer and the tools.
    /// CONTEXT that does not fit is left out, oldest first.
    pub(crate) fn fit(
        &self,
        size: Option<Tokens>,
        reserved: u64,
        estimate: Estimate,
    ) -> Result<Vec<Message>, Overfull> {
        let mut items = self.items.clone();
        if let Some(size) = size.map(Tokens::count) {
            let mut needed = reserved + self.tokens(estimate);
            for item in items.iter_mut().filter(|item| item.category == Category::Context) {
                if needed > size {
                    let before = item.tokens(estimate);
                    item.messages = vec![Message::User(left_out(&item.messages))];
                    needed = (needed - before) + item.tokens(estimate);
                }
            }
            if needed > size {
                return Err(Overfull { needed, size });
            }
        }
        Ok(join(items.into_iter().flat_map(|item| item.messages)))
    }
}

impl Item {
    fn tokens(&self, estimate: Estimate) -> u64 {
        self.messages.iter().map(|message| estimate.message(message)).sum()
    }
}

fn left_out(messages: &[Message]) -> String {
    let bytes: usize = messages.iter().map(Message::size_bytes).sum();
    format!("[{bytes} bytes of inputs are left out here: they do not fit into your window]")
}

/// Joins neighbouring messages of the same role, since some providers reject two in a row. SYSTEM
/// messages come first, as all providers require.
fn join(messages: impl Iterator<Item = Message>) -> Vec<Message> {
    let (system, rest): (Vec<_>, Vec<_>) =
        messages.partition(|message| matches!(message, Message::System(_)));
    let mut joined: Vec<Message> = Vec::new();
    for message in system.into_iter().chain(rest) {
        match (joined.last_mut(), &message) {
            (Some(Message::System(before)), Message::System(text))
            | (Some(Message::User(before)), Message::User(text)) => {
                before.push_str("\n\n");
                before.push_str(text);
            }
            _ => joined.push(message),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Vec<Message> {
        vec![Message::User(text.into())]
    }

    fn exchange(n: usize) -> Vec<Message> {
        let content = format!("output {n} {}", "x".repeat(300));
        vec![Message::Tool { id: n.to_string(), tool: "fs.read".into(), content }]
    }

    fn window() -> Window {
        let mut window = Window::default();
        window.add_shareable(ShareCategory::System, "the role".into());
        window.add(Category::System, user("Your task: count"));
        window.add_shareable(ShareCategory::Context, format!("an input {}", "i".repeat(300)));
        window.add(Category::Dialog, user(&format!("early dialog {}", "d".repeat(300))));
        for n in 1..=3 {
            window.add(Category::Tools, exchange(n));
        }
        window
    }

    fn shown(size: u64) -> Result<String, Overfull> {
        let messages = window().fit(Some(Tokens::new(size)), 0, Estimate::default())?;
        Ok(format!("{messages:?}"))
    }

    #[test]
    fn w2_context_is_left_out_with_a_word_and_nothing_else_is_left_out_here() {
        let needed = window().tokens(Estimate::default());
        let everything = shown(needed).unwrap();
        assert!(everything.contains("an input") && everything.contains("output 3"), "{everything}");
        let without = shown(needed - 1).unwrap();
        assert!(
            !without.contains("an input iii") && without.contains("309 bytes of inputs are left out"),
            "{without}"
        );
        for kept in ["the role", "Your task", "early dialog", "output 1", "output 3"] {
            assert!(without.contains(kept), "{kept}: {without}");
        }
        assert!(shown(100).unwrap_err().to_string().contains("the window has 100"));
    }

    #[test]
    fn w3_only_system_and_context_can_be_shared_and_the_task_is_not() {
        let shared = window().shareable();
        let categories: Vec<_> = shared.iter().map(|message| message.category).collect();
        assert_eq!(categories, [ShareCategory::System, ShareCategory::Context]);
        assert!(!format!("{shared:?}").contains("Your task"));
    }
}
