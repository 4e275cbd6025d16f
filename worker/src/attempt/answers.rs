//! The answers of humans to the questions of a context.

use domain::wire::{GivenAnswer, Text};

use super::Attempt;

impl Attempt {
    /// The first answer to this question after the first `used` answers, and its index among all
    /// answers. Answers to other questions are skipped.
    pub(crate) fn answer_to(&self, question: &Text, used: usize) -> Option<(usize, &GivenAnswer)> {
        let unused = self.work.answers.iter().enumerate().skip(used);
        unused.filter(|(_, given)| !given.withdrawn).find(|(_, given)| given.question == *question)
    }
}
