//! `trellis page`: a link that opens the page of a server in a browser, signed in.

use serde_json::json;
use shared::bus::Bus;

use crate::{
    cluster::connect::{Servers, unreachable},
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
    },
};

/// Print a link that opens the page of a server in a browser.
///
/// The page shows runs, their agents and where the money is. The link signs in once, within ten minutes, with the rights of the token that
/// this command has (TRELLIS_TOKEN, TRELLIS_TOKEN_FILE, or that of a `trellis dev` of this user); the token itself is not in it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {}

/// The address of the page, with the code that signs in, if one is needed.
pub(crate) fn link(url: &str, code: Option<&str>) -> String {
    let code = code.map_or_else(String::new, |code| format!("#in={code}"));
    format!("{}/{code}", url.trim_end_matches('/'))
}

pub(crate) async fn run(_: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let http = match servers.cluster().await? {
        Bus::Http(http) => http,
        Bus::Disk(_) | Bus::Memory(_) => anyhow::bail!(
            "no server runs on this directory\n\nhint: start one: `trellis dev`, which serves the page"
        ),
        Bus::Nats(_) => anyhow::bail!(
            "the page of a cluster is at its gateways\n\nhint: set TRELLIS_URL to the address of one, or start one: `trellis gateway`"
        ),
    };
    let code = http.sign_in_code().await.map_err(|error| unreachable(&error))?;
    let link = link(http.url(), code.as_deref());
    match output {
        Output::Text => output::print(&format!("{link}\n"))?,
        Output::Json => output::print_json_line(&json!({"url": link}))?,
    }
    Ok(Ending::Completed)
}
