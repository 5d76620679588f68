//! The tools, and the arguments that clients send them.

use fleet::call::Effect;
use serde_json::{Value, json};

use super::{Mode, tables::ACCOUNTS};
use crate::seed;

/// A tool, and the ways in which it can behave, each as often as its weight says.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// The name a client uses.
    pub name: &'static str,
    /// What running it again would mean.
    pub effect: Effect,
    /// What runs it.
    pub executor: Executor,
    /// How it can behave.
    pub modes: &'static [(Mode, u64)],
    /// How often clients call it, compared with the others.
    pub often: u64,
}

/// What runs a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Executor {
    /// An HTTP request.
    Http,
    /// A program on the worker's machine.
    Process,
    /// A request to a NATS service.
    Nats,
    /// A statement on the fleet's database.
    Sql,
    /// A handler in the worker's own program.
    Native,
    /// The program of its caller.
    Client,
}

impl Tool {
    const fn called(self, often: u64) -> Self {
        Self { often, ..self }
    }

    /// Whether a breaker stands before its target.
    pub fn is_guarded(&self) -> bool {
        self.name.starts_with("guarded_")
    }

    /// How many people have to say yes before a call of it runs, where it needs a yes at all.
    pub fn yeses(&self) -> Option<u64> {
        match self.name {
            "agreed_put" | "agreed_hand" => Some(1),
            "agreed_charge" => Some(2),
            _ => None,
        }
    }

    /// Whether it has a policy, or one names it: clients call it in runs that are short, and no other tool in those.
    pub fn is_of_short_runs(&self) -> bool {
        self.name.starts_with("ruled_")
    }

    /// Whether a policy may forbid its calls.
    pub fn is_ruled(&self) -> bool {
        matches!(self.name, "ruled_charge" | "ruled_look")
    }

    /// Whether its caller runs it.
    pub fn is_handed(&self) -> bool {
        self.executor == Executor::Client
    }

    /// Whether a call of it may wait for somebody.
    pub fn waits(&self) -> bool {
        self.is_handed() || self.yeses().is_some()
    }

    /// Whether the number of a call stands in its arguments. Of the others equal calls have equal arguments, and their number is in
    /// the name of their run.
    pub fn is_numbered(&self) -> bool {
        !matches!(self.name, "cached_look" | "was_booked")
    }

    /// Whether an open breaker ends its calls; otherwise they wait for it.
    pub fn ends_with_open_circuit(&self) -> bool {
        self.is_guarded() && self.effect != Effect::Once
    }

    /// Whether a first attempt in this mode leaves the effect uncertain, though nothing else goes wrong: a `once`
    /// call goes in doubt by it.
    pub const fn may_leave_doubt(&self, mode: Mode) -> bool {
        match mode {
            Mode::Ok
            | Mode::Slow
            | Mode::Refuse
            | Mode::Business
            | Mode::Garbage
            | Mode::Escape => false,
            // Having written, such a program goes on until it is ended.
            Mode::Huge => self.effect.may_doubt() && matches!(self.executor, Executor::Process),
            // A server that answers a statement with an error has rolled back.
            Mode::ErrorBefore
            | Mode::ErrorAfter
            | Mode::ResetAfter
            | Mode::HangBefore
            | Mode::HangAfter
            | Mode::Late => self.effect.may_doubt() && !matches!(self.executor, Executor::Sql),
        }
    }
}

