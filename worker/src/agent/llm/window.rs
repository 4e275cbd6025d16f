//! The window of a context: the messages its model gets, by category, and which are left out when they are too many
//! (W2). Each context has its own window, built from its journal; it is never shared (W1).

use shared::{
    Tokens,
    wire::{ShareCategory, SharedMessage},
};

use crate::model::Message;

/// When there is too much, the last category is left out first. SYSTEM is never left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    System,
    Context,
    Dialog,
    Tools,
}

/// Messages that are kept or left out together, such as tool calls and their answers.
#[derive(Debug, Clone)]
struct Item {
    category: Category,
    messages: Vec<Message>,
    shareable: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Window {
    items: Vec<Item>,
}

/// The messages that are never left out do not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the role, the task and the tools need about {needed} tokens, and the window has {size}")]
pub(crate) struct Overfull {
    needed: u64,
    size: u64,
}

/// The messages that the model gets.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) messages: Vec<Message>,
    /// How many messages were left out.
    pub(crate) left_out: usize,
}

impl Window {
    /// Adds messages that are never shared: the task, and everything that follows from it.
    pub(crate) fn add(&mut self, category: Category, messages: Vec<Message>) {
        self.items.push(Item { category, messages, shareable: false });
    }

    /// Adds a message that a child gets a copy of if the spawn names its category (W3).
    pub(crate) fn add_shareable(&mut self, category: ShareCategory, text: String) {
        let (category, message) = match category {
            ShareCategory::System => (Category::System, Message::System(text)),
            ShareCategory::Context => (Category::Context, Message::User(text)),
        };
        self.items.push(Item { category, messages: vec![message], shareable: true });
    }

    /// The SYSTEM and CONTEXT messages that can be shared with a child.
    pub(crate) fn shareable(&self) -> Vec<SharedMessage> {
        let share = |item: &Item| {
            let category = match item.category {
                Category::System => ShareCategory::System,
                Category::Context => ShareCategory::Context,
                Category::Dialog | Category::Tools => return None,
            };
            match item.messages.as_slice() {
                [Message::System(text) | Message::User(text)] if item.shareable => {
                    Some(SharedMessage { category, content: text.clone() })
                }
                _ => None,
            }
        };
        self.items.iter().filter_map(share).collect()
    }

    /// The messages that fit into `size` with `reserved` tokens for the answer and the tools. The oldest message of the
    /// lowest category is left out first.
    pub(crate) fn fit(&self, size: Option<Tokens>, reserved: u64) -> Result<View, Overfull> {
        let mut kept: Vec<bool> = vec![true; self.items.len()];
        let mut needed = reserved + self.items.iter().map(Item::tokens).sum::<u64>();
        if let Some(size) = size.map(Tokens::count) {
            for category in [Category::Tools, Category::Dialog, Category::Context] {
                for (item, kept) in self.items.iter().zip(&mut kept) {
                    if needed > size && item.category == category {
                        *kept = false;
                        needed -= item.tokens();
                    }
                }
            }
            if needed > size {
                return Err(Overfull { needed, size });
            }
        }
        let left_out = self.items.iter().zip(&kept).filter(|(_, kept)| !**kept);
        let left_out = left_out.map(|(item, _)| item.messages.len()).sum();
        let shown = self.items.iter().zip(kept).filter(|(_, kept)| *kept);
        Ok(View { messages: join(shown.flat_map(|(item, _)| item.messages.iter().cloned())), left_out })
    }
}

impl Item {
    fn size_bytes(&self) -> usize {
        self.messages.iter().map(Message::size_bytes).sum()
    }

    /// An estimate of the tokens. Three bytes per token is a safe estimate for prose and code.
    fn tokens(&self) -> u64 {
        const TOKENS_PER_MESSAGE: u64 = 6;
        (self.size_bytes() as u64).div_ceil(3) + TOKENS_PER_MESSAGE * self.messages.len() as u64
    }
}

/// Joins neighbouring messages of the same role, since not every provider accepts two in a row. SYSTEM messages come
/// first, as all providers require.
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

    fn shown(size: u64) -> String {
        let view = window().fit(Some(Tokens::new(size)), 0).unwrap();
        format!("{:?}", view.messages)
    }

    #[test]
    fn w2_the_oldest_of_the_lowest_category_is_left_out_first_and_system_never() {
        let everything = shown(10_000);
        assert!(everything.contains("output 1") && everything.contains("output 3"));
        let one_less = shown(520);
        assert!(!one_less.contains("output 1") && one_less.contains("output 2"), "{one_less}");
        let no_tools = shown(250);
        assert!(!no_tools.contains("output") && no_tools.contains("early dialog"), "{no_tools}");
        let no_dialog = shown(150);
        assert!(!no_dialog.contains("early dialog") && no_dialog.contains("an input"), "{no_dialog}");
        let bare = shown(60);
        assert!(
            !bare.contains("an input") && bare.contains("the role") && bare.contains("Your task"),
            "{bare}"
        );
        assert!(window().fit(Some(Tokens::new(10)), 0).is_err());
    }

    #[test]
    fn w3_only_system_and_context_can_be_shared_and_the_task_is_not() {
        let shared = window().shareable();
        let categories: Vec<_> = shared.iter().map(|message| message.category).collect();
        assert_eq!(categories, [ShareCategory::System, ShareCategory::Context]);
        assert!(!format!("{shared:?}").contains("Your task"));
    }
}
