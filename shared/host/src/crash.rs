//! Deliberate crashes for recovery tests: configuration can make a process abort at a named point
//! of its work.

use std::{
    fmt::Debug,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// The crash points of one kind of process.
pub trait Point: Debug + Copy + Eq + 'static {
    const NAMES: &'static [(&'static str, Self)];
}

/// The point at which to abort, and the number of times that the process has yet to reach it. None:
/// never.
#[derive(Debug, Clone)]
pub struct Crash<P>(Option<(P, Arc<AtomicU32>)>);

impl<P> Default for Crash<P> {
    fn default() -> Self {
        Crash(None)
    }
}

impl<P: Point> Crash<P> {
    pub fn pass(&self, point: P) {
        if let Some((at, left)) = &self.0
            && *at == point
            && left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            tracing::warn!(?point, "aborting on purpose, as configured");
            std::process::abort();
        }
    }
}

impl<P: Point> FromStr for Crash<P> {
    type Err = String;

    /// `committed`, or `committed:3` for the third time.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, times) = text.split_once(':').unwrap_or((text, "1"));
        let point = P::NAMES.iter().find(|(known, _)| *known == name).map(|(_, point)| *point);
        let point = point.ok_or_else(|| {
            let names: Vec<&str> = P::NAMES.iter().map(|(name, _)| *name).collect();
            format!("`{name}` is not a crash point; known points: {}", names.join(", "))
        })?;
        let times: u32 = times
            .parse()
            .ok()
            .filter(|times| *times > 0)
            .ok_or("the number after the colon must be 1 or more")?;
        Ok(Crash(Some((point, Arc::new(AtomicU32::new(times))))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Place {
        Committed,
        Sent,
    }

    impl Point for Place {
        const NAMES: &'static [(&'static str, Self)] =
            &[("committed", Place::Committed), ("sent", Place::Sent)];
    }

    #[test]
    fn where_to_crash_is_read_or_explained() {
        type Read = Crash<Place>;
        assert!("committed".parse::<Read>().is_ok() && "sent:3".parse::<Read>().is_ok());
        let said = "nowhere".parse::<Read>().unwrap_err();
        assert!(said.contains("`nowhere`") && said.contains("committed, sent"), "{said}");
        assert!("sent:0".parse::<Read>().is_err() && "sent:x".parse::<Read>().is_err());
    }
}
