//! The form that raises a ceiling.

use domain::{
    ChildId, TraceId, Usd,
    subject::{Action, Subject},
};
use maud::{Markup, html};
use serde_json::json;

use crate::call::Call;

pub(super) fn is_allowed(call: &Call) -> bool {
    call.may_send(&Subject::Admin(Action::Raise))
}

/// The form, filled with the present ceiling.
pub(super) fn form(trace: TraceId, child: &ChildId, limit: Usd) -> Markup {
    let limit = limit.to_string();
    html! {
        form class="raise" data-json={ "v1/runs/" (trace) "/raise" } data-body=(json!({"child_id": child})) data-done="Raised: the agents that waited for money continue." {
            label { "Costs at most $" input name="max_cost_usd" inputmode="decimal" size="8" value=(limit.trim_start_matches('$')); }
            label { "Tokens at most " input type="number" name="max_tokens" min="1" step="1" placeholder="unchanged"; }
            button type="submit"
                data-ask={ "Raise the ceilings of " (child) "? Agents that wait for money continue and may spend it. Ceilings can't be lowered again." } { "Raise" }
        }
    }
}
