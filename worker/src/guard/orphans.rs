//! The second line of defence: processes that a guard left behind because it was killed, or because it gave up.
//!
//! A process belongs to a lost guard if one of these holds: it is in the guard's session; it carries the attempt's id in its
//! environment; or, in a worker that adopts orphans, it is our child, is in a foreign session, and is no guard. The last rule
//! finds a process that has left the session *and* wiped its environment. A descendant of a process that belongs, belongs too, and
//! so does one of a guard that was not waited for yet.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use fleet::processes::{Process, all, descendants};
use nix::{
    sys::{
        signal::Signal::SIGKILL,
        wait::{WaitPidFlag, waitpid},
    },
    unistd::{Pid, getsid},
};

use super::tree;

/// The guards that this process started and has not yet waited for.
static GUARDS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// Makes this process inherit the processes of a killed guard. A worker calls it once, when it starts.
///
/// Only for a process whose other children stay in its own session: an unrelated daemon that becomes our child would be taken
/// for an orphan and killed.
///
/// # Errors
///
/// The kernel refused. Outside Linux it does nothing and succeeds.
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        nix::sys::prctl::set_child_subreaper(true)?;
        // Tools have our user id: without this they could read our environment, which holds the ledger's password.
        nix::sys::prctl::set_dumpable(false)?;
        ADOPTING.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether the processes of a lost guard are handed to us: otherwise we cannot know that we have found all of them.
pub(crate) fn is_adopting() -> bool {
    ADOPTING.load(Ordering::Relaxed)
}

/// A guard that we started. Dropping it forgets the guard, so it must be waited for before.
#[derive(Debug)]
pub(crate) struct Registered(i32);

impl Registered {
    /// The guard's pid, which is also its session.
    pub(crate) const fn pid(&self) -> i32 {
        self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        GUARDS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.0);
    }
}

/// Starts a guard and remembers it, with no moment in between at which it could be taken for an orphan.
pub(crate) fn register<T>(
    spawn: impl FnOnce() -> io::Result<T>,
    pid: impl FnOnce(&T) -> Option<u32>,
) -> io::Result<(T, Registered)> {
    let mut guards = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
    let guard = spawn()?;
    let pid = pid(&guard).and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.ok_or_else(|| io::Error::other("the guard has no pid"))?;
    guards.insert(pid);
    Ok((guard, Registered(pid)))
}

/// A guard that was killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    /// Its pid, which stays taken while any process is in its session.
    pub(crate) pid: i32,
    /// Whether it was waited for. Until then all that descends from it belongs to it; afterwards its pid may be another's.
    pub(crate) waited_for: bool,
}

/// Kills every process of a lost guard until none is left; false if that takes longer than `limit`.
///
/// Blocks. `marker` is an environment entry that only this attempt has.
pub(crate) fn end_orphans(guard: Lost, marker: &str, limit: Duration) -> bool {
    let since = Instant::now();
    let own_session = getsid(None).ok();
    loop {
        let orphans = find(guard, marker, own_session);
        if orphans.is_empty() {
            return true;
        }
        for orphan in orphans {
            tree::signal(orphan.pid, SIGKILL);
            if orphan.parent == Pid::this() {
                // It is still dying, or is not our child: the next round sees it again.
                let _buried = waitpid(orphan.pid, Some(WaitPidFlag::WNOHANG));
            }
        }
        if since.elapsed() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn find(lost: Lost, marker: &str, own_session: Option<Pid>) -> Vec<Process> {
    let guard = Pid::from_raw(lost.pid);
    // Read before and after the scan: a guard that comes or goes meanwhile is not an orphan.
    let known = || {
        GUARDS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    };
    let before = known();
    let seen = all();
    let after = known();
    let is_guard = |pid: Pid| before.contains(&pid.as_raw()) || after.contains(&pid.as_raw());
    let handed_to_us = |process: &Process| {
        is_adopting()
            && process.parent == Pid::this()
            && own_session.is_some_and(|own| own != process.session)
    };
    let mut orphans: Vec<Process> = seen
        .iter()
        .filter(|process| !is_guard(process.pid) && process.pid != guard)
        .filter(|process| {
            process.session == guard || handed_to_us(process) || carries(process.pid, marker)
        })
        .copied()
        .collect();
    let mut roots: Vec<Pid> = orphans.iter().map(|process| process.pid).collect();
    roots.extend((!lost.waited_for).then_some(guard));
    orphans.extend(descendants(&roots, &seen));
    // Another parent waits for its own dead.
    orphans.retain(|process| !process.zombie || process.parent == Pid::this());
    orphans
}

fn carries(pid: Pid, marker: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ"));
    environment.is_ok_and(|bytes| {
        bytes
            .split(|byte| *byte == 0)
            .any(|entry| entry == marker.as_bytes())
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn what_a_guard_started_is_ended_while_it_is_still_there() {
        // Neither its session nor its environment tells whose it is.
        let script = "env -i setsid sh -c 'echo $$; exec sleep 60' & read line";
        let mut guard = Command::new("sh");
        guard.args(["-c", script]);
        let mut guard = guard
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = guard.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let left: i32 = line.trim().parse().unwrap();
        let lost = |waited_for| Lost {
            pid: i32::try_from(guard.id()).unwrap(),
            waited_for,
        };
        let alive = || {
            let seen = fleet::processes::one(Pid::from_raw(left));
            seen.is_some_and(|process| !process.zombie)
        };
        assert!(end_orphans(lost(true), "A=none", Duration::ZERO));
        assert!(alive(), "nothing says that it is the guard's");
        assert!(end_orphans(lost(false), "A=none", Duration::from_secs(10)));
        assert!(!alive());
        drop(guard.stdin.take());
        guard.wait().unwrap();
    }
}
