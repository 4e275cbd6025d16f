//! Finds runs and open questions (G17): the store's index chooses candidates, newest first, and the
//! stored data of each candidate decides. Reads only.

use std::collections::HashMap;

use domain::{
    Problems, Timestamp, TraceId,
    wire::{
        PendingQuery, PendingQuestion, QueryAnswer, Refusal, RunSummary, RunsCursor, RunsQuery, TracePrefix,
    },
};
use trace::{ContextNode, Trace, terms_of};

use crate::{
    directory,
    loops::Handles,
    sealed::OpenedTrace,
    store::{self, Find},
};

/// The most runs one answer lists.
const MAX_RUNS: u32 = 500;
/// The most runs whose questions one answer lists: each is loaded whole.
const MAX_WAITING: u32 = 100;
/// The most candidates that are read for one answer. A client can continue from there.
const MAX_READ: usize = 5_000;
/// An answer stays below this size plus the text of one run or question: the bus refuses larger
/// answers.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A page of runs, and where the next one begins.
struct Page {
    runs: Vec<RunSummary>,
    next: Option<RunsCursor>,
}

pub(super) async fn runs(handles: &Handles, query: &RunsQuery) -> Result<QueryAnswer, directory::Error> {
    let limit = query.limit.min(MAX_RUNS) as usize;
    let page = match &query.prefix {
        Some(prefix) => match named(handles, query, prefix.as_str(), limit).await? {
            Some(page) => page,
            None => return Ok(QueryAnswer::Refused(Refusal::invalid(&too_many(prefix)))),
        },
        None => page(handles, query, limit).await?,
    };
    let none = page.runs.is_empty() && page.next.is_none() && query.is_filter();
    let unfiltered = if none { Some(handles.store.run_count().await?) } else { None };
    Ok(QueryAnswer::Runs { runs: page.runs, next: page.next, unfiltered })
}

async fn page(handles: &Handles, query: &RunsQuery, limit: usize) -> Result<Page, store::Error> {
    let least = query.min_cost_usd.map_or(0, |usd| usd.nanos());
    let most = query.max_cost_usd.map_or(u64::MAX, |usd| usd.nanos());
    let mut find = Find {
        terms: terms_of(query),
        cost: (query.min_cost_usd.is_some() || query.max_cost_usd.is_some()).then_some((least, most)),
        since: query.since.unwrap_or_default(),
        until: query.until,
        after: query.after.map(|after| (after.started_at, after.trace_id)),
        any_age: query.waiting_for_human == Some(true),
        limit: 0,
    };
    let (mut runs, mut bytes, mut read): (Vec<RunSummary>, usize, usize) = Default::default();
    loop {
        // One more than requested: there is a next page only if it has an entry.
        find.limit = limit + 1 - runs.len();
        let places = handles.store.find(&find).await?;
        let ids: Vec<TraceId> = places.iter().map(|(id, _)| *id).collect();
        let summaries = summaries(handles, &ids).await?;
        for run in ids.iter().filter_map(|id| summaries.get(id)).filter(|run| query.matches(run)) {
            if runs.len() == limit || bytes > MAX_ANSWER_BYTES {
                let next = runs.last().map(place);
                return Ok(Page { runs, next });
            }
            bytes += goal_bytes(run);
            runs.push(run.clone());
        }
        read += places.len();
        let Some((trace, at)) = places.last().copied().filter(|_| places.len() == find.limit) else {
            return Ok(Page { runs, next: None });
        };
        if read >= MAX_READ {
            return Ok(Page { runs, next: Some(RunsCursor { started_at: at, trace_id: trace }) });
        }
        find.after = Some((at, trace));
    }
}

fn too_many(prefix: &TracePrefix) -> Problems {
    let message = format!("more than {MAX_READ} runs begin with {prefix}");
    Problems::one("runs.prefix", message, Some("give more digits".into()))
}

