//! **Is it really gone?** A lock that lasts as long as a worker *and everything it started*.
//!
//! Each worker holds a shared `flock` on a file of its own, for life, and so does each guard of its tools. A further share is
//! lent to the guards, and the tools' processes inherit it. Such a lock belongs to the open file, not to a process: the kernel
//! releases it when the last descriptor is closed, however the processes died. So a process that can take the lock exclusively
//! has proven that nothing of that worker is left, without knowing a pid and without trusting a clock.
//!
//! A tool may close descriptors, and can unlock no share but the lent one; its guard holds its own as long as any process of
//! the tool lives. If a guard is killed together with its worker, a free lock is not enough: each guard has a file that it
//! removes when it has seen the end of its tool (`unended`). A worker that has to kill a guard withdraws its lock first, and
//! no process can prove anything by it until the worker has seen that nothing is left ([`WorkerLock::withdraw`]).
//!
//! Descriptors are closed and never unlocked: unlocking one would release the share of every holder.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    unistd::geteuid,
};

use self::unended::Facts;
pub use self::unended::Unended;
use crate::ids::{AttemptId, WorkerId};

/// The most locks in one listing.
const LOCKS_MAX: usize = 1_000;

/// The folder in which the workers of one machine have their locks.
#[derive(Debug, Clone)]
pub struct StateDir(PathBuf);

/// What can go wrong with locks.
#[derive(Debug, thiserror::Error)]
pub enum FencingError {
    /// The folder cannot be trusted: a user with write access could forge a proof.
    #[error("the state folder {} {problem}; name one of this user's own with --state-dir", path.display())]
    Unfit {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The system refused.
    #[error("{doing} {}", path.display())]
    System {
        /// What the process was doing.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl StateDir {
    /// Opens this folder; makes it if its parent exists.
    ///
    /// # Errors
    ///
    /// It cannot be made, or other users can write there.
    pub fn open(path: &Path) -> Result<Self, FencingError> {
        // Without a slash at the end, which would follow a link.
        let path: PathBuf = path.components().collect();
        let path = std::path::absolute(&path).map_err(system("find the state folder", &path))?;
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(system("create the state folder", &path)(error));
            }
            Ok(()) | Err(_) => {}
        }
        let found = fs::symlink_metadata(&path).map_err(system("look at", &path))?;
        let problem = if !found.is_dir() {
            "is not a folder"
        } else if found.uid() != geteuid().as_raw() {
            "belongs to another user"
        } else if found.mode() & 0o022 != 0 {
            "can be written by other users"
        } else {
            return Ok(Self(path));
        };
        Err(FencingError::Unfit { path, problem })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the lock of a worker that is about to start, and holds it.
    ///
    /// # Errors
    ///
    /// The file cannot be made.
    pub fn hold(&self, worker: WorkerId) -> Result<WorkerLock, FencingError> {
        let path = self.file(worker);
        // Under another name until it is locked, so that no process finds it free.
        let unnamed = path.with_extension("new");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&unnamed)
            .map_err(system("create", &unnamed))?;
        let lent = File::open(&unnamed).map_err(system("open", &unnamed))?;
        for share in [&file, &lent] {
            share
                .try_lock_shared()
                .map_err(|refused| system("lock", &unnamed)(refused.into()))?;
        }
        Facts::own()
            .and_then(|facts| Ok(serde_json::to_writer(&file, &facts)?))
            .map_err(system("write", &unnamed))?;
        fs::rename(&unnamed, &path).map_err(system("name", &path))?;
        Ok(WorkerLock {
            _own: file,
            lent: Mutex::new(lent),
            path,
            withdrawals: Mutex::new(0),
        })
    }

