//! The folder with the files of an attempt: private, read-only, and gone with the attempt.
//!
//! All folders of a worker are in one, which it holds locked for as long as it lives. What a worker leaves that was killed is removed by
//! the guard of its program, if it had one, and by the next worker of the same user on this machine that starts: a folder that can be
//! locked belongs to nobody any more.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use fleet::{files::CallFile, outcome::ToolFailure};
use nix::unistd::geteuid;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::{fs::OpenOptions, io::AsyncWriteExt};

use super::{
    failures::{changed, gone, unread, unwritten},
    names,
};
use crate::{executors::AttemptFiles, guard::Tmp};

/// With what the name of a worker's folder begins.
const KIND: &str = "toolfleet-files";
/// What a program reads first.
const LIST: &str = "files.json";
/// The most folders of others that are looked at.
const FOLDERS_MAX: usize = 1_000;

/// The folders of one worker; nothing is made before there is a file.
#[derive(Debug)]
pub(crate) struct FileFolders {
    below: PathBuf,
    own: Mutex<Option<Arc<WorkerFolder>>>,
}

/// The folder in which all others of a worker are. Dropping it removes it.
#[derive(Debug)]
struct WorkerFolder {
    folder: Tmp,
    /// Locked until this process is gone, or the folder.
    _lock: File,
}

/// The folder of one attempt. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct AttemptFolder {
    folder: Tmp,
    within: Arc<WorkerFolder>,
}

/// What a program is told of a file.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    file: &'a CallFile,
    /// Where it is.
    path: &'a Path,
}

impl FileFolders {
    /// In the folder for temporary files. What workers of this user left there that were killed is removed now.
    pub(crate) fn new() -> Self {
        Self::below(std::env::temp_dir())
    }

    fn below(below: PathBuf) -> Self {
        sweep(&below);
        Self {
            below,
            own: Mutex::default(),
        }
    }

    /// Writes all files of an attempt, and the list of them. Dropping the future removes what it has written.
    ///
    /// # Errors
    ///
    /// One is gone or is not what it was, or it cannot be read or written.
    pub(crate) async fn write(&self, files: &AttemptFiles) -> Result<AttemptFolder, ToolFailure> {
        let folder = self.make().map_err(|error| unwritten(&error))?;
        let mut paths = Vec::with_capacity(files.list().len());
        for (at, file) in files.list().iter().enumerate() {
            let path = folder.path().join(names::of(at + 1, &file.name));
            copy(files, file, &path).await?;
            paths.push(path);
        }
        let finished = folder.finish(files.list(), &paths).await;
        finished.map_err(|error| unwritten(&error))?;
        Ok(folder)
    }

    fn make(&self) -> io::Result<AttemptFolder> {
        let within = self.own()?;
        within.open()?;
        let folder = Tmp::make_in(within.folder.path(), "attempt")?;
        Ok(AttemptFolder { folder, within })
    }

    fn own(&self) -> io::Result<Arc<WorkerFolder>> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have tidied up.
        let own_is_there = |own: &&Arc<WorkerFolder>| own.folder.path().is_dir();
        if let Some(own) = own.as_ref().filter(own_is_there) {
            return Ok(Arc::clone(own));
        }
        let made = Arc::new(WorkerFolder::make(&self.below)?);
        *own = Some(Arc::clone(&made));
        Ok(made)
    }
}

impl WorkerFolder {
    /// Programs run as the same user, and one may have closed it.
    fn open(&self) -> io::Result<()> {
        fs::set_permissions(self.folder.path(), Permissions::from_mode(0o700))
    }

    fn make(below: &Path) -> io::Result<Self> {
        // Another worker that starts may find the first one before it is locked, and remove it.
        loop {
            let folder = Tmp::make_in(below, KIND)?;
            let lock = match File::open(folder.path()) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            if lock.try_lock().is_ok() && folder.path().is_dir() {
                return Ok(Self {
                    folder,
                    _lock: lock,
                });
            }
        }
    }
}

impl Drop for AttemptFolder {
    /// In a folder that is closed it could not be removed.
    fn drop(&mut self) {
        // What is gone altogether needs no opening.
        self.within.open().unwrap_or(());
    }
}

impl AttemptFolder {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the list, and leaves the folder as its program is to find it.
    async fn finish(&self, files: &[CallFile], paths: &[PathBuf]) -> io::Result<()> {
        let listed: Vec<Listed<'_>> = files
            .iter()
            .zip(paths)
            .map(|(file, path)| Listed { file, path })
            .collect();
        let path = self.path().join(LIST);
        tokio::fs::write(&path, serde_json::to_vec(&listed)?).await?;
        tokio::fs::set_permissions(&path, Permissions::from_mode(0o400)).await?;
        tokio::fs::set_permissions(self.path(), Permissions::from_mode(0o500)).await
    }
}

