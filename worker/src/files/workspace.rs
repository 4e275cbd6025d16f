//! A context's private directory: `history/` and `outputs/` (I3). Files are opened beneath it and nowhere
//! else, whatever a path or a link says, and only regular ones that have one name (I4). It goes when the
//! attempt ends. Every attempt has a directory of its own, so that one that has not noticed yet that it
//! was replaced works on nothing of its successor's.

use std::{
    io::{self, Read, Write},
    os::unix::fs::DirBuilderExt,
    path::{Component, Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use cap_std::{
    ambient_authority,
    fs::{Dir, File, MetadataExt, OpenOptions, OpenOptionsExt},
};
use shared::{ChildId, TraceId, limits::Limits, wire::HistoryEntry};

#[cfg(test)]
mod tests;

const HISTORY: &str = "history";
const OUTPUTS: &str = "outputs";
/// Where large outputs of tools are put (W4). They are no files of the agent's: neither counted nor
/// collected, and not for it to write.
const TOOLS: &str = "tools";

#[derive(Debug)]
pub(crate) struct Workspace {
    path: PathBuf,
    directory: Dir,
    /// What was made for this attempt, and goes with it.
    own: PathBuf,
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
        source: io::Error,
    },
    #[error("`{path}` has {has} bytes, more than the {max} allowed")]
    TooLarge { path: String, has: u64, max: u64 },
    /// Of the outputs as a whole.
    #[error("{limit}: the outputs have {has}, and {max} is allowed")]
    Limit { limit: &'static str, has: u64, max: u64 },
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
    /// Makes `<root>/<number>/<trace_id>/<child_id>/`, under a number nobody else has.
    pub(crate) fn create(root: &Path, trace_id: TraceId, child_id: &ChildId) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let own = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed))
            .map(|number| root.join(number.to_string()))
            .find_map(|own| match private().create(&own) {
                Ok(()) => Some(Ok(own)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                Err(error) => Some(Err(error)),
            })
            .expect("numbers do not end")?;
        let path = own.join(trace_id.to_string()).join(child_id.as_str());
        let made = private().recursive(true).create(path.join(HISTORY)).and_then(|()| {
            private().create(path.join(OUTPUTS))?;
            Dir::open_ambient_dir(&path, ambient_authority())
        });
        match made {
            Ok(directory) => Ok(Workspace { path, directory, own }),
            Err(error) => {
                let _ = remove(&own);
                Err(error)
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The whole of a file.
    pub(crate) fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, Error> {
        let inside = inside(path)?;
        self.no_link_on_the_way(path, &inside)?;
        let file = self.open(path, &inside, OpenOptions::new().read(true))?;
        read_all(path, file, max_bytes)
    }

    /// Puts a file in the place of what is there. The journal and what was put aside are not to be written.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        let inside = inside(path)?;
        if inside.starts_with(HISTORY) {
            return Err(outside(path, "`history/` is the journal's"));
        }
        if inside.starts_with(Path::new(OUTPUTS).join(TOOLS)) {
            return Err(outside(path, "`outputs/tools/` is where the outputs of tools are put"));
        }
        self.put(path, &inside, bytes)
    }

    /// Puts a tool's output aside, as `outputs/tools/<name>`; gives its path.
    pub(crate) fn put_aside(&self, name: &str, bytes: &[u8]) -> Result<String, Error> {
        let path = format!("{OUTPUTS}/{TOOLS}/{name}");
        self.put(&path, &inside(&path)?, bytes)?;
        Ok(path)
    }

    /// The regular files and directories in a directory, by name.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<Listed>, Error> {
        let inside = inside(if path.is_empty() { "." } else { path })?;
        self.no_link_on_the_way(path, &inside)?;
        let mut listed = Vec::new();
        for (path, metadata) in self.entries(&inside).map_err(|source| failed(path, source))? {
            let is_directory = metadata.is_dir();
            if is_directory || is_plain(&metadata) {
                let size_bytes = if is_directory { 0 } else { metadata.len() };
                listed.push(Listed { path: spelled(&path), size_bytes, is_directory });
            }
        }
        listed.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(listed)
    }

    /// How much the agent has left in `outputs/` so far.
    pub(crate) fn extent(&self) -> Extent {
        let mut extent = Extent::default();
        for (_, size_bytes) in self.output_files() {
            extent.files = extent.files.saturating_add(1);
            extent.bytes = extent.bytes.saturating_add(size_bytes);
        }
        extent
    }

    /// Every regular file beneath `outputs/`, by its path there. Past a limit, none of them.
    pub(crate) fn outputs(&self, limits: &Limits) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let Extent { files, bytes } = self.extent();
        let within = |limit, has, max| {
            if has > max { Err(Error::Limit { limit, has, max }) } else { Ok(()) }
        };
        within("max_output_files", files.into(), limits.max_output_files.into())?;
        within("max_output_size_bytes", bytes, limits.max_output_size_bytes)?;
        let mut outputs = Vec::new();
        let mut left = limits.max_output_size_bytes;
        for (inside, _) in self.output_files() {
            let path = spelled(&inside);
            let file = self.open(&path, &inside, OpenOptions::new().read(true))?;
            let bytes = read_all(&path, file, left)?;
            left -= bytes.len() as u64;
            let beneath = inside.strip_prefix(OUTPUTS).expect("it was found there");
            outputs.push((spelled(beneath), bytes));
        }
        Ok(outputs)
    }

    /// A step as a file, `history/step_001.json`: for the agent's own program, and for people.
    pub(crate) fn note(&self, entry: &HistoryEntry) -> io::Result<()> {
        let path = format!("{HISTORY}/step_{:03}.json", entry.number);
        let bytes = serde_json::to_vec_pretty(entry).expect("plain fields");
        self.put(&path, Path::new(&path), &bytes).map_err(io::Error::other)
    }

    /// The agent's own files in `outputs/`, in order. What can't be looked into is not an output.
    fn output_files(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        let mut waiting = vec![PathBuf::from(OUTPUTS)];
        while let Some(directory) = waiting.pop() {
            for (path, metadata) in self.entries(&directory).unwrap_or_default() {
                if metadata.is_dir() {
                    if path != Path::new(OUTPUTS).join(TOOLS) {
                        waiting.push(path);
                    }
                } else if is_plain(&metadata) {
                    found.push((path, metadata.len()));
                }
            }
        }
        found.sort();
        found
    }

    /// What is in a directory, links as themselves. A name that is no text can't be asked for, and is left out.
    fn entries(&self, directory: &Path) -> io::Result<Vec<(PathBuf, cap_std::fs::Metadata)>> {
        let mut entries = Vec::new();
        for entry in self.directory.read_dir(directory)? {
            let name = entry?.file_name();
            if name.to_str().is_none() {
                tracing::warn!(?name, "a file whose name is no text is left out");
                continue;
            }
            let path = if directory == Path::new(".") { PathBuf::from(name) } else { directory.join(name) };
            // What is gone between the two looks was not there.
            if let Ok(metadata) = self.directory.symlink_metadata(&path) {
                entries.push((path, metadata));
            }
        }
        Ok(entries)
    }

    fn put(&self, path: &str, inside: &Path, bytes: &[u8]) -> Result<(), Error> {
        if let Some(parent) = inside.parent() {
            self.no_link_on_the_way(path, parent)?;
            let mut builder = cap_std::fs::DirBuilder::new();
            builder.recursive(true);
            cap_std::fs::DirBuilderExt::mode(&mut builder, 0o700);
            if !parent.as_os_str().is_empty() {
                self.directory.create_dir_with(parent, &builder).map_err(|source| failed(path, source))?;
            }
        }
        self.no_link_on_the_way(path, inside)?;
        // Emptied only once it is known to be what it should be.
        let mut file = self.open(path, inside, OpenOptions::new().write(true).create(true).mode(0o600))?;
        let written = file.set_len(0).and_then(|()| file.write_all(bytes));
        written.map_err(|source| failed(path, source))
    }

    /// Opens a regular file that has no other name: a second one may be outside. Looked at once it is
    /// open, so that nobody can put another in its place in between; a pipe does not make us wait.
    fn open(&self, path: &str, inside: &Path, options: &mut OpenOptions) -> Result<File, Error> {
        options.custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits());
        let file = self.directory.open_with(inside, options).map_err(|source| failed(path, source))?;
        let metadata = file.metadata().map_err(|source| failed(path, source))?;
        if !metadata.is_file() {
            return Err(outside(path, "it is not a regular file"));
        }
        if metadata.nlink() > 1 {
            return Err(outside(path, "it is a hard link"));
        }
        Ok(file)
    }

    /// A link that stays inside could be followed safely, but what it names may change hands; none is.
    fn no_link_on_the_way(&self, path: &str, inside: &Path) -> Result<(), Error> {
        for part in inside.ancestors().filter(|part| !part.as_os_str().is_empty()) {
            match self.directory.symlink_metadata(part) {
                Ok(metadata) if metadata.is_symlink() => {
                    return Err(outside(path, "a symbolic link is on the way"));
                }
                Ok(metadata) if !metadata.is_dir() && !metadata.is_file() => {
                    return Err(outside(path, "it is not a regular file"));
                }
                // What is not there yet is no link; other errors come again on opening.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.own) {
            tracing::warn!(%error, path = %self.own.display(), "a workspace could not be removed");
        }
    }
}

