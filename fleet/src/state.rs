//! **Is this move legal?** The only list of the moves of a call.
//!
//! ```text
//!             accept              claim
//!  (nothing) ───────▶ queued ─────────────▶ running ──────────────▶ succeeded / failed
//!         │            │  ▲                   │  │
//!         │expire,cancel  └── again, lost ────┘  └── doubt, lost ──▶ in_doubt ──▶ succeeded / failed
//!         │            ▼                                                ▲       (settled, or the same
//!         │     expired / cancelled / failed                            │        attempt answers late)
//!         │                                  silent, cancel, lost: write│
//!         └────▶ awaiting_client ───────────────────────────────────────┘
//!              ▲       │ answer: succeeded / failed; silent, cancel: a read is expired / cancelled
//!         wait │       │ a yes: queued; a no: failed; neither in time: expired
//!      running ┘       │ what was asked for: queued; a tool that answers later and does not: again, as after an attempt
//! ```
//!
//! A call that needs a yes waits for it before anything of it runs, so nothing of it has happened when it ends there.
//! A call of a tool that its caller's program runs is handed out when it is accepted, once and never again: a write of which
//! nothing is heard is in doubt. So is a write of a tool that said that it would answer later and does not, unless another attempt with
//! the same key may follow. A tool that asks for something has not begun.
//!
//! A doubt that a person abandons is `failed` too: nobody will ever know its effect, and nothing else follows from it.
//!
//! Two rules matter more than the picture. No path leads from `in_doubt` back to `queued`: a call that may have had its effect
//! never runs again. And nothing leads out of a terminal state: a call has one outcome, for ever.
//!
//! Every ending takes its state from here (`fleet/src/ending/`). Triggers have the same list (`legal_moves` on `open_calls`,
//! `finished_calls_legal_move` on the history); `tests/tests/ledger/agreement.rs` compares them cell by cell.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::call::{State, words};

words! {
    /// What happens to a call.
    Move {
        /// A worker takes it for its next attempt.
        Claim = "claim",
        /// The attempt ended and another may follow; or it is proven that nothing started.
        Again = "again",
        /// The attempt ended with an effect that may have happened.
        Doubt = "doubt",
        /// It worked.
        Succeed = "succeed",
        /// It did not work, and will not be tried again.
        Fail = "fail",
        /// Its deadline passed before an attempt could start.
        Expire = "expire",
        /// The caller cancelled it.
        Cancel = "cancel",
        /// Its tool answers later, or wants to know something first.
        Wait = "wait",
        /// Who may decide has said that it may run.
        Approve = "approve",
        /// Postgres lost writes, so the row of a `once` call is not proof any more.
        Quarantine = "quarantine",
    }
}

/// A move that is not in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a call that is {state} cannot {event}")]
pub struct IllegalMove {
    /// The state of the call.
    pub state: State,
    /// The event.
    pub event: Move,
}

/// The state of a call after an event.
///
/// # Errors
///
/// The move is not in the list.
pub const fn next(state: State, event: Move) -> Result<State, IllegalMove> {
    use Move::{Again, Approve, Cancel, Claim, Doubt, Expire, Fail, Quarantine, Succeed, Wait};
    use State::{AwaitingClient, Cancelled, Expired, Failed, InDoubt, Queued, Running, Succeeded};
    let illegal = Err(IllegalMove { state, event });
    match state {
        // Where it was handed out, what is heard of it decides, and silence about a write proves nothing.
        AwaitingClient => match event {
            // Only where it waits for a yes, and never a call that was handed to its caller's program.
            Approve => Ok(Queued),
            // Only where its tool has had it: by the same rules as after an attempt, or with what the tool asked for.
            Again => Ok(Queued),
            Succeed => Ok(Succeeded),
            Fail => Ok(Failed),
            Doubt | Quarantine => Ok(InDoubt),
            Expire => Ok(Expired),
            Cancel => Ok(Cancelled),
            Claim | Wait => illegal,
        },
        Queued => match event {
            Claim => Ok(Running),
            // A cached answer or an open breaker ends a call that never ran.
            Succeed => Ok(Succeeded),
            Fail => Ok(Failed),
            Expire => Ok(Expired),
            Cancel => Ok(Cancelled),
            // An `idempotent` call whose last attempt is unknown may run out of time before the next.
            Doubt | Quarantine => Ok(InDoubt),
            Again | Approve | Wait => illegal,
        },
        Running => match event {
            Again => Ok(Queued),
            Wait => Ok(AwaitingClient),
            Doubt | Quarantine => Ok(InDoubt),
            Succeed => Ok(Succeeded),
            Fail => Ok(Failed),
            // The attempt ended without an effect, and meanwhile time ran out or the caller cancelled.
            Expire => Ok(Expired),
            Cancel => Ok(Cancelled),
            Claim | Approve => illegal,
        },
        InDoubt => match event {
            Succeed => Ok(Succeeded),
            Fail => Ok(Failed),
            Claim | Again | Doubt | Expire | Cancel | Wait | Approve | Quarantine => illegal,
        },
        Succeeded | Failed | Cancelled | Expired => illegal,
    }
}

/// Whether any event leads from one state to another.
pub fn is_legal(from: State, to: State) -> bool {
    Move::ALL.iter().any(|event| next(from, *event) == Ok(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out_of_a_terminal_state() {
        for from in State::ALL.iter().filter(|state| state.is_terminal()) {
            for event in Move::ALL {
                assert!(next(*from, *event).is_err(), "{from} {event}");
            }
        }
    }

    #[test]
    fn what_is_in_doubt_never_runs_again() {
        let mut reachable = vec![State::InDoubt];
        let mut seen = Vec::new();
        while let Some(state) = reachable.pop() {
            seen.push(state);
            for event in Move::ALL {
                if let Ok(to) = next(state, *event)
                    && !seen.contains(&to)
                {
                    reachable.push(to);
                }
            }
        }
        assert!(
            !seen.contains(&State::Queued) && !seen.contains(&State::Running),
            "{seen:?}"
        );
    }

    #[test]
    fn every_move_is_as_it_was_agreed() {
        let legal: Vec<String> = State::ALL
            .iter()
            .flat_map(|from| {
                Move::ALL
                    .iter()
                    .filter_map(|event| Some((*from, *event, next(*from, *event).ok()?)))
            })
            .map(|(from, event, to)| format!("{from} --{event}--> {to}"))
            .collect();
        assert_eq!(
            legal,
            [
                "queued --claim--> running",
                "queued --doubt--> in_doubt",
                "queued --succeed--> succeeded",
                "queued --fail--> failed",
                "queued --expire--> expired",
                "queued --cancel--> cancelled",
                "queued --quarantine--> in_doubt",
                "running --again--> queued",
                "running --doubt--> in_doubt",
                "running --succeed--> succeeded",
                "running --fail--> failed",
                "running --expire--> expired",
                "running --cancel--> cancelled",
                "running --wait--> awaiting_client",
                "running --quarantine--> in_doubt",
                "in_doubt --succeed--> succeeded",
                "in_doubt --fail--> failed",
                "awaiting_client --again--> queued",
                "awaiting_client --doubt--> in_doubt",
                "awaiting_client --succeed--> succeeded",
                "awaiting_client --fail--> failed",
                "awaiting_client --expire--> expired",
                "awaiting_client --cancel--> cancelled",
                "awaiting_client --approve--> queued",
                "awaiting_client --quarantine--> in_doubt",
            ]
        );
    }
}
