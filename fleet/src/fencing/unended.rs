//! **Has each guard seen the end of its tool?** A file for each program that runs, which its guard removes when none of the
//! program's processes is left.
//!
//! A free lock proves that every guard is gone, and a guard that ended by itself has left nothing. One that was killed together
//! with its worker proves nothing: its tool may have closed the lock's descriptor and run on. Such a guard could not remove its
//! file. Then `/proc` has to prove it, by a list in which no process can be what the tool started. A process of a tool has no
//! way to be older than its guard, to get a parent that is neither its tool's nor one of its guard's ancestors, or to get back
//! another user's rights.
//!
//! Limits: a tool may remove the file, as it may write all that its worker's user may. One with a sandbox may not, and cannot
//! kill its guard.

use std::{
    fs, io,
    os::fd::RawFd,
    path::{Path, PathBuf},
};

use nix::unistd::{Pid, geteuid};
use serde::{Deserialize, Serialize};

use crate::{
    ids::{AttemptId, WorkerId},
    processes::{self, Process},
};

const EXTENSION: &str = "unended";
/// The most files of one worker that are looked at; with more, nothing is proven.
const FILES_MAX: usize = 10_000;
/// How often the list of processes is read anew because a process was started meanwhile.
const READS_MAX: usize = 20;
/// More generations than any guard has ancestors.
const ANCESTORS_MAX: usize = 1_000;

/// A file that says: this guard has not seen the end of its tool.
#[derive(Debug)]
#[must_use]
pub struct Unended(PathBuf);

impl Unended {
    /// Writes it beside the worker's lock, of which this process was lent a share.
    ///
    /// # Errors
    ///
    /// The system refused, or the descriptor is not of a worker's lock.
    pub fn write(lent: RawFd, attempt: AttemptId) -> io::Result<Self> {
        let lock = fs::read_link(format!("/proc/self/fd/{lent}"))?;
        // It has the same stem when it is withdrawn.
        let path = file(&lock, attempt).ok_or(io::ErrorKind::InvalidInput)?;
        fs::write(&path, serde_json::to_vec(&Guard::this()?)?)?;
        Ok(Self(path))
    }

    /// Removes it: no process of the tool is left.
    pub fn remove(self) {
        // What stays only keeps the proof from the worker.
        fs::remove_file(self.0).unwrap_or(());
    }
}

/// Removes what a killed guard could not: another proof was found that no process of its tool is left.
pub(super) fn forget(lock: &Path, attempt: AttemptId) {
    if let Some(path) = file(lock, attempt) {
        fs::remove_file(path).unwrap_or(());
    }
}

/// Removes all of a worker's files.
pub(super) fn forget_all(lock: &Path) {
    for path in files(lock).unwrap_or_default() {
        fs::remove_file(path).unwrap_or(());
    }
}

/// Whether nothing is left of what guards of this worker did not see end. Its lock is held by this process alone.
pub(super) fn nothing_lives(lock: &Path) -> io::Result<bool> {
    let files = files(lock)?;
    if files.is_empty() {
        return Ok(true);
    }
    let (Some(now), true) = (Now::look(), files.len() < FILES_MAX) else {
        return Ok(false);
    };
    let ended = |path: &PathBuf| {
        let guard = fs::read(path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Guard>(&bytes).ok());
        guard.is_some_and(|guard| guard.has_left_nothing(&now))
    };
    Ok(files.iter().all(ended))
}

fn file(lock: &Path, attempt: AttemptId) -> Option<PathBuf> {
    let worker = lock.file_stem()?.to_str()?;
    worker
        .strip_prefix(super::PREFIX)?
        .parse::<WorkerId>()
        .ok()?;
    Some(lock.with_file_name(format!("{worker}.{attempt}.{EXTENSION}")))
}

fn files(lock: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(folder), Some(worker)) = (lock.parent(), lock.file_stem()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let of_worker = |entry: io::Result<fs::DirEntry>| match entry {
        Ok(entry) => {
            let path = entry.path();
            let is_one = path.extension().is_some_and(|found| found == EXTENSION)
                && path.file_name().is_some_and(|name| {
                    name.as_encoded_bytes()
                        .starts_with(worker.as_encoded_bytes())
                });
            is_one.then_some(Ok(path))
        }
        Err(error) => Some(Err(error)),
    };
    fs::read_dir(folder)?
        .filter_map(of_worker)
        .take(FILES_MAX)
        .collect()
}

