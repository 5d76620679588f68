//! The facts of a run that is over: plain data, so that the rules need no server.
//!
//! All moments are milliseconds of the machine's monotonic clock, like those of the file of effects: what clients, tools,
//! faults and Postgres say can be put in one order.

use std::{collections::BTreeMap, ops::RangeInclusive};

use fleet::{
    call::{Effect, State},
    manifest::Policy,
};
use serde_json::Value;

use super::clock::ClockMove;
use crate::{effects::Mark, history::Entry, plan::Member};

pub use crate::moment::Moment;

/// Everything.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// What clients did and were told.
    pub history: Vec<Entry>,
    /// What the tools did.
    pub marks: Vec<Mark>,
    /// What the tools of Postgres did: the tool, the clients' call, how often.
    pub tables: Vec<(String, u64, u64)>,
    /// What all accounts had together at first, and what they have now.
    pub totals: Option<(i64, i64)>,
    /// What the product says.
    pub ledger: Ledger,
    /// What was done to the fleet.
    pub injected: Injected,
    /// Prometheus's metrics, by name and labels as they are scraped, summed over all processes that there were.
    pub metrics: BTreeMap<String, f64>,
    /// What the processes wrote, by their names.
    pub logs: Vec<(String, String)>,
    /// Sessions of Postgres at the end.
    pub sessions: Vec<Session>,
    /// Processes of tools that were still there after their time.
    pub leftover_processes: Vec<String>,
    /// A text that is in every call's arguments, or was a secret; no log may hold it.
    pub secret_marker: Option<String>,
    /// When the last fault was over, where clients went on after that.
    pub healed_at: Option<Moment>,
    /// Processes that ended although they were neither killed nor told to leave.
    pub exits: Vec<Exit>,
    /// Processes that did not leave in order when they were told to, after everything had healed.
    pub stayed: Vec<String>,
    /// Whether every process of the fleet had ended before the sessions were looked at.
    pub stopped: bool,
}

/// What the views of the product say.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// View `calls`.
    pub calls: Vec<Call>,
    /// View `attempts`.
    pub attempts: Vec<Attempt>,
    /// View `call_events`.
    pub events: Vec<Event>,
    /// View `in_doubt`.
    pub doubts: Vec<Doubt>,
    /// View `workers`.
    pub workers: Vec<WorkerRow>,
    /// View `tools`.
    pub tools: Vec<ToolRow>,
    /// View `approvals`.
    pub decisions: Vec<Decision>,
    /// View `control_log`.
    pub pauses: Vec<Pause>,
    /// The same.
    pub forced: Vec<Forced>,
    /// View `breakers`.
    pub breakers: Vec<BreakerRow>,
    /// Calls that were held when everything had come to rest, or had had the time for it.
    pub held: Vec<Held>,
}

/// What somebody has said about a call that waited for a yes.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The call.
    pub call_id: String,
    /// Whether it was a yes.
    pub is_yes: bool,
    /// When.
    pub at: Moment,
    /// Who.
    pub actor: String,
    /// Of the arguments about which it was said.
    pub args_hash: String,
}

/// A breaker that an operator forced, from when it was forced to its end; both are taken inwards like those of a pause.
#[derive(Debug, Clone)]
pub struct Forced {
    /// The control's id.
    pub control_id: i64,
    /// The tool.
    pub tool: String,
    /// Whether nothing was let through, or everything.
    pub is_open: bool,
    /// When it was forced.
    pub set_at: Moment,
    /// When that ended.
    pub ended_at: Moment,
}

/// A breaker.
#[derive(Debug, Clone)]
pub struct BreakerRow {
    /// Its tool.
    pub tool: String,
    /// How often it has moved.
    pub generation: u64,
}

/// A call that is held.
#[derive(Debug, Clone)]
pub struct Held {
    /// The call.
    pub call_id: String,
    /// The line in which it waits.
    pub line: String,
    /// Whether that line waits for something: a pause that lasts, a breaker that is open, a start that is not free, an equal call
    /// that is open.
    pub has_cause: bool,
}

