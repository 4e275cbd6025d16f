//! The state of the deployment: findings, coordinators with their partitions, queues, and the fill
//! of the streams.

use axum::http::StatusCode;
use bus::{Backlog, ClientBus, Consumer, Fill};
use domain::{
    subject::{Filter, Subject},
    wording::size,
};
use host::clock::Clock;
use maud::{Markup, html};
use text::human_time;

use super::{answer, shell::Here};
use crate::{
    call::Call,
    doctor::{Finding, Level},
    problem::ApiResult,
    routes::coordinators_now,
    types::Coordinators,
};

/// The findings of these checks are shown to administrators only.
const OF_ADMINISTRATORS: [&str; 6] =
    ["dead-letters", "intake", "queues", "spans", "storage", "stream-settings"];

pub(super) async fn show(call: Call) -> ApiResult {
    let (findings, coordinators) = tokio::join!(call.watched.findings(), coordinators_now(&call));
    // Without a coordinator, the user needs the rest of this page most.
    let coordinators = match coordinators {
        Err(problem) if problem.status() != StatusCode::SERVICE_UNAVAILABLE => return Err(problem),
        told => told,
    };
    // Queues, sizes and dead letters are for administrators only, as in the HTTP API.
    let is_admin = Here::Dead.is_for(&call);
    let findings: Vec<&Finding> =
        findings.0.iter().filter(|finding| is_admin || !OF_ADMINISTRATORS.contains(&finding.check)).collect();
    let body = html! {
        h1 { "Operations" }
        p class="state" { (summary(&findings)) }
        (told(&findings))
        (of_coordinators(&coordinators))
        @if is_admin {
            (of_queues(&queues(call.client.bus()).await))
            @match &call.client.bus().fill().await {
                Ok(fills) => (of_streams(fills)),
                Err(_) => p class="wrong" { "The sizes of the streams are unknown: the bus does not answer, or denies the query." },
            }
        }
        p class="hint" { "This server is version " (env!("CARGO_PKG_VERSION")) ". " a href="workers" { "Workers" } " show their versions in their rows." }
    };
    answer::page(&call, "operations", Here::Operations, &body)
}

/// The number of failures and warnings, in one line.
fn summary(findings: &[&Finding]) -> Markup {
    let number = |wanted: &[Level]| findings.iter().filter(|finding| wanted.contains(&finding.level)).count();
    let (bad, odd) = (number(&[Level::Fail, Level::Unreachable]), number(&[Level::Warn]));
    html! {
        @match (bad, odd) {
            (0, 0) => span class="mark good" { "✓ no problems" },
            (0, _) => span class="mark asks" { "◐ " (domain::wording::count(odd, "warning")) },
            (_, _) => span class="mark bad" { "✕ " (domain::wording::count(bad, "check")) " failed" @if odd > 0 { ", " (domain::wording::count(odd, "warning")) } },
        }
    }
}

/// All findings, the worst first.
fn told(findings: &[&Finding]) -> Markup {
    let mut all = findings.to_vec();
    all.sort_by_key(|finding| match finding.level {
        Level::Unreachable | Level::Fail => 0,
        Level::Warn => 1,
        Level::Ok => 2,
        Level::NotChecked => 3,
    });
    html! {
        h2 { "Findings" }
        ul class="plain findings" {
            @for Finding { check, level, found, hint } in all {
                li {
                    (mark(*level)) " " strong { (check) } " " span class="said" { (found) }
                    @if let Some(hint) = hint { p class="hint" { (hint) } }
                }
            }
        }
        p class="hint" { code { "trellis doctor" } " shows the same findings, and also checks Redis, the rights of its login, and key files." }
    }
}

fn mark(level: Level) -> Markup {
    let (class, sign, word) = match level {
        Level::Ok => ("good", "✓", "ok"),
        Level::NotChecked => ("idle", "○", "not checked"),
        Level::Warn => ("asks", "◐", "warning"),
        Level::Fail | Level::Unreachable => ("bad", "✕", "failed"),
    };
    html! { span class={ "mark " (class) } { span aria-hidden="true" { (sign) } span class="unseen" { (word) } } }
}

