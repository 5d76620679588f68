//! The interceptors of a program's own around its calls: one list, cloned once at the gate and carried to the end.
//!
//! `chain` is the list and what may stand in it, `hook` runs one hook of one interceptor, `round` takes a call through them
//! (`passage` is what there is of it), and `hearing` lets them hear its end. A change of the list meanwhile does not reach a call
//! that is under way. `tally` counts what they do, and `report` writes it to the ledger.

mod chain;
mod hearing;
mod hook;
mod passage;
pub(crate) mod report;
mod round;
mod tally;

pub(crate) use self::{
    chain::{Chain, Link, under},
    hearing::Hearing,
    passage::Subject,
    round::{Round, Stopped},
};
