//! Counts the tokens of a text if the tokenizer of a model is known exactly. These are the
//! encodings of OpenAI, with their vocabularies inside the program. The encoder's time is linear in
//! the length of any text. Special tokens in a text are encoded as plain text, as providers do.

use bpe_openai::{cl100k_base, o200k_base};

use crate::settings::Tokenizer;

/// Prefixes of the names of OpenAI's models, with their tokenizers. The first match is used.
const OPENAI_MODELS: &[(&str, Tokenizer)] = &[
    ("gpt-5", Tokenizer::O200kBase),
    ("gpt-4.5", Tokenizer::O200kBase),
    ("gpt-4.1", Tokenizer::O200kBase),
    ("gpt-4o", Tokenizer::O200kBase),
    ("chatgpt-4o", Tokenizer::O200kBase),
    ("o1", Tokenizer::O200kBase),
    ("o3", Tokenizer::O200kBase),
    ("o4", Tokenizer::O200kBase),
    ("gpt-4", Tokenizer::Cl100kBase),
    ("gpt-3.5-turbo", Tokenizer::Cl100kBase),
];

impl Tokenizer {
    /// The tokenizer of a model of OpenAI.
    pub(super) fn of_openai(model: &str) -> Option<Self> {
        OPENAI_MODELS.iter().find(|(prefix, _)| model.starts_with(prefix)).map(|(_, tokenizer)| *tokenizer)
    }

    pub(crate) fn count(self, text: &str) -> u64 {
        let tokenizer = match self {
            Tokenizer::O200kBase => o200k_base(),
            Tokenizer::Cl100kBase => cl100k_base(),
        };
        tokenizer.count(text) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exact(tokenizer: Tokenizer, text: &str) -> u64 {
        let reference = match tokenizer {
            Tokenizer::O200kBase => tiktoken_rs::o200k_base_singleton(),
            Tokenizer::Cl100kBase => tiktoken_rs::cl100k_base_singleton(),
        };
        reference.encode_ordinary(text).len() as u64
    }

    #[test]
    fn b3_names_of_models_select_their_tokenizer() {
        for (model, expected) in [
            ("gpt-4o-mini", Some(Tokenizer::O200kBase)),
            ("gpt-4.1-nano", Some(Tokenizer::O200kBase)),
            ("o3-mini", Some(Tokenizer::O200kBase)),
            ("gpt-4-turbo", Some(Tokenizer::Cl100kBase)),
            ("gpt-3.5-turbo-0125", Some(Tokenizer::Cl100kBase)),
            ("davinci-002", None),
            ("smollm2", None),
        ] {
            assert_eq!(Tokenizer::of_openai(model), expected, "{model}");
        }
    }

    /// Long runs, for which some encoders take quadratic time.
    #[test]
    fn b3_hostile_texts_are_counted_like_any_other() {
        for run in ["a", " ", "\n ", "é", "ab", "\u{0}", "<|endoftext|>"] {
            let (short, long) = (run.repeat(500), run.repeat(1_000_000 / run.len()));
            assert_eq!(Tokenizer::O200kBase.count(&short), exact(Tokenizer::O200kBase, &short), "{run:?}");
            let count = Tokenizer::O200kBase.count(&long);
            assert!(count > 0 && count <= long.len() as u64, "{run:?}: {count}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
        #[test]
        fn b3_counts_are_those_of_the_reference(text in "(\\PC|\\s|[a-zA-Z0-9 .,'\"{}\\[\\]]){0,200}") {
            for tokenizer in [Tokenizer::O200kBase, Tokenizer::Cl100kBase] {
                prop_assert_eq!(tokenizer.count(&text), exact(tokenizer, &text));
            }
        }
    }
}