/// The runs whose ids begin with a prefix, sorted here; none if there are too many.
async fn named(
    handles: &Handles,
    query: &RunsQuery,
    prefix: &str,
    limit: usize,
) -> Result<Option<Page>, store::Error> {
    let ids = handles.store.with_prefix(prefix, MAX_READ + 1).await?;
    if ids.len() > MAX_READ {
        return Ok(None);
    }
    let summaries = summaries(handles, &ids).await?;
    let after = |run: &RunSummary| {
        let after = query.after.map(|after| (after.started_at, after.trace_id));
        after.is_none_or(|after| (run.started_at, run.trace_id) < after)
    };
    let fits = |run: &RunSummary| query.matches(run) && after(run);
    let mut runs: Vec<RunSummary> = summaries.into_values().filter(fits).collect();
    runs.sort_unstable_by_key(|run| std::cmp::Reverse((run.started_at, run.trace_id)));
    let mut bytes = 0;
    let fits = runs.iter().take(limit).take_while(|run| {
        let fits = bytes <= MAX_ANSWER_BYTES;
        bytes += goal_bytes(run);
        fits
    });
    let fit = fits.count();
    let next = (runs.len() > fit).then(|| runs.get(fit.saturating_sub(1)).map(place)).flatten();
    runs.truncate(fit);
    Ok(Some(Page { runs, next }))
}

fn goal_bytes(run: &RunSummary) -> usize {
    run.goal.as_ref().map_or(0, |goal| goal.as_str().len())
}

fn place(run: &RunSummary) -> RunsCursor {
    RunsCursor { started_at: run.started_at, trace_id: run.trace_id }
}

/// The summaries of runs that exist and can be read.
async fn summaries(handles: &Handles, ids: &[TraceId]) -> Result<HashMap<TraceId, RunSummary>, store::Error> {
    let roots = handles.store.fields(ids, &Trace::SUMMARY_FIELDS).await?;
    let summary = |(id, root): (&TraceId, HashMap<String, String>)| {
        let summary = Trace::summary(*id, &root).inspect_err(
            |error| tracing::error!(trace_id = %id, %error, "a stored trace can't be read; it is left out of the list of runs"),
        );
        Some((*id, summary.ok().flatten()?))
    };
    Ok(ids.iter().zip(roots).filter_map(summary).collect())
}

pub(super) async fn pending(
    handles: &Handles,
    query: &PendingQuery,
) -> Result<QueryAnswer, directory::Error> {
    let waiting = RunsQuery { waiting_for_human: Some(true), after: query.after, ..RunsQuery::default() };
    let Page { runs, next } = page(handles, &waiting, query.limit.min(MAX_WAITING) as usize).await?;
    let now = handles.clock.now();
    let (mut questions, mut bytes, mut left_out) = (Vec::new(), 0, 0);
    let mut last = None;
    for run in &runs {
        if bytes > MAX_ANSWER_BYTES {
            return Ok(QueryAnswer::Pending { questions, next: last, left_out });
        }
        for question in open_questions(handles, run.trace_id, now).await? {
            if bytes > MAX_ANSWER_BYTES {
                left_out += 1;
                continue;
            }
            bytes += serde_json::to_string(&question).map_or(0, |text| text.len());
            questions.push(question);
        }
        last = Some(place(run));
    }
    Ok(QueryAnswer::Pending { questions, next, left_out })
}

async fn open_questions(
    handles: &Handles,
    id: TraceId,
    now: Timestamp,
) -> Result<Vec<PendingQuestion>, store::Error> {
    let loaded = handles.store.load(&[id]).await?.pop();
    let Some(record) = loaded.and_then(OpenedTrace::record) else { return Ok(Vec::new()) };
    let trace = match Trace::from_stored(id, record.version, &record.fields, &record.values) {
        Ok(trace) => trace,
        Err(error) => {
            tracing::error!(trace_id = %id, %error, "a stored trace can't be read; its questions are left out");
            return Ok(Vec::new());
        }
    };
    let ask = |node: &ContextNode| {
        let (question, asked_at) = (trace.question(&node.id)?, node.lifecycle.clock_stopped_at);
        Some(PendingQuestion { question, asked_at, age_ms: now.millis_since(asked_at) })
    };
    Ok(trace.contexts().iter().filter_map(ask).collect())
}
