//! `trellis gateway`: serves HTTP for a cluster, and makes the tokens of its clients.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Context, anyhow};
use bus::role::Kind;
use gateway::TraceUrl;

use crate::{
    cluster::{
        connect::Servers,
        local_directory::{self, DEFAULT_ADDRESS, LISTEN},
    },
    command::serve,
    terminal::{
        ending::{EXIT_CODES, Ending},
        output::{self, Output},
    },
};

/// The HTTP server: its address and its clients.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct FrontDoor {
    /// The address for HTTP; by default, 127.0.0.1:7420.
    ///
    /// 127.0.0.1:0 is any free port. An address that other machines can reach requires --tokens.
    #[arg(long, value_name = "ADDRESS", env = LISTEN)]
    listen: Option<String>,
    /// A file with a line for each token, from `trellis gateway token`.
    ///
    /// A changed file is read again.
    #[arg(long, value_name = "FILE", env = "TRELLIS_TOKENS", value_parser = local_directory::file())]
    tokens: Option<PathBuf>,
    /// Accept clients of this machine without a token.
    ///
    /// They are every user of this machine, and every agent with a network.
    #[arg(long)]
    open: bool,
    /// Another host name of this server; may be given more than once.
    ///
    /// A request with another name than these or the address is refused.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// An origin of web pages that may send requests; may be given more than once.
    ///
    /// Such as `https://app.example.com`.
    #[arg(long = "origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// The address of a run in a trace viewer, for links of the page.
    ///
    /// Such as http://localhost:16686/trace/{trace_id}.
    #[arg(long, value_name = "URL", env = "TRELLIS_TRACE_URL")]
    trace_url: Option<String>,
}

impl FrontDoor {
    /// True if an address is named. An empty variable is treated as unset.
    pub(crate) fn is_named(&self) -> bool {
        self.listen.as_ref().is_some_and(|address| !address.is_empty())
    }

    pub(crate) fn config(self) -> anyhow::Result<gateway::Config> {
        let is_named = self.is_named();
        let FrontDoor { listen, tokens, open: is_open, hosts, origins, trace_url } = self;
        let listen: SocketAddr = match listen.filter(|_| is_named) {
            Some(address) => address.parse().with_context(|| {
                format!("`{address}` is not an address\n\nhint: give --listen an address and a port, such as 127.0.0.1:7420")
            })?,
            None => DEFAULT_ADDRESS,
        };
        let tokens = tokens.filter(|path| !path.as_os_str().is_empty());
        let trace_url = trace_url.filter(|url| !url.is_empty()).map(|url| url.parse::<TraceUrl>());
        let trace_url = trace_url.transpose().map_err(|why| anyhow!("--trace-url: {why}"))?;
        Ok(gateway::Config { tokens, is_open, hosts, origins, trace_url, ..gateway::Config::new(listen) })
    }
}

const EXAMPLES: &str = "\
Examples:
  trellis gateway token alice --role client >> tokens     add a client; the token itself is shown once, on stderr
  NATS_URL=nats://127.0.0.1:4222 trellis gateway --tokens tokens
  trellis gateway --listen 0.0.0.0:7420 --tokens tokens --host trellis.example.com
";

/// Serve HTTP in front of a cluster: REST, event streams, and all commands of `trellis`.
///
/// A gateway stores nothing, so any number can run. Its credentials limit its rights on NATS, and the token of a client the rights of that
/// client. For other machines, put a server with TLS in front of it.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub(crate) struct Args {
    #[command(flatten)]
    door: FrontDoor,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a token of a client.
    ///
    /// Its line for the file of tokens is printed to stdout. The token itself is printed to stderr, and is stored nowhere.
    Token {
        /// The name of the client, which logs and records show.
        name: String,
        /// A role of the client; may be given more than once.
        #[arg(long = "role", value_name = "ROLE", required = true, value_parser = kind)]
        roles: Vec<Kind>,
    },
}

fn kind(name: &str) -> Result<Kind, String> {
    const ROLES: [Kind; 3] = [Kind::Client, Kind::Observer, Kind::Admin];
    let found = ROLES.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| format!("the roles are {}", ROLES.map(Kind::name).join(", ")))
}

pub(crate) async fn run(args: Args, servers: &Servers, output: Output) -> anyhow::Result<Ending> {
    match args.command {
        Some(Command::Token { name, roles }) => token(&name, &roles, output),
        None => serve(args.door, servers).await,
    }
}

fn token(name: &str, roles: &[Kind], output: Output) -> anyhow::Result<Ending> {
    let token = gateway::token::fresh();
    let line = gateway::token::line(name, roles, &token)?;
    match output {
        Output::Text => {
            output::print(&format!("{line}\n"))?;
            output::note(&format!("token of {name} (it is shown once): {token}"));
        }
        Output::Json => output::print_json_line(&serde_json::json!({"line": line, "token": token}))?,
    }
    Ok(Ending::Completed)
}

async fn serve(door: FrontDoor, servers: &Servers) -> anyhow::Result<Ending> {
    let bus = servers.nats().await?;
    let server = gateway::Server::bind(door.config()?, bus).await?;
    tracing::info!(address = %server.address(), "serves HTTP");
    serve::until_signal(|stop| server.serve(stop.cancelled_owned())).await
}
