//! The points at which a worker can abort on purpose, for tests: before and after each part of a step.

use host::crash;

/// The point at which to abort, if any.
pub type Crash = crash::Crash<Point>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The files that were handed over are copied, but nothing is in the journal yet.
    Received,
    /// The checks of a call have passed, but the call is not made yet.
    Checked,
    /// A check has made a decision other than a pass, but the decision is not in the journal yet.
    Decided,
    /// The hold is taken, but the model is not called yet.
    Held,
    /// The model has answered, but nothing is in the journal yet.
    Answered,
    /// The answer is in the journal; its cost may not be booked yet.
    Written,
    /// News for the agent is in the journal, but the agent has not asked again yet.
    Told,
    /// A tool has answered, but nothing is in the journal yet.
    Called,
    /// The result is in the journal, but not reported yet.
    Finished,
    /// The result is reported, but the delivery is not acknowledged yet.
    Reported,
}

impl crash::Point for Point {
    const NAMES: &'static [(&'static str, Point)] = &[
        ("received", Point::Received),
        ("checked", Point::Checked),
        ("decided", Point::Decided),
        ("held", Point::Held),
        ("answered", Point::Answered),
        ("written", Point::Written),
        ("told", Point::Told),
        ("called", Point::Called),
        ("finished", Point::Finished),
        ("reported", Point::Reported),
    ];
}
