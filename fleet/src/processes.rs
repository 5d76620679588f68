//! The machine's processes as `/proc` shows them.

use nix::unistd::Pid;

/// The kernel's flag of its own threads.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// One process when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its id, which it keeps while it lives.
    pub pid: Pid,
    /// Its parent, or the process that has taken it over.
    pub parent: Pid,
    /// Its process group.
    pub group: Pid,
    /// Its session.
    pub session: Pid,
    /// Dead with all its threads, and not yet waited for.
    pub zombie: bool,
    /// When it was started, in ticks since the machine was: a program that it becomes later changes nothing.
    pub started: u64,
    /// A thread of the kernel, which no program starts.
    pub kernel: bool,
}

/// Every process. No snapshot: a process that is forked meanwhile may be missing, so callers look again.
#[cfg(target_os = "linux")]
pub fn all() -> Vec<Process> {
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
pub fn all() -> Vec<Process> {
    Vec::new()
}

/// The processes of `all` that descend from one of `roots`, without the roots.
pub fn descendants(roots: &[Pid], all: &[Process]) -> Vec<Process> {
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

/// One process; `None` if it is gone, or unknown on this system.
pub fn one(pid: Pid) -> Option<Process> {
    parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
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
    // From the ninth field on, after the terminal and its group.
    let rest: Vec<u64> = fields
        .skip(2)
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    let (flags, threads, started) = (*rest.first()?, *rest.get(11)?, *rest.get(13)?);
    Some(Process {
        pid: Pid::from_raw(pid),
        parent,
        group,
        session,
        // One whose first thread alone has ended looks the same and runs on.
        zombie: matches!(state, "Z" | "X") && threads <= 1,
        started,
        kernel: flags & KERNEL_THREAD != 0,
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
            started: 0,
            kernel: false,
        }
    }

    #[test]
    fn a_name_cannot_forge_a_line() {
        let stat =
            b"42 (evil) S 1 1 1 (\n\xff) Z 7 8 9 0 -1 4194304 1 0 0 0 5 6 0 0 20 -5 1 0 4711 0";
        let expected = Process {
            pid: Pid::from_raw(42),
            parent: Pid::from_raw(7),
            group: Pid::from_raw(8),
            session: Pid::from_raw(9),
            zombie: true,
            started: 4_711,
            kernel: false,
        };
        assert_eq!(parse(stat), Some(expected));
        let threads = String::from_utf8_lossy(stat).replace(" -5 1 0 ", " -5 2 0 ");
        let runs_on = parse(threads.as_bytes()).unwrap();
        assert!(!runs_on.zombie, "its first thread alone has ended");
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
