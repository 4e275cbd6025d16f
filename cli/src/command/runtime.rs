//! The runtime of the commands that connect to a cluster, and their telemetry.

use crate::{
    cluster::connect::Servers,
    terminal::{ending::Ending, output},
};

/// Runs the command, then closes the cluster that it opened.
pub(crate) async fn closing(
    servers: &Servers,
    command: impl Future<Output = anyhow::Result<Ending>>,
) -> anyhow::Result<Ending> {
    let ended = command.await;
    output::tell_closed(servers.close().await);
    ended
}

/// Runs a command under the service name of its spans. A quiet command logs little.
pub(crate) fn run(
    service: &'static str,
    quiet: bool,
    log_json: bool,
    command: impl Future<Output = anyhow::Result<Ending>>,
) -> anyhow::Result<Ending> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let telemetry = telemetry::start(service, log_json, quiet);
        let ended = command.await;
        telemetry.stop().await;
        ended
    });
    // A blocking read of the terminal can't be cancelled, so the shutdown does not wait for it. No
    // other work is left.
    runtime.shutdown_background();
    ended
}
