//! Limits the requests of each caller: an average per second, and a burst (the generic cell rate
//! algorithm). Each caller has only one timestamp: the time at which its requests so far would have
//! arrived at the average rate.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The most callers with a timestamp of their own. Beyond that, new callers share one.
const MOST: usize = 16_384;
const SWEEP: Duration = Duration::from_secs(1);

/// The caller that a request is counted for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    Token(String),
    Address(IpAddr),
    Others,
}

#[derive(Debug)]
pub(crate) struct Rate {
    pub(crate) per_second: u32,
    /// The time of one request at the average rate.
    each: Duration,
    /// How far a caller may be ahead of the average rate.
    ahead: Duration,
    kept: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    until: HashMap<Who, Instant>,
    /// The last time that expired timestamps were removed. That takes time, so it happens at most
    /// once a second.
    swept: Option<Instant>,
}

impl Buckets {
    /// The caller whose timestamp is used: `who` itself, or [`Who::Others`] if the map is full.
    fn place(&mut self, who: Who, now: Instant) -> Who {
        if self.until.len() < MOST || self.until.contains_key(&who) {
            return who;
        }
        if self.swept.is_none_or(|swept| now - swept >= SWEEP) {
            self.swept = Some(now);
            self.until.retain(|_, until| *until > now);
        }
        if self.until.len() < MOST { who } else { Who::Others }
    }
}

impl Rate {
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let each = Duration::from_secs(1) / per_second.max(1);
        Rate { per_second, each, ahead: each * burst.saturating_sub(1), kept: Mutex::default() }
    }

    /// Counts a request, or returns how long the caller has to wait.
    pub(crate) fn take(&self, who: Who) -> Result<(), Duration> {
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let who = kept.place(who, now);
        let at = kept.until.get(&who).map_or(now, |until| (*until).max(now));
        match (at - now).checked_sub(self.ahead) {
            Some(wait) if !wait.is_zero() => Err(wait),
            Some(_) | None => {
                kept.until.insert(who, at + self.each);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_taken_and_then_the_average_for_each_apart() {
        let rate = Rate::new(10, 3);
        let who = |name: &str| Who::Token(name.into());
        let taken = |name: &str| (0..9).take_while(|_| rate.take(who(name)).is_ok()).count();
        assert_eq!((taken("a"), taken("b"), taken("a")), (3, 3, 0));
        let wait = rate.take(who("a")).unwrap_err();
        assert!(wait <= Duration::from_millis(100), "{wait:?}");
        tokio::time::advance(wait).await;
        assert_eq!(taken("a"), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken("a"), 3, "at most one burst is saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_do_not_fill_the_memory() {
        let rate = Rate::new(1, 1);
        for number in 0..MOST * 2 {
            let _ = rate.take(Who::Token(number.to_string()));
        }
        assert!(rate.kept.lock().unwrap().until.len() <= MOST + 1);
        assert!(rate.take(Who::Token("another".into())).is_err(), "further tokens share one limit");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(rate.take(Who::Token("another".into())).is_ok());
    }
}
