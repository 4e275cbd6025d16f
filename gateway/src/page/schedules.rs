//! Schedules: their times, their next tick, and the outcome of the last one.

use domain::{
    Timestamp,
    wire::{ScheduleSummary, TickRecord},
};
use host::clock::Clock;
use maud::{Markup, html};
use text::human_time;

use super::{answer, shell::Here};
use crate::{call::Call, problem::ApiResult, routes::page_of_schedules, types::SchedulesPage};

pub(super) async fn list(call: Call) -> ApiResult {
    let SchedulesPage { schedules, next } = page_of_schedules(&call).await?;
    let is_first = call.all("after").next().is_none();
    let limit = call.all("limit").next().map(|limit| format!("&limit={limit}")).unwrap_or_default();
    let now = Clock::Machine.now();
    let body = html! {
        h1 { "Schedules" }
        @if schedules.is_empty() && is_first {
            section class="empty" {
                p { "There are no schedules yet. In a shell:" }
                pre { "trellis schedules apply examples/nightly.yaml" }
            }
        } @else if schedules.is_empty() {
            p { "There are no further schedules." }
        } @else {
            table class="list" {
                caption class="unseen" { "All schedules, by name" }
                thead { tr { @for name in ["Schedule", "When", "Next", "Last", "Run", "Skipped", "Missed", "Stored"] { th scope="col" { (name) } } } }
                tbody { @for one in &schedules { (line(one, now)) } }
            }
        }
        nav class="pages" aria-label="Pages" {
            @if !is_first { a href="schedules" { "First" } }
            @if let Some(next) = next { a href={ "schedules?after=" (next) (limit) } { "More" } }
        }
    };
    answer::page(&call, "schedules", Here::Schedules, &body)
}

fn line(one: &ScheduleSummary, now: Timestamp) -> Markup {
    let ScheduleSummary { name, cron, time_zone, runs, skipped, missed, .. } = one;
    html! {
        tr {
            th scope="row" { a href={ "./?label=schedule%3D" (name) } title="Its runs" { (name) } }
            td data-name="When" { code { (cron) } " " span class="kind" { (time_zone) } }
            td data-name="Next" { (next(one, now)) }
            td data-name="Last" { @if let Some(last) = &one.last { (last_tick(last, now)) } }
            td data-name="Run" { (runs) }
            td data-name="Skipped" { (skipped) }
            td data-name="Missed" { (missed) }
            td data-name="Stored" { a href={ "v1/schedules/" (name) } { "JSON" span class="unseen" { " of " (name) } } }
        }
    }
}

fn next(one: &ScheduleSummary, now: Timestamp) -> Markup {
    html! {
        @match (&one.unreadable, one.paused, one.next, one.waits_for) {
            (Some(why), ..) => span class="mark bad" { "can't be read: " (why) },
            (None, true, ..) => span class="mark asks" { "‖ paused" },
            (None, false, None, _) => span class="of" { "none" },
            (None, false, Some(_), Some(run)) => { "due; waits for the " a href={ "runs/" (run) } { "previous run" } },
            (None, false, Some(at), None) => {
                (at) " "
                span class="of" { @if at > now { "in " (human_time::age(at.millis_since(now))) } @else { "due" } }
            }
        }
    }
}

fn last_tick(last: &TickRecord, now: Timestamp) -> Markup {
    html! {
        @match last.trace_id {
            Some(run) => a href={ "runs/" (run) } { (last.outcome.words()) },
            None => (last.outcome.words()),
        }
        " " span class="of" title=(last.at) { (human_time::ago(now, last.at)) }
        @if let Some(why) = &last.reason { " " span class="said" { (why) } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schedule(more: &serde_json::Value) -> ScheduleSummary {
        let mut whole = json!({
            "name": "nightly", "revision": 1, "cron": "<img src=x onerror=alert(1)>", "time_zone": "<b>UTC</b>",
            "paused": false, "runs": 3, "skipped": 0, "missed": 0,
        });
        let (Some(whole_fields), Some(more)) = (whole.as_object_mut(), more.as_object()) else {
            unreachable!()
        };
        whole_fields.extend(more.clone());
        serde_json::from_value(whole).expect("a schedule")
    }

    #[test]
    fn the_text_of_a_schedule_stays_text() {
        let shown = line(&schedule(&json!({"unreadable": "<i>new</i>"})), Timestamp::from_millis(0)).0;
        assert!(shown.contains("&lt;img src=x onerror=alert(1)&gt;"), "{shown}");
        assert!(!shown.contains("<img") && !shown.contains("<b>") && !shown.contains("<i>"), "{shown}");
    }

    #[test]
    fn the_next_tick_is_shown_by_its_state() {
        let now = Timestamp::from_millis(1_000_000);
        for (more, words) in [
            (json!({}), "none"),
            (json!({"paused": true}), "paused"),
            (json!({"next": 1_060_000}), "in 1 min 0 s"),
            (json!({"next": 900_000}), "due"),
        ] {
            let shown = next(&schedule(&more), now).0;
            assert!(shown.contains(words), "{more}: {shown}");
        }
    }
}
