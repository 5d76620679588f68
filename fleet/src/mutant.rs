//! Known mistakes that a test build can be told to make, so that the tests that should notice them can be tested.
//!
//! Each is one line at the decision that it spoils. In a production build there are none: no code, no variable. Built with
//! the feature `testing`, a process makes the one that `TOOLFLEET_MUTANT` names, and otherwise none. Mistakes in SQL need
//! nothing here: they are made on the way to Postgres (`tests/chaos/src/mutants`).

use crate::call::words;

words! {
    /// A mistake.
    Mutant {
        // What follows an attempt.
        /// A `once` call whose worker died is run again.
        OnceAgainAfterLoss = "once_again_after_loss",
        /// A `once` call whose effect is unknown is run again.
        OnceAgainAfterUnknown = "once_again_after_unknown",

        // What silence and zero rows mean.
        /// A claim that was not answered counts as one that took nothing.
        SilentClaimIsNone = "silent_claim_is_none",
        /// A completion that moved nothing counts as one that came too late.
        ZeroRowsAreLate = "zero_rows_are_late",

        // In which order an attempt goes.
        /// The message is acknowledged before the call is claimed.
        AckBeforeClaim = "ack_before_claim",
        /// A transaction's outcome is recorded after its COMMIT and not in it.
        OutcomeAfterCommit = "outcome_after_commit",

        // What others are told.
        /// Each attempt tells the tool another key.
        KeyPerAttempt = "key_per_attempt",
        /// Whoever waits may be told what came of another call.
        AnswersCrossed = "answers_crossed",
    }
}

/// The variable that names the mistake which a process makes.
#[cfg(feature = "testing")]
pub const VARIABLE: &str = "TOOLFLEET_MUTANT";

/// Whether this process makes this mistake.
#[cfg(not(feature = "testing"))]
pub const fn on(_mutant: Mutant) -> bool {
    false
}

/// Whether this process makes this mistake.
///
/// # Panics
///
/// The variable names none.
#[cfg(feature = "testing")]
pub fn on(mutant: Mutant) -> bool {
    static ON: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    *ON.get_or_init(named) == Some(mutant)
}

#[cfg(feature = "testing")]
fn named() -> Option<Mutant> {
    #[expect(
        clippy::disallowed_methods,
        reason = "not a setting: production builds do not know it"
    )]
    let name = std::env::var(VARIABLE).ok()?;
    Some(name.parse().expect("TOOLFLEET_MUTANT names a mistake"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_makes_a_mistake_unasked() {
        for mutant in Mutant::ALL {
            assert!(!on(*mutant), "{mutant}");
        }
    }
}
