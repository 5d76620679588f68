//! The clients' n-th call: a function of the seed and of n, whatever client makes it and whenever.

use std::{fmt::Write as _, time::Duration};

use serde_json::Value;

use crate::{
    effects::{self, Mode, Tool},
    seed,
};

/// One of the calls that clients make.
#[derive(Debug, Clone)]
pub struct Call {
    /// Which.
    pub n: u64,
    /// Its tool.
    pub tool: &'static Tool,
    /// How its tool is told to behave.
    pub mode: Mode,
    /// Its arguments.
    pub args: Value,
    /// Its idempotency key.
    pub key: String,
    /// Headers, the deadline's among them.
    pub headers: Vec<(&'static str, String)>,
    /// What a client does with it, if it is not one of a batch.
    pub program: Program,
    /// How long an answer is waited for, on the line and by `get`.
    pub wait: Duration,
}

/// What a client does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Program {
    /// Submits it and waits.
    Wait,
    /// Submits it, and asks `get` to wait.
    Attach,
    /// Submits it, and asks for it a few times.
    Look,
    /// Submits it and waits, and sends it again when it is decided.
    Replay,
    /// Submits it twice at once, over two connections.
    Twice,
    /// Hangs up early, and asks again with the key until there is a decided answer.
    HangUp,
    /// Submits it, and sends its key again with other arguments.
    Misuse,
    /// Submits it and takes it back.
    Cancel,
    /// Submits it and waits, and settles it when it is not in doubt.
    WrongSettle,
    /// Submits it with this many more in one batch.
    Batch(u64),
    /// Asks for what there is not.
    Nothing,
    /// Submits what must be refused.
    Hostile,
}

const PROGRAMS: &[(Program, u64)] = &[
    (Program::Wait, 28),
    (Program::Attach, 14),
    (Program::Look, 9),
    (Program::Replay, 10),
    (Program::Twice, 7),
    (Program::HangUp, 8),
    (Program::Misuse, 4),
    (Program::Cancel, 9),
    (Program::WrongSettle, 2),
    // Their size is drawn by itself.
    (Program::Batch(0), 3),
    (Program::Nothing, 2),
    (Program::Hostile, 4),
];

/// Deadlines, by their milliseconds; 0 is the default of the fleet.
const DEADLINES: &[(u64, u64)] = &[(0, 75), (60_000, 12), (20_000, 5), (6_000, 6), (1_500, 2)];

/// What the key of a call begins with that must be refused, and leave no trace in the ledger.
pub const HOSTILE_KEY: &str = "hostile-";

impl Call {
    /// The n-th call of this seed.
    pub fn drawn(seed: u64, n: u64) -> Self {
        let tool = effects::drawn(seed, n);
        let mode = seed::weighted(seed, n, "mode", tool.modes);
        let is_others = effects::tenant(tool.name, n) != effects::TENANT;
        let program = match seed::weighted(seed, n, "program", PROGRAMS) {
            // A batch is one tenant's, and nobody settles for this one.
            Program::Batch(_) | Program::WrongSettle if is_others => Program::Wait,
            Program::Batch(_) => Program::Batch(companions(seed, n)),
            program => program,
        };
        let key = match program {
            Program::Hostile => format!("{HOSTILE_KEY}{n}"),
            _ => ordinary_key(seed, n),
        };
        Self {
            n,
            tool,
            mode,
            args: effects::args(tool, n, mode, seed),
            key,
            headers: headers(seed, n, tool),
            program,
            wait: Duration::from_secs(2 + seed::below(seed, n, "wait", 7)),
        }
    }

    /// The n-th call where it is one of a batch: what it says about its own program does not matter.
    pub(super) fn as_item(seed: u64, n: u64) -> Self {
        let call = Self::drawn(seed, n);
        Self {
            key: ordinary_key(seed, n),
            ..call
        }
    }

    /// Whose it is.
    pub(super) fn tenant(&self) -> &'static str {
        effects::tenant(self.tool.name, self.n)
    }

    /// How many numbers it takes: a batch takes one for each of its calls.
    pub fn numbers(&self) -> u64 {
        match self.program {
            Program::Batch(more) => 1 + more,
            _ => 1,
        }
    }

    /// Arguments that are not those of this call, nor of any other.
    pub fn other_args(&self, seed: u64) -> Value {
        effects::args(self.tool, self.n + effects::NOBODYS, self.mode, seed)
    }

    /// Draws something else about it, below a bound.
    pub(super) fn below(&self, seed: u64, salt: &str, bound: u64) -> u64 {
        seed::below(seed, self.n, salt, bound)
    }
}

