//! A wire to Postgres.
//!
//! A statement is executed by an `Execute` of a portal, whose kind is known from the `Parse` of its text, or by a `Query`.
//! A fault of its question strikes there. A fault of its answer strikes what the server says up to the `ReadyForQuery` that
//! belongs to it: there is one for every `Sync` and every `Query`, in their order, and one before all of them.
//!
//! ```text
//! frames    the bytes of both ends, cut into messages
//! known     the name of each statement, and the changes to its text
//! asked     the client's side: statements are recognised, and spoilt on their way there
//! answered  the server's side: answers are spoilt on their way back
//! refusal   errors that the server did not make
//! ```

mod answered;
mod asked;
mod frames;
mod known;
mod refusal;

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::{
    armed::Passing,
    ends::Ends,
    line::{self, Line, Protocol},
};
use answered::Answered;
use asked::Asked;
use known::Rewrites;

/// A wire to Postgres, for statements.
pub type Wire = line::Wire<Postgres>;

/// A statement that a fault can strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statement {
    /// Stores calls.
    Accept,
    /// Claims calls for attempts.
    Claim,
    /// Records what attempts came to.
    Complete,
    /// Ends the transaction of a tool.
    Commit,
    /// Says that a worker lives.
    Beat,
    /// Anything else.
    Other,
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The connection breaks before it arrives.
    CutBefore,
    /// It is executed, and the connection breaks before its answer.
    CutAfter,
    /// It is executed, and from then on nothing behind this wire reaches Postgres for so many milliseconds.
    Outage(u32),
    /// It is executed, and the connection breaks in the middle of its answer.
    CutWithin,
    /// Its answer comes late by so many milliseconds.
    DelayAnswer(u32),
    /// It arrives late by so many milliseconds.
    DelayQuestion(u32),
    /// Its answer never comes, and the connection stays.
    SwallowAnswer,
    /// It does not arrive, and is answered with an error of this class.
    Error(Refusal),
    /// Its answer comes in pieces of a few bytes.
    Trickle,
}

/// An error that Postgres may answer with at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// 40001
    SerializationFailure,
    /// 40P01
    Deadlock,
    /// 57014
    QueryCanceled,
    /// 53300
    TooManyConnections,
    /// 53100
    DiskFull,
    /// 57P01, and the connection ends
    AdminShutdown,
    /// 55P03
    LockNotAvailable,
    /// 25006
    ReadOnly,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::SerializationFailure,
        Self::Deadlock,
        Self::QueryCanceled,
        Self::TooManyConnections,
        Self::DiskFull,
        Self::AdminShutdown,
        Self::LockNotAvailable,
        Self::ReadOnly,
    ];
}

/// A change of what a statement says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrite {
    /// Every place where it says this
    pub find: String,
    /// says this instead.
    pub replace: String,
}

/// Postgres's protocol.
#[derive(Debug, Default)]
pub struct Postgres {
    rewrites: Rewrites,
}

impl Protocol for Postgres {
    type Kind = Statement;
    type Fault = Fault;

    async fn converse(line: &Line<Self>, ends: Ends<'_>) {
        let talk = Talk::default();
        let asked = Asked::new(line, &talk, ends.to_server, ends.to_client.clone());
        let answered = Answered::new(line, &talk, ends.to_client);
        tokio::select! {
            () = asked.carry(ends.from_client) => {}
            () = answered.carry(ends.from_server) => {}
        }
    }
}

impl Wire {
    /// From now on statements are changed on their way, where they are prepared; the wire still knows them for what they
    /// were. It remains so when the wire is healed.
    pub fn rewrite(&self, rewrites: Vec<Rewrite>) {
        self.line.protocol.rewrites.set(rewrites);
    }

    /// How many statements each of the changes has changed.
    pub fn rewritten(&self) -> Vec<u64> {
        self.line.protocol.rewrites.counts()
    }
}

/// What the sides of one connection tell each other.
#[derive(Debug, Default)]
struct Talk {
    planned: Mutex<VecDeque<Planned>>,
}

/// What is to happen to an answer.
#[derive(Debug, Clone, Copy)]
struct Planned {
    /// The how-manieth `ReadyForQuery` of the connection ends the answer, from 1.
    ready: u64,
    /// What it answers.
    statement: Statement,
    nth: u64,
    fault: Fault,
    /// Whether the question was a `Query`.
    simple: bool,
}

impl Planned {
    const fn new(
        passing: Passing<Statement, Fault>,
        fault: Fault,
        ready: u64,
        simple: bool,
    ) -> Self {
        Self {
            ready,
            statement: passing.kind,
            nth: passing.nth,
            fault,
            simple,
        }
    }
}

impl Talk {
    fn plan(&self, planned: Planned) {
        self.planned().push_back(planned);
    }

    /// What is to happen to this answer. What was planned for one before it and did not come to pass is forgotten.
    fn planned_for(&self, ready: u64) -> Option<Planned> {
        let mut planned = self.planned();
        while planned.front().is_some_and(|first| first.ready < ready) {
            planned.pop_front();
        }
        planned.pop_front_if(|first| first.ready == ready)
    }

    fn planned(&self) -> MutexGuard<'_, VecDeque<Planned>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