fn of_coordinators(coordinators: &ApiResult<Coordinators>) -> Markup {
    html! {
        h2 { "Coordinators" }
        @match coordinators {
            Ok(Coordinators { coordinators, policies, partitions }) => {
                table class="list" {
                    caption class="unseen" { "Coordinators that are alive" }
                    thead { tr { th scope="col" { "Coordinator" } th scope="col" { "Partitions" } } }
                    tbody {
                        @for (place, one) in coordinators.iter().enumerate() {
                            tr {
                                th scope="row" { (one) }
                                td data-name="Partitions" { (partitions.get(place).map(|owned| ranges(owned)).unwrap_or_default()) }
                            }
                        }
                    }
                }
                @if policies.len() > 1 {
                    p class="wrong" { "The coordinators have different settings: the longest retention and the lowest maximum apply." }
                }
                @for policy in policies {
                    p class="hint" {
                        "Runs are kept " (human_time::age(policy.retention_ms))
                        @if let Some(most) = policy.max_cost_usd { ", and one run may cost at most " (most) } "."
                    }
                }
            }
            Err(problem) => {
                @let (detail, hint) = problem.told();
                p class="wrong" { (detail) @if let Some(hint) = hint { ": " (hint) } }
            }
        }
    }
}

/// The numbers with neighbours joined: `0-2, 5`.
fn ranges(numbers: &[u16]) -> String {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*number) => *last = *number,
            Some(_) | None => ranges.push((*number, *number)),
        }
    }
    let word = |(first, last): &(u16, u16)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// A queue and its waiting messages.
struct Queue {
    name: String,
    waits: &'static str,
    backlog: Backlog,
}

/// The backlogs of all queues that the bus allows to read.
async fn queues(bus: &ClientBus) -> Vec<Queue> {
    let mut asked = vec![
        (Consumer::Intake, "intake".to_owned(), "client messages for coordinators"),
        (Consumer::Span, "spans".to_owned(), "contexts whose spans wait for export"),
    ];
    for subject in bus.subjects(&Filter::Executes).await.unwrap_or_default() {
        if let Subject::Execute(pool) = subject {
            let name = format!("pool {pool}");
            asked.insert(0, (Consumer::Execute(pool), name, "tasks for workers"));
        }
    }
    let mut queues = Vec::new();
    for (consumer, name, waits) in asked {
        if let Ok(backlog) = bus.backlog(&consumer).await {
            queues.push(Queue { name, waits, backlog });
        }
    }
    queues
}

fn of_queues(queues: &[Queue]) -> Markup {
    html! {
        h2 { "Queues" }
        @if queues.is_empty() { p class="hint" { "The credentials of this server do not allow it to read the queues." } }
        @else {
            table class="list" {
                caption class="unseen" { "Waiting messages by queue" }
                thead { tr { @for name in ["Queue", "Waiting", "In progress", "Oldest wait"] { th scope="col" { (name) } } } }
                tbody {
                    @for Queue { name, waits, backlog } in queues {
                        tr {
                            th scope="row" { (name) " " span class="kind" { (waits) } }
                            td data-name="Waiting" { (backlog.pending) }
                            td data-name="In progress" { (backlog.unacknowledged) }
                            td data-name="Oldest wait" {
                                @match backlog.oldest {
                                    Some(oldest) => (human_time::lasts(Clock::Machine.now().millis_since(oldest))),
                                    None => span class="of" { "empty" },
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn of_streams(fills: &[Fill]) -> Markup {
    html! {
        h2 { "Streams" }
        table class="list" {
            caption class="unseen" { "The size of each stream" }
            thead { tr { @for name in ["Stream", "Stored", "Limit", "Full", "Messages"] { th scope="col" { (name) } } } }
            tbody {
                @for fill in fills {
                    tr {
                        th scope="row" { (fill.storage.name()) }
                        td data-name="Stored" { (size(fill.bytes)) }
                        td data-name="Limit" { @match fill.max_bytes { Some(most) => (size(most)), None => "no limit" } }
                        td data-name="Full" { (fill.percent()) " %" }
                        td data-name="Messages" { @if fill.last >= fill.first && fill.last > 0 { (fill.first) " to " (fill.last) } @else { "none" } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Findings;

    #[test]
    fn partitions_that_are_neighbours_stand_together() {
        for (numbers, told) in
            [(&[][..], ""), (&[3], "3"), (&[0, 1, 2, 5, 7, 8], "0-2, 5, 7-8"), (&[u16::MAX], "65535")]
        {
            assert_eq!(ranges(numbers), told);
        }
    }

    #[test]
    fn findings_are_listed_the_worst_first_and_stay_text() {
        let mut findings = Findings::default();
        findings.add("storage", Level::Ok, "<b>fine</b>", None);
        findings.add("dead-letters", Level::Warn, "of others", Some("look"));
        findings.add("workers", Level::Fail, "none answers", Some("start one"));
        let findings: Vec<&Finding> = findings.0.iter().collect();
        let shown = told(&findings).0;
        let place = |text: &str| shown.find(text).unwrap_or(usize::MAX);
        assert!(
            place("none answers") < place("of others") && place("of others") < place("&lt;b&gt;fine"),
            "{shown}"
        );
        assert!(summary(&findings).0.contains("1 check failed, 1 warning"), "{}", summary(&findings).0);
    }
}
