//! Workers, one row each, with their slots.

use bus::{Bus, ClientBus};
use domain::{
    subject::{Action, Subject},
    wire::WorkerState,
    wording::count,
};
use maud::{Markup, html};
use text::human_time;

use super::{answer, row, shell::Here};
use crate::{call::Call, problem::ApiResult};

/// With more slots, the row shows only numbers.
const MOST_DOTS: u32 = 64;

pub(super) async fn list(call: Call) -> ApiResult {
    let workers = call.client.workers().await?;
    let drain = call.may_send(&Subject::Admin(Action::Drain)).then(|| ask(call.client.bus()));
    let body = html! {
        h1 { "Workers" }
        p class="state" { (summary(&workers)) }
        @if workers.is_empty() {
            section class="empty" {
                p { "No worker answers, so nothing is run. Start one, in a shell:" }
                pre { "trellis worker" }
                p class="hint" { "A `trellis dev` has its own worker: if a `trellis dev` serves this page, restart it." }
            }
        } @else {
            (table(&workers, drain))
        }
    };
    answer::page(&call, "workers", Here::Workers, &body)
}

/// The effect of draining a worker.
fn ask(bus: &ClientBus) -> &'static str {
    match bus {
        ClientBus::Direct(Bus::Nats(_)) | ClientBus::Http(_) => {
            "It takes no more work, finishes or hands back its attempts, and ends."
        }
        // In one process, `trellis dev` does not continue without its worker.
        ClientBus::Direct(Bus::Disk(_) | Bus::Memory(_)) => {
            "It finishes or hands back its attempts, and ends. The `trellis dev` that serves this page ends with it."
        }
    }
}

/// The number of workers, and their slots, in one line.
fn summary(workers: &[WorkerState]) -> String {
    let sum = |of: fn(&WorkerState) -> u32| workers.iter().map(|worker| u64::from(of(worker))).sum::<u64>();
    let mut told = format!(
        "{} · {} of {} busy",
        count(workers.len(), "worker"),
        sum(|worker| worker.running),
        count(sum(|worker| worker.slots), "slot")
    );
    let draining = workers.iter().filter(|worker| worker.draining).count();
    if draining > 0 {
        told.push_str(&format!(" · {draining} draining"));
    }
    told
}

fn table(workers: &[WorkerState], drain: Option<&str>) -> Markup {
    html! {
        table class="list" {
            caption class="unseen" { "Workers that answer now" }
            thead {
                tr {
                    @for name in ["Worker", "Pool", "Slots", "State", "Version", "Up for", "Clock", "Policy"] { th scope="col" { (name) } }
                    @if drain.is_some() { th scope="col" { span class="unseen" { "Actions" } } }
                }
            }
            tbody { @for worker in workers { (line(worker, drain)) } }
        }
    }
}

fn line(worker: &WorkerState, drain: Option<&str>) -> Markup {
    let WorkerState { worker_id, pool, version, started_at, policy, draining, .. } = worker;
    html! {
        tr {
            th scope="row" { (worker_id) }
            td data-name="Pool" { (pool) }
            td data-name="Slots" { (dots(worker)) }
            td data-name="State" {
                @if *draining { span class="mark asks" { "ends soon: takes no more work" } } @else { span class="mark good" { "takes work" } }
            }
            td data-name="Version" { (version) }
            td data-name="Up for" title=(started_at) { (row::lasts(*started_at, None)) }
            td data-name="Clock" { (clock(worker.clock_ahead_ms)) }
            td data-name="Policy" { (policy) }
            @if let Some(ask) = drain {
                td {
                    @if !*draining {
                        button type="button" data-post={ "v1/workers/" (worker_id) "/drain" }
                            data-ask={ "Drain " (worker_id) "? " (ask) } {
                            "Drain" span class="unseen" { " " (worker_id) }
                        }
                    }
                }
            }
        }
    }
}

/// The slots as dots: a full dot is a running agent.
fn dots(worker: &WorkerState) -> Markup {
    let WorkerState { slots, running, .. } = *worker;
    let full = running.min(slots);
    html! {
        @if slots <= MOST_DOTS {
            span class="dots" aria-hidden="true" { @for slot in 0..slots { @if slot < full { "●" } @else { "○" } } } " "
        }
        span class="of" { (running) " of " (slots) }
    }
}

fn clock(ahead_ms: Option<i64>) -> Markup {
    html! {
        @match ahead_ms {
            None => span class="of" { "right" },
            Some(ahead) => span class="mark bad" {
                (human_time::lasts(ahead.unsigned_abs())) @if ahead < 0 { " behind" } @else { " ahead" }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn worker(slots: u32, running: u32) -> WorkerState {
        serde_json::from_value(json!({
            "worker_id": "w1", "pool": "default", "slots": slots, "running": running, "draining": false,
            "version": "<img src=x onerror=alert(1)>", "started_at": 0, "policy": "<b>all</b>",
        }))
        .expect("a worker")
    }

    #[test]
    fn the_text_of_a_worker_stays_text() {
        let shown = line(&worker(2, 1), Some("It ends.")).0;
        assert!(
            shown.contains("&lt;img src=x onerror=alert(1)&gt;") && shown.contains("&lt;b&gt;"),
            "{shown}"
        );
        assert!(!shown.contains("<img") && !shown.contains("<b>"), "{shown}");
    }

    #[test]
    fn a_dot_is_a_slot_and_too_many_are_a_number() {
        for (slots, running, full, free) in [(4, 1, 1, 3), (2, 5, 2, 0), (65, 3, 0, 0)] {
            let shown = dots(&worker(slots, running)).0;
            assert_eq!((shown.matches('●').count(), shown.matches('○').count()), (full, free), "{shown}");
            assert!(shown.contains(&format!("{running} of {slots}")), "{shown}");
        }
    }

    #[test]
    fn only_a_user_who_may_drain_sees_the_button() {
        assert!(line(&worker(1, 0), Some("It ends.")).0.contains("v1/workers/w1/drain"));
        assert!(!line(&worker(1, 0), None).0.contains("drain"));
    }
}
