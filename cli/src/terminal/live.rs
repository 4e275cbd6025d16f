//! A run as it goes on: shown as a tree that is drawn again in place, or, where stderr is no terminal,
//! as a line for each change. Ctrl-C asks for a cancel, a second one leaves.

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    time::Duration,
};

use coordinator::trace::Trace;
use shared::{
    ChildId, TraceId,
    bus::Bus,
    wire::{Said, StreamPiece, Text},
};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    cluster::{client, stream::Stream, watch::Watch},
    terminal::{output, questions::Questions, signals::Signals, text, tree},
};

/// Often enough to look alive.
const REDRAW: Duration = Duration::from_millis(100);
/// More than this would scroll what can't be drawn over.
const MOST_LINES: usize = 20;

/// Watches until the root's outcome is known, with what the agents say if `words` are wanted. None if the
/// person left before.
pub(crate) async fn follow(
    bus: &Bus,
    trace_id: TraceId,
    mut asked: Questions,
    words: bool,
) -> anyhow::Result<Option<Watch>> {
    let mut signals = Signals::listen()?;
    let mut watch = Watch::begin(bus, trace_id).await?;
    let mut display = Display::new(words);
    let mut stream = Stream::listen(bus, trace_id, words).await?;
    let mut redraw = interval(REDRAW);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut interrupted = false;
    while watch.outcome().is_none() {
        tokio::select! {
            next = watch.next() => {
                next?;
                display.changed(&watch.trace);
                let questions = watch.questions();
                if asked.has_news(&questions) {
                    display.draw(&watch.trace);
                    display.leave_standing();
                }
                asked.ask(bus, questions).await?;
            }
            piece = stream.next() => output::note(&line(&piece)),
            _ = redraw.tick() => if !asked.is_asking() { display.draw(&watch.trace) },
            typed = asked.typed() => asked.answer(bus, typed?).await?,
            () = signals.next() => {
                display.leave_standing();
                if interrupted {
                    output::note("left; what runs in a cluster goes on until the cancel takes effect");
                    return Ok(None);
                }
                interrupted = true;
                output::note("cancelling; once more to leave at once");
                client::cancel(bus, trace_id, None, Text::new("interrupted by its caller").ok()).await?;
            }
        }
    }
    display.wipe();
    Ok(Some(watch))
}

enum Display {
    /// On a terminal: how many lines stand there to be drawn over.
    Tree { drawn: usize, last: String },
    /// Elsewhere: the last said of each context.
    Lines(BTreeMap<ChildId, String>),
}

impl Display {
    /// A tree can't be drawn over what is written between.
    fn new(words: bool) -> Self {
        if std::io::stderr().is_terminal() && !words {
            Display::Tree { drawn: 0, last: String::new() }
        } else {
            Display::Lines(BTreeMap::new())
        }
    }

    /// Says what has changed, where lines are written.
    fn changed(&mut self, trace: &Trace) {
        let Display::Lines(said) = self else { return };
        for node in trace.contexts() {
            let word = tree::word(trace, node);
            if said.get(&node.id) != Some(&word) {
                let budget = &node.budget;
                output::note(&format!(
                    "{}: {word}, {} of {}",
                    node.id, budget.spent.cost_usd, budget.limit.cost_usd
                ));
                said.insert(node.id.clone(), word);
            }
        }
    }

    /// Draws the tree over itself, where that can be done.
    fn draw(&mut self, trace: &Trace) {
        let Display::Tree { drawn, last } = self else { return };
        let text = tree::branches(trace);
        if text == *last {
            return;
        }
        let lines: Vec<&str> = text.lines().collect();
        let mut screen = over(*drawn);
        // A line that wraps would be two to draw over: so none wraps.
        screen.push_str("\x1b[?7l");
        for line in lines.iter().take(MOST_LINES) {
            screen.push_str(line);
            screen.push('\n');
        }
        *drawn = lines.len().min(MOST_LINES);
        if lines.len() > MOST_LINES {
            screen.push_str(&format!("… and {} more\n", lines.len() - MOST_LINES));
            *drawn += 1;
        }
        screen.push_str("\x1b[?7h");
        std::io::stderr().write_all(screen.as_bytes()).ok();
        *last = text;
    }

    /// What comes next comes below.
    fn leave_standing(&mut self) {
        if let Display::Tree { drawn, last } = self {
            *drawn = 0;
            last.clear();
        }
    }

    /// Makes room for the outcome.
    fn wipe(&mut self) {
        if let Display::Tree { drawn, .. } = self {
            std::io::stderr().write_all(over(*drawn).as_bytes()).ok();
        }
    }
}

/// Up to the first of so many lines, and everything below gone.
fn over(drawn: usize) -> String {
    if drawn == 0 { String::new() } else { format!("\x1b[{drawn}A\r\x1b[J") }
}

/// A piece of what an agent says, on a line.
fn line(piece: &StreamPiece) -> String {
    let said = match &piece.said {
        Said::Text(text) => text::flat(text),
        Said::Again { why } => format!("(once more: {})", text::flat(why)),
        Said::Tool { tool } => format!("→ {}", text::flat(tool)),
        Said::Progress { message } => text::flat(message),
    };
    format!("{}> {said}", piece.child_id)
}
