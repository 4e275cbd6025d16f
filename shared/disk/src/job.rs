//! A change that waits for the writer, with the callback for its result.

use super::{Change, Error};

/// One change. It is applied once, then answered once.
pub(super) trait Job: Send {
    fn apply(&mut self, rows: &mut Change<'_>) -> Result<(), Error>;

    /// Passes on the result: that of the change if it is committed, otherwise the error.
    fn answer(self: Box<Self>, committed: Result<(), Error>);
}

pub(super) struct Work<C, T, A> {
    change: Option<C>,
    result: Option<T>,
    answer: A,
}

impl<C, T, A> Work<C, T, A> {
    pub(super) fn new(change: C, answer: A) -> Self {
        Work { change: Some(change), result: None, answer }
    }
}

impl<C, T, A> Job for Work<C, T, A>
where
    C: FnOnce(&mut Change<'_>) -> Result<T, Error> + Send,
    T: Send,
    A: FnOnce(Result<T, Error>) + Send,
{
    fn apply(&mut self, rows: &mut Change<'_>) -> Result<(), Error> {
        if let Some(change) = self.change.take() {
            self.result = Some(change(rows)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>, committed: Result<(), Error>) {
        let Work { result, answer, .. } = *self;
        answer(committed.and_then(|()| result.ok_or(Error::Stopped)));
    }
}
