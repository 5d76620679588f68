//! The rules of places and held calls, as `fleet/src/store/sql/claim_limited.sql` says them.
//!
//! The ledger's tests include this file and compare each answer of the real statement with it, on random histories
//! (`tests/tests/ledger/places.rs`): a rule that changes in SQL has to change here.

use fleet::call::State;

/// Whether a claim may take the call. `waits`: its pause is not over.
pub(crate) fn may_claim(state: State, held: bool, waits: bool, cancel_requested: bool) -> bool {
    state == State::Queued && !held && !waits && !cancel_requested
}

/// Whether an attempt holds its place: it runs, or it is in doubt and its time is not over.
pub(crate) fn is_live(state: State, time_is_over: bool) -> bool {
    match state {
        State::Running => true,
        State::InDoubt => !time_is_over,
        _ => false,
    }
}

/// Which places a claim may take, the first one first. `live` says of each place whether the attempt that it names is live.
///
/// Places behind the limit stem from a larger one; those of them that are taken count until they are free.
pub(crate) fn free(live: &[bool], limit: usize) -> impl Iterator<Item = usize> {
    let taken = live.iter().filter(|live| **live).count();
    (0..live.len())
        .filter(|place| !live[*place])
        .take(limit.saturating_sub(taken))
}
