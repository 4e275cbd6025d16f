//! The sums of spenders stay complete, however many spenders exist.

use domain::{AgentId, Usd};
use trace::{MOST_SPENDERS, Spenders};

fn agent(name: impl std::fmt::Display) -> AgentId {
    format!("a{name}").parse().unwrap()
}

fn nanos(nanos: u64) -> Usd {
    Usd::from_nanos(nanos)
}

fn sum(spenders: &Spenders) -> u64 {
    spenders.told().iter().map(|one| one.cost_usd.nanos()).sum()
}

#[test]
fn the_sum_stays_whole_however_many_spend_and_the_others_are_last() {
    let mut spenders = Spenders::default();
    for number in (0..40).chain(0..40) {
        spenders.book(Some(&agent(number)), None, nanos(1));
    }
    let told = spenders.told();
    assert_eq!((told.len(), sum(&spenders)), (MOST_SPENDERS, 80));
    let others: Vec<usize> = (0..told.len()).filter(|at| told[*at].others).collect();
    assert_eq!(others, [MOST_SPENDERS - 1]);
    assert_eq!(told[MOST_SPENDERS - 1].agent_id, None);
}

#[test]
fn the_largest_spender_is_listed_even_if_it_came_last_with_small_calls() {
    let mut spenders = Spenders::default();
    for number in 0..MOST_SPENDERS {
        spenders.book(Some(&agent(number)), None, nanos(100));
    }
    let late = agent("late");
    for round in 0..6_000_u32 {
        spenders.book(Some(&late), None, nanos(1));
        // Two further small spenders alternate.
        if round.is_multiple_of(3) {
            spenders.book(Some(&agent(100 + round % 2)), None, nanos(1));
        }
    }
    let told = spenders.told();
    let of_late = told.iter().find(|one| one.agent_id.as_ref() == Some(&late)).unwrap();
    assert!(of_late.cost_usd > nanos(5_000), "{told:#?}");
    assert_eq!(sum(&spenders), 100 * 12 + 6_000 + 2_000);
}

#[test]
fn a_cost_without_an_agent_is_listed_apart_from_the_others() {
    let mut spenders = Spenders::default();
    spenders.book(None, None, nanos(50));
    for number in 0..40 {
        spenders.book(Some(&agent(number)), None, nanos(1));
    }
    let told = spenders.told();
    let of_none: Vec<(bool, u64)> = told
        .iter()
        .filter(|one| one.agent_id.is_none())
        .map(|one| (one.others, one.cost_usd.nanos()))
        .collect();
    assert_eq!(of_none, [(false, 50), (true, 40 - 10)]);
}

#[test]
fn a_withdrawn_row_has_no_place_and_may_be_among_the_others() {
    let mut spenders = Spenders::default();
    for number in 0..40 {
        spenders.book(Some(&agent(number)), None, nanos(1));
    }
    spenders.take_back(Some(&agent(0)), nanos(1));
    assert_eq!(sum(&spenders), 39);
    let mut spenders = Spenders::default();
    spenders.book(Some(&agent(0)), None, nanos(7));
    spenders.take_back(Some(&agent(0)), nanos(7));
    assert_eq!(spenders, Spenders::default());
}

#[test]
fn stored_values_survive_an_upgrade() {
    let mut kept = Spenders::default();
    for number in 0..20_u8 {
        kept.book(Some(&agent(number)), None, nanos(u64::from(number) + 1));
    }
    let text = serde_json::to_string(&kept).unwrap();
    let mut read: Spenders = serde_json::from_str(&text).unwrap();
    assert_eq!(read, kept);
    for number in 20..30_u8 {
        for spenders in [&mut kept, &mut read] {
            spenders.book(Some(&agent(number)), None, nanos(3));
        }
    }
    assert_eq!(read, kept);
}
