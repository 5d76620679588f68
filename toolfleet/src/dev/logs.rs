//! Bounded logs: each file and its predecessor.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::sleep;

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
        if is_log && fs::metadata(&path)?.len() > bytes_max {
            fs::copy(&path, path.with_extension("log.1"))?;
            OpenOptions::new().write(true).open(&path)?.set_len(0)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

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
