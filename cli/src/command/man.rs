//! `trellis man`: writes a manual page for every listed command, from the same definitions as the
//! help.

use std::path::Path;

use anyhow::Context as _;

use crate::terminal::ending::Ending;

pub(crate) fn run(command: clap::Command, dir: &Path) -> anyhow::Result<Ending> {
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir));
    written.with_context(|| format!("the manual pages could not be written to {}", dir.display()))?;
    Ok(Ending::Completed)
}
