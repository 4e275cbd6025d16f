//! The index of runs (G17), on all stores: the entries that a commit adds and removes, and reading
//! them.

use std::collections::BTreeMap;

use coordinator::store::{Find, Replaces, Store, Write};
use domain::{Timestamp, TraceId};

use super::store::{at, commit, trace, write};

/// A run as the index stores it.
#[derive(Debug, Clone)]
struct Run {
    at: u64,
    cost: Option<u64>,
    terms: Vec<String>,
}

impl Run {
    fn new(at: u64, terms: &[&str]) -> Run {
        Run { at, cost: None, terms: terms.iter().map(|term| (*term).to_owned()).collect() }
    }

    fn text(&self) -> Option<String> {
        let cost = self.cost.map_or_else(|| "-".to_owned(), |cost| cost.to_string());
        Some([vec![self.at.to_string(), cost], self.terms.clone()].concat().join(" "))
    }
}

/// Stores a version of a run with this index entry.
async fn put(store: &Store, number: u128, version: u64, run: &Run) {
    let opened_at = (version == 1).then(|| at(run.at));
    commit(store, Write { opened_at, index: run.text(), ..write(trace(number), version) }).await;
}

fn with(terms: &[&[&str]]) -> Find {
    let group = |group: &&[&str]| group.iter().map(|term| (*term).to_owned()).collect();
    Find { terms: terms.iter().map(group).collect(), ..Find::newest(100) }
}

async fn found(store: &Store, find: &Find) -> Vec<TraceId> {
    store.find(find).await.unwrap().into_iter().map(|(id, _)| id).collect()
}

/// proves: the script removes a run from the lists of its former terms.
pub(super) async fn g17_a_run_is_listed_under_the_terms_it_has_now(store: Store) {
    put(&store, 1, 1, &Run::new(10, &["status:working", "agent:a", "label:k=v"])).await;
    put(&store, 2, 1, &Run::new(20, &["status:working", "agent:b", "label:k=v"])).await;
    put(&store, 3, 1, &Run::new(30, &["status:submitted", "agent:a"])).await;
    assert_eq!(found(&store, &with(&[&["status:working"]])).await, [trace(2), trace(1)]);
    assert_eq!(found(&store, &with(&[&["status:working"], &["agent:a"]])).await, [trace(1)]);
    assert_eq!(found(&store, &with(&[&["label:k=v"], &["agent:a", "agent:b"]])).await, [trace(2), trace(1)]);
    let either = with(&[&["status:working", "status:submitted"]]);
    assert_eq!(found(&store, &either).await, [trace(3), trace(2), trace(1)]);
    assert_eq!(found(&store, &with(&[&["status:none"]])).await, []);

    put(&store, 1, 2, &Run::new(10, &["status:completed", "agent:a", "label:k=v"])).await;
    assert_eq!(
        found(&store, &with(&[&["status:working"]])).await,
        [trace(2)],
        "the trace has another status"
    );
    assert_eq!(found(&store, &with(&[&["status:completed"]])).await, [trace(1)]);
    assert_eq!(found(&store, &with(&[&["agent:a"]])).await, [trace(3), trace(1)], "unchanged entries remain");
    // A commit without index changes leaves the entry alone; a refused commit changes nothing.
    commit(&store, write(trace(1), 3)).await;
    put(&store, 1, 3, &Run::new(10, &["status:failed"])).await;
    assert_eq!(
        found(&store, &with(&[&["status:completed"], &["agent:a"], &["label:k=v"]])).await,
        [trace(1)]
    );
    assert_eq!(found(&store, &with(&[&["status:failed"]])).await, []);
    let fields = store.fields(&[trace(1)], &["index"]).await.unwrap().remove(0);
    assert_eq!(fields["index"], "10 - status:completed agent:a label:k=v");
}

