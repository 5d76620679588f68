//! **What does a call end as?** The only place that decides it.
//!
//! From a fact about a call, and from what is known of the call, follows the ending that the ledger records and the caller
//! reads: state, outcome, source, effect, result, error, `degraded`.
//!
//! | file | has |
//! |---|---|
//! | `table` | the contract's table: what happened, the words for it, and how a call was decided |
//! | `record` | what the ledger is asked to record, and what it says of a call that it moved |
//! | `fact` | the facts, and what each of them comes to; `lost` has the one about a lost worker, `handed` those about calls whose answer comes later |
//!
//! The worker's `conclude`, `gate` and `heartbeat` and the dispatcher's sweep state facts; none of them builds an ending. The
//! state of an ending is the one to which [`crate::state::next`] leads, so no ending can be an illegal move. What the database
//! functions decide themselves (`settle`, `cancel`, `quarantine`, `toolfleet_tool.succeed`) is a fact here as well, and
//! `tests/tests/ledger/endings.rs` compares the two cell by cell.
//!
//! An answer that stands in for the tool's changes an ending that is decided: [`Ending::answered_by`].
//!
//! A new kind of ending is a row of the table and a fact.

mod table;

mod record;

mod handed;

mod lost;

mod fact;

pub use self::{
    fact::{Fact, Found, after_lost_writes, decide},
    handed::LaterAnswer,
    lost::LostAttempt,
    record::{EndedAttempt, Ending, EndingKind, Guard, Moved},
    table::{Decision, Happened, Words},
};
pub use crate::retry::{Known, Tries};

#[cfg(test)]
mod tests;
