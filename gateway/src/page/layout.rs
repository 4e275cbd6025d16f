//! The layout of a graph: its steps as cards from left to right, each to the right of the steps
//! that it waits for. A group is a frame around its own drawing.

use domain::graph::{Group, Source, Step, StepIndex};
use maud::{Markup, html};

use super::row;

/// The smallest size of a card, and the height of a third line.
const CARD: (usize, usize) = (180, 58);
const LINE: usize = 19;
/// The space between two cards, and between a frame and its content.
const GAP: (usize, usize) = (60, 18);
const INSET: usize = 12;
/// The height at which arrows leave and reach a card, from its top.
const PORT: usize = 29;
/// The most characters on a line of a card. The card is as wide as its lines need.
const MOST_CHARACTERS: usize = 36;
/// The width of four characters: of a line, and of the name.
const FOUR: usize = 28;
const FOUR_OF_NAME: usize = 36;

/// A card of the drawing.
#[derive(Debug, Default)]
pub(super) struct Card {
    pub(super) title: String,
    pub(super) class: &'static str,
    pub(super) sign: &'static str,
    pub(super) name: String,
    pub(super) note: String,
    /// A third line for everything else.
    pub(super) more: String,
    pub(super) href: Option<String>,
    pub(super) is_pale: bool,
    /// It is a group of steps.
    pub(super) is_frame: bool,
    /// The drawing inside the frame.
    pub(super) inside: Option<Drawing>,
}

impl Card {
    /// The height without the drawing inside.
    fn head_height(&self) -> usize {
        if self.more.is_empty() { CARD.1 } else { CARD.1 + LINE }
    }

    fn size(&self) -> (usize, usize) {
        let characters = self.note.chars().count().max(self.more.chars().count()).min(MOST_CHARACTERS);
        let (width, height) = (CARD.0.max((characters * FOUR).div_ceil(4) + 2 * INSET), self.head_height());
        match &self.inside {
            Some(inside) => (width.max(inside.width + 2 * INSET), height + inside.height),
            None => (width, height),
        }
    }
}

/// A drawing, which may be nested in another one.
#[derive(Debug)]
pub(super) struct Drawing {
    width: usize,
    height: usize,
    content: Markup,
}

/// The steps of a graph as a complete picture.
pub(super) fn lay_out(group: &Group, cards: &[Card]) -> Markup {
    let Drawing { width, height, content } = drawing(group, cards);
    // The borders extend beyond the cards.
    let (width, height) = (width + 4, height + 4);
    html! { svg width=(width) height=(height) viewBox={ "-2 -2 " (width) " " (height) } { (content) } }
}

/// The steps of a group, with one card for each.
pub(super) fn drawing(group: &Group, cards: &[Card]) -> Drawing {
    let columns = columns(group);
    let mut rows = vec![0; columns.len()];
    let mut taken = vec![0; columns.iter().max().map_or(1, |last| last + 1)];
    for (place, column) in columns.iter().enumerate() {
        rows[place] = taken[*column];
        taken[*column] += 1;
    }
    let sizes: Vec<(usize, usize)> = cards.iter().map(Card::size).collect();
    let across = Lines::of(taken.len(), GAP.0, columns.iter().copied().zip(sizes.iter().map(|size| size.0)));
    let down = Lines::of(
        taken.iter().max().copied().unwrap_or(1),
        GAP.1,
        rows.iter().copied().zip(sizes.iter().map(|size| size.1)),
    );
    let at = |place: usize| (across.starts[columns[place]], down.starts[rows[place]]);
    let edge = |on: usize, place: usize| {
        let (from, to) = (at(on), at(place));
        let lane = down.starts[rows[on]] + down.sizes[rows[on]] + GAP.1 / 2;
        let next = across.starts.get(columns[on] + 1).copied().unwrap_or(to.0);
        way((from.0 + sizes[on].0, from.1 + PORT), (to.0, to.1 + PORT), next, lane)
    };
    let content = html! {
        @for (place, step) in group.steps.iter().enumerate().take(cards.len()) {
            @for on in &step.waits_for {
                path class=(if is_data(step, *on) { "edge" } else { "edge order" }) d=(edge(*on as usize, place)) {}
                @let (x, y) = at(place);
                path class="tip" d={ "M" (x) " " (y + PORT) " l-8 -4 v8 z" } {}
            }
        }
        @for (place, card) in cards.iter().enumerate().take(columns.len()) { (drawn(card, at(place), sizes[place])) }
    };
    // Arrows may pass below the last row.
    Drawing { width: across.end(), height: down.end() + GAP.1, content }
}

/// The columns or the rows of a drawing: each is as large as its largest card.
struct Lines {
    starts: Vec<usize>,
    sizes: Vec<usize>,
}

