//! A context's private directory with `history/` and `outputs/` (I3). Only regular files beneath it
//! with a single hard link are opened, for any path and any link (I4). It is removed when the
//! attempt ends. Every attempt has its own directory, so that an attempt that has not yet noticed
//! its replacement can't change the files of its successor.

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
use domain::{ChildId, TraceId, limits::Limits, wire::HistoryEntry};

#[cfg(test)]
mod tests;

const HISTORY: &str = "history";
const OUTPUTS: &str = "outputs";
/// A program's temporary files, and its task.
const TEMPORARY: &str = "tmp";
const TASK: &str = "input.json";
/// The beginning of the path of a file in `outputs/`, and of a large tool output.
pub(crate) const OUTPUTS_PREFIX: &str = "outputs/";
pub(crate) const TOOL_OUTPUTS_PREFIX: &str = "outputs/tools/";
/// The directory of large tool outputs (W4). They are not files of the agent: they are neither
/// counted nor collected, and the agent can't write them.
const TOOLS: &str = "tools";

#[derive(Debug)]
pub(crate) struct Workspace {
    path: PathBuf,
    directory: Dir,
    /// The directory made for this attempt, which is removed with it.
    own: PathBuf,
}

/// The errors of reading or writing a file.
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
    /// The outputs together exceed a limit.
    #[error("{limit}: the outputs have {has}, more than the {max} allowed")]
    Limit { limit: &'static str, has: u64, max: u64 },
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DirectoryEntry {
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) is_directory: bool,
}

/// The number and size of the files in `outputs/`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) files: u32,
    pub(crate) bytes: u64,
}

impl Workspace {
    /// Creates `<root>/<number>/<trace_id>/<child_id>/`, under a number not yet in use.
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

    /// Creates the directory for a program's temporary files.
    pub(crate) fn make_temporary(&self) -> Result<(), Error> {
        self.make_directory(TEMPORARY, Path::new(TEMPORARY))
    }

    /// Writes the file with a program's task.
    pub(crate) fn write_task(&self, task: &[u8]) -> Result<(), Error> {
        self.put(TASK, Path::new(TASK), task)
    }

    /// Reads a whole file.
    pub(crate) fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, Error> {
        let inside = inside(path)?;
        self.refuse_links(path, &inside)?;
        let file = self.open(path, &inside, OpenOptions::new().read(true))?;
        read_all(path, file, max_bytes)
    }

