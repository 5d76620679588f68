//! Calls that have waited long enough for somebody outside the fleet.

use std::time::Duration;

use fleet::{
    call::Awaiting,
    delay,
    ending::{EndedAttempt, Ending, Fact, Guard, Known, Tries},
    outcome::OutcomeWord,
    registry::Tool,
    store::{
        StoreError,
        awaiting::{self, WaitOver},
        look::STEP_ROWS,
    },
    telemetry::metrics,
};

use super::{Sweep, every};

impl Sweep {
    /// Ends the waits that are over. Cancel-safe: each ending is one statement.
    pub(super) async fn end_waits(self) {
        for whom in Awaiting::ALL {
            // The first of a series that begins at its value is no increase to an alert.
            metrics().swept(pass(*whom), 0);
        }
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
            for whom in Awaiting::ALL {
                let of_them = over.iter().filter(|call| call.awaiting == *whom);
                let endings = of_them.filter_map(|call| self.ending(call));
                self.end_all(endings.collect(), pass(*whom)).await;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// The ending of a call for which nobody came; `None`: the version of its tool is not read yet.
    fn ending(&self, call: &WaitOver) -> Option<Ending> {
        Some(match call.awaiting {
            Awaiting::Client => ending(call, &Fact::ClientSilent),
            Awaiting::Approval => ending(call, &Fact::Undecided),
            Awaiting::Input => ending(call, &Fact::NotTold),
            Awaiting::Completion => {
                let name = call.tool.parse().ok()?;
                let tool = self.registry.version(&name, call.tool_version)?;
                ending(call, &Fact::ToolSilent(tries(call, &tool)))
            }
        })
    }
}

/// The word for it in metrics: an alert names who did not come.
const fn pass(whom: Awaiting) -> &'static str {
    match whom {
        Awaiting::Client => "wait_over",
        Awaiting::Approval => "undecided",
        Awaiting::Completion => "completion_silent",
        Awaiting::Input => "not_told",
    }
}

/// How often its tool may be tried again. The time was up, so no budget of retries is asked: that is a worker's.
fn tries<'a>(call: &WaitOver, tool: &'a Tool) -> Tries<'a> {
    let policy = &tool.manifest.retry;
    let honoured = tool.manifest.idempotency.as_ref();
    let honoured = honoured.map(|idempotency| idempotency.valid_for);
    Tries {
        policy,
        spent: call.spent,
        taken_back: None,
        pause: delay::after_attempt(policy, call.call_id, call.spent),
        remaining: call.remaining,
        key_remaining: honoured.map(|honoured| honoured.saturating_sub(call.since_first_start)),
        is_suppressed: false,
    }
}

fn ending(call: &WaitOver, fact: &Fact<'_>) -> Ending {
    let known = Known {
        effect: call.effect,
        language: call.language,
        cancelled: false,
        earlier_unknown: call.effect_unknown,
        applied_late: false,
    };
    // A program of its caller may still act for the fleet. Of a tool that answers later no worker has anything any more.
    let has_stopped = call.awaiting == Awaiting::Completion;
    let unknown = || {
        let (effect, word) = (call.effect, OutcomeWord::Unknown);
        EndedAttempt::of(effect, word, None, has_stopped, call.language)
    };
    let (guard, attempt) = match call.attempt_id {
        Some(attempt) => (Guard::Attempt(attempt), Some(unknown())),
        None => (Guard::Queued(call.rev), None),
    };
    let actor = "sweep".to_owned();
    Ending::by(fact, &known, call.call_id, guard, attempt, actor)
}
