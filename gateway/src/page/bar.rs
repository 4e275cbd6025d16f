//! The bars of a timeline: each shows an activity or a wait of an agent. Also their legend.

use domain::{
    span::{Moment, Span},
    wording,
};
use maud::{Markup, html};
use text::human_time;
use trace::account::entry_of;

/// The width of a row, in its own units.
pub(super) const WIDTH: u64 = 10_000;
/// The smallest width of a bar.
const NARROWEST: u64 = 20;

/// The activity or wait that a bar shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Queue,
    Attempt,
    Failed,
    Lost,
    Model,
    Tool,
    Human,
    Agents,
    Retry,
    Money,
}

impl Kind {
    /// In the order of the legend.
    const ALL: [Kind; 10] = [
        Kind::Queue,
        Kind::Attempt,
        Kind::Failed,
        Kind::Lost,
        Kind::Model,
        Kind::Tool,
        Kind::Human,
        Kind::Agents,
        Kind::Retry,
        Kind::Money,
    ];
    /// The waits that are drawn hatched.
    const WAITS: [Kind; 4] = [Kind::Human, Kind::Agents, Kind::Retry, Kind::Money];

    /// The kind of bar for a span; none if other bars show it.
    fn of(span: &Span) -> Option<Kind> {
        let name: &str = &span.name;
        let begins = |word: &str| name.starts_with(word);
        match () {
            () if begins("queue wait") => Some(Kind::Queue),
            () if begins("wait human") => Some(Kind::Human),
            () if begins("wait retry") => Some(Kind::Retry),
            () if begins("wait budget") => Some(Kind::Money),
            // A graph waits for its steps.
            () if begins("wait ") || begins("invoke_workflow") => Some(Kind::Agents),
            () if begins("attempt ") && span.error.as_deref() == Some("worker_lost") => Some(Kind::Lost),
            () if begins("attempt ") && span.error.is_some() => Some(Kind::Failed),
            () if begins("attempt ") => Some(Kind::Attempt),
            () if begins("chat ") || begins("call ") => Some(Kind::Model),
            // Tool calls without a journal entry wait for a human or another agent: they are drawn
            // as waits.
            () if begins("execute_tool ") && entry_of(span).is_some() => Some(Kind::Tool),
            () => None,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Kind::Queue => "queue",
            Kind::Attempt => "attempt",
            Kind::Failed => "failed",
            Kind::Lost => "lost",
            Kind::Model => "chat",
            Kind::Tool => "tool",
            Kind::Human => "human",
            Kind::Agents => "agents",
            Kind::Retry => "retry",
            Kind::Money => "paused",
        }
    }

    /// The name in the legend.
    fn word(self) -> &'static str {
        match self {
            Kind::Queue => "in the queue",
            Kind::Attempt => "attempt",
            Kind::Failed => "failed",
            Kind::Lost => "lost",
            Kind::Model => "model",
            Kind::Tool => "tool",
            Kind::Human => "waits for a human",
            Kind::Agents => "waits for agents",
            Kind::Retry => "waits for a retry",
            Kind::Money => "waits for money",
        }
    }

    /// The singular noun for counting.
    fn counted(self) -> &'static str {
        match self {
            Kind::Queue => "wait in the queue",
            Kind::Attempt => "attempt",
            Kind::Failed => "failed attempt",
            Kind::Lost => "lost attempt",
            Kind::Model => "model call",
            Kind::Tool => "tool call",
            Kind::Human => "human wait",
            Kind::Agents => "agent wait",
            Kind::Retry => "retry wait",
            Kind::Money => "money wait",
        }
    }

    fn is_attempt(self) -> bool {
        matches!(self, Kind::Attempt | Kind::Failed | Kind::Lost)
    }
}

#[derive(Debug)]
pub(super) struct Bar {
    kind: Kind,
    from: u64,
    width: u64,
    told: String,
    /// The journal entry of the span.
    pub(super) entry: Option<u64>,
}

