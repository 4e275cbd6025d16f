//! A context's private directory: `history/` and `outputs/` (I3). Files are opened beneath it and nowhere
//! else, whatever a path or a link says, and only regular ones (I4). It goes when the attempt ends.

use std::path::{Path, PathBuf};

use shared::{ChildId, TraceId, wire::HistoryEntry};

#[derive(Debug)]
pub(crate) struct Workspace {
    path: PathBuf,
}

/// Why a file can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("`{path}` is not in the workspace: {reason}")]
    Outside { path: String, reason: String },
    #[error("`{path}`: {source}")]
    File {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("`{path}` has {has} bytes, more than the {max} allowed")]
    TooLarge { path: String, has: u64, max: u64 },
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) is_directory: bool,
}

/// What is in `outputs/`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) files: u32,
    pub(crate) bytes: u64,
}

impl Workspace {
    pub(crate) fn create(root: &Path, trace_id: TraceId, child_id: &ChildId) -> std::io::Result<Self> {
        let path = root.join(trace_id.to_string()).join(child_id.as_str());
        std::fs::create_dir_all(path.join("history"))?;
        std::fs::create_dir_all(path.join("outputs"))?;
        Ok(Workspace { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A step as a file, `history/step_001.json`: for the agent's own program, and for people.
    pub(crate) fn note(&self, entry: &HistoryEntry) -> std::io::Result<()> {
        let name = format!("history/step_{:03}.json", entry.number);
        std::fs::write(self.path.join(name), serde_json::to_vec_pretty(entry).expect("plain fields"))
    }
}
