//! `trellis charge`: books a cost on a run by hand (B11).

use domain::{
    Amount, CallId, Tokens, Usd,
    wire::{Charge, Control, Dispute, DisputedCost, Text},
};
use trace::{Command, Trace};
use uuid::Uuid;

use crate::{
    cluster::connect::Servers,
    command::{budgets, delete_restore},
    input::{context_ref::ContextRef, parse},
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
    },
};

const EXAMPLES: &str = "\
Examples:
  trellis charge 0af765 --cost-usd 0.25 --key invoice-7
  trellis charge 0af765/writer --cost-usd 1.20 --tokens 4000 --by accounts
";

/// Book a cost that was paid elsewhere on a run, or on one context.
///
/// A key is booked once: the same charge again changes nothing, and another amount under the same key is refused. A charge that
/// exceeds the budget is disputed (`trellis budgets disputes`). For administrators.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Args {
    #[command(flatten)]
    context: ContextRef,
    /// The cost, in dollars.
    #[arg(long, value_name = "USD", value_parser = parse::usd, required_unless_present = "tokens")]
    cost_usd: Option<Usd>,
    /// The number of tokens.
    #[arg(long, value_name = "N", value_parser = parse::tokens)]
    tokens: Option<Tokens>,
    /// The key of the charge, such as the number of an invoice; by default, a new one.
    #[arg(long, value_name = "KEY")]
    key: Option<CallId>,
    /// The name of the sender, for the record.
    #[arg(long, value_name = "NAME", value_parser = parse::text)]
    by: Option<Text>,
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let amount =
        Amount { cost_usd: args.cost_usd.unwrap_or_default(), tokens: args.tokens.unwrap_or_default() };
    if amount.is_nothing() {
        anyhow::bail!("a charge of zero changes nothing\n\nhint: give --cost-usd or --tokens above zero");
    }
    let client = servers.cluster().await?;
    let (trace_id, child) = args.context.named(&client).await?;
    let known = client.replay(trace_id).await?;
    let child_id = budgets::find(&known, child.as_ref())?.id.clone();
    let key = match args.key {
        Some(key) => key,
        None => format!("cli-{}", Uuid::now_v7().simple()).parse()?,
    };
    let charge = Charge { child_id: child_id.clone(), key: key.clone(), amount, by: args.by };
    if let Some(ending) = delete_restore::refused(&known, Command::Charge(charge.clone()), output)? {
        return Ok(ending);
    }
    let control = Control { charge: Some(charge), ..Control::of(trace_id) };
    let booked =
        |trace: &Trace| trace.context(&child_id).is_some_and(|node| node.charges.get(&key).is_some());
    let ended = budgets::apply(&client, &control, &child_id, booked, output).await;
    if !matches!(ended, Ok(Ending::Refused)) {
        // A charge without a clear result may have to be sent again, and only the same key prevents
        // a second booking.
        output::note(&format!("charge {key}"));
    }
    if let Ok(Ending::Completed) = ended {
        let now = client.replay(trace_id).await?;
        let node = budgets::find(&now, Some(&child_id))?;
        let of = DisputedCost::Charge(key);
        let open = node.disputes.iter().find(|dispute| dispute.of == of && dispute.decision.is_none());
        if let Some(Dispute { number, amount, .. }) = open {
            output::note(&format!(
                "{} and {} tokens of it are disputed: they exceed the budget\n\nhint: `trellis budgets accept \
                {trace_id}/{child_id} {number}` books them past the limit, `trellis budgets drop` drops them",
                amount.cost_usd, amount.tokens
            ));
        }
    }
    ended
}
