//! Queued calls whose time is over: looked at when that is due, and ended.

use std::{collections::HashMap, time::Duration};

use fleet::{
    checkpoint::{Checkpoint, reached},
    ending::{Ending, Fact, Guard, Known},
    ids::CallId,
    store::{StoreError, expiry, walk::Expired},
    telemetry::report,
};
use tokio::{sync::mpsc, time::sleep};

use super::Sweep;
use crate::expiry::Question;

/// The most calls that one statement looks at.
const AT_ONCE: usize = 500;
/// The pause after a look that failed.
const AGAIN: Duration = Duration::from_millis(250);
/// The pause between two looks at remembered calls, so that calls that expire at about the same time share one.
const PAUSE: Duration = Duration::from_millis(10);

impl Sweep {
    /// Ends calls that callers wait for, when their waiters ask. Cancel-safe: each ending is one statement.
    pub(super) async fn expire_waited(self, mut asked: mpsc::Receiver<Question>) {
        let mut questions = Vec::new();
        while asked.recv_many(&mut questions, AT_ONCE).await > 0 {
            let calls: Vec<CallId> = questions.iter().map(|question| question.call).collect();
            let open: HashMap<CallId, Duration> = match self.expire(&calls, "expired_waited").await
            {
                Ok(left) => left.into_iter().collect(),
                Err(error) => {
                    let error = report(&error);
                    tracing::debug!(error, "calls that are waited for were not looked at");
                    HashMap::new()
                }
            };
            // A call that is no longer open is decided, here or elsewhere.
            let decided = calls.into_iter().filter(|call| !open.contains_key(call));
            let decided: Vec<CallId> = decided.collect();
            self.waiters.look(&self.pool, &decided).await;
            for Question { call, again } in questions.drain(..) {
                // The waiter may have been answered meanwhile.
                let (Ok(()) | Err(_)) = again.send(open.get(&call).copied().unwrap_or(AGAIN));
            }
        }
    }

    /// Ends calls without a waiting caller, when they expire. Cancel-safe: the walk finds what was taken.
    pub(super) async fn expire_soon(self) {
        loop {
            let over = self.expiry.until_over(AT_ONCE).await;
            match self.expire(&over, "expired_soon").await {
                Ok(left) => self.expiry.remember_all(left),
                Err(error) => {
                    tracing::debug!(error = report(&error), "calls that are over were not ended");
                    let again = over.into_iter().map(|call| (call, AGAIN));
                    self.expiry.remember_all(again);
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Ends the expired ones of these calls. Returns the ones that are still open, each with the pause until another look is
    /// worth it.
    async fn expire(
        &self,
        calls: &[CallId],
        pass: &'static str,
    ) -> Result<Vec<(CallId, Duration)>, StoreError> {
        let look = expiry::look(&self.pool, calls).await?;
        self.end_expired(look.expired, pass).await;
        Ok(look.left)
    }

    /// Ends these.
    pub(super) async fn end_expired(&self, expired: Vec<Expired>, pass: &'static str) {
        if expired.is_empty() {
            return;
        }
        reached(Checkpoint::ExpiredFound);
        self.end_all(expired.into_iter().map(ending).collect(), pass)
            .await;
    }
}

/// The ending of a queued call whose time is over.
fn ending(call: Expired) -> Ending {
    let known = Known {
        effect: call.effect,
        language: call.language,
        cancelled: false,
        earlier_unknown: call.unknown,
        applied_late: false,
    };
    let fact = Fact::Expired {
        obstacle: call.obstacle.as_ref(),
        waited_too_long: call.waited_too_long,
    };
    let guard = Guard::Queued(call.rev);
    Ending::by(&fact, &known, call.call_id, guard, None, "sweep".to_owned())
}