/// proves: the merge of the partitions' lists, with many runs in one millisecond, and the start of
/// each page.
pub(super) async fn g17_pages_are_those_of_a_naive_list_while_runs_arrive(store: Store) {
    let mut all: BTreeMap<(Timestamp, TraceId), Run> = BTreeMap::new();
    let run = |number: u128| {
        let at = 1_000 + u64::try_from(number / 40).unwrap();
        let terms =
            [format!("status:{}", number % 3), format!("agent:{}", number % 7), format!("label:n={number}")];
        Run {
            at,
            cost: number.is_multiple_of(2).then_some(u64::try_from(number * 100).unwrap()),
            terms: terms.into(),
        }
    };
    for number in 1..=400 {
        put(&store, number, 1, &run(number)).await;
        all.insert((at(run(number).at), trace(number)), run(number));
    }
    let finds = [
        Find::newest(0),
        with(&[&["status:1"]]),
        with(&[&["status:1", "status:2"], &["agent:3"]]),
        with(&[&["agent:0", "agent:1", "agent:2"], &["status:0"]]),
        Find { cost: Some((5_000, 20_000)), ..with(&[&["agent:4"]]) },
        Find { since: at(1_002), until: Some(at(1_006)), ..with(&[&["status:2"]]) },
    ];
    let mut late = 1_000;
    for find in finds {
        let fits = |run: &Run| {
            find.terms.iter().all(|any| any.iter().any(|term| run.terms.contains(term)))
                && find
                    .cost
                    .is_none_or(|(least, most)| run.cost.is_none_or(|cost| least <= cost && cost <= most))
                && at(run.at) >= find.since
                && find.until.is_none_or(|until| at(run.at) < until)
        };
        let naive: Vec<TraceId> =
            all.iter().rev().filter(|(_, run)| fits(run)).map(|((_, id), _)| *id).collect();
        for limit in [1, 7, 64] {
            let (mut pages, mut after) = (Vec::new(), None);
            loop {
                let page = store.find(&Find { after, limit, ..find.clone() }).await.unwrap();
                assert!(page.len() <= limit);
                let Some((last, began)) = page.last().copied() else { break };
                after = Some((began, last));
                pages.extend(page.into_iter().map(|(id, _)| id));
                // Newer matching runs come before all pages that are still to come.
                late += 1;
                let newer = Run { at: 5_000, ..run(1) };
                put(&store, late, 1, &Run { terms: vec!["status:1".into(), "agent:3".into()], ..newer })
                    .await;
                let ended = store.remove(trace(late), 1).await.unwrap();
                assert!(ended);
            }
            assert_eq!(pages, naive, "{find:?} in pages of {limit}");
        }
    }
    assert_eq!(store.run_count().await.unwrap(), 400);
}

/// proves: costs are compared as numbers, and a run with an unknown cost is a candidate.
pub(super) async fn g17_runs_are_found_by_cost_and_time(store: Store) {
    for (number, cost) in [(1, Some(0)), (2, Some(9_000_000_000_000_000)), (3, Some(1_500)), (4, None)] {
        put(&store, number, 1, &Run { cost, ..Run::new(number as u64 * 10, &["t"]) }).await;
    }
    let costs = |least, most| Find { cost: Some((least, most)), ..Find::newest(9) };
    assert_eq!(found(&store, &costs(0, 0)).await, [trace(4), trace(1)]);
    assert_eq!(found(&store, &costs(1_500, 1_500)).await, [trace(4), trace(3)]);
    assert_eq!(found(&store, &costs(1_501, u64::MAX)).await, [trace(4), trace(2)]);
    assert_eq!(
        found(&store, &Find { cost: Some((1, u64::MAX)), ..with(&[&["t"]]) }).await,
        [4, 3, 2].map(trace)
    );
    put(&store, 4, 2, &Run { cost: Some(7), ..Run::new(40, &["t"]) }).await;
    assert_eq!(found(&store, &costs(8, u64::MAX)).await, [trace(3), trace(2)]);
    put(&store, 4, 3, &Run::new(40, &["t"])).await;
    assert_eq!(
        found(&store, &costs(8, u64::MAX)).await,
        [4, 3, 2].map(trace),
        "the cost is unknown after the change"
    );
    let between = Find { since: at(20), until: Some(at(40)), ..Find::newest(9) };
    assert_eq!(found(&store, &between).await, [trace(3), trace(2)]);
    assert_eq!(found(&store, &Find { until: Some(at(0)), ..Find::newest(9) }).await, []);
    assert_eq!(found(&store, &Find::newest(0)).await, []);
}