impl Lines {
    fn of(count: usize, gap: usize, cards: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut sizes = vec![0; count];
        for (line, size) in cards {
            sizes[line] = size.max(sizes[line]);
        }
        let starts = sizes.iter().scan(0, |next, size| {
            let start = *next;
            *next += size + gap;
            Some(start)
        });
        let starts = starts.collect();
        Lines { starts, sizes }
    }

    fn end(&self) -> usize {
        self.starts.last().zip(self.sizes.last()).map_or(0, |(start, size)| start + size)
    }
}

/// True if the step reads an output of the earlier step. Otherwise it only runs after that step.
fn is_data(step: &Step, on: StepIndex) -> bool {
    let is_from = |source| matches!(source, Source::Sibling(from) | Source::UnderSibling(from) if from == on);
    step.inputs.iter().chain(&step.when_reads).any(|input| is_from(input.source))
}

/// The column of each step: to the right of every step that it waits for.
fn columns(group: &Group) -> Vec<usize> {
    let mut columns = vec![0; group.steps.len()];
    // One round per step is enough for any order of the steps.
    for _ in 0..group.steps.len() {
        let mut moved = false;
        for (place, step) in group.steps.iter().enumerate() {
            let column = step.waits_for.iter().map(|on| columns[*on as usize] + 1).max().unwrap_or(0);
            if column > columns[place] {
                columns[place] = column;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    columns
}

/// The path from the right side of a card to the left side of a later one. It passes below the row
/// if there are columns in between, of which `next` is the first.
fn way((x1, y1): (usize, usize), (x2, y2): (usize, usize), next: usize, lane: usize) -> String {
    let curve = |x: usize, y: usize, x2: usize, y2: usize| {
        let middle = (x + x2) / 2;
        format!("C{middle} {y} {middle} {y2} {x2} {y2}")
    };
    if next >= x2 {
        return format!("M{x1} {y1} {}", curve(x1, y1, x2, y2));
    }
    let before = x2 - GAP.0;
    format!("M{x1} {y1} {} H{before} {}", curve(x1, y1, next, lane), curve(before, lane, x2, y2))
}

fn drawn(card: &Card, (x, y): (usize, usize), (width, height): (usize, usize)) -> Markup {
    let room = width - 2 * INSET;
    let (of_name, of_line) = (room * 4 / FOUR_OF_NAME, room * 4 / FOUR);
    let head = html! {
        title { (card.title) }
        rect class={ "card " (card.class) } x=(x) y=(y) width=(width) height=(height) rx="6" {}
        @if card.is_frame {
            rect class={ "card frame " (card.class) } x=(x + 4) y=(y + 4) width=(width - 8) height=(height - 8) rx="4" {}
        }
        text x=(x + INSET) y=(y + 23) class="step" { tspan class={ "mark " (card.class) } { (card.sign) } " " (row::short(&card.name, of_name)) }
        text x=(x + INSET) y=(y + 44) class="note" { (row::short(&card.note, of_line)) }
        @if !card.more.is_empty() { text x=(x + INSET) y=(y + 44 + LINE) class="note more" { (row::short(&card.more, of_line)) } }
    };
    html! {
        g class=[card.is_pale.then_some("pale")] {
            @match &card.href { Some(href) => a href=(href) { (head) }, None => (head) }
        }
        @if let Some(inside) = &card.inside {
            g class="inside" transform={ "translate(" (x + INSET) " " (y + card.head_height()) ")" } { (inside.content) }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{decode::Format, graph};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_is_placed_behind_all_that_it_waits_for() {
        let graph = json!({"name": "g", "mode": "parallel", "inputs": {"x": 1}, "steps": [
            {"id": "a", "agent_id": "x", "task_description": "a", "output_to": "of_a"},
            {"id": "b", "agent_id": "x", "task_description": "b", "depends_on": ["a"]},
            {"id": "c", "agent_id": "x", "task_description": "c"},
            {"id": "d", "agent_id": "x", "task_description": "d", "depends_on": ["b", "c"], "input_from": ["of_a"]},
        ]});
        let (_, plan) = graph::read(graph.to_string().as_bytes(), Format::Json).unwrap();
        let group = plan.group(0);
        assert_eq!(columns(group), [0, 1, 0, 2]);
        let data = |place: usize| -> Vec<(StepIndex, bool)> {
            let step = &group.steps[place];
            step.waits_for.iter().map(|on| (*on, is_data(step, *on))).collect()
        };
        assert_eq!(data(1), [(0, false)]);
        assert_eq!(data(3), [(0, true), (1, false), (2, false)]);
    }
}
