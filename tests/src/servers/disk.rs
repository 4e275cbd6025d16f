//! A small disk for one server, which can be filled up or lose power: an ext4 on a loop device,
//! mounted in a mount namespace that ends with the server. It needs root and a loop device;
//! [`Disk::allowed`] checks for both.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

/// The file that fills the disk. It is deleted when the disk is mounted again.
const FILLER: &str = "filler";

/// Mounts the image `$0` at `$1`, then executes the program that follows.
const MOUNT: &str = r#"mount -o loop "$0" "$1" && rm -f "$1/filler" && shift && exec "$@""#;

/// EXT4_IOC_SHUTDOWN without flushing the log: unsynced writes are lost, and no more reads or
/// writes are possible.
const CUT: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    /// True if this process has the rights to create disks.
    pub fn allowed() -> bool {
        static ALLOWED: OnceLock<bool> = OnceLock::new();
        *ALLOWED.get_or_init(|| {
            let dir = std::env::temp_dir().join(format!("trellis-disk-{}", std::process::id()));
            let disk = Disk::create(&dir, &dir.join("at"), 8);
            let mounted = disk.is_some_and(|disk| {
                let (program, arguments) = disk.start("true".into(), Vec::new());
                run(Command::new(program).args(arguments)).is_some_and(|done| done.status.success())
            });
            let _ = fs::remove_dir_all(&dir);
            mounted
        })
    }

    /// Creates the image in `dir`; it will be mounted at `at`.
    pub(super) fn create(dir: &Path, at: &Path, megabytes: u64) -> Option<Disk> {
        fs::create_dir_all(at).ok()?;
        let image = dir.join("disk.img");
        File::create(&image).ok()?.set_len(megabytes << 20).ok()?;
        let made = run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))?;
        made.status.success().then(|| Disk { image, at: at.to_owned() })
    }

    /// The command that starts `program` with the disk mounted.
    pub(super) fn start(&self, program: PathBuf, arguments: Vec<OsString>) -> (PathBuf, Vec<OsString>) {
        let mut all: Vec<OsString> = ["--mount", "sh", "-c", MOUNT].map(OsString::from).into();
        all.extend([self.image.clone().into(), self.at.clone().into(), program.into()]);
        all.extend(arguments);
        ("unshare".into(), all)
    }

    /// Writes until the disk is full.
    pub(super) fn fill(&self, server: u32) {
        let mut file = File::create(self.seen_by(server).join(FILLER)).expect("the disk can be written");
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![0; size]).and_then(|()| file.sync_data()).is_ok() {}
        }
    }

    /// Cuts the power: unsynced writes are lost, and the server can't use the disk any more.
    pub(super) fn cut_power(&self, server: u32) {
        let cut = run(Command::new("python3").args(["-c", CUT]).arg(self.seen_by(server)));
        assert!(cut.as_ref().is_some_and(|cut| cut.status.success()), "the power was not cut: {cut:?}");
    }

    /// The mount point, through the namespace of the server.
    fn seen_by(&self, server: u32) -> PathBuf {
        let at = self.at.strip_prefix("/").expect("an absolute path");
        Path::new("/proc").join(server.to_string()).join("root").join(at)
    }
}

fn run(command: &mut Command) -> Option<Output> {
    command.stdin(Stdio::null()).output().ok()
}
