//! One row for each event: the context that it is about, and the parts of the core that act on it.
//! The compiler wants a row for each variant of [`Event`], and in each row a word about its content:
//! forgotten content would survive the deletion of its trace. A part of the core that acts on few
//! events asks for the facts first and matches those few.

use domain::ChildId;

use super::Event;

/// Which parts of the core act on an event.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a column of the table")]
pub struct EventFacts {
    /// A hold that waits in the queue may fit after it: money returned, or a context left its place.
    pub frees_room: bool,
    /// It has effects: messages are sent because of it (`effect`).
    pub sends: bool,
    /// Something is decided next because of it (`agenda`).
    pub has_follow_up: bool,
    /// It has texts or values of people and agents, which a deletion of its trace blanks (`scrub`).
    pub has_content: bool,
    /// It is a line of a receipt. A receipt leaves out the events that only keep the run going.
    pub on_receipt: bool,
}

macro_rules! event_facts {
    ($($variant:ident of $context:ident $content:ident content $(: $($fact:ident),+)?;)*) => {
        impl Event {
            /// The parts of the core that act on it.
            #[expect(clippy::needless_update, reason = "some events have all facts")]
            pub fn facts(&self) -> EventFacts {
                match self {
                    $(Event::$variant { .. } => EventFacts {
                        has_content: event_facts!(@$content),
                        $($($fact: true,)+)?
                        ..EventFacts::default()
                    },)*
                }
            }

            /// The context that the event is about; none for events of the whole trace.
            pub fn child_id(&self) -> Option<&ChildId> {
                match self {
                    $(event_facts!(@pattern $variant $context event) => event_facts!(@context $context event),)*
                }
            }
        }
    };
    (@with) => { true };
    (@without) => { false };
    (@pattern $variant:ident trace $event:ident) => { Event::$variant { .. } };
    (@pattern $variant:ident child $event:ident) => { Event::$variant { child_id: $event, .. } };
    (@pattern $variant:ident child_if_any $event:ident) => { Event::$variant { child_id: $event, .. } };
    (@pattern $variant:ident writer $event:ident) => { Event::$variant { writer: $event, .. } };
    (@pattern $variant:ident admitted $event:ident) => { Event::$variant($event) };
    (@pattern $variant:ident ended $event:ident) => { Event::$variant($event) };
    (@context trace $event:ident) => { None };
    (@context child $event:ident) => { Some($event) };
    (@context child_if_any $event:ident) => { $event.as_ref() };
    (@context writer $event:ident) => { $event.as_ref() };
    (@context admitted $event:ident) => { Some(&$event.spec.child_id) };
    (@context ended $event:ident) => { Some(&$event.child_id) };
}

event_facts! {
    Opened of trace without content;
    Rebuilt of trace without content: on_receipt;
    Copied of trace with content: sends;
    AgentAdded of trace without content;
    PlanAdded of trace with content;
    RerunBegun of trace without content: on_receipt;
    ResultKept of trace with content;
    Amended of child with content: has_follow_up, on_receipt;
    Tombstoned of child_if_any with content: on_receipt;
    Admitted of admitted with content: sends, has_follow_up, on_receipt;
    WindowClamped of child without content;
    Claimed of child without content: on_receipt;
    Ticked of child without content;
    Progressed of child without content;
    Checked of child with content: on_receipt;
    AttemptLost of child without content: frees_room, on_receipt;
    Requeued of child without content: frees_room, sends, has_follow_up, on_receipt;
    Redispatched of child without content: sends;
    Waiting of child without content: frees_room, on_receipt;
    InputRequired of child with content: frees_room, sends, on_receipt;
    Reminded of child without content: sends, on_receipt;
    Answered of child with content: has_follow_up, on_receipt;
    Told of child with content: on_receipt;
    MessagesSeen of child without content;
    Paused of child without content: frees_room, on_receipt;
    Ended of ended with content: frees_room, sends, has_follow_up, on_receipt;
    UndoingBegun of ended with content: frees_room, sends, has_follow_up, on_receipt;
    UndoRefused of child without content: frees_room, has_follow_up, on_receipt;
    Closed of child without content: sends;
    Deleted of child without content: frees_room, sends, on_receipt;
    Restored of child without content: on_receipt;
    Held of child without content;
    HoldQueued of child without content: on_receipt;
    PlaceLost of child without content: frees_room, on_receipt;
    Settled of child without content: frees_room, has_follow_up, on_receipt;
    Released of child without content: frees_room, has_follow_up;
    Forfeited of child without content: frees_room, has_follow_up, on_receipt;
    Estimated of child without content: has_follow_up, on_receipt;
    Corrected of child without content: frees_room, has_follow_up, on_receipt;
    Charged of child without content: has_follow_up, on_receipt;
    Disputed of child without content: on_receipt;
    DisputeDecided of child without content: has_follow_up, on_receipt;
    Exhausted of child without content: has_follow_up, on_receipt;
    Replenished of child without content: frees_room, has_follow_up, on_receipt;
    Raised of child without content: frees_room, has_follow_up, on_receipt;
    RungReached of child without content: on_receipt;
    ValueSet of writer with content;
    ValueDeleted of trace without content;
    StoreCleared of trace without content;
    ConditionAsked of child with content;
    ItemsTaken of child with content: has_follow_up;
    ItemRefused of child without content: has_follow_up, on_receipt;
    KeptTaken of child without content;
    KeptDropped of child without content;
    StepContinues of child without content: has_follow_up;
    StepEnded of child with content: has_follow_up, on_receipt;
    StepsSkipped of child without content;
    GatheringEnded of child without content: has_follow_up;
    SynthesisBegun of child without content: on_receipt;
}
