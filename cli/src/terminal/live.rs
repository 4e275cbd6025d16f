//! Shows a run while it runs: on a terminal as a tree that is redrawn in place, elsewhere as a line
//! for each change. Ctrl-C on a run that the command only watches ends the watching. Ctrl-C on a
//! run that the command began cancels the run, or asks the user, who may detach from a run that
//! continues without the command. A second Ctrl-C ends the command.

use std::{cmp::Reverse, collections::BTreeMap, io::Write, time::Duration};

use client::{Client, LiveOutput, Watch, questions};
use domain::{
    ChildId, TraceId,
    wire::{Said, StreamPiece, Text},
};
use tokio::time::{MissedTickBehavior, interval};
use trace::{ContextNode, Status, Trace};

use crate::terminal::{
    colour, display,
    missing_workers::Lookout,
    news,
    output::{self, Output},
    questions::{Answerer, Questions},
    screen::{self, Size},
    signals::Signals,
    tree::{self, Line},
};

/// Time between two drawings of the tree.
const REDRAW: Duration = Duration::from_millis(100);
/// The most lines of a frame. Earlier output stays visible above it.
const MOST_LINES: usize = 30;

/// The reaction to a signal such as Ctrl-C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OnSignal {
    Leave,
    Cancel,
    /// Ctrl-C asks the user at the terminal, who may detach from a run that continues elsewhere.
    /// Other signals cancel the run.
    Ask {
        /// The text that explains how the detached run continues.
        left: String,
    },
}

/// How watching a run ended.
pub(crate) enum WatchEnd {
    /// The root's outcome is known.
    Ended(Box<Watch>),
    /// The user left, and the run continues.
    Left,
    /// The user left while the run was being cancelled.
    LeftCancelled,
}

/// The question whether to detach or to cancel.
const CHOICE: &str = "detach or cancel? type d or c and press enter (Ctrl-C again detaches)";

/// The state after Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interrupted {
    No,
    Choosing,
    Cancelling,
}

/// Watches until the root's outcome is known or the user leaves. With `words`, prints the agents'
/// live output.
pub(crate) async fn follow(
    client: &Client,
    trace_id: TraceId,
    mut asked: Questions,
    words: bool,
    on_signal: OnSignal,
) -> anyhow::Result<WatchEnd> {
    let mut signals = Signals::listen()?;
    let mut watch = client.watch(trace_id).await?;
    let mut display = Display::new(words);
    let mut live_output = match words {
        true => Some(client.live_output(trace_id).await?),
        false => None,
    };
    let mut lookout = Lookout::new(client);
    let mut redraw = interval(REDRAW);
    redraw.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut interrupted = Interrupted::No;
    let leave = |left: &str| {
        output::note(left);
        Ok(WatchEnd::Left)
    };
    while watch.outcome().is_none() {
        let choosing = interrupted == Interrupted::Choosing;
        tokio::select! {
            next = watch.next() => {
                next?;
                display.changed(watch.trace());
                let questions = watch.questions();
                if asked.has_news(&questions) {
                    display.draw(watch.trace());
                    display.leave_standing();
                }
                asked.ask(client, questions).await?;
            }
            piece = next_piece(&mut live_output) => output::note(&line(&piece)),
            there = lookout.seen(), if waits_for_worker(watch.trace()) => {
                for said in lookout.news(watch.trace(), &there) {
                    display.leave_standing();
                    output::note(&said);
                }
            }
            _ = redraw.tick() => if !asked.is_asking() && !choosing { display.draw(watch.trace()) },
            typed = asked.typed(choosing) => match (&on_signal, choosing) {
                (OnSignal::Ask { left }, true) => match typed?.as_deref().map(str::trim) {
                    None | Some("d" | "D") => return leave(left),
                    Some("c" | "C") => {
                        interrupted = Interrupted::Cancelling;
                        cancel(client, trace_id).await?;
                    }
                    Some(_) => output::ask(CHOICE),
                },
                (OnSignal::Ask { .. } | OnSignal::Leave | OnSignal::Cancel, _) => asked.answer(client, typed?).await?,
            },
            by_user = signals.next_is_interrupt() => {
                display.leave_standing();
                match (&on_signal, interrupted) {
                    (OnSignal::Leave, _) => return leave(&goes_on(trace_id)),
                    (OnSignal::Ask { left }, Interrupted::Choosing) if by_user => return leave(left),
                    (OnSignal::Ask { .. }, Interrupted::No) if by_user => {
                        interrupted = Interrupted::Choosing;
                        asked.listen();
                        output::ask(CHOICE);
                    }
                    (OnSignal::Ask { .. } | OnSignal::Cancel, Interrupted::Cancelling) => {
                        output::note("left; a run in a cluster continues until the cancel takes effect");
                        return Ok(WatchEnd::LeftCancelled);
                    }
                    (OnSignal::Ask { .. } | OnSignal::Cancel, Interrupted::No | Interrupted::Choosing) => {
                        interrupted = Interrupted::Cancelling;
                        cancel(client, trace_id).await?;
                    }
                }
            }
        }
    }
    display.wipe();
    Ok(WatchEnd::Ended(Box::new(watch)))
}

