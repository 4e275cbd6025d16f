//! Protects the memory and the environment of this process, which contain the keys of providers,
//! from the processes that it starts.

use nix::sys::{
    prctl,
    resource::{Resource, setrlimit},
};

/// Makes the memory and the environment of this process unreadable to other processes of its user,
/// and prevents core dumps. Must be called before any process is started. Root can still read them:
/// a worker must not run as root.
pub fn protect_process() -> std::io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    Ok(prctl::set_dumpable(false)?)
}

/// Returns true if this process is root. Programs of root could do more than those of other users.
pub fn runs_as_root() -> bool {
    nix::unistd::geteuid().is_root()
}
