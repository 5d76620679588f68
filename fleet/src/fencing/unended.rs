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
    fs::{self, OpenOptions},
    io::{self, Read},
    os::{fd::RawFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::{
    time::{ClockId, clock_gettime},
    unistd::{Pid, geteuid},
};
use serde::{Deserialize, Serialize};

use crate::{
    ids::{AttemptId, WorkerId},
    processes::{self, Process},
};

/// What the name of a worker's lock, and of what lies beside it, begins with.
pub(super) const PREFIX: &str = "worker-";

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
    /// Makes it beside the worker's lock, of which this process was lent a share, before it starts the tool. It is empty: its
    /// name says all, for each program pays for it.
    ///
    /// # Errors
    ///
    /// The system refused, or the descriptor is not of a worker's lock.
    pub fn write(lent: RawFd, attempt: AttemptId) -> io::Result<Self> {
        let lock = fs::read_link(format!("/proc/self/fd/{lent}"))?;
        // It has the same stem when it is withdrawn.
        let worker = worker(&lock).ok_or(io::ErrorKind::InvalidInput)?;
        let path = lock.with_file_name(format!("{worker}.{attempt}.{}.{EXTENSION}", ticks()?));
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
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
    let attempt = attempt.to_string();
    for path in files(lock).unwrap_or_default() {
        if part(&path, 1) == Some(&attempt) {
            fs::remove_file(path).unwrap_or(());
        }
    }
}

/// Removes all of a worker's files.
pub(super) fn forget_all(lock: &Path) {
    for path in files(lock).unwrap_or_default() {
        fs::remove_file(path).unwrap_or(());
    }
}

/// Whether nothing is left of what guards of this worker did not see end. Its lock is held by this process alone; `facts` is
/// what stands in it.
pub(super) fn nothing_lives(lock: &Path, mut facts: impl Read) -> io::Result<bool> {
    let files = files(lock)?;
    if files.is_empty() {
        return Ok(true);
    }
    let mut read = Vec::new();
    facts.read_to_end(&mut read)?;
    let (Ok(worker), Some(now)) = (serde_json::from_slice::<Facts>(&read), Now::look()) else {
        return Ok(false);
    };
    let ended = |path: &PathBuf| {
        let started = part(path, 2).and_then(|ticks| ticks.parse().ok());
        started.is_some_and(|started| worker.has_left_nothing(started, &now))
    };
    Ok(files.len() < FILES_MAX && files.iter().all(ended))
}

/// The first part of the file name of a lock.
fn worker(lock: &Path) -> Option<&str> {
    let worker = lock.file_stem()?.to_str()?;
    let id = worker.strip_prefix(PREFIX)?.parse::<WorkerId>();
    id.is_ok().then_some(worker)
}

/// The parts are the worker, the attempt, and the moment.
fn part(path: &Path, index: usize) -> Option<&str> {
    path.file_name()?.to_str()?.split('.').nth(index)
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

/// What a worker writes of itself into its lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    /// Nothing outlives a start of the machine.
    boot: String,
    /// In which list of processes its tools' are.
    pids: String,
    /// Those that its tools' processes may be handed to: itself and its ancestors.
    ancestors: Vec<i32>,
    /// Whose processes its tools' are. `None`: tools of root, or one that may start programs which have another user's rights.
    user: Option<u32>,
}

impl Facts {
    pub(super) fn own() -> io::Result<Self> {
        let mut ancestors = vec![Pid::this()];
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
            ancestors: ancestors.into_iter().map(Pid::as_raw).collect(),
            user: bound.then_some(user.as_raw()),
        })
    }

    /// Whether none of these processes can be one of a tool that was started after this moment.
    fn has_left_nothing(&self, started: u64, now: &Now) -> bool {
        if self.boot != now.boot {
            return true;
        }
        self.pids == now.pids
            && !now
                .processes
                .iter()
                .any(|process| self.may_have(process, started, now))
    }

    fn may_have(&self, process: &OfUsers, started: u64, now: &Now) -> bool {
        let OfUsers { process, users } = process;
        let of_user = |user: &u32| users.as_ref().is_none_or(|users| users.contains(user));
        if process.zombie
            || process.kernel
            || process.started < started
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
            let Some(OfUsers { process, .. }) =
                now.processes.iter().find(|seen| seen.process.pid == pid)
            else {
                return true;
            };
            if process.started < started {
                return process.parent.as_raw() == 0 || self.ancestors.contains(&pid.as_raw());
            }
            pid = process.parent;
        }
        true
    }
}

