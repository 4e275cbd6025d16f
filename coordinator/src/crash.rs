//! The points at which a coordinator can be told to abort: between receiving a message and acknowledging
//! it, between the two copies of an agent profile, and around the submission of a tick.

use host::crash;

/// Where to abort, if anywhere.
pub type Crash = crash::Crash<Point>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Jobs are taken; nothing is loaded yet.
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
    /// A tick of a schedule is to be run, and not submitted yet.
    TickDecided,
    /// It is submitted, and that is not noted yet.
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
