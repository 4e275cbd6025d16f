//! The cost of the runs of the last 24 hours, as a small chart.

use axum::http::StatusCode;
use domain::Usd;
use maud::{Markup, html};

use super::answer;
use crate::{
    call::Call,
    problem::ApiResult,
    spend_last_24h::{HOURS, Today},
};

/// How many agents, and how many models, are listed by name.
const NAMED: usize = 5;
/// The size of the chart.
const WIDTH: usize = 120;
const HEIGHT: u64 = 24;

/// Only the chart: the list of runs loads it afterwards.
pub(super) async fn show(call: Call) -> ApiResult {
    let today = call.watched.today().await?;
    Ok(answer::document(StatusCode::OK, chart(&today)))
}

fn sum<'a>(amounts: impl Iterator<Item = &'a Usd>) -> Usd {
    Usd::from_nanos(amounts.fold(0, |sum, amount| sum.saturating_add(amount.nanos())))
}

fn chart(today: &Today) -> Markup {
    let Today { hours, agents, models, is_cut } = today;
    let total = sum(hours.iter());
    let most = hours.iter().map(|hour| hour.nanos()).max().unwrap_or(0).max(1);
    // The height is relative to the largest hour, and at least 1 if anything was spent.
    let height = |hour: Usd| {
        let part = u128::from(hour.nanos()) * u128::from(HEIGHT) / u128::from(most);
        u64::try_from(part).unwrap_or(HEIGHT).max(u64::from(hour > Usd::ZERO))
    };
    html! {
        @if total > Usd::ZERO {
            span { "Runs of the last 24 h have cost " strong { (total) @if *is_cut { " or more" } } }
            svg width=(WIDTH) height=(HEIGHT) role="img" aria-label={ "Cost by the hour of submission, at most " (Usd::from_nanos(most)) } {
                @for (place, hour) in hours.iter().enumerate() {
                    rect x=(place * WIDTH / HOURS) y=(HEIGHT - height(*hour)) width=(WIDTH / HOURS - 1) height=(height(*hour)) {
                        title { "submitted " (HOURS - 1 - place) " h ago: " (hour) }
                    }
                }
            }
            @for (by, sums) in [("by agent", agents), ("by model", models)] {
                @let rest = sum(sums.iter().skip(NAMED).map(|(_, spent)| spent));
                ul class="plain" aria-label={ "Spent " (by) } {
                    li class="kind" { (by) }
                    @for (name, spent) in sums.iter().take(NAMED) {
                        li { (name) " " span class="of" { (spent) } }
                    }
                    @if rest > Usd::ZERO { li { "the rest " span class="of" { (rest) } } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_the_spenders_and_stays_text() {
        let mut today = Today::default();
        assert!(chart(&today).0.is_empty(), "without spending the chart is empty");
        (today.hours[3], today.hours[23]) = (Usd::from_cents(40), Usd::from_nanos(1));
        today.agents = vec![("<b>".to_owned(), Usd::from_cents(40))];
        let shown = chart(&today).0;
        assert!(shown.contains("&lt;b&gt;") && !shown.contains("<b>"), "{shown}");
        assert!(
            shown.contains("height=\"24\"><title>submitted 20 h ago: $0.40")
                && shown.contains("height=\"1\"><title>submitted 0 h ago"),
            "{shown}"
        );
    }
}