/// A path as it is beneath the workspace: made of plain names only.
fn inside(path: &str) -> Result<PathBuf, Error> {
    let mut inside = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err(outside(path, "it has `..`")),
            Component::RootDir | Component::Prefix(_) => {
                return Err(outside(path, "it is absolute; name it from the workspace on"));
            }
        }
    }
    if path.is_empty() || path.contains('\0') {
        return Err(outside(path, "it is no name"));
    }
    Ok(if inside.as_os_str().is_empty() { PathBuf::from(".") } else { inside })
}

fn read_all(path: &str, file: File, max_bytes: u64) -> Result<Vec<u8>, Error> {
    let too_large = |has| Error::TooLarge { path: path.to_owned(), has, max: max_bytes };
    let has = file.metadata().map_err(|source| failed(path, source))?.len();
    if has > max_bytes {
        return Err(too_large(has));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(|source| failed(path, source))?;
    if bytes.len() as u64 > max_bytes { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
}

/// A regular file with one name.
fn is_plain(metadata: &cap_std::fs::Metadata) -> bool {
    metadata.is_file() && metadata.nlink() == 1
}

fn spelled(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn outside(path: &str, reason: &str) -> Error {
    Error::Outside { path: path.to_owned(), reason: reason.to_owned() }
}

fn failed(path: &str, source: io::Error) -> Error {
    Error::File { path: path.to_owned(), source }
}

/// Makes directories that are nobody else's to look into.
pub(crate) fn private() -> std::fs::DirBuilder {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Removes a directory and all in it, though a program may have taken its own rights away.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    let Err(_) = std::fs::remove_dir_all(directory) else { return Ok(()) };
    open_up(directory);
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn open_up(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        // The type of the entry itself: a link is not followed.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}
