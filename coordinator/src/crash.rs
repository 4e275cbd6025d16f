//! Crashing on purpose: a coordinator can be told to abort at a named point between receiving a
//! message and acknowledging it, so that what repairs it can be rehearsed.

use std::{
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Jobs are taken, nothing is loaded.
    Received,
    /// Decided, not committed.
    Decided,
    /// Committed, nothing is sent.
    Committed,
    /// Sent and stored, nobody is told.
    Sent,
    /// Replied and acknowledged; the outbox is not cleared.
    Acknowledged,
}

impl Point {
    pub const NAMES: [(&'static str, Point); 5] = [
        ("received", Point::Received),
        ("decided", Point::Decided),
        ("committed", Point::Committed),
        ("sent", Point::Sent),
        ("acknowledged", Point::Acknowledged),
    ];
}

/// Where to abort, if anywhere: the how-manieth time a point is passed.
#[derive(Debug, Clone, Default)]
pub struct Crash(Option<(Point, Arc<AtomicU32>)>);

impl Crash {
    pub(crate) fn pass(&self, point: Point) {
        if let Some((at, left)) = &self.0
            && *at == point
            && left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            tracing::error!(?point, "aborting, as told to");
            std::process::abort();
        }
    }
}

impl FromStr for Crash {
    type Err = String;

    /// `committed`, or `committed:3` for the third time.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, times) = text.split_once(':').unwrap_or((text, "1"));
        let names = Point::NAMES.map(|(name, _)| name).join(", ");
        let point = Point::NAMES.iter().find(|(known, _)| *known == name).map(|(_, point)| *point);
        let point = point.ok_or_else(|| format!("`{name}` is no point to crash at; there are {names}"))?;
        let times: u32 = times.parse().ok().filter(|times| *times > 0).ok_or("the count is from 1")?;
        Ok(Crash(Some((point, Arc::new(AtomicU32::new(times))))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_crash_is_read_or_explained() {
        assert!("committed".parse::<Crash>().is_ok() && "sent:3".parse::<Crash>().is_ok());
        let said = "nowhere".parse::<Crash>().unwrap_err();
        assert!(said.contains("`nowhere`") && said.contains("acknowledged"), "{said}");
        assert!("sent:0".parse::<Crash>().is_err() && "sent:x".parse::<Crash>().is_err());
    }
}
