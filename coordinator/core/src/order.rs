//! A command with its sender: the pool of the worker that sent it (S6), or the administrator who
//! requested it (S7). [`Trace::handle`](super::Trace::handle) takes orders; a command converts into
//! an order without a sender.

use domain::{PoolName, wire::Asker};

use super::{Command, Event};

#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// The administrator who requested an administrative action.
    pub by: Option<Asker>,
    /// The pool of the worker; `None` for a command that does not come from a worker.
    pub pool: Option<PoolName>,
    pub command: Command,
}

impl From<Command> for Order {
    fn from(command: Command) -> Self {
        Order { by: None, pool: None, command }
    }
}

impl Command {
    /// The command as a worker of the pool sends it.
    pub fn from_pool(self, pool: PoolName) -> Order {
        Order { pool: Some(pool), ..self.into() }
    }

    /// The command as an administrator requests it.
    pub fn asked_by(self, by: Option<Asker>) -> Order {
        Order { by, ..self.into() }
    }
}

/// S7: records the administrator in the first event of an action. A large deletion has thousands of
/// events, so the other events do not repeat the name.
pub(super) fn signed(mut events: Vec<Event>, by: Asker) -> Vec<Event> {
    if let Some(place) = events.iter_mut().find_map(asker_mut) {
        *place = Some(by);
    }
    events
}

/// The field of an event for the administrator who requested it.
fn asker_mut(event: &mut Event) -> Option<&mut Option<Asker>> {
    if let Event::Raised { by, .. }
    | Event::Charged { by, .. }
    | Event::Deleted { by, .. }
    | Event::Restored { by, .. }
    | Event::DisputeDecided { by, .. } = event
    {
        Some(by)
    } else {
        None
    }
}
