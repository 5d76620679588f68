//! The process tree as `/proc` shows it, and how to end it.

use nix::unistd::Pid;

/// One process when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    pub(super) group: Pid,
    pub(super) session: Pid,
    /// Dead, and not yet waited for.
    pub(super) zombie: bool,
}

/// Every process. No snapshot: a process that is forked meanwhile may be missing, so callers look again.
#[cfg(target_os = "linux")]
pub(super) fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// Every process: unknown on this system.
#[cfg(not(target_os = "linux"))]
pub(super) fn all() -> Vec<Process> {
    Vec::new()
}

/// The processes of `all` that descend from one of `roots`, without the roots.
pub(super) fn descendants(roots: &[Pid], all: &[Process]) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parents = roots.to_vec();
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            // A pid that was reused while we looked could close a circle.
            if !found.contains(process) && !roots.contains(&process.pid) {
                found.push(*process);
                parents.push(process.pid);
            }
        }
    }
    found
}

/// Asks every descendant of this process to end, once each: some programs take a second TERM as an order to end at once.
pub(super) fn term(tool: Pid) {
    use nix::sys::signal::Signal::{SIGCONT, SIGTERM};
    if cfg!(not(target_os = "linux")) {
        signal_group(tool, SIGTERM);
    }
    for process in descendants(&[Pid::this()], &all())
        .iter()
        .filter(|process| !process.zombie)
    {
        signal(process.pid, SIGTERM);
        // A stopped process handles no signal until it continues.
        signal(process.pid, SIGCONT);
    }
}

/// Kills every descendant of this process, whole groups first: a group dies at once, forks included.
pub(super) fn kill(tool: Pid) {
    use nix::sys::signal::Signal::SIGKILL;
    if cfg!(not(target_os = "linux")) {
        signal_group(tool, SIGKILL);
    }
    let own = nix::unistd::getpgrp();
    let mut found = descendants(&[Pid::this()], &all());
    found.retain(|process| !process.zombie);
    let mut groups: Vec<Pid> = found.iter().map(|process| process.group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
        .into_iter()
        .filter(|group| *group != own)
        .for_each(|group| signal_group(group, SIGKILL));
    found
        .iter()
        .for_each(|process| signal(process.pid, SIGKILL));
}

/// Sends a signal. A process that is gone, or that we may not signal, shows when the caller looks again.
pub(super) fn signal(pid: Pid, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(pid, signal).unwrap_or(());
}

fn signal_group(group: Pid, signal: nix::sys::signal::Signal) {
    nix::sys::signal::killpg(group, signal).unwrap_or(());
}

/// Reads `/proc/<pid>/stat`. The name is in parentheses and may itself hold any byte, parentheses too.
fn parse(stat: &[u8]) -> Option<Process> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let pid_end = stat.iter().position(|byte| *byte == b' ')?;
    let pid = std::str::from_utf8(&stat[..pid_end]).ok()?.parse().ok()?;
    let mut fields = std::str::from_utf8(&stat[name_end + 1..])
        .ok()?
        .split_ascii_whitespace();
    let state = fields.next()?;
    let mut next = || fields.next()?.parse().ok().map(Pid::from_raw);
    let (parent, group, session) = (next()?, next()?, next()?);
    Some(Process {
        pid: Pid::from_raw(pid),
        parent,
        group,
        session,
        zombie: matches!(state, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        let [pid, parent] = [pid, parent].map(Pid::from_raw);
        Process {
            pid,
            parent,
            group: pid,
            session: pid,
            zombie: false,
        }
    }

    #[test]
    fn a_name_cannot_forge_a_line() {
        let stat = b"42 (evil) S 1 1 1 (\n\xff) Z 7 8 9 0 -1 4194304";
        let expected = Process {
            pid: Pid::from_raw(42),
            parent: Pid::from_raw(7),
            group: Pid::from_raw(8),
            session: Pid::from_raw(9),
            zombie: true,
        };
        assert_eq!(parse(stat), Some(expected));
        assert_eq!(parse(b"42 (cut"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn descendants_are_found_over_generations_and_circles_end() {
        let all = [
            process(5, 4),
            process(4, 3),
            process(3, 1),
            process(6, 1),
            process(8, 9),
            process(9, 8),
        ];
        let pids = |root: i32| {
            let mut pids: Vec<i32> = descendants(&[Pid::from_raw(root)], &all)
                .iter()
                .map(|p| p.pid.as_raw())
                .collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(3), [4, 5]);
        assert_eq!(pids(1), [3, 4, 5, 6]);
        assert_eq!(pids(8), [9]);
        assert!(pids(5).is_empty());
    }
}
