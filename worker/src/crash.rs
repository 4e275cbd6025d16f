//! Where a worker can be told to abort: at each edge of a step.

use shared::crash;

/// Where to abort, if anywhere.
pub type Crash = crash::Crash<Point>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Money is set aside, the call is not made.
    Held,
    /// The model has answered, nothing is written down.
    Answered,
    /// The answer is written down; its cost may not be booked.
    Written,
    /// A tool has answered, nothing is written down.
    Called,
    /// The result is written down, nobody is told.
    Finished,
    /// The result is told, the delivery is not acknowledged.
    Reported,
}

impl crash::Point for Point {
    const NAMES: &'static [(&'static str, Point)] = &[
        ("held", Point::Held),
        ("answered", Point::Answered),
        ("written", Point::Written),
        ("called", Point::Called),
        ("finished", Point::Finished),
        ("reported", Point::Reported),
    ];
}
