//! Shows a run while it runs: on a terminal as a tree that is redrawn in place, elsewhere as a line for each change.
//! Ctrl-C leaves a run that the command only watches, and cancels one that it has begun; a second Ctrl-C ends the command.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::{IsTerminal, Write},
    time::Duration,
};

use coordinator::trace::{ContextNode, Trace};
use shared::{
    ChildId, TraceId,
    bus::Bus,
    wire::{Said, StreamPiece, Text},
};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    cluster::{client, stream::Stream, watch::Watch},
    terminal::{news, output, questions::Questions, signals::Signals, text, tree},
};

/// Time between two drawings of the tree.
const REDRAW: Duration = Duration::from_millis(100);
/// Lines of the tree that are drawn. A longer tree would scroll, and lines that have scrolled can't be redrawn.
const MOST_LINES: usize = 20;

/// What a signal, such as Ctrl-C, does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnSignal {
    Leave,
    Cancel,
}

/// Watches until the root's outcome is known, with the agents' live output if `words` is set. None if the user left
/// before.
pub(crate) async fn follow(
    bus: &Bus,
    trace_id: TraceId,
    mut asked: Questions,
    words: bool,
    on_signal: OnSignal,
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
                display.changed(watch.trace());
                let questions = watch.questions();
                if asked.has_news(&questions) {
                    display.draw(watch.trace());
                    display.leave_standing();
                }
                asked.ask(bus, questions).await?;
            }
            piece = stream.next() => output::note(&line(&piece)),
            _ = redraw.tick() => if !asked.is_asking() { display.draw(watch.trace()) },
            typed = asked.typed() => asked.answer(bus, typed?).await?,
            () = signals.next() => {
                display.leave_standing();
                if on_signal == OnSignal::Leave {
                    output::note(&format!(
                        "left, and the run goes on: `trellis runs watch {trace_id}` shows it again, `trellis runs cancel {trace_id}` ends it"
                    ));
                    return Ok(None);
                }
                if interrupted {
                    output::note("left; a run in a cluster continues until the cancel takes effect");
                    return Ok(None);
                }
                interrupted = true;
                output::note("cancelling; press Ctrl-C again to leave at once");
                client::cancel(bus, trace_id, None, Text::new("interrupted by its caller").ok(), false).await?;
            }
        }
    }
    display.wipe();
    Ok(Some(watch))
}

enum Display {
    /// On a terminal: the number of lines to redraw, and the last text.
    Tree { drawn: usize, last: String },
    /// Elsewhere: the last line printed for each context.
    Lines(BTreeMap<ChildId, String>),
}

impl Display {
    /// Live output between two drawings would break the tree, so that lines are printed instead.
    fn new(words: bool) -> Self {
        if std::io::stderr().is_terminal() && !words && !output::logs_json() {
            Display::Tree { drawn: 0, last: String::new() }
        } else {
            Display::Lines(BTreeMap::new())
        }
    }

    /// Prints the contexts whose status changed, if lines are printed.
    fn changed(&mut self, trace: &Trace) {
        let Display::Lines(said) = self else { return };
        let mut news: Vec<(&ContextNode, String)> = Vec::new();
        for node in trace.contexts() {
            let messages = news::counts(node);
            let comma = if messages.is_empty() { "" } else { ", " };
            let checks = tree::checks(node).map_or_else(String::new, |checks| format!(" (checks: {checks})"));
            let word = format!("{}{comma}{messages}{checks}", tree::word(trace, node));
            if said.get(&node.id) != Some(&word) {
                news.push((node, word));
            }
        }
        // One commit may end a context and those above it: what has ended comes first, and the deepest of that.
        let below = |node: &ContextNode| {
            std::iter::successors(node.parent, |above| trace.node(*above).parent).count()
        };
        news.sort_by_key(|(node, _)| (node.is_live(), Reverse(if node.is_live() { 0 } else { below(node) })));
        for (node, word) in news {
            let budget = &node.budget;
            output::note(&format!(
                "{}: {word}, {} of {}",
                node.id, budget.spent.cost_usd, budget.limit.cost_usd
            ));
            said.insert(node.id.clone(), word);
        }
    }

    /// Redraws the tree in place, if a tree is drawn.
    fn draw(&mut self, trace: &Trace) {
        let Display::Tree { drawn, last } = self else { return };
        let text = tree::branches(trace);
        if text == *last {
            return;
        }
        let lines: Vec<&str> = text.lines().collect();
        let mut screen = over(*drawn);
        // Wrapping is off: a wrapped line would count as two when it is redrawn.
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

    /// Keeps the tree on the screen; the next drawing goes below it.
    fn leave_standing(&mut self) {
        if let Display::Tree { drawn, last } = self {
            *drawn = 0;
            last.clear();
        }
    }

    /// Removes the tree from the screen.
    fn wipe(&mut self) {
        if let Display::Tree { drawn, .. } = self {
            std::io::stderr().write_all(over(*drawn).as_bytes()).ok();
        }
    }
}

/// Moves the cursor up so many lines and clears the screen from there.
fn over(drawn: usize) -> String {
    if drawn == 0 { String::new() } else { format!("\x1b[{drawn}A\r\x1b[J") }
}

/// A piece of live output on a line.
fn line(piece: &StreamPiece) -> String {
    let said = match &piece.said {
        Said::Text(text) => text::flat(text),
        Said::Again { why } => format!("(starting again: {})", text::flat(why)),
        Said::Tool { tool } => format!("→ {}", text::flat(tool)),
        Said::Progress { message } => text::flat(message),
    };
    format!("{}> {said}", piece.child_id)
}