/// All of them.
pub const TOOLS: &[Tool] = &[
    of("charge", Effect::Once, Executor::Http, WIRED_WRITE),
    // Its doubts are a probe's to settle, which asks the second; clients ask that one about bookings that are not made yet.
    of("book", Effect::Once, Executor::Http, PROBED_WRITE).called(2),
    of("was_booked", Effect::Read, Executor::Http, ALWAYS).called(3),
    of("put", Effect::Idempotent, Executor::Http, WIRED_WRITE),
    of("look", Effect::Read, Executor::Http, WIRED_READ),
    of("unreachable", Effect::Once, Executor::Http, NEVER),
    of(
        "proc_charge",
        Effect::Once,
        Executor::Process,
        PROGRAM_WRITE,
    ),
    of("proc_look", Effect::Read, Executor::Process, PROGRAM_READ),
    of("nats_charge", Effect::Once, Executor::Nats, SERVED_WRITE),
    of("nats_put", Effect::Idempotent, Executor::Nats, SERVED_WRITE),
    of("nats_look", Effect::Read, Executor::Nats, SERVED_READ),
    of("nats_nobody", Effect::Once, Executor::Nats, NEVER),
    of("sql_note", Effect::Once, Executor::Sql, STATEMENT),
    of("sql_put", Effect::Idempotent, Executor::Sql, STATEMENT),
    of("sql_look", Effect::Read, Executor::Sql, QUERY),
    of("transfer", Effect::Transaction, Executor::Sql, STATEMENT),
    of("native_charge", Effect::Once, Executor::Native, WIRED_WRITE),
    of("native_look", Effect::Read, Executor::Native, WIRED_READ),
    // It may start only so often, and is called about as often as it may start.
    of("paced_look", Effect::Read, Executor::Http, WIRED_READ).called(3),
    // Two tenants ask it the same few questions, and its answer depends on who asks.
    of("cached_look", Effect::Read, Executor::Http, CACHED_READ).called(6),
    // Their target fails in spells, and a breaker stands before it.
    of("guarded_look", Effect::Read, Executor::Http, WIRED_READ).called(2),
    of(
        "guarded_put",
        Effect::Idempotent,
        Executor::Http,
        WIRED_WRITE,
    )
    .called(2),
    of("guarded_charge", Effect::Once, Executor::Http, WIRED_WRITE).called(2),
    // Somebody has to say yes: two to large amounts of the first, and the program of its caller to the second.
    of("agreed_charge", Effect::Once, Executor::Http, WIRED_WRITE).called(2),
    of(
        "agreed_put",
        Effect::Idempotent,
        Executor::Http,
        WIRED_WRITE,
    )
    .called(2),
    // Only so many of the first may happen in a run. The second runs only after one of them, and not once the third has run.
    of("ruled_charge", Effect::Once, Executor::Http, WIRED_WRITE).called(3),
    of("ruled_look", Effect::Read, Executor::Http, WIRED_READ).called(2),
    of("ruled_end", Effect::Idempotent, Executor::Http, WIRED_WRITE),
    // Their callers run them, the last one after somebody has said yes.
    of("handed_charge", Effect::Once, Executor::Client, HANDED).called(2),
    of("handed_look", Effect::Read, Executor::Client, HANDED),
    of("agreed_hand", Effect::Once, Executor::Client, HANDED),
];

