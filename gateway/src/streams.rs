//! The number of open streams. It is limited per caller and in total, so that connections remain
//! free for short requests.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::http::StatusCode;

use crate::problem::{ApiResult, ProblemDetails};

/// The most live pages of one caller.
const MOST_PAGES: usize = 64;

#[derive(Debug)]
pub(crate) struct Streams {
    most: usize,
    most_of_one: usize,
    open: Mutex<HashMap<String, usize>>,
}

/// One open stream in the counts of [`Streams`]. Dropping it ends the count.
#[derive(Debug)]
pub(crate) struct Place {
    streams: Arc<Streams>,
    caller: String,
}

impl Streams {
    /// Three quarters of the connections may be streams, and half may be streams of one caller.
    pub(crate) fn of(connections: usize) -> Arc<Self> {
        Arc::new(Streams { most: connections / 4 * 3, most_of_one: connections / 2, open: Mutex::default() })
    }

    /// Counts one more live page of a caller. A page also counts in the total of all streams.
    pub(crate) fn take_few(self: &Arc<Self>, caller: &str) -> ApiResult<Place> {
        let pages = format!("pages of {caller}");
        let own = self.open.lock().unwrap_or_else(PoisonError::into_inner).get(&pages).copied();
        if own.is_some_and(|own| own >= MOST_PAGES) {
            let message = format!(
                "you have {MOST_PAGES} live pages open, the maximum (built in)\n\nhint: close some of them"
            );
            return Err(ProblemDetails::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message));
        }
        self.take(&pages)
    }

    pub(crate) fn take(self: &Arc<Self>, caller: &str) -> ApiResult<Place> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (open.values().sum::<usize>(), open.get(caller).copied().unwrap_or_default());
        if all >= self.most || own >= self.most_of_one {
            let (open, most) =
                if own >= self.most_of_one { (own, self.most_of_one) } else { (all, self.most) };
            let whose = if own >= self.most_of_one { "you have" } else { "all callers together have" };
            let message = format!(
                "{whose} {open} of at most {most} streams (built in)\n\nhint: close some of them, or start another gateway"
            );
            return Err(ProblemDetails::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message));
        }
        *open.entry(caller.to_owned()).or_default() += 1;
        Ok(Place { streams: self.clone(), caller: caller.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_a_part_and_all_together_leave_some() {
        let streams = Streams::of(8);
        let mut own: Vec<Place> = (0..4).map(|_| streams.take("one").unwrap()).collect();
        assert!(streams.take("one").is_err());
        let _other: Vec<Place> = (0..2).map(|_| streams.take("other").unwrap()).collect();
        assert!(streams.take("other").is_err(), "all users together have a limit");
        own.pop();
        streams.take("other").unwrap();
    }
}
