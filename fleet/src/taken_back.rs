//! **Does an attempt count?** Every reason for which the platform ends an attempt that its tool did not end, and its cost.
//!
//! An attempt counts if its tool was asked, and answered, failed or kept silent. An attempt that the platform took back does
//! not count against `max_attempts`, whatever the retry policy says. It is bounded all the same: the pause of a reason that can
//! come back at once grows each time, lost workers are counted apart ([`crate::retry::is_poison`]), and no attempt begins after
//! the call's deadline.

use std::time::Duration;

use crate::call::words;

words! {
    /// Why the platform ended an attempt. The word is the reason in the call's history.
    TakenBack {
        /// The worker's lease was over before the tool was started, so it could start nothing.
        LeaseOver = "lease_over",
        /// More than half of the attempt's time was over before the tool was started: the claim or a slow machine took it.
        StartedTooLate = "started_too_late",
        /// The claim got no answer, and was committed all the same.
        ClaimGivenUp = "claim_given_up",
        /// The message named another tool than its call.
        WrongMessage = "wrong_message",
        /// The call's arguments could not be read.
        ArgumentsUnread = "arguments_unread",
        /// The call was cancelled before the tool was started.
        CancelledBefore = "cancelled_before_start",
        /// The worker left, and its drain time was over.
        WorkerLeft = "worker_left",
        /// The guard of a program lost its worker's order before it was complete.
        OrderTakenBack = "order_taken_back",
        /// The machine had no process, thread, descriptor or memory left to start the tool with; or its server has as many
        /// processes as may be.
        NoResources = "no_resources",
        /// The guard of a program could not do its work.
        GuardFailed = "guard_failed",
        /// The worker had no connection to NATS to ask the tool over.
        BusAway = "bus_away",
        /// The ledger did not put a request to a model on record, so the request did not leave.
        Unrecorded = "unrecorded",
        /// The worker died or fell silent.
        WorkerLost = "worker_lost",
        /// The attempt did not end long after it must have.
        AttemptOverdue = "attempt_overdue",
    }
}

/// What an attempt that is followed by another counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptCost {
    /// The tool's limit: the tool was asked.
    Spent,
    /// Nothing: the platform took it back.
    Unspent,
    /// The call's losses: its worker was lost. Counted apart, for a call that kills its workers must not go on.
    Lost,
}

/// The first pause before a call that the platform took back is tried again: long enough for the reason to pass.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

impl TakenBack {
    /// What the attempt counts against; never the tool's limit.
    pub const fn cost(self) -> AttemptCost {
        match self {
            Self::WorkerLost | Self::AttemptOverdue => AttemptCost::Lost,
            Self::LeaseOver
            | Self::StartedTooLate
            | Self::ClaimGivenUp
            | Self::WrongMessage
            | Self::ArgumentsUnread
            | Self::CancelledBefore
            | Self::WorkerLeft
            | Self::OrderTakenBack
            | Self::NoResources
            | Self::GuardFailed
            | Self::BusAway
            | Self::Unrecorded => AttemptCost::Unspent,
        }
    }

    /// The pause before the call is tried again; `before`: how many of its attempts were taken back already.
    ///
    /// An attempt that was lost or given up with a worker is tried elsewhere at once. Any other reason may come again, so the
    /// pause doubles each time, up to half a minute.
    pub fn pause(self, before: u32) -> Duration {
        match self {
            Self::ClaimGivenUp | Self::WorkerLost | Self::AttemptOverdue => Duration::ZERO,
            Self::LeaseOver
            | Self::StartedTooLate
            | Self::WrongMessage
            | Self::ArgumentsUnread
            | Self::CancelledBefore
            | Self::WorkerLeft
            | Self::OrderTakenBack
            | Self::NoResources
            | Self::GuardFailed
            | Self::BusAway
            | Self::Unrecorded => PAUSE.saturating_mul(1 << before.min(6)).min(PAUSE_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_the_platform_took_back_costs_the_tool_an_attempt() {
        for cause in TakenBack::ALL {
            assert_ne!(cause.cost(), AttemptCost::Spent, "{cause}");
        }
    }

    #[test]
    fn the_page_for_users_says_what_each_costs() {
        let page = include_str!("../../docs/attempts.md");
        for cause in TakenBack::ALL {
            let line = page
                .lines()
                .find(|line| line.starts_with(&format!("| `{cause}` |")));
            let costs = line.and_then(|line| line.rsplit('|').nth(1)).map(str::trim);
            let expected = match cause.cost() {
                AttemptCost::Lost => "a loss",
                AttemptCost::Unspent | AttemptCost::Spent => "nothing",
            };
            assert_eq!(costs, Some(expected), "{cause}");
        }
    }

    #[test]
    fn a_reason_that_stays_is_met_ever_less_often() {
        for cause in TakenBack::ALL {
            let pauses: Vec<Duration> = (0..10).map(|before| cause.pause(before)).collect();
            assert!(pauses.is_sorted(), "{cause}: {pauses:?}");
            let last = pauses.last().copied();
            match cause.cost() {
                AttemptCost::Unspent if *cause != TakenBack::ClaimGivenUp => {
                    assert_eq!(last, Some(PAUSE_MAX), "{cause}");
                }
                AttemptCost::Unspent | AttemptCost::Lost | AttemptCost::Spent => {
                    assert_eq!(last, Some(Duration::ZERO), "{cause}");
                }
            }
        }
    }
}