const ALWAYS: &[(Mode, u64)] = &[(Mode::Ok, 1)];
const NEVER: &[(Mode, u64)] = &[(Mode::Refuse, 1)];
const WIRED_WRITE: &[(Mode, u64)] = &[
    (Mode::Ok, 58),
    (Mode::Slow, 16),
    (Mode::Refuse, 5),
    (Mode::Business, 4),
    (Mode::ErrorBefore, 3),
    (Mode::ErrorAfter, 3),
    (Mode::ResetAfter, 3),
    (Mode::HangBefore, 2),
    (Mode::HangAfter, 2),
    (Mode::Late, 2),
    (Mode::Garbage, 1),
    (Mode::Huge, 1),
];
/// More of what leaves a doubt although it is done.
const PROBED_WRITE: &[(Mode, u64)] = &[
    (Mode::Ok, 50),
    (Mode::Slow, 14),
    (Mode::Refuse, 4),
    (Mode::Business, 4),
    (Mode::ErrorBefore, 3),
    (Mode::ErrorAfter, 9),
    (Mode::ResetAfter, 7),
    (Mode::HangBefore, 2),
    (Mode::HangAfter, 3),
    (Mode::Late, 2),
    (Mode::Garbage, 1),
    (Mode::Huge, 1),
];
const WIRED_READ: &[(Mode, u64)] = &[
    (Mode::Ok, 61),
    (Mode::Slow, 16),
    (Mode::Refuse, 6),
    (Mode::Business, 5),
    (Mode::ErrorBefore, 4),
    (Mode::ResetAfter, 4),
    (Mode::HangBefore, 2),
    (Mode::Garbage, 1),
    (Mode::Huge, 1),
];
/// So that equal calls come while one of them runs, and some of these fail.
const CACHED_READ: &[(Mode, u64)] = &[
    (Mode::Ok, 50),
    (Mode::Slow, 24),
    (Mode::Business, 16),
    (Mode::Refuse, 4),
    (Mode::ErrorBefore, 3),
    (Mode::ResetAfter, 3),
];
const PROGRAM_WRITE: &[(Mode, u64)] = &[
    (Mode::Ok, 54),
    (Mode::Slow, 16),
    (Mode::Refuse, 5),
    (Mode::Business, 4),
    (Mode::ErrorBefore, 3),
    (Mode::ErrorAfter, 3),
    (Mode::ResetAfter, 3),
    (Mode::HangBefore, 2),
    (Mode::HangAfter, 2),
    (Mode::Late, 2),
    (Mode::Garbage, 1),
    (Mode::Huge, 1),
    (Mode::Escape, 4),
];
const PROGRAM_READ: &[(Mode, u64)] = &[
    (Mode::Ok, 58),
    (Mode::Slow, 16),
    (Mode::Refuse, 6),
    (Mode::Business, 5),
    (Mode::ErrorBefore, 4),
    (Mode::ResetAfter, 4),
    (Mode::HangBefore, 2),
    (Mode::Garbage, 1),
    (Mode::Huge, 1),
    (Mode::Escape, 3),
];
/// A service has no connection of its own that could end.
const SERVED_WRITE: &[(Mode, u64)] = &[
    (Mode::Ok, 58),
    (Mode::Slow, 16),
    (Mode::Refuse, 6),
    (Mode::Business, 4),
    (Mode::ErrorBefore, 4),
    (Mode::ErrorAfter, 4),
    (Mode::HangBefore, 2),
    (Mode::HangAfter, 2),
    (Mode::Late, 2),
    (Mode::Garbage, 1),
    (Mode::Huge, 1),
];
const SERVED_READ: &[(Mode, u64)] = &[
    (Mode::Ok, 63),
    (Mode::Slow, 16),
    (Mode::Refuse, 6),
    (Mode::Business, 5),
    (Mode::ErrorBefore, 6),
    (Mode::HangBefore, 2),
    (Mode::Garbage, 1),
    (Mode::Huge, 1),
];
/// Who runs it answers, says no, breaks before or after doing it, dies before or after, answers when its time is over, or answers
/// first with what does not fit.
const HANDED: &[(Mode, u64)] = &[
    (Mode::Ok, 52),
    (Mode::Slow, 12),
    (Mode::Business, 6),
    (Mode::ErrorBefore, 4),
    (Mode::ErrorAfter, 4),
    (Mode::HangBefore, 5),
    (Mode::HangAfter, 5),
    (Mode::Late, 9),
    (Mode::Garbage, 3),
];
/// What comes after a statement is the wire's to spoil; a statement by itself is done or undone.
const STATEMENT: &[(Mode, u64)] = &[
    (Mode::Ok, 66),
    (Mode::Slow, 16),
    (Mode::Business, 6),
    (Mode::ErrorBefore, 8),
    (Mode::HangBefore, 4),
];
const QUERY: &[(Mode, u64)] = &[
    (Mode::Ok, 66),
    (Mode::Slow, 16),
    (Mode::Business, 6),
    (Mode::ErrorBefore, 6),
    (Mode::HangBefore, 4),
    (Mode::Huge, 2),
];

/// Texts that have been a bug in some program.
const MEMOS: [&str; 6] = [
    "plain",
    "Übung – 测试 – 🚢",
    "\"quotes\" and \\backslashes\\",
    "'; DROP TABLE tools.accounts; --",
    "{n} secret://NAME {{ key }}",
    "two\nlines\tand a tab",
];