/// A process and the users whose rights it has or can get back; `None` if it does not say so.
#[derive(Debug, Clone)]
struct OfUsers {
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
    processes: Vec<OfUsers>,
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
                .map(|process| OfUsers {
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

/// The time since the machine was started, as `/proc` has it of processes: no process that is started from now on has less.
fn ticks() -> io::Result<u64> {
    const NANOSECONDS: i64 = 10_000_000;
    #[cfg(target_os = "linux")]
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    #[cfg(not(target_os = "linux"))]
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    let ticks = now.tv_sec() * 100 + now.tv_nsec() / NANOSECONDS;
    u64::try_from(ticks).map_err(io::Error::other)
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

#[cfg(test)]
mod tests {
    use super::*;

    const STARTED: u64 = 100;
    const USER: u32 = 1_000;

    fn process(pid: i32, parent: i32, started: u64) -> OfUsers {
        let [pid, parent] = [pid, parent].map(Pid::from_raw);
        OfUsers {
            process: Process {
                pid,
                parent,
                group: pid,
                session: pid,
                zombie: false,
                started,
                kernel: false,
            },
            users: Some(vec![USER; 4]),
        }
    }

    /// The worker 40 under the supervisor 30; its guard was started at 100.
    fn worker() -> Facts {
        Facts {
            boot: "b".into(),
            pids: "p".into(),
            ancestors: vec![40, 30, 1],
            user: Some(USER),
        }
    }

    fn now(processes: impl IntoIterator<Item = OfUsers>) -> Now {
        let always = [process(1, 0, 1), process(20, 1, 10), process(30, 1, 20)];
        Now {
            boot: "b".into(),
            pids: "p".into(),
            own: Pid::from_raw(99),
            adopts: true,
            processes: always.into_iter().chain(processes).collect(),
        }
    }

    #[test]
    fn only_what_the_tool_cannot_have_started_is_overlooked() {
        let of_other = |mut seen: OfUsers| {
            seen.users = Some(vec![0; 4]);
            seen
        };
        let unreadable = |mut seen: OfUsers| {
            seen.users = None;
            seen
        };
        let zombie = |mut seen: OfUsers| {
            seen.process.zombie = true;
            seen
        };
        for (seen, left, what) in [
            (vec![], true, "nothing was started since"),
            (vec![process(60, 1, 99)], true, "older than the guard"),
            (vec![process(60, 1, 100)], false, "handed to init"),
            (
                vec![process(60, 30, 200)],
                false,
                "handed to the supervisor",
            ),
            (
                vec![process(60, 20, 200)],
                true,
                "started by an older neighbour",
            ),
            (vec![process(60, 70, 200)], false, "its parent is gone"),
            (
                vec![process(70, 1, 150), process(60, 70, 200)],
                false,
                "deeper",
            ),
            (vec![process(99, 1, 150)], false, "itself, which adopts"),
            (vec![of_other(process(60, 1, 200))], true, "of another user"),
            (
                vec![unreadable(process(60, 1, 200))],
                false,
                "of an unknown user",
            ),
            (vec![zombie(process(60, 1, 200))], true, "dead"),
        ] {
            assert_eq!(
                worker().has_left_nothing(STARTED, &now(seen)),
                left,
                "{what}"
            );
        }
        let any_user = Facts {
            user: None,
            ..worker()
        };
        assert!(!any_user.has_left_nothing(STARTED, &now([of_other(process(60, 1, 200))])));
        let own = Now {
            adopts: false,
            ..now([process(99, 30, 150), process(60, 99, 200)])
        };
        assert!(
            worker().has_left_nothing(STARTED, &own),
            "the looking process and its own"
        );
    }

    #[test]
    fn another_boot_proves_it_and_another_list_of_processes_nothing() {
        let elsewhere = Now {
            pids: "q".into(),
            ..now([])
        };
        assert!(!worker().has_left_nothing(STARTED, &elsewhere));
        let later = Now {
            boot: "c".into(),
            ..now([process(50, 1, 200)])
        };
        assert!(worker().has_left_nothing(STARTED, &later));
    }

    #[test]
    fn what_a_worker_writes_is_read_back() {
        let facts = Facts::own().unwrap();
        let written = serde_json::to_vec(&facts).unwrap();
        assert_eq!(serde_json::from_slice::<Facts>(&written).unwrap(), facts);
        assert_eq!(facts.ancestors.last(), Some(&1));
    }

    #[test]
    fn what_starts_now_has_started_since() {
        let before = ticks().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let started = processes::one(pid).unwrap().started;
        child.wait().unwrap();
        assert!(
            (before..=ticks().unwrap()).contains(&started),
            "{before} {started}"
        );
    }
}
