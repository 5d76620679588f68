//! What each process used while a workload ran, from `/proc`: CPU seconds and the most memory.
//!
//! Postgres has a process for each connection; they count as one here. Shared memory counts once, and the CPU time of a closed
//! connection counts with the postmaster, which waited for it.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often memory is read.
const EVERY: Duration = Duration::from_millis(250);
/// The unit of CPU time in `/proc`, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process that is watched.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Its name for people.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Whether its children belong to it.
    pub with_children: bool,
}

/// What they used.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Usage {
    /// CPU seconds.
    pub(crate) cpu_s: BTreeMap<String, f64>,
    /// The most memory at any look.
    pub(crate) memory_mib: BTreeMap<String, f64>,
}

/// Reads them until it is told to stop.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: CancellationToken,
    sampling: JoinSet<Usage>,
}

impl Sampler {
    /// Begins after the warm-up, and counts CPU time for at most so long; `None`: until it is finished.
    pub(crate) fn start(watched: Vec<Watched>, after: Duration, at_most: Option<Duration>) -> Self {
        let stop = CancellationToken::new();
        let until = stop.clone();
        let mut sampling = JoinSet::new();
        sampling.spawn(async move {
            tokio::time::sleep(after).await;
            let before = cpu(&watched);
            let end = at_most.map(|most| tokio::time::Instant::now() + most);
            let mut usage = Usage::default();
            loop {
                memory(&watched, &mut usage.memory_mib);
                let next = tokio::time::Instant::now() + EVERY;
                let next = end.map_or(next, |end| end.min(next));
                let slept = until
                    .run_until_cancelled(tokio::time::sleep_until(next))
                    .await;
                if slept.is_none() || end.is_some_and(|end| next >= end) {
                    break;
                }
            }
            for (name, after) in cpu(&watched) {
                let used = after - before.get(&name).copied().unwrap_or_default();
                usage.cpu_s.insert(name, rounded(used));
            }
            usage
        });
        Self { stop, sampling }
    }

    /// The totals.
    pub(crate) async fn finish(mut self) -> Usage {
        self.stop.cancel();
        // It only reads files, and there is one task.
        let used = self.sampling.join_next().await;
        used.and_then(Result::ok).unwrap_or_default()
    }
}

/// To a hundredth, as the kernel counts.
fn rounded(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

fn cpu(watched: &[Watched]) -> BTreeMap<String, f64> {
    let mut used = BTreeMap::new();
    for one in watched {
        let Some(own) = Stat::of(one.pid) else {
            continue;
        };
        let mut ticks = own.ticks;
        if one.with_children {
            ticks += own.ticks_of_ended;
            let living = children(one.pid).into_iter().filter_map(Stat::of);
            ticks += living
                .map(|child| child.ticks + child.ticks_of_ended)
                .sum::<f64>();
        }
        *used.entry(one.name.clone()).or_default() += ticks / TICKS_PER_SECOND;
    }
    used
}

fn memory(watched: &[Watched], most: &mut BTreeMap<String, f64>) {
    let mut now: BTreeMap<&str, f64> = BTreeMap::new();
    for one in watched {
        let Some(own) = Memory::of(one.pid) else {
            continue;
        };
        let kib = if one.with_children {
            let living = children(one.pid).into_iter().filter_map(Memory::of);
            let (mut anonymous, mut shared) = (own.anonymous, own.shared);
            for child in living {
                anonymous += child.anonymous;
                shared = shared.max(child.shared);
            }
            anonymous + shared
        } else {
            own.resident
        };
        *now.entry(&one.name).or_default() += kib / 1024.0;
    }
    for (name, mib) in now {
        let known = most.entry(name.to_owned()).or_default();
        *known = known.max((mib * 10.0).round() / 10.0);
    }
}

/// The parent of a process.
pub fn parent(pid: u32) -> Option<u32> {
    Stat::of(pid).map(|stat| stat.parent)
}

/// The name of its program.
pub fn program(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Whether its environment contains this variable with this value.
pub fn has_variable(pid: u32, name: &str, value: &str) -> bool {
    let wanted = format!("{name}={value}");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|variable| variable == wanted.as_bytes())
}

/// Whether its environment is hidden from this user: a dispatcher's is, from all but root.
pub fn is_hidden(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_err()
}

/// Every process.
pub fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    names.collect()
}

fn children(pid: u32) -> Vec<u32> {
    let listed = Path::new("/proc").join(format!("{pid}/task/{pid}/children"));
    match fs::read_to_string(listed) {
        Ok(list) => list
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect(),
        // A kernel without that list.
        Err(_absent) => all()
            .into_iter()
            .filter(|one| parent(*one) == Some(pid))
            .collect(),
    }
}

struct Stat {
    parent: u32,
    ticks: f64,
    ticks_of_ended: f64,
}

impl Stat {
    fn of(pid: u32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name in it may contain anything, brackets included.
    fn read(text: &str) -> Option<Self> {
        let (_name, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<f64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            ticks: number(11)? + number(12)?,
            ticks_of_ended: number(13)? + number(14)?,
        })
    }
}

/// In KiB.
struct Memory {
    resident: f64,
    anonymous: f64,
    shared: f64,
}

impl Memory {
    fn of(pid: u32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn read(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().nth(1)?.parse::<f64>().ok()
        };
        Some(Self {
            resident: field("VmRSS")?,
            anonymous: field("RssAnon")?,
            shared: field("RssShmem")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_process_is_read_whatever_its_name() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 2 3 4 150 50 10 20 20 0 1 0 1 1 1";
        let stat = Stat::read(text).unwrap();
        assert_eq!(
            (stat.parent, stat.ticks, stat.ticks_of_ended),
            (7, 200.0, 30.0)
        );
        assert!(Stat::read("42 (a) S").is_none());
        let memory =
            Memory::read("Name:\tx\nVmRSS:\t   2048 kB\nRssAnon:\t 1024 kB\nRssShmem:\t 512 kB\n");
        let memory = memory.unwrap();
        assert_eq!(
            (memory.resident, memory.anonymous, memory.shared),
            (2048.0, 1024.0, 512.0)
        );
    }

    #[tokio::test]
    async fn a_process_that_runs_has_memory_and_one_that_is_gone_nothing() {
        let watched = |name: &str, pid| Watched {
            name: name.to_owned(),
            pid,
            with_children: false,
        };
        let all = vec![watched("me", std::process::id()), watched("gone", u32::MAX)];
        let usage = Sampler::start(all, Duration::ZERO, None).finish().await;
        assert!(usage.memory_mib["me"] > 1.0);
        assert!(!usage.memory_mib.contains_key("gone") && !usage.cpu_s.contains_key("gone"));
        assert!(parent(std::process::id()).is_some());
    }
}