/// The tool of this name.
pub fn tool(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Whose most calls are.
pub const TENANT: &str = "default";
/// Who asks the same questions.
pub const OTHER_TENANT: &str = "other";
/// How many different questions there are.
const QUESTIONS: u64 = 2;
/// What questions are numbered from: no call has such a number, and a 32-bit integer of a tool holds it.
const FIRST_QUESTION: u64 = 2_000_000_000;
/// Larger amounts need a yes.
pub(super) const AMOUNT_AGREED: u64 = 100;
/// No run makes so many calls.
pub const NOBODYS: u64 = 1_000_000_000;

/// Whose the `n`-th call of a run is, where it is one of this tool.
pub fn tenant(tool: &str, n: u64) -> &'static str {
    if tool == "cached_look" && n % 2 == 1 {
        OTHER_TENANT
    } else {
        TENANT
    }
}

/// The tool of the `n`-th call.
pub fn drawn(seed: u64, n: u64) -> &'static Tool {
    let tools: Vec<_> = TOOLS.iter().map(|tool| (tool, tool.often)).collect();
    seed::weighted(seed, n, "tool", &tools)
}

/// The next call that books something: who asks about it asks too early.
fn next_booking(seed: u64, n: u64) -> u64 {
    let later = n + 1..;
    later
        .into_iter()
        .find(|later| drawn(seed, *later).name == "book")
        .unwrap_or(n)
}

/// What a client sends in the `n`-th call of a run. Another seed makes other arguments of the same call.
pub fn args(tool: &Tool, n: u64, mode: Mode, seed: u64) -> Value {
    let text = MEMOS[usize::try_from(seed::below(seed, n, "memo", 6)).expect("it is below 6")];
    let memo = format!("{text} {:016x}", seed::draw(seed, n, "memo number"));
    let mut args = json!({"n": n, "mode": mode, "memo": memo});
    match tool.name {
        "transfer" => {
            let from = seed::below(seed, n, "from", ACCOUNTS);
            let apart = 1 + seed::below(seed, n, "to", ACCOUNTS - 1);
            args["from"] = from.into();
            args["to"] = ((from + apart) % ACCOUNTS).into();
            args["amount"] = (1 + seed::below(seed, n, "amount", 40)).into();
        }
        "agreed_charge" => {
            let most = 3 * AMOUNT_AGREED;
            args["amount"] = (1 + seed::below(seed, n, "amount", most)).into();
        }
        // As a probe asks.
        "was_booked" => {
            let booking = next_booking(seed, n);
            args = json!({"n": booking, "mode": mode});
        }
        "cached_look" => {
            let question = if n < NOBODYS {
                seed::below(seed, n, "question", QUESTIONS)
            } else {
                QUESTIONS
            };
            args = json!({"n": FIRST_QUESTION + question, "mode": mode});
        }
        _ => {}
    }
    args
}

const fn of(
    name: &'static str,
    effect: Effect,
    executor: Executor,
    modes: &'static [(Mode, u64)],
) -> Tool {
    Tool {
        name,
        effect,
        executor,
        modes,
        often: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_calls_of_a_tool_behave() {
        for tool in TOOLS.iter().filter(|tool| tool.modes.len() > 1) {
            let all: u64 = tool.modes.iter().map(|(_, weight)| weight).sum();
            assert_eq!(all, 100, "{}", tool.name);
            assert!(
                matches!(tool.modes[0], (Mode::Ok, 50..=70)),
                "{}",
                tool.name
            );
        }
    }

    #[test]
    fn a_call_has_the_same_arguments_whenever_it_is_made() {
        for tool in TOOLS {
            let once = args(tool, 5, Mode::Ok, 1);
            assert_eq!(once, args(tool, 5, Mode::Ok, 1));
            // Of equal calls some are equal; another one's key is sent with arguments of its own all the same.
            if tool.is_numbered() {
                assert_ne!(once, args(tool, 5, Mode::Ok, 2), "{}", tool.name);
            }
            assert_ne!(once, args(tool, 5 + NOBODYS, Mode::Ok, 1), "{}", tool.name);
            assert_ne!(once["from"].as_u64().map(Some), Some(once["to"].as_u64()));
        }
    }
}