/// A pause, from when it was set to its end.
///
/// Where Postgres's time of day ran back in the run, both are taken inwards by as much: some moments cannot be told apart then.
#[derive(Debug, Clone)]
pub struct Pause {
    /// Its id.
    pub control_id: i64,
    /// The tool; none where it covers a whole queue, of which there is one.
    pub tool: Option<String>,
    /// Whether it covers calls with a value in their arguments only.
    pub has_value: bool,
    /// When it was set.
    pub set_at: Moment,
    /// When it ended.
    pub ended_at: Moment,
}

/// A call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its id.
    pub call_id: String,
    /// Whose it is.
    pub tenant: String,
    /// Its tool.
    pub tool: String,
    /// What running it again would mean.
    pub effect: Effect,
    /// Where it stands.
    pub state: State,
    /// Where its answer comes from, once it is over.
    pub source: Option<String>,
    /// Which of the clients' calls; none for what no client made.
    pub n: Option<u64>,
    /// The number in its arguments: its own, or of equal calls the same.
    pub told: Option<u64>,
    /// The amount in its arguments, where they have one.
    pub amount: Option<u64>,
    /// Its run, where it has one.
    pub run: Option<String>,
    /// What a tool with a cache answered.
    pub answer: Option<Value>,
    /// What is known of its effect, once it is over.
    pub effect_known: Option<String>,
    /// Its key.
    pub key_hash: Option<String>,
    /// The code of its error, where it has one.
    pub code: Option<String>,
    /// How often it was claimed.
    pub attempts: u32,
    /// The call in doubt that it asks about.
    pub probe_of: Option<String>,
    /// When it was accepted.
    pub accepted_at: Moment,
    /// When no attempt of it may start any more.
    pub deadline_at: Moment,
    /// When it was over.
    pub finished_at: Option<Moment>,
}

/// An attempt, or late evidence of one.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The call.
    pub call_id: String,
    /// Its id.
    pub attempt_id: String,
    /// Its number, from 1.
    pub number: u32,
    /// Who ran it; nobody of the fleet where it was handed to its caller.
    pub worker_id: Option<String>,
    /// When it was claimed.
    pub started_at: Moment,
    /// When it had ended.
    pub finished_at: Option<Moment>,
    /// How long it might take.
    pub timeout_ms: i64,
    /// What it came to.
    pub outcome: Option<String>,
    /// The code of its error.
    pub code: Option<String>,
    /// The words of its error.
    pub message: Option<String>,
    /// Whether it came after the attempt had been taken from its worker.
    pub late: bool,
}

/// A move of a call, or a remark.
#[derive(Debug, Clone)]
pub struct Event {
    /// The call.
    pub call_id: String,
    /// From 0.
    pub revision: i64,
    /// When.
    pub at: Moment,
    /// Where it stood.
    pub from: Option<State>,
    /// Where it stands after it.
    pub to: State,
    /// Who moved it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The attempt that it is about.
    pub attempt_id: Option<String>,
    /// Of a move back into the queue: whether the attempt counts.
    pub spent: Option<bool>,
    /// Of an answer from the cache: the call that has it.
    pub copied_from: Option<String>,
}

/// A call in doubt.
#[derive(Debug, Clone)]
pub struct Doubt {
    /// The call.
    pub call_id: String,
    /// Whether everything that was started for it is proven gone.
    pub worker_fenced: bool,
}

/// A worker's process.
#[derive(Debug, Clone)]
pub struct WorkerRow {
    /// Its id.
    pub worker_id: String,
    /// Its process.
    pub pid: u32,
    /// `live`, `draining`, `left`, `dead`, `fenced`.
    pub state: String,
    /// When it began.
    pub started_at: Moment,
    /// When it was over, or was taken to be.
    pub ended_at: Option<Moment>,
    /// Who said so.
    pub ended_by: Option<String>,
    /// When it was proven gone.
    pub fenced_at: Option<Moment>,
}

