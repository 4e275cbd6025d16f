//! Where a coordinator can be told to abort: between receiving a message and acknowledging it.

use shared::crash;

/// Where to abort, if anywhere.
pub type Crash = crash::Crash<Point>;

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

impl crash::Point for Point {
    const NAMES: &'static [(&'static str, Point)] = &[
        ("received", Point::Received),
        ("decided", Point::Decided),
        ("committed", Point::Committed),
        ("sent", Point::Sent),
        ("acknowledged", Point::Acknowledged),
    ];
}
