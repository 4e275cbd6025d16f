//! The inbox: a card for each open question, with its possible answers, and for each run that waits
//! for a larger budget. A caller without the right to answer sees only the questions.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::http::StatusCode;
use client::RunList;
use domain::{
    subject::Subject,
    wire::{ContextStatus, Form, PendingQuestion, Question, RunSummary, RunsQuery},
    wording::count,
};
use maud::{Markup, html};
use text::human_time;

use super::{
    answer,
    fields::{self, Fields},
    money, raise, row,
    shell::Here,
    status,
};
use crate::{
    call::{Call, json},
    problem::ApiResult,
    routes::open_questions,
    types::QuestionsPage,
};

pub(super) async fn list(call: Call) -> ApiResult {
    let QuestionsPage { questions, next, left_out } = open_questions(&call).await?;
    let may_answer = call.may_send(&Subject::Steer);
    let is_first = call.all("after").next().is_none();
    let paused = if is_first { paused(&call).await? } else { Vec::new() };
    let limit = call.all("limit").next().map(|limit| format!("&limit={limit}")).unwrap_or_default();
    let body = html! {
        h1 { "Questions" }
        @if questions.is_empty() && paused.is_empty() && is_first {
            section class="empty" {
                p { "No question is open. Questions of agents, and steps that need an approval, appear here. To try one, in a shell:" }
                pre { "trellis submit examples/approval.yaml --agents examples/agents.yaml" }
            }
        } @else if questions.is_empty() && !is_first {
            p { "There are no older questions." }
        } @else if !may_answer {
            p class="hint" { "You can read these questions, but not answer them: that needs a token with the role client." }
        }
        ul class="cards" { @for one in &questions { (card(one, may_answer)) } }
        @if left_out > 0 {
            p class="hint" { "These runs have " (count(left_out, "more question")) ". They appear when these are answered." }
        }
        nav class="pages" aria-label="Pages" {
            @if !is_first { a href="questions" { "Newest" } }
            @if let Some(next) = next { a href={ "questions?after=" (next) (limit) } { "Older" } }
        }
        @if !paused.is_empty() {
            h2 { "Runs that wait for a larger budget" }
            ul class="cards" { @for run in &paused { (budget(&call, run)) } }
        }
    };
    answer::page(&call, "questions", Here::Questions, &body)
}

/// The newest runs that wait for people: for an answer, or for a larger budget.
async fn waiting(call: &Call) -> ApiResult<RunList> {
    let query = RunsQuery { waiting_for_human: Some(true), ..RunsQuery::default() };
    Ok(call.client.runs(&query).await??)
}

/// The waiting runs without a question: they wait only for a larger budget.
async fn paused(call: &Call) -> ApiResult<Vec<RunSummary>> {
    let RunList { mut runs, .. } = waiting(call).await?;
    runs.retain(|run| run.questions == 0);
    Ok(runs)
}

/// A card for a run whose own budget, or the budget of one of its agents, is used up.
fn budget(call: &Call, run: &RunSummary) -> Markup {
    let (id, trace) = (format!("b-{}", run.trace_id), run.trace_id.to_string());
    let name = run.goal.as_ref().map_or(run.child_id.as_str(), |goal| goal.as_str());
    html! {
        li class="card" {
            article aria-labelledby=(id) {
                p class="from" {
                    a class="name" href={ "runs/" (trace) } { "Run " code { (trace.get(..8).unwrap_or(&trace)) } }
                    (status::mark(run.status.name()))
                }
                h3 class="said" id=(id) { (row::short(name, 200)) }
                p class="from" { (money::ShownBudget::of_run(run).bar()) span class="kind" { (money::ShownBudget::of_run(run).told()) } }
                @if run.status == ContextStatus::Paused && raise::is_allowed(call) {
                    (raise::form(run.trace_id, &run.child_id, run.budget.limit.cost_usd))
                } @else {
                    p { a href={ "runs/" (trace) "#asked" } { "See which agent waits" } }
                }
            }
        }
    }
}

/// The number of open questions and paused runs, among the runs on one page of the list.
pub(super) async fn count_open(call: Call) -> ApiResult {
    let found = waiting(&call).await?;
    let questions: u32 = found.runs.iter().map(|run| run.questions.max(1)).sum();
    let mut hasher = DefaultHasher::new();
    for run in &found.runs {
        (run.trace_id, run.questions, run.budget.limit.cost_usd.nanos(), run.budget.spent.cost_usd.nanos())
            .hash(&mut hasher);
    }
    let print = format!("{:x}", hasher.finish());
    json(
        StatusCode::OK,
        &serde_json::json!({"questions": questions, "are_all": found.next.is_none(), "print": print}),
    )
}

/// The card of a question with its answers.
pub(super) fn card(pending: &PendingQuestion, may_answer: bool) -> Markup {
    let PendingQuestion { question, asked_at, age_ms } = pending;
    let run = question.trace_id.to_string();
    let path: Vec<&str> = question.path.iter().map(domain::ChildId::as_str).collect();
    let (asked, more) =
        question.question.as_str().split_once('\n').unwrap_or((question.question.as_str(), ""));
    let id = format!("q-{run}-{}-{}", question.child_id, question.number);
    html! {
        li class="card" {
            article aria-labelledby=(id) {
                p class="from" {
                    a class="name" href={ "runs/" (run) } { "Run " code { (run.get(..8).unwrap_or(&run)) } }
                    span class="kind" { (path.join(" › ")) }
                    span class="kind" { "waits " time data-since=(asked_at.millis()) { (human_time::age(*age_ms)) } }
                    @if question.reminder > 0 { span class="kind" { "asked again " (count(question.reminder, "time")) } }
                }
                h2 class="said" id=(id) { (asked) }
                @if !more.trim().is_empty() { p class="said" { (more.trim()) } }
                @if let Some(who) = &question.form.who { p class="hint" { "For " (who) } }
                @if let Some(told) = otherwise(question) { p class="hint" { (told) } }
                @if may_answer { (answers(question, &id)) }
            }
        }
    }
}