/// A tool.
#[derive(Debug, Clone)]
pub struct ToolRow {
    /// Its name.
    pub tool: String,
    /// What running it again would mean.
    pub effect: Effect,
    /// `http`, `process`, `nats`, `sql`, `native` or `client`.
    pub executor: String,
    /// How often it may be tried.
    pub attempts_max: u32,
    /// How often its attempts may start.
    pub rate: Option<Rate>,
    /// How long its answers count, in milliseconds.
    pub ttl_ms: Option<Moment>,
    /// Which of its calls need a yes.
    pub approval: Option<Approval>,
    /// What must, and must not, have happened before its calls.
    pub policy: Option<Policy>,
}

/// Which calls of a tool need a yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Approval {
    /// How many have to say it.
    pub count: usize,
    /// Only those with a larger amount, where there is a bound.
    pub above: Option<u64>,
}

/// How often attempts of a tool may start, over the whole fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many in each `per_ms`.
    pub calls: u64,
    /// In milliseconds.
    pub per_ms: u64,
    /// So many at once after a time without any.
    pub burst: u64,
}

/// A session of Postgres.
#[derive(Debug, Clone)]
pub struct Session {
    /// The server's process.
    pub pid: i32,
    /// Whose it says it is.
    pub application: String,
    /// `active`, `idle`, `idle in transaction`, …
    pub state: String,
    /// For how long, in milliseconds.
    pub for_ms: i64,
}

/// What was really done to the fleet, and to whom.
#[derive(Debug, Clone, Default)]
pub struct Injected {
    /// When the clients began: the zero of the history's time.
    pub clients_began: Moment,
    /// Every process that was started.
    pub processes: Vec<Process>,
    /// Every fault that struck.
    pub struck: Vec<Struck>,
    /// Questions of clients that arrived once more: which, is not known, but from when to when it was asked.
    pub asked_again: Vec<RangeInclusive<Moment>>,
    /// How Postgres's time of day was moved, in the order of time.
    pub clock_moves: Vec<ClockMove>,
}

/// A process of the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its place.
    pub member: Member,
    /// Its number.
    pub pid: u32,
}

/// A process that ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its place.
    pub member: Member,
    /// Its name.
    pub name: String,
    /// When it was started.
    pub started: Moment,
    /// When it was found gone.
    pub at: Moment,
    /// Its exit code; none where it was ended by a signal.
    pub code: Option<i32>,
    /// Whether it had said that it is ready.
    pub was_ready: bool,
    /// Whether it had heard that it was declared gone: then it leaves, rightly so.
    pub was_told: bool,
}

/// A fault that struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Struck {
    /// Whom; none where a server was struck.
    pub member: Option<Member>,
    /// The process, where it is one that was struck.
    pub pid: Option<u32>,
    /// How.
    pub how: How,
    /// From when on.
    pub from: Moment,
    /// Until when; the same where it takes no time.
    pub until: Moment,
}

/// How something was struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// The process was killed, by a signal or at a checkpoint.
    Killed,
    /// The process was stopped for a while.
    Paused,
    /// The process was told to leave.
    Drained,
    /// Its wire to the ledger: cut, silenced, slow, a statement or an answer spoilt.
    Ledger,
    /// Its wire to NATS: cut, silenced, slow, a message spoilt. Noise counts from its first message to its last.
    Bus,
    /// The wire of the tools to their Postgres.
    ToolDatabase,
    /// The Postgres server: killed, stopped for a while, restarted.
    Postgres,
    /// The nats-server: killed, stopped for a while, restarted.
    Nats,
    /// The stream or a consumer was removed, or the store of the nats-server wiped.
    Stream,
    /// What tools with a breaker depend on: it started nothing for a while.
    Target,
    /// The tools: all of them failed, or a worker could not open what it needs to reach them.
    Tools,
}

/// A text of a JSON value's member.
pub fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}
