//! A context's window: what its model is shown, by category, and what is left out when it is too much
//! (W2). Each context has its own, made anew from its journal; it is never shared (W1).

use shared::{
    Tokens,
    wire::{ShareCategory, SharedMessage},
};

use crate::model::Message;

/// What goes first when there is too much: the last of these. SYSTEM never goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    System,
    Context,
    Dialog,
    Tools,
}

/// Messages that stay or go together: a call of tools and their answers.
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

/// Even without all that may go, it is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its role, task and tools alone take about {needed} tokens of a window of {size}")]
pub(crate) struct Overfull {
    needed: u64,
    size: u64,
}

/// What the model is shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) messages: Vec<Message>,
    /// How many messages were left out.
    pub(crate) left_out: usize,
}

impl Window {
    /// What is this context's alone: its task, and all that comes of it.
    pub(crate) fn add(&mut self, category: Category, messages: Vec<Message>) {
        self.items.push(Item { category, messages, shareable: false });
    }

    /// What a child may be given a copy of, if a spawn asks for it (W3).
    pub(crate) fn add_shareable(&mut self, category: ShareCategory, text: String) {
        let (category, message) = match category {
            ShareCategory::System => (Category::System, Message::System(text)),
            ShareCategory::Context => (Category::Context, Message::User(text)),
        };
        self.items.push(Item { category, messages: vec![message], shareable: true });
    }

    /// The SYSTEM and CONTEXT messages a child may be given.
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

    /// What fits `size` with `room` left for the answer and whatever else is sent. The oldest of the
    /// lowest category goes first.
    pub(crate) fn fit(&self, size: Option<Tokens>, room: u64) -> Result<View, Overfull> {
        let mut kept: Vec<bool> = vec![true; self.items.len()];
        let mut needed = room + self.items.iter().map(Item::tokens).sum::<u64>();
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

    /// About how many tokens: three bytes each is on the safe side for prose and code.
    fn tokens(&self) -> u64 {
        const AROUND_A_MESSAGE: u64 = 6;
        (self.size_bytes() as u64).div_ceil(3) + AROUND_A_MESSAGE * self.messages.len() as u64
    }
}

/// Neighbours of one voice become one message: not every provider takes two in a row. What is SYSTEM
/// comes first, as all want it.
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
        window.add(Category::Dialog, user(&format!("said early {}", "d".repeat(300))));
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
    fn w2_over_the_window_the_oldest_of_the_lowest_category_goes_first_and_system_never() {
        let everything = shown(10_000);
        assert!(everything.contains("output 1") && everything.contains("output 3"));
        let one_less = shown(520);
        assert!(!one_less.contains("output 1") && one_less.contains("output 2"), "{one_less}");
        let no_tools = shown(250);
        assert!(!no_tools.contains("output") && no_tools.contains("said early"), "{no_tools}");
        let no_dialog = shown(150);
        assert!(!no_dialog.contains("said early") && no_dialog.contains("an input"), "{no_dialog}");
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