/// The result if no answer arrives in time.
fn otherwise(question: &Question) -> Option<String> {
    let by = question.answer_by?;
    Some(match &question.form.default {
        Some(default) => format!("Without an answer by {by}, the answer is “{default}”."),
        None => format!("Without an answer by {by}, the agent that asks fails."),
    })
}

/// The forms of the answers, which the script sends.
fn answers(question: &Question, id: &str) -> Markup {
    let Question { trace_id, child_id, number, form, .. } = question;
    let url = format!("v1/runs/{trace_id}/contexts/{child_id}/answers/{number}");
    let choices: Vec<&str> = match form {
        Form { choices, approval: true, .. } if choices.is_empty() => vec!["approve"],
        Form { choices, .. } => choices.iter().map(domain::wire::Text::as_str).collect(),
    };
    let done = "Answered: the run continues.";
    html! {
        div class="answers" {
            @if !choices.is_empty() {
                form method="post" action="questions" data-json=(url) data-done=(done) {
                    @for choice in &choices {
                        button type="submit" name="answer" value=(choice)
                            data-ask={ "Answer “" (choice) "”? The run continues with this answer, and it can't be changed." } { (choice) }
                    }
                }
            }
            @if form.approval {
                form method="post" action="questions" data-json=(url) data-done=(done) {
                    // The script joins fields of one name: `deny: REASON`.
                    button type="submit" name="answer" value="deny"
                        data-ask="Deny it? The work that needs the approval is not done, and the answer can't be changed." { "deny" }
                    label for={ (id) "-why" } { "Reason, if any" }
                    input id={ (id) "-why" } name="answer" autocomplete="off";
                }
            } @else if choices.is_empty() {
                (in_words(question, id, &url, done))
            }
            p class="told" role="alert" {}
        }
    }
}

/// The form of a free answer: fields if the schema allows them, text, or JSON.
fn in_words(question: &Question, id: &str, url: &str, done: &str) -> Markup {
    let ask = "Send this answer? The run continues with it, and it can't be changed.";
    let schema = question.form.schema.as_ref().map(|schema| schema.schema());
    let fields = schema.and_then(|schema| fields::of(schema.value(), id));
    let text = html! {
        form method="post" action="questions" data-json=(url) data-done=(done) {
            label for={ (id) "-text" } { @if schema.is_some() { "Answer, as JSON" } @else { "Answer" } }
            textarea id={ (id) "-text" } name="answer" rows="3" required {}
            @if let Some(schema) = schema {
                details { summary { "The form of the answer (JSON Schema)" } pre { (schema.to_text()) } }
            }
            button type="submit" data-ask=(ask) { "Send answer" }
        }
    };
    let Some(Fields { make, shown }) = fields else { return text };
    html! {
        form class="fields" method="post" action="questions" data-json=(url) data-done=(done) data-fields=(make) {
            (shown)
            button type="submit" data-ask=(ask) { "Send answer" }
        }
        details { summary { "Write it as JSON" } (text) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HOSTILE: &str = "<img src=x onerror=alert(1)>";

    fn pending(form: &Value) -> PendingQuestion {
        let mut whole = json!({
            "trace_id": "0af7651916cd43dd8448eb211c80319c", "child_id": "asker", "number": 2, "question": HOSTILE,
            "path": ["root", "asker"], "asked_at": 0, "age_ms": 61_000,
        });
        let (Some(fields), Some(form)) = (whole.as_object_mut(), form.as_object()) else { unreachable!() };
        fields.extend(form.clone());
        serde_json::from_value(whole).expect("a question")
    }

    #[test]
    fn the_question_of_an_agent_stays_text() {
        let shown =
            card(&pending(&json!({"who": HOSTILE, "choices": [HOSTILE, "\" autofocus x=\""]})), true).0;
        assert!(shown.contains("&lt;img src=x onerror=alert(1)&gt;"), "{shown}");
        assert!(!shown.contains("<img") && !shown.contains("\" autofocus"), "{shown}");
    }

    #[test]
    fn a_card_offers_the_answers_to_its_question() {
        let place = "v1/runs/0af7651916cd43dd8448eb211c80319c/contexts/asker/answers/2";
        for (form, offered, not_offered) in [
            (json!({}), vec!["<textarea"], vec!["value=\"deny\""]),
            (json!({"choices": ["red", "blue"]}), vec!["value=\"red\"", "value=\"blue\""], vec!["<textarea"]),
            (json!({"approval": true}), vec!["value=\"approve\"", "value=\"deny\""], vec!["<textarea"]),
            (
                json!({"approval": true, "choices": ["now"]}),
                vec!["value=\"now\"", "value=\"deny\""],
                vec!["value=\"approve\""],
            ),
            (
                json!({"schema": {"type": "integer"}}),
                vec!["data-fields=\"value\"", "type=\"number\"", "<textarea", "integer"],
                vec!["value=\"deny\""],
            ),
            (json!({"schema": {"type": "array"}}), vec!["<textarea", "array"], vec!["data-fields"]),
        ] {
            let shown = card(&pending(&form), true).0;
            assert!(shown.contains(place), "{form}: {shown}");
            assert!(offered.iter().all(|words| shown.contains(words)), "{form}: {shown}");
            assert!(!not_offered.iter().any(|words| shown.contains(words)), "{form}: {shown}");
            let read = card(&pending(&form), false).0;
            assert!(!read.contains("<form") && !read.contains("<button"), "{form}: {read}");
        }
    }
}
