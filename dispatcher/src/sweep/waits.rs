//! Calls that have waited long enough for somebody outside the fleet.

use std::time::Duration;

use fleet::{
    call::Awaiting,
    ending::{EndedAttempt, Ending, Fact, Guard, Known},
    outcome::OutcomeWord,
    store::{
        StoreError,
        awaiting::{self, WaitOver},
        look::STEP_ROWS,
    },
};

use super::{Sweep, every};

impl Sweep {
    /// Ends the waits that are over. Cancel-safe: each ending is one statement.
    pub(super) async fn end_waits(self) {
        let mut ticks = every(Duration::from_secs(1));
        loop {
            ticks.tick().await;
            self.warn("wait_over", self.waits_over().await);
        }
    }

    async fn waits_over(&self) -> Result<(), StoreError> {
        loop {
            let over = awaiting::over(&self.pool).await?;
            // What cannot be ended is left to the next pass.
            let is_last = over.len() < usize::try_from(STEP_ROWS).unwrap_or(usize::MAX);
            let (silent, undecided): (Vec<_>, Vec<_>) = over
                .into_iter()
                .partition(|call| call.awaiting == Awaiting::Client);
            for (over, pass) in [(silent, "wait_over"), (undecided, "undecided")] {
                self.end_all(over.into_iter().map(ending).collect(), pass)
                    .await;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

/// The ending of a call for which nobody came.
fn ending(call: WaitOver) -> Ending {
    let known = Known {
        effect: call.effect,
        language: call.language,
        cancelled: false,
        earlier_unknown: call.effect_unknown,
        applied_late: false,
    };
    let fact = match call.awaiting {
        Awaiting::Client => Fact::ClientSilent,
        Awaiting::Approval => Fact::Undecided,
    };
    // Whoever has it may still act.
    let unknown = || {
        let (effect, word) = (call.effect, OutcomeWord::Unknown);
        EndedAttempt::of(effect, word, None, false, call.language)
    };
    let (guard, attempt) = match call.attempt_id {
        Some(attempt) => (Guard::Attempt(attempt), Some(unknown())),
        None => (Guard::Queued(call.rev), None),
    };
    let actor = "sweep".to_owned();
    Ending::by(&fact, &known, call.call_id, guard, attempt, actor)
}
