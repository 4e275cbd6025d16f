//! The mark of a status: a sign and a colour, so that it is distinct without colour too.

use maud::{Markup, html};

/// The sign and the class of a status.
fn sign(word: &str) -> (&'static str, &'static str) {
    match word {
        "completed" => ("✓", "good"),
        "partial" => ("◑", "good"),
        "working" | "running" | "undoing" => ("●", "busy"),
        "input_required" => ("◐", "asks"),
        "paused" => ("‖", "asks"),
        "submitted" | "pending" => ("○", "idle"),
        "cancelled" | "skipped" | "rejected" => ("⊘", "idle"),
        _ => ("✕", "bad"),
    }
}

/// The class of a status.
pub(super) fn class(word: &str) -> &'static str {
    sign(word).1
}

/// The sign of a status.
pub(super) fn sign_of(word: &str) -> &'static str {
    sign(word).0
}

/// A status in words for people.
pub(super) fn words(word: &str) -> &str {
    match word {
        "input_required" => "asks you",
        "timed_out" => "timed out",
        "submitted" => "queued",
        other => other,
    }
}

/// The sign with its words.
pub(super) fn mark(word: &str) -> Markup {
    let (sign, class) = sign(word);
    html! { span class={ "mark " (class) } { span aria-hidden="true" { (sign) } " " (words(word)) } }
}

/// Only the sign; the words are for screen readers and the tooltip.
pub(super) fn small(word: &str, is_again: bool) -> Markup {
    let (sign, class) = sign(word);
    let sign = if is_again && class == "busy" { "↻" } else { sign };
    html! {
        span class={ "mark " (class) } title=(words(word)) {
            span aria-hidden="true" { (sign) } span class="unseen" { (words(word)) }
        }
    }
}