impl Bar {
    /// The bar of a span on a row that lasts from `start` to `end`.
    pub(super) fn of(span: &Span, start: Moment, end: Moment) -> Option<Bar> {
        let kind = Kind::of(span)?;
        let whole = end.since(start).as_nanos().max(1);
        let place = |at: Moment| {
            let passed = at.since(start).as_nanos() * u128::from(WIDTH) / whole;
            u64::try_from(passed).unwrap_or(WIDTH).min(WIDTH)
        };
        let (from, to) = (place(span.start), place(span.end));
        let lasts = u64::try_from(span.end.since(span.start).as_millis()).unwrap_or(u64::MAX);
        let what = if Kind::WAITS.contains(&kind) { kind.word() } else { &*span.name };
        let error = span.error.as_ref().map_or_else(String::new, |error| format!(", {error}"));
        let told = format!("{what}, {}{error}", human_time::lasts(lasts));
        Some(Bar { kind, from, width: (to - from).max(NARROWEST), told, entry: entry_of(span) })
    }

    pub(super) fn drawn(&self) -> Markup {
        let (y, height) = if self.kind.is_attempt() { (1, 8) } else { (3, 4) };
        html! { rect class=(self.kind.class()) x=(self.from) width=(self.width) y=(y) height=(height) { title { (self.told) } } }
    }
}

/// Removes short bars that would cover one of their kind. A row has a few thousand bars at most,
/// even for a long journal.
pub(super) fn thin(bars: &mut Vec<Bar>) {
    bars.sort_by_key(|bar| (bar.from, !bar.kind.is_attempt()));
    let mut drawn = std::collections::HashMap::new();
    bars.retain(|bar| {
        let is_seen = drawn.get(&bar.kind).is_none_or(|last| bar.from >= last + NARROWEST / 4);
        if is_seen || bar.width > NARROWEST {
            drawn.insert(bar.kind, bar.from);
            return true;
        }
        false
    });
}

/// The row as text: how many bars it has of each kind.
pub(super) fn summary(bars: &[Bar]) -> String {
    let told: Vec<String> = Kind::ALL
        .into_iter()
        .filter(|kind| *kind != Kind::Queue)
        .filter_map(|kind| {
            let number = bars.iter().filter(|bar| bar.kind == kind).count();
            (number > 0).then(|| wording::count(number, kind.counted()))
        })
        .collect();
    if told.is_empty() { "no activity of its own".into() } else { told.join(", ") }
}

/// The legend of all kinds.
pub(super) fn legend() -> Markup {
    html! {
        p class="legend" {
            @for kind in Kind::ALL {
                span { svg class="key" aria-hidden="true" { rect class=(kind.class()) x="1" y="1" width="12" height="10" {} } " " (kind.word()) }
            }
        }
    }
}

/// The hatch patterns of waits: once for the legend, and once for the rows, whose units the script
/// keeps square.
pub(super) fn hatches() -> Markup {
    html! {
        svg class="hatches" width="0" height="0" aria-hidden="true" {
            @for (place, transform) in [("key", None), ("row", Some("scale(10 .42)"))] {
                @for kind in Kind::WAITS {
                    pattern id={ (place) "-" (kind.class()) } class={ "hatch " (kind.class()) } width="6" height="6"
                        patternUnits="userSpaceOnUse" patternTransform=[transform] {
                        rect width="6" height="6" {}
                        path d=(hatch(kind)) {}
                    }
                }
            }
        }
    }
}

/// The lines of one tile; they continue in the next tile.
fn hatch(kind: Kind) -> &'static str {
    match kind {
        Kind::Human => "M-1 1l2 -2M0 6l6 -6M5 7l2 -2",
        Kind::Agents => "M-1 5l2 2M0 0l6 6M5 -1l2 2",
        Kind::Retry => "M1.5 0v6M4.5 0v6",
        Kind::Money => "M0 1.5h6M0 4.5h6M3 0v6",
        Kind::Queue | Kind::Attempt | Kind::Failed | Kind::Lost | Kind::Model | Kind::Tool => "",
    }
}