    /// Tries to prove that a worker and everything it started are gone. `None`: something lives, or it cannot be known.
    ///
    /// The proof holds the lock: keep it until its consequence is recorded.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or locked.
    pub fn prove_gone(&self, worker: WorkerId) -> Result<Option<Proof>, FencingError> {
        let path = self.file(worker);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(system("open", &path)(error)),
        };
        match file.try_lock() {
            // Withdrawn since it was opened.
            Ok(()) if !is_at(&file, &path) => Ok(None),
            Ok(())
                if !unended::nothing_lives(&path, &file)
                    .map_err(system("look beside", &path))? =>
            {
                Ok(None)
            }
            Ok(()) => Ok(Some(Proof {
                worker,
                path,
                _held: file,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(system("lock", &path)(error)),
        }
    }

    /// The workers that have a lock file here, held or not. At most `LOCKS_MAX`.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn workers(&self) -> Result<Vec<WorkerId>, FencingError> {
        let entries = fs::read_dir(&self.0).map_err(system("read", &self.0))?;
        let worker = |entry: fs::DirEntry| {
            let name = entry.file_name();
            let id = name
                .to_str()?
                .strip_prefix(unended::PREFIX)?
                .strip_suffix(SUFFIX)?;
            id.parse().ok()
        };
        Ok(entries
            .flatten()
            .filter_map(worker)
            .take(LOCKS_MAX)
            .collect())
    }

    /// Whether its lock was withdrawn: then only a person can tell that it and everything it started are gone.
    pub fn is_withdrawn(&self, worker: WorkerId) -> bool {
        self.file(worker).with_extension(WITHDRAWN).exists()
    }

    fn file(&self, worker: WorkerId) -> PathBuf {
        self.0.join(format!("{}{worker}{SUFFIX}", unended::PREFIX))
    }
}

const SUFFIX: &str = ".lock";
const WITHDRAWN: &str = "withdrawn";

fn is_at(file: &File, path: &Path) -> bool {
    let place = |found: fs::Metadata| (found.dev(), found.ino());
    let held = file.metadata().map(place);
    let there = fs::symlink_metadata(path).map(place);
    matches!((held, there), (Ok(held), Ok(there)) if held == there)
}

/// This process's own share of a lock of which it was lent a share: its children do not inherit it, and unlocking the lent
/// share does not release it.
///
/// # Errors
///
/// The system refused, the descriptor is not of a lock, or another process has taken the lock.
pub fn own_share(lent: RawFd) -> io::Result<File> {
    // By descriptor and not by name: a second opening of the same file, wherever it is.
    let share = File::open(format!("/proc/self/fd/{lent}"))?;
    share.try_lock_shared()?;
    Ok(share)
}

/// A worker's lock, held while it lives. Dropping it releases this process's share only.
#[derive(Debug)]
pub struct WorkerLock {
    _own: File,
    lent: Mutex<File>,
    path: PathBuf,
    /// How many withdrawals are open.
    withdrawals: Mutex<u32>,
}

impl WorkerLock {
    /// Lets the process that `spawn` starts inherit a share; `spawn` gets the number of the descriptor.
    ///
    /// One at a time. A process that another thread starts at this very moment without the lock gets a share too.
    ///
    /// # Errors
    ///
    /// Those of `spawn`; or the system refused.
    pub fn lend<T>(&self, spawn: impl FnOnce(RawFd) -> io::Result<T>) -> io::Result<T> {
        let file = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        close_on_exec(&file, false)?;
        let spawned = spawn(file.as_raw_fd());
        close_on_exec(&file, true)?;
        spawned
    }

    /// Hides the lock: a process without a share may be alive, and is not to be proven gone.
    pub fn withdraw(self: &Arc<Self>) -> Withdrawn {
        let mut withdrawals = self.withdrawals();
        *withdrawals += 1;
        if *withdrawals == 1 {
            self.rename(&self.path, &self.hidden());
        }
        Withdrawn(Arc::clone(self))
    }

    fn withdrawals(&self) -> MutexGuard<'_, u32> {
        self.withdrawals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn hidden(&self) -> PathBuf {
        self.path.with_extension(WITHDRAWN)
    }

    fn rename(&self, from: &Path, to: &Path) {
        if let Err(error) = fs::rename(from, to) {
            tracing::error!(%error, from = %from.display(), to = %to.display(), "the worker's lock cannot be renamed");
        }
    }
}

/// A process without a share in the lock may live. Dropping this leaves the lock hidden: then only a person can tell.
#[derive(Debug)]
#[must_use]
pub struct Withdrawn(Arc<WorkerLock>);

impl Withdrawn {
    /// What this attempt's lost guard left behind is gone. The guard could not remove its file itself.
    pub fn restore_without_guard(self, attempt: AttemptId) {
        unended::forget(&self.0.path, attempt);
        self.restore();
    }

    /// That process is gone: the lock proves again what it did, unless there are other withdrawals.
    pub fn restore(self) {
        let lock = &self.0;
        let mut withdrawals = lock.withdrawals();
        *withdrawals -= 1;
        if *withdrawals == 0 {
            lock.rename(&lock.hidden(), &lock.path);
        }
    }
}

fn close_on_exec(file: &File, close: bool) -> io::Result<()> {
    let flag = if close {
        FdFlag::FD_CLOEXEC
    } else {
        FdFlag::empty()
    };
    fcntl(file, FcntlArg::F_SETFD(flag))?;
    Ok(())
}

/// The proof that a worker and everything it started are gone. While it exists, no other process can get the same proof.
#[derive(Debug)]
pub struct Proof {
    worker: WorkerId,
    path: PathBuf,
    _held: File,
}

impl Proof {
    /// The worker.
    pub const fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Removes the lock file: the consequence of the proof is recorded.
    ///
    /// # Errors
    ///
    /// The file cannot be removed.
    pub fn remove(self) -> Result<(), FencingError> {
        unended::forget_all(&self.path);
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(system("remove", &self.path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn system(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FencingError {
    let path = path.to_owned();
    move |source| FencingError::System {
        doing,
        path,
        source,
    }
}

mod unended;

#[cfg(test)]
mod tests;
