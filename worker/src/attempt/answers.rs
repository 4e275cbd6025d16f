//! The answers of humans to the questions of a context.

use domain::wire::{GivenAnswer, Text};

use super::Attempt;

impl Attempt {
    /// The first answer to this very question behind the first `used` answers, and its place among all. An answer to another
    /// question says nothing about this one.
    pub(crate) fn answer_to(&self, question: &Text, used: usize) -> Option<(usize, &GivenAnswer)> {
        let unused = self.work.answers.iter().enumerate().skip(used);
        unused.filter(|(_, given)| !given.withdrawn).find(|(_, given)| given.question == *question)
    }
}
