//! Settled calls of which only the numbers and the sum of their costs are stored. The numbers are
//! stored as ranges, so that a thousand calls in a row take as many bytes as one.

use domain::{Amount, CallId, money::booked};
use serde::{Deserialize, Serialize};

/// The id of a call in the form that workers use: `<attempt>-<number>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallNumber {
    pub(super) attempt: u32,
    pub(super) number: u32,
}

impl CallNumber {
    /// `None` if the id has another form, such as `1-07`, which is another id than `1-7`.
    pub(super) fn of(id: &CallId) -> Option<Self> {
        let (attempt, number) = id.as_str().split_once('-')?;
        let numbered = CallNumber { attempt: attempt.parse().ok()?, number: number.parse().ok()? };
        (numbered.id() == *id).then_some(numbered)
    }

    pub(super) fn id(self) -> CallId {
        CallId::new(&format!("{}-{}", self.attempt, self.number)).expect("digits and a dash")
    }
}

/// The folded calls of one attempt. Calls are never removed from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct FoldedCalls {
    numbers: Ranges,
    #[serde(default, deserialize_with = "booked::amount", skip_serializing_if = "Amount::is_nothing")]
    amount: Amount,
}

impl FoldedCalls {
    /// Adds a call that is not in it yet.
    pub(super) fn insert(&mut self, number: u32, cost: Amount) {
        self.numbers.insert(number);
        self.amount = self.amount.checked_add(cost).expect("a part of what is booked");
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.numbers.contains(number)
    }

    /// The sum of their costs.
    pub(super) fn amount(&self) -> Amount {
        self.amount
    }
}

/// A set of numbers, as the first and the last number of each range. The ranges are in order, and
/// neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u32)>")]
struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// The index of the first range that ends at or after the number.
    fn place(&self, number: u32) -> usize {
        self.0.partition_point(|(_, last)| *last < number)
    }

    fn contains(&self, number: u32) -> bool {
        self.0.get(self.place(number)).is_some_and(|(first, _)| *first <= number)
    }

    fn insert(&mut self, number: u32) {
        if self.contains(number) {
            return;
        }
        let place = self.place(number);
        let ends_before = place > 0 && self.0[place - 1].1 + 1 == number;
        let begins_behind = self.0.get(place).is_some_and(|(first, _)| first - 1 == number);
        match (ends_before, begins_behind) {
            (true, true) => {
                let (_, last) = self.0.remove(place);
                self.0[place - 1].1 = last;
            }
            (true, false) => self.0[place - 1].1 = number,
            (false, true) => self.0[place].0 = number,
            (false, false) => self.0.insert(place, (number, number)),
        }
    }
}

impl TryFrom<Vec<(u32, u32)>> for Ranges {
    type Error = &'static str;

    fn try_from(ranges: Vec<(u32, u32)>) -> Result<Self, Self::Error> {
        let is_range = ranges.iter().all(|(first, last)| first <= last);
        let in_order = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0 && pair[0].1 + 1 < pair[1].0);
        if is_range && in_order { Ok(Ranges(ranges)) } else { Err("ranges of numbers that are not in order") }
    }
}
