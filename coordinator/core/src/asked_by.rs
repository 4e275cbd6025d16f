//! S7: every action of an administrator on a trace leaves an event with who asked for it.

use domain::wire::Asker;

use super::{Command, Event};

impl Command {
    /// The same, with who asks for it.
    pub fn asked_by(self, by: Option<Asker>) -> Self {
        match by {
            Some(by) => Command::AskedBy { by, command: Box::new(self) },
            None => self,
        }
    }
}

/// The events of an action, the first of which says who asked: a large deletion has thousands.
pub(super) fn signed(mut events: Vec<Event>, by: Asker) -> Vec<Event> {
    if let Some(place) = events.iter_mut().find_map(place) {
        *place = Some(by);
    }
    events
}

/// Where an event says who asked for it.
fn place(event: &mut Event) -> Option<&mut Option<Asker>> {
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