/// Shows a run that no process continues, and its open questions.
pub(crate) async fn stands(
    client: &Client,
    trace: &Trace,
    answer: Option<Text>,
    output: Output,
) -> anyhow::Result<()> {
    match output {
        Output::Text => output::print(&tree::show(trace))?,
        Output::Json => output::print_json(&tree::as_json(trace))?,
    }
    let who = answer.map_or(Answerer::Elsewhere, Answerer::Told);
    Questions::new(who).ask(client, questions(trace)).await
}

/// Waits for the next piece of live output, forever if live output is off. Cancel-safe.
async fn next_piece(live_output: &mut Option<LiveOutput>) -> StreamPiece {
    let next = match live_output {
        Some(live_output) => live_output.next().await,
        None => None,
    };
    match next {
        Some(piece) => piece,
        None => std::future::pending().await,
    }
}

fn waits_for_worker(trace: &Trace) -> bool {
    trace.contexts().iter().any(|node| matches!(node.status, Status::Submitted { .. }))
}

async fn cancel(client: &Client, trace_id: TraceId) -> anyhow::Result<()> {
    output::note("cancelling; press Ctrl-C again to leave at once");
    client.cancel(trace_id, None, Text::new("interrupted by its caller").ok(), false).await?;
    Ok(())
}

/// The note about a detached run that continues in a cluster.
pub(crate) fn goes_on(trace_id: TraceId) -> String {
    format!(
        "left, and the run continues: `trellis runs watch {trace_id}` shows it again, `trellis runs cancel {trace_id}` \
                ends it"
    )
}

enum Display {
    /// On a terminal: the widths of the drawn lines, and the last frame with the terminal's size.
    Tree { drawn: Vec<usize>, last: (String, Size) },
    /// Elsewhere: the last printed line of each context.
    Lines(BTreeMap<ChildId, String>),
}

impl Display {
    /// With live output, lines are printed instead of a tree, because output between two drawings
    /// would break the tree.
    fn new(words: bool) -> Self {
        match screen::of_stderr() {
            Some(size) if !words && !output::logs_json() && !output::is_quiet() => {
                Display::Tree { drawn: Vec::new(), last: (String::new(), size) }
            }
            Some(_) | None => Display::Lines(BTreeMap::new()),
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
            let word = format!("{}{comma}{messages}{checks}", trace.word(node));
            if said.get(&node.id) != Some(&word) {
                news.push((node, word));
            }
        }
        // One commit may end a context and the contexts above it. Ended contexts are printed first,
        // the deepest of them at the start.
        let below = |node: &ContextNode| {
            std::iter::successors(node.parent, |above| trace.node(*above).parent).count()
        };
        news.sort_by_key(|(node, _)| (node.is_live(), Reverse(if node.is_live() { 0 } else { below(node) })));
        for (node, word) in news {
            let budget = &node.budget;
            output::note(&format!(
                "{}: {word}, {} of {}",
                node.id, budget.spent.cost_usd, budget.ceilings.limit.cost_usd
            ));
            said.insert(node.id.clone(), word);
        }
    }