/// What a guard says of itself before it starts its tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Guard {
    /// Nothing outlives a start of the machine.
    boot: String,
    /// In which list of processes its tool's are.
    pids: String,
    /// When it was started; no process of its tool is older.
    started: u64,
    /// Those that its tool's processes may be handed to.
    ancestors: Vec<i32>,
    /// Whose processes its tool's are. `None`: a tool of root, or one that may start programs which have another user's rights.
    user: Option<u32>,
}

impl Guard {
    fn this() -> io::Result<Self> {
        let own = processes::one(Pid::this()).ok_or(io::ErrorKind::NotFound)?;
        let mut ancestors = vec![own.parent];
        while let Some(process) = ancestors.last().and_then(|pid| processes::one(*pid)) {
            if process.parent.as_raw() == 0 || ancestors.len() > ANCESTORS_MAX {
                break;
            }
            ancestors.push(process.parent);
        }
        let user = geteuid();
        let bound = !user.is_root() && gains_no_rights();
        Ok(Self {
            boot: boot()?,
            pids: pids()?,
            started: own.started,
            ancestors: ancestors.into_iter().map(Pid::as_raw).collect(),
            user: bound.then_some(user.as_raw()),
        })
    }

    /// Whether none of these processes can be one of its tool.
    fn has_left_nothing(&self, now: &Now) -> bool {
        if self.boot != now.boot {
            return true;
        }
        self.pids == now.pids
            && !now
                .processes
                .iter()
                .any(|process| self.may_have(process, now))
    }

    fn may_have(&self, process: &Seen, now: &Now) -> bool {
        let Seen { process, users } = process;
        let of_user = |user: &u32| users.as_ref().is_none_or(|users| users.contains(user));
        if process.zombie
            || process.kernel
            || process.started < self.started
            || !self.user.as_ref().is_none_or(of_user)
        {
            return false;
        }
        let mut pid = process.pid;
        for _generation in 0..ANCESTORS_MAX {
            // What the looking process started is not the tool's, if no process is handed to it.
            if pid == now.own && !now.adopts {
                return false;
            }
            let Some(Seen { process, .. }) =
                now.processes.iter().find(|seen| seen.process.pid == pid)
            else {
                return true;
            };
            if process.started < self.started {
                return process.parent.as_raw() == 0 || self.ancestors.contains(&pid.as_raw());
            }
            pid = process.parent;
        }
        true
    }
}

/// A process and the users whose rights it has or can get back; `None` if it does not say so.
#[derive(Debug, Clone)]
struct Seen {
    process: Process,
    users: Option<Vec<u32>>,
}

/// What this process sees.
#[derive(Debug, Clone)]
struct Now {
    boot: String,
    pids: String,
    own: Pid,
    /// Whether processes that lose their parent may be handed to this one.
    adopts: bool,
    processes: Vec<Seen>,
}

impl Now {
    /// `None`: it cannot see every process.
    fn look() -> Option<Self> {
        let processes = complete_list()?;
        Some(Self {
            boot: boot().ok()?,
            pids: pids().ok()?,
            own: Pid::this(),
            adopts: adopts(),
            processes: processes
                .into_iter()
                .map(|process| Seen {
                    process,
                    users: users(process.pid),
                })
                .collect(),
        })
    }
}

/// All processes at one moment: none was started while the list was read.
fn complete_list() -> Option<Vec<Process>> {
    (0..READS_MAX).find_map(|_read| {
        let before = forks()?;
        let processes = processes::all();
        let unhidden = processes.iter().any(|process| process.pid.as_raw() == 1);
        (unhidden && forks()? == before).then_some(processes)
    })
}

/// How many processes this machine has ever started.
fn forks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat
        .lines()
        .find_map(|line| line.strip_prefix("processes "))?;
    line.trim().parse().ok()
}

fn boot() -> io::Result<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
}

fn pids() -> io::Result<String> {
    let link = fs::read_link("/proc/self/ns/pid")?;
    Ok(link.to_string_lossy().into_owned())
}

fn status(pid: Pid, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().to_owned())
}

fn users(pid: Pid) -> Option<Vec<u32>> {
    let users = status(pid, "Uid:")?;
    users
        .split_ascii_whitespace()
        .map(|user| user.parse().ok())
        .collect()
}

fn gains_no_rights() -> bool {
    status(Pid::this(), "NoNewPrivs:").is_some_and(|said| said == "1")
}

fn adopts() -> bool {
    #[cfg(target_os = "linux")]
    return Pid::this().as_raw() == 1 || nix::sys::prctl::get_child_subreaper() != Ok(false);
    #[cfg(not(target_os = "linux"))]
    true
}
