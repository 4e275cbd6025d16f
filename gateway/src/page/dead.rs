//! The page of dead letters: messages that were refused for good, with the reasons, the newest
//! first.

use domain::wire::DeadLetter;
use host::clock::Clock;
use maud::{Markup, html};
use text::human_time;

use super::{answer, shell::Here};
use crate::{
    call::Call,
    problem::ApiResult,
    routes::dead_letters,
    types::{KeptLetter, LettersPage},
};

pub(super) async fn list(mut call: Call) -> ApiResult {
    // The form sends its empty fields too.
    call.query.retain(|(_, value)| !value.trim().is_empty());
    let LettersPage { letters, next } = dead_letters(&call).await?;
    let kind = call.all("kind").next().unwrap_or_default();
    let is_first = call.all("before").next().is_none();
    let rest: String = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(call.query.iter().filter(|(name, _)| name != "before"))
        .finish();
    let body = html! {
        h1 { "Dead letters" }
        form class="filters" method="get" action="dead" role="search" {
            label { "Kind " input name="kind" id="search" value=(kind) placeholder="such as cancel" size="16"; }
            button type="submit" { "Filter" }
            @if !call.query.is_empty() { a href="dead" { "Clear" } }
        }
        @if letters.is_empty() && call.query.is_empty() {
            section class="empty" {
                p { "There are none: every message was accepted. A message that is refused for good is stored here with the reason, for a limited time." }
            }
        } @else if letters.is_empty() {
            p { "No letter matches. " a href="dead" { "Show all" } }
        } @else {
            (table(&call, &letters))
        }
        nav class="pages" aria-label="Pages" {
            @if !is_first { a href={ "dead?" (rest) } { "Newest" } }
            @if let Some(next) = next { a href={ "dead?" (rest) "&before=" (next) } { "Older" } }
        }
    };
    answer::page(&call, "dead letters", Here::Dead, &body)
}

fn table(call: &Call, letters: &[KeptLetter]) -> Markup {
    html! {
        table class="list" {
            caption class="unseen" { "Messages that were refused for good, the newest first" }
            thead { tr { @for name in ["Kind", "When", "Why", "Subject", "About", "Stored"] { th scope="col" { (name) } } th scope="col" { span class="unseen" { "Actions" } } } }
            tbody { @for one in letters { (line(one, may_send_again(call, one))) } }
        }
    }
}

/// True if the message came through a queue and the caller may send it again.
fn may_send_again(call: &Call, kept: &KeptLetter) -> bool {
    !kept.letter.payload.is_empty()
        && call.client.queue_of(&kept.letter).is_some_and(|subject| call.may_send(&subject))
}

fn line(kept: &KeptLetter, may_send_again: bool) -> Markup {
    let KeptLetter { kind, sequence, stored_at, letter } = kept;
    let DeadLetter { subject, refusal, trace_id, child_id, .. } = letter;
    html! {
        tr {
            th scope="row" { a href={ "dead?kind=" (kind) } { (kind) } }
            td data-name="When" title=(stored_at) { (human_time::ago(Clock::Machine.now(), *stored_at)) }
            td data-name="Why" { span class="said" { (refusal.to_text()) } " " code class="id" { (refusal.code) " " (refusal.rule) } }
            td data-name="Subject" { code { (subject) } }
            td data-name="About" {
                @if let Some(trace) = trace_id { a href={ "runs/" (trace) } { "run " code { (trace.to_string().get(..8).unwrap_or_default()) } } " " }
                @if let Some(child) = child_id { span class="kind" { (child) } }
            }
            td data-name="Stored" { a href={ "v1/dead/" (kind) "/" (sequence) } { "JSON" span class="unseen" { " of letter " (sequence) } } }
            td { (actions(kept, may_send_again)) }
        }
    }
}

/// Buttons that drop a letter or send its message again. The user has to paste the message, because
/// a letter stores only its size and digest: the message may be private.
fn actions(kept: &KeptLetter, may_send_again: bool) -> Markup {
    let KeptLetter { kind, sequence, letter, .. } = kept;
    let path = format!("v1/dead/{kind}/{sequence}");
    html! {
        button type="button" data-post=(path) data-method="DELETE"
            data-ask={ "Drop letter " (sequence) "? It can't be restored." } {
            "Drop" span class="unseen" { " letter " (sequence) }
        }
        @if may_send_again {
            details {
                summary { "Send again" span class="unseen" { " letter " (sequence) } }
                form data-raw={ (path) "/retry" } {
                    label for={ "m-" (sequence) } { "The original message, " (letter.payload) }
                    textarea id={ "m-" (sequence) } name="message" rows="3" required {}
                    button type="submit" data-ask="Send this message again? It is handled like a new message." { "Send again" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{ChildId, Timestamp, wire::Refusal};

    use super::*;

    #[test]
    fn a_refused_message_stays_text() {
        let hostile = "<img src=x onerror=alert(1)>";
        let kept = KeptLetter {
            kind: ChildId::new("cancel").expect("an id"),
            sequence: 7,
            stored_at: Timestamp::from_millis(0),
            letter: DeadLetter::new(hostile, None, Refusal::new(hostile, hostile, hostile)),
        };
        let shown = line(&kept, true).0;
        assert_eq!(shown.matches("&lt;img src=x onerror=alert(1)&gt;").count(), 4, "{shown}");
        assert!(!shown.contains("<img") && shown.contains("v1/dead/cancel/7"), "{shown}");
    }
}
