//! The mark of a status: a sign besides its colour, so that it can be told in grey.

use maud::{Markup, html};

/// The sign and the class of a status in a word.
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

/// A status as people read it.
pub(super) fn words(word: &str) -> &str {
    match word {
        "input_required" => "asks you",
        "timed_out" => "timed out",
        "submitted" => "queued",
        other => other,
    }
}

/// The mark, with its word.
pub(super) fn mark(word: &str) -> Markup {
    let (sign, class) = sign(word);
    html! { span class={ "mark " (class) } { span aria-hidden="true" { (sign) } " " (words(word)) } }
}

/// The sign alone; its word is for those who can't see it.
pub(super) fn small(word: &str, is_again: bool) -> Markup {
    let (sign, class) = sign(word);
    let sign = if is_again && class == "busy" { "↻" } else { sign };
    html! {
        span class={ "mark " (class) } title=(words(word)) {
            span aria-hidden="true" { (sign) } span class="unseen" { (words(word)) }
        }
    }
}
