//! B19: the costs in a context's journal, together with the differences that its statement lists,
//! equal its own cost.

use domain::wire::EndStatus;
use trace::{ContextNode, Difference, Statement, Trace, Why};

use crate::cluster::Client;

/// Reports differences between the journals and the books of a run at rest that its statements
/// don't explain.
pub(super) async fn unaccounted(client: &Client, trace: &Trace) -> Result<(), String> {
    differences(client, trace, |_, statement, why| match why {
        Why::Older => true,
        // The cost or hold of a lost commit is booked under another id.
        Why::NotBookedYet => !statement.differences.iter().any(is_of_lost_commit),
        Why::Corrected | Why::NotJournaled | Why::Estimated | Why::OfProgram | Why::Charge | Why::Dispute => {
            false
        }
    })
    .await
}

fn is_of_lost_commit(line: &Difference) -> bool {
    matches!(line.why, Why::NotJournaled | Why::Estimated)
        && line.call_id.as_ref().is_some_and(|id| id.as_str().starts_with("lost-"))
}

/// For runs in which no attempt was fenced. Every paid call is in the journal with its booked
/// amount, unless its context was ended from outside.
pub async fn assert_journals_are_complete(client: &Client, trace: &Trace) {
    let is_wrong = |node: &ContextNode, _: &Statement, why| match why {
        Why::Older | Why::NotBookedYet | Why::Corrected | Why::NotJournaled => true,
        Why::Estimated => node.end().is_some_and(|end| end.status == EndStatus::Completed),
        Why::OfProgram | Why::Charge | Why::Dispute => false,
    };
    if let Err(what) = differences(client, trace, is_wrong).await {
        panic!("{what}");
    }
}

async fn differences(
    client: &Client,
    trace: &Trace,
    is_wrong: impl Fn(&ContextNode, &Statement, Why) -> bool,
) -> Result<(), String> {
    for node in trace.contexts().iter().filter(|node| !node.budget.own.is_zero()) {
        let journal = client.journal(trace.id(), &node.id).await;
        let statement = node.statement(&journal);
        // Built-in agents have no journal.
        let wrong = !journal.is_empty()
            && statement.differences.iter().any(|line| is_wrong(node, &statement, line.why));
        if wrong {
            return Err(format!(
                "B19: the journal of {} against its books: {statement:#?}\n{journal:#?}",
                node.id
            ));
        }
    }
    Ok(())
}
