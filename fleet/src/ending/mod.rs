//! **What does a call end as?** The only place that decides it.
//!
//! From a fact about a call, and from what is known of the call, follows the ending that the ledger records and the caller
//! reads: state, outcome, source, effect, result, error, `degraded`.
//!
//! | file | has |
//! |---|---|
//! | `table` | the contract's table: what happened, and the words for it |
//! | `record` | what the ledger is asked to record |
//! | `known` | what is known of a call, whatever happened to it |
//! | `fact` | the facts, and what each of them comes to; `ran` and `lost` have the two large ones |
//! | `moved` | what the ledger says of a call that moved: its envelope and its event |
//!
//! The worker's `conclude`, `gate` and `heartbeat` and the dispatcher's sweep state facts; none of them builds an ending. The
//! state of an ending is the one to which [`crate::state::next`] leads, so no ending can be an illegal move. What the database
//! functions decide themselves (`settle`, `cancel`, `quarantine`, `toolfleet_tool.succeed`) is a fact here as well, and
//! `tests/tests/ledger/endings.rs` compares the two cell by cell.
//!
//! A new kind of ending is a row of the table and a fact: an answer from the cache, a fallback, an answer from the client.

mod table;

mod record;

mod known;

mod ran;

mod lost;

mod fact;

mod moved;

pub use self::{
    fact::{Fact, after_lost_writes, decide},
    known::Known,
    lost::LostAttempt,
    moved::Moved,
    ran::Tries,
    record::{EndedAttempt, Ending, EndingKind, Guard},
    table::{Happened, Words, effect_after},
};

#[cfg(test)]
mod tests;
