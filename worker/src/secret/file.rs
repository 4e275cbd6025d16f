//! Reads a file with a secret within bounds, and decides which values can be found in texts.

use std::{
    fs::OpenOptions,
    io::{Error, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use nix::libc;

/// A shorter value would occur in unrelated texts.
pub(super) const MIN_BYTES: usize = 8;
pub(super) const MAX_BYTES: usize = 8 * 1024;
/// A shorter value of only small letters may be a plain word.
const MIN_WORD_BYTES: usize = 16;
/// The most bytes of a file. A file of credentials has several values.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// Permissions that a file with secrets should not have: any for others, and all but reading for
/// its group.
const TOO_OPEN: u32 = 0o037;

/// The text of a file, without the line feed at its end.
pub(super) fn file(path: &Path) -> Result<String, String> {
    let text = read_file(path);
    text.map_err(|error| format!("the file {} can't be read: {error}", path.display()))
}

fn read_file(path: &Path) -> Result<String, Error> {
    // A pipe without a writer must not block the start.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Error::other("it is not a regular file"));
    }
    let mode = metadata.mode() & 0o777;
    if mode & TOO_OPEN != 0 {
        let (path, mode) = (path.display(), format!("{mode:03o}"));
        tracing::warn!(%path, mode, "other users can read or change this file with a secret; set its mode to 640 or less");
    }
    let mut text = String::new();
    if file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_FILE_BYTES {
        return Err(Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}

/// Returns true if a value can be found in texts without false matches: it is long enough, and not
/// a plain word. A password such as `children` is also the name of a field, and messages without
/// that name could not be read.
pub(super) fn is_recognised(value: &str) -> bool {
    (MIN_BYTES..=MAX_BYTES).contains(&value.len()) && !is_plain_word(value)
}

pub(super) fn is_plain_word(value: &str) -> bool {
    value.len() < MIN_WORD_BYTES && value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// proves: one line feed at the end does not belong to a value, everything else does; and every
    /// file is read within a bound.
    #[test]
    fn s8_a_file_of_a_secret_is_read_within_bounds() {
        let directory = std::env::temp_dir().join(format!("trellis-source-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("value");
        for (written, read) in [
            ("a b", "a b"),
            ("a b\n", "a b"),
            (" a\r\n", " a"),
            ("a\n\n", "a\n"),
            ("a\nb\n", "a\nb"),
            ("", ""),
        ] {
            std::fs::write(&path, written).unwrap();
            assert_eq!(file(&path).as_deref(), Ok(read), "{written:?}");
        }
        std::fs::write(&path, "x".repeat((64 << 10) + 1)).unwrap();
        nix::unistd::mkfifo(&directory.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, why) in [
            (path.as_path(), "more than 65536 bytes"),
            (&directory, "not a regular file"),
            (&directory.join("pipe"), "not a regular file"),
            (Path::new("/dev/zero"), "not a regular file"),
            (&directory.join("none"), "No such file"),
        ] {
            let error = file(path).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
