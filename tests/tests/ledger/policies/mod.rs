//! Policies: what of a run or a session counts as having happened, and who may start a call after it.

mod bounds;
mod claims;
mod keys;
mod rules;
mod waits;

use fleet::{
    call::{Effect, EffectKnown, State},
    ids::{AttemptId, CallId},
    outcome::OutcomeWord,
    store::{
        accept::NewCall,
        complete::{Decision, EndedAttempt, Ending, EndingKind, Guard},
        policies::{self, BrokenRule},
    },
};
use serde_json::{Value, json};

use crate::{
    rates::applied,
    support::{Ledger, Worker, again, claim_of, doubted, end_in, ending, new_call},
};

/// A ledger with the tool `mail` and its policy, and a worker.
struct Scene {
    ledger: Ledger,
    worker: Worker,
}

/// What became of a call that was claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// It was not claimed yet.
    Waits,
    Runs,
    InDoubt,
    Ended(State, EffectKnown),
    /// It waits for another attempt, after one with this outcome.
    Again(OutcomeWord),
}

impl Scene {
    async fn with(policy: Value) -> Self {
        let mut ledger = Ledger::fresh().await;
        let has_rules = policy.as_object().is_some_and(|rules| !rules.is_empty());
        let fields = match has_rules {
            true => json!({ "policy": policy }),
            false => json!({}),
        };
        applied(&mut ledger.database.connect().await, "mail", 1, &fields).await;
        let worker = ledger.worker().await;
        Self { ledger, worker }
    }

    async fn apply(&self, version: i32, fields: Value) {
        let connection = &mut self.ledger.database.connect().await;
        applied(connection, "mail", version, &fields).await;
    }

    async fn apply_to(&self, tool: &str, fields: Value) {
        let connection = &mut self.ledger.database.connect().await;
        applied(connection, tool, 1, &fields).await;
    }

    /// The rule that this new call breaks.
    async fn broken(&self, call: NewCall) -> Option<BrokenRule> {
        let call = self.ledger.accepted(call).await;
        let broken = self.broken_by(call).await;
        self.ends(call, Guard::Queued(0), EffectKnown::NotApplied)
            .await;
        broken
    }

    async fn broken_by(&self, call: CallId) -> Option<BrokenRule> {
        let pool = &self.ledger.database.pool;
        policies::broken(pool, call).await.unwrap()
    }

    /// Something that happened before.
    async fn came(&self, call: NewCall, came: Came) -> CallId {
        let call = self.ledger.accepted(call).await;
        if came == Came::Waits {
            return call;
        }
        let attempt = self.starts(call).await;
        self.ends_as(call, attempt, came).await;
        call
    }

    /// What becomes of a call that runs.
    async fn ends_as(&self, call: CallId, attempt: AttemptId, came: Came) {
        let ledger = &self.ledger;
        match came {
            Came::Waits | Came::Runs => {}
            Came::InDoubt => ledger.ends(doubted(call, attempt)).await,
            Came::Ended(state, effect) => {
                let EndingKind::End(decision) = end_in(state) else {
                    unreachable!("it is an end")
                };
                let kind = EndingKind::End(Decision { effect, ..decision });
                ledger
                    .ends(ending(call, Guard::Attempt(attempt), kind))
                    .await;
            }
            Came::Again(outcome) => {
                let ended = ending(call, Guard::Attempt(attempt), again());
                let attempt = EndedAttempt {
                    outcome,
                    ..ended.attempt.clone().unwrap()
                };
                ledger
                    .ends(Ending {
                        attempt: Some(attempt),
                        ..ended
                    })
                    .await;
            }
        }
    }

    async fn succeeded(&self, call: NewCall) -> CallId {
        self.came(call, Came::Ended(State::Succeeded, EffectKnown::Applied))
            .await
    }

    /// Starts it as a call of a tool without a policy.
    async fn starts(&self, call: CallId) -> AttemptId {
        let row = claim_of(call);
        let attempt = row.attempt_id;
        let claimed = self.worker.claiming.claim(row).await.unwrap();
        assert!(claimed.is_some());
        attempt
    }

    async fn ends(&self, call: CallId, guard: Guard, effect: EffectKnown) {
        let EndingKind::End(decision) = end_in(State::Failed) else {
            unreachable!("it is an end")
        };
        let kind = EndingKind::End(Decision { effect, ..decision });
        self.ledger.ends(ending(call, guard, kind)).await;
    }
}

/// A call of this tool in this run and this session, each empty where it has none.
fn of(tool: &str, run: &str, session: &str) -> NewCall {
    let label = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    NewCall {
        tool: tool.parse().unwrap(),
        effect: Effect::Idempotent,
        run: label(run),
        session: label(session),
        ..new_call()
    }
}