    /// Redraws the tree in place, if a tree is drawn.
    fn draw(&mut self, trace: &Trace) {
        let Display::Tree { drawn, last } = self else { return };
        let Some(size) = screen::of_stderr() else { return };
        let lines = frame(&tree::lines(trace), size);
        let text = lines.join("\n");
        if (&text, size) == (&last.0, last.1) {
            return;
        }
        // In a terminal that became narrower, the lines of the last frame wrap and take more rows.
        let rows: usize = drawn.iter().map(|width| width.div_ceil(size.columns).max(1)).sum();
        let mut screen = over(rows.min(size.lines));
        for line in &lines {
            screen.push_str(&colour::printable(line));
            screen.push('\n');
        }
        *drawn = lines.iter().map(|line| display::width(&colour::without(line))).collect();
        std::io::stderr().write_all(screen.as_bytes()).ok();
        *last = (text, size);
    }

    /// Leaves the tree on the screen; the next drawing is below it.
    fn leave_standing(&mut self) {
        if let Display::Tree { drawn, last } = self {
            drawn.clear();
            last.0.clear();
        }
    }

    /// Removes the tree from the screen.
    fn wipe(&mut self) {
        if let Display::Tree { drawn, last: (_, size) } = self {
            let columns = screen::of_stderr().unwrap_or(*size).columns;
            let rows = drawn.iter().map(|width| width.div_ceil(columns).max(1)).sum();
            std::io::stderr().write_all(over(rows).as_bytes()).ok();
        }
    }
}

/// The tree cut to the size of a terminal. Lines that scrolled out of view can't be redrawn, so a
/// longer tree is shortened: running contexts are shown first, then waiting ones, and one line
/// summarizes the rest.
fn frame(tree: &[Line], size: Size) -> Vec<String> {
    // The last line is for the cursor.
    let room = size.lines.saturating_sub(1).clamp(1, MOST_LINES);
    if tree.len() <= room {
        return tree::lay_out(tree, Some(size.columns));
    }
    let mut places: Vec<usize> = (0..tree.len()).collect();
    // The root always comes first, because its line is about the whole run.
    places.sort_by_key(|place| (*place > 0, tree[*place].now));
    let (mut shown, folded) = (places[..room - 1].to_vec(), &places[room - 1..]);
    shown.sort_unstable();
    let shown: Vec<Line> = shown.into_iter().map(|place| tree[place].clone()).collect();
    let mut lines = tree::lay_out(&shown, Some(size.columns));
    lines.push(display::fit(&more(folded.iter().map(|place| tree[*place].word.as_str())), size.columns));
    lines
}

/// The summary of the folded lines: their number, and the number of each status.
fn more<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    words.for_each(|word| *counts.entry(word).or_default() += 1);
    let all: usize = counts.values().sum();
    let each: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    format!("… {all} more ({})", each.join(", "))
}

/// The escape sequence that moves the cursor up by `drawn` rows and clears the screen from there.
fn over(drawn: usize) -> String {
    if drawn == 0 { String::new() } else { format!("\x1b[{drawn}A\r\x1b[J") }
}

/// A piece of live output as one line.
fn line(piece: &StreamPiece) -> String {
    let said = match &piece.said {
        Said::Text(text) => display::flat(text),
        Said::Again { why } => format!("(starting again: {})", display::flat(why)),
        Said::Tool { tool } => format!("→ {}", display::flat(tool)),
        Said::Progress { message } => display::flat(message),
    };
    format!("{}> {said}", piece.child_id)
}
