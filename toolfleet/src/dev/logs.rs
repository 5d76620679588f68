//! Bounded logs: each file and its predecessor.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::sleep;

use super::private::open_no_link;

const BYTES_MAX: u64 = 32 * 1024 * 1024;
const PAUSE: Duration = Duration::from_secs(30);

/// Moves the content of each log that has grown too long to `<name>.log.1`; runs until it is dropped.
///
/// The writers keep their file open and append, so it is emptied, not replaced. Lines that are written between the copy and the
/// emptying are lost.
pub(crate) async fn keep_small(folder: PathBuf) {
    loop {
        if let Err(reason) = shorten(&folder, BYTES_MAX) {
            tracing::warn!(folder = %folder.display(), %reason, "cannot shorten the logs");
        }
        sleep(PAUSE).await;
    }
}

fn shorten(folder: &Path, bytes_max: u64) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        // A link may lead to any file of this user, and would be emptied.
        let metadata = fs::symlink_metadata(&path)?;
        if is_log && metadata.is_file() && metadata.len() > bytes_max {
            set_aside(&path)?;
        }
    }
    Ok(())
}

fn set_aside(log: &Path) -> io::Result<()> {
    let before = log.with_extension("log.1");
    match fs::remove_file(&before) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => return Err(reason),
        _ => {}
    }
    let mut new = OpenOptions::new();
    let mut aside = new.write(true).create_new(true).mode(0o600).open(&before)?;
    let mut open = open_no_link(OpenOptions::new().read(true).write(true), log)?;
    io::copy(&mut open, &mut aside)?;
    open.set_len(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_link_is_neither_emptied_nor_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("victim"), "theirs").unwrap();
        std::os::unix::fs::symlink(at("victim"), at("planted.log")).unwrap();
        fs::write(at("worker.log"), "a long line").unwrap();
        std::os::unix::fs::symlink(at("victim"), at("worker.log.1")).unwrap();
        shorten(folder.path(), 3).unwrap();
        assert_eq!(fs::read_to_string(at("victim")).unwrap(), "theirs");
        assert_eq!(
            fs::read_to_string(at("worker.log.1")).unwrap(),
            "a long line"
        );
        assert_eq!(fs::read_to_string(at("worker.log")).unwrap(), "");
    }

    #[test]
    fn a_long_log_moves_aside_and_its_writer_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("worker.log");
        let mut writer = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&log)
            .unwrap();
        writer.write_all(b"a long line\n").unwrap();
        shorten(folder.path(), 12).unwrap();
        assert_eq!(fs::metadata(&log).unwrap().len(), 12);

        shorten(folder.path(), 11).unwrap();
        writer.write_all(b"new\n").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "new\n");
        assert_eq!(
            fs::read_to_string(folder.path().join("worker.log.1")).unwrap(),
            "a long line\n"
        );
    }
}