/// So many calls come in the time of a short run, of all tools: some ten of the one of which only three may happen.
const SHORT_RUN: u64 = 150;

/// A batch has 2 to 50 calls, and rarely many.
fn companions(seed: u64, n: u64) -> u64 {
    if seed::happens(seed, n, "large batch", 200) {
        8 + seed::below(seed, n, "batch", 42)
    } else {
        1 + seed::below(seed, n, "batch", 7)
    }
}

fn ordinary_key(seed: u64, n: u64) -> String {
    format!("call-{n}-{:016x}", seed::draw(seed, n, "key"))
}

fn headers(seed: u64, n: u64, tool: &Tool) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    let deadline = seed::weighted(seed, n, "deadline", DEADLINES);
    if deadline > 0 {
        headers.push(("Toolfleet-Deadline-Ms", deadline.to_string()));
    }
    if !tool.is_numbered() {
        headers.push(("Toolfleet-Run", format!("n-{n}")));
    } else if tool.is_of_short_runs() {
        headers.push(("Toolfleet-Run", format!("short-{}", n / SHORT_RUN)));
    } else if seed::happens(seed, n, "has run", 300) {
        let run = seed::below(seed, n, "run", 20);
        headers.push(("Toolfleet-Run", format!("run-{run}")));
    }
    if seed::happens(seed, n, "has session", 300) {
        let session = seed::below(seed, n, "session", 20);
        headers.push(("Toolfleet-Session", format!("session-{session}")));
    }
    let priority = seed::weighted(
        seed,
        n,
        "priority",
        &[("", 7), ("high", 1), ("normal", 1), ("low", 1)],
    );
    if !priority.is_empty() {
        headers.push(("Toolfleet-Priority", priority.to_owned()));
    }
    headers
}

/// An id that looks like a call's and belongs to none: its time is that of the first UUIDs.
pub(super) fn nobodys_id(seed: u64, n: u64) -> String {
    let mut digits = String::new();
    for salt in ["first half of an id", "second half of an id"] {
        write!(digits, "{:016x}", seed::draw(seed, n, salt)).expect("a string takes all");
    }
    let (a, b, c) = (&digits[..3], &digits[3..6], &digits[6..18]);
    format!("00000000-{n:04x}-7{a}-8{b}-{c}", n = n & 0xffff)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::effects::TOOLS;

    #[test]
    fn a_call_is_the_same_in_every_run_of_a_seed() {
        for n in 0..500 {
            let (first, again) = (Call::drawn(7, n), Call::drawn(7, n));
            assert_eq!(format!("{first:?}"), format!("{again:?}"));
        }
        let programs = |seed| -> Vec<_> { (0..50).map(|n| Call::drawn(seed, n).program).collect() };
        assert_ne!(programs(7), programs(8));
    }

    #[test]
    fn every_program_and_tool_occurs_and_no_key_twice() {
        let calls: Vec<_> = (0..3_000).map(|n| Call::drawn(1, n)).collect();
        let names = |call: &Call| match call.program {
            Program::Batch(more) => {
                assert!((1..50).contains(&more), "{more}");
                "Batch".to_owned()
            }
            program => format!("{program:?}"),
        };
        let programs: BTreeSet<_> = calls.iter().map(names).collect();
        assert_eq!(programs.len(), PROGRAMS.len());
        let tools: BTreeSet<_> = calls.iter().map(|call| call.tool.name).collect();
        assert_eq!(tools.len(), TOOLS.len());
        let keys: BTreeSet<_> = calls.iter().map(|call| &call.key).collect();
        assert_eq!(keys.len(), calls.len());
    }

    #[test]
    fn an_id_of_nobody_is_a_good_id() {
        for n in [0, 77, 70_000] {
            let id = nobodys_id(3, n);
            assert!(id.parse::<fleet::ids::CallId>().is_ok(), "{id}");
        }
    }
}
