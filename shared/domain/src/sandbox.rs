//! The confinement of a program that runs as an agent: the layers of its sandbox, and its limits on
//! the machine. This module only defines them; the worker enforces them.

use serde::{Deserialize, Serialize};

/// A layer of the sandbox around a program.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Files, TCP and signals.
    Landlock,
    /// System calls: only ordinary kinds of sockets, and neither tracing nor mounts.
    Seccomp,
    /// Processor time, memory, files, processes.
    Rlimits,
    /// The program's processes see and signal only each other, and end together.
    PidNamespace,
    /// The program has no network.
    NetworkNamespace,
    /// Memory and processes of the whole program together, enforced by the kernel.
    Cgroup,
}

/// Limits on a program's use of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    pub memory_bytes: u64,
    pub cpu_seconds: u64,
    /// The largest size of a single file.
    pub file_bytes: u64,
    pub open_files: u64,
    pub processes: u64,
}

impl Default for Resources {
    fn default() -> Self {
        Resources {
            memory_bytes: 1 << 30,
            cpu_seconds: 300,
            file_bytes: 64 << 20,
            open_files: 256,
            processes: 64,
        }
    }
}

impl Resources {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