/// proves: an entry is removed with its run, and when a rebuild replaces the run.
pub(super) async fn g17_a_trace_that_is_replaced_or_removed_leaves_no_entry(store: Store) {
    let old = Run { cost: Some(5), ..Run::new(10, &["status:completed", "agent:a"]) };
    for number in 1..=2 {
        put(&store, number, 1, &old).await;
    }
    let new = Run::new(11, &["status:working", "agent:a"]);
    let index = new.text();
    let rebuilt =
        Write { replaces: Replaces::AllButOutboxes, index, opened_at: Some(at(11)), ..write(trace(1), 2) };
    commit(&store, rebuilt).await;
    assert_eq!(found(&store, &with(&[&["status:completed"]])).await, [trace(2)]);
    assert_eq!(store.find(&with(&[&["agent:a"]])).await.unwrap(), [(trace(1), at(11)), (trace(2), at(10))]);
    assert_eq!(found(&store, &Find { cost: Some((6, 9)), ..Find::newest(9) }).await, [trace(1)]);
    commit(&store, Write { replaces: Replaces::AllButOutboxes, ..write(trace(2), 2) }).await;
    assert_eq!(
        found(&store, &with(&[&["agent:a"]])).await,
        [trace(1)],
        "a trace without entries is not in the index"
    );
    assert_eq!(store.with_prefix("000000", 9).await.unwrap(), [trace(1)]);
    assert!(store.remove(trace(1), 2).await.unwrap());
    assert_eq!(found(&store, &with(&[&["agent:a"]])).await, []);
    assert_eq!(store.with_prefix("000000", 9).await.unwrap(), []);
    // The id is free again, and no earlier entry is left.
    put(&store, 1, 1, &Run::new(50, &["agent:b"])).await;
    assert_eq!(found(&store, &with(&[&["status:working"]])).await, []);
    assert_eq!(found(&store, &with(&[&["agent:b"]])).await, [trace(1)]);
}

pub(super) async fn g17_an_id_is_found_by_its_first_digits(store: Store) {
    let ids: Vec<TraceId> = [0xabcd_u128, 0xabce, 0xabcd_ffff, 0xffff]
        .iter()
        .map(|start| {
            TraceId::from_u128((start << (128 - 16 * (1 + u32::from(*start > 0xffff)))) | 1).unwrap()
        })
        .collect();
    for id in &ids {
        commit(&store, Write { index: Run::new(1, &["t"]).text(), ..write(*id, 1) }).await;
    }
    let starts = |prefix: &'static str, limit| {
        let store = &store;
        async move { store.with_prefix(prefix, limit).await.unwrap() }
    };
    assert_eq!(starts("abcd", 9).await, [ids[0], ids[2]]);
    assert_eq!(starts("abcd", 1).await, [ids[0]]);
    assert_eq!(starts("abcdf", 9).await, [ids[2]]);
    assert_eq!(starts("ffff", 9).await, [ids[3]]);
    assert_eq!(starts("1234", 9).await, []);
    let whole = ids[1].to_string();
    assert_eq!(store.with_prefix(&whole, 9).await.unwrap(), [ids[1]]);
}

/// proves: a run that waits for a human is found although many newer runs exist.
pub(super) async fn g17_who_waits_for_a_human_is_found_at_any_age(store: Store) {
    put(&store, 1, 1, &Run::new(50, &["human"])).await;
    // As if thousands of newer runs had pushed it off the list.
    commit(&store, Write { index: Run::new(10, &["human", "agent:a"]).text(), ..write(trace(2), 1) }).await;
    assert_eq!(found(&store, &with(&[&["human"]])).await, [trace(1)]);
    let at_any_age = |terms: &[&[&str]]| Find { any_age: true, ..with(terms) };
    assert_eq!(found(&store, &at_any_age(&[&["human"]])).await, [trace(1), trace(2)]);
    assert_eq!(found(&store, &at_any_age(&[&["human"], &["agent:a"]])).await, [trace(2)]);
    let page = Find { after: Some((at(50), trace(1))), limit: 1, ..at_any_age(&[&["human"]]) };
    assert_eq!(found(&store, &page).await, [trace(2)]);
}
