//! `trellis page`: a link that opens the page of a server in a browser, signed in.

use bus::{Bus, ClientBus};
use serde_json::json;

use crate::{
    cluster::{connect::Servers, failure::unreachable},
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
    },
};

/// Print a link that opens the page of a server in a browser.
///
/// The page shows runs, their agents and their costs. The link signs in once, within ten minutes, with the rights of this command's
/// token (TRELLIS_TOKEN, TRELLIS_TOKEN_FILE, or that of a `trellis dev` of this user). The link does not contain the token.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {}

/// The address of the page, with the sign-in code if one is needed. On a loopback address, `host`
/// replaces the IP address.
pub(crate) fn link(url: &str, code: Option<&str>, host: Option<&str>) -> String {
    let code = code.map_or_else(String::new, |code| format!("#in={code}"));
    let url = url.trim_end_matches('/');
    match (host, url.rsplit_once(':')) {
        (Some(host), Some((_, port)))
            if url.starts_with("http://127.") || url.starts_with("http://[::1]") =>
        {
            format!("http://{host}:{port}/{code}")
        }
        (_, _) => format!("{url}/{code}"),
    }
}

pub(crate) async fn run(_: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    let http = match servers.cluster().await?.bus().clone() {
        ClientBus::Http(http) => http,
        ClientBus::Direct(Bus::Disk(_) | Bus::Memory(_)) => anyhow::bail!(
            "no server runs on this directory\n\nhint: `trellis dev` starts one, which serves the page"
        ),
        ClientBus::Direct(Bus::Nats(_)) => anyhow::bail!(
            "the gateways of a cluster serve its page\n\nhint: set TRELLIS_URL to the address of a gateway, or start one \
                with `trellis gateway`"
        ),
    };
    let (code, host) = http.sign_in_code().await.map_err(|error| unreachable(&error))?;
    let link = link(http.url(), code.as_deref(), host.as_deref());
    match output {
        Output::Text => output::print(&format!("{link}\n"))?,
        Output::Json => output::print_json_line(&json!({"url": link}))?,
    }
    Ok(Ending::Completed)
}

#[cfg(test)]
mod tests {
    use super::link;

    #[test]
    fn a_link_has_the_name_of_the_page_if_it_is_of_this_machine() {
        let host = Some("trellis-x.localhost");
        assert_eq!(link("http://127.0.0.1:7420", Some("c"), host), "http://trellis-x.localhost:7420/#in=c");
        assert_eq!(
            link("https://t.example.com/trellis/", Some("c"), host),
            "https://t.example.com/trellis/#in=c"
        );
        assert_eq!(link("http://127.0.0.1:7420", None, None), "http://127.0.0.1:7420/");
    }
}