/// Writes one file, a piece at a time.
async fn copy(files: &AttemptFiles, file: &CallFile, path: &Path) -> Result<(), ToolFailure> {
    let unwritten = |error: io::Error| unwritten(&error);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o400);
    let mut written = options.open(path).await.map_err(unwritten)?;
    let (mut hash, mut at) = (Sha256::new(), 0);
    while at < file.bytes {
        let read = files.read(file.file_id, at).await;
        let piece = read.map_err(|error| unread(file.file_id, &error))?;
        if piece.is_empty() {
            return Err(gone(file.file_id));
        }
        hash.update(&piece);
        written.write_all(&piece).await.map_err(unwritten)?;
        at += piece.len() as u64;
    }
    written.flush().await.map_err(unwritten)?;
    if at != file.bytes || hash.finalize()[..] != file.sha256 {
        return Err(changed(file.file_id));
    }
    Ok(())
}

/// Removes what nobody holds any more.
fn sweep(below: &Path) {
    let Ok(entries) = fs::read_dir(below) else {
        return;
    };
    let ours = entries.flatten().filter(|entry| {
        let is_kind = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(KIND));
        // Follows no link.
        let is_ours = || {
            let found = entry.metadata();
            found.is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
        };
        is_kind && is_ours()
    });
    for folder in ours.take(FOLDERS_MAX) {
        let path = folder.path();
        let lock = File::open(&path);
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            tracing::info!(folder = %path.display(), "files of calls are removed that a worker left");
            drop(Tmp::made(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_folder_is_read_only_and_goes_with_its_attempt_and_its_worker() {
        let below = tempfile::tempdir().unwrap();
        let folders = FileFolders::below(below.path().to_owned());
        assert_eq!(fs::read_dir(below.path()).unwrap().count(), 0);
        let first = folders.make().unwrap();
        let second = folders.make().unwrap();
        fs::write(first.path().join("1-a"), "a").unwrap();
        first.finish(&[], &[]).await.unwrap();
        assert_eq!(mode(first.path()), 0o500);
        assert_eq!(mode(&first.path().join(LIST)), 0o400);
        assert_eq!(fs::read_to_string(first.path().join(LIST)).unwrap(), "[]");
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && second.path().exists());
        let path = second.path().to_owned();
        drop(folders);
        assert!(path.exists());
        drop(second);
        assert_eq!(fs::read_dir(below.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_dead_worker_left_goes_and_what_a_living_one_has_stays() {
        let below = tempfile::tempdir().unwrap();
        let left = below.path().join(format!("{KIND}-left"));
        fs::create_dir_all(left.join("attempt")).unwrap();
        fs::write(left.join("attempt/1-a"), "a").unwrap();
        fs::set_permissions(left.join("attempt"), Permissions::from_mode(0o500)).unwrap();
        let other = below.path().join("toolfleet-events-x");
        fs::create_dir(&other).unwrap();
        let living = FileFolders::below(below.path().to_owned());
        assert!(!left.exists() && other.exists());
        let held = living.make().unwrap();
        let next = FileFolders::below(below.path().to_owned());
        assert!(held.path().exists());
        drop((held, living, next));
        assert_eq!(fs::read_dir(below.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_a_program_has_closed_is_opened_again() {
        let below = tempfile::tempdir().unwrap();
        let folders = FileFolders::below(below.path().to_owned());
        let first = folders.make().unwrap();
        let within = first.path().parent().unwrap();
        fs::set_permissions(within, Permissions::from_mode(0o000)).unwrap();
        assert!(folders.make().unwrap().path().exists());
        assert_eq!(mode(within), 0o700);
        fs::set_permissions(within, Permissions::from_mode(0o000)).unwrap();
        let within = within.to_owned();
        drop(first);
        assert_eq!(mode(&within), 0o700);
        assert_eq!(fs::read_dir(within).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_somebody_has_tidied_away_is_made_again() {
        let below = tempfile::tempdir().unwrap();
        let folders = FileFolders::below(below.path().to_owned());
        let first = folders.make().unwrap();
        fs::remove_dir_all(first.path().parent().unwrap()).unwrap();
        assert!(folders.make().unwrap().path().exists());
    }
}
