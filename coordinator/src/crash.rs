//! The points at which a coordinator aborts for tests of recovery: between receiving a message and
//! acknowledging it, between the two copies of an agent profile, and around the submission of a
//! schedule's tick.

use host::crash;

/// The point at which to abort, if any.
pub type Crash = crash::Crash<Point>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Jobs are taken; no trace is loaded yet.
    Received,
    /// Decided, not committed yet.
    Decided,
    /// Committed, nothing sent yet.
    Committed,
    /// Sent and stored; no reply or acknowledgement yet.
    Sent,
    /// Replied and acknowledged; the outbox is not cleared yet.
    Acknowledged,
    /// Agent profiles are in the log, and not in the store yet.
    ProfilesLogged,
    /// A tick of a schedule is due for a run, which is not submitted yet.
    TickDecided,
    /// The run of the tick is submitted, and the submission is not recorded yet.
    TickSubmitted,
}

impl crash::Point for Point {
    const NAMES: &'static [(&'static str, Point)] = &[
        ("received", Point::Received),
        ("decided", Point::Decided),
        ("committed", Point::Committed),
        ("sent", Point::Sent),
        ("acknowledged", Point::Acknowledged),
        ("profiles-logged", Point::ProfilesLogged),
        ("tick-decided", Point::TickDecided),
        ("tick-submitted", Point::TickSubmitted),
    ];
}
