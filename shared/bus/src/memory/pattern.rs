//! A subject with wildcards, matched as a server does: `*` matches one token, a final `>` the rest.

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pattern(String);

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Pattern(text.to_owned())
    }

    pub(crate) fn matches(&self, subject: &str) -> bool {
        let mut tokens = subject.split('.');
        for wanted in self.0.split('.') {
            match (wanted, tokens.next()) {
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (wanted, Some(token)) if wanted == token => {}
                _ => return false,
            }
        }
        tokens.next().is_none()
    }

    /// The prefix of every matching subject.
    pub(crate) fn prefix(&self) -> &str {
        self.0.find(['*', '>']).map_or(self.0.as_str(), |wild| &self.0[..wild])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_whole_tokens() {
        let cases = [
            ("a.b", "a.b", true),
            ("a.b", "a.b.c", false),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("a.*", "a.b.c", false),
            ("a.*.c", "a.b.c", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
        ];
        for (pattern, subject, matches) in cases {
            assert_eq!(Pattern::new(pattern).matches(subject), matches, "{pattern} {subject}");
        }
        assert_eq!(Pattern::new("a.b.*.d").prefix(), "a.b.");
    }
}
