//! Attempts to leave a workspace, all of which must fail.

use std::{
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
};

use domain::wire::{HistoryStep, Verdict};

use super::*;
use crate::files::worker_directory::WorkerDirectory;

/// A directory with a workspace and a secret file beside it; removed at the end.
struct Place {
    outer: PathBuf,
    workspace: Workspace,
}

impl Place {
    fn new() -> Self {
        let outer = outer();
        std::fs::write(outer.join("secret"), "secret").unwrap();
        let workspace = create(&outer);
        Place { outer, workspace }
    }

    fn inner(&self, path: &str) -> PathBuf {
        self.workspace.path().join(path)
    }

    /// Asserts that reading and writing are rejected, and that the secret is unchanged.
    fn refuses(&self, path: &str) {
        let read = self.workspace.read(path, 1000);
        assert!(matches!(read, Err(Error::Outside { .. })), "{path}: {read:?}");
        let written = self.workspace.write(path, b"changed");
        assert!(matches!(written, Err(Error::Outside { .. })), "{path}: {written:?}");
        assert_eq!(std::fs::read(self.outer.join("secret")).unwrap(), b"secret", "{path}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = remove(&self.outer);
    }
}

fn outer() -> PathBuf {
    let outer =
        std::env::temp_dir().join(format!("trellis-test-{}", host::random::Random::System.id().simple()));
    std::fs::create_dir(&outer).unwrap();
    outer
}

fn create(root: &Path) -> Workspace {
    let trace_id = "0af7651916cd43dd8448eb211c80319c".parse().unwrap();
    Workspace::create(root, trace_id, &ChildId::new("root").unwrap()).unwrap()
}

fn mode(path: impl AsRef<Path>) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn i3_a_workspace_has_history_and_outputs_and_only_its_user_can_read_it() {
    let place = Place::new();
    assert!(place.workspace.path().ends_with("0af7651916cd43dd8448eb211c80319c/root"));
    place.workspace.write("outputs/deep/down/report.md", b"done").unwrap();
    assert_eq!(place.workspace.read("outputs/deep/down/report.md", 4).unwrap(), b"done");
    place.workspace.write("./outputs/deep/down/report.md", b"less").unwrap();
    assert_eq!(place.workspace.read("outputs//deep/./down/report.md", 4).unwrap(), b"less");
    let names: Vec<String> =
        place.workspace.list(".").unwrap().into_iter().map(|listed| listed.path).collect();
    assert_eq!(names, ["history", "outputs"]);
    let listed = place.workspace.list("outputs/deep/down").unwrap();
    let report =
        DirectoryEntry { path: "outputs/deep/down/report.md".into(), size_bytes: 4, is_directory: false };
    assert_eq!(listed, [report]);
    for directory in ["", "history", "outputs", "outputs/deep", "outputs/deep/down"] {
        assert_eq!(mode(place.inner(directory)), 0o700, "{directory}");
    }
    assert_eq!(mode(place.inner("outputs/deep/down/report.md")), 0o600);
}

#[test]
fn i3_only_the_journal_writes_steps() {
    let place = Place::new();
    let entry = HistoryEntry {
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        child_id: ChildId::new("root").unwrap(),
        number: 1,
        attempt: 1,
        at: domain::Timestamp::from_millis(1),
        step: HistoryStep::Result(Box::new(domain::wire::ResultStep {
            verdict: Verdict::OutOfBudget,
            outputs: Vec::new(),
            sandbox: None,
        })),
    };
    place.workspace.note(&entry).unwrap();
    let noted = place.workspace.read("history/step_001.json", 10_000).unwrap();
    assert_eq!(serde_json::from_slice::<HistoryEntry>(&noted).unwrap(), entry);
    for path in ["history/step_001.json", "./history/step_002.json", "history"] {
        assert!(matches!(place.workspace.write(path, b"{}"), Err(Error::Outside { .. })), "{path}");
    }
    // A program may have replaced the file by a link.
    std::fs::remove_file(place.inner("history/step_001.json")).unwrap();
    symlink(place.outer.join("secret"), place.inner("history/step_001.json")).unwrap();
    place.workspace.note(&entry).unwrap_err();
    assert_eq!(std::fs::read(place.outer.join("secret")).unwrap(), b"secret");
}

#[test]
fn i4_absolute_paths_and_parent_paths_are_refused() {
    let place = Place::new();
    place.refuses("/etc/hostname");
    place.refuses(&place.outer.join("secret").to_string_lossy());
    place.refuses("..");
    place.refuses("../../../secret");
    place.refuses("outputs/../../../../secret");
    // Even a path that stays inside.
    place.refuses("outputs/../outputs/file");
    place.refuses("");
    place.refuses("outputs/nul\0byte");
    for path in ["/", "..", "outputs/.."] {
        assert!(matches!(place.workspace.list(path), Err(Error::Outside { .. })), "{path}");
    }
}

#[test]
fn i4_symbolic_links_are_refused_wherever_they_are_and_lead() {
    let place = Place::new();
    place.workspace.write("outputs/file", b"x").unwrap();
    symlink(place.outer.join("secret"), place.inner("outputs/link")).unwrap();
    symlink("../../../../secret", place.inner("outputs/relative")).unwrap();
    symlink(&place.outer, place.inner("outputs/directory")).unwrap();
    symlink("file", place.inner("outputs/within")).unwrap();
    symlink("/proc/self", place.inner("outputs/process")).unwrap();
    symlink("nowhere", place.inner("outputs/broken")).unwrap();
    for path in ["link", "relative", "directory/secret", "within", "process/environ", "broken"] {
        place.refuses(&format!("outputs/{path}"));
    }
    assert!(matches!(place.workspace.list("outputs/directory"), Err(Error::Outside { .. })));
    assert!(!place.outer.join("nowhere").exists());
    assert_eq!(place.workspace.extent(), Extent { files: 1, bytes: 1 });
    let outputs = place.workspace.outputs(&Limits::default()).unwrap();
    assert_eq!(outputs, [("file".to_owned(), b"x".to_vec())], "links are not outputs");
    assert_eq!(place.workspace.list("outputs").unwrap().len(), 1);
}

#[test]
fn i4_a_link_that_appears_after_the_check_does_not_lead_outside() {
    let place = Place::new();
    symlink(&place.outer, place.inner("outputs/directory")).unwrap();
    let through = Path::new("outputs/directory/secret");
    // The link of another program appeared between the check and the opening.
    let opened = place.workspace.open("", through, OpenOptions::new().read(true));
    assert!(matches!(opened, Err(Error::File { .. })), "{opened:?}");
}

#[test]
fn i4_hard_links_are_refused() {
    let place = Place::new();
    std::fs::hard_link(place.outer.join("secret"), place.inner("outputs/hard")).unwrap();
    place.refuses("outputs/hard");
    assert_eq!(place.workspace.extent(), Extent::default());
    assert_eq!(place.workspace.outputs(&Limits::default()).unwrap(), []);
    assert_eq!(place.workspace.list("outputs").unwrap(), []);
}

#[test]
fn i4_pipes_sockets_and_directories_are_refused_as_files() {
    let place = Place::new();
    nix::unistd::mkfifo(&place.inner("outputs/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.inner("outputs/socket")).unwrap();
    place.refuses("outputs/pipe");
    place.refuses("outputs/socket");
    // Opening a pipe does not wait for its other end.
    let opened = place.workspace.open("", Path::new("outputs/pipe"), OpenOptions::new().read(true));
    assert!(matches!(opened, Err(Error::Outside { .. })), "{opened:?}");
    assert!(place.workspace.read("outputs", 10).is_err());
    assert!(place.workspace.write("outputs", b"x").is_err());
    assert_eq!(place.workspace.outputs(&Limits::default()).unwrap(), []);
}

#[test]
fn l_outputs_over_a_limit_are_an_error_that_names_the_limit() {
    let place = Place::new();
    let limits = Limits { max_output_files: 2, max_output_size_bytes: 10, ..Limits::default() };
    place.workspace.write("outputs/a", b"12345").unwrap();
    place.workspace.write("outputs/deep/b", b"12345").unwrap();
    place.workspace.write("elsewhere", b"not an output").unwrap();
    place.workspace.store_tool_output("step_001.txt", &[b'x'; 100]).unwrap();
    assert_eq!(place.workspace.extent(), Extent { files: 2, bytes: 10 });
    let outputs = place.workspace.outputs(&limits).unwrap();
    let names: Vec<&str> = outputs.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(names, ["a", "deep/b"]);
    place.workspace.write("outputs/a", b"123456").unwrap();
    let error = place.workspace.outputs(&limits).unwrap_err().to_string();
    assert!(error.starts_with("max_output_size_bytes"), "{error}");
    place.workspace.write("outputs/a", b"1").unwrap();
    place.workspace.write("outputs/c", b"1").unwrap();
    let error = place.workspace.outputs(&limits).unwrap_err().to_string();
    assert!(error.starts_with("max_output_files"), "{error}");
    assert!(place.workspace.write("outputs/tools/mine", b"uncounted").is_err());
    let read = place.workspace.read("outputs/a", 0);
    assert!(matches!(read, Err(Error::TooLarge { has: 1, max: 0, .. })), "{read:?}");
}

#[test]
fn i3_two_attempts_of_one_context_share_no_files() {
    let place = Place::new();
    place.workspace.write("outputs/mine", b"first").unwrap();
    let second = create(&place.outer);
    assert_eq!(second.list("outputs").unwrap(), []);
    second.write("outputs/mine", b"second").unwrap();
    assert_eq!(place.workspace.read("outputs/mine", 10).unwrap(), b"first");
    let gone = second.path().to_owned();
    drop(second);
    assert!(!gone.exists());
    assert_eq!(place.workspace.read("outputs/mine", 10).unwrap(), b"first");
}

#[test]
fn i3_a_directory_without_permissions_is_removed() {
    let place = Place::new();
    place.workspace.write("outputs/locked/file", b"x").unwrap();
    let locked = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(place.inner("outputs/locked"), locked).unwrap();
    let (path, own) = (place.workspace.path().to_owned(), place.workspace.own.clone());
    drop(place);
    assert!(!path.exists() && !own.exists());
}

#[test]
fn i3_files_of_a_killed_worker_are_removed_and_those_of_a_running_one_stay() {
    let outer = outer();
    let id = |name| domain::WorkerId::new(name).unwrap();
    // The directory of a killed worker has no lock.
    std::fs::create_dir_all(outer.join("dead.worker/1/trace/child")).unwrap();
    std::fs::write(outer.join("dead.worker/.trellis-worker"), "").unwrap();
    // Directories that no worker made, two of them named like a worker's.
    for name in ["theirs.worker", "one.worker"] {
        std::fs::create_dir(outer.join(name)).unwrap();
        std::fs::write(outer.join(name).join("file"), "kept").unwrap();
    }
    std::fs::create_dir(outer.join("operator")).unwrap();
    symlink(outer.join("operator"), outer.join("link.worker")).unwrap();
    std::fs::write(outer.join("operator/file"), "kept").unwrap();
    let one = WorkerDirectory::open(Some(&outer), &id("one")).unwrap();
    let workspace = create(one.path());
    assert!(!outer.join("dead.worker").exists());
    let other = WorkerDirectory::open(Some(&outer), &id("other")).unwrap();
    let namesake = WorkerDirectory::open(Some(&outer), &id("one")).unwrap();
    assert_ne!(one.path(), namesake.path());
    assert!(workspace.path().exists(), "the files of a running worker remain");
    assert!(outer.join("operator/file").exists());
    drop(other);
    drop(workspace);
    drop(one);
    assert!(!outer.join("one.2.worker").exists(), "an ended worker leaves no files");
    drop(namesake);
    assert!(outer.join("theirs.worker/file").exists() && outer.join("one.worker/file").exists());
    let names = std::fs::read_dir(&outer).unwrap().count();
    assert_eq!(names, 4, "the operator's own files remain");
    remove(&outer).unwrap();
}

/// Regression: a program that nests directories deeply ended its worker when the worker removed
/// them, and then the next one.
#[test]
fn s4_a_tree_of_any_depth_is_removed() {
    let outer = outer();
    std::fs::create_dir_all(outer.join("trellis-1/full")).unwrap();
    let mut deepest = cap_std::fs::Dir::open_ambient_dir(&outer, cap_std::ambient_authority()).unwrap();
    for _ in 0..20_000 {
        deepest.create_dir("d").unwrap();
        deepest = deepest.open_dir("d").unwrap();
    }
    deepest.write("file", "x").unwrap();
    drop(deepest);
    std::fs::set_permissions(outer.join("d/d"), std::fs::Permissions::from_mode(0o0)).unwrap();
    remove(&outer).unwrap();
    assert!(!outer.exists());
}
