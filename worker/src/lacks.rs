//! What this worker has said that it lacks: a log line per tool and reason, however many calls it puts back for it.
//!
//! Calls that are put back are counted in a metric, by tool. A line would come with each of their deliveries.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use fleet::{ids::ToolName, obstacle::Obstacle, telemetry::metrics};

/// The most tools and reasons that are remembered. What is lacking beyond them is counted only.
const REMEMBERED_MAX: usize = 1_000;

/// The lacks that a line has been written about.
#[derive(Debug, Default)]
pub(crate) struct SaidLacks(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    lacks: HashMap<LackKey, PutBack>,
    /// Whether a line says that no further ones are remembered.
    said_full: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LackKey {
    tool: ToolName,
    version: i32,
    /// Of the reason: its text may be long.
    why: u64,
}

/// The calls that were put back for one lack.
#[derive(Debug, Default, Clone, Copy)]
struct PutBack {
    calls: u64,
    /// Whether there were any since the last look.
    lately: bool,
}

/// What is to be logged about a lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Lack,
    /// The memory is full.
    Full,
    Nothing,
}

impl SaidLacks {
    /// A call of this version is about to be put back.
    pub(crate) fn put_back(&self, tool: &ToolName, version: i32, obstacle: &Obstacle) {
        metrics().postponed(tool, obstacle.lack);
        let line = self.memory().add(tool, version, &obstacle.why, 1);
        say(line, tool, version, obstacle);
    }

    /// A look found that the worker cannot run this version, whatever the arguments are.
    pub(crate) fn found(&self, tool: &ToolName, version: i32, obstacle: &Obstacle) {
        let line = self.memory().add(tool, version, &obstacle.why, 0);
        say(line, tool, version, obstacle);
    }

    /// Forgets what is not lacking any more, so that the next time has a line again. A lack of single calls, which depends on
    /// their arguments, is over when none of them was put back since the last look.
    pub(crate) fn look(&self, still_lacks: impl Fn(&ToolName, i32) -> bool) {
        let over = self.memory().forget(still_lacks);
        for (LackKey { tool, version, .. }, put_back) in over {
            let calls = put_back.calls;
            tracing::info!(%tool, version, calls, "this worker does not put back calls of the tool any more");
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn say(line: Line, tool: &ToolName, version: i32, obstacle: &Obstacle) {
    let why = &obstacle.why;
    match line {
        Line::Lack => tracing::warn!(
            %tool, version, why,
            "this worker cannot run the tool and puts its calls back; they are counted in toolfleet_postponed_calls_total"
        ),
        Line::Full => tracing::warn!(
            "this worker cannot run more than {REMEMBERED_MAX} versions of tools; further ones are counted only"
        ),
        Line::Nothing => {}
    }
}

impl Memory {
    fn add(&mut self, tool: &ToolName, version: i32, why: &str, calls: u64) -> Line {
        let mut hasher = DefaultHasher::new();
        why.hash(&mut hasher);
        let key = LackKey {
            tool: tool.clone(),
            version,
            why: hasher.finish(),
        };
        let is_new = !self.lacks.contains_key(&key);
        if is_new && self.lacks.len() >= REMEMBERED_MAX {
            return match mem::replace(&mut self.said_full, true) {
                true => Line::Nothing,
                false => Line::Full,
            };
        }
        let put_back = self.lacks.entry(key).or_default();
        put_back.calls += calls;
        put_back.lately |= calls > 0;
        match is_new {
            true => Line::Lack,
            false => Line::Nothing,
        }
    }

    fn forget(&mut self, still_lacks: impl Fn(&ToolName, i32) -> bool) -> Vec<(LackKey, PutBack)> {
        let over = |key: &LackKey, put_back: &mut PutBack| {
            !mem::take(&mut put_back.lately) && !still_lacks(&key.tool, key.version)
        };
        let forgotten: Vec<_> = self.lacks.extract_if(over).collect();
        self.said_full &= self.lacks.len() >= REMEMBERED_MAX;
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolName {
        name.parse().unwrap()
    }

    #[test]
    fn a_lack_has_one_line_until_it_is_over() {
        let (mut memory, charge) = (Memory::default(), tool("charge"));
        let put_back = |memory: &mut Memory, why: &str| memory.add(&charge, 1, why, 1);
        assert_eq!(put_back(&mut memory, "no TOKEN"), Line::Lack);
        for _ in 0..142 {
            assert_eq!(put_back(&mut memory, "no TOKEN"), Line::Nothing);
        }
        assert_eq!(put_back(&mut memory, "no guard"), Line::Lack);
        assert_eq!(memory.add(&tool("charge"), 2, "no TOKEN", 0), Line::Lack);
        // The first look after a call was put back forgets nothing: it may be one that other calls do not have.
        assert_eq!(memory.forget(|_, version| version == 2).len(), 0);
        let over = memory.forget(|_, version| version == 2);
        let mut calls: Vec<u64> = over.iter().map(|(_, put_back)| put_back.calls).collect();
        calls.sort_unstable();
        assert_eq!(calls, [1, 143]);
        assert_eq!(put_back(&mut memory, "no TOKEN"), Line::Lack);
        assert_eq!(memory.add(&tool("charge"), 2, "no TOKEN", 1), Line::Nothing);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut memory, charge) = (Memory::default(), tool("charge"));
        for version in 0..3_000 {
            let line = memory.add(&charge, version, "no TOKEN", 1);
            let expected = match version {
                0..1_000 => Line::Lack,
                1_000 => Line::Full,
                _more => Line::Nothing,
            };
            assert_eq!(line, expected, "{version}");
        }
        assert_eq!(memory.lacks.len(), REMEMBERED_MAX);
        memory.forget(|_, _| false);
        assert_eq!(memory.forget(|_, _| false).len(), REMEMBERED_MAX);
        assert_eq!(memory.add(&charge, 3_000, "no TOKEN", 1), Line::Lack);
    }
}
