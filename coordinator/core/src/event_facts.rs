//! One row for each event: the context that it is about, and the parts of the core that act on it. A new event is a variant of
//! [`Event`], a row here and its change of the state in `apply`; a part that acts on few events asks for the facts and matches
//! those few. The compiler wants a row for each variant.

use domain::ChildId;

use super::Event;

/// Which parts of the core act on an event.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a column of the table")]
pub struct EventFacts {
    /// A hold that waits in the queue may fit after it: money returned, or a context left its place in the queue.
    pub frees_room: bool,
    /// It has effects: messages are sent because of it (`effect`).
    pub sends: bool,
    /// Something is decided next because of it (`agenda`).
    pub has_follow_up: bool,
    /// It carries texts or values of people and agents. They are blanked when its trace is deleted (`scrub`).
    pub has_content: bool,
    /// It is a line of a receipt. Events that only keep the run going are none.
    pub on_receipt: bool,
}

macro_rules! event_facts {
    ($($variant:ident of $context:ident $(: $($fact:ident),+)?;)*) => {
        impl Event {
            /// The parts of the core that act on it.
            #[expect(clippy::needless_update, reason = "some events have all facts")]
            pub fn facts(&self) -> EventFacts {
                match self {
                    $(Event::$variant { .. } => EventFacts { $($($fact: true,)+)? ..EventFacts::default() },)*
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
    Opened of trace;
    Rebuilt of trace: on_receipt;
    Copied of trace: sends, has_content;
    AgentAdded of trace;
    PlanAdded of trace: has_content;
    RerunBegun of trace: on_receipt;
    ResultKept of trace: has_content;
    Amended of child: has_follow_up, has_content, on_receipt;
    Tombstoned of child_if_any: has_content, on_receipt;
    Admitted of admitted: sends, has_follow_up, has_content, on_receipt;
    WindowClamped of child;
    Claimed of child: on_receipt;
    Ticked of child;
    Progressed of child;
    Checked of child: has_content, on_receipt;
    AttemptLost of child: frees_room, on_receipt;
    Requeued of child: frees_room, sends, has_follow_up, on_receipt;
    Redispatched of child: sends;
    Waiting of child: frees_room, on_receipt;
    InputRequired of child: frees_room, sends, has_content, on_receipt;
    Reminded of child: sends, on_receipt;
    Answered of child: has_follow_up, has_content, on_receipt;
    Told of child: has_content, on_receipt;
    MessagesSeen of child;
    Paused of child: frees_room, on_receipt;
    Ended of ended: frees_room, sends, has_follow_up, has_content, on_receipt;
    UndoingBegun of ended: frees_room, sends, has_follow_up, has_content, on_receipt;
    UndoRefused of child: frees_room, has_follow_up, on_receipt;
    Closed of child: sends;
    Deleted of child: frees_room, sends, on_receipt;
    Restored of child: on_receipt;
    Held of child;
    HoldQueued of child: on_receipt;
    PlaceLost of child: frees_room, on_receipt;
    Settled of child: frees_room, has_follow_up, on_receipt;
    Released of child: frees_room, has_follow_up;
    Forfeited of child: frees_room, has_follow_up, on_receipt;
    Estimated of child: has_follow_up, on_receipt;
    Corrected of child: frees_room, has_follow_up, on_receipt;
    Charged of child: has_follow_up, on_receipt;
    Disputed of child: on_receipt;
    DisputeDecided of child: has_follow_up, on_receipt;
    Exhausted of child: has_follow_up, on_receipt;
    Replenished of child: frees_room, has_follow_up, on_receipt;
    Raised of child: frees_room, has_follow_up, on_receipt;
    RungReached of child: on_receipt;
    ValueSet of writer: has_content;
    ValueDeleted of trace;
    StoreCleared of trace;
    ConditionAsked of child: has_content;
    ItemsTaken of child: has_follow_up, has_content;
    ItemRefused of child: has_follow_up, on_receipt;
    KeptTaken of child;
    KeptDropped of child;
    StepContinues of child: has_follow_up;
    StepEnded of child: has_follow_up, has_content, on_receipt;
    StepsSkipped of child;
    GatheringEnded of child: has_follow_up;
    SynthesisBegun of child: on_receipt;
}
