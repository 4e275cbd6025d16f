//! What this process itself denies to the processes that it starts: its memory and its environment, which hold the keys
//! of providers.

use nix::sys::{
    prctl,
    resource::{Resource, setrlimit},
};

/// Makes the memory and the environment of this process unreadable to other processes of its user, and prevents core
/// dumps. Call it first, before anything is started. Root can still read them: a worker must not run as root.
pub fn protect_process() -> std::io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    Ok(prctl::set_dumpable(false)?)
}

/// Whether this process is root, in whose name its programs could do more than in another's.
pub fn runs_as_root() -> bool {
    nix::unistd::geteuid().is_root()
}