    /// Writes a file, and replaces an existing one. Files of the journal and stored tool outputs
    /// can't be written.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), Error> {
        let inside = inside(path)?;
        if inside.starts_with(HISTORY) {
            return Err(outside(path, "`history/` belongs to the journal and can't be written"));
        }
        if inside.starts_with(Path::new(OUTPUTS).join(TOOLS)) {
            return Err(outside(path, "`outputs/tools/` holds stored outputs of tools and can't be written"));
        }
        self.put(path, &inside, bytes)
    }

    /// Stores a tool's output as `outputs/tools/<name>`, and returns its path.
    pub(crate) fn store_tool_output(&self, name: &str, bytes: &[u8]) -> Result<String, Error> {
        let path = format!("{OUTPUTS}/{TOOLS}/{name}");
        self.put(&path, &inside(&path)?, bytes)?;
        Ok(path)
    }

    /// The regular files and directories in a directory, sorted by name.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>, Error> {
        let inside = inside(if path.is_empty() { "." } else { path })?;
        self.refuse_links(path, &inside)?;
        let mut listed = Vec::new();
        for (path, metadata) in self.entries(&inside).map_err(|source| failed(path, source))? {
            let is_directory = metadata.is_dir();
            if is_directory || is_regular_file(&metadata) {
                let size_bytes = if is_directory { 0 } else { metadata.len() };
                listed.push(DirectoryEntry { path: to_text(&path), size_bytes, is_directory });
            }
        }
        listed.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(listed)
    }

    /// The number and size of the files that the agent has written to `outputs/` so far.
    pub(crate) fn extent(&self) -> Extent {
        let mut extent = Extent::default();
        for (_, size_bytes) in self.output_files() {
            extent.files = extent.files.saturating_add(1);
            extent.bytes = extent.bytes.saturating_add(size_bytes);
        }
        extent
    }

    /// The extent after this file has been written with this size.
    pub(crate) fn extent_with(&self, path: &str, size_bytes: u64) -> Extent {
        let Extent { files, bytes } = self.extent();
        let Some(inside) = inside(path).ok().filter(|inside| inside.starts_with(OUTPUTS)) else {
            return Extent { files, bytes };
        };
        let replaced = self.output_files().into_iter().find(|(file, _)| *file == inside);
        let (more, before) = replaced.map_or((1, 0), |(_, size_bytes)| (0, size_bytes));
        Extent { files: files.saturating_add(more), bytes: (bytes - before).saturating_add(size_bytes) }
    }

    /// Every regular file beneath `outputs/`, with its path there. Returns an error if the files
    /// exceed a limit.
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
            let path = to_text(&inside);
            let file = self.open(&path, &inside, OpenOptions::new().read(true))?;
            let bytes = read_all(&path, file, left)?;
            left -= bytes.len() as u64;
            let relative = inside.strip_prefix(OUTPUTS).expect("it was found there");
            outputs.push((to_text(relative), bytes));
        }
        Ok(outputs)
    }

    /// Writes a step to `history/step_001.json`, for the agent's program and for users.
    pub(crate) fn note(&self, entry: &HistoryEntry) -> io::Result<()> {
        let path = format!("{HISTORY}/step_{:03}.json", entry.number);
        let bytes = serde_json::to_vec_pretty(entry).expect("plain fields");
        self.put(&path, Path::new(&path), &bytes).map_err(io::Error::other)
    }

    /// The agent's own files in `outputs/`, sorted. A directory that can't be read is skipped.
    fn output_files(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        let mut waiting = vec![PathBuf::from(OUTPUTS)];
        while let Some(directory) = waiting.pop() {
            for (path, metadata) in self.entries(&directory).unwrap_or_default() {
                if metadata.is_dir() {
                    if path != Path::new(OUTPUTS).join(TOOLS) {
                        waiting.push(path);
                    }
                } else if is_regular_file(&metadata) {
                    found.push((path, metadata.len()));
                }
            }
        }
        found.sort();
        found
    }

    /// The entries of a directory; links are not followed. A name that is not text is skipped,
    /// since no path can contain it.
    fn entries(&self, directory: &Path) -> io::Result<Vec<(PathBuf, cap_std::fs::Metadata)>> {
        let mut entries = Vec::new();
        for entry in self.directory.read_dir(directory)? {
            let name = entry?.file_name();
            if name.to_str().is_none() {
                tracing::debug!(?name, "a file is skipped, because its name is not text");
                continue;
            }
            let path = if directory == Path::new(".") { PathBuf::from(name) } else { directory.join(name) };
            // A file that was removed in between is skipped.
            if let Ok(metadata) = self.directory.symlink_metadata(&path) {
                entries.push((path, metadata));
            }
        }
        Ok(entries)
    }

    fn put(&self, path: &str, inside: &Path, bytes: &[u8]) -> Result<(), Error> {
        if let Some(parent) = inside.parent() {
            self.make_directory(path, parent)?;
        }
        self.refuse_links(path, inside)?;
        // The file is truncated only after `open` has checked that it is regular.
        let mut file = self.open(path, inside, OpenOptions::new().write(true).create(true).mode(0o600))?;
        let written = file.set_len(0).and_then(|()| file.write_all(bytes));
        written.map_err(|source| failed(path, source))
    }

    fn make_directory(&self, path: &str, directory: &Path) -> Result<(), Error> {
        self.refuse_links(path, directory)?;
        if directory.as_os_str().is_empty() {
            return Ok(());
        }
        let mut builder = cap_std::fs::DirBuilder::new();
        builder.recursive(true);
        cap_std::fs::DirBuilderExt::mode(&mut builder, 0o700);
        self.directory.create_dir_with(directory, &builder).map_err(|source| failed(path, source))
    }

    /// Opens a regular file with a single hard link, since a second one could be outside. The check
    /// follows the opening, so that no other file can take its place in between. With `O_NONBLOCK`,
    /// opening a pipe does not wait.
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

    /// Rejects a path with a symbolic link in it, even with one that stays inside, since its target
    /// may change.
    fn refuse_links(&self, path: &str, inside: &Path) -> Result<(), Error> {
        for part in inside.ancestors().filter(|part| !part.as_os_str().is_empty()) {
            match self.directory.symlink_metadata(part) {
                Ok(metadata) if metadata.is_symlink() => {
                    return Err(outside(path, "the path contains a symbolic link"));
                }
                Ok(metadata) if !metadata.is_dir() && !metadata.is_file() => {
                    return Err(outside(path, "it is not a regular file"));
                }
                // A missing file is not a link. Other errors occur again on opening.
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

/// Converts a path to one relative to the workspace, of plain names only.
fn inside(path: &str) -> Result<PathBuf, Error> {
    let mut inside = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::ParentDir => return Err(outside(path, "it contains `..`")),
            Component::RootDir | Component::Prefix(_) => {
                return Err(outside(path, "it is absolute; give it relative to the workspace"));
            }
        }
    }
    if path.is_empty() || path.contains('\0') {
        return Err(outside(path, "it is empty or contains a null character"));
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
    // The file may grow while it is read.
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(|source| failed(path, source))?;
    if bytes.len() as u64 > max_bytes { Err(too_large(bytes.len() as u64)) } else { Ok(bytes) }
}

/// A regular file with a single hard link.
fn is_regular_file(metadata: &cap_std::fs::Metadata) -> bool {
    metadata.is_file() && metadata.nlink() == 1
}

fn to_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn outside(path: &str, reason: &str) -> Error {
    Error::Outside { path: path.to_owned(), reason: reason.to_owned() }
}

fn failed(path: &str, source: io::Error) -> Error {
    Error::File { path: path.to_owned(), source }
}

/// A builder of directories that only this user can read.
pub(crate) fn private() -> std::fs::DirBuilder {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Removes a directory with its content, even if a program has removed the permissions of its
/// files. Directories below the first level are moved up first. A program's tree may be deeper than
/// a path can name, or a recursion has stack for.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    let mut moved = 0_u64;
    loop {
        let Some(below) = opened(directory)? else { return Ok(()) };
        let (mut is_empty, mut has_changed) = (true, false);
        for directory_below in below {
            has_changed |= raise(&directory_below, directory, &mut moved)?;
            is_empty = false;
        }
        if is_empty {
            return std::fs::remove_dir(directory);
        }
        if !has_changed {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
    }
}

/// Removes a directory, and moves the directories in it to `above`, under free numbers. Returns
/// true if anything changed.
fn raise(directory: &Path, above: &Path, moved: &mut u64) -> io::Result<bool> {
    let mut has_changed = false;
    for below in opened(directory)?.unwrap_or_default() {
        make_private(&below);
        *moved += 1;
        // A number that is in use becomes free once its present directory has been removed.
        has_changed |= std::fs::rename(&below, above.join(format!("trellis-{moved}"))).is_ok();
    }
    Ok(has_changed | std::fs::remove_dir(directory).is_ok())
}

/// Removes all files in a directory, and returns its directories; `None` if the directory does not
/// exist.
fn opened(directory: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    make_private(directory);
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut directories = Vec::new();
    for entry in entries {
        let entry = entry?;
        // This is the type of the entry itself, so links are not followed.
        if entry.file_type()?.is_dir() {
            directories.push(entry.path());
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(Some(directories))
}

fn make_private(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700));
}
