//! Memory and processes of a program with all that it has started, as `/proc` shows them.

use std::{fs, process, thread, time::Duration};

use fleet::manifest::Sandbox;

use super::Excess;

/// How often they are counted.
const EVERY: Duration = Duration::from_millis(25);

/// The fields of memory that is a process's own, in KiB. Also page tables: a program that reads a page here and there of what
/// it has only reserved fills nothing else.
const OWN: [&str; 4] = ["RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:"];

/// Counts until there is more than the sandbox gives; runs until then, or until the process ends.
pub(in crate::guard) fn watch(sandbox: &Sandbox) -> Excess {
    loop {
        thread::sleep(EVERY);
        let used = Used::below(process::id());
        if used.tasks > u64::from(sandbox.processes) {
            return Excess::Processes;
        }
        if used.bytes > sandbox.memory as u64 {
            return Excess::Memory;
        }
    }
}

/// What the descendants of a process use together.
#[derive(Debug, Default)]
struct Used {
    /// Processes and their threads.
    tasks: u64,
    /// Memory that is theirs: not what they read from files. What they share counts for each.
    bytes: u64,
}

impl Used {
    fn below(root: u32) -> Self {
        let mut used = Self::default();
        let mut open: Vec<u32> = children(root);
        while let Some(pid) = open.pop() {
            // One that ends meanwhile counts no more.
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let number = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                let word = line.and_then(|line| line.split_ascii_whitespace().next());
                word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
            };
            used.tasks += number("Threads:").max(1);
            let kib: u64 = OWN.iter().map(|field| number(field)).sum();
            used.bytes += kib * 1024;
            open.extend(children(pid));
        }
        used
    }
}

/// The children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads.flatten();
    let lists = lists.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let mut children = Vec::new();
    for list in lists {
        children.extend(
            list.split_ascii_whitespace()
                .filter_map(|pid| pid.parse::<u32>().ok()),
        );
    }
    children
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_runs_below_is_counted() {
        let mut sleeper = Command::new("sh");
        sleeper
            .args(["-c", "sleep 60 & read line; kill $!"])
            .stdin(Stdio::piped());
        let mut sleeper = sleeper.spawn().unwrap();
        let mut used = Used::default();
        while used.tasks < 2 {
            used = Used::below(process::id());
        }
        assert!(used.bytes > 0, "{used:?}");
        drop(sleeper.stdin.take());
        sleeper.wait().unwrap();
    }
}
